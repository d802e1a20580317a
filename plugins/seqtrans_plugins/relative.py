"""Relative positions in the keys (Shaw et al., 2018, section 3.1).

A vector for each distance up to a reach, beyond which all are alike, is added to a key as a query
sees it; computed through the queries (section 3.3), so that no key is ever copied. Each head has
vectors of its own, as in section 4.1; the layers of a stack share them, where there each has its
own. The values are left as they are: in the paper's Table 3 the same quality is reached with keys
alone. Defined for any length.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seqtrans.position import PositionScheme
from seqtrans_plugins import RelativeSettings

if TYPE_CHECKING:
    from seqtrans.config import Shape


class Relative(PositionScheme):
    """A learned vector for each distance from -``reach`` to ``reach``, which the queries meet."""

    def __init__(self, settings: RelativeSettings, shape: Shape) -> None:
        super().__init__()
        self.reach = settings.reach
        self.table = nn.Parameter(torch.empty(shape.heads, 2 * settings.reach + 1, shape.head))
        for vectors in self.table:
            nn.init.xavier_uniform_(vectors)

    def bias(self, queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        distance = (key_at - query_at[:, None]).clamp(-self.reach, self.reach)  # [T, K]
        logits = queries @ (self.table / math.sqrt(queries.shape[-1])).mT  # [B, H, T, 2·reach + 1]
        places = (distance + self.reach).expand(*logits.shape[:2], -1, -1)
        return logits.gather(3, places)  # [B, H, T, K]
