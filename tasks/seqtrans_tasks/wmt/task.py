"""English to German and English to French as tasks: ``pairs`` with WMT14's files and scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from seqtrans.task import Score
from seqtrans_tasks.metrics.bleu import PAPER_EN_DE, PAPER_EN_FR, Preparation
from seqtrans_tasks.pairs.preparing import SPLITS
from seqtrans_tasks.pairs.reading import Part
from seqtrans_tasks.pairs.task import Pair, Pairs
from seqtrans_tasks.wmt import WmtEnDeSettings, WmtEnFrSettings
from seqtrans_tasks.wmt.layout import EN_DE, EN_FR, Layout, parts


class Wmt(Pairs):
    """What both have in common."""

    settings: WmtEnDeSettings | WmtEnFrSettings
    layout: ClassVar[Layout]
    preparation: ClassVar[Preparation]
    """What is done to text before the paper's kind of BLEU."""

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

    def score(self, outputs: Sequence[str], examples: Sequence[Pair]) -> Score:
        """BLEU by sacreBLEU, with chrF, the paper's kind of BLEU and, if asked for, TER."""
        from seqtrans_tasks.metrics.scores import text_score

        if self.settings.metric != "bleu":
            return super().score(outputs, examples)
        return text_score(
            outputs,
            [[example.target for example in examples]],
            tokenised=[self.preparation],
            lowercase=self.settings.lowercase,
            with_ter=self.settings.ter,
            refuse_marks=False,
        )

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
    preparation = PAPER_EN_DE


class WmtEnFr(Wmt):
    """English to French. Its compounds are not split: the script for that is one for German."""

    layout = EN_FR
    preparation = PAPER_EN_FR
