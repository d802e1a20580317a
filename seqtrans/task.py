"""What a task must say: its data and vocabularies, how text becomes ids and back, and its score.

A task is built from its settings alone. ``prepare`` runs once, on one process, and writes what it
learns; ``open`` reads that folder again, needs nothing else, and comes before everything below it.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from seqtrans.errors import DataError
from seqtrans.lines import read_lines

if TYPE_CHECKING:
    from torch import Tensor

    from seqtrans.corpus import Corpus


@dataclass(frozen=True)
class Vocabulary:
    """All that the engine knows of a vocabulary: its size, and which three ids are special.

    ``fingerprint`` tells apart vocabularies of which the same ids stand for other things, such as a
    SHA-256 of the symbols in their order: models are averaged only where it is the same.

    ``paces``, if given, has one flag for each id: does it bring the reader one unit further along
    the input that both sides share (a word begins; a word is consumed)? It feeds ``model.pace``.
    """

    size: int
    pad: int = 0
    bos: int = 1
    eos: int = 2
    paces: tuple[bool, ...] | None = None
    fingerprint: str = ""


@dataclass(frozen=True)
class Score:
    """How good a set of outputs is, over corpus counts, failures included."""

    metric: str
    value: float
    signature: str
    figures: Mapping[str, Any] = field(default_factory=dict)  # everything measured; JSON
    report: str = ""  # for people


@dataclass(frozen=True)
class Comparison:
    """How far apart sets of outputs are, and how likely that is by chance."""

    metric: str
    figures: Mapping[str, Any]  # everything measured, for each set by its name; JSON
    report: str  # for people


class Constraint(ABC):
    """Which symbols may come next in each row. Decoders ask, and know nothing of what is behind.

    The rows begin as the sentences in the order given to :meth:`Task.constraint`.
    """

    @abstractmethod
    def allowed(self) -> Tensor:
        """Bool [R, V]: what may come next, eos included, of which every row has something."""

    @abstractmethod
    def advance(self, tokens: Tensor) -> None:
        """Append ``tokens`` [R], each of them allowed, one to each row. Never told of eos."""

    @abstractmethod
    def select(self, rows: Tensor) -> Self:
        """The rows ``rows`` [R'], in that order, each as often as named; this is left alone."""


class Task(ABC):
    """One kind of transduction.

    An ``example`` is whatever the task's own reader gives, an ``input`` its source side.
    """

    shares_vocabulary: ClassVar[bool] = False
    """Whether one vocabulary serves both sides, so that all embeddings may be tied (3.4)."""

    maximise: ClassVar[bool] = True
    """Whether a larger score is better."""

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Read the raw data, learn what is to be learnt, and write what ``open`` needs.

        ``folder`` exists and is empty; it appears under its final name only when this returns.
        Then ``raw.json`` is written into it: what the files of ``raw_files`` were like. Once one
        of them has changed, the run's training doesn't go on.
        """

    def raw_files(self) -> Iterable[Path] | None:
        """The files that ``prepare`` reads; ``None``: those that the settings name.

        Asked just before ``prepare``, and may raise what that would. Settings name files by their
        type ``Path``, and with a folder all files below it.
        """
        return None

    @abstractmethod
    def open(self, folder: Path) -> None:
        """Read what ``prepare`` wrote. The raw data need not be there any more."""

    def open_split(self, split: str, folder: Path) -> None:
        """Read the raw data as far as ``examples``, ``data``, ``recover`` and ``score`` need.

        They are asked for this split alone, and nothing else is asked.

        ``folder`` is an empty one. By default everything is prepared in it, for a task that
        cannot do with less. Raises ``DataError`` if the data is not there.
        """
        self.prepare(folder)
        self.open(folder)

    @property
    @abstractmethod
    def target_vocabulary(self) -> Vocabulary:
        """The vocabulary of the outputs."""

    @property
    def source_vocabulary(self) -> Vocabulary | None:
        """The vocabulary of the inputs; ``None`` if they are features, not ids."""
        return None

    @abstractmethod
    def examples(self, split: str) -> Sequence[Any]:
        """The examples of ``train``, ``dev`` or ``test``, in the order of the data.

        Raises ``DataError`` if there is no such split.
        """

    def data(self, split: str) -> tuple[str, str]:
        """What the data is called in results, and a fingerprint of a split.

        Data that a program wrote is called ``synthetic``, or by a name that begins so. The
        fingerprint is a SHA-256, equal only for equal examples in equal order; by default it is
        that of the references.
        """
        digest = hashlib.sha256()
        for example in self.examples(split):
            digest.update(f"{self.write(self.reference(example))}\n".encode())
        return type(self).__name__.lower(), digest.hexdigest()

    @abstractmethod
    def training(self, epoch: int, seed: int) -> Corpus:
        """What an epoch trains on: a function of (epoch, seed) alone, so that it can be resumed."""

    @abstractmethod
    def input(self, example: Any) -> Any:
        """The source side of an example: what ``transduce`` would be given."""

    @abstractmethod
    def encode_source(self, input: Any) -> Tensor:
        """Ids [S], or features [S, ...]. Raises ``DataError`` for what can't be an input."""

    @abstractmethod
    def encode_target(self, example: Any) -> Sequence[int]:
        """Ids [T] of the target, without bos and eos."""

    def encode_prefix(self, text: str, input: Any) -> Sequence[int]:
        """Ids of what an output is to begin with, written as a line. Raises ``DataError``."""
        raise DataError(f"{type(self).__name__} takes no prefix.")

    @abstractmethod
    def decode(self, ids: Sequence[int], input: Any) -> Any:
        """The output that ``ids`` stand for, given the input.

        Never fails: malformed outputs are mended or marked.
        """

    @abstractmethod
    def reference(self, example: Any) -> Any:
        """The output that a perfect system would give for this example."""

    @abstractmethod
    def score(self, outputs: Sequence[Any], examples: Sequence[Any]) -> Score:
        """Score outputs against examples of the same number and order."""

    def compare(self, outputs: Mapping[str, Sequence[Any]], examples: Sequence[Any]) -> Comparison:
        """Whether sets of outputs, by their names, differ by more than chance.

        Each is as ``score`` takes it; the first is what the others are measured against. The task
        need not be open. Raises ``DataError`` if the task can't tell.
        """
        raise DataError(f"{type(self).__name__} compares no outputs.")

    def example(self, reference: str) -> Any:
        """An example of which no more is known than its reference, a line as :meth:`write` gives.

        ``recover``, ``score`` and ``compare`` may be given it; the task need not be open. Raises
        ``DataError`` if the line is no reference, or not enough to score against.
        """
        raise DataError(f"{type(self).__name__} scores against no file of references.")

    def read_references(self, path: Path) -> Sequence[Any]:
        """What :meth:`example` makes of each line of a file; a task may read other files, too.

        Raises ``DataError`` if the file can't be read, or naming the line that is no reference.
        """
        made = []
        for number, line in enumerate(read_lines(path), start=1):
            try:
                made.append(self.example(line))
            except DataError as error:
                raise DataError(f"{path}, line {number}: {error}") from None
        return made

    def mistake(self, outputs: Sequence[Any], examples: Sequence[Any]) -> str | None:
        """A sentence on why outputs that come from a file can't be meant so; ``None`` if they can.

        The task need not be open.
        """
        return None

    def constraint(self, inputs: Sequence[Any], limits: Tensor) -> Constraint | None:
        """What keeps outputs well-formed within ``limits`` [R] symbols each, eos included."""
        return None

    def read(self, line: str) -> Any:
        """An input from a line of text. Raises ``DataError`` with the reason if it is none."""
        return line

    def write(self, output: Any) -> str:
        """One line of text for one output."""
        return str(output)

    def publish(self, output: Any) -> str:
        """One line for one output, without what a licence of the data may forbid to publish.

        What ``score`` looks at stands in it, or comes back from the example in :meth:`recover`.
        """
        return self.write(output)

    def recover(self, line: str, example: Any) -> Any:
        """The output that :meth:`publish` wrote. Raises ``DataError`` if it fits no ``example``."""
        return line

    def units(self, ids: Sequence[int], side: Literal["source", "target"]) -> list[str]:
        """What each id stands for, to be read beside a map of attention; by default its number.

        Joined they need not give the text back. A blank before a unit says that a word begins.
        """
        return [str(id) for id in ids]

    def read_target(self, line: str) -> Sequence[int]:
        """Ids of a target from a line as :meth:`write` gives, without bos and eos.

        Raises ``DataError`` if it is none.
        """
        return self.encode_target(self.example(line))

    def draw(self, output: Any) -> str:
        """The output drawn for a terminal."""
        return self.write(output)

    def picture(self, output: Any) -> str:
        """The output as SVG. Raises ``DataError`` if the task draws none."""
        raise DataError(f"{type(self).__name__} draws no pictures.")

    def examine(self, folder: Path) -> Iterator[str]:
        """Lines that say what the raw data is like, before anything is trained on it.

        What may be a mistake begins with ``warning: ``. ``folder`` is an empty one, deleted once
        the task was looked at; when the lines end, the task is open. By default everything is
        prepared in it and described. Raises ``DataError`` if the data can't be used, with a line
        for each thing that is wrong with it, as far as can be told at once.
        """
        self.prepare(folder)
        self.open(folder)
        yield from self.describe()

    def describe(self) -> Iterable[str]:
        """Lines that say what was prepared: sizes, counts, what was dropped and why."""
        return ()
