"""What a request asks of outputs besides the task's own constraint: a beginning, a least length, no
run of symbols twice.

Each is a `Constraint` of its own, so a decoder that honours a constraint honours all of them, alone
and together, and knows of none. B sentences, R rows of a decoder, P symbols of a prefix, T symbols
of an output so far, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from seqtrans.task import Constraint, Vocabulary


class Both(Constraint):
    """What two constraints allow; where that is nothing, the second yields to the first.

    So what is wished never costs a well-formed end: an output that must not end yet does if the
    task lets nothing else follow.
    """

    def __init__(self, first: Constraint, second: Constraint) -> None:
        self.first, self.second = first, second

    def allowed(self) -> Tensor:
        first = self.first.allowed()
        both = first & self.second.allowed()
        return torch.where(both.any(1, keepdim=True), both, first)

    def advance(self, tokens: Tensor) -> None:
        self.first.advance(tokens)
        self.second.advance(tokens)

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.first.select(rows), self.second.select(rows))


class Wish(Constraint):
    """A constraint that begins with everything but pad and bos, and whose rows are one tensor."""

    def __init__(self, vocabulary: Vocabulary, rows: Tensor) -> None:
        self.vocabulary = vocabulary
        self.rows = rows
        """[R, ...]: what it knows of each row."""

    def anything(self) -> Tensor:
        """Bool [R, V]."""
        size = len(self.rows), self.vocabulary.size
        allowed = torch.ones(size, dtype=torch.bool, device=self.rows.device)
        allowed[:, self.vocabulary.pad] = allowed[:, self.vocabulary.bos] = False
        return allowed

    def select(self, rows: Tensor) -> Self:
        selected = copy.copy(self)
        selected.rows = self.rows[rows]
        return selected


class Prefix(Wish):
    """An output begins with the ids that are given for its sentence."""

    def __init__(self, vocabulary: Vocabulary, prefixes: Sequence[Sequence[int]]) -> None:
        width = max(map(len, prefixes))
        padded = [[*prefix, *[vocabulary.pad] * (width - len(prefix))] for prefix in prefixes]
        super().__init__(vocabulary, torch.tensor(padded, dtype=torch.long))  # [R, P], pad: free
        self.at = 0

    def on(self, device: torch.device) -> Self:
        """The same on another device."""
        moved = copy.copy(self)
        moved.rows = self.rows.to(device)
        return moved

    def allowed(self) -> Tensor:
        allowed = self.anything()
        if self.at < self.rows.shape[1]:
            wanted = self.rows[:, self.at]
            only = torch.zeros_like(allowed).scatter_(1, wanted[:, None], True)
            allowed = torch.where((wanted == self.vocabulary.pad)[:, None], allowed, only)
        return allowed

    def advance(self, tokens: Tensor) -> None:
        self.at += 1


class LeastLength(Wish):
    """An output has at least so many symbols, eos not counted, or as many as its limit lets it."""

    def __init__(self, vocabulary: Vocabulary, least: int, limits: Tensor) -> None:
        super().__init__(vocabulary, (limits - 1).clamp(max=least))
        self.at = 0

    def allowed(self) -> Tensor:
        allowed = self.anything()
        allowed[:, self.vocabulary.eos] = self.rows <= self.at
        return allowed

    def advance(self, tokens: Tensor) -> None:
        self.at += 1


class NoRepeatedRun(Wish):
    """No run of ``length`` symbols stands twice in an output (Paulus et al., 2018)."""

    def __init__(self, vocabulary: Vocabulary, length: int, limits: Tensor) -> None:
        super().__init__(vocabulary, limits.new_zeros(len(limits), 0, dtype=torch.long))  # [R, T]
        self.length = length

    def allowed(self) -> Tensor:
        allowed = self.anything()
        before = self.length - 1  # symbols of a run but its last
        so_far = self.rows.shape[1]
        if so_far >= self.length:
            runs = self.rows.unfold(1, self.length, 1)  # [R, T-n+1, n]
            begun = self.rows[:, None, so_far - before :]
            again = (runs[:, :, :before] == begun).all(2)
            row, run = again.nonzero(as_tuple=True)
            allowed[row, runs[row, run, before]] = False
        return allowed

    def advance(self, tokens: Tensor) -> None:
        self.rows = torch.cat([self.rows, tokens[:, None]], 1)


def asked(
    vocabulary: Vocabulary,
    limits: Tensor,
    own: Constraint | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    least: int = 0,
    no_repeat: int = 0,
) -> Constraint | None:
    """The task's ``own`` constraint with what is asked besides, for sentences with ``limits`` [B].

    A prefix comes before the least length, and both before runs that may not come again; what comes
    later yields where nothing would be left. ``None`` if there is nothing to keep to.
    """
    constraints: list[Constraint] = [] if own is None else [own]
    if prefixes is not None and any(prefixes):
        constraints.append(Prefix(vocabulary, prefixes).on(limits.device))
    if least:
        constraints.append(LeastLength(vocabulary, least, limits))
    if no_repeat:
        constraints.append(NoRepeatedRun(vocabulary, no_repeat, limits))
    if not constraints:
        return None
    together, *others = constraints
    for other in others:
        together = Both(together, other)
    return together


def refused(
    constraint: Constraint, prefixes: Sequence[Sequence[int]], device: torch.device
) -> tuple[int, int] | None:
    """The first sentence whose prefix a task's constraint does not allow, and at which symbol.

    The constraint is left alone.
    """
    rows = list(range(len(prefixes)))
    for at in range(max(map(len, prefixes), default=0)):
        going = [place for place, row in enumerate(rows) if len(prefixes[row]) > at]
        rows = [rows[place] for place in going]
        constraint = constraint.select(torch.tensor(going, device=device))
        tokens = torch.tensor([prefixes[row][at] for row in rows], device=device)
        fits = constraint.allowed().gather(1, tokens[:, None])[:, 0].tolist()
        if not all(fits):
            return rows[fits.index(False)], at
        constraint.advance(tokens)
    return None
