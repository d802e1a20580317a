"""Linear attention (Katharopoulos et al., 2020): a state of constant size in place of a cache.

With the feature map φ(x) = elu(x) + 1 (equation 7), a query takes each value in proportion to
φ(q)·φ(k), so that the sums over keys can be taken before any query comes: time and memory are
O(n·d²/h), and decoding remembers one matrix for each head (equations 10 to 12).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from seqtrans.attention import Attention, Bias, KeyValueCache, view

if TYPE_CHECKING:
    from seqtrans.config import Shape
    from seqtrans.settings import NoSettings

CHUNK = 64
"""Keys that are summed before the next queries look at the sums; those of one look plainly."""


@dataclass
class Memory:
    """What was read: Σ φ(k)·(v, 1) as [B, H, D/H, D/H + 1]; or, under a bias, keys and values."""

    sums: Tensor | None = None
    kept: KeyValueCache = field(default_factory=KeyValueCache)

    def select(self, rows: Tensor) -> Self:
        """The memory of these rows, in this order."""
        sums = None if self.sums is None else self.sums[rows]
        return type(self)(sums, self.kept.select(rows))


class Linear(Attention):
    """Weights in proportion to φ(q)·φ(k), computed without them.

    A bias of the position scheme is added to the logarithms of these products; this needs the
    weights themselves, at the cost of full attention. Dropout leaves a key out for all queries.
    Without a bias all sums are in fp32, under autocast too, for they grow with the number of keys.
    """

    def __init__(self, settings: NoSettings, shape: Shape) -> None:
        super().__init__()

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
        if bias is not None:
            seen = self.weigh(
                q,
                k,
                query_at=query_at,
                key_at=key_at,
                key_mask=key_mask,
                causal=causal,
                bias=bias,
            )
            return F.dropout(seen, self.dropout, self.training).to(v.dtype) @ v
        with torch.autocast(q.device.type, enabled=False):
            queries, keys, values = features(q), features(k), self.counted(v)
            if key_mask is not None:
                keys = keys * key_mask[:, None, :, None]
            if not causal:
                return divided(queries @ summed(keys, values)).to(v.dtype)
            first = 0 if query_at is key_at else int(query_at[0] - key_at[0])
            before = summed(keys[:, :, :first], values[:, :, :first])
            heads, _ = looking_back(queries, keys[:, :, first:], values[:, :, first:], before)
            return divided(heads).to(v.dtype)

    def weigh(
        self,
        q: Tensor,
        k: Tensor,
        *,
        query_at: Tensor,
        key_at: Tensor,
        key_mask: Tensor | None = None,
        causal: bool = False,
        bias: Bias | None = None,
    ) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            products = features(q) @ features(k).mT  # [B, H, T, K]
        mask = view(None, key_mask, query_at, key_at, causal)
        if bias is not None:
            added = bias(q, query_at, key_at).float()
            if mask is not None:
                added = added.masked_fill(~mask, float("-inf"))
            # A common factor changes nothing; this one lets no exponential overflow.
            largest = added.detach().amax(-1, keepdim=True)
            added = added - largest.masked_fill(largest.isinf(), 0.0)
            products = products * added.exp()
        elif mask is not None:
            products = products * mask
        total = products.sum(-1, keepdim=True)
        return products / total.masked_fill(total == 0, 1.0)

    def cache(self) -> Memory:
        return Memory()

    def extend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        at: Tensor,
        cache: Any,
        causal: bool,
        bias: Bias | None = None,
    ) -> Tensor:
        if bias is not None:
            return super().extend(q, k, v, at=at, cache=cache.kept, causal=causal, bias=bias)
        with torch.autocast(q.device.type, enabled=False):
            queries, keys, values = features(q), features(k), self.counted(v)
            before = cache.sums
            if before is None:
                before = keys.new_zeros(*keys.shape[:2], keys.shape[3], values.shape[3])
            if causal:
                heads, cache.sums = looking_back(queries, keys, values, before)
            else:
                cache.sums = before + summed(keys, values)
                heads = queries @ cache.sums
            return divided(heads).to(v.dtype)

    def counted(self, v: Tensor) -> Tensor:
        """Values with a 1 behind each, whose sum is what the others are divided by; in fp32."""
        ones = v.new_ones(*v.shape[:3], 1).float()
        kept = F.dropout(ones, self.dropout, self.training)
        return torch.cat([v.float() * kept, ones], -1)


def features(x: Tensor) -> Tensor:
    """φ(x), in fp32."""
    return F.elu(x.float()) + 1.0


def summed(keys: Tensor, values: Tensor) -> Tensor:
    """Σ φ(k)·v over keys: [B, H, D/H, E]."""
    return keys.mT @ values


def divided(heads: Tensor) -> Tensor:
    """The sums over their last coordinate; zeros where nothing is seen."""
    total = heads[..., -1:]
    return heads[..., :-1] / total.masked_fill(total == 0, 1.0)


def looking_back(
    queries: Tensor, keys: Tensor, values: Tensor, before: Tensor
) -> tuple[Tensor, Tensor]:
    """Each query over the keys up to its own place and what is summed ``before`` [B, H, D/H, E].

    Gives [B, H, T, E], and the sums after the last key. Keys beyond the queries are not seen.
    """
    steps = queries.shape[2]
    missing = -steps % CHUNK if steps > CHUNK else 0
    chunk = min(steps, CHUNK)

    def chunked(x: Tensor) -> Tensor:
        x = F.pad(x[:, :, :steps], (0, 0, 0, missing))
        return x.reshape(*x.shape[:2], -1, chunk, x.shape[3])

    queries, keys, values = chunked(queries), chunked(keys), chunked(values)  # [B, H, N, c, ...]
    inside = (queries @ keys.mT).tril() @ values
    sums = torch.cat([before[:, :, None], keys.mT @ values], 2).cumsum(2)  # [B, H, N + 1, ...]
    heads = inside + queries @ sums[:, :, :-1]
    return heads.flatten(2, 3)[:, :, :steps], sums[:, :, -1]
