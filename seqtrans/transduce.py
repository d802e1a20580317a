"""From lines of text to lines of text, by a trained run."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from seqtrans.errors import DataError, Problem, SettingsError
from seqtrans.lines import called, named, read_lines
from seqtrans.reuse import EnsembleSettings, read_command

if TYPE_CHECKING:
    from seqtrans.decoding import Hypothesis
    from seqtrans.engine import Engine

BLOCK = 1000
"""Input lines that are decoded together."""
Progress = Callable[[int], None]
"""Is told how many lines more are done."""


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
    target: Path | None = Field(
        None,
        description="a file with the output of each line, as this command writes it: nothing is "
        "decoded, and what is written is its log-probability, or all of it with json",
    )

    @model_validator(mode="after")
    def _scored(self) -> TransduceSettings:
        if self.target is not None:
            idle = {
                "best": self.best > 1,
                "svg": self.svg is not None,
                "prefix": self.prefix is not None,
                "prefixes": self.prefixes is not None,
                "format=drawing": self.format == "drawing",
            }
            name = next((name for name, given in idle.items() if given), None)
            if name is not None:
                raise ValueError(f"target: {name} has no effect with it, since nothing is decoded")
        return self

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
           seqtrans transduce run=FOLDER … target=FILE [format=line|json] …

    A blank line gives a blank line. Several runs, each at every step that is given, decode as one
    by their mean; all but the weights is then the first run's. What the decoder and the task can be
    told is listed by seqtrans settings task=NAME decoder=NAME.

    With target=FILE, which has an output for each line of the input, nothing is decoded: what is
    written of each is the natural logarithm of its probability, its end included, and with
    format=json that of each symbol.

    example: echo 'The old ferry left .' | seqtrans transduce run=runs/parsing format=drawing
    """
    settings, changes = read_command(argv, TransduceSettings)
    if settings.target is not None and "decoder" in changes.tree:
        raise SettingsError(
            Problem("decoder", "has no effect with target=FILE, since nothing is decoded")
        )
    from seqtrans.files import whole_file
    from seqtrans.reporting import counting

    engine = settings.load(changes)
    lines = read_lines(settings.input)
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()]
    make, doing = (transducing, "transducing") if settings.target is None else (scoring, "scoring")
    made = make(engine, settings, lines, numbers)
    with ExitStack() as stack:
        out = sys.stdout
        if settings.output is not None:
            out = stack.enter_context(whole_file(settings.output))
        bar = stack.enter_context(counting(doing, len(numbers)))

        def progress(done: int) -> None:
            bar.advance(bar.task_ids[0], done)

        written = 0
        for first in range(0, len(numbers), BLOCK):
            for number, text in zip(numbers[first:], made(first, progress), strict=False):
                for blank in lines[written : number - 1]:
                    out.write(nothing(settings, blank))
                out.write(text)
                written = number
            out.flush()
        for blank in lines[written:]:
            out.write(nothing(settings, blank))
    return 0


def transducing(
    engine: Engine, settings: TransduceSettings, lines: Sequence[str], numbers: Sequence[int]
) -> Callable[[int, Progress], list[str]]:
    """What gives the lines of output for a block of those with these ``numbers``, by its first
    place among them.

    Raises ``DataError`` for what can't be an input, or prefixes of another number than ``lines``.
    """
    from seqtrans.files import write_whole

    where, beginnings = named(settings.input), None
    if settings.prefix is not None:
        beginnings = [settings.prefix] * len(numbers)
    elif settings.prefixes is not None:
        given = read_lines(settings.prefixes)
        if len(given) != len(lines):
            raise DataError(
                f"{settings.prefixes} has {len(given)} lines, and {where} has {len(lines)}."
            )
        beginnings = [given[number - 1] for number in numbers]
    inputs = engine.read([lines[number - 1] for number in numbers], called(where, numbers))

    def made(first: int, progress: Progress) -> list[str]:
        block = slice(first, first + BLOCK)
        found = engine.alternatives(
            inputs[block],
            settings.best,
            progress=progress,
            names=called(where, numbers[block]),
            prefixes=beginnings and beginnings[block],
        )
        if settings.svg is not None:
            for number, outputs in zip(numbers[block], found, strict=True):
                picture = engine.task.picture(outputs[0][0])
                write_whole(settings.svg / f"{number}.svg", picture)
        return [
            shown(engine, settings.format, lines[number - 1], outputs)
            for number, outputs in zip(numbers[block], found, strict=True)
        ]

    return made


def scoring(
    engine: Engine, settings: TransduceSettings, lines: Sequence[str], numbers: Sequence[int]
) -> Callable[[int, Progress], list[str]]:
    """As :func:`transducing`, for outputs that are given.

    Raises ``DataError`` for what can't be an input or a target, for targets of another number than
    ``lines``, and for a target where there is no input.
    """
    assert settings.target is not None
    where, targets = named(settings.input), read_lines(settings.target)
    if len(targets) != len(lines):
        raise DataError(
            f"{settings.target} has {len(targets)} lines and {where} has {len(lines)}; "
            "each line needs its target."
        )
    for number, (line, target) in enumerate(zip(lines, targets, strict=True), 1):
        if target.strip() and not line.strip():
            raise DataError(
                f"{settings.target}, line {number}: there is a target, and this line of {where} "
                "is blank."
            )
    inputs = engine.read([lines[number - 1] for number in numbers], called(where, numbers))
    ids = engine.read_targets(
        [targets[number - 1] for number in numbers], called(str(settings.target), numbers)
    )

    def made(first: int, progress: Progress) -> list[str]:
        block = slice(first, first + BLOCK)
        found = engine.log_probabilities(
            inputs[block],
            ids[block],
            progress=progress,
            names=called(where, numbers[block]),
        )
        if settings.format == "line":
            return [f"{math.fsum(symbols):.6f}\n" for symbols in found]
        return [
            told(engine, lines[number - 1], targets[number - 1], target, symbols)
            for number, target, symbols in zip(numbers[block], ids[block], found, strict=True)
        ]

    return made


def nothing(settings: TransduceSettings, line: str) -> str:
    """What is written for a blank line."""
    if settings.format != "json":
        return "\n"
    made: dict[str, Any] = {"input": line, "outputs": []}
    if settings.target is not None:
        made = {"input": line, "target": "", "log_probability": None, "symbols": []}
    return json.dumps(made, ensure_ascii=False) + "\n"


def told(
    engine: Engine, line: str, target: str, ids: Sequence[int], symbols: Sequence[float]
) -> str:
    """The JSON of a given target, of which ``symbols`` are the log-probabilities, eos last."""
    from seqtrans.attend import texts

    vocabulary = engine.task.target_vocabulary
    units = texts(engine.task, [*ids, vocabulary.eos], "target", vocabulary)
    made = {
        "input": line,
        "target": target,
        "log_probability": finite(math.fsum(symbols)),
        "symbols": [
            {"symbol": unit, "log_probability": finite(symbol)}
            for unit, symbol in zip(units, symbols, strict=True)
        ],
    }
    return json.dumps(made, ensure_ascii=False) + "\n"


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
    return (task.draw if form == "drawing" else task.write)(found[0][0]) + "\n"


def finite(value: float) -> float | None:
    """A number as JSON has it: ``None`` for what is infinite."""
    return value if math.isfinite(value) else None


if __name__ == "__main__":
    from seqtrans.commands import run

    sys.exit(run(main, sys.argv[1:]))
