"""The processes that a launcher started: how they begin, agree and end through Accelerate.

Each has its share of the cores; what the main one does alone, the others wait for; a signal that
one gets is remembered until an update is finished.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import broadcast_object_list, gather_object

from seqtrans.errors import SeqtransError
from seqtrans.resolving import Config

__all__ = [
    "SIGNALS",
    "Accelerator",
    "Interrupt",
    "count",
    "gathered",
    "leave",
    "once",
    "start_processes",
]

T = TypeVar("T")
LINUX = hasattr(os, "sched_getaffinity")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
ECHO = 1.0
"""Seconds in which a second signal is the first one's echo: launchers pass Ctrl-C on once more."""
PATIENCE = timedelta(hours=2)
"""How long processes wait for one another: the first may have much to prepare."""


class Interrupt:
    """Remembers SIGTERM and Ctrl-C, so that an update can be finished and saved.

    The second one is obeyed at once.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.at = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal, self.at = number, time.monotonic()
        elif time.monotonic() - self.at > ECHO:
            raise SystemExit(128 + number)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen inside this block."""
        before = {number: signal.signal(number, self) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def start_processes(config: Config) -> Accelerator:
    """Join the processes that the launcher started, and give each its share of the cores.

    Raises ``SeqtransError`` if a launcher started several that would all train the same alone.
    """
    announced = int(os.environ.get("WORLD_SIZE", "1"))
    strangers = announced > 1 and "MASTER_ADDR" not in os.environ
    if not strangers:
        accelerator = Accelerator(
            cpu=not torch.cuda.is_available(),
            kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE)],
        )
    if strangers or (announced > 1 and accelerator.num_processes == 1):
        raise SeqtransError(
            f"the launcher started {announced} processes (WORLD_SIZE), but they can't see each "
            "other and would all train the same; start one, or use "
            "accelerate launch --multi_gpu --num_processes N or torchrun."
        )
    # With a mask its gradients can be NaN (torch 2.13; pytorch/pytorch#196678).
    torch.backends.cuda.enable_cudnn_sdp(False)
    if accelerator.device.type == "cpu":
        # The launcher sets one thread, which leaves the other cores idle.
        local = int(os.environ.get("LOCAL_WORLD_SIZE", accelerator.num_processes))
        cores = len(os.sched_getaffinity(0)) if LINUX else os.cpu_count() or 1
        torch.set_num_threads(config.run.threads or max(1, cores // local))
    return accelerator


def once(accelerator: Accelerator, action: Callable[[], T]) -> T:
    """What ``action`` gives, done on the main process alone while the others wait.

    Where it fails there, the others end without a word instead of waiting for ever.
    """
    outcome: list[Any] = [False, None]
    if accelerator.is_main_process:
        try:
            outcome = [True, action()]
        except Exception:
            broadcast_object_list(outcome)
            raise
    done, value = broadcast_object_list(outcome)
    if not done:
        raise SystemExit(2)
    return value  # type: ignore[no-any-return]


def gathered(accelerator: Accelerator, mine: list[T]) -> list[T]:
    """The lists of all processes, one after another."""
    if accelerator.num_processes == 1:
        return mine
    return list(gather_object(mine))


def leave(accelerator: Accelerator) -> None:
    """Leave the group of processes, so that ending is no error.

    The wrapped model has to go first. If it is the last to let go of the group, it waits for Gloo's
    threads while it holds the interpreter; they may need that to let go of their last tensor, and
    then the process never ends. The nap lets them finish where an error keeps the model alive.
    """
    if accelerator.num_processes > 1:
        accelerator.free_memory()
        time.sleep(0.1)
    accelerator.end_training()


def count(number: int, thing: str) -> str:
    """``1 process``, ``2 processes``."""
    ending = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number:,} {thing}{ending}"
