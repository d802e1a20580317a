"""Greedy search that reads several symbols at a time, with the very same outputs.

A greedy decoder calls its model once for each symbol. Two things are known without a call:

- what a constraint forces: where one symbol alone may come next, it does;
- a guess (speculative decoding, Leviathan et al., 2023): what a smaller model would write, or
  without one what has most often followed the same few symbols, in outputs so far; and before
  either, if that is wanted, in the source.

Both are read in one call, which tells what greedy search would have taken after each; guesses are
kept as far as they are that. So outputs and their log-probabilities are those of ``greedy``, but
for rounding: matrix products of other shapes sum in another order, and where two symbols are
equally likely up to the last bits either may win, as with another size of batch.

Sentences of a batch share one state, which has read equally much of each. A call reads on from
there; then the state is taken back to where all sentences are right. One that is ahead has its next
symbols ready, so a batch takes about as many calls as its slowest sentence, not as the sum of their
mistakes. But where many are read together a call costs as much as it has symbols, and guessing
gains nothing: it is given ``rows`` sentences at a time, however many there are. A state that can't
be taken back reads what is forced, and no guesses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqtrans.decoding import Decoder, Hypothesis, Request, Scorer, open_to
from seqtrans.errors import DataError
from seqtrans.task import Constraint, Vocabulary
from seqtrans_plugins import SpeculativeSettings

MEMORY = 200_000
"""So many contexts are remembered; then it begins anew."""
CERTAIN = 256
"""The most symbols of one sentence that are read at a time when none of them is guessed."""


class Followers:
    """What has followed the last symbols most often: after the longest of them that is known."""

    def __init__(self, shortest: int, longest: int) -> None:
        self.lengths = range(longest, shortest - 1, -1)
        self.counts: dict[tuple[int, ...], Counter[int]] = {}

    def learn(self, ids: Sequence[int], first: int = 1) -> None:
        """Note what comes before each symbol of ``ids`` from the one numbered ``first`` on."""
        if len(self.counts) > MEMORY:
            self.counts.clear()
        for at in range(first, len(ids)):
            for length in self.lengths:
                if length <= at:
                    context = tuple(ids[at - length : at])
                    self.counts.setdefault(context, Counter())[ids[at]] += 1

    def guess(self, ids: Sequence[int]) -> tuple[int, float] | None:
        """What has mostly followed ``ids``, and in which share of cases; ``None``: nothing has."""
        for length in self.lengths:
            counts = self.counts.get(tuple(ids[-length:]))
            if counts is not None:
                symbol, count = max(counts.items(), key=lambda item: item[1])
                return symbol, count / (counts.total() + 1)
        return None


@dataclass
class Row:
    """One sentence and its output."""

    vocabulary: Vocabulary
    limit: int
    source: Followers | None
    constraint: Constraint | None
    """Of this row alone, after all its ids."""
    ids: list[int]
    """bos and what is certain of the output, eos included."""
    open_to: Tensor | None = None
    """Bool [V]: what may come next, once it was asked."""
    weighed: int = 1
    """How many of the ids the model has given a probability, bos included."""
    total: float = 0.0
    truncated: bool = False

    @property
    def ended(self) -> bool:
        """Whether it has all its ids."""
        return self.ids[-1] == self.vocabulary.eos

    @property
    def done(self) -> bool:
        """Whether they all have been weighed, too."""
        return self.ended and self.weighed == len(self.ids)

    def room(self, read: int, ahead: int) -> int:
        """How many symbols may be guessed at, of ``ahead`` after the first ``read``: none at which
        there could only be eos.
        """
        return min(ahead, self.limit - read)

    def append(self, symbol: int, device: torch.device) -> None:
        """Take a symbol."""
        self.ids.append(symbol)
        self.open_to = None
        if self.constraint is not None and not self.ended:
            self.constraint.advance(torch.tensor([symbol], device=device))

    def follow(self, device: torch.device) -> Tensor:
        """Take what is forced, and give what may come next, bool [V]; nothing is, once it ended."""
        while self.open_to is None:
            last = torch.tensor([self.limit <= len(self.ids)], device=device)
            self.open_to = allowed = open_to(self.vocabulary, last, self.constraint)[0]
            some = allowed.nonzero()[:2, 0].tolist()
            if len(some) == 1:
                self.append(some[0], device)
                if self.ended:
                    self.open_to = torch.zeros_like(allowed)
        return self.open_to


class Draft:
    """A smaller model that guesses what follows.

    What it has read is certain, in all sentences. It guesses on a copy of its state that is thrown
    away, so nothing has to be taken back, whatever its attention.
    """

    def __init__(self, scorer: Scorer, request: Request, ahead: int, share: float) -> None:
        self.scorer, self.ahead, self.share = scorer, ahead, share
        self.longest = float("inf") if scorer.longest is None else scorer.longest
        self.state = scorer.start(request.source, request.mask)
        self.read = 0
        self.logits: Tensor | None = None
        """[R, V]: of what follows that."""

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, in this order."""
        self.state = self.state.select(rows)
        self.logits = None if self.logits is None else self.logits[rows]

    def feed(self, texts: Sequence[list[int]], first: int, end: int, state: Any) -> Tensor:
        """The logits [R, V] after the symbols numbered ``first`` to ``end`` - 1 of each text."""
        pad = self.scorer.vocabulary.pad
        parts = [text[first:end] for text in texts]
        filled = [[*part, *[pad] * (end - first - len(part))] for part in parts]
        for tokens in torch.split(torch.tensor(filled, device=self.scorer.device), CERTAIN, 1):
            logits = self.scorer.advance(tokens, state)
        return logits[:, -1].float()

    def extend(
        self, rows: Sequence[Row], drafts: Sequence[list[int]], hopes: list[float], read: int
    ) -> None:
        """Add guesses to the ``drafts`` of what comes after the first ``read`` ids of ``rows``, as
        far as :meth:`Row.room` goes, as long as all of them are right with a probability of
        ``share``; those that stand there already are with that in ``hopes``.
        """
        texts = [[*row.ids[:read], *draft] for row, draft in zip(rows, drafts, strict=True)]
        ends = [read + row.room(read, self.ahead) for row in rows]
        going = [
            place
            for place, row in enumerate(rows)
            if not row.ended and len(row.ids) <= len(texts[place]) < ends[place]
        ]
        certain = min(len(row.ids) for row in rows if not row.ended) if going else 0
        if not going or certain > self.longest:
            return
        if self.logits is None or certain > self.read:
            self.logits = self.feed([row.ids for row in rows], self.read, certain, self.state)
            self.read = certain
        logits, at = self.logits, self.read
        state = self.state.select(torch.arange(len(rows), device=logits.device))
        special = {self.scorer.vocabulary.pad, self.scorer.vocabulary.bos, rows[0].vocabulary.eos}
        while going:
            end = min(len(texts[place]) for place in going)
            if end > self.longest:
                return
            if end > at:
                logits, at = self.feed(texts, at, end, state), end
            chances, symbols = (found.tolist() for found in logits.softmax(1).max(1))
            for place in [place for place in going if len(texts[place]) == at]:
                hopes[place] *= chances[place]
                if symbols[place] in special or hopes[place] < self.share:
                    going.remove(place)
                    continue
                texts[place].append(symbols[place])
                drafts[place].append(symbols[place])
                if len(texts[place]) == ends[place]:
                    going.remove(place)


class Speculative(Decoder):
    """Greedy search over what is forced and what is guessed, several symbols at a time."""

    most = 1

    def __init__(self, settings: SpeculativeSettings) -> None:
        self.extra, self.least = settings.extra, settings.least
        self.no_repeat = settings.no_repeat
        self.together = settings.rows
        self.ahead, self.copy = settings.ahead, settings.copy_source
        self.longest, self.share = settings.context, settings.share
        self.runs = () if settings.draft is None else (settings.draft,)
        self.followers = Followers(1, settings.context)

    def decode(self, scorer: Scorer, request: Request) -> list[list[Hypothesis]]:
        device = request.source.device
        rows = self.begin(scorer.vocabulary, request)
        state = scorer.start(request.source, request.mask)
        rewinds = hasattr(state, "rewind") and state.rewindable(max(self.ahead, CERTAIN))
        draft = self.drafter(request) if rewinds else None
        alive, read = rows, 0  # how many ids of each row the state has read
        while alive:
            for row in alive:
                row.follow(device)
            drafts, hopes = self.drafts(alive, read, rewinds, draft is None)
            if draft is not None:
                draft.extend(alive, drafts, hopes, read)
            width = max(map(len, drafts))
            padded = [[*some, *[scorer.vocabulary.pad] * (width - len(some))] for some in drafts]
            logits = scorer.advance(torch.tensor(padded, device=device), state)
            scores = logits.float().log_softmax(-1)
            for place, row in enumerate(alive):
                self.weigh(row, read, drafts[place], scores[place])
            going = [place for place, row in enumerate(alive) if not row.done]
            if not going:
                break
            right = min(alive[place].weighed for place in going) - 1
            if read + width > right:
                state.rewind(read + width - right)
            if len(going) < len(alive):
                alive = [alive[place] for place in going]
                kept = torch.tensor(going, device=device)
                state = state.select(kept)
                if draft is not None:
                    draft.select(kept)
            read = right
        return [
            [Hypothesis(tuple(row.ids[1:-1]), row.total, row.total, row.truncated)] for row in rows
        ]

    def drafter(self, request: Request) -> Draft | None:
        """The smaller model, if there is one and it has positions for the sources."""
        try:
            return Draft(self.models[0], request, self.ahead, self.share) if self.models else None
        except DataError:
            return None

    def begin(self, vocabulary: Vocabulary, request: Request) -> list[Row]:
        """A row for each sentence."""
        rows = []
        for number, limit in enumerate(request.limits.tolist()):
            source = None
            if self.copy:
                source = Followers(min(2, self.longest), self.longest)
                source.learn(request.source[number][request.mask[number]].tolist())
            constraint = request.constraint
            if constraint is not None:
                constraint = constraint.select(torch.tensor([number], device=request.source.device))
            rows.append(Row(vocabulary, limit, source, constraint, [vocabulary.bos]))
        return rows

    def drafts(
        self, rows: Sequence[Row], read: int, rewinds: bool, remembering: bool
    ) -> tuple[list[list[int]], list[float]]:
        """For each row what to read after its first ``read`` ids, at least one token, and in which
        share of cases it is all right.

        With a state that can't be taken back it is equally much for all, and certain. Outputs so
        far are guessed from if ``remembering``.
        """
        drafts = [row.ids[read : len(row.ids) - row.ended][:CERTAIN] for row in rows]
        hopes = [1.0] * len(rows)
        if not rewinds:
            width = min(map(len, drafts))
            return [draft[:width] for draft in drafts], hopes
        for place, (row, draft) in enumerate(zip(rows, drafts, strict=True)):
            if row.ended:
                continue
            ids = list(row.ids[-self.longest :])
            while len(draft) < row.room(read, self.ahead):
                guess = None if row.source is None else row.source.guess(ids)
                if guess is None and remembering:
                    guess = self.followers.guess(ids)
                if guess is None or guess[0] == row.vocabulary.eos:
                    break
                if hopes[place] * guess[1] < self.share:
                    break
                hopes[place] *= guess[1]
                draft.append(guess[0])
                ids.append(guess[0])
        return drafts, hopes

    def weigh(self, row: Row, read: int, draft: Sequence[int], scores: Tensor) -> None:
        """Take the best symbol after each token of ``draft``, as long as what was read is that.

        ``scores`` [T, V] are log-probabilities of what follows each.
        """
        before = row.weighed
        for at in range(row.weighed - 1 - read, len(draft)):
            if row.weighed < len(row.ids):
                row.total += float(scores[at, row.ids[row.weighed]])
            else:
                open_to = row.follow(scores.device)
                if row.weighed < len(row.ids):  # forced, as it turns out
                    row.total += float(scores[at, row.ids[row.weighed]])
                else:
                    best, symbol = scores[at].masked_fill(~open_to, float("-inf")).max(0)
                    row.total += float(best)
                    dead = row.total == float("-inf")
                    row.append(row.vocabulary.eos if dead else int(symbol), scores.device)
            row.weighed += 1
            if row.done:
                row.truncated = row.weighed > row.limit or row.total == float("-inf")
                break
            if at + 1 < len(draft) and draft[at + 1] != row.ids[row.weighed - 1]:
                break
        if not self.runs:
            self.followers.learn(row.ids[: row.weighed], before)
