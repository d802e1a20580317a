"""Encoded pairs in flat arrays, which may be files that are mapped into memory.

No torch: the processes that prepare a corpus read and write it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from seqtrans.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.int64]
SIDES = ("sources", "targets")


class Ragged:
    """Sequences of different lengths, end to end in one array [total, ...], perhaps a mapped file.

    Number i is ``values[bounds[i] : bounds[i + 1]]``. Nothing is read or kept of the others.
    """

    def __init__(self, values: NDArray[np.generic], bounds: Array) -> None:
        self.values, self.bounds = values, bounds

    @classmethod
    def of(cls, sequences: Iterable[NDArray[np.generic]]) -> Ragged:
        """From a list of sequences, each [length, ...]."""
        sequences = list(sequences)
        values = np.concatenate(sequences) if sequences else np.zeros(0, np.int32)
        return cls(values, np.cumsum([0, *map(len, sequences)], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, number: int) -> NDArray[np.generic]:
        return self.values[self.bounds[number] : self.bounds[number + 1]]

    def lengths(self, numbers: Array | None = None) -> Array:
        """The lengths of the sequences ``numbers``; of all, if none are given."""
        if numbers is None:
            return np.diff(self.bounds)
        return self.bounds[numbers + 1] - self.bounds[numbers]

    def chosen(self, numbers: Array) -> Ragged:
        """The sequences ``numbers`` alone, in that order, in memory."""
        lengths = self.lengths(numbers)
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        places = np.arange(bounds[-1]) + np.repeat(self.bounds[numbers] - bounds[:-1], lengths)
        return Ragged(np.asarray(self.values[places]), bounds)

    def rows(self, numbers: Array, value: int = 0) -> tuple[NDArray[np.generic], Array]:
        """The sequences ``numbers`` filled up on the right, [B, longest, ...], and their lengths.

        Ids become int64, features stay as they are. All rows are fetched at once: with one small
        array for each, an update of short sequences takes longer to collate than to compute.
        """
        lengths = self.lengths(numbers)
        at = np.arange(lengths.max(initial=0))
        places = self.bounds[numbers][:, None] + at
        kind = np.int64 if np.issubdtype(self.values.dtype, np.integer) else self.values.dtype
        if not places.size or not len(self.values):
            return np.full((*places.shape, *self.values.shape[1:]), value, kind), lengths
        values = self.values[np.minimum(places, len(self.values) - 1)].astype(kind, copy=False)
        values[at >= lengths[:, None]] = value
        return values, lengths


@dataclass(frozen=True)
class Corpus:
    """Encoded pairs: sources, ids [S] or features [S, ...], and targets, ids [T].

    Targets are without bos and eos.
    """

    sources: Ragged
    targets: Ragged
    mixture: tuple[tuple[int, float], ...] = ()
    """Where the corpus has parts: how many examples each has, and how often it is seen in an
    epoch, on average. None given: all are seen once."""
    draw: Callable[[Array, int], Corpus] | None = None
    """How a task gives examples that are others in each epoch: from their numbers and the number of
    the window of the epoch (see `seqtrans.data.Epoch`), a small corpus of these alone."""

    @classmethod
    def of(cls, pairs: Iterable[tuple[Sequence[int] | Tensor, Sequence[int]]]) -> Corpus:
        """From (source, target) pairs."""
        sources, targets = [], []
        for source, target in pairs:
            ids = isinstance(source, Sequence)
            sources.append(np.asarray(source, np.int32 if ids else None))
            targets.append(np.asarray(target, np.int32))
        return cls(Ragged.of(sources), Ragged.of(targets))

    def __len__(self) -> int:
        return len(self.sources)

    def drawn(self, numbers: Array, window: int) -> tuple[Corpus, Array]:
        """What is trained on of the examples ``numbers``, and what their numbers are in it."""
        if self.draw is None:
            return self, numbers
        return self.draw(numbers, window), np.arange(len(numbers))

    def save(self, folder: Path) -> None:
        """Write the arrays into ``folder``, which is made."""
        folder.mkdir(parents=True)
        for side, ragged in zip(SIDES, (self.sources, self.targets), strict=True):
            np.save(folder / f"{side}.npy", ragged.values, allow_pickle=False)
            np.save(folder / f"{side}.bounds.npy", ragged.bounds, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path, mixture: tuple[tuple[int, float], ...] = ()) -> Corpus:
        """Map a saved corpus into memory. Raises ``DataError`` if it is not there."""

        def mapped(name: str) -> Any:
            try:
                return np.load(folder / name, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError) as error:
                raise DataError(f"{folder} holds no prepared corpus: {error}.") from None

        sources, targets = (
            Ragged(mapped(f"{side}.npy"), mapped(f"{side}.bounds.npy")) for side in SIDES
        )
        return cls(sources, targets, mixture)


class Writer:
    """A corpus that is written bit by bit, of any size, in the form that `Corpus.open` reads.

    To be used in a ``with``; ``folder`` is made. Ids must be below ``size``.
    """

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir(parents=True)
        kind = np.dtype(np.uint16 if size <= 1 << 16 else np.int32)
        self.files = {
            name: Growing(folder / f"{name}.npy", kind if name in SIDES else np.dtype(np.int64))
            for side in SIDES
            for name in (side, f"{side}.bounds")
        }
        for side in SIDES:
            self.files[f"{side}.bounds"].append(np.zeros(1, np.int64))

    def append(self, *sides: tuple[NDArray[np.generic], Array]) -> None:
        """More pairs: for each side all ids [total] end to end, and the lengths [n] of each."""
        for side, (values, lengths) in zip(SIDES, sides, strict=True):
            ends = np.cumsum(lengths) + self.files[side].length
            self.files[side].append(values)
            self.files[f"{side}.bounds"].append(ends)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self.files.values():
            file.close()


class Growing:
    """A one-dimensional .npy file whose length is known only when it is closed."""

    def __init__(self, path: Path, kind: np.dtype[Any]) -> None:
        self.kind, self.length = kind, 0
        self.file: BinaryIO = path.open("wb")
        self.head()

    def head(self) -> None:
        """Write the header; numpy leaves room in it for the length to grow."""
        np.lib.format.write_array_header_1_0(
            self.file,
            {"descr": self.kind.str, "fortran_order": False, "shape": (self.length,)},
        )

    def append(self, values: NDArray[np.generic]) -> None:
        """Write more values."""
        self.file.write(values.astype(self.kind, copy=False).tobytes())
        self.length += len(values)

    def close(self) -> None:
        """Write the length, and close."""
        begin = self.file.tell()
        self.file.seek(0)
        self.head()
        assert self.file.tell() <= begin
        self.file.close()
