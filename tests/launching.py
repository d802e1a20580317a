"""Trainings in processes of their own, which tests start, stop and kill.

The processes are forked from a server that has imported torch already: so a start takes a moment,
not the seconds that importing takes, and hundreds of kills can be tested.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["seqtrans.training", "seqtrans_plugins.greedy", "torch.utils.tensorboard", "torch._dynamo"]
)

TINY = [
    *("task=reversal", "model=tiny", "model.width=8", "model.inner=16", "model.heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "training=tiny", "training.warmup=5"),
    *("training.log_every=1", "run.threads=1", "data.tokens=50"),
]
"""A model that makes an update in milliseconds; an epoch of 60 numbers is 8 updates."""


def words(folder: Path, *more: str, **training: object) -> list[str]:
    """A command line for a tiny training in ``folder``; keywords are settings of ``training``.

    What is given stands in place of what is said in ``TINY``.
    """
    given = [f"run={folder}", *(f"training.{k}={v}" for k, v in training.items()), *more]
    keys = {word.partition("=")[0] for word in given}
    return [*(word for word in TINY if word.partition("=")[0] not in keys), *given]


def train(argv: list[str]) -> int:
    """What ``seqtrans train`` does, with the toy task among the built-ins."""
    from seqtrans.plugins import BUILTIN, Registry
    from seqtrans.resolving import packaged, resolve
    from seqtrans.settings import parse_words

    registry = Registry([*BUILTIN, "toy"])
    config = resolve(parse_words(argv, packaged()), registry)
    from seqtrans.training import run

    return run(config, registry)


Sabotage = Callable[[], None]


def child(
    argv: list[str], log: Path, environment: dict[str, str], sabotage: Sabotage | None
) -> None:
    """The life of a process: one command, its standard error in ``log``."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, encoding="utf-8")  # noqa: SIM115
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        os.environ.pop(name, None)
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import torch

    from seqtrans.commands import run

    torch.set_num_threads(1)
    if sabotage is not None:
        sabotage()
    os._exit(run(train, argv))


class Job:
    """One command in one or more processes that know of each other, as a launcher starts them."""

    def __init__(
        self, argv: list[str], log: Path, world: int = 1, sabotage: Sabotage | None = None
    ) -> None:
        self.log = log
        common = {}
        if world > 1:
            common = {
                "WORLD_SIZE": str(world),
                "LOCAL_WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(free_port()),
            }
        self.processes: list[ForkServerProcess] = []
        for rank in range(world):
            mine = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if world > 1 else {}
            process = SERVER.Process(target=child, args=(argv, log, common | mine, sabotage))
            process.start()
            self.processes.append(process)

    def send(self, number: int) -> None:
        """Send a signal to all processes."""
        for process in self.processes:
            if process.pid is not None and process.exitcode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def wait(self, seconds: float = 60) -> list[int]:
        """The exit status of each process; after ``seconds`` they are killed and it is an error."""
        end = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
        late = [process.exitcode is None for process in self.processes]
        if any(late):
            self.send(signal.SIGKILL)
            raise TimeoutError(f"still running after {seconds} s:\n{self.text()}")
        return [process.exitcode or 0 for process in self.processes]

    def ended(self, seconds: float) -> bool:
        """Whether the first process ends within some seconds."""
        self.processes[0].join(max(0.0, seconds))
        return self.processes[0].exitcode is not None

    def text(self) -> str:
        """What all processes have said so far."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Wait until the processes have said something."""
        end = time.monotonic() + seconds
        while text not in self.text():
            if time.monotonic() > end or self.ended(0.002):
                assert text in self.text(), self.text()
                return


def finish(argv: list[str], log: Path, world: int = 1, sabotage: Sabotage | None = None) -> str:
    """Run a command to its good end; what it said."""
    job = Job(argv, log, world, sabotage)
    assert job.wait() == [0] * world, job.text()
    return job.text()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def metrics(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The records of metrics.jsonl, without what depends on the clock."""

    def records() -> Iterator[dict[str, Any]]:
        for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines():
            record = json.loads(line)
            record.pop("tokens_per_second", None)
            record.pop("seconds", None)
            if kind is None or record["kind"] == kind:
                yield record

    return list(records())
