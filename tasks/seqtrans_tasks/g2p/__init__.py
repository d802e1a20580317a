"""Letters to phones: what can be set, over what can be set for any pairs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from seqtrans_tasks.pairs import SCORED_FILES, Level, PairsSettings

KINDS = (
    "a file is a table if it is called .tsv or its first entry has a tab, and "
    "else a dictionary as CMUdict is written, whose words are taken without regard to case"
)


class G2pSettings(PairsSettings):
    """Tables or dictionaries of words and pronunciations."""

    late: ClassVar[frozenset[str]] = SCORED_FILES

    train: tuple[Path, ...] = Field(
        (), description=f"instead of two sides: files to train on, with both; {KINDS}"
    )
    dev: tuple[Path, ...] = Field((), description="the same to validate on")
    test: tuple[Path, ...] = Field((), description="the same to test on")
    source_column: str = Field(
        "1", description="the word's column in tables: a number, or a name in the first line"
    )
    target_column: str = Field("2", description="the phones' column in tables")
    languages: tuple[str, ...] = Field(
        (),
        description="of several languages in one model, that of each file: of train, and in the "
        "same order of dev and test; a unit of its own before the spelling, and in lines to be "
        "transduced before a tab, unless there is only one",
    )
    level: Level = Field("symbols", description="what the units are, if not said for each side")
    source_level: Level | None = Field("character", description="the units of a spelling")
    target_level: Level | None = Field("symbols", description="the units of a pronunciation")
    shared: bool = Field(False, description="one vocabulary for both sides")
    normalise: Literal["none", "nfc", "nfd", "nfkc"] = Field(
        "nfd",
        description="the Unicode form of the spelling; nfd takes accents off their letters, and "
        "syllables of Hangul apart",
    )

    @property
    def levels(self) -> tuple[Level, Level]:
        source, target = super().levels
        return ("tagged" if self.languages else source), target

    @model_validator(mode="after")
    def _one_language_each(self) -> G2pSettings:
        for language in self.languages:
            if not language or any(map(str.isspace, language)):
                raise ValueError(f"task.languages: {language!r} is no name without blanks")
        for split in ("train", "dev", "test"):
            files = len(getattr(self, split)) or len(getattr(self, f"{split}_source"))
            if self.languages and files and files != len(self.languages):
                raise ValueError(
                    f"task.languages needs one for each file of task.{split}, {files} in all, and "
                    f"has {len(self.languages)}"
                )
        if self.languages and super().levels[0] != "character":
            raise ValueError("task.languages needs task.source_level=character")
        return self

    @model_validator(mode="after")
    def _own_score(self) -> G2pSettings:
        if self.metric is not None or self.lowercase or self.ter:
            raise ValueError(
                "task.metric, task.lowercase and task.ter have no effect: phones are scored by "
                "word and phone error rate"
            )
        return self
