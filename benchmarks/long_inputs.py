"""What a layer of self-attention takes as its input grows: restricted, full, and by others.

One layer is the four projections of section 3.2.2 around an attention. Time is that of a pass
forward and back; memory is how far the process grows during it, gradients included.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from benchmarks import machine
from benchmarks.commands import measuring_command
from benchmarks.results import FORMAT, Measurement, write_measurement
from seqtrans.commands import run
from seqtrans.errors import SettingsError
from seqtrans.reuse import read_command
from seqtrans.settings import Settings

if TYPE_CHECKING:
    from seqtrans.attention import Attention

PEER = "local_attention"
OURS = "restricted"
MAPPED = 1 << 16
"""Bytes from which memory is had from the system, and given back, for each tensor on its own."""
M_MMAP_THRESHOLD = -3  # of malloc.h

Step = Callable[[], None]


class LongInputsSettings(Settings):
    """What is measured."""

    lengths: Annotated[tuple[int, ...], Field(min_length=2)] = Field(
        (1024, 2048, 4096, 8192, 16384), description="positions of the inputs"
    )
    reach: int = Field(128, ge=1, description="how far a query sees to either side")
    width: int = Field(512, ge=2, description="width of the layer")
    heads: int = Field(8, ge=1, description="attention heads")
    rounds: int = Field(5, ge=1, description="passes of each layer, taken by turns; medians count")
    longest_full: int = Field(
        8192, ge=1, description="full attention is measured up to so many positions"
    )
    threads: int | None = Field(None, ge=1, description="CPU threads; none: all cores")
    report: Path | None = Field(
        None, description="write the exponents into this folder of results; none: only show them"
    )


def main(argv: list[str]) -> int:
    """Measure one layer of attention, forward and back, for inputs of growing length.

    usage: python -m benchmarks.long_inputs [lengths=N,N,…] [reach=128] [width=512] [heads=8]
                                            [rounds=5] [longest_full=8192] [threads=N]
                                            [report=FOLDER]

    Restricted attention is measured beside full attention and, where the package local-attention
    can be imported, beside that, with windows of as many positions as it reaches. The exponents
    are the slopes of time and memory over the length, both as logarithms.

    example: python -m benchmarks.long_inputs report=benchmarks/results
    """
    settings, _ = read_command(argv, LongInputsSettings)
    if len(set(settings.lengths)) < 2:
        raise SettingsError("lengths must be two different numbers at least.")
    import torch

    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    layers = attentions(settings)
    seconds: dict[str, dict[int, list[float]]] = {name: {} for name in layers}
    memory: dict[str, dict[int, int]] = {name: {} for name in layers}
    for length in settings.lengths:
        steps = {
            name: step(attention, settings, length)
            for name, attention in layers.items()
            if name != "full" or length <= settings.longest_full
        }
        for name, taken in timed(steps, settings.rounds).items():
            seconds[name][length] = taken
        print(f"{length} positions timed", file=sys.stderr)
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MAPPED)
    for length in settings.lengths:
        for name, attention in layers.items():
            if length in seconds[name]:
                memory[name][length] = grown(step(attention, settings, length))
    print(table(seconds, memory, settings.lengths), end="")
    medians = {
        name: {length: statistics.median(taken) for length, taken in by_length.items()}
        for name, by_length in seconds.items()
    }
    exponents = {
        "time_exponent": {name: exponent(values) for name, values in medians.items()},
        "memory_exponent": {name: exponent(values) for name, values in memory.items()},
    }
    for metric, values in exponents.items():
        print(f"{metric}: " + ", ".join(f"{name} {value:.3f}" for name, value in values.items()))
    if settings.report is not None:
        figures = {
            "seconds": by_name(medians),
            "spread": by_name(
                {n: {k: spread(t) for k, t in v.items()} for n, v in seconds.items()}
            ),
            "bytes": by_name(memory),
        }
        for metric, values in exponents.items():
            print(write_measurement(row(metric, values, figures, settings), settings.report))
    return 0


def attentions(settings: LongInputsSettings) -> dict[str, Attention]:
    """What is measured, by name; the package of others only where it is installed."""
    from seqtrans.attention import Attention
    from seqtrans.config import Shape
    from seqtrans_plugins import RestrictedSettings
    from seqtrans_plugins.restricted import Restricted

    shape = Shape(width=settings.width, heads=settings.heads)
    found: dict[str, Attention] = {
        OURS: Restricted(RestrictedSettings(reach=settings.reach), shape),
        "full": Attention(),
    }
    if importlib.util.find_spec(PEER) is not None:
        found["local-attention"] = peer(settings.reach)
    return found


def peer(window: int) -> Attention:
    """The package's attention as one of ours: each window sees itself and those beside it."""
    from torch import Tensor

    from seqtrans.attention import Attention

    module = importlib.import_module(PEER).LocalAttention(
        window_size=window,
        look_backward=1,
        look_forward=1,
        autopad=True,
        use_rotary_pos_emb=False,
    )

    class Peer(Attention):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
            heads: Tensor = module(q, k, v)
            return heads

    return Peer()


def step(attention: Attention, settings: LongInputsSettings, length: int) -> Step:
    """A pass through a layer, forward and back; the same input each time."""
    import torch

    from seqtrans.attention import MultiHead
    from seqtrans.position import PositionScheme

    torch.manual_seed(0)
    head = settings.width // settings.heads
    layer = MultiHead(settings.width, settings.heads, head, head, attention, 0.0)
    x = torch.randn(1, length, settings.width, requires_grad=True)
    at, scheme = torch.arange(length), PositionScheme()

    def once() -> None:
        layer.zero_grad()
        x.grad = None
        layer.look(x, at, scheme).sum().backward()  # type: ignore[no-untyped-call]

    return once


def timed(steps: Mapping[str, Step], rounds: int) -> dict[str, list[float]]:
    """Seconds of each pass, by turns, after one of each that is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name, once in steps.items():
            began = time.perf_counter()
            once()
            if turn > 0:
                taken[name].append(time.perf_counter() - began)
    return taken


def grown(once: Step) -> int:
    """By how many bytes the process grows in a pass at most; known on Linux only."""
    once()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free counts again as soon as it is used
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak
    before = status("VmRSS")
    once()
    return status("VmHWM") - before


def status(field: str) -> int:
    """A figure of this process, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise SettingsError(f"this system does not tell {field} of a process.")


def exponent(values: Mapping[int, float]) -> float:
    """The slope of log(value) over log(length), by least squares."""
    if len(values) < 2:
        return math.nan
    slope, _ = statistics.linear_regression(
        [math.log(length) for length in values],
        [math.log(max(value, 1e-9)) for value in values.values()],
    )
    return slope


def spread(taken: Sequence[float]) -> list[float]:
    """The least and the most."""
    return [round(min(taken), 5), round(max(taken), 5)]


def by_name(values: Mapping[str, Mapping[int, Any]]) -> dict[str, dict[str, Any]]:
    """As JSON has it."""
    return {
        name: {
            str(length): round(value, 5) if isinstance(value, float) else value
            for length, value in by_length.items()
        }
        for name, by_length in values.items()
    }


def table(
    seconds: Mapping[str, Mapping[int, list[float]]],
    memory: Mapping[str, Mapping[int, int]],
    lengths: Sequence[int],
) -> str:
    """Seconds, how many times ours each takes (the median of rounds) and MB, in Markdown."""
    lines = [("positions", *seconds), ("---",) * (len(seconds) + 1)]
    for length in lengths:
        cells = []
        for name, by_length in seconds.items():
            if length not in by_length:
                cells.append("–")
                continue
            taken = by_length[length]
            ours = seconds[OURS][length]
            ratio = statistics.median(a / b for a, b in zip(taken, ours, strict=True))
            times = "" if name == OURS else f" · {ratio:.2f}×"
            cells.append(
                f"{statistics.median(taken):.4f} s{times} · {memory[name][length] / 1e6:.0f} MB"
            )
        lines.append((f"{length:,}", *cells))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def row(
    metric: str,
    exponents: Mapping[str, float],
    figures: Mapping[str, Any],
    settings: LongInputsSettings,
) -> Measurement:
    """The exponent of restricted attention, with all that was measured beside it."""
    import torch

    others = {PEER: version("local-attention")} if PEER in sys.modules else {}
    return Measurement(
        format=FORMAT,
        recipe=f"long-inputs-{OURS}",
        metric=metric,
        better="lower",
        value=exponents[OURS],
        figures={
            **figures,
            "exponents": {n: round(e, 4) for n, e in exponents.items() if math.isfinite(e)},
            "threads": torch.get_num_threads(),
        },
        command=measuring_command("benchmarks.long_inputs", settings),
        settings={
            "attention": OURS,
            "attention.reach": settings.reach,
            "model.width": settings.width,
            "model.heads": settings.heads,
        },
        versions=machine.versions(others),
        hardware=machine.hardware(),
    )


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
