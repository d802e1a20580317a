"""Dropout (section 5.4) that doesn't cost a CPU more than what it is applied to.

PyTorch draws a number for each element on a CPU, which takes longer than the matrix product before
it in a small model. Here an element takes 16 of the random bits that a generator gives at a time.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BITS = 16
"""Random bits for each element: its probability is rounded to 1/65,536."""
LEVELS = 1 << BITS


class Dropout(nn.Module):
    """Each element is 0 with probability ``p``, or else 1/(1 - p) times what it was."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * mask(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def mask(x: Tensor, p: float) -> Tensor:
    """What dropout multiplies ``x`` by: of its shape and type, 0 or 1/(1 - p) at random."""
    dropped = round(p * LEVELS)
    if dropped == LEVELS:
        return torch.zeros_like(x)
    words = torch.empty(-(-x.numel() * BITS // 64), dtype=torch.int64)
    bits = words.random_(-(1 << 63), None).view(torch.int16)[: x.numel()].view(x.shape)
    kept = bits.to(torch.float32).ge_(dropped - LEVELS // 2)
    return kept.mul_(LEVELS / (LEVELS - dropped)).to(x.dtype)
