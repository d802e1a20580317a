"""Killed at any moment, the same command goes on: the end is that of a run never stopped."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from launching import Job, finish, metrics, words
from sabotage import Saboteur, die
from test_files import names

from seqtrans import checkpoint

STEPS = 21
"""Two epochs and a half; with accumulation, noise, a scheduled rate and fresh data in each."""
OPTIONS = {
    "steps": STEPS,
    "save_every": 2,
    "validate_every": 5,
    "accumulation": 2,
    "log_every": 3,
    "patience": 50,
    "keep": 2,
}
MORE = ("task.fresh=true", "model.dropout=0.2", "data.tokens=40")


@dataclass
class Tally:
    """What happened to a training that was killed."""

    kills: int = 0
    saving: int = 0
    """Kills that left something half-written."""
    resumed: int = 0
    finished: int = 0


def compare(folder: Path, whole: Path) -> None:
    """The same weights, figures and validations as in a run that was never stopped."""
    for step in (STEPS, STEPS - 1):
        mine, its = (f / f"step-{step}/model.safetensors" for f in (folder, whole))
        assert mine.read_bytes() == its.read_bytes()
        optimizers = (f / f"step-{step}/state/optimizer.safetensors" for f in (folder, whole))
        assert len({optimizer.read_bytes() for optimizer in optimizers}) == 1
    assert metrics(folder) == metrics(whole), "no line missing, double or different"
    assert checkpoint.read_validations(folder) == checkpoint.read_validations(whole)
    assert checkpoint.read_best(folder) == checkpoint.read_best(whole)
    assert not [name for name in names(folder) if name.endswith((".tmp", ".damaged"))]


def survive(tmp_path: Path, kills: int, world: int, seed: int) -> Tally:
    """Kill a training so many times at random moments, and compare whenever one has finished.

    The moments are spread evenly over the time from the first line to the end of the whole run.
    """
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    began = time.monotonic()
    finish(words(whole, *MORE, **OPTIONS), tmp_path / "whole.log", world)
    length = time.monotonic() - began
    draw, tally = random.Random(seed), Tally()
    argv = words(folder, *MORE, **OPTIONS)
    while tally.kills < kills:
        log = tmp_path / f"{tally.kills}-{tally.finished}.log"
        job = Job(argv, log, world)
        if job.ended(draw.uniform(0.3, 1.0) * length):
            assert job.wait() == [0] * world, job.text()
            compare(folder, whole)
            tally.finished += 1
            shutil.rmtree(folder)
            continue
        job.send(signal.SIGKILL)
        assert set(job.wait()) <= {-signal.SIGKILL, 0}, job.text()
        tally.kills += 1
        tally.saving += any(folder.glob(".*.tmp"))
        tally.resumed += "going on from " in job.text()
    finish(argv, tmp_path / "last.log", world)
    compare(folder, whole)
    tally.finished += 1
    return tally


def test_killed_at_a_few_moments(tmp_path: Path) -> None:
    assert survive(tmp_path, kills=2, world=1, seed=1).kills == 2


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
def test_killed_at_many_moments(tmp_path: Path, world: int) -> None:
    tally = survive(tmp_path, kills=20, world=world, seed=world)
    print(f"{world}: {tally}")
    assert tally.resumed


def named(path: object, part: str) -> bool:
    return part in str(path)


@dataclass(frozen=True)
class DieAt:
    """Kills the process around one call of a function of the checkpoint or the reports."""

    module: str
    name: str
    call: int
    after: bool

    def __call__(self) -> None:
        import importlib

        owner = importlib.import_module(self.module)
        *path, last = self.name.split(".")
        for part in path:
            owner = getattr(owner, part)
        true: Callable[..., object] = getattr(owner, last)
        calls = 0

        def deadly(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == self.call and not self.after:
                die()
            result = true(*arguments, **options)
            if calls == self.call:
                die()
            return result

        setattr(owner, last, deadly)


MOMENTS = [
    # The dry run saves once, so that the third is the one after update 4.
    DieAt("seqtrans.checkpoint", "save", 3, after=False),
    DieAt("seqtrans.checkpoint", "save", 3, after=True),
    DieAt("seqtrans.checkpoint", "thin", 4, after=True),
    # Figures: after updates 3, 5 (validation), 6, …
    DieAt("seqtrans.reporting", "Reporter.record", 2, after=False),
    DieAt("seqtrans.reporting", "Reporter.record", 2, after=True),
    DieAt("seqtrans.checkpoint", "write_validations", 1, after=True),
    # The last validation comes after the last checkpoint.
    DieAt("seqtrans.checkpoint", "write_validations", 5, after=False),
]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda m: f"{m.name}-{m.call}-{m.after}")
def test_killed_between_two_writes(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, moment: DieAt
) -> None:
    whole = tmp_path_factory.getbasetemp() / "whole"
    if not whole.exists():
        finish(words(whole, *MORE, **OPTIONS), tmp_path / "whole.log")
    argv = words(tmp_path / "run", *MORE, **OPTIONS)
    job = Job(argv, tmp_path / "log", sabotage=moment)
    assert job.wait() == [-signal.SIGKILL], job.text()
    finish(argv, tmp_path / "log")
    compare(tmp_path / "run", whole)


@dataclass(frozen=True)
class DieAtWrite:
    """Kills the process at one of its writes to the disk."""

    number: int

    def __call__(self) -> None:
        Saboteur(self.number, die).install(pytest.MonkeyPatch())


@pytest.mark.parametrize("number", [2, 7])
def test_a_killed_preparation_leaves_nothing_that_looks_finished(
    tmp_path: Path, number: int
) -> None:
    argv = words(tmp_path / "run", steps=2)
    job = Job(argv, tmp_path / "log", sabotage=DieAtWrite(number))
    assert job.wait() == [-signal.SIGKILL], job.text()
    assert not (tmp_path / "run/task").exists()
    other = words(tmp_path / "run", "task.count=20", steps=2)
    finish(other, tmp_path / "log")


def test_patience_comes_back(tmp_path: Path) -> None:
    """Two validations without a better score before the kill, one after it: that makes three."""
    more = {"steps": 99, "validate_every": 2, "save_every": 2, "patience": 3}
    argv = words(tmp_path / "run", "task.constant=true", **more)
    job = Job(
        argv,
        tmp_path / "log",
        sabotage=DieAt("seqtrans.checkpoint", "write_validations", 3, after=True),
    )
    assert job.wait() == [-signal.SIGKILL], job.text()
    text = finish(argv, tmp_path / "again.log")
    assert "going on from " in text
    assert text.splitlines()[-1] == "no better score in 3 validations: stopped after update 8."
