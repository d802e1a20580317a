"""Prepared corpora, the updates of an epoch, and their batches: the only maker of padding masks.

An epoch is a list of updates, a pure function of (seed, epoch): the same on every process, whatever
their number. Each update is then cut into parts, one for each process and accumulation step. So
neither changes what an update sees.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqtrans.errors import DataError

Array = NDArray[np.int64]


class Ragged:
    """Sequences of different lengths, end to end in one array [total, ...], perhaps a mapped file.

    Number i is ``values[ends[i - 1] : ends[i]]``.
    """

    def __init__(self, values: NDArray[np.generic], ends: Array) -> None:
        self.values, self.ends = values, ends

    @classmethod
    def of(cls, sequences: Iterable[NDArray[np.generic]]) -> Ragged:
        """From a list of sequences, each [length, ...]."""
        sequences = list(sequences)
        values = np.concatenate(sequences) if sequences else np.zeros(0, np.int32)
        return cls(values, np.cumsum([len(s) for s in sequences], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> NDArray[np.generic]:
        return self.values[self.ends[number] - self.lengths[number] : self.ends[number]]

    @cached_property
    def lengths(self) -> Array:
        """The length of each."""
        return np.diff(self.ends, prepend=0)

    def rows(self, numbers: Array, value: int = 0) -> tuple[NDArray[np.generic], Array]:
        """The sequences ``numbers`` filled up on the right, [B, longest, ...], and their lengths.

        Ids become int64, features stay as they are. All rows are fetched at once: with one small
        array for each, an update of short sequences takes longer to collate than to compute.
        """
        lengths = self.lengths[numbers]
        at = np.arange(lengths.max(initial=0))
        places = (self.ends[numbers] - lengths)[:, None] + at
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

    @classmethod
    def of(cls, pairs: Iterable[tuple[Sequence[int] | Tensor, Sequence[int]]]) -> Corpus:
        """From (source, target) pairs."""
        sources, targets = [], []
        for source, target in pairs:
            if isinstance(source, Tensor):
                sources.append(source.numpy())
            else:
                sources.append(np.asarray(source, np.int32))
            targets.append(np.asarray(target, np.int32))
        return cls(Ragged.of(sources), Ragged.of(targets))

    def __len__(self) -> int:
        return len(self.sources)

    def save(self, folder: Path) -> None:
        """Write the arrays into ``folder``, which is made."""
        folder.mkdir(parents=True)
        for name, ragged in (("sources", self.sources), ("targets", self.targets)):
            np.save(folder / f"{name}.npy", ragged.values, allow_pickle=False)
            np.save(folder / f"{name}.ends.npy", ragged.ends, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path) -> Corpus:
        """Map a saved corpus into memory. Raises ``DataError`` if it is not there."""

        def ragged(name: str) -> Ragged:
            try:
                values = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
                return Ragged(values, np.load(folder / f"{name}.ends.npy", allow_pickle=False))
            except (OSError, ValueError) as error:
                raise DataError(f"{folder} holds no prepared corpus: {error}.") from None

        return cls(ragged("sources"), ragged("targets"))


@dataclass(frozen=True)
class Batch:
    """Padded tensors of some examples."""

    source: Tensor  # [B, S] or [B, S, ...]
    mask: Tensor  # [B, S], True where there is something
    target_in: Tensor  # [B, T], beginning with bos
    target_out: Tensor  # [B, T], ending with eos

    def to(self, device: torch.device) -> Batch:
        """The same on another device."""
        return Batch(
            *(
                t.to(device, non_blocking=True)
                for t in (self.source, self.mask, self.target_in, self.target_out)
            )
        )


def epoch_updates(
    corpus: Corpus,
    tokens: int,
    seed: int,
    epoch: int,
    longest_source: int | None = None,
    longest_target: int | None = None,
) -> list[Array]:
    """The updates of an epoch: lists of example numbers, in a random order.

    Every example comes once, but those with a longer source or target than wanted.

    The examples of one update are of like length, and padded to the longest take at most ``tokens``
    positions on the source side and at most ``tokens`` on the target side, eos included; a longer
    example has an update of its own.
    """
    random = np.random.default_rng((seed, epoch))
    source, target = corpus.sources.lengths, corpus.targets.lengths + 1
    order = np.lexsort((random.random(len(corpus)), source, target))
    fits = np.ones(len(corpus), bool)
    if longest_source is not None:
        fits &= source <= longest_source
    if longest_target is not None:
        fits &= target - 1 <= longest_target
    order = order[fits[order]]
    updates, first, widest = [], 0, 0
    for place, width in enumerate(np.maximum(source, target)[order].tolist()):
        widest = max(widest, width)
        if (place - first + 1) * widest > tokens and place > first:
            updates.append(order[first:place])
            first, widest = place, width
    if first < len(order):
        updates.append(order[first:])
    return [updates[i] for i in random.permutation(len(updates))]


def cut(update: Array, parts: int) -> list[Array]:
    """The update in nearly equal runs; with fewer examples than ``parts``, the last are empty."""
    return np.array_split(update, parts)


def pad(sequences: Sequence[Tensor], value: int = 0) -> tuple[Tensor, Tensor]:
    """Sequences [length, ...] filled up on the right, [B, longest, ...], and a mask [B, longest].

    The mask is True where there is something.
    """
    padded = torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True, padding_value=value)
    lengths = torch.tensor([len(s) for s in sequences])
    return padded, torch.arange(padded.shape[1])[None, :] < lengths[:, None]


def collate(
    corpus: Corpus, numbers: Sequence[int] | Array, specials: tuple[int, int, int]
) -> Batch:
    """The examples ``numbers`` of a corpus as one batch.

    ``specials`` are the target's (pad, bos, eos). An empty list gives a batch without any loss:
    the shortest source and no target. That is what a process computes when an update has nothing
    left for it, since all have to go forward and backward together.
    """
    padding, bos, eos = specials
    chosen = np.asarray(numbers, np.int64)
    empty = not len(chosen)
    if empty:
        lengths = corpus.sources.lengths
        chosen = np.array([np.where(lengths > 0, lengths, lengths.max()).argmin()])
    source, lengths = corpus.sources.rows(chosen)
    mask = np.arange(source.shape[1]) < lengths[:, None]
    if empty:
        target = np.full((1, 1), padding)
        return Batch(*map(torch.from_numpy, (source, mask, np.full((1, 1), bos), target)))
    target, lengths = corpus.targets.rows(chosen, padding)
    side = np.full((len(chosen), 1), bos), np.full((len(chosen), 1), padding)
    target_in = np.concatenate([side[0], target], 1)
    target_out = np.concatenate([target, side[1]], 1)
    target_out[np.arange(len(chosen)), lengths] = eos
    return Batch(*map(torch.from_numpy, (source, mask, target_in, target_out)))


def decoding_batches(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Sequence numbers in batches of like length, longest first.

    Padded, a batch takes at most ``tokens`` positions; a longer sequence has a batch of its own.
    """
    batches: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= tokens:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches


def split_lines(content: bytes, where: str) -> list[str]:
    """The lines of UTF-8 text, split at LF alone.

    One CR before it and a BOM at the start are dropped. Raises ``DataError`` naming ``where`` if it
    isn't UTF-8.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8: byte {error.start} can't be decoded.") from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_json(path: Path) -> object:
    """The content of a JSON file. Raises ``DataError`` if it is missing or no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} can't be read: {error}.") from None
