"""A corpus of several windows: killed and gone on with in any of them, a training is the same."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
from launching import Job, finish, metrics, words

from seqtrans import checkpoint
from seqtrans.corpus import Corpus
from seqtrans.data import Epoch

PAIRS = 2_000
WINDOW = 512
STEPS = 44
BEFORE, BETWEEN, AFTER = 5, 20, 37
"""Updates in the first window, in the second and in the third."""


def small_windows() -> None:
    """Have four windows where there would be one; called in the processes that train."""
    assert Epoch.__init__.__defaults__ is not None
    Epoch.__init__.__defaults__ = (*Epoch.__init__.__defaults__[:-1], WINDOW)


def write(folder: Path) -> list[str]:
    """Two files of words; the settings that name them."""
    draw = random.Random(1)
    lines = [draw.choices("abcdefgh", k=draw.randint(1, 9)) for _ in range(PAIRS)]
    for side, order in (("source", 1), ("target", -1)):
        text = "".join(f"{' '.join(line[::order])}\n" for line in lines)
        (folder / side).write_text(text, encoding="utf-8")
    return [f"task.train_{side}={folder / side}" for side in ("source", "target")]


def command(folder: Path, text: list[str]) -> list[str]:
    return words(
        folder,
        *("task=pairs", "task.level=symbols", "task.dev_size=3", *text),
        *("data.tokens=200", "model.dropout=0.2"),
        steps=STEPS,
        save_every=4,
        validate_every=1000,
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, text: list[str]) -> Path:
    """A run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    finish(command(folder, text), folder / "log", sabotage=small_windows)
    return folder


def test_the_run_has_several_windows(whole: Path) -> None:
    epoch = Epoch(Corpus.open(whole / "task/train"), 200, 1, 0, window=WINDOW)
    sizes = [len(epoch.updates(window)) for window in range(len(epoch))]
    assert len(sizes) == 4
    first, second = sizes[0], sum(sizes[:2])
    assert BEFORE < first < BETWEEN < second < AFTER < STEPS < sum(sizes)


@pytest.mark.parametrize("kill", [BEFORE, BETWEEN, AFTER])
@pytest.mark.slow
def test_killed_in_any_window_it_goes_on_exactly(
    tmp_path: Path, whole: Path, text: list[str], kill: int
) -> None:
    job = Job(command(tmp_path, text), tmp_path / "log", sabotage=small_windows)
    job.wait_for(f"update {kill:>6,} of")
    job.send(signal.SIGKILL)
    assert job.wait() == [-signal.SIGKILL]
    assert 0 < checkpoint.steps(tmp_path)[-1] < STEPS
    finish(command(tmp_path, text), tmp_path / "log", sabotage=small_windows)
    assert metrics(tmp_path) == metrics(whole)
    mine, its = (f / f"step-{STEPS}/model.safetensors" for f in (tmp_path, whole))
    assert mine.read_bytes() == its.read_bytes()
