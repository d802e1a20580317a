"""Scorers whose probabilities are known, and constraints, for tests of search."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from seqtrans.task import Constraint, Vocabulary
from seqtrans.testing.parts import expect

Table = Callable[[tuple[int, ...], tuple[int, ...]], Sequence[float]]
"""(a source's ids, a prefix without bos) to the logits of what follows it."""


def random_table(size: int, seed: int = 0, spread: float = 2.0) -> Table:
    """Normally distributed logits that depend on the source and the prefix, and on nothing else."""

    @functools.cache
    def logits(source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        draw = random.Random(f"{seed} {source} {prefix}")
        return [draw.gauss(0.0, spread) for _ in range(size)]

    return logits


@dataclass
class Prefixes:
    """The state of a `TableScorer`: for each row its source and what it has read."""

    rows: list[tuple[tuple[int, ...], tuple[int, ...]]]

    def select(self, rows: Tensor) -> Prefixes:
        """These rows, in this order."""
        return Prefixes([self.rows[row] for row in rows.tolist()])

    def rewindable(self, steps: int) -> bool:
        """All of it can be taken back."""
        return True

    def rewind(self, steps: int) -> None:
        """Take the last ``steps`` tokens back; bos is none of them."""
        self.rows = [(source, read[: len(read) - steps]) for source, read in self.rows]


class Tabled:
    """What scorers have that look their probabilities up."""

    longest = None

    def __init__(
        self, vocabulary: Vocabulary, table: Table, device: str | torch.device = "cpu"
    ) -> None:
        self.vocabulary, self.table = vocabulary, table
        self.device = torch.device(device)

    def read(self, source: Tensor, mask: Tensor) -> list[tuple[int, ...]]:
        """The ids of each of the sources [B, S]."""
        return [
            tuple(ids[real].tolist()) for ids, real in zip(source.cpu(), mask.cpu(), strict=True)
        ]


class TableScorer(Tabled):
    """A scorer of which every probability is known, for tests of searches."""

    def start(self, source: Tensor, mask: Tensor) -> Prefixes:
        """One row for each source [B, S] of ids."""
        return Prefixes([(ids, ()) for ids in self.read(source, mask)])

    def advance(self, tokens: Tensor, state: Prefixes) -> Tensor:
        """Logits [R, T, V]."""
        expect(
            len(tokens) == len(state.rows),
            f"A decoder must advance every row of a state, {len(state.rows)} here, "
            f"not {len(tokens)}.",
        )
        logits = []
        for row, ids in enumerate(tokens.tolist()):
            source, prefix = state.rows[row]
            for token in ids:
                if token == self.vocabulary.bos:
                    expect(not prefix, f"bos may only come first, not after {prefix}.")
                else:
                    prefix = (*prefix, token)
                logits.append(list(self.table(source, prefix)))
            state.rows[row] = (source, prefix)
        size = (*tokens.shape, self.vocabulary.size)
        return torch.tensor(logits, dtype=torch.float32, device=self.device).view(size)

    def log_probability(self, source: Sequence[int], ids: Sequence[int]) -> float:
        """Of ``ids`` and eos after them."""
        total = 0.0
        for length, token in enumerate([*ids, self.vocabulary.eos]):
            logits = self.table(tuple(source), tuple(ids[:length]))
            total += logits[token] - math.log(math.fsum(map(math.exp, logits)))
        return total

    def outputs(self, limit: int) -> Iterator[tuple[int, ...]]:
        """Every output of at most ``limit`` symbols, eos included and left off."""
        special = {self.vocabulary.pad, self.vocabulary.bos, self.vocabulary.eos}
        symbols = [token for token in range(self.vocabulary.size) if token not in special]
        for length in range(limit):
            yield from itertools.product(symbols, repeat=length)


@dataclass
class Whole:
    """The state of a `WholeTableScorer`: for each row its source, and its logits of each length."""

    rows: list[tuple[int, ...]]
    lengths: Tensor

    def select(self, rows: Tensor) -> Whole:
        """These rows, in this order."""
        return Whole([self.rows[row] for row in rows.tolist()], self.lengths)


class WholeTableScorer(Tabled):
    """The same for searches that write all symbols at once.

    What stands at a place depends on the source, the place and all other symbols, and the length on
    the source.
    """

    def start(self, source: Tensor, mask: Tensor) -> Whole:
        """One row for each source [B, S] of ids."""
        rows = self.read(source, mask)
        logits = [list(self.table(row, ())) for row in rows]
        lengths = torch.tensor(logits, dtype=torch.float32, device=self.device)
        return Whole(rows, lengths.log_softmax(-1))

    def advance(self, tokens: Tensor, state: Whole) -> Tensor:
        """Logits [R, T, V] of what stands at each place."""
        expect(
            len(tokens) == len(state.rows),
            f"A decoder must advance every row of a state, {len(state.rows)} here, "
            f"not {len(tokens)}.",
        )
        pad, eos = self.vocabulary.pad, self.vocabulary.eos
        logits = torch.zeros(*tokens.shape, self.vocabulary.size)
        for row, (source, ids) in enumerate(zip(state.rows, tokens.tolist(), strict=True)):
            length = ids.index(eos) if eos in ids else len(ids)
            expect(
                length < len(ids) and pad not in ids[:length] and set(ids[length + 1 :]) <= {pad},
                f"A whole output must end with eos, then pad, and not be {ids}.",
            )
            for place in range(length):
                seen = (place, *ids[:place], *ids[place + 1 : length])
                logits[row, place] = torch.tensor(self.table(source, seen))
        return logits.to(self.device)


class NoRepeats(Constraint):
    """No symbol twice in a row's output, and none of those ``banned`` for its sentence."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        banned: Sequence[Sequence[int]],
        device: str | torch.device = "cpu",
    ) -> None:
        self.vocabulary, self.used = vocabulary, [set(ids) for ids in banned]
        self.device = device

    def allows(self, ids: Sequence[int], row: int = 0) -> bool:
        """Whether a whole output is right in this row."""
        return len(set(ids)) == len(ids) and not self.used[row] & set(ids)

    def allowed(self) -> Tensor:
        allowed = torch.ones(len(self.used), self.vocabulary.size, dtype=torch.bool)
        for row, ids in enumerate(self.used):
            allowed[row, list(ids)] = False
        return allowed.to(self.device)

    def advance(self, tokens: Tensor) -> None:
        expect(
            len(tokens) == len(self.used),
            f"A decoder must advance every row of a constraint, {len(self.used)} here, "
            f"not {len(tokens)}.",
        )
        for ids, token in zip(self.used, tokens.tolist(), strict=True):
            expect(token not in ids, f"A decoder must not take {token}, which was not allowed.")
            expect(token != self.vocabulary.eos, "A constraint must not be told of eos.")
            ids.add(token)

    def select(self, rows: Tensor) -> Self:
        used = [list(self.used[row]) for row in rows.tolist()]
        return type(self)(self.vocabulary, used, self.device)


class Endless(Constraint):
    """Allows one symbol for ever, and no end."""

    def __init__(self, size: int, rows: int, device: str | torch.device = "cpu") -> None:
        self.size, self.rows, self.device = size, rows, device

    def allowed(self) -> Tensor:
        allowed = torch.zeros(self.rows, self.size, dtype=torch.bool, device=self.device)
        allowed[:, -1] = True
        return allowed

    def advance(self, tokens: Tensor) -> None:
        pass

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.size, len(rows), self.device)
