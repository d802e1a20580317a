"""Position schemes: all that are offered, by the kit and by what their papers say."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import components
import pytest
import torch
from torch import Tensor, nn

from seqtrans.config import Shape
from seqtrans.errors import DataError, SettingsError
from seqtrans.hooks import Component
from seqtrans.plugins import registry
from seqtrans.position import PositionScheme, sinusoid
from seqtrans.settings import NoSettings
from seqtrans.testing import TINY, check_position, tiny_model
from seqtrans_plugins import LearnedSettings, RelativeSettings, RotarySettings, T5Settings
from seqtrans_plugins.alibi import Alibi, slopes
from seqtrans_plugins.learned import Learned
from seqtrans_plugins.none import Nothing
from seqtrans_plugins.relative import Relative
from seqtrans_plugins.rotary import Rotary
from seqtrans_plugins.t5 import Buckets

OFFERED = [pytest.param(o.component, id=o.component.name) for o in registry().all("position")]


@pytest.mark.parametrize("position", OFFERED)
def test_keeps_what_the_engine_relies_on(position: Component) -> None:
    check_position(position, components.SMALL.get(position.name))


def scheme_builder(position: Component) -> Callable[[Shape], PositionScheme]:
    return lambda shape: position.make(position.settings(), shape)


class ByLength(PositionScheme):
    """Positions relative to the length of what happens to be in the tensor."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        return (x + sinusoid(at / x.shape[1], x.shape[2])).to(x.dtype)


class InBfloat(PositionScheme):
    """Frequencies that are cast with the weights."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.register_buffer("angle", torch.tensor(1.0))

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        assert isinstance(self.angle, Tensor)
        return x + (at.to(x.dtype) * self.angle)[..., None].sin()


class Unlimited(PositionScheme):
    """A table with fewer positions than it says."""

    limit = 12

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.table = nn.Embedding(9, shape.width)

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        return x + self.table(at)  # type: ignore[no-any-return]


class FlatKeys(PositionScheme):
    """A bias that does not know keys [T, K]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def bias(self, queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        return -(query_at[:, None] - key_at.view(-1, key_at.shape[-1])[0]).abs().float()


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (
            ByLength,
            "embed() must depend on positions alone, so that a part of the tokens gives the same, "
            "but they differ by up to *; 1e-05 is allowed.",
        ),
        (
            InBfloat,
            "embed() must take positions in fp32, also in bf16, but they differ by up to *; "
            "* is allowed.",
        ),
        (
            FlatKeys,
            "bias() must take keys [T, K], others for each query, as it takes [K], with the same "
            "result, but they differ by up to *; 1e-05 is allowed.",
        ),
    ],
)
def test_the_kit_finds_what_is_wrong(broken: Any, sentence: str) -> None:
    with pytest.raises(AssertionError) as error:
        check_position(broken)
    assert re.fullmatch(re.escape(sentence).replace(r"\*", r"[\d.e+-]+"), str(error.value))


def test_the_kit_finds_a_limit_that_does_not_hold() -> None:
    with pytest.raises(IndexError):
        check_position(Unlimited)


def test_beyond_the_limit() -> None:
    model = tiny_model(position=lambda shape: Learned(LearnedSettings(limit=4), shape))
    source, mask = torch.full((1, 5), 3), torch.ones(1, 5, dtype=torch.bool)
    with pytest.raises(DataError) as error:
        model.start(source, mask)
    assert str(error.value) == (
        "a source of 5 positions is longer than the 4 that this model's position scheme was "
        "built for."
    )
    state = model.start(source[:, :4], mask[:, :4])
    model.advance(source[:, :3], state)
    with pytest.raises(DataError) as error:
        model.advance(source[:, :2], state)
    assert str(error.value) == (
        "a target of 5 positions is longer than the 4 that this model's position scheme was "
        "built for."
    )
    assert model.advance(source[:, :1], state).shape == (1, 1, 12)


def test_a_model_runs_in_bf16() -> None:
    for position in (scheme_builder(o.component) for o in registry().all("position")):
        model = tiny_model(position=position).bfloat16().eval()
        source, mask = torch.full((1, 5), 3), torch.ones(1, 5, dtype=torch.bool)
        logits = model(source, mask, source)
        assert logits.dtype == torch.bfloat16
        assert logits.isfinite().all()


def test_a_scheme_without_a_bias_is_not_asked_for_one() -> None:
    scheme = Nothing(NoSettings(), TINY)
    assert not scheme.biased
    assert Alibi(NoSettings(), TINY).biased
    with pytest.raises(NotImplementedError):
        scheme.bias(torch.zeros(1, 2, 1, 8), torch.arange(1), torch.arange(1))


# What their papers say.


def test_rotary_turns_pairs_by_their_angles() -> None:
    """Equation 15, as complex numbers: coordinates 2i and 2i + 1 by position / base^(2i/d)."""
    at, base = torch.tensor([0, 1, 5, 900]), 500.0
    heads = torch.randn(2, 2, 4, 8)
    turned = Rotary(RotarySettings(base=base), TINY).rotate(heads, at)
    pairs = torch.view_as_complex(heads.unflatten(-1, (4, 2)).double())  # type: ignore[no-untyped-call]
    angles = at[:, None] * base ** (-torch.arange(0, 8, 2).double() / 8)
    wanted = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles))
    assert torch.allclose(turned.double(), wanted.flatten(-2), atol=1e-3)
    assert torch.allclose(turned[:, :, :3].double(), wanted.flatten(-2)[:, :, :3], atol=1e-5)


def test_rotary_products_depend_on_the_distance_alone() -> None:
    scheme = Rotary(RotarySettings(), TINY)
    q, k = torch.randn(2, 1, 1, 1, 8)
    products = [
        (scheme.rotate(q, torch.tensor([at])) * scheme.rotate(k, torch.tensor([at + 7]))).sum()
        for at in (0, 3, 50)
    ]
    assert torch.allclose(products[0], torch.stack(products), atol=1e-4)


def test_rotary_refuses_heads_of_odd_width() -> None:
    with pytest.raises(SettingsError) as error:
        Rotary(RotarySettings(), TINY.model_copy(update={"key_width": 5}))
    assert str(error.value) == (
        "position: rotary turns pairs of coordinates, but the width of a head's queries and keys "
        "is odd, 5; set model.key_width"
    )


def test_alibi_slopes() -> None:
    """Section 3 for 8 and 16 heads; for other numbers as in the authors' code."""
    assert slopes(8) == [2.0**-head for head in range(1, 9)]
    assert slopes(16) == [2.0 ** (-head / 2) for head in range(1, 17)]
    assert slopes(12) == slopes(8) + slopes(16)[0:8:2]
    assert slopes(1) == [2.0**-8]
    assert slopes(3) == slopes(2) + slopes(4)[0:2:2]
    for heads in range(1, 40):
        found = slopes(heads)
        assert len(set(found)) == heads
        assert all(2.0**-8 <= slope < 1 for slope in found)


def test_alibi_is_minus_slope_times_distance() -> None:
    scheme = Alibi(NoSettings(), TINY)
    bias = scheme.bias(torch.zeros(1, 2, 2, 8), torch.tensor([3, 5]), torch.arange(6))
    distances = torch.tensor([[3.0, 2, 1, 0, 1, 2], [5, 4, 3, 2, 1, 0]])
    assert torch.equal(bias, -torch.tensor([2.0**-4, 2.0**-8])[:, None, None] * distances)


def test_relative_keys_are_as_if_added_to_the_keys() -> None:
    """Equation 4: q(k + a)/√d, with a of the head and of the distance clipped to the reach."""
    scheme = Relative(RelativeSettings(reach=2), TINY)
    q, k, at = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8), torch.arange(5)
    logits = q @ k.mT / 8**0.5 + scheme.bias(q, at, at)
    for i in range(5):
        for j in range(5):
            a = scheme.table[:, max(-2, min(2, j - i)) + 2]
            wanted = (q[:, :, i] * (k[:, :, j] + a)).sum(-1) / 8**0.5
            assert torch.allclose(logits[:, :, i, j], wanted, atol=1e-5)


def t5_bucket(relative: int, both: bool, buckets: int, farthest: int) -> int:
    """The formula of the authors' code, for one distance; ``relative`` is key less query."""
    found, n = 0, -relative
    if both:
        buckets //= 2
        found += (n < 0) * buckets
        n = abs(n)
    else:
        n = max(n, 0)
    exact = buckets // 2
    if n < exact:
        return found + n
    large = exact + int(math.log(n / exact) / math.log(farthest / exact) * (buckets - exact))
    return found + min(large, buckets - 1)


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (4, 3), (64, 1000)])
@pytest.mark.parametrize("causal", [True, False])
def test_t5_buckets(causal: bool, buckets: int, farthest: int) -> None:
    scheme = Buckets(T5Settings(buckets=buckets, farthest=farthest), TINY)
    scheme.causal = causal
    away = torch.arange(-3 * farthest, 3 * farthest + 1)
    found = scheme.bucket(-away).tolist()
    wanted = [t5_bucket(d, not causal, buckets, farthest) for d in away.tolist()]
    # Where the logarithm is a whole number, its rounding decides.
    differing = [d for d, a, b in zip(away.tolist(), found, wanted, strict=True) if a != b]
    assert len(differing) <= 4
    unused = set() if causal else {buckets // 2}  # would be of a key at 0 that lies ahead
    assert set(found) == set(range(buckets)) - unused


def test_the_model_says_which_stack_looks_back_only() -> None:
    for causal in (True, False):
        model = tiny_model(position=lambda shape: Buckets(T5Settings(), shape), causal=causal)
        assert not model.encoder.position.causal
        assert model.decoder.position.causal == causal


def test_t5_settings_must_fit() -> None:
    with pytest.raises(ValueError, match=r"position.farthest=16 must be more than half of"):
        T5Settings(farthest=16)
