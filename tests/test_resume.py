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

STEPS = 13
"""An epoch and a half."""


def command(folder: Path, steps: int = STEPS) -> list[str]:
    """A training with accumulation, noise, a scheduled rate, and other data in each epoch."""
    return words(
        folder,
        *("task.fresh=true", "model.dropout=0.2", "data.tokens=40"),
        steps=steps,
        save_every=2,
        validate_every=5,
        accumulation=2,
        log_every=3,
        patience=50,
        keep=2,
    )


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
    last = checkpoint.steps(whole)[-2:]
    assert checkpoint.steps(folder)[-2:] == last
    for step in last:
        mine, its = (f / f"step-{step}/model.safetensors" for f in (folder, whole))
        assert mine.read_bytes() == its.read_bytes()
        optimizers = (f / f"step-{step}/state/optimizer.safetensors" for f in (folder, whole))
        assert len({optimizer.read_bytes() for optimizer in optimizers}) == 1
    assert metrics(folder) == metrics(whole), "no line missing, double or different"
    assert checkpoint.read_validations(folder) == checkpoint.read_validations(whole)
    assert checkpoint.read_validations(folder).best == checkpoint.read_validations(whole).best
    assert not [name for name in names(folder) if name.endswith((".tmp", ".damaged"))]


def survive(tmp_path: Path, kills: int, world: int, seed: int, steps: int = STEPS) -> Tally:
    """Kill a training so many times at random moments, and compare whenever one has finished.

    The moments are spread evenly over the shortest time that a run has taken so far.
    """
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    finish(command(whole, steps), tmp_path / "whole.log", world)
    began = time.monotonic()
    finish(command(folder, steps), tmp_path / "again.log", world)
    length = time.monotonic() - began
    compare(folder, whole)
    shutil.rmtree(folder)
    draw, tally = random.Random(seed), Tally()
    argv = command(folder, steps)
    while tally.kills < kills:
        log = tmp_path / f"{tally.kills}-{tally.finished}.log"
        began = time.monotonic()
        job = Job(argv, log, world)
        if job.ended(draw.uniform(0.3, 1.0) * length):
            length = min(length, time.monotonic() - began)
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
    tally = survive(tmp_path, kills=20, world=world, seed=world, steps=61)
    print(f"{world}: {tally}")
    assert tally.resumed


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
    DieAt("seqtrans.checkpoint", "write_validations", 3, after=False),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    finish(command(folder / "run"), folder / "log")
    return folder / "run"


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda m: f"{m.name}-{m.call}-{m.after}")
def test_killed_between_two_writes(tmp_path: Path, whole: Path, moment: DieAt) -> None:
    argv = command(tmp_path / "run")
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
