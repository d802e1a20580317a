"""English to German and English to French: ``pairs`` with WMT14's files and the paper's BLEU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from seqtrans_tasks.metrics.bleu import PAPER_EN_DE, PAPER_EN_FR
from seqtrans_tasks.pairs.preparing import SPLITS
from seqtrans_tasks.pairs.reading import Part
from seqtrans_tasks.pairs.task import Pairs
from seqtrans_tasks.wmt import WmtEnDeSettings, WmtEnFrSettings
from seqtrans_tasks.wmt.layout import EN_DE, EN_FR, Layout, parts


class Wmt(Pairs):
    """What both have in common."""

    settings: WmtEnDeSettings | WmtEnFrSettings
    layout: ClassVar[Layout]

    def parts(self, split: str) -> list[Part]:
        return super().parts(split) or list(self.found([split])[split])

    def named(self, split: str) -> bool:
        """Whether the settings name a split's files, and the folder doesn't matter for it."""
        return bool(super().parts(split))

    def found(self, splits: Iterable[str]) -> dict[str, tuple[Part, ...]]:
        """The parts of splits in the folder. Raises ``DataError`` naming all that it lacks."""
        settings = self.settings
        columns = settings.source_column, settings.target_column
        return parts(self.layout, settings.folder, list(splits), *columns)

    def name(self) -> str:
        if self.settings.title is None and not self.named("train"):
            return self.layout.download
        return super().name()

    def all_parts(self) -> dict[str, list[Part]]:
        self.found(split for split in SPLITS if not self.named(split))
        return super().all_parts()

    def describe(self) -> Iterator[str]:
        yield from super().describe()
        for split, size in self.layout.sizes.items():
            if not self.named(split):
                pairs = self.summary["splits"][split]["account"]["kept"]
                if pairs != size:
                    yield (
                        f"warning: {split} has {pairs:,} pairs, not the {size:,} of the whole set "
                        "that the paper's figures are about"
                    )


class WmtEnDe(Wmt):
    """English to German."""

    layout = EN_DE
    tokenised = (PAPER_EN_DE,)


class WmtEnFr(Wmt):
    """English to French. Its compounds are not split: the script for that is one for German."""

    layout = EN_FR
    tokenised = (PAPER_EN_FR,)
