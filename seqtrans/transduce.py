"""From lines of text to lines of text, by a trained run."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from seqtrans.settings import Settings

if TYPE_CHECKING:
    from seqtrans.decoding import Hypothesis
    from seqtrans.engine import Engine

BLOCK = 1000
"""Input lines that are decoded together."""


class TransduceSettings(Settings):
    """What ``seqtrans transduce`` can be told."""

    run: Path = Field(description="the run folder")
    step: str = Field(
        "best", description="the checkpoint: best, last, average, or an update's number"
    )
    input: Path | None = Field(None, description="read this file; none: standard input")
    output: Path | None = Field(None, description="write this file; none: standard output")
    format: Literal["line", "drawing", "json"] = Field(
        "line",
        description="one line for each input line; or the outputs drawn; or one JSON object a "
        "line, with all "
        "outputs and their scores",
    )
    best: int = Field(
        1, ge=1, description="how many outputs for each input; more than 1 needs json"
    )
    svg: Path | None = Field(
        None,
        description="also draw each output into this folder, as 1.svg, 2.svg, ..., if the task can",
    )

    @model_validator(mode="after")
    def _countable(self) -> TransduceSettings:
        if self.best > 1 and self.format != "json":
            raise ValueError("best: more than one output for each input needs format=json")
        return self


def main(argv: list[str]) -> int:
    """Turn each line of the input into one line of output, in the same order.

    usage: seqtrans transduce run=FOLDER [step=best] [input=FILE] [output=FILE]
                              [format=line|drawing|json] [best=N] [svg=FOLDER]
                              [decoder=NAME] [decoder.KEY=value …] [task.KEY=value …]

    A blank line gives a blank line. What the decoder and the task can be told is listed by
    seqtrans settings task=NAME decoder=NAME.

    example: echo 'The old ferry left .' | seqtrans transduce run=runs/parsing format=drawing
    """
    from seqtrans.reuse import read_command

    settings, changes = read_command(argv, TransduceSettings)
    from seqtrans.data import split_lines
    from seqtrans.engine import load
    from seqtrans.errors import DataError
    from seqtrans.files import whole_file, write_whole
    from seqtrans.reporting import counting

    engine = load(settings.run, settings.step, changes=changes)
    where = str(settings.input or "standard input")
    try:
        content = settings.input.read_bytes() if settings.input else sys.stdin.buffer.read()
    except OSError as error:
        raise DataError(f"{where} can't be read: {error.strerror}.") from None
    lines = split_lines(content, where)
    with ExitStack() as stack:
        out = sys.stdout
        if settings.output is not None:
            out = stack.enter_context(whole_file(settings.output))
        bar = stack.enter_context(counting("transducing", len(lines)))
        for first in range(0, len(lines), BLOCK):
            block = list(enumerate(lines[first : first + BLOCK], first + 1))
            inputs = {
                n: read(engine, text, f"{where}, line {n}") for n, text in block if text.strip()
            }
            found = engine.alternatives(
                list(inputs.values()),
                settings.best,
                progress=lambda done: bar.advance(bar.task_ids[0], done),
            )
            outputs = dict(zip(inputs, found, strict=True))
            for number, text in block:
                out.write(shown(engine, settings.format, text, outputs.get(number, [])))
                if settings.svg is not None and number in outputs:
                    picture = engine.task.picture(outputs[number][0][0])
                    write_whole(settings.svg / f"{number}.svg", picture)
            out.flush()
    return 0


def read(engine: Engine, line: str, where: str) -> Any:
    """An input from a line; the error of a wrong one says where it stands."""
    from seqtrans.errors import DataError

    try:
        return engine.task.read(line)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def shown(engine: Engine, form: str, line: str, found: list[tuple[Any, Hypothesis]]) -> str:
    """What is written for one input line."""
    task = engine.task
    if form == "json":
        outputs = [
            {
                "output": task.write(output),
                "score": hypothesis.score,
                "log_probability": hypothesis.log_probability,
                "truncated": hypothesis.truncated,
            }
            for output, hypothesis in found
        ]
        return json.dumps({"input": line, "outputs": outputs}, ensure_ascii=False) + "\n"
    if not found:
        return "\n"
    return (task.draw if form == "drawing" else task.write)(found[0][0]) + "\n"


if __name__ == "__main__":
    from seqtrans.commands import run

    sys.exit(run(main, sys.argv[1:]))
