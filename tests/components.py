"""Small components as others might write them, and settings that suit tiny models.

Restricted neighbourhoods (section 4 of the paper) by a mask, and with keys of its own for each
query, which every bias must be able to take; and a source of frames that makes one vector of
several.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seqtrans.attention import Attention, Bias
from seqtrans.config import Shape
from seqtrans.settings import Settings
from seqtrans.task import Vocabulary
from seqtrans_plugins import GlobalSettings, RelativeSettings, RestrictedSettings, T5Settings

SMALL: dict[str, Settings] = {
    "restricted": RestrictedSettings(reach=3, block=2),
    "global": GlobalSettings(reach=2, block=2, first=2),
    "relative": RelativeSettings(reach=3),
    "t5": T5Settings(buckets=8, farthest=6),
}
"""By the component's name: settings with which a few tokens meet all that it can do."""


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


ATTENTIONS = [Seen, Gathered]
