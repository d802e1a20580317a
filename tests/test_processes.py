"""Several processes, and signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from launching import Job, finish, metrics, words
from test_files import names

from seqtrans import checkpoint

FEW = {"steps": 6, "validate_every": 3, "save_every": 3}


def losses(folder: Path) -> list[float]:
    return [record["loss"] for record in metrics(folder, "training")]


def pair(tmp_path: Path, *runs: tuple[str, int, int]) -> None:
    """Train twice, with so many processes and accumulation steps, and compare all figures."""
    records = []
    for number, (more, world, accumulation) in enumerate(runs):
        folder = tmp_path / str(number)
        argv = words(folder, *more.split(), accumulation=accumulation, **FEW)
        text = finish(argv, tmp_path / f"{number}.log", world)
        assert text.count("update      6 of 6") == 1, "the main process speaks alone"
        processes = "1 process" if world == 1 else f"{world} processes"
        assert f"parameters; {processes} on cpu" in text
        records.append(metrics(folder))
    one, other = records
    assert [r.pop("lr") for r in one if "lr" in r] == [r.pop("lr") for r in other if "lr" in r]
    for mine, its in zip(one, other, strict=True):
        assert mine.pop("kind") == its.pop("kind")
        assert mine.pop("gradient_norm", 0) == pytest.approx(its.pop("gradient_norm", 0), rel=1e-4)
        assert mine == pytest.approx(its, rel=1e-6)


def test_two_processes_learn_what_one_does(tmp_path: Path) -> None:
    """With as many parts in all, the same noise falls on the same examples."""
    pair(tmp_path, ("model.dropout=0.3", 1, 2), ("model.dropout=0.3", 2, 1))


def test_three_processes_with_four_parts_each(tmp_path: Path) -> None:
    """Some parts are empty, and a process without an example to validate."""
    pair(tmp_path, ("model.dropout=0 task.dev=2", 1, 1), ("model.dropout=0 task.dev=2", 3, 4))


def test_another_number_of_processes_goes_on(tmp_path: Path) -> None:
    """What is learnt is what one process would have learnt, to rounding."""
    plain = ("model.dropout=0",)
    finish(words(tmp_path / "whole", *plain, steps=14), tmp_path / "log")
    for step, world in ((3, 2), (9, 1), (14, 2)):
        log = tmp_path / f"{step}.log"
        text = finish(words(tmp_path / "run", *plain, steps=step), log, world)
        assert ("warning: this run had " in text) is (step > 3)
    assert (
        "seqtrans: warning: this run had 1 process of 1 thread and now has 2 processes of 1 thread:"
        " it goes on with the next update, each example once, but sums are rounded differently."
    ) in text
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "whole"), rel=1e-5)
    epochs = [[r["epoch"] for r in metrics(tmp_path / f, "training")] for f in ("run", "whole")]
    assert epochs[0] == epochs[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("world", [1, 2])
def test_a_signal_saves_and_stops(tmp_path: Path, number: signal.Signals, world: int) -> None:
    job = Job(words(tmp_path / "run", steps=9999, log_every=50), tmp_path / "log", world)
    job.wait_for("update     50 of 9,999")
    job.send(number)
    job.send(number)  # an echo, as launchers make: no second signal
    assert job.wait() == [128 + number] * world, job.text()
    last = job.text().splitlines()[-1]
    stopped = re.fullmatch(
        rf"stopped by {number.name} after update (\d+) of 9999, which is saved; "
        r"the same command goes on from there\.",
        last,
    )
    assert stopped is not None, job.text()
    step = int(stopped[1])
    assert checkpoint.steps(tmp_path / "run")[-1] == step
    text = finish(words(tmp_path / "run", steps=step + 1, log_every=50), tmp_path / "log2", world)
    assert f"going on from {tmp_path / 'run'}/step-{step}, update {step} of {step + 1}." in text


def test_a_signal_to_any_process_stops_all(tmp_path: Path) -> None:
    job = Job(words(tmp_path / "run", steps=9999, log_every=50), tmp_path / "log", 2)
    job.wait_for("update     50 of 9,999")
    pid = job.processes[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    assert job.wait() == [143, 143], job.text()
    assert "stopped by SIGTERM after update " in job.text()


@dataclass(frozen=True)
class SlowSaving:
    """A disk that takes a minute for a checkpoint."""

    def __call__(self) -> None:
        true = checkpoint.save_weights

        def slow(folder: Path, values: object) -> None:
            true(folder, values)  # type: ignore[arg-type]
            if "trial" not in str(folder):
                print("saving", file=sys.stderr)
                time.sleep(60)

        checkpoint.save_weights = slow  # type: ignore[assignment]


def test_a_second_signal_is_obeyed_at_once(tmp_path: Path) -> None:
    job = Job(words(tmp_path / "run", steps=9999), tmp_path / "log", sabotage=SlowSaving())
    job.wait_for("update      2 of 9,999")
    job.send(signal.SIGTERM)
    job.wait_for("saving")
    time.sleep(1.1)
    job.send(signal.SIGTERM)
    assert job.wait(10) == [143], job.text()
    assert checkpoint.steps(tmp_path / "run") == []
    assert not [name for name in names(tmp_path / "run") if name.endswith(".tmp")]


@pytest.mark.parametrize("world", [1, 2])
def test_a_second_training_in_a_folder_is_refused(tmp_path: Path, world: int) -> None:
    argv = words(tmp_path / "run", steps=9999, log_every=50)
    job = Job(argv, tmp_path / "log", world)
    job.wait_for("update     50 of 9,999")
    other = Job(argv, tmp_path / "other.log", world)
    assert other.wait(30) == [2] * world
    assert other.text() == (
        f"seqtrans: another process ({job.processes[0].pid}) is training in {tmp_path / 'run'}; "
        "choose another run=FOLDER.\n"
    )
    job.send(signal.SIGKILL)
    job.wait()
    argv = words(tmp_path / "run", steps=2, log_every=50)
    finish(argv, tmp_path / "log", world)


def test_what_fails_on_the_main_process_is_told_once_and_ends_all(tmp_path: Path) -> None:
    job = Job(words(tmp_path / "run", "task.fails=true"), tmp_path / "log", 2)
    assert job.wait(30) == [2, 2]
    assert job.text() == "seqtrans: the digits are not there.\n"


@pytest.mark.slow
def test_two_processes_end_every_time(tmp_path: Path) -> None:
    """Leaving the group in the wrong order hung one time in five."""
    for number in range(15):
        argv = words(tmp_path / str(number), "training.dry_run=false", steps=2)
        finish(argv, tmp_path / f"{number}.log", 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"],
        [
            *("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
            *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
        ],
    ],
    ids=["torchrun", "accelerate"],
)
def test_true_launchers(tmp_path: Path, launcher: list[str]) -> None:
    """Two processes that see each other, and Ctrl-C, which reaches launcher and processes alike."""
    tiny = [word for word in words(tmp_path / "run", log_every=5) if "task" not in word]
    command = [
        *(sys.executable, "-m", *launcher, "-m", "seqtrans.train", "task=parsing", *tiny),
        *("data.longest_source=12", "training.steps=9999"),
    ]
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=environment, start_new_session=True
        )
        try:
            end = time.monotonic() + 120
            while "update     10 of 9,999" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.1)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) != 0
        finally:
            # Its processes have sessions of their own: only the launcher can end them.
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
    text = log.read_text()
    assert "2 processes on cpu" in text
    assert "which is saved; the same command goes on from there." in text, text
    assert len(re.findall(r"update +10 of", text)) == 1
