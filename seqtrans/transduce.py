"""From lines of text to lines of text, by a trained run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from pydantic import Field

from seqtrans.settings import Settings

BLOCK = 1000
"""Input lines that are decoded together."""


class TransduceSettings(Settings):
    """What ``seqtrans transduce`` can be told."""

    run: Path = Field(description="the run folder")
    step: str = Field("best", description="the checkpoint: best, last, average, or an update's number")
    input: Path | None = Field(None, description="read this file; none: standard input")
    output: Path | None = Field(None, description="write this file; none: standard output")
    format: Literal["line", "drawing", "json"] = Field(
        "line",
        description="one line for each input line; or the outputs drawn; or one JSON object a line, with all "
        "outputs and their scores",
    )
    best: int = Field(1, ge=1, description="how many outputs for each input; more than 1 needs json")
    svg: Path | None = Field(
        None, description="also draw each output into this folder, as 1.svg, 2.svg, ..., if the task can"
    )


def main(argv: list[str]) -> int:
    """Turn each line of the input into one line of output, in the same order.

    usage: seqtrans transduce run=FOLDER [step=best] [input=FILE] [output=FILE] [format=line|drawing|json]
                              [best=N] [svg=FOLDER] [decoder=NAME] [decoder.KEY=value …] [task.KEY=value …]

    A blank line gives a blank line.

    example: echo 'The old ferry left .' | seqtrans transduce run=runs/parsing format=drawing
    """
    from seqtrans.errors import SettingsError
    from seqtrans.reuse import read_command

    settings, overrides = read_command(argv, TransduceSettings, "transduce")
    if settings.best > 1 and settings.format != "json":
        raise SettingsError("best: more than one output for each input needs format=json.")
    from seqtrans.data import split_lines
    from seqtrans.engine import load
    from seqtrans.files import write_whole
    from seqtrans.reporting import counting

    engine = load(settings.run, settings.step, overrides=overrides)
    where = str(settings.input or "standard input")
    content = settings.input.read_bytes() if settings.input else sys.stdin.buffer.read()
    lines = split_lines(content, where)
    results: list[str] = []
    with counting("transducing", len(lines)) as bar:
        for first in range(0, len(lines), BLOCK):
            block = lines[first : first + BLOCK]
            found = Lines(engine, settings, first, where).turn(
                block, lambda n: bar.advance(bar.task_ids[0], n)
            )
            if settings.output is None:
                sys.stdout.write("".join(found))
                sys.stdout.flush()
            else:
                results += found
    if settings.output is not None:
        write_whole(settings.output, "".join(results))
    return 0
