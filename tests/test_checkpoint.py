"""Checkpoints: what is in them, faults at every write, damage, and which one is chosen."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from launching import SERVER
from sabotage import Saboteur, die
from test_files import broken, full, names, stopped
from torch import nn

from seqtrans import checkpoint
from seqtrans.checkpoint import Progress
from seqtrans.errors import CheckpointError, SeqtransError
from seqtrans.files import sweep


class Tied(nn.Module):
    """One tensor under two names, a buffer to keep, and one not to."""

    def __init__(self, width: int = 3, seed: int = 1) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width)
        self.second.weight = self.first.weight
        self.register_buffer("kept", torch.randn(2))
        self.register_buffer("dropped", torch.randn(2), persistent=False)


def trained(seed: int = 1, width: int = 3) -> tuple[Tied, torch.optim.Optimizer]:
    """A model and its optimiser after one step."""
    model = Tied(width, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    model.second(model.first(torch.ones(width))).sum().backward()
    optimizer.step()
    return model, optimizer


def save(run: Path, *steps: int, seed: int = 1) -> None:
    model, optimizer = trained(seed)
    for step in steps:
        checkpoint.save(run, model, optimizer, Progress(step=step, seconds=60.0 * step))


def quiet(text: str) -> None:
    raise AssertionError(f"warned of: {text}")


def test_everything_comes_back(tmp_path: Path) -> None:
    model, optimizer = trained()
    progress = Progress(7, 2, 3, 1.25, 2, 4, 1 / 3, 99, {"scale": 65536.0})
    folder = checkpoint.save(tmp_path, model, optimizer, progress)
    assert folder == tmp_path / "step-7"
    assert names(folder) == ["manifest.json", "model.safetensors", "state"]
    assert sorted(safetensors.torch.load_file(folder / "model.safetensors")) == [
        "first.weight",
        "kept",
        "second.bias",
    ], "a tied tensor once, persistent buffers alone"
    other, its_optimizer = trained(seed=2)
    checkpoint.load_weights(folder, other)
    assert checkpoint.load_state(folder, its_optimizer) == progress
    assert other.first.weight is other.second.weight
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    assert not torch.equal(model.get_buffer("dropped"), other.get_buffer("dropped"))
    moments, its_moments = (o.state_dict()["state"] for o in (optimizer, its_optimizer))
    assert moments.keys() == its_moments.keys()
    for number, values in moments.items():
        for name, value in values.items():
            assert torch.equal(value, its_moments[number][name])
    for mine, its in zip(model.parameters(), other.parameters(), strict=True):
        its.grad = mine.grad
    optimizer.step()
    its_optimizer.step()
    assert torch.equal(model.first.weight, other.first.weight)


def test_the_first_checkpoint_has_no_moments(tmp_path: Path) -> None:
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters())
    folder = checkpoint.save(tmp_path, model, optimizer, Progress())
    checkpoint.load_state(folder, optimizer)
    assert optimizer.state_dict()["state"] == {}


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    save(tmp_path, 1)
    folder = tmp_path / "step-1"
    cases: list[tuple[nn.Module, str]] = [
        (
            Tied(width=4),
            "doesn't fit this model: first.weight is [3, 3] there and [4, 4] here.",
        ),
        (nn.Linear(3, 3), "doesn't fit this model: the checkpoint lacks bias."),
        (nn.Sequential(), "doesn't fit this model: the model has no first.weight."),
    ]
    for model, message in cases:
        with pytest.raises(CheckpointError) as error:
            checkpoint.load_weights(folder, model)
        assert str(error.value) == f"{folder} {message}"
    with pytest.raises(CheckpointError) as error:
        checkpoint.load_state(folder, torch.optim.Adam(nn.Linear(3, 3, bias=False).parameters()))
    assert str(error.value) == (
        f"{folder} can't be resumed from: its optimiser has other parameters."
    )
    path = folder / "state/progress.json"
    path.write_text(json.dumps({"step": 1, "colour": "blue"}))
    with pytest.raises(CheckpointError) as error:
        checkpoint.read_progress(folder)
    assert str(error.value) == (
        f"{folder} can't be resumed from: Progress.__init__() got an unexpected keyword argument "
        "'colour'."
    )


@pytest.mark.parametrize("harm", [full, broken, stopped])
@pytest.mark.parametrize("again", [False, True], ids=["once", "from then on"])
def test_a_fault_at_any_write_of_a_checkpoint(
    tmp_path: Path, harm: Callable[[], None], again: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        counter = Saboteur(-1, harm)
        counter.install(patch)
        save(tmp_path, 3)
    assert counter.calls >= 10
    for at in range(counter.calls):
        with pytest.MonkeyPatch.context() as patch:
            Saboteur(at, harm, again).install(patch)
            with pytest.raises((SeqtransError, OSError, KeyboardInterrupt)) as error:
                save(tmp_path, 6)
        if harm is full:
            assert str(error.value) == (
                f"{tmp_path / 'step-6'} can't be written: no space left on the device; "
                "what was there before is intact."
            )
        # After the rename, only its durability failed.
        expected = ["step-3", "step-6"] if at == counter.calls - 1 else ["step-3"]
        assert names(tmp_path) == expected
        assert checkpoint.newest(tmp_path, quiet) == (6 if len(expected) == 2 else 3)
    save(tmp_path, 6)
    assert checkpoint.newest(tmp_path, quiet) == 6


def killed_everywhere(run: Path) -> None:
    """Save step 6 in a process that dies at its first, second, … write, until one lives."""
    torch.set_num_threads(1)
    save(run, 3)
    for at in range(1000):
        child = os.fork()
        if child == 0:
            with pytest.MonkeyPatch.context() as patch:
                Saboteur(at, die).install(patch)
                save(run, 6)
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        found = checkpoint.newest(run, quiet)
        if status == 0:
            assert found == 6
            os._exit(100 + at)
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert found == 3 or (found == 6 and not any(run.glob(".step-6.*.tmp")))
        assert checkpoint.steps(run) in ([3], [3, 6])
        left = list(run.glob(".*.tmp"))
        sweep(run)
        assert names(run) == [f"step-{step}" for step in checkpoint.steps(run)], left
        shutil.rmtree(run / "step-6", ignore_errors=True)


def test_a_kill_at_any_write_of_a_checkpoint(tmp_path: Path) -> None:
    process = SERVER.Process(target=killed_everywhere, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode is not None
    assert process.exitcode >= 110, "the number of writes, and 100"


HARMS: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda f: os.truncate(f / "model.safetensors", 100),
        "model.safetensors has 100 bytes, not {size}",
    ),
    (lambda f: flip(f / "model.safetensors"), "the content of model.safetensors has changed"),
    (
        lambda f: flip(f / "state/optimizer.safetensors"),
        "the content of state/optimizer.safetensors has changed",
    ),
    (lambda f: (f / "manifest.json").unlink(), "it has no manifest"),
    (lambda f: (f / "state/progress.json").unlink(), "state/progress.json is missing"),
]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(("harm", "wrong"), HARMS)
def test_a_damaged_newest_is_set_aside_and_the_one_before_taken(
    tmp_path: Path, harm: Callable[[Path], object], wrong: str
) -> None:
    save(tmp_path, 8, 9, 10)
    size = (tmp_path / "step-10/model.safetensors").stat().st_size
    harm(tmp_path / "step-10")
    warnings: list[str] = []
    assert checkpoint.newest(tmp_path, warnings.append) == 9
    reason = wrong.format(size=size)
    assert warnings == [
        f"checkpoint {tmp_path / 'step-10'} is damaged ({reason}) and is not used; it is set aside "
        "as step-10.damaged, and step-9 is taken."
    ]
    assert checkpoint.steps(tmp_path) == [8, 9], "it isn't counted among those to keep"
    assert names(tmp_path) == ["step-10.damaged", "step-8", "step-9"]
    save(tmp_path, 10)
    harm(tmp_path / "step-10")
    checkpoint.newest(tmp_path, warnings.append)
    assert names(tmp_path) == ["step-10.damaged", "step-8", "step-9"]
    checkpoint.thin(tmp_path, 1, None)
    assert checkpoint.newest(tmp_path, quiet) == 9


def test_all_damaged_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    save(tmp_path, 8, 9)
    for step in (8, 9):
        flip(tmp_path / f"step-{step}/model.safetensors")
    with pytest.raises(CheckpointError) as error:
        checkpoint.newest(tmp_path, quiet)
    assert str(error.value) == (
        f"every checkpoint in {tmp_path} is damaged; of the newest, step-9, the content of "
        "model.safetensors has changed."
    )
    assert names(tmp_path) == ["step-8", "step-9"]
    assert checkpoint.newest(tmp_path / "absent", quiet) is None


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 10, 20)
    (tmp_path / "step-x").mkdir()
    (tmp_path / "step-7").write_text("a file")
    checkpoint.thin(tmp_path, 2, 2)
    assert checkpoint.steps(tmp_path) == [2, 10, 20]
    checkpoint.thin(tmp_path, 1, None)
    assert checkpoint.steps(tmp_path) == [20]


def test_the_best_score() -> None:
    nan = math.nan
    assert checkpoint.best_step({}, True) is None
    assert checkpoint.best_step({1: 5.0, 2: 7.0, 3: 7.0}, True) == 2, "an equal one is no better"
    assert checkpoint.best_step({1: 5.0, 2: 7.0, 3: 5.0}, False) == 1
    assert checkpoint.best_step({1: nan, 2: -7.0, 3: nan}, True) == 2
    assert checkpoint.best_step({1: nan, 2: 7.0, 3: nan}, False) == 2
    assert checkpoint.best_step({1: nan, 2: nan}, False) == 1


def test_validations_come_back(tmp_path: Path) -> None:
    assert checkpoint.read_validations(tmp_path).scores == {}
    assert checkpoint.read_validations(tmp_path).best is None
    scores = {5: 0.1 + 0.2, 10: math.nan, 15: 1e-300}
    checkpoint.write_validations(tmp_path, scores, True)
    back = checkpoint.read_validations(tmp_path).scores
    assert list(back) == [5, 10, 15]
    assert (back[5], back[15]) == (scores[5], scores[15])
    assert math.isnan(back[10])
    assert checkpoint.read_validations(tmp_path).best == 5
    path = tmp_path / "validations.json"
    for content in (
        "",
        "[]",
        '{"best": 5}',
        '{"best": "x", "scores": {}}',
        '{"best": 1, "scores": 2}',
    ):
        path.write_text(content)
        with pytest.raises(CheckpointError) as error:
            checkpoint.read_validations(tmp_path)
        assert str(error.value) == (
            f"{path} can't be read; without it the best checkpoint and patience are not known."
        )


def refusal(run: Path, step: str | int) -> str:
    with pytest.raises(CheckpointError) as error:
        checkpoint.choose(run, step)
    return str(error.value)


def test_which_checkpoint_is_used(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert refusal(run, "best") == f"there is no run folder {run}."
    run.mkdir()
    assert refusal(run, "last") == f"{run} holds no checkpoint yet."
    save(run, 5, 10, 15)
    assert checkpoint.choose(run) == run / "step-15", "no validation yet"
    checkpoint.write_validations(run, {5: 1.0, 10: 3.0, 15: 2.0}, True)
    assert checkpoint.choose(run) == run / "step-10"
    assert checkpoint.choose(run, "last") == run / "step-15"
    assert checkpoint.choose(run, 5) == checkpoint.choose(run, "5") == run / "step-5"
    for wrong in (7, "7", "newest", "-5"):
        assert refusal(run, wrong) == (
            f"{run} holds no checkpoint {wrong!r}; step is best, last, average or one of 5, 10, 15."
        )
    assert refusal(run, "average") == (
        f"{run} holds no average; seqtrans average run={run} last=N makes one."
    )
    flip(run / "step-10/model.safetensors")
    assert refusal(run, "best") == (
        f"checkpoint {run / 'step-10'} is damaged: the content of model.safetensors has changed."
    )
    shutil.rmtree(run / "step-10")
    assert checkpoint.choose(run) == run / "step-15", "the best is not there any more"
