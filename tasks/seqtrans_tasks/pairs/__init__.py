"""Pairs of texts, of anything that is written in lines: what can be set.

To be read in this order: ``reading`` (files to pairs of lines) and ``divergence`` (where two files
part), ``account`` (what is kept, and what is dropped for which reason) and ``repeats`` (equal lines
among many), ``units`` (text as ids and back), ``preparing`` (any number of pairs into mapped
arrays, on all cores) and ``task``, which puts them together.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from seqtrans.settings import Settings

Level = Literal["subword", "character", "word", "symbols", "tagged"]
Metric = Literal["bleu", "chrf", "tokenised-bleu", "exact"]
BYTES = 256
SCORED_FILES = frozenset(
    {"dev", "dev_source", "dev_target", "test", "test_source", "test_target", "title"}
)
"""The settings that say what is scored: a finished run may be scored on other files."""


class PairsSettings(Settings):
    """The files, the units of each side, and what is left out of training."""

    late: ClassVar[frozenset[str]] = SCORED_FILES | {"metric", "lowercase", "ter"}
    fixed_in_training: ClassVar[frozenset[str]] = frozenset({"dev", "dev_source", "dev_target"})

    train_source: tuple[Path, ...] = Field(
        (), description="files to train on, source side, one text a line (.gz, .sgm as well)"
    )
    train_target: tuple[Path, ...] = Field(
        (), description="the same for the target side: line by line, in the order of the files"
    )
    dev_source: tuple[Path, ...] = Field((), description="files to validate on, source side")
    dev_target: tuple[Path, ...] = Field((), description="the same, target side")
    test_source: tuple[Path, ...] = Field((), description="files to test on, source side")
    test_target: tuple[Path, ...] = Field((), description="the same, target side")
    train: tuple[Path, ...] = Field(
        (), description="instead of two sides: tables to train on (.tsv, .tsv.gz)"
    )
    dev: tuple[Path, ...] = Field((), description="tables to validate on")
    test: tuple[Path, ...] = Field((), description="tables to test on")
    source_column: str = Field(
        "1", description="the source's column in tables: a number, or a name in the first line"
    )
    target_column: str = Field("2", description="the target's column in tables")
    weights: tuple[float, ...] = Field(
        (), description="how often each file of train is seen in an epoch; none given: once each"
    )
    dev_size: int = Field(
        1000,
        ge=1,
        description="without dev: so many pairs, at most a tenth, are held out of train, all those "
        "of a source together",
    )

    level: Level = Field(
        "subword",
        description="what the units are: learnt sub-words, characters, words with the blanks "
        "before them, symbols between blanks and tabs (other white space is part of them), or "
        "characters after a tag that ends in a tab",
    )
    source_level: Level | None = Field(None, description="the source's units; none: as level")
    target_level: Level | None = Field(None, description="the target's units; none: as level")
    subwords: Literal["bpe", "unigram", "wordpiece"] = Field(
        "bpe", description="how sub-words are learnt; all are of bytes, so any text can be written"
    )
    vocabulary: int = Field(
        8000, ge=1, description="at most so many units in a vocabulary that is learnt"
    )
    shared: bool = Field(
        True, description="one vocabulary for both sides; needs the same level on both"
    )
    units: Path | None = Field(
        None,
        description="a run whose units these are as well, instead of learning them: to go on from "
        "its weights with training.start, or to compare",
    )
    sample: int = Field(
        200_000,
        ge=1,
        description="learn units from so many pairs, and 100 million characters, spread evenly "
        "over all, if there are more",
    )
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="BPE-dropout: skip merges with this probability, anew in each epoch",
    )
    unknown: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="in training, hide each source unit with this probability, anew in each epoch",
    )
    normalise: Literal["none", "nfc", "nfd", "nfkc"] = Field(
        "none", description="the Unicode form of the source before it is split into units"
    )

    max_length: int | None = Field(
        250, ge=1, description="leave longer pairs out of training, in units of the longer side"
    )
    max_ratio: float | None = Field(
        None, gt=1, description="leave pairs out of training whose lengths differ by this factor"
    )
    duplicates: Literal["keep", "drop"] = Field(
        "keep", description="pairs of train that were there before"
    )
    copies: Literal["keep", "drop"] = Field(
        "keep", description="pairs of train whose two sides are equal"
    )
    metric: Metric | None = Field(
        None,
        description="what dev and test are scored by: BLEU or chrF of plain text (sacreBLEU), BLEU "
        "of text that is tokenised already (as multi-bleu.perl has it), or the share that is "
        "exactly right; none: chrF where the target is written in characters, else BLEU",
    )
    lowercase: bool = Field(False, description="take BLEU without regard to case")
    ter: bool = Field(
        False, description="give TER beside BLEU, which takes minutes for thousands of lines"
    )
    title: str | None = Field(
        None, description="what the data is called in results; none: as its folder"
    )

    @property
    def levels(self) -> tuple[Level, Level]:
        """The levels of source and target."""
        return self.source_level or self.level, self.target_level or self.level

    @property
    def expected_vocabulary(self) -> int | None:
        """How many units a plan may count on before they are learnt; ``None``: the data says."""
        return self.vocabulary if {*self.levels} == {"subword"} else None

    @property
    def measure(self) -> Metric:
        """What outputs are scored by: as named, or as suits the target.

        What is written in characters is often a word or two, of which BLEU, which counts runs of
        four words, is 0 whatever they are.
        """
        return self.metric or ("chrf" if self.levels[1] in ("character", "tagged") else "bleu")

    @model_validator(mode="after")
    def _consistent(self) -> PairsSettings:
        for split in ("train", "dev", "test"):
            table = getattr(self, split)
            source, target = getattr(self, f"{split}_source"), getattr(self, f"{split}_target")
            if table and (source or target):
                clear = f"; to clear a setting of the run, give it no value: task.{split}="
                raise ValueError(
                    f"task.{split} is a table of both sides; leave out task.{split}_source and "
                    f"task.{split}_target, or task.{split}{clear * (split in self.late)}"
                )
            if len(source) != len(target):
                raise ValueError(
                    f"task.{split}_source and task.{split}_target need equally many files, and "
                    f"name {len(source)} and {len(target)}"
                )
        parts = len(self.train) or len(self.train_source)
        # Where no file is named, a task may find them; it checks their number then.
        if self.weights and parts and len(self.weights) != parts:
            raise ValueError(
                f"task.weights needs a number for each file of train, {parts} in all, and has "
                f"{len(self.weights)}"
            )
        if any(weight <= 0 for weight in self.weights):
            raise ValueError("task.weights must be above 0")
        learnt = "subword" in self.levels
        if self.dropout and not (learnt and self.subwords == "bpe"):
            raise ValueError(
                "task.dropout has no effect without task.level=subword and task.subwords=bpe"
            )
        if self.ter and self.measure not in ("bleu", "chrf"):
            raise ValueError("task.ter has no effect without task.metric=bleu or chrf")
        if self.lowercase and self.measure == "exact":
            raise ValueError("task.lowercase has no effect with task.metric=exact")
        if self.shared and len(set(self.levels)) > 1:
            raise ValueError(
                f"task.shared needs the same level on both sides, which are {self.levels[0]} and "
                f"{self.levels[1]}; give task.shared=false"
            )
        if learnt and self.vocabulary < BYTES:
            raise ValueError(
                f"task.vocabulary must be {BYTES} or more for sub-words, of which one for each "
                "byte is there always"
            )
        if self.unknown and "subword" in self.levels:
            raise ValueError("task.unknown has no effect on sub-words, which leave none unknown")
        return self
