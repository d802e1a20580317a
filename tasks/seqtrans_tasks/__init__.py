"""The catalogue of built-in tasks.

Only names and settings stand here; a task is imported when it is built.
"""

from __future__ import annotations

from seqtrans.hooks import Component, hookimpl
from seqtrans_tasks.g2p import G2pSettings
from seqtrans_tasks.inflection import InflectionSettings
from seqtrans_tasks.pairs import PairsSettings
from seqtrans_tasks.parsing import ParsingSettings
from seqtrans_tasks.wmt import WmtEnDeSettings, WmtEnFrSettings

SHORT = {"name": "tiny", "schedule": "linear", "lr": 2e-3, "warmup": 200}
"""The training of a small model on a CPU."""
WORDS_SEARCH = {"name": "beam", "alpha": 1.0, "extra": 30}
"""How single words are written."""
PAPERS_SEARCH = {"name": "beam", "width": 4, "alpha": 0.6, "extra": 50}
"""How the paper translates (section 6.1)."""


@hookimpl
def seqtrans_tasks() -> list[Component]:
    return [
        Component(
            name="pairs",
            build="seqtrans_tasks.pairs.task:Pairs",
            settings=PairsSettings,
            summary="lines to lines: your own two files, or a table",
            defaults={
                "model": {"name": "tiny", "norm": "pre", "dropout": 0.2},
                "training": SHORT,
                "data": {"tokens": 2500},
                "decoder": {"name": "beam", "alpha": 0.6, "extra": 50},
            },
        ),
        Component(
            name="g2p",
            build="seqtrans_tasks.g2p.task:G2p",
            settings=G2pSettings,
            summary="letters to phones, by word and phone error rate",
            defaults={
                "model": {"name": "tiny", "norm": "pre", "dropout": 0.3},
                "training": SHORT,
                "data": {"tokens": 800},
                "decoder": WORDS_SEARCH,
            },
        ),
        Component(
            name="inflection",
            build="seqtrans_tasks.inflection.task:Inflection",
            settings=InflectionSettings,
            summary="a lemma and features to a form, by exact match",
            defaults={
                "model": {"name": "tiny", "norm": "pre", "dropout": 0.3, "pace": 8},
                "training": SHORT,
                "data": {"tokens": 800},
                "decoder": WORDS_SEARCH,
            },
        ),
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
        ),
        Component(
            name="wmt-en-de",
            build="seqtrans_tasks.wmt.task:WmtEnDe",
            settings=WmtEnDeSettings,
            summary="WMT14 English to German (sections 5 and 6.1)",
            defaults={"decoder": PAPERS_SEARCH},
            downloads={"wmt14-en-de": "seqtrans_tasks.wmt.catalogue:EN_DE"},
        ),
        Component(
            name="wmt-en-fr",
            build="seqtrans_tasks.wmt.task:WmtEnFr",
            settings=WmtEnFrSettings,
            summary="WMT14 English to French (sections 5 and 6.1)",
            defaults={"decoder": PAPERS_SEARCH},
            downloads={"wmt14-en-fr": "seqtrans_tasks.wmt.catalogue:EN_FR"},
        ),
    ]
