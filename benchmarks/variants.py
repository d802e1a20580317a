"""What a choice is worth: the same training with each variant and several seeds, side by side."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, TextIO

from pydantic import Field

from benchmarks import board, machine
from benchmarks.commands import joined, measuring_command, told_apart
from benchmarks.places import portable_word
from benchmarks.record import portable_settings
from benchmarks.results import FORMAT, Measurement, write_measurement
from seqtrans.errors import SeqtransError, SettingsError
from seqtrans.plugins import registry
from seqtrans.resolving import Config, packaged, resolve
from seqtrans.settings import Settings, parse_words

REPORT = "evaluation.json"


class VariantsSettings(Settings):
    """What is compared, and where."""

    name: str = Field("variants", min_length=1, description="what the table is called")
    variants: str = Field(
        description="what is compared, a semicolon between two: of each the words that only its "
        "trainings get"
    )
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = Field(
        (1, 2, 3), description="the seeds of each variant's trainings"
    )
    folder: Path = Field(description="where the runs are; what is there already is gone on with")
    split: str = Field("dev", description="what is scored: dev or test")
    step: str = Field("last", description="the checkpoint that is scored")
    report: Path | None = Field(
        None, description="write the table into this folder of results; none: only show it"
    )


def main(argv: list[str]) -> int:
    """Train with each variant and each seed, and compare the scores.

    usage: python -m benchmarks variants variants='WORDS;WORDS …' folder=FOLDER [seeds=1,2,3]
                                         [name=NAME] [split=dev] [step=last] [report=FOLDER]
                                         key=value …

    All other words are those of seqtrans train, the same for all. Runs that are finished are not
    trained again, and one that was interrupted goes on.

    example: python -m benchmarks variants config=parsing-small task.treebank=wsj folder=runs/v
               variants='position=sinusoidal;position=rotary;attention=restricted'
    """
    settings, words, variants = told_apart(argv, VariantsSettings, "variants")
    if len({folder_name(own) for own in variants}) < len(variants):
        raise SettingsError("variants must differ in letters and digits, which name their folders.")
    for key in ("run", "run.folder", "run.seed"):
        if any(word.startswith(f"{key}=") for word in chain(words, *variants)):
            raise SettingsError(f"{key} is another for each training; leave it out.")
    names = registry()
    # Whatever is wrong with any of them is told before the first training.
    configs = [resolve(parse_words([*words, *own], packaged()), names) for own in variants]
    trials = [Trial(own, seed) for seed in settings.seeds for own in variants]
    scores: dict[Trial, dict[str, Any]] = {}
    for number, trial in enumerate(trials, start=1):
        scores[trial] = found = trial.score(words, settings)
        print(
            f"{number} of {len(trials)}: {trial}: {found['metric']} {found['value']:.2f}",
            file=sys.stderr,
        )
    measured = measurement(settings, words, configs, scores)
    print(board.scores(measured.figures), end="")
    if settings.report is not None:
        print(write_measurement(measured, settings.report))
    return 0


@dataclass(frozen=True)
class Trial:
    """One training."""

    words: tuple[str, ...]
    seed: int

    def __str__(self) -> str:
        return f"{' '.join(self.words)}, seed {self.seed}"

    def score(self, words: list[str], settings: VariantsSettings) -> dict[str, Any]:
        """Train, and score: what ``seqtrans evaluate`` reports. Raises ``SeqtransError`` with the
        last line of whatever fails.
        """
        name = f"{folder_name(self.words)}-{self.seed}"
        folder = settings.folder / name
        log = settings.folder / f"{name}.log"
        settings.folder.mkdir(parents=True, exist_ok=True)
        report = folder / REPORT
        use = [f"run={folder}", f"split={settings.split}", f"step={settings.step}"]
        with log.open("a", encoding="utf-8") as file:
            for command in (
                ["train", *words, *self.words, f"run={folder}", f"run.seed={self.seed}"],
                ["evaluate", *use, f"report={report}"],
            ):
                if seqtrans(command, file):
                    file.flush()
                    last = log.read_text(encoding="utf-8").strip().rpartition("\n")[2]
                    last = last.removeprefix("seqtrans: ")
                    raise SeqtransError(f"{self}: seqtrans {command[0]} failed: {last} ({log})")
        content: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return content


def folder_name(words: Sequence[str]) -> str:
    """The folder of a variant's runs, but for the seed."""
    return re.sub(r"[^\w.]+", "-", " ".join(words))


def seqtrans(command: list[str], log: TextIO) -> int:
    """Run a command in a process of its own; its exit status."""
    words = [sys.executable, "-m", "seqtrans", *command]
    return subprocess.run(words, stdout=log, stderr=subprocess.STDOUT, check=False).returncode


def measurement(
    settings: VariantsSettings,
    words: list[str],
    configs: Sequence[Config],
    scores: Mapping[Trial, dict[str, Any]],
) -> Measurement:
    """All scores; the value is the best mean."""
    from seqtrans import assembly

    first = next(iter(scores.values()))
    variants: dict[str, dict[str, float]] = {}
    for trial, found in scores.items():
        variants.setdefault(" ".join(map(portable_word, trial.words)), {})[str(trial.seed)] = found[
            "value"
        ]
    higher = assembly.build_task(configs[0], registry()).maximise
    means = [mean(values.values()) for values in variants.values()]
    flats = [portable_settings(config, settings.folder.resolve()) for config in configs]
    return Measurement(
        format=FORMAT,
        recipe=settings.name,
        metric=first["metric"],
        better="higher" if higher else "lower",
        value=max(means) if higher else min(means),
        figures={
            "data": first["data"],
            "split": first["split"],
            "step": first["step"],
            "signature": first["signature"],
            "variants": variants,
        },
        command=" ".join(
            [
                measuring_command(
                    "benchmarks variants",
                    settings.model_copy(update={"variants": ";".join(variants)}),
                    "folder",
                ),
                f"folder=runs/{settings.name}",
                joined(map(portable_word, words)),
            ]
        ),
        settings={
            key: value
            for key, value in flats[0].items()
            if key not in ("run.folder", "run.seed")
            and all(flat.get(key) == value for flat in flats)
        },
        versions=machine.versions(configs[0].as_json(registry())["providers"]),
        hardware=machine.hardware(),
    )
