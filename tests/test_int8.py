"""Products in 8 bits against the same rounding done by hand, and models that are made of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqtrans import frozen as freezing
from seqtrans import int8
from seqtrans.errors import SeqtransError, SettingsError
from seqtrans.frozen import Frozen, frozen
from seqtrans.int8 import Int8Linear, Int8Product, check_int8, engines
from seqtrans.model import Transducer
from seqtrans.plugins import registry
from seqtrans.testing import tiny_model
from seqtrans.testing.parts import SIZE, disturbed, padded, random_sources, random_targets

pytestmark = pytest.mark.skipif("fbgemm" not in engines(), reason="needs FBGEMM, as on x86")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits by which a tiny model is in 8 bits altogether."""
    monkeypatch.setattr(int8, "WORTH", 1)
    monkeypatch.setattr(freezing, "WORTH", 1)


def rounded(weight: Tensor) -> Tensor:
    """Each output's weights to 255 steps."""
    steps = weight.abs().amax(1, keepdim=True) / 127
    return (weight / steps).round().clamp(-128, 127) * steps


def coarse(x: Tensor) -> tuple[Tensor, float]:
    """What comes in, to 127 steps between its least and its greatest, with 0 among them; a step."""
    low, high = min(0.0, x.min().item()), max(0.0, x.max().item())
    step = (high - low) / 127
    zero = round(-low / step)
    return ((x / step + zero).round().clamp(0, 127) - zero) * step, step


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 8, 20), (5, 20, 8), (64, 64, 256)])
@pytest.mark.parametrize("biased", [True, False])
def test_products_round_and_nothing_else(
    rows: int, inputs: int, outputs: int, biased: bool
) -> None:
    torch.manual_seed(0)
    x, to = 3 * torch.randn(rows, inputs) + 1, torch.randn(rows, outputs)
    weight, bias = torch.randn(outputs, inputs), torch.randn(outputs) if biased else None
    near, step = coarse(x)
    plain = F.linear(near, rounded(weight), bias)
    product = Int8Product(weight, bias)
    # Where a value lies between two steps, rounding may go either way.
    tolerance = {"rtol": 1e-4, "atol": 1e-4 + step * weight.abs().max().item()}
    for found, wanted in (
        (product(x), plain),
        (product.rectified(x), plain.relu()),
        (product.added(x, to), plain + to),
    ):
        torch.testing.assert_close(found, wanted, **tolerance)
    exact = F.linear(x, weight, bias)
    assert (product(x) - exact).norm() < 0.05 * exact.norm()


def test_large_values_do_not_overflow() -> None:
    """Sums of two products must stay below 2^15, on processors where that is the limit."""
    x, weight = torch.full((1, 64), 100.0), torch.full((8, 64), 100.0)
    torch.testing.assert_close(Int8Product(weight)(x), x @ weight.t(), rtol=0.02, atol=0.0)


def made(**changes: Any) -> Transducer:
    torch.manual_seed(2)
    return disturbed(tiny_model(**changes)).eval()


@pytest.mark.parametrize("attention", ["full", "restricted", "grouped"])
@pytest.mark.parametrize("tie", ["all", "output", "none"])
def test_models(attention: str, tie: str) -> None:
    """Attention and feed-forward are in 8 bits, frozen or not, and the logits are near."""
    component = registry().get("attention", attention)
    model = made(attention=lambda shape: component.make(component.settings(), shape), tie=tie)
    plain = copy.deepcopy(model)
    small = frozen(model, int8=True)
    assert isinstance(small, Frozen) == (attention == "full")
    plain_ones = [module for module in model.modules() if type(module) is nn.Linear]
    assert plain_ones == ([] if model.projection is None else [model.projection])
    assert any(isinstance(module, Int8Linear) for module in model.modules())
    sources = random_sources(SIZE)
    source, mask = padded(sources)
    targets = random_targets(plain, len(sources), 5)
    with torch.inference_mode():
        wanted, found = plain(source, mask, targets), small(source, mask, targets)
    assert 0 < (found - wanted).norm() < 0.2 * wanted.norm()


def test_small_matrices_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "WORTH", 1 << 30)
    monkeypatch.setattr(freezing, "WORTH", 1 << 30)
    model = made()
    plain = copy.deepcopy(model)
    source, mask = padded(random_sources(SIZE))
    targets = random_targets(model, len(source), 3)
    with torch.inference_mode():
        torch.testing.assert_close(
            frozen(model, int8=True)(source, mask, targets),
            plain(source, mask, targets),
            rtol=1e-4,
            atol=1e-5,
        )


def test_weights_that_are_not_finite() -> None:
    model = made()
    with torch.no_grad():
        model.embedding.weight[3, 0] = float("nan")
    with pytest.raises(SeqtransError) as caught:
        frozen(model, int8=True)
    assert str(caught.value) == "the model's weights are not finite; it can't be used."


def test_where_there_is_no_such_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError) as caught:
        check_int8(torch.device("cuda"))
    assert str(caught.value) == (
        "precision=int8 is for CPUs, and this is cuda; use precision=bf16 there, or device=cpu."
    )
    monkeypatch.setattr(int8, "engines", lambda: ["qnnpack"])
    with pytest.raises(SettingsError) as caught:
        frozen(made(), int8=True)
    assert str(caught.value) == (
        "this PyTorch has no products in 8 bits for this processor; use precision=fp32."
    )
