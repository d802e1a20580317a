"""Tasks: all that are offered, and what the kit says of one that is wrong."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from seqtrans.corpus import Corpus
from seqtrans.errors import DataError
from seqtrans.plugins import registry
from seqtrans.settings import Settings
from seqtrans.task import Score, Task, Vocabulary
from seqtrans.testing import check_task
from seqtrans_tasks.parsing import grammar
from seqtrans_tasks.parsing.tree import write_tree


@functools.cache
def trees() -> dict[str, str]:
    """The first lines of the built-in treebank."""
    return {
        split: "".join(write_tree(tree) + "\n" for tree in itertools.islice(written, 80))
        for split, written in grammar.write_treebank().items()
    }


def a_small_treebank(folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for split, lines in trees().items():
        path = folder / f"{split}.trees"
        path.write_text(lines, encoding="utf-8")
        settings[split] = path
    return settings


def tables(folder: Path, row: str) -> dict[str, Any]:
    """A table for train and one for dev; ``row`` has a number and its digits apart for ``{}``."""
    settings: dict[str, Any] = {}
    for split, numbers in (("train", range(100, 160)), ("dev", range(130, 136))):
        path = folder / f"{split}.tsv"
        rows = [row.format(number, " ".join(str(number))) for number in numbers]
        path.write_text("".join(f"{line}\n" for line in rows), encoding="utf-8")
        settings[split] = (path,)
    return settings


def wmt(folder: Path) -> dict[str, Any]:
    """A folder of the names that both tasks look for."""
    for split, count in (("train", 60), ("dev", 5), ("test", 3)):
        for language in ("en", "de", "fr"):
            lines = [f"{split} {language} number {number}\n" for number in range(count)]
            (folder / f"{split}.{language}").write_text("".join(lines))
    return {"folder": folder, "vocabulary": 300}


SMALL: dict[str, Callable[[Path], dict[str, Any]]] = {
    "parsing": a_small_treebank,
    "pairs": lambda folder: {**tables(folder, "say {0}\t{1} is said"), "vocabulary": 300},
    "g2p": lambda folder: tables(folder, "{0}\t{1}"),
    "inflection": lambda folder: tables(folder, "{0}\t{0} s\tN;PL"),
    "wmt-en-de": wmt,
    "wmt-en-fr": wmt,
}
"""What makes the data of a task small, by its name; the folder is for files it reads."""


@pytest.mark.parametrize("name", [o.component.name for o in registry().all("task")])
def test_keeps_what_the_engine_relies_on(name: str, tmp_path: Path) -> None:
    component = registry().get("task", name)
    values = SMALL[name](tmp_path) if name in SMALL else {}
    check_task(component, component.settings(**values))


@pytest.mark.parametrize("linearisation", ["brackets", "inorder"])
@pytest.mark.parametrize("leaves", ["words", "tags"])
def test_parsing_with_every_linearisation(linearisation: str, leaves: str, tmp_path: Path) -> None:
    component = registry().get("task", "parsing")
    values = {**a_small_treebank(tmp_path), "linearisation": linearisation, "leaves": leaves}
    check_task(component, component.settings(**values), exact=leaves == "tags")


@pytest.mark.parametrize("level", ["character", "word", "symbols"])
@pytest.mark.parametrize("shared", [True, False])
def test_pairs_at_every_level(level: str, shared: bool, tmp_path: Path) -> None:
    component = registry().get("task", "pairs")
    values = {**tables(tmp_path, "say {0}\t{1} is said"), "level": level, "shared": shared}
    check_task(component, component.settings(**values, unknown=0.1))


@pytest.mark.parametrize("subwords", ["bpe", "unigram", "wordpiece"])
def test_pairs_of_every_kind_of_subwords(subwords: str, tmp_path: Path) -> None:
    component = registry().get("task", "pairs")
    values = {**tables(tmp_path, "say {0}\t{1} is said"), "subwords": subwords, "vocabulary": 300}
    dropout = 0.3 if subwords == "bpe" else 0.0
    check_task(component, component.settings(**values, dropout=dropout))


class Reversal(Task):
    """Words to be written backwards; ``wrong`` says what is not as it should be."""

    def __init__(self, wrong: str = "") -> None:
        self.wrong = wrong

    def prepare(self, folder: Path) -> None:
        (folder / "words").write_text("abc cab b", encoding="utf-8")
        self.words = ["abc", "cab", "b"]

    def open(self, folder: Path) -> None:
        if self.wrong != "opened from memory":
            self.words = (folder / "words").read_text(encoding="utf-8").split()

    @property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary(6, eos=1) if self.wrong == "special" else Vocabulary(6)

    @property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary(5 if self.wrong == "source ids" else 6)

    def examples(self, split: str) -> Sequence[str]:
        if split not in ("train", "dev") and self.wrong != "split":
            raise DataError(f"there is no split {split!r}.")
        return self.words

    def training(self, epoch: int, seed: int) -> Corpus:
        return Corpus.of((self.encode_source(w), self.encode_target(w)) for w in self.words)

    def input(self, example: str) -> str:
        return example

    def encode_source(self, input: str) -> Any:
        import torch

        return torch.tensor([3 + "abc".index(letter) for letter in input])

    def encode_target(self, example: str) -> list[int]:
        ids = [3 + "abc".index(letter) for letter in reversed(example)]
        return [*ids, 2] if self.wrong == "eos" else ids

    def decode(self, ids: Sequence[int], input: str) -> str:
        return "".join("abc"[i - 3] for i in ids)[: 2 if self.wrong == "decode" else None]

    def reference(self, example: str) -> str:
        return example[::-1]

    def score(self, outputs: Sequence[str], examples: Sequence[str]) -> Score:
        right = sum(o == e[::-1] for o, e in zip(outputs, examples, strict=True))
        return Score("accuracy", -right if self.wrong == "score" else right, "exact")


def test_a_task_that_is_right() -> None:
    check_task(Reversal)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            "special",
            "pad, bos and eos of the target vocabulary must be three of its ids, not [0, 1] of 6.",
        ),
        ("source ids", "training() gives sources with the ids [5], of 5 there are."),
        ("split", "A split that does not exist must be refused with a DataError."),
        ("eos", "training() gives targets with the special ids [2], which the engine adds."),
        (
            "decode",
            "decode(encode_target(example)) must be the reference, but from character 2 on it "
            "is '', not 'a'.",
        ),
        (
            "score",
            "References must score no worse than empty outputs, but they have -3 to 0.",
        ),
    ],
)
def test_the_kit_finds_what_is_wrong(wrong: str, sentence: str) -> None:
    with pytest.raises(AssertionError) as error:
        check_task(lambda: Reversal(wrong))
    assert str(error.value) == sentence


def test_the_kit_opens_a_task_that_did_not_prepare() -> None:
    with pytest.raises(AttributeError):
        check_task(lambda: Reversal("opened from memory"))


def test_settings_are_a_components_own() -> None:
    for offer in registry().all("task"):
        assert issubclass(offer.component.settings, Settings)
