"""A task for tests of the engine: digits are to be written backwards."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from seqtrans.corpus import Corpus
from seqtrans.errors import DataError
from seqtrans.hooks import Component, hookimpl
from seqtrans.settings import Settings
from seqtrans.task import Score, Task, Vocabulary

FIRST = 3  # the id of the digit 0, after pad, bos and eos


class ReversalSettings(Settings):
    """Reversing digits."""

    late: ClassVar[frozenset[str]] = frozenset({"marks"})

    count: int = Field(60, ge=0, description="numbers to train on")
    dev: int = Field(9, ge=0, description="numbers of the dev split")
    longest: int = Field(6, ge=1, description="digits of the longest number")
    giant: int = Field(0, ge=0, description="digits of one more number to train on; 0: none")
    fresh: bool = Field(False, description="draw other numbers in every epoch")
    constant: bool = Field(False, description="score every output alike")
    fails: bool = Field(False, description="fail in preparation")
    marks: str = Field("", description="something that may change when a run goes on")


class Reversal(Task):
    """Both an example and an input are a string of digits."""

    shares_vocabulary: ClassVar[bool] = True

    def __init__(self, settings: ReversalSettings) -> None:
        self.settings = settings
        self.numbers: dict[str, list[str]] = {}

    def draw(self, seed: int, count: int) -> list[str]:
        """Numbers that depend on the seed alone."""
        draw = random.Random(seed)
        return [
            "".join(draw.choices("0123456789", k=draw.randint(1, self.settings.longest)))
            for _ in range(count)
        ]

    def prepare(self, folder: Path) -> None:
        if self.settings.fails:
            raise DataError("the digits are not there.")
        train = self.draw(1, self.settings.count)
        if self.settings.giant:
            train.append("7" * self.settings.giant)
        numbers = {"train": train, "dev": self.draw(2, self.settings.dev)}
        (folder / "numbers.json").write_text(json.dumps(numbers), encoding="utf-8")

    def open(self, folder: Path) -> None:
        self.numbers = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))

    @property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary(FIRST + 10)

    @property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary(FIRST + 10)

    def examples(self, split: str) -> Sequence[str]:
        return self.numbers[split]

    def training(self, epoch: int, seed: int) -> Corpus:
        numbers = self.numbers["train"]
        if self.settings.fresh:
            numbers = self.draw(1000 * seed + epoch, self.settings.count)
        return Corpus.of((self.encode_source(n), self.encode_target(n)) for n in numbers)

    def input(self, example: str) -> str:
        return example

    def encode_source(self, input: str) -> Tensor:
        return torch.tensor([FIRST + int(digit) for digit in input])

    def encode_target(self, example: str) -> Sequence[int]:
        return [FIRST + int(digit) for digit in reversed(example)]

    def decode(self, ids: Sequence[int], input: str) -> str:
        return "".join(str(i - FIRST) for i in ids)

    def reference(self, example: str) -> str:
        return example[::-1]

    def score(self, outputs: Sequence[str], examples: Sequence[str]) -> Score:
        assert len(outputs) == len(examples)
        right = sum(
            a == b
            for output, example in zip(outputs, examples, strict=True)
            for a, b in zip(output, reversed(example), strict=False)
        )
        digits = sum(map(len, examples))
        value = 50.0 if self.settings.constant else 100 * right / digits
        return Score("digits", value, "digits in their place", {"right": right})


@hookimpl
def seqtrans_tasks() -> list[Component]:
    return [
        Component(
            name="reversal",
            build=Reversal,
            settings=ReversalSettings,
            summary="digits backwards",
            defaults={"decoder": {"name": "greedy", "extra": 3}},
        )
    ]
