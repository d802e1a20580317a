"""What a model relies on in an attention."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqtrans.attention import Attention, for_each_query_head
from seqtrans.config import Shape
from seqtrans.hooks import Component
from seqtrans.settings import Settings
from seqtrans.testing.models import check_model
from seqtrans.testing.parts import (
    TINY,
    Adding,
    Biasing,
    Turning,
    disturbed,
    expect,
    made,
    same,
    seeded,
    tiny_model,
)

Plain = Callable[..., Tensor]


def check_attention(
    attention: Component | Callable[[Shape], Attention],
    settings: Settings | None = None,
    *,
    plain: Plain | None = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> None:
    """Check an attention, alone and in models with positions that add, turn and bias.

    Args:
        attention: what is checked.
        settings: of a component.
        plain: the same in a way that is slow and plain, with the arguments of ``forward``. By
            default what ``weigh`` gives, a softmax over what ``sees`` shows, so a variant with a
            fast ``forward`` of its own is compared with its own ``sees``. It is computed in fp32.
        device: where it computes.
        dtype: of queries, keys and values, and of all weights.
    """
    device = torch.device(device)

    def build(shape: Shape) -> Attention:
        return made(attention, settings, shape)  # type: ignore[no-any-return]

    with seeded(device=device):
        variant = disturbed(build(TINY)).to(device, dtype).eval()
        heads = Heads(variant, device, dtype)
        reach_holds(variant, heads)
        equals_its_plain_twin(variant, plain or plainly(copy.deepcopy(variant).float()), heads)
        nothing_to_see_gives_zeros(variant, heads)
        dropout_acts(variant, heads)
    for position, causal in itertools.product((Adding, Turning, Biasing), (True, False)):
        check_model(
            lambda: tiny_model(position=position, attention=build, causal=causal),  # noqa: B023
            device=device,
            dtype=dtype,
        )


@dataclass(frozen=True)
class Heads:
    """Random queries, keys and values for an attention, in one place and of one type."""

    variant: Attention
    device: torch.device
    dtype: torch.dtype

    def __call__(self, *lengths: int) -> list[Tensor]:
        """[3, H, length, D/H] each; one length, or one of queries and of others."""
        heads = self.variant.key_heads or TINY.heads
        drawn = (
            torch.randn(3, count, length, TINY.head)
            for count, length in (
                (TINY.heads, lengths[0]),
                (heads, lengths[-1]),
                (heads, lengths[-1]),
            )
        )
        return [x.to(self.device, self.dtype).requires_grad_() for x in drawn]

    def at(self, length: int) -> Tensor:
        """Where so many of them stand."""
        return torch.arange(length, device=self.device)


def plainly(variant: Attention) -> Plain:
    """What a variant computes by the weights that it says it has."""

    def plain(q: Tensor, k: Tensor, v: Tensor, **arguments: Any) -> Tensor:
        return variant.weigh(q, k, **arguments) @ for_each_query_head(v, q)

    return plain


def some_bias(queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
    """A bias [B, H, T, K] that depends on the queries."""
    return queries.mean(-1, keepdim=True) * (query_at[:, None] - key_at).to(queries.dtype)


def equals_its_plain_twin(variant: Attention, plain: Plain, heads: Heads) -> None:
    """Values and gradients are those of the plain way, for a whole and for later pieces."""
    length = 11
    at = heads.at(length)
    mask = at[None, :] < torch.tensor([length, 5, 1], device=at.device)[:, None]
    for first, masked, causal, bias in itertools.product(
        (0, 4, length - 1), (False, True), (False, True), (None, some_bias)
    ):
        query_at = at[first:] if first else at
        q, k, v = heads(len(query_at), length)
        arguments: dict[str, Any] = {
            "query_at": query_at,
            "key_at": at,
            "key_mask": mask if masked else None,
            "causal": causal,
            "bias": bias,
        }
        found = variant(q, k, v, **arguments)
        wanted = plain(q.float(), k.float(), v.float(), **arguments)
        case = (
            f"with queries from {first} on, {'a' if masked else 'no'} mask, "
            f"causal={causal}, {'a' if bias else 'no'} bias"
        )
        same(found, wanted, f"The attention must give the same as its plain twin {case}")
        towards = torch.randn_like(found)
        for name, mine, twin in zip(
            "qkv",
            torch.autograd.grad((found * towards).sum(), (q, k, v), materialize_grads=True),
            torch.autograd.grad((wanted * towards).sum(), (q, k, v), materialize_grads=True),
            strict=True,
        ):
            same(mine, twin, f"Gradients of {name} must be the same as the plain twin's {case}")


def reach_holds(variant: Attention, heads: Heads) -> None:
    """What lies further back than ``reach`` can be left out."""
    if variant.reach is None:
        return
    length = variant.first + variant.reach + 6
    at = heads.at(length)
    q, k, v = heads(1, length)
    kept = torch.cat([at[: variant.first], at[length - 1 - variant.reach :]])
    same(
        variant(q, k[:, :, kept], v[:, :, kept], query_at=at[-1:], key_at=kept),
        variant(q, k, v, query_at=at[-1:], key_at=at),
        f"Keys further back than reach={variant.reach} must be left out or in with the same result",
    )


def nothing_to_see_gives_zeros(variant: Attention, heads: Heads) -> None:
    """A query that may look at nothing gives zeros and finite gradients."""
    at = heads.at(5)
    mask = torch.tensor([[True] * 5, [False] * 5, [True] * 5], device=at.device)
    for causal, bias in itertools.product((False, True), (None, some_bias)):
        q, k, v = heads(5)
        found = variant(q, k, v, query_at=at, key_at=at, key_mask=mask, causal=causal, bias=bias)
        same(found[1], torch.zeros_like(found[1]), "A query that sees nothing must give zeros", 0.0)
        found.square().sum().backward()
        for name, x in zip("qkv", (q, k, v), strict=True):
            expect(
                x.grad is not None and bool(x.grad.isfinite().all()),
                f"Where a query sees nothing the gradient of {name} must be finite.",
            )


def dropout_acts(variant: Attention, heads: Heads) -> None:
    """``dropout`` acts in training only."""
    at = heads.at(9)
    q, k, v = heads(9)
    usual = variant(q, k, v, query_at=at, key_at=at)
    variant.dropout = 0.5
    same(
        variant(q, k, v, query_at=at, key_at=at), usual, "dropout must leave an evaluation the same"
    )
    variant.train()
    dropped = variant(q, k, v, query_at=at, key_at=at)
    variant.eval()
    variant.dropout = 0.0
    expect(
        not torch.equal(dropped, usual),
        "Attention.dropout, which model.attention_dropout sets, must have an effect in training.",
    )
