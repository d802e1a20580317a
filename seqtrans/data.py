"""The updates of an epoch, and their batches: the only maker of padding masks.

An epoch is a sequence of updates, a pure function of (seed, epoch): the same on every process,
whatever their number. Each update is then cut into parts, one for each process and accumulation
step. So neither changes what an update sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from seqtrans.corpus import Array, Corpus


class Unpadded(Tensor):
    """A mask that is True everywhere. Its type says so, for to ask a GPU is to wait for it.

    What is computed from it is a plain tensor.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.clone().as_subclass(type(self))


def unpadded(mask: Tensor) -> bool:
    """Whether ``mask`` is known to be True everywhere, and is of something.

    A plain one is asked on a CPU alone, and never in a graph of ``torch.compile``, which it breaks.
    """
    if isinstance(mask, Unpadded):
        return True
    if mask.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return mask.numel() > 0 and bool(mask.all())


@dataclass(frozen=True)
class Batch:
    """Padded tensors of some examples."""

    source: Tensor  # [B, S] or [B, S, ...]
    mask: Tensor  # [B, S], True where there is something; `Unpadded` if that is everywhere
    target_in: Tensor  # [B, T], beginning with bos
    target_out: Tensor  # [B, T], ending with eos

    def to(self, device: torch.device) -> Batch:
        """The same on another device."""
        source, mask, target_in, target_out = (
            t.to(device, non_blocking=True)
            for t in (self.source, self.mask, self.target_in, self.target_out)
        )
        return Batch(source, mask.as_subclass(type(self.mask)), target_in, target_out)


WINDOW = 1 << 20
"""Examples that are sorted by length together: all that is looked at of an epoch at a time."""
RUN = 256
"""Neighbours of a larger corpus that stay together when it is shuffled."""
NONE_LEFT = (
    "no training example is left: there are none, or all are longer than data.longest_source or "
    "data.longest_target."
)
"""What is wrong with an epoch without updates."""
FEW = 1000
"""Among so many examples a short one is looked for."""


class Epoch:
    """The updates of an epoch, window by window: a function of (seed, epoch) alone.

    Every example comes once, or as often as the weight of its part says, but those with a longer
    source or target than wanted. A corpus of up to ``window`` examples is one window. A larger one
    is shuffled by runs of neighbours, so that it is read in runs, and neither memory nor the time
    to the first update grows with it.

    The examples of one update are of like length, and padded to the longest take at most ``tokens``
    positions on the source side and at most ``tokens`` on the target side, eos included; a longer
    example has an update of its own.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokens: int,
        seed: int,
        epoch: int,
        longest_source: int | None = None,
        longest_target: int | None = None,
        window: int = WINDOW,
    ) -> None:
        self.corpus, self.tokens, self.key = corpus, tokens, (seed, epoch)
        self.longest = longest_source, longest_target
        run = 1 if len(corpus) <= window else RUN
        self.window = window // run
        random = np.random.default_rng(self.key)
        runs, first = [], 0
        for size, weight in corpus.mixture or ((len(corpus), 1.0),):
            starts = np.arange(first, first + size, run)
            first += size
            if weight != 1.0:
                starts = np.repeat(starts, (weight + random.random(len(starts))).astype(np.int64))
            runs.append(np.stack([starts, np.minimum(starts + run, first)], 1))
        self.runs = np.concatenate(runs)  # [n, 2]: where each begins and ends
        if run > 1:
            self.runs = self.runs[random.permutation(len(self.runs))]

    def __len__(self) -> int:
        """How many windows there are."""
        return max(1, -(-len(self.runs) // self.window))

    def numbers(self, window: int) -> Array:
        """The examples of a window, those that are too long included."""
        runs = self.runs[window * self.window : (window + 1) * self.window]
        sizes = runs[:, 1] - runs[:, 0]
        ends = np.cumsum(sizes)
        numbers: Array = np.arange(sizes.sum()) + np.repeat(runs[:, 1] - ends, sizes)
        return numbers

    def updates(self, window: int) -> list[Array]:
        """The updates of a window alone."""
        return self.open(window)[1]

    def open(self, window: int) -> tuple[Corpus, list[Array]]:
        """What a window trains on, and its updates in a random order, each a list of numbers of
        examples there.
        """
        corpus, numbers = self.corpus.drawn(self.numbers(window), window)
        random = np.random.default_rng((*self.key, window))
        source = corpus.sources.lengths(numbers)
        target = corpus.targets.lengths(numbers)
        fits = np.ones(len(numbers), bool)
        for lengths, longest in zip((source, target), self.longest, strict=True):
            if longest is not None:
                fits &= lengths <= longest
        numbers, source, target = numbers[fits], source[fits], target[fits] + 1
        order = np.lexsort((random.random(len(numbers)), source, target))
        updates, first, widest = [], 0, 0
        for place, width in enumerate(np.maximum(source, target)[order].tolist()):
            widest = max(widest, width)
            if (place - first + 1) * widest > self.tokens and place > first:
                updates.append(numbers[order[first:place]])
                first, widest = place, width
        if first < len(order):
            updates.append(numbers[order[first:]])
        return corpus, [updates[i] for i in random.permutation(len(updates))]


def left_out(missing: int, there: int) -> str:
    """What to say of the examples of a window that are in none of its updates."""
    return (
        f"{missing:,} of {there:,} training examples are longer than data.longest_source or "
        "data.longest_target, or than the model has positions for, and are left out."
    )


def cut(update: Array, parts: int) -> list[Array]:
    """The update in nearly equal runs; with fewer examples than ``parts``, the last are empty."""
    return np.array_split(update, parts)


def pad(sequences: Sequence[Tensor], value: int = 0) -> tuple[Tensor, Tensor]:
    """Sequences [length, ...] filled up on the right, [B, longest, ...], and a mask [B, longest].

    The mask is True where there is something; `Unpadded` if that is everywhere.
    """
    padded = torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True, padding_value=value)
    lengths = torch.tensor([len(s) for s in sequences])
    mask = torch.arange(padded.shape[1])[None, :] < lengths[:, None]
    return padded, mask.as_subclass(Unpadded) if unpadded(mask) else mask


def collate(
    corpus: Corpus, numbers: Sequence[int] | Array, specials: tuple[int, int, int]
) -> Batch:
    """The examples ``numbers`` of a corpus as one batch.

    ``specials`` are the target's (pad, bos, eos). An empty list gives a batch without any loss:
    a short source and no target. That is what a process computes when an update has nothing
    left for it, since all have to go forward and backward together.
    """
    padding, bos, eos = specials
    chosen = np.asarray(numbers, np.int64)
    empty = not len(chosen)
    if empty:
        lengths = corpus.sources.lengths(np.arange(min(FEW, len(corpus))))
        chosen = np.array([np.where(lengths > 0, lengths, lengths.max()).argmin()])
    source, lengths = corpus.sources.rows(chosen)
    mask = torch.from_numpy(np.arange(source.shape[1]) < lengths[:, None])
    if unpadded(mask):
        mask = mask.as_subclass(Unpadded)
    read = torch.from_numpy(source)
    if empty:
        target = np.full((1, 1), padding)
        return Batch(read, mask, *map(torch.from_numpy, (np.full((1, 1), bos), target)))
    target, lengths = corpus.targets.rows(chosen, padding)
    side = np.full((len(chosen), 1), bos), np.full((len(chosen), 1), padding)
    target_in = np.concatenate([side[0], target], 1)
    target_out = np.concatenate([target, side[1]], 1)
    target_out[np.arange(len(chosen)), lengths] = eos
    return Batch(read, mask, *map(torch.from_numpy, (target_in, target_out)))


def decoding_batches(
    lengths: Sequence[int], tokens: int, most: int | None = None
) -> list[list[int]]:
    """Sequence numbers in batches of like length, longest first, with at most ``most`` in each.

    Padded, a batch takes at most ``tokens`` positions; a longer sequence has a batch of its own.
    """
    batches: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        size = len(batches[-1]) if batches else 0
        fits = size and (size + 1) * lengths[batches[-1][0]] <= tokens
        if fits and (most is None or size < most):
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches
