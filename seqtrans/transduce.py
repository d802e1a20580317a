"""From lines of text to lines of text, by a trained run."""

from __future__ import annotations

import json
import math
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from seqtrans.lines import named, read_lines
from seqtrans.reuse import EnsembleSettings, read_command

if TYPE_CHECKING:
    from seqtrans.decoding import Hypothesis
    from seqtrans.engine import Engine

BLOCK = 1000
"""Input lines that are decoded together."""


class TransduceSettings(EnsembleSettings):
    """What ``seqtrans transduce`` can be told."""

    input: Path | None = Field(None, description="read this file; none: standard input")
    output: Path | None = Field(None, description="write this file; none: standard output")
    format: Literal["line", "drawing", "json"] = Field(
        "line",
        description="one line for each input line; or the outputs drawn; or one JSON object a "
        "line, with all outputs and their scores",
    )
    best: int = Field(
        1, ge=1, description="how many outputs for each input; more than 1 needs json"
    )
    svg: Path | None = Field(
        None,
        description="also draw each output into this folder, as 1.svg, 2.svg, ..., if the task can",
    )
    prefix: str | None = Field(
        None, description="what every output begins with, as the task writes outputs"
    )
    prefixes: Path | None = Field(
        None,
        description="a file with what each output begins with, a line for each line of the input; "
        "a blank one: anything",
    )

    @model_validator(mode="after")
    def _one_beginning(self) -> TransduceSettings:
        if self.prefix is not None and self.prefixes is not None:
            raise ValueError("prefixes: give either this or prefix=TEXT")
        return self

    @model_validator(mode="after")
    def _countable(self) -> TransduceSettings:
        if self.best > 1 and self.format != "json":
            raise ValueError("best: more than one output for each input needs format=json")
        return self


def main(argv: list[str]) -> int:
    """Turn each line of the input into one line of output, in the same order.

    usage: seqtrans transduce run=FOLDER[,FOLDER …] [step=best[,STEP …]]
                              [mean=probabilities|logarithms] [input=FILE] [output=FILE]
                              [format=line|drawing|json] [best=N] [svg=FOLDER]
                              [prefix=TEXT|prefixes=FILE] [device=DEVICE] [tokens=N]
                              [precision=fp32|bf16|int8]
                              [decoder=NAME] [decoder.KEY=value …] [task.KEY=value …]

    A blank line gives a blank line. Several runs, each at every step that is given, decode as one
    by their mean; all but the weights is then the first run's. What the decoder and the task can be
    told is listed by seqtrans settings task=NAME decoder=NAME.

    example: echo 'The old ferry left .' | seqtrans transduce run=runs/parsing format=drawing
    """
    settings, changes = read_command(argv, TransduceSettings)
    from seqtrans.errors import DataError
    from seqtrans.files import whole_file, write_whole
    from seqtrans.reporting import counting

    engine = settings.load(changes)
    lines, where = read_lines(settings.input), named(settings.input)
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()]

    beginnings = None
    if settings.prefix is not None:
        beginnings = [settings.prefix] * len(numbers)
    elif settings.prefixes is not None:
        given = read_lines(settings.prefixes)
        if len(given) != len(lines):
            raise DataError(
                f"{settings.prefixes} has {len(given)} lines, and {where} has {len(lines)}."
            )
        beginnings = [given[number - 1] for number in numbers]

    def name(place: int) -> str:
        return f"{where}, line {numbers[place - 1]}"

    inputs = engine.read([lines[number - 1] for number in numbers], name)
    with ExitStack() as stack:
        out = sys.stdout
        if settings.output is not None:
            out = stack.enter_context(whole_file(settings.output))
        bar = stack.enter_context(counting("transducing", len(inputs)))
        written = 0
        for first in range(0, len(inputs), BLOCK):
            found = engine.alternatives(
                inputs[first : first + BLOCK],
                settings.best,
                progress=lambda done: bar.advance(bar.task_ids[0], done),
                names=lambda place, first=first: name(first + place),  # type: ignore[misc]
                prefixes=beginnings and beginnings[first : first + BLOCK],
            )
            for number, outputs in zip(numbers[first:], found, strict=False):
                for blank in lines[written : number - 1]:
                    out.write(shown(engine, settings.format, blank, []))
                out.write(shown(engine, settings.format, lines[number - 1], outputs))
                written = number
                if settings.svg is not None:
                    picture = engine.task.picture(outputs[0][0])
                    write_whole(settings.svg / f"{number}.svg", picture)
            out.flush()
        for blank in lines[written:]:
            out.write(shown(engine, settings.format, blank, []))
    return 0


def shown(engine: Engine, form: str, line: str, found: list[tuple[Any, Hypothesis]]) -> str:
    """What is written for one input line."""
    task = engine.task
    if form == "json":
        outputs = [
            {
                "output": task.write(output),
                "score": finite(hypothesis.score),
                "log_probability": finite(hypothesis.log_probability),
                "truncated": hypothesis.truncated,
            }
            for output, hypothesis in found
        ]
        return json.dumps({"input": line, "outputs": outputs}, ensure_ascii=False) + "\n"
    if not found:
        return "\n"
    return (task.draw if form == "drawing" else task.write)(found[0][0]) + "\n"


def finite(value: float) -> float | None:
    """A number as JSON has it: ``None`` for what is infinite."""
    return value if math.isfinite(value) else None


if __name__ == "__main__":
    from seqtrans.commands import run

    sys.exit(run(main, sys.argv[1:]))
