"""Attention (section 3.2): what a variant may change, and the heads and cache it need not think of.

B rows, H heads, T queries, K keys, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqtrans.position import PositionScheme

Bias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(queries [B, H, T, D/H], query_at [T], key_at [K] or [T, K]) -> broadcastable to [B, H, T, K]."""


class Attention(nn.Module):
    """Scaled dot-product attention (section 3.2.1), and the base of every variant. One per layer.

    A variant restricts the view the simple way by overriding :meth:`sees`, or overrides
    :meth:`forward` to compute it at its true cost. A query that may look at nothing gets zeros, and
    finite gradients.
    """

    reach: int | None = None
    """If set, no query looks further back than so many positions, and the cache keeps no more."""

    dropout: float = 0.0
    """Attention dropout (not in the paper); set by the layer."""

    def sees(self, query_at: Tensor, key_at: Tensor) -> Tensor | None:
        """Bool [T, K]: which keys a query may look at, causality apart; ``None``: all of them."""
        return None

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
        """Let ``q`` [B, H, T, D/H] at ``query_at`` [T] look at ``k``, ``v`` [B, H, K, D/H].

        The keys stand at ``key_at`` [K]. ``key_mask`` [B, K] is True where there is one; ``causal``
        hides those that lie ahead. Gives [B, H, T, D/H].
        """
        seen = self.sees(query_at, key_at)
        dropout = self.dropout if self.training else 0.0
        if causal and seen is None and key_mask is None and bias is None and query_at is key_at:
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        mask = view(seen, key_mask, query_at, key_at, causal)
        added = mask
        if bias is not None:
            added = bias(q, query_at, key_at).to(q.dtype)
            if mask is not None:
                added = added.masked_fill(~mask, float("-inf"))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=added, dropout_p=dropout)


def view(
    seen: Tensor | None,
    key_mask: Tensor | None,
    query_at: Tensor,
    key_at: Tensor,
    causal: bool,
) -> Tensor | None:
    """All that hides keys, as a mask broadcastable to [B, H, T, K]; ``None`` if nothing does."""
    if causal:
        behind = key_at[None, :] <= query_at[:, None]  # [T, K]
        seen = behind if seen is None else seen & behind
    if key_mask is None:
        return seen
    present = key_mask[:, None, None, :]  # [B, 1, 1, K]
    return present if seen is None else present & seen


def weights(q: Tensor, k: Tensor, mask: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """The plain twin of the fused kernel: softmax(qk/√d) [B, H, T, K], 0 where ``mask`` hides."""
    logits = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    if bias is not None:
        logits = logits + bias
    if mask is None:
        return logits.softmax(-1)
    # Where a row sees nothing its softmax is NaN, and so are its gradients; both are hidden again.
    return logits.masked_fill(~mask, float("-inf")).softmax(-1).masked_fill(~mask, 0.0)


@dataclass
class KeyValueCache:
    """Keys (already rotated) and values [B, H, K, D/H] of what was read, and where each stands."""

    keys: Tensor | None = None
    values: Tensor | None = None
    at: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Add new keys and values; everything that is now held."""
        if self.keys is None or self.values is None or self.at is None:
            self.keys, self.values, self.at = keys, values, at
        else:
            self.keys = torch.cat([self.keys, keys], 2)
            self.values = torch.cat([self.values, values], 2)
            self.at = torch.cat([self.at, at])
        return self.keys, self.values, self.at

    def forget(self, reach: int | None) -> None:
        """Keep only what the next query, one position on, can still see."""
        if reach is None or self.keys is None or self.values is None or self.at is None:
            return
        first = max(0, len(self.at) - reach)
        self.keys, self.values = self.keys[:, :, first:], self.values[:, :, first:]
        self.at = self.at[first:]

    def select(self, rows: Tensor) -> Self:
        """The cache of these rows, in this order."""
        if self.keys is None or self.values is None:
            return type(self)()
        return type(self)(self.keys[rows], self.values[rows], self.at)


class MultiHead(nn.Module):
    """Multi-head attention (section 3.2.2): four projections without biases around any variant."""

    def __init__(
        self,
        width: int,
        heads: int,
        key_width: int,
        value_width: int,
        attention: Attention,
        dropout: float,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, heads * key_width, bias=False)
        self.key = nn.Linear(width, heads * key_width, bias=False)
        self.value = nn.Linear(width, heads * value_width, bias=False)
        self.output = nn.Linear(heads * value_width, width, bias=False)
        self.attention = attention
        attention.dropout = dropout

    def split(self, x: Tensor) -> Tensor:
        """[B, T, H·D/H] -> [B, H, T, D/H]."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """[B, H, T, D/H] -> [B, T, D], through the output projection."""
        return self.output(x.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, K, D/H] of ``x`` [B, K, D]."""
        return self.split(self.key(x)), self.split(self.value(x))

    def look(
        self,
        x: Tensor,
        at: Tensor,
        scheme: PositionScheme,
        *,
        key_mask: Tensor | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Self-attention of ``x`` [B, T, D] at ``at`` [T] over itself and what ``cache`` holds."""
        q = scheme.rotate(self.split(self.query(x)), at)
        k, v = self.keys_values(x)
        k, key_at = scheme.rotate(k, at), at
        if cache is not None:
            k, v, key_at = cache.append(k, v, at)
        heads = self.attention(
            q,
            k,
            v,
            query_at=at,
            key_at=key_at,
            key_mask=key_mask,
            causal=causal and len(at) > 1,  # all that is cached lies behind a single query
            bias=scheme.bias if scheme.biased else None,
        )
        if cache is not None:
            cache.forget(self.attention.reach)
        return self.join(heads)

    def consult(
        self,
        x: Tensor,
        keys: Tensor,
        values: Tensor,
        key_mask: Tensor,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Attention of ``x`` [R, T, D] over a memory ``keys``, ``values`` [M, H, S, D/H].

        R is a multiple of M: each run of R/M rows shares one row of the memory, which is never
        copied. ``key_mask`` [M, S] is True where there is memory; ``bias`` [M, H, R/M·T, S] is
        added to the logits.
        """
        fold = len(x) // len(keys)
        q = self.split(self.query(x))  # [R, H, T, D/H]
        steps = q.shape[2]
        if fold > 1:
            q = q.view(-1, fold, *q.shape[1:]).transpose(1, 2).flatten(2, 3)  # [M, H, R/M·T, D/H]
        at = torch.arange(keys.shape[2], device=x.device)
        heads = self.attention(
            q,
            keys,
            values,
            query_at=at[:1].expand(q.shape[2]),
            key_at=at,
            key_mask=key_mask,
            bias=None if bias is None else lambda *_: bias,
        )
        if fold > 1:
            heads = heads.view(*heads.shape[:2], fold, steps, -1).transpose(1, 2).flatten(0, 1)
        return self.join(heads)
