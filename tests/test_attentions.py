"""Attentions: all that are offered, and restricted ones that show what the interface carries."""

from __future__ import annotations

from typing import Any

import components
import pytest
import torch
from torch import Tensor

from seqtrans.attention import Attention, KeyValueCache, view, weights
from seqtrans.config import Shape
from seqtrans.plugins import registry
from seqtrans.testing import check_attention, tiny_model

OFFERED = [pytest.param(o.component, id=o.component.name) for o in registry().all("attention")]
ALL = [*OFFERED, *(pytest.param(a, id=a.__name__) for a in components.ATTENTIONS)]


@pytest.mark.parametrize("attention", ALL)
def test_keeps_what_the_engine_relies_on(attention: Any) -> None:
    check_attention(attention)


class Forgetful(components.Seen):
    """Says that it looks less far back than it does."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.reach = 1

    def sees(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        return (query_at[:, None] - key_at).abs() <= 3


class Nan(components.Gathered):
    """A softmax over nothing."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **more: Any) -> Tensor:
        seen = view(None, more["key_mask"], more["query_at"], more["key_at"], more["causal"])
        logits = q @ k.mT / q.shape[-1] ** 0.5
        if more["bias"]:
            logits = logits + more["bias"](q, more["query_at"], more["key_at"])
        if seen is not None:
            logits = logits.masked_fill(~seen, float("-inf"))
        return torch.nn.functional.dropout(logits.softmax(-1), self.dropout, self.training) @ v

    reach = None  # type: ignore[assignment]

    def sees(self, query_at: Tensor, key_at: Tensor) -> None:  # type: ignore[override]
        return None


class Deaf(Attention):
    """Knows nothing of dropout."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def forward(self, *heads: Tensor, **more: Any) -> Tensor:
        self.dropout = 0.0
        return super().forward(*heads, **more)


class Blunt(Attention):
    """Leaves the bias out."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def forward(self, *heads: Tensor, **more: Any) -> Tensor:
        return super().forward(*heads, **{**more, "bias": None})


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (
            Forgetful,
            "Keys further back than reach=1 must be left out or in with the same result, "
            "but they differ by up to ",
        ),
        (Nan, "A query that sees nothing must give zeros, but they differ by up to nan"),
        (
            Deaf,
            "Attention.dropout, which model.attention_dropout sets, must have an effect in "
            "training.",
        ),
        (
            Blunt,
            "The attention must give the same as its plain twin with queries from 0 on, no mask, "
            "causal=False, a bias, but they differ by up to ",
        ),
    ],
)
def test_the_kit_finds_what_is_wrong(broken: Any, sentence: str) -> None:
    with pytest.raises(AssertionError) as error:
        check_attention(broken)
    assert str(error.value).startswith(sentence)


def test_the_true_cost_twin_is_compared_with_a_plain_one_that_is_given() -> None:
    def zeros(q: Tensor, k: Tensor, v: Tensor, **more: Any) -> Tensor:
        return torch.zeros_like(q)

    with pytest.raises(AssertionError, match="must give the same as its plain twin"):
        check_attention(components.Gathered, plain=zeros)


def test_weights_sum_to_one_where_something_is_seen() -> None:
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8)
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    mask[1] = False
    total = weights(q, k, mask).sum(-1)
    assert torch.allclose(total[0], torch.ones(3, 4))
    assert total[1].eq(0).all()


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_cache_keeps_no_more_than_is_reached(steps: int) -> None:
    cache = KeyValueCache()
    for first in range(0, 10, steps):
        at = torch.arange(first, first + steps)
        keys = at.float().view(1, 1, -1, 1)
        held, _, held_at = cache.append(keys, -keys, at)
        assert held.flatten().tolist() == held_at.tolist()
        assert held_at.tolist() == list(range(max(0, first - 3), first + steps))
        cache.forget(3)
    assert cache.at is not None
    assert cache.at.tolist() == [7, 8, 9]
    assert KeyValueCache().select(torch.tensor([0])) == KeyValueCache()


def test_attention_dropout_reaches_every_layer() -> None:
    model = tiny_model(attention_dropout=0.25)
    variants = [module for module in model.modules() if isinstance(module, Attention)]
    assert len(variants) == 6
    assert {variant.dropout for variant in variants} == {0.25}
