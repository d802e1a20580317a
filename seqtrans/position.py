"""Positional encodings (section 3.5): how a stack learns where each of its tokens stands.

Everything here is a function of positions, never of a tensor's length, so that the whole target at
once, one token at a time and anything between give the same numbers. B rows, H heads, T queries, K
keys, D width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class PositionScheme(nn.Module):
    """One per stack. A scheme overrides whichever of the three methods it acts through."""

    limit: int | None = None
    """Positions 0 ... limit - 1 exist; ``None`` if any does. The model refuses longer inputs."""

    causal: bool = False
    """Whether the stack that it serves looks back only; set by the model."""

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        """Embeddings ``x`` [B, T, D] with their positions ``at`` [T], or [B, T], added."""
        return x

    def rotate(self, heads: Tensor, at: Tensor) -> Tensor:
        """Queries or keys ``heads`` [B, H, T, D/H], turned by ``at`` [T]; so keys are cached."""
        return heads

    def bias(self, queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        """What is added to the logits of attention: broadcastable to [B, H, T, K].

        ``queries`` [B, H, T, D/H] are the rotated queries at ``query_at`` [T]; ``key_at`` is [K],
        or [T, K] for an attention that looks at other keys from each query. Overriding this method
        is what switches it on.
        """
        raise NotImplementedError

    @property
    def biased(self) -> bool:
        """Whether this scheme has a bias at all."""
        return type(self).bias is not PositionScheme.bias


def sinusoid(at: Tensor, width: int, base: float = 10000.0) -> Tensor:
    """[..., D] in fp32: sin at 2i, cos at 2i + 1, of ``at`` / ``base``^(2i/D) (section 3.5)."""
    pairs = torch.arange(0, width, 2, device=at.device, dtype=torch.float32)
    angles = at.to(torch.float32).unsqueeze(-1) * torch.exp(pairs * (-math.log(base) / width))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :width]
