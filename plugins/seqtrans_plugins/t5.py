"""The relative positions of T5 (Raffel et al., 2020, section 2.1): a number for each bucket.

Distances fall into buckets, one for each distance at first, then wider and wider as logarithms are,
up to a distance beyond which all are alike. Each head learns a number for each bucket, added to its
logits; all layers of a stack share them. Where a stack looks both ways, one half of the buckets is
for what lies ahead; where it looks back only, all are for what lies behind. Any length is defined.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqtrans.position import PositionScheme
from seqtrans_plugins import T5Settings

if TYPE_CHECKING:
    from seqtrans.config import Shape


class Buckets(PositionScheme):
    """A learned number for each head and bucket of distances."""

    def __init__(self, settings: T5Settings, shape: Shape) -> None:
        super().__init__()
        self.farthest = settings.farthest
        self.table = nn.Parameter(torch.empty(settings.buckets, shape.heads))
        nn.init.normal_(self.table, std=shape.width**-0.5)

    def bias(self, queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        behind = query_at[:, None] - key_at  # [T, K]
        return F.embedding(self.bucket(behind), self.table).movedim(-1, 0)  # [H, T, K]

    def bucket(self, behind: Tensor) -> Tensor:
        """Which bucket keys fall into that lie so many positions ``behind`` their queries."""
        buckets = len(self.table)
        if self.causal:
            return logarithmic(behind.clamp(min=0), buckets, self.farthest)
        half = buckets // 2
        return logarithmic(behind.abs(), half, self.farthest) + half * (behind < 0)


def logarithmic(distance: Tensor, buckets: int, farthest: int) -> Tensor:
    """The first half of the buckets hold a distance each, the last one all from ``farthest`` on."""
    exact = buckets // 2
    ratio = (distance.clamp(min=1).float() / exact).log() / math.log(farthest / exact)
    wide = exact + (ratio * (buckets - exact)).long()
    return torch.where(distance < exact, distance, wide.clamp(exact, buckets - 1))
