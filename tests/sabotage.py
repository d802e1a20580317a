"""Faults at every point where something is written."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class Saboteur:
    """Lets ``at`` calls that change the disk pass, and does ``harm`` in place of the next one.

    Of a write only half gets done. With ``at`` = -1 it counts only.
    """

    def __init__(self, at: int, harm: Callable[[], None], again: bool = False) -> None:
        self.at, self.harm, self.again = at, harm, again
        self.calls = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Stand in the way of everything by which a checkpoint is written."""
        for name in ("fsync", "rename", "mkdir"):
            patch.setattr(os, name, self.guard(getattr(os, name)))
        patch.setattr(Path, "write_bytes", self.guard(Path.write_bytes, halve))
        patch.setattr(Path, "write_text", self.guard(Path.write_text, halve))

    def guard(
        self, action: Callable[..., Any], begin: Callable[..., None] | None = None
    ) -> Callable[..., Any]:
        """``action``, unless it is the one."""

        def guarded(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self.at + 1 or (self.again and 0 <= self.at < self.calls):
                if begin is not None:
                    begin(*arguments)
                self.harm()
            return action(*arguments, **options)

        return guarded


def halve(path: Path, content: str | bytes) -> None:
    """Write the first half of what was to be written."""
    half = content[: len(content) // 2]
    with path.open("wb") as file:
        file.write(half.encode("utf-8") if isinstance(half, str) else half)


def die() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)
