"""Label-smoothed cross-entropy (section 5.4), as a sum over real target tokens.

``smoothed_loss`` takes it from logits. ``projected_loss`` is what training uses: the logits of all
positions never exist together, nor any of a padded one.

Two conventions are in use for the smoothed target over V symbols. ``all`` spreads ε over all of
them, the right one included: it gets 1 - ε + ε/V (Szegedy et al., 2016, whom the paper cites).
``others`` gives the right one 1 - ε and each other ε/(V - 1), as the paper's own code did. For the
same ε the losses differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqtrans.data import Unpadded
from seqtrans.model import State, Transducer

CHUNK, LARGE_CHUNK = 1 << 22, 1 << 26
"""So many logits exist at a time: 16 MB, for the fewer the chunks the more seldom are the gradients
of all weights read and written, and the more the less of it all is in a CPU's caches; on a GPU 256
MB, since there each step has to be started."""


def smoothed_loss(
    logits: Tensor, target: Tensor, pad: int, smoothing: float = 0.0, over: str = "all"
) -> Tensor:
    """Sum in fp32 of the cross-entropy of ``logits`` [..., V] with ``target`` [...], pads apart."""
    logits, target = logits.flatten(0, -2).float(), target.flatten()
    smoothing = over_all(smoothing, over, logits.shape[-1])
    return F.cross_entropy(
        logits, target, ignore_index=pad, label_smoothing=smoothing, reduction="sum"
    )


def over_all(smoothing: float, over: str, symbols: int) -> float:
    """The ε which, spread over all V symbols, is the same as ``smoothing`` spread as ``over`` says.

    With a = εV/(V-1) the right one gets 1 - a + a/V = 1 - ε and any other a/V = ε/(V-1).
    """
    return smoothing * symbols / (symbols - 1) if over == "others" else smoothing


def projected_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    pad: int,
    smoothing: float = 0.0,
    over: str = "all",
    consistency: float = 0.0,
) -> Tensor:
    """``smoothed_loss`` of the logits ``hidden`` [..., D] · ``weight`` [V, D]ᵀ, without them.

    They are computed for a few positions at a time, and so are their gradients, at once: with
    p = softmax(z) and a target t, that of logit v is p_v - ε/V - (1 - ε)[v = t].

    Of two passes, ``hidden`` [2, ..., D], it is the mean loss, and what p and q of them differ by
    is added to it: half of ``consistency`` times the mean of KL(p‖q) and KL(q‖p). That is half the
    objective of R-Drop (Liang et al., 2021), whose α is ``consistency``.
    """
    passes = hidden.shape[: -target.dim() - 1]
    hidden = hidden.reshape(math.prod(passes), target.numel(), -1)
    target = target.flatten()
    counts = (target != pad).nonzero().squeeze(1)
    if len(counts) < len(target):
        hidden, target = hidden[:, counts], target[counts]
    smoothing = over_all(smoothing, over, len(weight))
    found: Tensor = Projected.apply(hidden, weight, target, smoothing, consistency)  # type: ignore[no-untyped-call]
    return found


class Projected(torch.autograd.Function):
    """Projection and loss in one, chunk by chunk; gradients come with the loss."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # [P, N, D] of P passes, one or two
        weight: Tensor,
        target: Tensor,
        smoothing: float,
        consistency: float,
    ) -> Tensor:
        passes, positions, _ = hidden.shape
        symbols = len(weight)
        kind = hidden.dtype
        if torch.is_autocast_enabled(hidden.device.type):
            kind = torch.get_autocast_dtype(hidden.device.type)
        wanted = ctx.needs_input_grad
        into_hidden = torch.empty_like(hidden) if wanted[0] else None
        into_weight = torch.zeros_like(weight, dtype=torch.float32) if wanted[1] else None
        loss = torch.zeros((), device=hidden.device)
        matrix = weight.to(kind)
        chunk = CHUNK if hidden.device.type == "cpu" else LARGE_CHUNK
        rows = max(1, min(positions, chunk // (passes * symbols)))
        # For the logits and for what softmax makes of them; new memory for each chunk takes time.
        rooms = hidden.new_empty(2, passes * rows, symbols, dtype=torch.float32)
        with torch.autocast(hidden.device.type, enabled=False):
            for first in range(0, positions, rows):
                here = slice(first, first + rows)
                x = hidden[:, here].flatten(0, 1).to(kind)  # [P · n, D]
                right = target[here].repeat(passes)[:, None]
                logits, shares = (room[: len(x)] for room in rooms)
                product(x, matrix.T, logits)
                torch.softmax(logits, 1, out=shares)
                # What all were divided by, told by the greatest, which is never too small for it.
                normaliser = logits.amax(1, keepdim=True) - shares.amax(1, keepdim=True).log()
                loss += normaliser.sum() - (1 - smoothing) * logits.gather(1, right).sum()
                if passes == 2:
                    logs = logits.sub_(normaliser)
                    differing, apart = divergence(logs.view(2, -1, symbols), shares)
                    loss += consistency / 2 * differing
                slope = shares
                slope.scatter_add_(1, right, slope.new_full((), smoothing - 1).expand_as(right))
                if passes == 2:
                    slope.add_(apart, alpha=consistency / 2)
                slope = slope.to(kind)
                if into_hidden is not None:
                    for one, into in zip(slope.chunk(passes), into_hidden[:, here], strict=True):
                        product(one, matrix, into)
                if into_weight is not None:
                    into_weight.addmm_(slope.T, x) if kind == torch.float32 else (
                        into_weight.add_(slope.T @ x)
                    )
            if smoothing:
                # The -ε/V is the same for all logits, so no pass over them is needed.
                share = smoothing / symbols
                read, weights = hidden.to(kind).float().sum((0, 1)), matrix.float().sum(0)
                loss -= share * (read @ weights)
                if into_hidden is not None:
                    into_hidden.sub_(weights, alpha=share)
                if into_weight is not None:
                    into_weight.sub_(read, alpha=share)
        ctx.save_for_backward(into_hidden, into_weight)
        ctx.kind, ctx.passes = weight.dtype, passes
        return loss / passes

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        into_hidden, into_weight = ctx.saved_tensors
        gradient = gradients[0] / ctx.passes
        if into_hidden is not None:
            into_hidden = into_hidden * gradient
        if into_weight is not None:
            into_weight = (into_weight * gradient).to(ctx.kind)
        return into_hidden, into_weight, None, None, None


def product(first: Tensor, second: Tensor, into: Tensor) -> None:
    """Write a matrix product where it is to stand, whatever the type of numbers there."""
    if first.dtype == into.dtype:
        torch.mm(first, second, out=into)
    else:
        into.copy_(first @ second)


def divergence(logs: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """KL(p‖q) + KL(q‖p), summed, of ``logs`` [2, n, V], log p and log q, and ``shares`` [2 · n, V],
    p and q; and its slope at each of the logits, [2 · n, V].
    """
    shares, gap = shares.view_as(logs), logs[0] - logs[1]
    means = (shares * gap).sum(-1, keepdim=True)  # KL(p‖q) and -KL(q‖p)
    slope = shares * (gap - means) + (shares[0] - shares[1])
    slope[1].neg_()
    return means[0].sum() - means[1].sum(), slope.flatten(0, 1)


class Objective(nn.Module):
    """What is minimised: a model with its loss, as one module that can be spread over processes.

    From left to right: each symbol is told from those before it. With ``consistency``, a model that
    trains makes two passes over a batch, each with a dropout of its own, and they are to agree
    (see `projected_loss`).
    """

    def __init__(
        self,
        model: Transducer,
        smoothing: float = 0.0,
        over: str = "all",
        consistency: float = 0.0,
    ) -> None:
        super().__init__()
        self.model, self.smoothing, self.over = model, smoothing, over
        self.consistency = consistency

    def forward(
        self, source: Tensor, mask: Tensor, target_in: Tensor, target_out: Tensor
    ) -> Tensor:
        """The summed loss of a batch (see `seqtrans.data.Batch`)."""
        loss, _ = self.told(source, mask, target_in, target_out)
        return loss

    def told(
        self, source: Tensor, mask: Tensor, read: Tensor, wanted: Tensor
    ) -> tuple[Tensor, State]:
        """The loss of ``wanted`` [B, T] where the decoder reads ``read`` [B, T]; and its state, one
        row for each row of each pass.
        """
        model = self.model
        twice = bool(self.consistency) and self.training
        if twice:
            full = isinstance(mask, Unpadded)
            source, mask, read = (torch.cat([x, x]) for x in (source, mask, read))
            if full:
                mask = mask.as_subclass(Unpadded)
        state = model.start(source, mask)
        hidden = model.read(read, state)
        if twice:
            hidden = hidden.view(2, *wanted.shape, -1)
        loss = projected_loss(
            hidden,
            model.output_weight,
            wanted,
            model.vocabulary.pad,
            self.smoothing,
            self.over,
            self.consistency,
        )
        return loss, state


class Masked(Objective):
    """What a model that sees both sides of a target learns: to fill in any part that is hidden.

    Of each target a number of symbols, drawn evenly from 1 to all, is hidden (Ghazvininejad et al.,
    2019); only these count. bos stands for a hidden symbol, for no target has one, and eos is never
    hidden. How many symbols there are counts as one symbol more.
    """

    def forward(
        self, source: Tensor, mask: Tensor, target_in: Tensor, target_out: Tensor
    ) -> Tensor:
        """The summed loss of a batch; what is hidden is drawn from torch's random numbers."""
        model, vocabulary = self.model, self.model.vocabulary
        symbols = (target_out != vocabulary.pad) & (target_out != vocabulary.eos)
        hidden = drawn(symbols)
        loss, state = self.told(
            source,
            mask,
            target_out.masked_fill(hidden, vocabulary.bos),
            target_out.masked_fill(~hidden, vocabulary.pad),
        )
        assert state.lengths is not None
        lengths = torch.stack(torch.split(state.lengths, len(symbols))).mean(0)  # of all passes
        middle, reach = state.layers[0].mask[: len(symbols)].sum(1), model.shape.length_reach
        nearest = symbols.sum(1).clamp(middle - reach, middle + reach)
        of_length = -lengths.gather(1, nearest[:, None])[:, 0]
        there = (target_out != vocabulary.pad).any(1)
        return loss + of_length.masked_fill(~there, 0.0).sum()


def drawn(symbols: Tensor) -> Tensor:
    """Of each row of ``symbols`` [B, T] some, as many as is drawn evenly from 1 to all of them."""
    lengths = symbols.sum(1)
    share = torch.rand(len(symbols), device=symbols.device, dtype=torch.float64)
    number = 1 + (share * lengths).long()
    order = torch.rand(symbols.shape, device=symbols.device).masked_fill(~symbols, 2.0).argsort(1)
    return (order.argsort(1) < number[:, None]) & symbols


OBJECTIVES: Mapping[str, type[Objective]] = {"left-to-right": Objective, "masked": Masked}
"""By ``training.objective``."""
