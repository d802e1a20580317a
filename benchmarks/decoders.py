"""What a search is worth: several decode one split in turn, and are compared with the first."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from benchmarks import board, machine
from benchmarks.commands import joined, measuring_command, told_apart
from benchmarks.places import portable_run, portable_word
from benchmarks.results import FORMAT, Measurement, spread, write_measurement
from seqtrans.errors import SettingsError
from seqtrans.reuse import EnsembleSettings, read_command
from seqtrans.settings import Settings

if TYPE_CHECKING:
    from seqtrans.engine import Engine, Evaluation


class DecodersSettings(Settings):
    """What is compared, and how."""

    name: str = Field("decoders", min_length=1, description="what the table is called")
    decoders: str = Field(
        description="what is compared, a semicolon between two: of each the words that only it "
        "gets; the others are measured against the first"
    )
    split: str = Field("dev", description="what is decoded: train, dev or test")
    rounds: int = Field(3, ge=1, description="how often all take turns")
    report: Path | None = Field(
        None, description="write the table into this folder of results; none: only show it"
    )


def main(argv: list[str]) -> int:
    """Decode a split in several ways, in turn, and compare scores, outputs and time.

    usage: python -m benchmarks decoders decoders='WORDS;WORDS …' run=FOLDER [split=dev] [rounds=3]
                                         [name=NAME] [report=FOLDER] key=value …

    All other words are those of seqtrans evaluate, the same for all; what is compared may be
    another decoder, another precision, or another run of the same data. Nothing else should run on
    the machine meanwhile.

    example: python -m benchmarks decoders run=runs/parsing decoders='decoder=greedy;decoder=beam'
    """
    settings, words, variants = told_apart(argv, DecodersSettings, "decoders")
    read = [read_command([*words, *own], EnsembleSettings) for own in variants]
    contestants = [
        Contestant(" ".join(map(portable_word, own)), used.load(changes))
        for own, (used, changes) in zip(variants, read, strict=True)
    ]
    check_same_data(contestants, settings.split)
    for number in range(settings.rounds):
        for contestant in contestants:
            contestant.take_turn(settings.split)
        print(f"round {number + 1} of {settings.rounds}", file=sys.stderr)
    measured = measurement(settings, words, contestants)
    print(board.searches(measured.figures), end="")
    if settings.report is not None:
        print(write_measurement(measured, settings.report))
    return 0


@dataclass
class Contestant:
    """One way to decode, and what came of it."""

    name: str
    engine: Engine
    seconds: list[float] = field(default_factory=list)
    evaluation: Evaluation | None = None

    def take_turn(self, split: str) -> None:
        """Decode everything once more."""
        began = time.perf_counter()
        self.evaluation = self.engine.evaluate(split)
        self.seconds.append(time.perf_counter() - began)

    @cached_property
    def lines(self) -> list[str]:
        """The outputs as they are written, once all turns are taken."""
        assert self.evaluation is not None
        return [self.engine.task.write(output) for output in self.evaluation.outputs]

    def figures(self, first: Contestant) -> dict[str, Any]:
        """The score; the seconds of each round; how many times as fast as the first of all, the
        median of rounds with the least and the greatest; and how many outputs are the same.
        """
        assert self.evaluation is not None
        ratios = [theirs / own for theirs, own in zip(first.seconds, self.seconds, strict=True)]
        return {
            "score": self.evaluation.score.value,
            "seconds": self.seconds,
            "ratio": spread(ratios),
            "equal": sum(a == b for a, b in zip(self.lines, first.lines, strict=True)),
            "checkpoints": [f"{portable_run(p.parent)}/{p.name}" for p in self.engine.members],
        }


def check_same_data(contestants: Sequence[Contestant], split: str) -> None:
    """Refuse runs that have other data: their outputs can't be compared."""
    first = contestants[0].engine.task.data(split)
    for contestant in contestants[1:]:
        if contestant.engine.task.data(split) != first:
            raise SettingsError(f"{contestant.name!r} has another {split} than the first.")


def measurement(
    settings: DecodersSettings, words: list[str], contestants: Sequence[Contestant]
) -> Measurement:
    """Everything; the value is the speed of the fastest, as a multiple of the first's."""
    first = contestants[0]
    assert first.evaluation is not None
    score = first.evaluation.score
    found = {contestant.name: contestant.figures(first) for contestant in contestants}
    config = first.engine.config
    portable = settings.model_copy(update={"decoders": ";".join(found)})
    return Measurement(
        format=FORMAT,
        recipe=settings.name,
        metric="times_the_first",
        better="higher",
        value=max(figures["ratio"][0] for figures in found.values()),
        figures={
            "data": first.engine.task.data(settings.split)[0],
            "split": settings.split,
            "outputs": len(first.lines),
            "metric": score.metric,
            "signature": score.signature,
            "decoders": found,
        },
        command=f"{measuring_command('benchmarks decoders', portable)} "
        + joined(map(portable_word, words)),
        settings={"model": config.names["model"], "task": config.names["task"]},
        versions=machine.versions(config.as_json(first.engine.registry)["providers"]),
        hardware=machine.hardware(),
    )
