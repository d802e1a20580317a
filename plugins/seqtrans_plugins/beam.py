"""Beam search with the paper's length penalty (section 6.1), and with diverse groups and coverage.

Each step keeps the ``width`` best extensions of a sentence's live hypotheses. Those that end with
eos leave the beam as finished; the others live on, so a beam of one is greedy search and a beam
wide enough is exhaustive. A sentence is done when no live hypothesis can still beat its worst
wanted finished one: a log-probability only falls from here on, so the best that a live one can
score is what it has now under the mildest penalty it can still reach. Where one symbol alone may
follow each live hypothesis, as in a prefix, it is read together with what comes after it.

With groups (Vijayakumar et al., 2018) a sentence has several such beams. At each step one after the
other chooses, and a symbol ranks lower by ``diversity`` for each time that the groups before have
just taken it. Only the choice is biased: what a hypothesis has in the end is its own
log-probability, so the bound above holds as it stands. Groups of a sentence go on until all are
done, so that none is influenced by how many hypotheses are wanted.

With coverage (Wu et al., 2016, equation 14) a finished hypothesis ranks lower by β times the sum,
over the positions i of its source, of -log(min(Σⱼ pᵢⱼ, 1)), where pᵢⱼ is how much its symbol j, eos
included, looked at position i. As with the length penalty only those that are finished are ranked
by it. A live one can lose it all by what it looks at next, so the bound above is that without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from seqtrans.decoding import (
    Decoder,
    Hypothesis,
    Request,
    Scorer,
    forced,
    length_penalty,
    log_probability,
    top,
)
from seqtrans.errors import SettingsError
from seqtrans_plugins import BeamSettings

DEAD = float("-inf")
UNSEEN = 1e-30
"""A position that was looked at less counts as if it were so much, since 0 has no logarithm."""


@dataclass
class Finished:
    """The finished hypotheses of one group, best first, no more than are wanted."""

    wanted: int
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def admits(self, score: float) -> bool:
        """Whether a hypothesis with this score would be among the wanted."""
        return len(self.hypotheses) < self.wanted or score > self.hypotheses[-1].score

    def add(self, hypothesis: Hypothesis) -> None:
        self.hypotheses.append(hypothesis)
        self.hypotheses.sort(key=lambda h: -h.score)
        del self.hypotheses[self.wanted :]


@dataclass
class Live:
    """Live hypotheses of N sentences, G groups each, W a group, best first.

    A group with fewer repeats its sentence's best at -inf.
    """

    sentences: Tensor  # [N]
    ids: Tensor  # [N, G, W, t], bos first
    total: Tensor  # [N, G, W]: log-probabilities

    def followed_by(self, symbols: Tensor, log_probabilities: Tensor) -> Live:
        """Each with its forced ``symbols`` [N·G·W, F], which may change who is best."""
        ids = torch.cat([self.ids, symbols.view(*self.total.shape, -1)], 3)
        return Live(self.sentences, ids, self.total + log_probabilities.view(self.total.shape))


@dataclass
class Coverage:
    """How much each row has looked at its source so far."""

    weight: float
    memory: Tensor  # bool [R, S]: where there is a source
    sums: Tensor  # [R, S]: of the weights of all symbols

    @classmethod
    def begin(cls, weight: float, state: Any) -> Coverage:
        """Nothing yet. Raises ``SettingsError`` if the state can't tell what is looked at."""
        if not hasattr(state, "watch") or not state.watch():
            raise SettingsError(
                "decoder.coverage needs one map of what each output symbol looks at in the source, "
                "which this model, or these models together, can't give; set decoder.coverage=0."
            )
        return cls(weight, state.memory, torch.zeros_like(state.memory, dtype=torch.float64))

    def add(self, looks: Tensor) -> Tensor:
        """Take in what the tokens that were read last looked at [R, T, S]; what each row's score
        rises by [R], never above 0.
        """
        self.sums = self.sums + looks.double().sum(1)
        covered = self.sums.clamp(UNSEEN, 1).log().masked_fill(~self.memory, 0)
        return self.weight * covered.sum(1)

    def select(self, rows: Tensor) -> Coverage:
        """Of these rows, in this order."""
        return Coverage(self.weight, self.memory[rows], self.sums[rows])


class Beam(Decoder):
    """Breadth-first search over ``width`` hypotheses, penalised by ((5 + length) / 6)^``alpha``."""

    def __init__(self, settings: BeamSettings) -> None:
        self.alpha, self.extra = settings.alpha, settings.extra
        self.least, self.no_repeat = settings.least, settings.no_repeat
        self.groups, self.width = settings.groups, settings.width // settings.groups
        self.diversity, self.coverage = settings.diversity, settings.coverage
        self.most = settings.width

    def decode(self, scorer: Scorer, request: Request) -> list[list[Hypothesis]]:
        vocabulary, constraint = scorer.vocabulary, request.constraint
        device, limits = request.source.device, request.limits.to(request.source.device)
        finished = [[Finished(request.count) for _ in range(self.groups)] for _ in limits]
        state = scorer.start(request.source, request.mask)
        if self.groups > 1:
            every = torch.arange(len(limits), device=device).repeat_interleave(self.groups)
            state = state.select(every)
            constraint = None if constraint is None else constraint.select(every)
        coverage = Coverage.begin(self.coverage, state) if self.coverage else None
        size = len(limits), self.groups, 1
        live = Live(
            torch.arange(len(limits), device=device),
            torch.full((*size, 1), vocabulary.bos, dtype=torch.long, device=device),
            torch.zeros(size, dtype=torch.float64, device=device),
        )
        while len(live.sentences):
            left = (limits[live.sentences] - live.ids.shape[3] + 1)[:, None, None]
            certain, allowed = forced(vocabulary, left.expand_as(live.total).flatten(), constraint)
            tokens = torch.cat([live.ids[..., -1:].flatten(0, 2), certain], 1)
            logits = scorer.advance(tokens, state).float()
            if certain.shape[1]:
                live = live.followed_by(certain, log_probability(logits[:, :-1], certain))
            likely = torch.where(allowed, logits[:, -1].log_softmax(1), DEAD)
            extended, parents = self.extend(live, likely)
            covered = torch.zeros_like(extended.total)
            if coverage is not None:
                each = coverage.add(state.looks).view(live.total.shape)
                covered = each.gather(2, parents)
            self.finish(extended, covered, finished, limits, vocabulary.eos)
            live, rows = self.survivors(live, extended, parents, finished, limits)
            if len(live.sentences):
                state = state.select(rows)
                coverage = None if coverage is None else coverage.select(rows)
                if constraint is not None:
                    constraint = constraint.select(rows)
                    constraint.advance(live.ids[..., -1].flatten())
        return [best(groups, request.count) for groups in finished]

    def extend(self, live: Live, log_probabilities: Tensor) -> tuple[Live, Tensor]:
        """The best by ``log_probabilities`` [N·G·W, V] of what comes next, and which live
        hypothesis [N, G, W'] of its group each extends.

        An extension among a group's W' best is among the W' best of the hypothesis it extends, so
        no more of these are looked at.
        """
        size, symbols = live.total.shape, log_probabilities.shape[1]
        likely = log_probabilities.view(*size, symbols)
        count = min(self.width, symbols)
        used = likely.new_zeros(size[0], symbols)  # how often the groups before took each symbol
        chosen: list[tuple[Tensor, Tensor, Tensor]] = []
        for group in range(size[1]):
            ranked = likely[:, group]  # [N, W, V]
            if group:
                ranked = ranked - self.diversity * used[:, None]
            found, tokens = (
                each.view(size[0], -1, count) for each in top(ranked.flatten(0, 1), count)
            )
            ranks = (live.total[:, group, :, None] + found.double()).flatten(1)  # [N, W·count]
            rank, place = ranks.topk(min(self.width, ranks.shape[1]), dim=1)
            token = tokens.flatten(1).gather(1, place)
            total = rank
            if group:
                total = rank + self.diversity * used.gather(1, token)
            if group + 1 < size[1]:
                used = used.scatter_add(1, token, total.isfinite().to(used.dtype))
            chosen.append((total, place // count, token))
        total, parents, token = (torch.stack(tensors, 1) for tensors in zip(*chosen, strict=True))
        longer = live.ids.gather(2, parents[..., None].expand(-1, -1, -1, live.ids.shape[3]))
        return Live(live.sentences, torch.cat([longer, token[..., None]], 3), total), parents

    def finish(
        self,
        live: Live,
        covered: Tensor,
        finished: list[list[Finished]],
        limits: Tensor,
        eos: int,
    ) -> None:
        """Move what ends with eos to the finished hypotheses; -inf remains in its place. Scores are
        raised by ``covered`` [N, G, W].
        """
        length = live.ids.shape[3] - 1
        ended = (live.ids[..., -1] == eos) & live.total.isfinite()
        scores = live.total / length_penalty(length, self.alpha).to(live.total.device) + covered
        for row, group, column in ended.nonzero().tolist():
            sentence, score = int(live.sentences[row]), float(scores[row, group, column])
            if finished[sentence][group].admits(score):
                symbols = tuple(live.ids[row, group, column, 1:-1].tolist())
                cut = length >= int(limits[sentence])
                total = float(live.total[row, group, column])
                finished[sentence][group].add(Hypothesis(symbols, total, score, cut))
        live.total = live.total.masked_fill(ended, DEAD)

    def survivors(
        self,
        before: Live,
        live: Live,
        parents: Tensor,
        finished: list[list[Finished]],
        limits: Tensor,
    ) -> tuple[Live, Tensor]:
        """What is still worth searching, and the rows of ``before`` from which it comes.

        Where nothing lives on and nothing is finished, the best so far is, as truncated.
        """
        mildest = torch.maximum(
            length_penalty(live.ids.shape[3], self.alpha).to(limits.device),
            length_penalty(limits[live.sentences], self.alpha),
        )
        bounds = (live.total.max(2).values / mildest[:, None]).tolist()
        worthwhile = []
        for row, (sentence, bound) in enumerate(zip(live.sentences.tolist(), bounds, strict=True)):
            groups = finished[sentence]
            if max(bound) == DEAD and not any(group.hypotheses for group in groups):
                so_far = tuple(before.ids[row, 0, before.total[row, 0].argmax(), 1:].tolist())
                groups[0].add(Hypothesis(so_far, DEAD, DEAD, True))
            worthwhile.append(
                any(b > DEAD and g.admits(b) for b, g in zip(bound, groups, strict=True))
            )
        going = torch.tensor(worthwhile, device=limits.device)
        total, order = live.total.sort(dim=2, descending=True, stable=True)
        width = int(total[going].isfinite().sum(2).max()) if going.any() else 0
        total, order = total[..., :width], order[..., :width]
        offsets = torch.arange(self.groups, device=limits.device)[:, None]
        place = order + offsets * live.total.shape[2]  # among its sentence's G·W'
        first = live.total.flatten(1).argmax(1)
        place = torch.where(total.isfinite(), place, first[:, None, None]).flatten(1)
        rows = torch.arange(before.total.numel(), device=limits.device).view(before.total.shape)
        rows = rows.gather(2, parents).flatten(1).gather(1, place)[going]
        length = live.ids.shape[3]
        ids = live.ids.flatten(1, 2).gather(1, place[..., None].expand(-1, -1, length))[going]
        ids = ids.view(len(ids), self.groups, width, length)
        return Live(live.sentences[going], ids, total[going]), rows.flatten()


def best(groups: Sequence[Finished], count: int) -> list[Hypothesis]:
    """``count`` hypotheses of a sentence: each group's best, then each one's second, ...; no two
    alike, and the best first.
    """
    chosen: dict[tuple[int, ...], Hypothesis] = {}
    for turn in zip_longest(*(group.hypotheses for group in groups)):
        for hypothesis in sorted(filter(None, turn), key=lambda h: -h.score):
            if len(chosen) < count:
                chosen.setdefault(hypothesis.ids, hypothesis)
    return sorted(chosen.values(), key=lambda h: -h.score)
