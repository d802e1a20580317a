"""Restricted attention with global tokens (Longformer, Beltagy et al., 2020, section 3.1).

The first few positions are seen by all, and see all; the others see their neighbourhood besides. In
a decoder these are the attention sinks of Xiao et al. (2024). Time and memory are O((r + g)·n·d).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from seqtrans.attention import Attention, Bias
from seqtrans_plugins import GlobalSettings
from seqtrans_plugins.restricted import Blocks, Restricted

if TYPE_CHECKING:
    from seqtrans.config import Shape


class Global(Restricted):
    """A query sees the keys no more than ``reach`` away and the ``first`` ones, which see all.

    Keys are consecutive from position 0 on, except that some after the first may have been
    forgotten; queries are consecutive.
    """

    def __init__(self, settings: GlobalSettings, shape: Shape) -> None:
        super().__init__(settings, shape)
        self.first = settings.first

    def sees(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        near = super().sees(query_at, key_at)
        return near | (key_at < self.first) | (query_at[:, None] < self.first)  # [T, K]

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
        if self.first + self.reach + self.block + after >= k.shape[2]:  # one window holds all keys
            return self.plainly(q, k, v, query_at, key_at, key_mask, causal, bias)
        start, rest = 0, self.first
        if query_at is not key_at:
            start, rest = int(query_at[0]), int(key_at[self.first])
        blocks = Blocks(
            start - rest, q.shape[2], k.shape[2] - self.first, self.block, self.reach, after
        )
        heads = F.scaled_dot_product_attention(
            blocks.queries(q),
            self.keys(k, blocks),
            self.keys(v, blocks),
            attn_mask=self.added(q, query_at, key_at, key_mask, causal, bias, blocks, start),
            dropout_p=self.dropout if self.training else 0.0,
        )
        heads = blocks.join(heads)
        seers = min(max(0, self.first - start), q.shape[2])
        if causal or seers == 0:  # what the first see of what lies behind is among the first
            return heads
        seeing = self.plainly(
            q[:, :, :seers], k, v, query_at[:seers], key_at, key_mask, causal, bias
        )
        return torch.cat([seeing, heads[:, :, seers:]], 2)

    def plainly(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        query_at: Tensor,
        key_at: Tensor,
        key_mask: Tensor | None,
        causal: bool,
        bias: Bias | None,
    ) -> Tensor:
        """By a mask over all keys."""
        return Attention.forward(
            self,
            q,
            k,
            v,
            query_at=query_at,
            key_at=key_at,
            key_mask=key_mask,
            causal=causal,
            bias=bias,
        )

    def keys(self, x: Tensor, blocks: Blocks) -> Tensor:
        """Keys or values [B, H, K, D/H] -> [B·N, H, g + W, D/H]: the first and each window."""
        first = x[:, None, :, : self.first].expand(-1, blocks.count, -1, -1, -1).flatten(0, 1)
        return torch.cat([first, blocks.windows(x[:, :, self.first :])], 2)

    def added(
        self,
        q: Tensor,
        query_at: Tensor,
        key_at: Tensor,
        key_mask: Tensor | None,
        causal: bool,
        bias: Bias | None,
        blocks: Blocks,
        start: int,
    ) -> Tensor:
        """[B·N, H or 1, b, g + W]: what is seen, or the bias and -inf where nothing is."""
        g = self.first
        near = blocks.mask(None if key_mask is None else key_mask[:, g:], q.device)
        at = start + torch.arange(blocks.count * blocks.block, device=q.device)
        far = at[:, None] >= key_at[:g] if causal else at[:, None] >= 0  # [T', g]
        far = far.expand(-1, g).reshape(1, blocks.count, 1, blocks.block, g)
        if key_mask is not None:
            far = far & key_mask[:, None, None, None, :g]
        added = torch.cat([far.expand(len(near), -1, -1, -1, -1), near], -1)
        if bias is not None:
            first = blocks.blocked(bias(q, query_at, key_at[:g]).to(q.dtype), g)
            each = blocks.bias(bias, q, query_at, key_at[g:])
            added = torch.cat([first, each], -1).masked_fill(~added, float("-inf"))
        return added.expand(len(q), *added.shape[1:]).flatten(0, 1)
