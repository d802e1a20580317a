"""Inflection: what can be set, over what can be set for any pairs."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from seqtrans_tasks.pairs import SCORED_FILES, Level, PairsSettings


class InflectionSettings(PairsSettings):
    """Tables of lemmas, forms and features."""

    late: ClassVar[frozenset[str]] = SCORED_FILES

    source_column: str = Field("1", description="the number of the column of lemmas")
    target_column: str = Field("2", description="the number of the column of forms")
    features_column: int = Field(3, ge=1, description="the number of the column of features")
    level: Level = Field("symbols", description="what the units are: letters and features")
    shared: bool = Field(True, description="one vocabulary for both sides")
    invented: float = Field(
        0.0,
        ge=0,
        le=1,
        description="in training, give each pair with this probability a stem of random letters of "
        "all training lemmas, anew in each epoch: for few data, or where stems must be copied",
    )

    @model_validator(mode="after")
    def _consistent_here(self) -> InflectionSettings:
        if self.metric is not None or self.lowercase or self.ter:
            raise ValueError(
                "task.metric, task.lowercase and task.ter have no effect: forms are scored by "
                "exact match and edit distance"
            )
        if self.invented and not (self.shared and self.levels == ("symbols", "symbols")):
            raise ValueError(
                "task.invented needs task.shared=yes and task.level=symbols, to tell what letters "
                "both sides share"
            )
        return self
