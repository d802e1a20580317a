"""Attentions: all that are offered, and restricted ones that show what the interface carries."""

from __future__ import annotations

import itertools
from typing import Any

import components
import pytest
import torch
from torch import Tensor

from seqtrans.attention import Attention, KeyValueCache, MultiHead, view, weights
from seqtrans.config import Shape
from seqtrans.errors import SettingsError
from seqtrans.plugins import registry
from seqtrans.settings import NoSettings
from seqtrans.testing import TINY, check_attention, tiny_model
from seqtrans_plugins import GroupedSettings
from seqtrans_plugins.grouped import Grouped
from seqtrans_plugins.linear import Linear
from seqtrans_plugins.none import Nothing

OFFERED = [pytest.param(o.component, id=o.component.name) for o in registry().all("attention")]
ALL = [*OFFERED, *(pytest.param(a, id=a.__name__) for a in components.ATTENTIONS)]


@pytest.mark.parametrize("attention", ALL)
def test_keeps_what_the_engine_relies_on(attention: Any) -> None:
    check_attention(attention, components.SMALL.get(getattr(attention, "name", "")))


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


def test_a_cache_keeps_the_first() -> None:
    cache = KeyValueCache()
    for first in range(0, 10, 2):
        at = torch.arange(first, first + 2)
        keys = at.float().view(1, 1, -1, 1)
        held, _, held_at = cache.append(keys, -keys, at)
        assert held.flatten().tolist() == held_at.tolist()
        cache.forget(3, 2)
    assert cache.at is not None
    assert cache.at.tolist() == [0, 1, 7, 8, 9]


# Grouped queries.


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_groups_share_keys_and_values(key_heads: int) -> None:
    """The same as with all heads where the keys and values of a group's heads are alike."""
    shape = TINY.model_copy(update={"heads": 4})
    grouped = Grouped(GroupedSettings(key_heads=key_heads), shape)
    few = MultiHead(16, 4, 4, 4, grouped, 0.0)
    many = MultiHead(16, 4, 4, 4, Attention(), 0.0)
    assert few.key.weight.shape == (4 * key_heads, 16)
    with torch.no_grad():
        many.query.weight.copy_(few.query.weight)
        many.output.weight.copy_(few.output.weight)
        for name in ("key", "value"):
            weight = getattr(few, name).weight.view(key_heads, 4, 16)
            repeated = weight.repeat_interleave(4 // key_heads, 0).flatten(0, 1)
            getattr(many, name).weight.copy_(repeated)
    x, at, scheme = torch.randn(2, 5, 16), torch.arange(5), Nothing(NoSettings(), shape)
    assert torch.allclose(few.look(x, at, scheme), many.look(x, at, scheme), atol=1e-6)


def test_groups_must_be_equal() -> None:
    with pytest.raises(SettingsError) as error:
        Grouped(GroupedSettings(key_heads=3), TINY)
    assert str(error.value) == "attention.key_heads: must divide model.heads=2, and 3 doesn't"


# Linear attention.


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_linear_attention_over_many_chunks(length: int) -> None:
    """Equations 4 and 9, values and gradients, in one and in parts."""
    linear = Linear(NoSettings(), TINY)
    q, k, v = (torch.randn(2, 2, length, 8, requires_grad=True) for _ in range(3))
    at = torch.arange(length)
    found = linear(q, k, v, query_at=at, key_at=at, causal=True)
    wanted = linear.weigh(q, k, query_at=at, key_at=at, causal=True) @ v
    assert torch.allclose(found, wanted, atol=1e-5)
    towards = torch.randn_like(found)
    for mine, twin in zip(
        torch.autograd.grad((found * towards).sum(), (q, k, v)),
        torch.autograd.grad((wanted * towards).sum(), (q, k, v)),
        strict=True,
    ):
        assert torch.allclose(mine, twin, atol=1e-4)
    cache = linear.cache()
    parts = [
        linear.extend(
            q[:, :, a:b], k[:, :, a:b], v[:, :, a:b], at=at[a:b], cache=cache, causal=True
        )
        for a, b in itertools.pairwise(sorted({0, 1, length // 3, length // 2, length}))
        if a < b
    ]
    assert torch.allclose(torch.cat(parts, 2), found, atol=1e-5)
    assert cache.sums is not None
    assert cache.sums.shape == (2, 2, 8, 9)  # whatever the length
    assert cache.kept.at is None


def test_linear_attention_with_large_biases() -> None:
    linear = Linear(NoSettings(), TINY)
    q, k, v = torch.randn(3, 1, 2, 4, 8)
    at = torch.arange(4)

    def bias(queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        return 1000.0 * (key_at - query_at[:, None]).float()

    found = linear(q, k, v, query_at=at, key_at=at, bias=bias)
    assert torch.allclose(found, v[:, :, -1:].expand_as(v), atol=1e-5)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_linear_attention_sums_in_fp32_under_autocast(kind: torch.dtype) -> None:
    """The result is what fp32 makes of the same inputs, rounded once."""
    linear, length = Linear(NoSettings(), TINY), 200
    heads = [torch.randn(2, 2, length, 8).to(kind).requires_grad_() for _ in range(3)]
    plain = [x.detach().float().requires_grad_() for x in heads]
    at, mask = torch.arange(length), torch.arange(length) < torch.tensor([[length], [150]])
    ways: list[dict[str, Any]] = [{"causal": True}, {}, {"key_mask": mask}]
    for way in ways:
        wanted = linear(*plain, query_at=at, key_at=at, **way)
        weights = linear.weigh(*plain[:2], query_at=at, key_at=at, **way)
        with torch.autocast("cpu", torch.bfloat16):
            found = linear(*heads, query_at=at, key_at=at, **way)
            assert torch.equal(linear.weigh(*heads[:2], query_at=at, key_at=at, **way), weights)
        assert torch.equal(found, wanted.to(kind))
        towards = torch.randn(found.shape).to(kind)
        mine = torch.autograd.grad(found, heads, towards)
        for one, other in zip(
            mine, torch.autograd.grad(wanted, plain, towards.float()), strict=True
        ):
            assert torch.equal(one, other.to(kind))
    for causal in (True, False):
        caches = linear.cache(), linear.cache()
        for part in (slice(0, 70), slice(70, 71)):
            past = [[x.detach()[:, :, part].contiguous() for x in y] for y in (heads, plain)]
            with torch.autocast("cpu", torch.bfloat16):
                found = linear.extend(*past[0], at=at[part], cache=caches[0], causal=causal)
            wanted = linear.extend(*past[1], at=at[part], cache=caches[1], causal=causal)
            assert torch.equal(found, wanted.to(kind))
            assert caches[0].sums is not None
            assert caches[1].sums is not None
            assert caches[0].sums.dtype == torch.float32
            assert torch.equal(caches[0].sums, caches[1].sums)


def test_attention_dropout_reaches_every_layer() -> None:
    model = tiny_model(attention_dropout=0.25)
    variants = [module for module in model.modules() if isinstance(module, Attention)]
    assert len(variants) == 6
    assert {variant.dropout for variant in variants} == {0.25}
