"""The task of pairs: two files of lines, or a table, to ids and back, and the score of lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy as np
import torch
from torch import Tensor

from seqtrans.corpus import Array, Corpus, Ragged
from seqtrans.errors import DataError
from seqtrans.files import read_json
from seqtrans.lines import is_sgml
from seqtrans.task import Comparison, Score, Task, Vocabulary
from seqtrans_tasks.pairs import PairsSettings, reading
from seqtrans_tasks.pairs.account import ALARMING, Account
from seqtrans_tasks.pairs.preparing import SIDES, SPLITS, prepare, read_units, write_json
from seqtrans_tasks.pairs.reading import Chunk, Files, Part, Table
from seqtrans_tasks.pairs.units import EOS, Form, Pieces, Units, normaliser

if TYPE_CHECKING:
    from seqtrans_tasks.metrics.bleu import Preparation


SCORED = ("dev", "test")
"""The splits for which other files may be given once a run is prepared."""


@dataclass(frozen=True)
class Pair:
    """An example. The target of a text that has several right ones is the first."""

    source: str
    targets: tuple[str, ...]

    @property
    def target(self) -> str:
        """What is learnt."""
        return self.targets[0]


class Pairs(Task):
    """Lines to lines. Both an input and an output are a line of text."""

    tokenised: ClassVar[Sequence[Preparation]] = ()
    """For each of them a tokenised BLEU stands beside that of plain text."""

    def __init__(self, settings: PairsSettings) -> None:
        self.settings = settings
        self.shares_vocabulary = settings.shared  # type: ignore[misc]  # by its settings
        self.form: Form = normaliser(settings.normalise)

    def read_part(self, part: Part) -> Iterator[Chunk]:
        """The pairs of a part; a task with another format reads it here."""
        return reading.chunks(part)

    def parts(self, split: str) -> list[Part]:
        """The files of a split; none if there are none."""
        settings = self.settings
        table: tuple[Path, ...] = getattr(settings, split)
        sides: tuple[tuple[Path, ...], ...] = tuple(
            getattr(settings, f"{split}_{side}") for side in SIDES
        )
        columns = settings.source_column, settings.target_column
        return [
            *(Table.of(path, *columns) for path in table),
            *(Files(source, target) for source, target in zip(*sides, strict=True)),
        ]

    def name(self) -> str:
        """What the data is called in results."""
        if self.settings.title is not None:
            return self.settings.title
        named = next((parts for split in SPLITS if (parts := self.parts(split))), None)
        if named is None:
            return "pairs"
        return folder_of(named[0])

    def all_parts(self) -> dict[str, list[Part]]:
        """The files of all splits. Raises ``DataError`` if there are none to train on, or not as
        many as their weights.
        """
        parts = {split: self.parts(split) for split in SPLITS}
        if not parts["train"]:
            raise DataError(
                "there is nothing to train on; name two files by task.train_source=FILE "
                "task.train_target=FILE, or a table by task.train=FILE.tsv."
            )
        weights = self.settings.weights
        if weights and len(weights) != len(parts["train"]):
            names = ", ".join(reading.files_of(part)[0].name for part in parts["train"])
            raise DataError(
                f"task.weights needs a number for each file of train, {len(parts['train'])} in "
                f"all, which are {names}, and has {len(weights)}."
            )
        return parts

    def prepare(self, folder: Path) -> None:
        parts = self.all_parts()
        summary = prepare(parts, self.read_part, self.form, self.settings, folder)
        files = {split: self.files(split) for split in SCORED}
        write_json(folder / "summary.json", {"name": self.name(), "files": files, **summary})

    def raw_files(self) -> Iterator[Path]:
        parts = chain.from_iterable(self.all_parts().values())
        return chain.from_iterable(map(reading.files_of, parts))

    def examine(self, folder: Path) -> Iterator[str]:
        # All files that can't be read are told at once; preparing would stop at the first.
        reading.check(chain.from_iterable(self.all_parts().values()), self.read_part)
        yield from super().examine(folder)

    def open(self, folder: Path) -> None:
        self.folder = folder
        self.summary: Any = read_json(folder / "summary.json")
        self.source, self.target = read_units(folder)
        weights = self.settings.weights
        self.corpus = Corpus.open(
            folder / "train",
            tuple(zip(self.summary["parts"], weights, strict=True)) if weights else (),
        )
        self.loaded: dict[str, Sequence[Pair]] = {}
        before = self.summary.get("files", {})
        self.others = {
            split: ""
            for split in SCORED
            if any(files := self.files(split)) and files != before.get(split, files)
        }
        """The splits of other files than were prepared, each with its fingerprint once read."""

    def files(self, split: str) -> list[list[str]]:
        """The files of a split as the settings name them: tables, sources, targets."""
        return [[str(path) for path in getattr(self.settings, key)] for key in keys(split)]

    def open_split(self, split: str, folder: Path) -> None:
        parts = self.parts(split) if split in SPLITS else []
        if split == "dev" and not parts:  # it is held out of train
            super().open_split(split, folder)
            return
        if not parts:
            raise DataError(f"the data {self.name()} has no split {split!r}.")
        examples, fingerprint = self.read_files(parts)
        self.loaded, self.others = {split: examples}, {}
        self.summary = {"name": self.name(), "splits": {split: {"fingerprint": fingerprint}}}

    def read_files(self, parts: Sequence[Part]) -> tuple[Sequence[Pair], str]:
        """The examples of raw files, and their fingerprint."""
        pairs = [
            Pair(source, (target,))
            for part in parts
            for chunk in self.read_part(part)
            for source, target in zip(chunk.source, chunk.target, strict=True)
        ]
        digest = hashlib.sha256()
        for pair in pairs:
            digest.update(f"{pair.source}\n{pair.target}\n".encode())
        return self.grouped(pairs), digest.hexdigest()

    @property
    def source_vocabulary(self) -> Vocabulary:
        return self.source.vocabulary()

    @property
    def target_vocabulary(self) -> Vocabulary:
        return self.target.vocabulary()

    def examples(self, split: str) -> Sequence[Pair]:
        if split not in self.loaded and split in self.others:
            self.loaded[split], self.others[split] = self.read_files(self.parts(split))
        if split not in self.loaded:
            self.check_split(split)
            if split == "train":
                return Decoded(self.corpus, self.source, self.target)
            # As they were written: a CR or a BOM that is still there belongs to the text.
            sides = [
                (self.folder / f"{split}.{side}").read_bytes().decode().split("\n")[:-1]
                for side in SIDES
            ]
            pairs = [Pair(source, (target,)) for source, target in zip(*sides, strict=True)]
            self.loaded[split] = self.grouped(pairs)
        return self.loaded[split]

    def grouped(self, pairs: list[Pair]) -> Sequence[Pair]:
        """The pairs of dev or test as examples; a task may make one of those of one source."""
        return pairs

    def check_split(self, split: str) -> None:
        """Raises ``DataError`` if there is no such split."""
        if split not in self.summary["splits"]:
            there = ", ".join(self.summary["splits"])
            files = (
                f"; name its files by task.{split}_source=FILE task.{split}_target=FILE, or a "
                f"table by task.{split}=FILE"
            )
            raise DataError(
                f"there is no split {split!r}; there are: {there}{files * (split in SCORED)}."
            )

    def data(self, split: str) -> tuple[str, str]:
        title, prepared = self.settings.title, self.summary["name"]
        if split not in self.others:
            self.check_split(split)
            return title or prepared, self.summary["splits"][split]["fingerprint"]
        self.examples(split)
        # What the run's own data is called isn't what other files are.
        own = title if title != prepared else None
        return own or folder_of(self.parts(split)[0]), self.others[split]

    @property
    def varies(self) -> bool:
        """Whether each epoch has other examples."""
        return bool(self.settings.dropout or self.settings.unknown)

    def training(self, epoch: int, seed: int) -> Corpus:
        if not self.varies:
            return self.corpus
        return replace(self.corpus, draw=partial(self.vary, epoch, seed))

    def vary(self, epoch: int, seed: int, numbers: Array, window: int) -> Corpus:
        """Some of the training pairs as an epoch of BPE-dropout or unknown units has them."""
        random = Random(f"{seed} {epoch} {window}")
        corpus = Corpus(self.corpus.sources.chosen(numbers), self.corpus.targets.chosen(numbers))
        sources, targets = self.redraw(corpus, random)
        if self.settings.unknown and self.source.unknown is not None:
            sources = self.hidden(sources, self.source.unknown, random)
        return Corpus(sources, targets)

    def redraw(self, corpus: Corpus, random: Random) -> tuple[Ragged, Ragged]:
        """Sources and targets as an epoch has them, before units are hidden."""
        if not self.settings.dropout:
            return corpus.sources, corpus.targets
        return (
            self.varied(corpus.sources, self.source, random, [EOS]),
            self.varied(corpus.targets, self.target, random, []),
        )

    def varied(self, side: Ragged, units: Units, random: Random, end: list[int]) -> Ragged:
        """A side with its sub-words segmented anew, ``end`` after each text."""
        if units.level != "subword":
            return side
        encode = units.varied(self.settings.dropout, random)
        return Ragged.of(
            np.array([*encode(units.decode(side[i].tolist())), *end], np.int32)
            for i in range(len(side))
        )

    def hidden(self, sources: Ragged, unknown: int, random: Random) -> Ragged:
        """The sources, some of their units unknown."""
        draw = np.random.default_rng(random.getrandbits(64))
        gone = draw.random(len(sources.values)) < self.settings.unknown
        values = np.where(gone & (sources.values != EOS), unknown, sources.values)
        return Ragged(values.astype(np.int32), sources.bounds)

    def input(self, example: Pair) -> str:
        return example.source

    def read(self, line: str) -> str:
        if not line.strip():
            raise DataError("there is no text.")
        return line

    def encode_source(self, input: str) -> Tensor:
        return torch.tensor([*self.source.encode(self.form(input)), EOS], dtype=torch.long)

    def encode_target(self, example: Pair) -> list[int]:
        return self.target.encode(example.target)

    def encode_prefix(self, text: str, input: str) -> list[int]:
        return self.target.encode(text)

    def decode(self, ids: Sequence[int], input: str) -> str:
        return "" if not input.strip() else self.target.decode(ids)

    def reference(self, example: Pair) -> str:
        return example.target

    def units(self, ids: Sequence[int], side: Literal["source", "target"]) -> list[str]:
        known = self.source if side == "source" else self.target
        # Of a text the blank before its first word is left off; that of a unit is to be seen.
        text = known.subwords.decode if isinstance(known, Pieces) else known.decode
        return [text([id]) for id in ids]

    def write(self, output: str) -> str:
        return output.replace("\n", " ")  # which a model may write; a line stays a line

    def score(self, outputs: Sequence[str], examples: Sequence[Pair]) -> Score:
        from seqtrans_tasks.metrics import scores

        if self.settings.measure == "exact":
            return scores.form_score(outputs, [example.targets for example in examples])
        score = scores.text_score(outputs, [targets(examples)], **self.scored_by(examples))
        plain = self.settings.measure != "tokenised-bleu"
        return score if plain else replace(score, metric="tokenised BLEU")

    def compare(self, outputs: Mapping[str, Sequence[str]], examples: Sequence[Pair]) -> Comparison:
        from seqtrans_tasks.metrics import significance

        if self.settings.measure == "exact":
            right = [example.targets for example in examples]
            return significance.compare_words(outputs, right, ("exact match",))
        return significance.compare_text(outputs, [targets(examples)], **self.scored_by(examples))

    def scored_by(self, examples: Sequence[Pair]) -> dict[str, Any]:
        """How text is scored, as both ``text_score`` and ``compare_text`` take it."""
        from seqtrans_tasks.metrics.bleu import AS_GIVEN

        settings = self.settings
        plain = settings.measure != "tokenised-bleu"
        return {
            "sources": [example.source for example in examples],
            "plain": plain,
            "tokenised": self.tokenised if plain else [AS_GIVEN],
            "lowercase": settings.lowercase,
            "with_ter": settings.ter,
            "by": "chrf" if settings.measure == "chrf" else "bleu",
        }

    def mistake(self, outputs: Sequence[str], examples: Sequence[Pair]) -> str | None:
        from seqtrans_tasks.metrics.guards import own_marks

        exact = self.settings.measure == "exact"
        return None if exact else own_marks(outputs, [targets(examples)])

    def example(self, reference: str) -> Pair:
        return Pair("", (reference,))

    def read_references(self, path: Path) -> Sequence[Pair]:
        """The pairs of a table, the segments of SGML, or else the lines of a file."""
        if self.has_sources(path):
            settings = self.settings
            table = Table.of(path, settings.source_column, settings.target_column)
            return self.read_files([table])[0]
        if is_sgml(path):
            return [self.example(line) for read in reading.lines(path) for line in read.lines]
        return super().read_references(path)

    def has_sources(self, path: Path) -> bool:
        """Whether a file of references is a table; of text, which may have tabs, its name tells."""
        return path.name.lower().removesuffix(".gz").endswith(".tsv")

    def describe(self) -> Iterator[str]:
        summary = self.summary
        yield f"data {summary['name']}"
        for split, facts in summary["splits"].items():
            account = Account.from_json(facts["account"])
            yield from (f"  {line}" for line in account.text(split))
            pairs = max(1, account.kept)
            yield (
                f"    {facts['units'][0] / pairs:.1f} + {facts['units'][1] / pairs:.1f} units on "
                f"average, longest {facts['longest'][0]} + {facts['longest'][1]}; fingerprint "
                f"{facts['fingerprint'][:12]}"
            )
        if summary["repeats"]:
            yield f"  {summary['repeats']:,} pairs of train are there more than once"
        for split, both in summary["overlap"].items():
            if both["sources"] or both["pairs"]:
                yield (
                    f"  of {split}, {both['sources']:,} sources and {both['pairs']:,} pairs are in "
                    "train as well"
                )
        for name, units in (("source", self.source), ("target", self.target)):
            shared = self.target is self.source
            if not (shared and name == "target"):
                yield (
                    f"  {units.vocabulary().size:,} ids of {'both sides' if shared else name}, "
                    f"level {units.level}"
                )
        if summary["sample"]["every"] > 1:
            yield (
                f"  learnt from one pair in {summary['sample']['every']}, "
                f"{summary['sample']['pairs']:,} pairs"
            )
        for split, facts in summary["splits"].items():
            account = Account.from_json(facts["account"])
            yield from (f"warning: {line}" for line in account.warnings(split))
            yield from self.unknown_warnings(split)

    def unknown_warnings(self, split: str) -> Iterator[str]:
        """A line for each side of which many units have no id."""
        facts = self.summary["splits"][split]
        for side, count, total in zip(SIDES, facts["unknown"], facts["units"], strict=True):
            if count > ALARMING * total:
                yield (
                    f"warning: {split}: {100 * count / total:.1f} % of the {side}'s units are "
                    "unknown: not seen where units are learnt, or too rare there for "
                    f"task.vocabulary={self.settings.vocabulary}"
                )


def targets(examples: Sequence[Pair]) -> list[str]:
    """What is right, the first where there are several."""
    return [example.target for example in examples]


def keys(split: str) -> list[str]:
    """The settings that name the files of a split: tables, sources, targets."""
    return [split, *(f"{split}_{side}" for side in SIDES)]


def folder_of(part: Part) -> str:
    """The name of the folder that a part lies in."""
    return reading.files_of(part)[0].resolve().parent.name


class Decoded(Sequence[Pair]):
    """The training pairs, back from their ids."""

    def __init__(self, corpus: Corpus, source: Units, target: Units) -> None:
        self.corpus, self.units = corpus, (source, target)

    def __len__(self) -> int:
        return len(self.corpus)

    @overload
    def __getitem__(self, number: int) -> Pair: ...
    @overload
    def __getitem__(self, number: slice) -> list[Pair]: ...
    def __getitem__(self, number: int | slice) -> Pair | list[Pair]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        number %= len(self)
        sides = (self.corpus.sources, self.corpus.targets)
        source, target = (
            units.decode(side[number].tolist())
            for units, side in zip(self.units, sides, strict=True)
        )
        return Pair(source, (target,))
