"""Equal lines among very many, told by 64-bit hashes: pairs seen before, and held-out pairs.

Two different texts of n have the same hash with a chance of n² / 2⁶⁵: one in 28,000 that any two
of 36 million do.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

BUCKETS = 16
"""Repeats are looked for among so large a part of all hashes at a time, to save memory."""


def hashes(lines: Iterable[str]) -> Hashes:
    """A hash of each line: the same on every machine and in every run."""
    digests = [blake2b(line.encode(), digest_size=8).digest() for line in lines]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64, copy=False)


def pair_hashes(source: Iterable[str], target: Iterable[str]) -> Hashes:
    """A hash of each pair. No line has an LF in it, so it keeps the sides apart."""
    return hashes(f"{a}\n{b}" for a, b in zip(source, target, strict=True))


class Repeats:
    """Which of a stream of pairs are equal to an earlier one, known once all were seen.

    Takes 8 bytes for each pair, and 6 more while :meth:`found` looks.
    """

    def __init__(self) -> None:
        self.parts: list[Hashes] = []

    def add(self, part: Hashes) -> None:
        """The hashes of the next pairs."""
        self.parts.append(np.ascontiguousarray(part, "<u8"))

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def found(self) -> NDArray[np.bool_]:
        """A flag for each pair in the order they were added: is it equal to an earlier one?"""
        repeated = np.zeros(len(self), bool)
        for bucket in range(BUCKETS):
            places, values, start = [], [], 0
            for part in self.parts:
                inside = np.flatnonzero(part.view(np.uint8)[::8] % BUCKETS == bucket)
                places.append(inside + start)
                values.append(part[inside])
                start += len(part)
            if not places:
                break
            place, value = np.concatenate(places), np.concatenate(values)
            # Stable, so that of equal ones the earliest comes first.
            order = np.argsort(value, kind="stable")
            value = value[order]
            repeated[place[order[1:][value[1:] == value[:-1]]]] = True
        return repeated


class Overlap:
    """How many of the pairs held out for a test are among others, too.

    Copies for several processes may each see a part, and are then added.
    """

    def __init__(self, sources: Hashes, pairs: Hashes) -> None:
        """From the :func:`hashes` of the held-out sources and their :func:`pair_hashes`."""
        self.held_out = tuple(np.unique(h, return_counts=True) for h in (sources, pairs))
        self.seen = tuple(np.zeros(len(values), bool) for values, _ in self.held_out)

    def look(self, sources: Hashes, pairs: Hashes) -> None:
        """See whether held-out ones are among these."""
        for (values, _), seen, others in zip(
            self.held_out, self.seen, (sources, pairs), strict=True
        ):
            if len(values):
                at = np.minimum(np.searchsorted(values, others), len(values) - 1)
                seen[at[values[at] == others]] = True

    def __iadd__(self, other: Overlap) -> Overlap:
        for mine, more in zip(self.seen, other.seen, strict=True):
            mine |= more
        return self

    @property
    def sources(self) -> int:
        """How many held-out pairs have a source that was seen."""
        return int(self.held_out[0][1][self.seen[0]].sum())

    @property
    def pairs(self) -> int:
        """How many held-out pairs were seen themselves."""
        return int(self.held_out[1][1][self.seen[1]].sum())
