"""Dropout: its law, and that it is PyTorch's in all but the numbers drawn."""

from __future__ import annotations

import pytest
import torch

from seqtrans.dropout import Dropout, mask


@pytest.mark.parametrize("p", [0.05, 0.1, 0.3, 0.5, 0.9])
def test_as_many_are_dropped_as_wanted_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(1)
    x = torch.ones(1000, 1000)
    y = Dropout(p)(x)
    assert float((y == 0).double().mean()) == pytest.approx(p, abs=4 * (p * (1 - p)) ** 0.5 / 1000)
    assert float(y.double().mean()) == pytest.approx(1, abs=6e-3)
    assert float(y.max()) == pytest.approx(1 / (1 - p), rel=1e-4)
    assert len(y.unique()) == 2


def test_elements_are_dropped_independently() -> None:
    """Of neighbours, and of those that share 64 random bits."""
    torch.manual_seed(2)
    kept = (mask(torch.ones(1 << 20), 0.5) > 0).double() - 0.5
    for distance in (1, 2, 3, 4, 5, 64):
        correlation = 4 * (kept[:-distance] * kept[distance:]).mean()
        assert abs(float(correlation)) < 5e-3


def test_gradients_are_dropped_with_the_values() -> None:
    x = torch.randn(7, 9, requires_grad=True)
    y = Dropout(0.4)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.allclose(gradient * x, y)


def test_it_is_a_function_of_the_seed() -> None:
    drop, x, seen = Dropout(0.3), torch.ones(33), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        seen.append((drop(x), drop(x)))
    assert torch.equal(seen[0][0], seen[1][0])
    assert torch.equal(seen[0][1], seen[1][1])
    assert not torch.equal(seen[0][0], seen[2][0])
    assert not torch.equal(*seen[0])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 7)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_any_shape_and_type(shape: tuple[int, ...], kind: torch.dtype) -> None:
    x = torch.ones(shape, dtype=kind)
    y = Dropout(0.5)(x)
    assert (y.shape, y.dtype) == (x.shape, kind)
    assert set(y.flatten().tolist()) <= {0.0, 2.0}


def test_nothing_is_dropped_where_nothing_should_be() -> None:
    x = torch.randn(9)
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5).eval()(x) is x
    assert not Dropout(1.0)(x).any()
    assert repr(Dropout(0.25)) == "Dropout(p=0.25)"
