"""Position schemes: all that are offered, and small ones that show what the interface carries."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import components
import pytest
import torch
from torch import Tensor, nn

from seqtrans.config import Shape
from seqtrans.errors import DataError
from seqtrans.hooks import Component
from seqtrans.plugins import registry
from seqtrans.position import PositionScheme, sinusoid
from seqtrans.testing import TINY, check_model, check_position, tiny_model
from seqtrans_plugins import LearnedSettings
from seqtrans_plugins.learned import Learned

OFFERED = [pytest.param(o.component, id=o.component.name) for o in registry().all("position")]
ALL = [*OFFERED, *(pytest.param(scheme, id=scheme.__name__) for scheme in components.POSITIONS)]


@pytest.mark.parametrize("position", ALL)
def test_keeps_what_the_engine_relies_on(position: Any) -> None:
    check_position(position)


def scheme_builder(position: Any) -> Callable[[Shape], PositionScheme]:
    if isinstance(position, Component):
        return lambda shape: position.make(position.settings(), shape)
    return position  # type: ignore[no-any-return]


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])
@pytest.mark.parametrize("attention", components.ATTENTIONS)
@pytest.mark.parametrize("position", ALL)
def test_every_position_with_every_attention(position: Any, attention: Any, causal: bool) -> None:
    """Both stacks at once: the encoder looks both ways, the decoder back if it is causal."""
    build = scheme_builder(position)
    check_model(lambda: tiny_model(position=build, attention=attention, causal=causal))


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
    scheme = components.Nothing(TINY)
    assert not scheme.biased
    assert components.Alibi(TINY).biased
    with pytest.raises(NotImplementedError):
        scheme.bias(torch.zeros(1, 2, 1, 8), torch.arange(1), torch.arange(1))
