"""Inflection: what can be set, over what can be set for any pairs."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from seqtrans_tasks.pairs import Level, PairsSettings


class InflectionSettings(PairsSettings):
    """Tables of lemmas, forms and features."""

    late: ClassVar[frozenset[str]] = frozenset()

    source_column: str = Field("1", description="the number of the column of lemmas")
    target_column: str = Field("2", description="the number of the column of forms")
    features_column: int = Field(3, ge=1, description="the number of the column of features")
    level: Level = Field("symbols", description="what the units are: letters and features")
    shared: bool = Field(True, description="one vocabulary for both sides")
