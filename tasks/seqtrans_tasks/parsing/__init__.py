"""Constituency parsing as transduction (section 6.3 of the paper): what can be set.

To be read in this order: ``tree`` (nodes, reader, writer), ``treebank`` (files and splits),
``cleaning`` (traces and functions off), ``linear`` (trees as symbols and back), ``repair`` (a tree
from any symbols), ``constraint`` (only symbols that make a tree), ``tags`` (tags from words),
``parameters``, ``sentence`` and ``evalb`` (the score), ``grammar`` (the built-in treebank),
``augment`` (variations of trees), ``drawing``, and ``task``, which puts them together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from seqtrans.settings import Settings


class ParsingSettings(Settings):
    """The treebank, its preparation, the linearisation and the score."""

    late = frozenset({"input", "constrained", "parameters"})

    treebank: Path | None = Field(
        None,
        description="a folder of trees (.mrg, .tree, ... also .gz), searched at every depth, "
        "with LDC "
        "sections or not; none: the built-in synthetic treebank",
    )
    train_sections: str = Field("02-21", description="sections of the treebank to train on")
    dev_sections: str = Field("22", description="sections to validate on")
    test_sections: str = Field("23", description="sections to test on")
    train_list: Path | None = Field(
        None,
        description="instead of sections: a text file that names one file of the treebank a line",
    )
    dev_list: Path | None = Field(None, description="the same for dev")
    test_list: Path | None = Field(None, description="the same for test")
    train: Path | None = Field(
        None, description="instead of a treebank: a file or folder of trees to train on"
    )
    dev: Path | None = Field(None, description="the same for dev")
    test: Path | None = Field(None, description="the same for test")
    silver: Path | None = Field(
        None, description="more trees to train on, made by another parser, one a line"
    )
    silver_weight: float = Field(
        1.0, gt=0, description="how often each silver tree is seen in an epoch, on average"
    )

    remove_traces: bool = Field(True, description="remove -NONE- leaves and what they leave empty")
    strip_functions: bool = Field(True, description="cut labels at - and =: NP-SBJ-1 becomes NP")
    prt_advp: bool = Field(True, description="in training, PRT|ADVP becomes PRT")
    collapse_unaries: bool = Field(
        False, description="make one X of X over X; figures then compare with nobody's"
    )
    max_words: int | None = Field(
        None, ge=1, description="leave longer sentences out of training; dev and test are never cut"
    )

    linearisation: Literal["brackets", "inorder"] = Field(
        "brackets",
        description="opening, children, closing (Vinyals et al., 2015), or the first child "
        "before its parent "
        "(Fernández-González and Gómez-Rodríguez, 2020)",
    )
    closings: Literal["labelled", "bare"] = Field(
        "labelled", description="whether a closing repeats its constituent's label"
    )
    leaves: Literal["words", "tags"] = Field(
        "tags",
        description="each word as one and the same symbol (Vinyals et al.), or as its "
        "part-of-speech tag, "
        "which the model then predicts",
    )
    subwords: int | None = Field(
        None,
        ge=256,
        description="size of the sub-word vocabulary of the source; none: by the size of the "
        "data, at most "
        "16000 (the paper has 16K, with silver trees 32K)",
    )
    subword_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="in training, skip each merge of sub-words with this probability (Provilkov "
        "et al., 2020)",
    )
    swap: float = Field(
        0.0,
        ge=0,
        le=1,
        description="in training, exchange each constituent with this probability for another "
        "that has "
        "the same label and the same parent's label, anew in each epoch",
    )
    word_swap: float = Field(
        0.0,
        ge=0,
        le=1,
        description="in training, exchange each word of an open class with this probability for "
        "another "
        "with the same tag, anew in each epoch",
    )
    input: Literal["words", "raw", "tagged"] = Field(
        "words",
        description="what transduce reads: words with blanks between, raw text to be split into "
        "words, or "
        "words with their tags as word/TAG",
    )
    constrained: bool = Field(
        True,
        description="let decoders write only trees over the given words; no: mend what they write",
    )
    parameters: str = Field(
        "COLLINS", description="EVALB's parameters: COLLINS, NEW, or the path of a .prm file"
    )

    @model_validator(mode="after")
    def _consistent(self) -> ParsingSettings:
        lists = (self.train_list, self.dev_list, self.test_list)
        paths = (self.train, self.dev, self.test)
        if any(lists) and not self.treebank:
            raise ValueError(
                "task.train_list and its like name files of a treebank; give task.treebank too"
            )
        if any(paths) and self.treebank:
            raise ValueError("give either task.treebank or task.train, task.dev and task.test")
        if any(lists) and not all(lists[:2]):
            raise ValueError("task.train_list and task.dev_list go together")
        if any(paths) and not all(paths[:2]):
            raise ValueError("task.train and task.dev go together")
        if self.silver is None and self.silver_weight != 1:
            raise ValueError("task.silver_weight has no effect without task.silver")
        return self
