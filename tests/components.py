"""Small components that are not offered: proof that the interfaces carry what may come.

Relative keys (Shaw et al., 2018), rotary (Su et al., 2021), ALiBi (Press et al., 2022), the buckets
of T5 (Raffel et al., 2020), restricted neighbourhoods (section 4 of the paper) by a mask and at
their true cost, and a source of frames that makes one vector of several.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seqtrans.attention import Attention, Bias
from seqtrans.config import Shape
from seqtrans.position import PositionScheme, sinusoid
from seqtrans.task import Vocabulary


class Nothing(PositionScheme):
    """No positions at all."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()


class Rotary(PositionScheme):
    """Queries and keys turned by angles in proportion to their positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def rotate(self, heads: Tensor, at: Tensor) -> Tensor:
        sine, cosine = sinusoid(at, heads.shape[-1]).unflatten(-1, (-1, 2)).unbind(-1)  # type: ignore[no-untyped-call]
        even, odd = heads[..., 0::2], heads[..., 1::2]
        turned = torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], -1)
        return turned.flatten(-2).to(heads.dtype)


class Alibi(PositionScheme):
    """A penalty for distance, with a slope of its own for each head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads

    def bias(self, queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        slopes = 2.0 ** (-8 * torch.arange(1, self.heads + 1) / self.heads)
        return -slopes[:, None, None] * (query_at[:, None] - key_at).abs()  # [H, T, K]


class RelativeKeys(PositionScheme):
    """A vector for each clipped distance, added to the keys as each query sees them."""

    reach = 3

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * self.reach + 1, shape.head)

    def bias(self, queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        distance = (key_at - query_at[:, None]).clamp(-self.reach, self.reach) + self.reach
        logits = queries @ self.table.weight.T / math.sqrt(queries.shape[-1])  # [B, H, T, 2r+1]
        return logits.gather(3, distance.expand(*logits.shape[:2], -1, -1))


class Buckets(PositionScheme):
    """A learned number for each head and bucket of distances, wider the further away."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.table = nn.Embedding(16, shape.heads)
        nn.init.zeros_(self.table.weight)

    def bias(self, queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        distance = key_at - query_at[:, None]
        bucket = distance.abs().float().log2().floor().clamp(-1, 6).long() + 1
        return self.table(bucket + 8 * (distance > 0)).movedim(-1, 0)  # type: ignore[no-any-return]


class Seen(Attention):
    """Keys no further than ``reach`` away, on either side, by a mask: cost n·n."""

    reach = 3

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def sees(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        return (query_at[:, None] - key_at).abs() <= self.reach


class Gathered(Seen):
    """The same at its true cost r·n: each query is given its own 2r + 1 keys."""

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_at: Tensor,
        key_at: Tensor,
        key_mask: Tensor | None = None,
        causal: bool = False,
        bias: Bias | None = None,
    ) -> Tensor:
        window = torch.arange(-self.reach, 1 if causal else self.reach + 1)
        place = query_at[:, None] + window - key_at[0]  # [T, W], among the keys
        there = (place >= 0) & (place < len(key_at))
        place = place.clamp(0, len(key_at) - 1)
        seen = there[None, None]  # [1, 1, T, W]
        if key_mask is not None:
            seen = seen & key_mask[:, None, place]
        logits = torch.einsum("bhtd,bhtwd->bhtw", q, k[:, :, place]) / math.sqrt(q.shape[-1])
        if bias is not None:
            logits = logits + bias(q, query_at, key_at[place])
        weights = logits.masked_fill(~seen, float("-inf")).softmax(-1).masked_fill(~seen, 0.0)
        weights = nn.functional.dropout(weights, self.dropout, self.training)
        return torch.einsum("bhtw,bhtwd->bhtd", weights, v[:, :, place])


class Frames(nn.Module):
    """Features [B, S, F] become one vector of each ``stride`` frames, [B, ceil(S / stride), D]."""

    stride, features = 3, 5

    def __init__(self, shape: Shape, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.project = nn.Linear(self.stride * self.features, shape.width)

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        source = source * mask[:, :, None]
        missing = -source.shape[1] % self.stride
        source = nn.functional.pad(source, (0, 0, 0, missing))
        stacked = source.view(len(source), -1, self.stride * self.features)
        return self.project(stacked), nn.functional.pad(mask, (0, missing))[:, :: self.stride]


POSITIONS = [Nothing, Rotary, Alibi, RelativeKeys, Buckets]
ATTENTIONS = [Seen, Gathered]
