"""The catalogue of built-in tasks.

Only names and settings stand here; a task is imported when it is built.
"""

from __future__ import annotations

from seqtrans.hooks import Component, hookimpl
from seqtrans_tasks.parsing import ParsingSettings


@hookimpl
def seqtrans_tasks() -> list[Component]:
    return [
        Component(
            name="parsing",
            build="seqtrans_tasks.parsing.task:Parsing",
            settings=ParsingSettings,
            summary="constituency parsing: words to a tree over them (section 6.3)",
            defaults={
                "model": {"name": "tiny", "norm": "pre", "pace": 8},
                "training": {"name": "tiny", "schedule": "linear", "lr": 2.5e-3, "warmup": 100},
                "data": {"tokens": 2500},
                "decoder": {"name": "beam", "alpha": 0.3, "extra": 300},
            },
        )
    ]
