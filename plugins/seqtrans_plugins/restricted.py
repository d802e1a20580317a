"""Restricted attention (section 4): a query looks no further than a reach, at a cost of O(r·n·d).

Queries are taken in blocks. Each block is given one window of keys, which holds all that any of its
queries sees; neighbouring windows overlap, and are views of the same memory. So time and memory
grow with the length, not with its square. Both sides are seen where nothing hides what lies ahead.

On CUDA a whole sequence is left to a block-sparse kernel (`seqtrans_plugins.block_sparse`), which
holds neither a position scheme's bias nor dropout: with these, and for what comes after a cache,
windows are used there, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqtrans.attention import Attention, Bias
from seqtrans_plugins import RestrictedSettings, block_sparse

if TYPE_CHECKING:
    from seqtrans.config import Shape

SMALLEST = 64
"""Queries of a block at least: matrices that are smaller are multiplied at a lower speed."""


class Restricted(Attention):
    """A query sees the keys no more than ``reach`` positions away.

    Queries and keys must be consecutive, as they are in a sequence and after a cache.
    """

    sparse: bool = True
    """Whether the block-sparse kernel is used where it can be; the results are the same."""

    def __init__(self, settings: RestrictedSettings, shape: Shape) -> None:
        super().__init__()
        self.reach: int = settings.reach
        self.block = settings.block or max(SMALLEST, settings.reach)

    def sees(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        return (query_at[:, None] - key_at).abs() <= self.reach  # [T, K]

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
        after = 0 if causal else self.reach
        dropout = self.dropout if self.training else 0.0
        if self.reach + self.block + after >= k.shape[2]:  # a single window holds all keys
            return super().forward(
                q,
                k,
                v,
                query_at=query_at,
                key_at=key_at,
                key_mask=key_mask,
                causal=causal,
                bias=bias,
            )
        whole = query_at is key_at
        if (
            self.sparse
            and whole
            and bias is None
            and not dropout
            and block_sparse.suits(q, v, self.reach, causal)
        ):
            return block_sparse.attend(q, k, v, key_mask, self.reach, causal)
        first = 0 if whole else int(query_at[0] - key_at[0])
        blocks = Blocks(first, q.shape[2], k.shape[2], self.block, self.reach, after)
        added = blocks.mask(key_mask, k.device)
        if bias is not None:
            added = blocks.bias(bias, q, query_at, key_at).masked_fill(~added, float("-inf"))
        heads = F.scaled_dot_product_attention(
            blocks.queries(q),
            blocks.windows(k),
            blocks.windows(v),
            attn_mask=added.expand(len(q), *added.shape[1:]).flatten(0, 1),
            dropout_p=dropout,
        )
        return blocks.join(heads)


@dataclass(frozen=True)
class Blocks:
    """How T queries, the first of which stands at the ``first`` of K keys, are cut into N blocks.

    The window of a block begins ``before`` its first query and ends ``after`` its last one. It may
    reach beyond the keys, which are padded there. W keys of a window, b queries of a block.
    """

    first: int
    queries_in_all: int
    keys: int
    block: int
    before: int
    after: int

    @property
    def count(self) -> int:
        """N."""
        return -(-self.queries_in_all // self.block)

    @property
    def length(self) -> int:
        """W."""
        return self.before + self.block + self.after

    @property
    def padding(self) -> tuple[int, int]:
        """Keys to be added at both ends; where it is negative, so many are cut off."""
        left = self.before - self.first
        return left, self.count * self.block + self.before + self.after - left - self.keys

    def queries(self, q: Tensor) -> Tensor:
        """[B, H, T, D/H] -> [B·N, H, b, D/H], the last block padded."""
        q = q.transpose(1, 2)  # [B, T, H, D/H], as it was projected
        if missing := self.count * self.block - self.queries_in_all:
            q = F.pad(q, (0, 0, 0, 0, 0, missing))
        return q.reshape(-1, self.block, *q.shape[2:]).transpose(1, 2)

    def windows(self, x: Tensor) -> Tensor:
        """Keys or values [B, H, K, D/H] -> [B·N, H, W, D/H]."""
        padded = F.pad(x.transpose(1, 2), (0, 0, 0, 0, *self.padding))  # [B, K', H, D/H]
        found: Tensor = Windows.apply(padded, self.block, self.length)  # type: ignore[no-untyped-call]
        return found.flatten(0, 1)

    def join(self, heads: Tensor) -> Tensor:
        """[B·N, H, b, D/H] -> [B, H, T, D/H]."""
        x = heads.transpose(1, 2)  # [B·N, b, H, D/H]
        x = x.reshape(-1, self.count * self.block, *x.shape[2:])
        return x[:, : self.queries_in_all].transpose(1, 2)

    def places(self, device: torch.device) -> Tensor:
        """[N, W]: which key stands where in each window; some are none of the K."""
        starts = torch.arange(self.count, device=device) * self.block + self.first - self.before
        return starts[:, None] + torch.arange(self.length, device=device)

    def mask(self, key_mask: Tensor | None, device: torch.device) -> Tensor:
        """[B or 1, N, 1, b, W]: what each query sees."""
        query = torch.arange(self.block, device=device)[:, None] + self.before
        away = torch.arange(self.length, device=device) - query
        near = (away >= -self.before) & (away <= self.after)  # [b, W]
        if key_mask is None:
            places = self.places(device)
            there = ((places >= 0) & (places < self.keys))[None]  # [1, N, W]
        else:
            there = F.pad(key_mask, self.padding).unfold(1, self.length, self.block)  # [B, N, W]
        return (near & there[:, :, None, :])[:, :, None]

    def bias(self, bias: Bias, q: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        """[B or 1, N, H or 1, b, W], asked for only where a window is."""
        places = key_at[0] + self.places(q.device).clamp(0, self.keys - 1)
        each = places.repeat_interleave(self.block, 0)[: self.queries_in_all]  # [T, W]
        return self.blocked(bias(q, query_at, each).to(q.dtype), self.length)

    def blocked(self, bias: Tensor, keys: int) -> Tensor:
        """What is broadcastable to [B, H, T, ``keys``] -> [B or 1, N, H or 1, b, ``keys``]."""
        bias = bias.expand(*bias.shape[:-2], self.queries_in_all, keys)
        bias = bias[(None,) * (4 - bias.dim())]
        missing = self.count * self.block - self.queries_in_all
        bias = F.pad(bias, (0, 0, 0, missing))
        return bias.reshape(*bias.shape[:2], self.count, self.block, keys).transpose(1, 2)


class Windows(torch.autograd.Function):
    """Overlapping views of [B, K', H, D/H] as [B, N, H, W, D/H]; N windows start a block apart.

    What autograd has for such views adds gradients up one by one; here a block is added at a time.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: int, length: int) -> Tensor:
        x = x.contiguous()
        ctx.shape, ctx.block = x.shape, block
        rows, keys, heads, width = x.shape
        row, key, head, one = x.stride()
        count = (keys - length) // block + 1
        return x.as_strided((rows, count, heads, length, width), (row, block * key, head, key, one))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        [gradient] = gradients
        gradient = gradient.transpose(2, 3)  # [B, N, W, H, D/H]
        rows, count, length, heads, width = gradient.shape
        block = ctx.block
        parts = -(-length // block)
        total = gradient.new_zeros(rows, count + parts - 1, block, heads, width)
        for part in range(parts):
            piece = gradient[:, :, part * block : (part + 1) * block]
            total[:, part : part + count, : piece.shape[2]] += piece
        return total.flatten(1, 2)[:, : ctx.shape[1]], None, None
