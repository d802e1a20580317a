"""Greedy search: at each step the most likely symbol.

Where a constraint leaves every sentence one symbol alone, as a prefix does, nothing is chosen, and
what follows is read together with it: fewer calls of the model, and the same outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqtrans.decoding import Decoder, Hypothesis, Request, Scorer, forced, log_probability, top
from seqtrans_plugins import DecoderSettings


class Greedy(Decoder):
    """Takes the best symbol that may come next, in all sentences at once; finished ones leave."""

    most = 1

    def __init__(self, settings: DecoderSettings) -> None:
        self.extra, self.least = settings.extra, settings.least
        self.no_repeat = settings.no_repeat

    def decode(self, scorer: Scorer, request: Request) -> list[list[Hypothesis]]:
        eos, constraint = scorer.vocabulary.eos, request.constraint
        device, limits = request.source.device, request.limits.to(request.source.device)
        state = scorer.start(request.source, request.mask)
        ids: list[list[int]] = [[] for _ in limits]
        totals = torch.zeros(len(limits), dtype=torch.float64, device=device)
        truncated = torch.zeros(len(limits), dtype=torch.bool, device=device)
        alive = torch.arange(len(limits), device=device)  # which sentence each row is
        total, tokens = totals, torch.full_like(limits, scorer.vocabulary.bos)
        chosen: list[tuple[Tensor, Tensor]] = []  # at each step: sentences, their symbols
        while len(alive):
            certain, allowed = forced(scorer.vocabulary, limits - len(chosen), constraint)
            tokens = torch.cat([tokens[:, None], certain], 1)
            logits = scorer.advance(tokens, state).float()
            if certain.shape[1]:
                total = total + log_probability(logits[:, :-1], certain)
                chosen += [(alive, symbols) for symbols in certain.unbind(1)]
            likely = torch.where(allowed, logits[:, -1].log_softmax(1), float("-inf"))
            best, tokens = (found[:, 0] for found in top(likely, 1))
            total = total + best.double()
            chosen.append((alive, tokens))
            dead = best.isneginf()
            ended = (tokens == eos) | dead
            if bool(ended.any()):
                last = (limits <= len(chosen)) | dead
                totals[alive[ended]], truncated[alive[ended]] = total[ended], last[ended]
                going = (~ended).nonzero()[:, 0]
                state = state.select(going)
                constraint = None if constraint is None else constraint.select(going)
                alive, tokens, total, limits = (x[going] for x in (alive, tokens, total, limits))
            if constraint is not None:
                constraint.advance(tokens)
        for sentences, symbols in chosen:
            for sentence, symbol in zip(sentences.tolist(), symbols.tolist(), strict=True):
                ids[sentence].append(symbol)
        return [
            [Hypothesis(tuple(row[:-1]), value, value, cut)]
            for row, value, cut in zip(ids, totals.tolist(), truncated.tolist(), strict=True)
        ]
