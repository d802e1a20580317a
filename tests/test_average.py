"""Averaging checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from test_checkpoint import Tied, flip, trained
from test_checkpoint import save as save_step

from seqtrans import average, checkpoint
from seqtrans.checkpoint import Progress
from seqtrans.commands import run as command


def save(run: Path, *arguments: Any, keep: int = 100, **more: Any) -> None:
    """A checkpoint in a run that keeps so many."""
    save_step(run, *arguments, **more)
    content = json.dumps({"settings": {"training.keep": keep}})
    (run / "config.json").write_text(content, encoding="utf-8")


def averaged(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """The status of the command, and what it said."""
    status = command(average.main, argv)
    out, err = capsys.readouterr()
    return status, out + err


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def test_the_mean_of_the_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in range(1, 6):
        save(tmp_path, step, seed=step)
    assert averaged(capsys, f"run={tmp_path}", "last=3") == (
        0,
        "averaged the checkpoints of updates 3, 4, 5: step=average\n",
    )
    folder = checkpoint.choose(tmp_path, "average")
    parts = [weights(tmp_path / f"step-{step}") for step in (3, 4, 5)]
    found = weights(folder)
    assert sorted(found) == ["first.weight", "kept", "second.bias"], "tied storage once"
    for name, value in found.items():
        assert value.dtype == torch.float32
        mean = torch.stack([part[name].double() for part in parts]).mean(0)
        assert torch.equal(value, mean.float())
    model = Tied(seed=9)
    checkpoint.load_weights(folder, model)
    assert model.first.weight is model.second.weight
    assert torch.equal(model.second.weight, found["first.weight"])
    status, text = averaged(capsys, f"run={tmp_path}", "last=1", "until=2")
    assert (status, text) == (0, "averaged the checkpoints of updates 2: step=average\n")
    assert torch.equal(weights(folder)["kept"], weights(tmp_path / "step-2")["kept"])


def test_by_minutes_of_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, optimizer = trained()
    for step, minutes in ((1, 0.0), (2, 10.0), (3, 19.9), (4, 30.0)):
        checkpoint.save(tmp_path, model, optimizer, Progress(step=step, seconds=60 * minutes))
    content = json.dumps({"settings": {"training.keep": 9}})
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    for minutes, steps in (
        ("10", "4"),
        ("10.5", "3, 4"),
        ("20", "2, 3, 4"),
        ("1000", "1, 2, 3, 4"),
    ):
        status, text = averaged(capsys, f"run={tmp_path}", f"minutes={minutes}")
        assert status == 0
        assert f"updates {steps}: step=average" in text


@pytest.mark.parametrize("count", [2, 3, 7, 20])
def test_identical_checkpoints_average_to_themselves(tmp_path: Path, count: int) -> None:
    save(tmp_path, 1)
    mean = checkpoint.mean([tmp_path / "step-1"] * count)
    for name, value in weights(tmp_path / "step-1").items():
        assert torch.equal(mean[name], value)


def test_what_cannot_be_averaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = f"run={tmp_path}"
    assert averaged(capsys, run, "last=2") == (
        2,
        f"seqtrans: {tmp_path} holds no checkpoint to average.\n",
    )
    save(tmp_path, 4, 5)
    assert averaged(capsys, run, "last=3") == (
        2,
        f"seqtrans: {tmp_path} holds 2 checkpoints, not 3; train with a larger training.keep, or "
        "average fewer.\n",
    )
    assert averaged(capsys, run, "last=3", "until=4") == (
        2,
        f"seqtrans: {tmp_path} holds 1 checkpoint up to update 4, not 3; train with a larger "
        "training.keep, or average fewer.\n",
    )
    for wrong in ((), ("last=2", "minutes=3")):
        status, text = averaged(capsys, run, *wrong)
        assert status == 2
        assert "give either last=N checkpoints or minutes=M" in text
    flip(tmp_path / "step-5/model.safetensors")
    assert averaged(capsys, run, "last=2") == (
        2,
        f"seqtrans: checkpoint {tmp_path / 'step-5'} is damaged: the content of model.safetensors "
        "has changed.\n",
    )
    assert not (tmp_path / "average").exists()


def test_the_best_is_not_among_the_newest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is kept besides them, and may be much older."""
    for step in (1, 8, 9):
        save(tmp_path, step, seed=step, keep=2)
    assert averaged(capsys, f"run={tmp_path}", "last=3") == (
        2,
        f"seqtrans: {tmp_path} holds 2 checkpoints, not 3; train with a larger training.keep, or "
        "average fewer.\n",
    )
    assert averaged(capsys, f"run={tmp_path}", "last=2")[0] == 0
    assert checkpoint.averaged(tmp_path) == [8, 9]
    assert averaged(capsys, f"run={tmp_path}", "last=2", "until=8")[0] == 2
    assert averaged(capsys, f"run={tmp_path}", "last=1", "until=8")[0] == 0
    assert checkpoint.averaged(tmp_path) == [8]


def test_minutes_beyond_what_is_kept_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (8, 9):
        save(tmp_path, step, seed=step, keep=2)
    status, text = averaged(capsys, f"run={tmp_path}", "minutes=60")
    assert status == 0
    assert "the 2 checkpoints that are kept (training.keep) reach back 1.0 minutes only." in text
