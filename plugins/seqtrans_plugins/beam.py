"""Beam search with the paper's length penalty (section 6.1).

Each step keeps the ``width`` best extensions of a sentence's live hypotheses. Those that end with
eos leave the beam as finished; the others live on, so a beam of one is greedy search and a beam
wide enough is exhaustive. A sentence is done when no live hypothesis can still beat its worst
wanted finished one: a log-probability only falls from here on, so the best that a live one can
score is what it has now under the mildest penalty it can still reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from seqtrans.decoding import Decoder, Hypothesis, Request, Scorer, admissible, length_penalty
from seqtrans_plugins import BeamSettings

DEAD = float("-inf")


@dataclass
class Finished:
    """The finished hypotheses of one sentence, best first, no more than are wanted."""

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
    """Live hypotheses, best first: N sentences, W each; one with fewer repeats its best at -inf."""

    sentences: Tensor  # [N]
    ids: Tensor  # [N, W, t], bos first
    total: Tensor  # [N, W]: log-probabilities

    def rows(self, hypotheses: Tensor) -> Tensor:
        """Where ``hypotheses`` [N', W'] of the first N' sentences lie among the N·W rows."""
        firsts = torch.arange(len(hypotheses), device=hypotheses.device) * self.total.shape[1]
        return firsts[:, None] + hypotheses


class Beam(Decoder):
    """Breadth-first search over ``width`` hypotheses, penalised by ((5 + length) / 6)^``alpha``."""

    def __init__(self, settings: BeamSettings) -> None:
        self.width, self.alpha, self.extra = settings.width, settings.alpha, settings.extra
        self.most = settings.width

    def decode(self, scorer: Scorer, request: Request) -> list[list[Hypothesis]]:
        vocabulary, constraint = scorer.vocabulary, request.constraint
        device, limits = request.source.device, request.limits.to(request.source.device)
        finished = [Finished(request.count) for _ in limits]
        state = scorer.start(request.source, request.mask)
        live = Live(
            torch.arange(len(limits), device=device),
            torch.full((len(limits), 1, 1), vocabulary.bos, dtype=torch.long, device=device),
            torch.zeros(len(limits), 1, dtype=torch.float64, device=device),
        )
        while len(live.sentences):
            logits = scorer.advance(live.ids[:, :, -1:].flatten(0, 1), state)[:, -1]
            last = (limits[live.sentences] <= live.ids.shape[2])[:, None].expand_as(live.total)
            scores = admissible(
                logits.float().log_softmax(-1), vocabulary, last.flatten(), constraint
            )
            extended, parents = self.extend(live, scores)
            self.finish(extended, finished, limits, vocabulary.eos)
            live, rows = self.survivors(live, extended, parents, finished, limits)
            if len(live.sentences):
                state = state.select(rows)
                if constraint is not None:
                    constraint = constraint.select(rows)
                    constraint.advance(live.ids[:, :, -1].flatten())
        return [sentence.hypotheses for sentence in finished]

    def extend(self, live: Live, scores: Tensor) -> tuple[Live, Tensor]:
        """The best by ``scores`` [N·W, V], and which live hypothesis [N, W'] each extends."""
        symbols = scores.shape[1]
        totals = (live.total.flatten()[:, None] + scores).view(len(live.total), -1)  # [N, W·V]
        total, flat = totals.topk(min(self.width, totals.shape[1]), dim=1)
        parents, tokens = flat // symbols, flat % symbols
        ids = live.ids.gather(1, parents[:, :, None].expand(-1, -1, live.ids.shape[2]))
        return Live(live.sentences, torch.cat([ids, tokens[:, :, None]], 2), total), parents

    def finish(self, live: Live, finished: list[Finished], limits: Tensor, eos: int) -> None:
        """Move what ends with eos to the finished hypotheses; -inf remains in its place."""
        length = live.ids.shape[2] - 1
        ended = (live.ids[:, :, -1] == eos) & live.total.isfinite()
        scores = live.total / length_penalty(length, self.alpha).to(live.total.device)
        for row, column in ended.nonzero().tolist():
            sentence, score = int(live.sentences[row]), float(scores[row, column])
            if finished[sentence].admits(score):
                symbols = tuple(live.ids[row, column, 1:-1].tolist())
                cut = length >= int(limits[sentence])
                finished[sentence].add(
                    Hypothesis(symbols, float(live.total[row, column]), score, cut)
                )
        live.total = live.total.masked_fill(ended, DEAD)

    def survivors(
        self, before: Live, live: Live, parents: Tensor, finished: list[Finished], limits: Tensor
    ) -> tuple[Live, Tensor]:
        """What is still worth searching, and the rows of ``before`` from which it comes.

        Where nothing lives on and nothing is finished, the best so far is, as truncated.
        """
        mildest = torch.maximum(
            length_penalty(live.ids.shape[2], self.alpha).to(limits.device),
            length_penalty(limits[live.sentences], self.alpha),
        )
        bounds = (live.total.max(1).values / mildest).tolist()
        worthwhile = []
        for row, (sentence, bound) in enumerate(zip(live.sentences.tolist(), bounds, strict=True)):
            ended = finished[sentence]
            if bound == DEAD and not ended.hypotheses:
                ended.add(Hypothesis(tuple(before.ids[row, 0, 1:].tolist()), DEAD, DEAD, True))
            worthwhile.append(bound > DEAD and ended.admits(bound))
        going = torch.tensor(worthwhile, device=limits.device)
        total, order = live.total.sort(dim=1, descending=True, stable=True)
        width = int(total[going].isfinite().sum(1).max()) if going.any() else 0
        total, order = total[:, :width], order[:, :width]
        order = torch.where(total.isfinite(), order, order[:, :1])
        rows = before.rows(parents.gather(1, order))[going]
        ids = live.ids.gather(1, order[:, :, None].expand(-1, -1, live.ids.shape[2]))
        return Live(live.sentences[going], ids[going], total[going]), rows.flatten()
