"""The paper's two translation tasks, WMT14 English-German and English-French (section 5.1).

They are ``pairs`` of text with the paper's files, units and scores. To be read in this order:
``catalogue`` (what can be fetched), ``layout`` (which files of a folder are what) and ``task``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from seqtrans_tasks.pairs import Metric, PairsSettings

FOLDER = (
    "the folder of the corpora; what task.train_source, … name is taken instead, split by split"
)
LONGEST = Field(
    256,
    ge=1,
    description="leave longer pairs out of training, in units of the longer side; not in the "
    "paper, tensor2tensor's",
)
SCORED: Any = Field(
    "bleu",
    description="what dev and test are scored by, as in task=pairs; none: by the target's units",
)


class WmtEnDeSettings(PairsSettings):
    """English to German: byte-pair encoding, about 37,000 units for both languages."""

    folder: Path = Field(Path("data/wmt14-en-de"), description=FOLDER)
    vocabulary: int = Field(
        37_000, ge=1, description="at most so many units for both languages (section 5.1: about)"
    )
    max_length: int | None = LONGEST
    metric: Metric | None = SCORED


class WmtEnFrSettings(PairsSettings):
    """English to French: 32,000 word-pieces for both languages."""

    folder: Path = Field(Path("data/wmt14-en-fr"), description=FOLDER)
    subwords: Literal["bpe", "unigram", "wordpiece"] = Field(
        "wordpiece", description="how sub-words are learnt (section 5.1: word-pieces)"
    )
    vocabulary: int = Field(
        32_000, ge=1, description="at most so many units for both languages (section 5.1)"
    )
    max_length: int | None = LONGEST
    metric: Metric | None = SCORED
