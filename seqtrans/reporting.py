"""What a training tells: a progress bar and lines for people, figures in files for later."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from seqtrans.files import sync, write_whole, writing

METRICS = "metrics.jsonl"


class Reporter:
    """Speaks on the main process only; elsewhere it is silent."""

    def __init__(self, run: Path, main: bool) -> None:
        self.run, self.main = run, main
        self.console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        self.bar: Progress | None = None
        self.board: Any = None

    def begin(self, step: int, steps: int, validated: Container[int] = ()) -> None:
        """Open the bar and the files.

        What the files hold from before a kill and will come again is cut off: all beyond ``step``,
        and validations other than those of the steps ``validated``.
        """
        if not self.main:
            return
        from torch.utils.tensorboard import SummaryWriter

        kept = [
            line
            for line in self.records()
            if line["step"] <= step and (line["kind"] != "validation" or line["step"] in validated)
        ]
        write_whole(self.run / METRICS, "".join(json.dumps(line) + "\n" for line in kept))
        self.board = SummaryWriter(str(self.run / "tensorboard"), purge_step=step + 1)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=self.console,
            # Not the console's own view, which FORCE_COLOR can turn.
            disable=not sys.stderr.isatty(),
            transient=True,
            speed_estimate_period=120,
        )
        self.updates = self.bar.add_task("training", total=steps, completed=step, figures="")
        self.bar.start()

    def records(self) -> Iterable[dict[str, Any]]:
        """The lines of metrics.jsonl; a line cut short by a kill is left out."""
        path = self.run / METRICS
        if not path.is_file():
            return
        for line in path.read_text("utf-8", "replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and {"step", "kind"} <= record.keys():
                yield record

    def say(self, text: str = "") -> None:
        """A line for people."""
        if self.main:
            self.console.print(text, markup=False)

    def warn(self, text: str) -> None:
        """A line that stands out."""
        if self.main:
            self.console.print(f"seqtrans: warning: {text}", markup=False, style="yellow")

    def tick(self, step: int, figures: str) -> None:
        """One more update is done."""
        if self.bar is not None:
            self.bar.update(self.updates, completed=step, figures=figures)

    def record(self, step: int, kind: str, figures: Mapping[str, float | int]) -> None:
        """Figures of a step, into metrics.jsonl and TensorBoard; null for what is not finite."""
        if not self.main:
            return
        finite = {name: v if math.isfinite(v) else None for name, v in figures.items()}
        path = self.run / METRICS
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "kind": kind, **finite}) + "\n")
        if self.board is not None:
            with writing(self.run / "tensorboard"):
                for name, value in finite.items():
                    if value is not None:
                        self.board.add_scalar(f"{kind}/{name}", value, step)

    def sync(self) -> None:
        """Have metrics.jsonl on the disk, as it must be before a checkpoint that comes after it."""
        if self.main and (self.run / METRICS).is_file():
            sync(self.run / METRICS)

    def close(self) -> None:
        """Close the bar and the files."""
        if self.bar is not None:
            self.bar.stop()
        if self.board is not None:
            self.board.close()
        self.bar = self.board = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def pace(tokens: float, processes: int) -> str:
    """How fast a training is, all processes together."""
    return f"{tokens:,.0f} tok/s{'' if processes == 1 else ' in all'}"


def counting(description: str, total: int) -> Progress:
    """A bar on standard error for work of ``total`` pieces; none where that is no terminal."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    bar.add_task(description, total=total)
    return bar


@contextmanager
def measuring(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error for ``total`` bytes, none where that is no terminal.

    Gives what is to be told how many bytes of the present file are done; a smaller number than the
    last means that another file has begun.
    """
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    task = bar.add_task(description, total=total)
    last = 0

    def done(bytes: int) -> None:
        nonlocal last
        bar.advance(task, bytes - last if bytes >= last else bytes)
        last = bytes

    with bar:
        yield done
