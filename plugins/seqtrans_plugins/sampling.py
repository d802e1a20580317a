"""Sampling: draws each symbol from the distribution, sharpened, cut to ``top_k`` and ``top_p``.

Each sentence has its own stream of random numbers, seeded by the setting and the sentence's own
source, so that what is drawn for it depends neither on the batch it stands in nor on its place
there.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from seqtrans.decoding import Decoder, Hypothesis, Request, Scorer, admissible
from seqtrans_plugins import SamplingSettings


class Sampling(Decoder):
    """Draws ``count`` outputs for each sentence; those that come out alike are given once."""

    def __init__(self, settings: SamplingSettings) -> None:
        self.temperature = settings.temperature
        self.top_k, self.top_p = settings.top_k, settings.top_p
        self.seed, self.extra = settings.seed, settings.extra
        self.least, self.no_repeat = settings.least, settings.no_repeat

    def decode(self, scorer: Scorer, request: Request) -> list[list[Hypothesis]]:
        vocabulary, constraint = scorer.vocabulary, request.constraint
        device, count = request.source.device, request.count
        owner = torch.arange(len(request.limits), device=device).repeat_interleave(count)
        limits = request.limits.to(device)[owner]
        streams = [
            self.stream(source[mask], draw)
            for source, mask in zip(request.source.cpu(), request.mask.cpu(), strict=True)
            for draw in range(count)
        ]
        state = scorer.start(request.source, request.mask).select(owner)
        if constraint is not None:
            constraint = constraint.select(owner)
        alive = torch.arange(len(owner), device=device)
        total = [0.0] * len(owner)
        truncated = [False] * len(owner)
        ids: list[list[int]] = [[] for _ in owner]
        tokens = torch.full_like(owner, vocabulary.bos)
        while len(alive):
            logits = scorer.advance(tokens[:, None], state)[:, -1].float()
            last = limits[alive] <= len(ids[int(alive[0])]) + 1
            scores = admissible(logits.log_softmax(-1), vocabulary, last, constraint)
            uniform = torch.stack(
                [
                    torch.rand(vocabulary.size, generator=streams[row], dtype=torch.float64)
                    for row in alive.tolist()
                ]
            ).to(device)
            # The largest of logits plus Gumbel noise is a draw from their softmax.
            noise = -torch.log(-torch.log(uniform.clamp(1e-300, 1 - 1e-16)))
            tokens = (self.sharpen(scores).double() + noise).argmax(-1)
            dead = scores.isneginf().all(-1)
            tokens = tokens.masked_fill(dead, vocabulary.eos)
            values = scores.gather(1, tokens[:, None])[:, 0]
            for row, token, value, cut in zip(
                *(t.tolist() for t in (alive, tokens, values, last | dead)), strict=True
            ):
                ids[row].append(token)
                total[row] += value
                truncated[row] = cut
            going = (tokens != vocabulary.eos).nonzero()[:, 0]
            if len(going) < len(alive):
                state, alive, tokens = state.select(going), alive[going], tokens[going]
                constraint = None if constraint is None else constraint.select(going)
            if constraint is not None:
                constraint.advance(tokens)
        drawn = [
            Hypothesis(tuple(symbols[:-1]), value, value, cut)
            for symbols, value, cut in zip(ids, total, truncated, strict=True)
        ]
        # Rows that drew the same may differ in the last bits of their scores.
        return [
            sorted(
                {h.ids: h for h in drawn[first : first + count]}.values(),
                key=lambda h: (-h.score, h.ids),
            )
            for first in range(0, len(drawn), count)
        ]

    def stream(self, source: Tensor, draw: int) -> torch.Generator:
        """The random numbers of one draw for one source."""
        content = f"{self.seed} {draw} ".encode() + source.contiguous().numpy().tobytes()
        # The generator takes in no more than 32 bits of its seed, so all must go into these.
        seed = int.from_bytes(hashlib.sha256(content).digest()[:4], "big")
        return torch.Generator().manual_seed(seed)

    def sharpen(self, scores: Tensor) -> Tensor:
        """Scores [R, V] at this temperature, -inf beyond ``top_k`` and ``top_p``."""
        scores = scores / self.temperature
        if self.top_k:
            worst = scores.topk(min(self.top_k, scores.shape[1]), dim=1).values[:, -1:]
            scores = scores.masked_fill(scores < worst, float("-inf"))
        if self.top_p < 1:
            ranked, order = scores.sort(dim=1, descending=True, stable=True)
            probability = ranked.softmax(1)
            beyond = probability.cumsum(1) - probability >= self.top_p
            scores = scores.masked_fill(
                torch.zeros_like(beyond).scatter(1, order, beyond), float("-inf")
            )
        return scores
