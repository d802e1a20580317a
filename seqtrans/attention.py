"""Attention (section 3.2): what a variant may change, and the heads and cache it need not think of.

B rows, H heads, T queries, K keys, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

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

    first: int = 0
    """So many positions at the beginning are looked at, and kept in the cache, however far away."""

    key_heads: int | None = None
    """How many heads of keys and values the layer projects, for equally many of the queries' each;
    ``None``: one for each head of the queries."""

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
        hides those that lie ahead. Of keys and values there may be fewer heads, ``key_heads``.
        Gives [B, H, T, D/H].
        """
        seen = self.sees(query_at, key_at)
        dropout = self.dropout if self.training else 0.0
        shared = k.shape[1] != q.shape[1]
        if causal and seen is None and key_mask is None and bias is None and query_at is key_at:
            return F.scaled_dot_product_attention(
                q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=shared
            )
        mask = view(seen, key_mask, query_at, key_at, causal)
        added = mask
        if bias is not None:
            added = bias(q, query_at, key_at).to(q.dtype)
            if mask is not None:
                added = added.masked_fill(~mask, float("-inf"))
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=added, dropout_p=dropout, enable_gqa=shared
        )

    def cache(self) -> Cache:
        """What a decoder layer remembers between steps, before the first; :meth:`extend` fills it.

        A variant that can do with less than keys and values overrides both.
        """
        return KeyValueCache()

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
        """Let ``q``, at ``at`` [T] as the new ``k`` and ``v`` are, look at these and at the past.

        ``cache`` is what :meth:`cache` gave; it takes the new in. Gives [B, H, T, D/H].
        """
        k, v, key_at = cache.append(k, v, at)
        # All that is cached lies behind a single query.
        causal = causal and len(at) > 1
        heads: Tensor = self(q, k, v, query_at=at, key_at=key_at, causal=causal, bias=bias)
        cache.forget(self.reach, self.first)
        return heads

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
        """The weights [B, H, T, K] that :meth:`forward` gives the values: to look at, not fast.

        0 where a query may not look. A variant whose weights are others overrides this; one that
        has none raises ``DataError`` and says why.
        """
        mask = view(self.sees(query_at, key_at), key_mask, query_at, key_at, causal)
        k = for_each_query_head(k, q)
        return weights(q, k, mask, None if bias is None else bias(q, query_at, key_at))


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


def for_each_query_head(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values, each head as often as heads of ``q`` share it: [B, H, K, D/H]."""
    return x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def weights(q: Tensor, k: Tensor, mask: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """The plain twin of the fused kernel: softmax(qk/√d) [B, H, T, K], 0 where ``mask`` hides."""
    logits = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    if bias is not None:
        logits = logits + bias
    if mask is None:
        return logits.softmax(-1)
    # Where a row sees nothing its softmax is NaN, and so are its gradients; both are hidden again.
    return logits.masked_fill(~mask, float("-inf")).softmax(-1).masked_fill(~mask, 0.0)


class Cache(Protocol):
    """What a decoder layer remembers between steps."""

    def select(self, rows: Tensor) -> Self:
        """The same for ``rows`` [R'], in this order; this is left alone."""
        ...


@runtime_checkable
class Rewindable(Cache, Protocol):
    """A cache from which what was read last can be taken back, as drafts of a decoder are."""

    spare: int
    """How many positions it must keep beyond what the next query sees, for :meth:`rewind`."""

    def rewind(self, steps: int) -> None:
        """Take the last ``steps`` positions back, no more than ``spare``."""
        ...


@dataclass
class KeyValueCache:
    """Keys (already rotated) and values [B, H, K, D/H] of what was read, and where each stands."""

    keys: Tensor | None = None
    values: Tensor | None = None
    at: Tensor | None = None
    spare: int = 0

    def append(self, keys: Tensor, values: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Add new keys and values; everything that is now held."""
        if self.keys is None or self.values is None or self.at is None:
            self.keys, self.values, self.at = keys, values, at
        else:
            self.keys = torch.cat([self.keys, keys], 2)
            self.values = torch.cat([self.values, values], 2)
            self.at = torch.cat([self.at, at])
        return self.keys, self.values, self.at

    def forget(self, reach: int | None, first: int = 0) -> None:
        """Keep only what the next query, one position on, can still see, and the ``first``."""
        if reach is None or self.keys is None or self.values is None or self.at is None:
            return
        last = len(self.at) - reach - self.spare
        if last <= first:
            return
        if first == 0:
            self.keys, self.values = self.keys[:, :, last:], self.values[:, :, last:]
            self.at = self.at[last:]
            return
        places = torch.arange(len(self.at), device=self.at.device)
        kept = torch.cat([places[:first], places[last:]])
        self.keys, self.values = self.keys[:, :, kept], self.values[:, :, kept]
        self.at = self.at[kept]

    def select(self, rows: Tensor) -> Self:
        """The cache of these rows, in this order."""
        if self.keys is None or self.values is None:
            return type(self)(spare=self.spare)
        return type(self)(self.keys[rows], self.values[rows], self.at, self.spare)

    def rewind(self, steps: int) -> None:
        """Take the last ``steps`` positions back: with a reach, no more than ``spare``."""
        if steps and self.keys is not None and self.values is not None and self.at is not None:
            self.keys, self.values = self.keys[:, :, :-steps], self.values[:, :, :-steps]
            self.at = self.at[:-steps]


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
        self.key_heads = heads if attention.key_heads is None else attention.key_heads
        self.key = nn.Linear(width, self.key_heads * key_width, bias=False)
        self.value = nn.Linear(width, self.key_heads * value_width, bias=False)
        self.output = nn.Linear(heads * value_width, width, bias=False)
        self.attention = attention
        attention.dropout = dropout

    def split(self, x: Tensor, heads: int) -> Tensor:
        """[B, T, H·D/H] -> [B, H, T, D/H]."""
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """[B, H, T, D/H] -> [B, T, D], through the output projection."""
        return self.output(x.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, K, D/H] of ``x`` [B, K, D], in as many heads as they have."""
        return self.split(self.key(x), self.key_heads), self.split(self.value(x), self.key_heads)

    def look(
        self,
        x: Tensor,
        at: Tensor,
        scheme: PositionScheme,
        *,
        key_mask: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
    ) -> Tensor:
        """Self-attention of ``x`` [B, T, D] at ``at`` [T] over itself and what ``cache`` holds."""
        q = scheme.rotate(self.split(self.query(x), self.heads), at)
        k, v = self.keys_values(x)
        k = scheme.rotate(k, at)
        bias = scheme.bias if scheme.biased else None
        if cache is None:
            heads = self.attention(
                q, k, v, query_at=at, key_at=at, key_mask=key_mask, causal=causal, bias=bias
            )
        else:
            heads = self.attention.extend(q, k, v, at=at, cache=cache, causal=causal, bias=bias)
        return self.join(heads)

    def consult(
        self,
        x: Tensor,
        keys: Tensor,
        values: Tensor,
        key_mask: Tensor | None,
        bias: Tensor | None = None,
        looks: list[Tensor] | None = None,
    ) -> Tensor:
        """Attention of ``x`` [R, T, D] over a memory ``keys``, ``values`` [M, H, S, D/H].

        R is a multiple of M: each run of R/M rows shares one row of the memory, which is never
        copied. ``key_mask`` [M, S] is True where there is memory, ``None`` if that is everywhere;
        ``bias`` [M, H, R/M·T, S] is added to the logits. To ``looks``, if given, the weights
        [R, T, S] are appended, the mean of all heads.
        """
        fold = len(x) // len(keys)
        q = self.split(self.query(x), self.heads)  # [R, H, T, D/H]
        steps = q.shape[2]
        if fold > 1:
            q = q.view(-1, fold, *q.shape[1:]).transpose(1, 2).flatten(2, 3)  # [M, H, R/M·T, D/H]
        at = torch.arange(keys.shape[2], device=x.device)
        where: dict[str, Any] = {
            "query_at": at[:1].expand(q.shape[2]),
            "key_at": at,
            "key_mask": key_mask,
            "bias": None if bias is None else lambda *_: bias,
        }
        heads = self.attention(q, keys, values, **where)
        if looks is not None:
            weights = self.attention.weigh(q, keys, **where)  # [M, H, R/M·T, S]
            looks.append(weights.float().mean(1).view(len(x), steps, -1))
        if fold > 1:
            heads = heads.view(*heads.shape[:2], fold, steps, -1).transpose(1, 2).flatten(0, 1)
        return self.join(heads)
