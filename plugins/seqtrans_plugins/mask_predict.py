"""Mask-predict (Ghazvininejad et al., 2019): all symbols at once, and the least sure ones again.

First the model says how many symbols there are; a few of the most likely lengths are tried side by
side. In the first round all symbols are hidden and predicted. In round t of T the (T-t)/T of them
that the model was least sure of are hidden again and predicted from the others. So an output takes
T calls of the model, whatever its length.

The probability of a length is counted as that of one more symbol, by which the best of the lengths
is chosen: the highest mean log-probability. It is of each symbol given those that were not hidden
when it was predicted, and so not a probability of the whole output.

A constraint says what may come next, so it is kept to from left to right (not in the paper): in
each round every place takes the best symbol that may stand there after those before it. An output
ends early where nothing else may follow, and is worth nothing where it may not end at its length.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from seqtrans.decoding import Decoder, Hypothesis, Request, Scorer
from seqtrans.task import Constraint, Vocabulary
from seqtrans_plugins import MaskPredictSettings


class MaskPredict(Decoder):
    """Gives for each sentence one hypothesis for each of the lengths that were tried."""

    causal: ClassVar[bool] = False

    def __init__(self, settings: MaskPredictSettings) -> None:
        self.extra, self.least = settings.extra, settings.least
        self.no_repeat = settings.no_repeat
        self.iterations = settings.iterations
        self.lengths = self.most = settings.lengths

    def decode(self, scorer: Scorer, request: Request) -> list[list[Hypothesis]]:
        state = scorer.start(request.source, request.mask)
        limits = request.limits.to(request.source.device)
        table, constraint, vocabulary = state.lengths, request.constraint, scorer.vocabulary
        least = (limits - 1).clamp(max=self.least)
        if constraint is not None:
            least = torch.maximum(least, forced_beginnings(vocabulary, constraint, limits))
        tried, of_length, cut = self.likely(table, limits, least)
        owner = torch.arange(len(limits), device=limits.device)
        owner = owner.repeat_interleave(tried.shape[1])
        constraint = None if constraint is None else constraint.select(owner)
        tokens, sureness, lengths, whole = self.write(
            scorer, state.select(owner), tried.flatten(), constraint
        )
        lengths, whole = lengths.view_as(tried), whole.view_as(tried)
        last = table.shape[1] - 1  # beyond it no length has a probability
        ended = table.gather(1, lengths.clamp(max=last)).masked_fill(lengths > last, -math.inf)
        of_length = torch.where(lengths == tried, of_length, ended)
        totals = of_length.double() + sureness.double().sum(1).view_as(tried)
        totals = totals.masked_fill(~whole & ~totals.isnan(), -math.inf)
        means = totals / (lengths + 1)
        found = []
        for row, sizes in enumerate(lengths.tolist()):
            outputs = tokens.view(*lengths.shape, -1)[row].tolist()
            alternatives = [
                Hypothesis(
                    tuple(output[:size]),
                    total,
                    mean,
                    truncated=not complete or (bool(cut[row]) and size + 1 == int(limits[row])),
                )
                for output, size, total, mean, complete in zip(
                    outputs,
                    sizes,
                    totals[row].tolist(),
                    means[row].tolist(),
                    whole[row].tolist(),
                    strict=True,
                )
                if not math.isnan(mean)
            ]
            alternatives.sort(key=lambda h: -h.score)
            # One that is worth nothing is given only where there is nothing else.
            worth = [h for h in alternatives if h.score > -math.inf] or alternatives[:1]
            different = {h.ids: h for h in reversed(worth)}  # of two that are alike the better
            found.append([h for h in worth if different[h.ids] is h][: request.count])
        return found

    def likely(self, table: Tensor, limits: Tensor, least: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The most likely lengths [B, L] from ``least`` [B] on that the limits [B] leave room for,
        best first.

        With their log-probabilities [B, L], and whether a longer one would be the best [B]. Where
        there are fewer than L, the first is there again at -inf.
        """
        at = torch.arange(table.shape[1], device=table.device)
        room = (at >= least[:, None]) & (at < limits[:, None])  # eos needs one
        within = table.masked_fill(~room, -math.inf)
        best = within.topk(min(self.lengths, table.shape[1]), dim=1)
        none = best.values.isneginf()
        # Where no length is possible, the longest that there is room for.
        first = torch.where(none[:, :1], limits[:, None] - 1, best.indices[:, :1])
        return torch.where(none, first, best.indices), best.values, table.argmax(1) >= limits

    def write(
        self, scorer: Scorer, state: object, lengths: Tensor, constraint: Constraint | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Outputs [R, T] of these ``lengths`` [R], eos after each; the log-probability of each
        symbol, 0 for eos and padding; their lengths [R], smaller where a constraint ended one; and
        whether each may end there, bool [R].
        """
        vocabulary = scorer.vocabulary
        whole = torch.ones_like(lengths, dtype=torch.bool)
        if constraint is not None:
            whole = constraint.allowed()[:, vocabulary.eos]  # of those that are empty
        at = torch.arange(int(lengths.max()) + 1, device=lengths.device)
        tokens = torch.full((len(lengths), len(at)), vocabulary.pad, device=lengths.device)
        tokens = tokens.scatter(1, lengths[:, None], vocabulary.eos)
        sureness = torch.zeros(tokens.shape, device=lengths.device)
        for round in range(self.iterations):
            number = lengths * (self.iterations - round) // self.iterations
            if not number.any():
                break
            real = at < lengths[:, None]  # [R, T]
            order = sureness.masked_fill(~real, math.inf).argsort(stable=True, dim=1)
            hidden = (order.argsort(1) < number[:, None]) & real
            before = tokens.masked_fill(hidden, vocabulary.bos)
            logits = scorer.advance(before, state).float()
            normaliser = logits.logsumexp(-1)
            logits[:, :, [vocabulary.pad, vocabulary.bos, vocabulary.eos]] = -math.inf
            if constraint is None:
                tokens = torch.where(hidden, logits.argmax(-1), before)
            else:
                tokens, lengths, whole = kept_to(constraint, vocabulary, logits, before, lengths)
                real = at < lengths[:, None]
            sure = logits.gather(2, tokens[:, :, None])[:, :, 0] - normaliser
            sureness = torch.where(tokens != before, sure, sureness).masked_fill(~real, 0.0)
        return tokens, sureness, lengths, whole


def forced_beginnings(vocabulary: Vocabulary, constraint: Constraint, limits: Tensor) -> Tensor:
    """How many symbols [B] each output begins with whatever a model holds likely, as far as the
    limits [B] go; the constraint is left alone.
    """
    counts = torch.zeros_like(limits)
    rows = torch.arange(len(limits), device=limits.device)
    constraint = constraint.select(rows)
    while len(rows):
        allowed = constraint.allowed().clone()
        allowed[:, vocabulary.pad] = allowed[:, vocabulary.bos] = False
        going = (allowed.sum(1) == 1) & ~allowed[:, vocabulary.eos]
        going &= counts[rows] + 1 < limits[rows]
        kept = going.nonzero()[:, 0]
        rows = rows[kept]
        counts[rows] += 1
        constraint = constraint.select(kept)
        if len(kept):
            constraint.advance(allowed[kept].int().argmax(1))
    return counts


def kept_to(
    constraint: Constraint,
    vocabulary: Vocabulary,
    logits: Tensor,
    before: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """What stands in ``before`` [R, T] as far as the constraint allows it, and the best that it
    does by ``logits`` [R, T, V] wherever something else or bos stands there.

    With the lengths [R], smaller where nothing else but eos may follow, and whether each output may
    end there, bool [R]. The constraint is left alone.
    """
    tokens, lengths = before.clone(), lengths.clone()
    whole = torch.zeros_like(lengths, dtype=torch.bool)
    rows = torch.arange(len(lengths), device=lengths.device)
    constraint = constraint.select(rows)
    for at in range(tokens.shape[1]):
        allowed = constraint.allowed()
        best = logits[rows, at].masked_fill(~allowed, -math.inf).max(1)
        ends = (lengths[rows] == at) | best.values.isneginf()
        ended, going = rows[ends], (~ends).nonzero()[:, 0]
        lengths[ended], whole[ended] = at, allowed[ends, vocabulary.eos]
        tokens[ended, at], tokens[ended, at + 1 :] = vocabulary.eos, vocabulary.pad
        if not len(going):
            break
        rows, constraint = rows[going], constraint.select(going)
        there = before[rows, at]
        fits = (there != vocabulary.bos) & allowed[going, there]
        tokens[rows, at] = torch.where(fits, there, best.indices[going])
        constraint.advance(tokens[rows, at])
    return tokens, lengths, whole
