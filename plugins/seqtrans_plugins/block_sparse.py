"""Restricted attention on a GPU by a block-sparse kernel (FlexAttention, Dong et al., 2024).

Queries and keys are cut into blocks. The kernel visits only those pairs of blocks in which anything
is seen, a band, and asks inside them of each query and key whether it is; scores stay in registers.
Time and memory are those of the band, but for a map of the blocks, (n/128)² small numbers.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

BLOCK = 128
"""Queries, and keys, of a block; what the kernel is tuned for."""
WIDTHS = (16, 32, 64, 128)
"""Widths of heads that its tiles are made for on all GPUs, in fp32, too."""
KINDS = (torch.float32, torch.bfloat16, torch.float16)
COMPILER = importlib.util.find_spec("triton") is not None
"""Whether the kernel can be compiled here at all."""
VARIANTS = 64
"""Kernels that may be compiled: for shapes that vary or don't, batches of one, with gradients or
without, and heads of each model in a process. Beyond its own limit of eight, torch would fall back
to what materialises all scores.
"""


def suits(q: Tensor, v: Tensor, reach: int, causal: bool) -> bool:
    """Whether the kernel can compute ``q`` [B, H, T, D/H] over ``v`` [B, H, T, E/H], and saves some
    of its blocks.
    """
    before, after = around(reach, causal)
    return (
        q.device.type == "cuda"
        and COMPILER
        and q.dtype in KINDS
        and q.shape[-1] in WIDTHS
        and v.shape[-1] in WIDTHS
        and blocks(q.shape[2]) > before + 1 + after
    )


def attend(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, reach: int, causal: bool
) -> Tensor:
    """Let ``q`` look at ``k`` and ``v``, all [B, H, T, D/H], no more than ``reach`` away.

    ``key_mask`` [B, T] is True where there is a key; ``causal`` hides those that lie ahead. A query
    that sees nothing gives zeros.
    """
    heads: Tensor = kernel()(q, k, v, block_mask=mask(q, key_mask, reach, causal))
    return heads


@cache
def kernel() -> Callable[..., Any]:
    """FlexAttention, compiled when it is first called."""
    import torch._dynamo

    config = torch._dynamo.config
    config.recompile_limit = max(VARIANTS, config.recompile_limit)
    return torch.compile(flex_attention)


def blocks(length: int) -> int:
    """How many there are, the last one not always full."""
    return -(-length // BLOCK)


def around(reach: int, causal: bool) -> tuple[int, int]:
    """How many blocks are seen from a block before and after it."""
    far = blocks(reach)
    return far, 0 if causal else far


def mask(q: Tensor, key_mask: Tensor | None, reach: int, causal: bool) -> BlockMask:
    """Which blocks the queries ``q`` [B, H, T, D/H] see, and which keys inside them."""
    rows, length, device = len(q), q.shape[2], q.device
    at = torch.arange(length, device=device)
    # As tensors, not numbers: for other numbers there would be another kernel.
    first, last = at - reach, at if causal else at + reach
    if key_mask is None:
        key_mask = torch.ones(rows, length, dtype=torch.bool, device=device)

    def sees(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (first[query] <= key) & (key <= last[query]) & key_mask[row, key]

    before, after = around(reach, causal)
    of_keys, keys = band(blocks(length), before, after, device)
    of_queries, queries = band(blocks(length), after, before, device)
    return BlockMask(
        seq_lengths=(length, length),
        kv_num_blocks=of_keys,
        kv_indices=keys,
        full_kv_num_blocks=None,
        full_kv_indices=None,
        q_num_blocks=of_queries,
        q_indices=queries,
        full_q_num_blocks=None,
        full_q_indices=None,
        BLOCK_SIZE=(BLOCK, BLOCK),
        mask_mod=sees,
    )


@lru_cache(maxsize=64)
def band(count: int, before: int, after: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each of ``count`` blocks how many it sees, [1, 1, N], and which, [1, 1, N, N]: so many
    ``before`` and ``after`` it and itself come first.
    """
    # What is made in inference mode could not be used in training afterwards.
    with torch.inference_mode(False):
        at = torch.arange(count, device=device)
        first, last = (at - before).clamp(min=0), (at + after).clamp(max=count - 1)
        order = (first[:, None] + at) % count
        return (last - first + 1).int()[None, None], order.int()[None, None]
