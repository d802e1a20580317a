"""Which symbols may come next, so that every output is the linearisation of a tree over its words.

Both linearisations let a leaf in while words are left and a constituent is open (a lone word may
stand by itself), and end when nothing is open and no word is left. Besides:

- *brackets*: an opening needs a word left to put inside; a closing needs a leaf inside, and the
  root closes only over all the words. At most ``cap`` openings follow each other.
- *in-order*: the first leaf stands by itself. An opening takes the node just completed as its first
  child, so none follows another opening; with no words left it begins a unary constituent. At most
  ``cap`` unary constituents lie on one another. If the outermost closes before the last word,
  another must open around it.
- TOP is only the outermost constituent, and only over two or more children, since over one it is
  elided.
- A constituent costs two symbols, so a limit is a number of constituents that may still open. None
  opens beyond it, and in-order keeps one back while what is complete must still be put under it.

A finished row allows pad and nothing else; it may be advanced with pad or eos.

All rows move at once: the state is a matrix with a few numbers for each row, and
each symbol is an affine map of them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import torch

from seqtrans.task import Constraint
from seqtrans_tasks.parsing.repair import TOP

if TYPE_CHECKING:
    from torch import Tensor

    from seqtrans_tasks.parsing.linear import Linearisation

LEFT = 0  # words that have no leaf yet
DEPTH = 1  # open constituents
ROOM = 2  # constituents that may still open within the limit
ALONE = 3  # 1 while a leaf may stand outside all constituents
ENDED = 4  # 1 after eos
CROWN = (
    5  # brackets: 1 while TOP is open without a completed child; in-order: 1 if TOP is outermost
)
WORD = 6  # the next word's index among the words of all sentences
OPENED = (
    7  # brackets: openings since the last other symbol. In-order: 0 unless an opening came last,
)
CHAIN = 8  # and then how long a unary chain it would end; the length of the chain completed last
NUMBERS = 9

# Kinds of symbols, to be added up.
LEAF, OPENING, TOPMOST, CLOSING, ENDING, FINISHED = 1, 2, 4, 8, 16, 32
KINDS = 64


class TreeConstraint(Constraint):
    """The constraint of a linearisation, for rows that begin as sentences of ``word_counts`` words.

    ``limits`` [R] are the symbols each may have, eos included. n words have a tree within n + 3
    symbols (a lone word within 2). A smaller limit is taken as that: it is overrun, rather than
    leave a row with nothing allowed. Every row allows something at every step. A sentence without
    words allows eos alone.

    ``choices``, one [n, V] bool tensor a sentence, say which leaf symbols may stand for each word;
    what they say of other symbols is ignored. A word without any choice has all leaf symbols.
    Everything lives on the device of ``limits``.
    """

    def __init__(
        self,
        linearisation: Linearisation,
        word_counts: Sequence[int],
        limits: Tensor,
        choices: Sequence[Tensor] | None = None,
    ) -> None:
        device = limits.device
        self._in_order = linearisation.kind == "inorder"
        self._labelled = linearisation.closings == "labelled"
        self._cap = linearisation.cap
        self._vocabulary = linearisation.vocabulary()
        self._leaves = _slice(linearisation.leaf_ids)
        self._openings = _slice(linearisation.opening_ids)
        self._closings = _slice(linearisation.closing_ids)
        self._top: int | None = None
        if TOP in linearisation.labels:
            self._top = linearisation.opening_ids[linearisation.labels.index(TOP)]
        self._patterns = self._make_patterns().to(device)
        self._maps = self._make_maps().to(device)
        self._closing_of = self._make_closings().to(device)

        counts = torch.tensor(list(word_counts), dtype=torch.int64, device=device)
        several = (counts > 1).long()
        state = torch.zeros(len(counts), NUMBERS, dtype=torch.int64, device=device)
        state[:, LEFT] = counts
        state[:, ROOM] = torch.maximum((limits.long() - counts - 1) // 2, several)
        state[:, ALONE] = 1 if self._in_order else 1 - several
        state[:, WORD] = counts.cumsum(0) - counts
        self._state = state

        # The closing of each open constituent, outermost first; beyond the depth, any closing.
        self._stack = self._closing_of.new_full((len(counts), 16), self._closings.start)
        self._deepest = 0  # no row is deeper

        self._choices: Tensor | None = None  # [all words, V], shared by all rows
        if choices is not None and sum(word_counts) > 0:
            table = torch.cat(list(choices)).to(device=device, dtype=torch.bool)
            leaves = table[:, self._leaves]
            leaves |= ~leaves.any(dim=1, keepdim=True)
            table[:, : self._leaves.start] = True
            table[:, self._leaves.stop :] = True
            self._choices = table

    def allowed(self) -> Tensor:
        left, depth, room, alone, ended, crown, word, opened, chain = self._state.unbind(1)
        some_left = left > 0
        inside = depth > 0
        if self._in_order:
            leaf = some_left & (inside | (alone > 0))
            opening = (room > 0) & (opened + alone == 0) & (some_left | (chain < self._cap))
            closing = inside & (opened <= self._cap)
            enclosable = room > 0
            if self._top is not None:
                uncrowned = crown == 0
                opening &= uncrowned | inside
                enclosable &= uncrowned
            closing &= (depth > 1) | ~some_left | enclosable
        else:
            usable = left > crown  # TOP's first child must leave a word for its second
            leaf = usable & (inside | (alone > 0))
            opening = usable & (room > 0) & (opened < self._cap)
            closing = inside & (opened == 0) & ((depth > 1) | ~some_left)

        kinds = {LEAF: leaf, OPENING: opening, FINISHED: ended > 0}
        if self._top is not None:
            kinds[TOPMOST] = opening & ~inside & (left > (0 if self._in_order else 1))
        if not self._labelled:
            kinds[CLOSING] = closing
        code = (~(inside | some_left)).view(torch.uint8) * ENDING
        for bit, kind in kinds.items():
            code.add_(kind.view(torch.uint8), alpha=bit)
        allowed = self._patterns.index_select(0, code.int())

        if self._labelled:
            innermost = self._stack.gather(1, (depth - 1).clamp_(min=0)[:, None])
            allowed.scatter_(1, innermost.long(), closing[:, None])
        if self._choices is not None:
            at = word.clamp(max=len(self._choices) - 1)  # a finished row is past its last word
            allowed &= self._choices.index_select(0, at)
        return allowed

    def advance(self, tokens: Tensor) -> None:
        if self._labelled:
            self._deepen()
            closing = self._closing_of.index_select(0, tokens)
            self._stack.scatter_(1, self._state[:, DEPTH, None], closing[:, None])
        if self._in_order:
            self._state[:, OPENED:] = self._state[:, OPENED:].flip(1)
        scale, shift = self._maps.index_select(0, tokens).unbind(1)
        self._state = torch.addcmul(shift, self._state, scale)
        if self._top is not None and not self._in_order:
            _, depth, _, _, _, crown, _, opened, _ = self._state.unbind(1)
            crown *= (depth > 1) | (opened > 0)

    def select(self, rows: Tensor) -> Self:
        selected = copy.copy(self)
        selected._state = self._state.index_select(0, rows)
        selected._stack = self._stack.index_select(0, rows)
        return selected

    def _deepen(self) -> None:
        """Hold one more open constituent. Depths are measured only when the stack seems full."""
        width = self._stack.shape[1]
        self._deepest += 1
        if self._deepest < width or not len(self._stack):
            return
        self._deepest = int(self._state[:, DEPTH].max()) + 1
        if self._deepest > width // 2:
            more = self._stack.new_full((len(self._stack), width), self._closings.start)
            self._stack = torch.cat([self._stack, more], dim=1)

    def _make_patterns(self) -> Tensor:
        """What a sum of kinds allows: bool [kinds, V]."""
        patterns = torch.zeros(KINDS, self._vocabulary.size, dtype=torch.bool)
        kinds = torch.arange(KINDS)
        finished = (kinds & FINISHED) > 0
        patterns[:, self._leaves] |= (kinds & LEAF > 0)[:, None]
        patterns[:, self._openings] |= (kinds & OPENING > 0)[:, None]
        patterns[:, self._closings] |= (kinds & CLOSING > 0)[:, None]
        if self._top is not None:
            patterns[:, self._top] = kinds & TOPMOST > 0
        patterns[:, self._vocabulary.eos] = (kinds & ENDING > 0) & ~finished
        patterns[:, self._vocabulary.pad] = finished
        return patterns

    def _make_closings(self) -> Tensor:
        """The closing of each opening, [V]; any for other symbols, which write beyond the depth."""
        narrow = self._vocabulary.size <= torch.iinfo(torch.int16).max
        closings = torch.full(
            (self._vocabulary.size,),
            self._closings.start,
            dtype=torch.int16 if narrow else torch.int64,
        )
        if self._labelled:
            closings[self._openings] = torch.arange(
                self._closings.start, self._closings.stop, dtype=closings.dtype
            )
        return closings

    def _make_maps(self) -> Tensor:
        """What each symbol makes of a row's numbers: scale and shift, [V, 2, numbers].

        In-order swaps OPENED and CHAIN first: a closing right after its opening completes the chain
        that the opening promised, and an opening promises one more than the completed chain.
        """
        leaves, openings, closings = self._leaves, self._openings, self._closings
        maps = torch.zeros(self._vocabulary.size, 2, NUMBERS, dtype=torch.int64)
        scale, shift = maps.unbind(1)
        scale[:] = 1
        scale[:, [ALONE, OPENED, CHAIN]] = 0

        shift[leaves, LEFT] = -1
        shift[leaves, WORD] = 1
        shift[openings, DEPTH] = 1
        shift[openings, ROOM] = -1
        scale[openings, OPENED] = 1
        shift[openings, OPENED] = 1
        shift[closings, DEPTH] = -1
        if self._in_order:
            scale[closings, CHAIN] = 1
        if self._top is not None:
            shift[self._top, CROWN] = 1
        for ending in (self._vocabulary.eos, self._vocabulary.pad):
            scale[ending] = 0
            shift[ending, ENDED] = 1
        return maps


def _slice(ids: range) -> slice:
    return slice(ids.start, ids.stop)
