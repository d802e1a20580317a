"""Letters to phones: what can be set, over what can be set for any pairs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from seqtrans_tasks.pairs import Level, PairsSettings


class G2pSettings(PairsSettings):
    """Tables or dictionaries of words and pronunciations."""

    late: ClassVar[frozenset[str]] = frozenset()

    level: Level = Field("symbols", description="what the units are, if not said for each side")
    source_level: Level | None = Field("character", description="the units of a spelling")
    target_level: Level | None = Field("symbols", description="the units of a pronunciation")
    shared: bool = Field(False, description="one vocabulary for both sides")
    normalise: Literal["none", "nfc", "nfd", "nfkc"] = Field(
        "nfd",
        description="the Unicode form of the spelling; nfd takes accents off their letters, and "
        "syllables of Hangul apart",
    )

    @model_validator(mode="after")
    def _own_score(self) -> G2pSettings:
        if self.metric != "bleu" or self.lowercase or self.ter:
            raise ValueError(
                "task.metric, task.lowercase and task.ter have no effect: phones are scored by "
                "word and phone error rate"
            )
        return self
