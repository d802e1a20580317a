"""What a row says of the software and the machine: enough to judge its times, no names of hosts."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from benchmarks.results import Hardware, Versions
from seqtrans import __version__


def versions(providers: Mapping[str, str]) -> Versions:
    """The versions of this process, with those that provide each component."""
    return Versions(
        python=platform.python_version(),
        seqtrans=__version__,
        torch=version("torch"),
        accelerate=version("accelerate"),
        tokenizers=version("tokenizers"),
        providers=dict(providers),
    )


def hardware() -> Hardware:
    """The processor, its cores, the memory and the GPUs."""
    import torch

    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Hardware(
        cpu=processor(),
        cores=os.cpu_count() or 1,
        memory_gib=round(pages / 2**30, 1),
        gpus=[torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())],
    )


def processor() -> str:
    """The model of the processor as Linux knows it, elsewhere as Python does."""
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine()
