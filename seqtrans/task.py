"""What a task must say: its data, its vocabularies, how text becomes ids and back, and how outputs are scored.

A task is built from its settings alone. ``prepare`` runs once, on one process, and writes what it learns;
``open`` reads that folder again, needs nothing else, and comes before everything below it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from seqtrans.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from seqtrans.data import Corpus


@dataclass(frozen=True)
class Vocabulary:
    """All that the engine knows of a vocabulary: how many ids there are, and which three are special.

    ``paces``, if given, has one flag for each id: does it bring the reader one unit further along the
    input that both sides share (a word begins; a word is consumed)? It feeds ``model.pace``.
    """

    size: int
    pad: int = 0
    bos: int = 1
    eos: int = 2
    paces: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Score:
    """How good a set of outputs is, over corpus counts, failures included."""

    metric: str
    value: float
    signature: str
    figures: Mapping[str, Any] = field(default_factory=dict)  # everything measured; JSON
    report: str = ""  # for people


class Constraint(ABC):
    """Which symbols may come next in each row. Decoders ask; they know nothing of what is behind it.

    The rows begin as the sentences in the order given to :meth:`Task.constraint`.
    """

    @abstractmethod
    def allowed(self) -> Tensor:
        """Bool [R, V]: what may come next. Every row allows at least one symbol."""

    @abstractmethod
    def advance(self, tokens: Tensor) -> None:
        """Append ``tokens`` [R], each of them allowed, one to each row."""

    @abstractmethod
    def select(self, rows: Tensor) -> Self:
        """The rows named by ``rows`` [R'], in that order, each as often as named; the original is left alone."""


class Task(ABC):
    """One kind of transduction. ``example`` is whatever the task's own reader gives; ``input`` is its source side."""

    shares_vocabulary: ClassVar[bool] = False
    """Whether one vocabulary serves both sides, so that all embeddings may be tied (section 3.4)."""

    maximise: ClassVar[bool] = True
    """Whether a larger score is better."""

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Read the raw data, learn what is to be learnt and write all that ``open`` needs into ``folder``.

        ``folder`` exists and is empty; it appears under its final name only when this returns.
        """

    @abstractmethod
    def open(self, folder: Path) -> None:
        """Read what ``prepare`` wrote. The raw data need not be there any more."""

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

    @abstractmethod
    def training(self, epoch: int, seed: int) -> Corpus:
        """What one epoch trains on: a function of (epoch, seed) alone, so that a run can be resumed inside it."""

    @abstractmethod
    def input(self, example: Any) -> Any:
        """The source side of an example: what ``transduce`` would be given."""

    @abstractmethod
    def encode_source(self, input: Any) -> Tensor:
        """Ids [S], or features [S, ...]. Raises ``DataError`` for what can't be an input."""

    @abstractmethod
    def encode_target(self, example: Any) -> Sequence[int]:
        """Ids [T] of the target, without bos and eos."""

    @abstractmethod
    def decode(self, ids: Sequence[int], input: Any) -> Any:
        """The output that ``ids`` stand for, given the input. Never fails: malformed outputs are mended or marked."""

    @abstractmethod
    def reference(self, example: Any) -> Any:
        """The output that a perfect system would give for this example."""

    @abstractmethod
    def score(self, outputs: Sequence[Any], examples: Sequence[Any]) -> Score:
        """Score outputs against examples of the same number and order."""

    def constraint(self, inputs: Sequence[Any], limits: Tensor) -> Constraint | None:
        """What keeps the outputs for ``inputs`` well-formed within ``limits`` [R] symbols each, eos included."""
        return None

    def read(self, line: str) -> Any:
        """An input from one line of text, as the command line gives it. Raises ``DataError`` with the reason."""
        return line

    def write(self, output: Any) -> str:
        """One line of text for one output."""
        return str(output)

    def draw(self, output: Any) -> str:
        """The output drawn for a terminal."""
        return self.write(output)

    def picture(self, output: Any) -> str:
        """The output as SVG. Raises ``DataError`` if the task draws none."""
        raise DataError(f"{type(self).__name__} draws no pictures.")

    def describe(self) -> Iterable[str]:
        """Lines that say what was prepared: sizes, counts, what was dropped and why."""
        return ()
