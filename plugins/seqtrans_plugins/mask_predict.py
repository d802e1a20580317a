"""Mask-predict (Ghazvininejad et al., 2019): all symbols at once, and the least sure ones again.

First the model says how many symbols there are; a few of the most likely lengths are tried side by
side. In the first round all symbols are hidden and predicted. In round t of T the (T-t)/T of them
that the model was least sure of are hidden again and predicted from the others. So an output takes
T calls of the model, whatever its length.

The probability of a length is counted as that of one more symbol, by which the best of the lengths
is chosen: the highest mean log-probability. It is of each symbol given those that were not hidden
when it was predicted, and so not a probability of the whole output.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from seqtrans.decoding import Decoder, Hypothesis, Request, Scorer
from seqtrans.errors import SettingsError
from seqtrans_plugins import MaskPredictSettings


class MaskPredict(Decoder):
    """Gives for each sentence one hypothesis for each of the lengths that were tried."""

    causal: ClassVar[bool] = False

    def __init__(self, settings: MaskPredictSettings) -> None:
        self.extra = settings.extra
        self.iterations = settings.iterations
        self.lengths = self.most = settings.lengths

    def decode(self, scorer: Scorer, request: Request) -> list[list[Hypothesis]]:
        """Raises ``SettingsError`` if there is a constraint, which tells what may come next."""
        if request.constraint is not None:
            raise SettingsError(
                "decoder mask_predict writes all symbols at once, and can't keep to a prefix or to "
                "a constraint of the task, which say what may come next; switch them off, or use "
                "a model with model.causal=yes."
            )
        state = scorer.start(request.source, request.mask)
        limits = request.limits.to(request.source.device)
        lengths, of_length, cut = self.likely(state.lengths, limits)
        owner = torch.arange(len(limits), device=limits.device)
        state = state.select(owner.repeat_interleave(lengths.shape[1]))
        tokens, sureness = self.write(scorer, state, lengths.flatten())
        totals = of_length.double() + sureness.double().sum(1).view_as(lengths)
        means = totals / (lengths + 1)
        found = []
        for row, sizes in enumerate(lengths.tolist()):
            outputs = tokens.view(*lengths.shape, -1)[row].tolist()
            alternatives = [
                Hypothesis(
                    tuple(output[:size]),
                    total,
                    mean,
                    truncated=bool(cut[row]) and size + 1 == int(limits[row]),
                )
                for place, (output, size, total, mean) in enumerate(
                    zip(outputs, sizes, totals[row].tolist(), means[row].tolist(), strict=True)
                )
                if not math.isnan(mean) and (place == 0 or mean > -math.inf)
            ]
            alternatives.sort(key=lambda h: -h.score)
            found.append(alternatives[: request.count])
        return found

    def likely(self, table: Tensor, limits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The most likely lengths [B, L] that the limits [B] leave room for, best first.

        With their log-probabilities [B, L], and whether a longer one would be the best [B]. Where
        there are fewer than L, the first is there again at -inf.
        """
        room = torch.arange(table.shape[1], device=table.device) < limits[:, None]  # eos needs one
        within = table.masked_fill(~room, -math.inf)
        best = within.topk(min(self.lengths, table.shape[1]), dim=1)
        none = best.values.isneginf()
        # Where no length is possible, the longest that there is room for.
        first = torch.where(none[:, :1], limits[:, None] - 1, best.indices[:, :1])
        return torch.where(none, first, best.indices), best.values, table.argmax(1) >= limits

    def write(self, scorer: Scorer, state: object, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [R, T] of these ``lengths`` [R], eos after each, and the log-probability of each
        symbol, 0 for eos and padding.
        """
        vocabulary = scorer.vocabulary
        at = torch.arange(int(lengths.max()) + 1, device=lengths.device)
        real = at < lengths[:, None]  # [R, T]
        tokens = torch.full(real.shape, vocabulary.pad, device=lengths.device)
        tokens = tokens.scatter(1, lengths[:, None], vocabulary.eos)
        sureness = torch.zeros(real.shape, device=lengths.device)
        for round in range(self.iterations):
            number = lengths * (self.iterations - round) // self.iterations
            if not number.any():
                break
            order = sureness.masked_fill(~real, math.inf).argsort(stable=True, dim=1)
            hidden = (order.argsort(1) < number[:, None]) & real
            tokens = tokens.masked_fill(hidden, vocabulary.bos)
            logits = scorer.advance(tokens, state).float()
            normaliser = logits.logsumexp(-1)
            logits[:, :, [vocabulary.pad, vocabulary.bos, vocabulary.eos]] = -math.inf
            best = logits.max(-1)
            tokens = torch.where(hidden, best.indices, tokens)
            sureness = torch.where(hidden, best.values - normaliser, sureness)
        return tokens, sureness
