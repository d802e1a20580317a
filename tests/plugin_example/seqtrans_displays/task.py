"""The task: numbers, shown as noisy seven-segment displays, are to be read."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from seqtrans.corpus import Corpus
from seqtrans.errors import DataError
from seqtrans.task import Score, Task, Vocabulary
from seqtrans_displays import DisplaySettings

# Top, upper left, upper right, middle, lower left, lower right, bottom.
DIGITS = "1110111 0010010 1011101 1011011 0111010 1101011 1101111 1010010 1111111 1111011"
SEGMENTS = torch.tensor([[float(segment) for segment in digit] for digit in DIGITS.split()])
FIRST = 3  # the id of the digit 0, after pad, bos and eos


class Displays(Task):
    """An example is a number, as a string of digits; an input is what its display shows, [S, 7]."""

    source = "segments"

    def __init__(self, settings: DisplaySettings) -> None:
        self.settings = settings
        self.numbers: dict[str, list[str]] = {}

    def prepare(self, folder: Path) -> None:
        draw = random.Random(1)
        numbers = {
            split: [
                "".join(draw.choices("0123456789", k=draw.randint(1, self.settings.longest)))
                for _ in range(self.settings.count)
            ]
            for split in ("train", "dev", "test")
        }
        (folder / "numbers.json").write_text(json.dumps(numbers), encoding="utf-8")

    def open(self, folder: Path) -> None:
        self.numbers = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))

    @property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary(FIRST + 10)

    def examples(self, split: str) -> Sequence[str]:
        if split not in self.numbers:
            raise DataError(f"There is no split {split!r}; there are: {', '.join(self.numbers)}.")
        return self.numbers[split]

    def training(self, epoch: int, seed: int) -> Corpus:
        noise = torch.Generator().manual_seed(1000 * seed + epoch)
        return Corpus.of(
            (self.show(number, noise), self.encode_target(number))
            for number in self.examples("train")
        )

    def show(self, number: str, noise: torch.Generator) -> Tensor:
        """The display of a number, [S, 7]."""
        shown = SEGMENTS[[int(digit) for digit in number]]
        return shown + self.settings.noise * torch.randn(shown.shape, generator=noise)

    def input(self, example: str) -> Tensor:
        return self.show(example, torch.Generator().manual_seed(int(example)))

    def encode_source(self, input: Tensor) -> Tensor:
        return input

    def encode_target(self, example: str) -> Sequence[int]:
        return [FIRST + int(digit) for digit in example]

    def decode(self, ids: Sequence[int], input: Tensor) -> str:
        return "".join(str(i - FIRST) for i in ids)

    def reference(self, example: str) -> str:
        return example

    def score(self, outputs: Sequence[str], examples: Sequence[str]) -> Score:
        right = sum(map(str.__eq__, outputs, examples))
        return Score(
            "accuracy", 100 * right / max(len(examples), 1), "exact match", {"right": right}
        )

    def read(self, line: str) -> Tensor:
        if not (line.isascii() and line.isdigit()):
            raise DataError(f"A display shows digits only, not {line!r}.")
        return self.input(line)
