"""A frozen model against the one that it was made of, which is its plain twin."""

from __future__ import annotations

from typing import Any

import components
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seqtrans import decoding
from seqtrans import frozen as module
from seqtrans.config import Shape
from seqtrans.decoding import BLOCK, Request, top
from seqtrans.frozen import Frozen, Product, frozen
from seqtrans.hooks import Component
from seqtrans.model import Transducer
from seqtrans.plugins import registry
from seqtrans.task import Vocabulary
from seqtrans.testing import models, tiny_model
from seqtrans.testing.parts import SIZE, disturbed, padded, random_sources, random_targets
from seqtrans_plugins import BeamSettings
from seqtrans_plugins.beam import Beam

POSITIONS = [pytest.param(o.component, id=o.component.name) for o in registry().all("position")]
PACES = Vocabulary(SIZE, paces=(False,) * 3 + (True, False, True) * 3)


@pytest.fixture(autouse=True, params=["as it is", "small"])
def _small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with limits by which a tiny model meets everything: packed weights, products instead of
    the fused kernel, caches that grow.
    """
    if request.param == "small":
        monkeypatch.setattr(module, "WORTH_PACKING", 1)
        monkeypatch.setattr(module, "WORTH_PRODUCTS", 1)
        monkeypatch.setattr(module, "ROOM", 1)
        monkeypatch.setattr(decoding, "WORTH_BLOCKS", 1)


def build(component: Component, shape: Shape) -> Any:
    return component.make(components.SMALL.get(component.name, component.settings()), shape)


def made(position: Component | None = None, **changes: Any) -> Transducer:
    torch.manual_seed(2)
    scheme = None if position is None else lambda shape: build(position, shape)
    return disturbed(tiny_model(position=scheme, **changes)).eval()


class InItsPlace:
    """A frozen model where a check expects the model itself."""

    def __init__(self, model: Transducer) -> None:
        self.model, self.frozen = model, frozen(model)
        assert isinstance(self.frozen, Frozen)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.frozen if name in ("start", "advance") else self.model, name)

    def __call__(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        assert isinstance(self.frozen, Frozen)
        return self.frozen(source, mask, target)


def check(model: Transducer) -> None:
    """It has the logits of the model, and all properties that these have."""
    found: Any = InItsPlace(model)
    sources = random_sources(SIZE)
    with torch.inference_mode():
        source, mask = padded(sources)
        for steps in (1, 5, 12):
            targets = random_targets(model, len(sources), steps)
            wanted = model(source, mask, targets)
            torch.testing.assert_close(found(source, mask, targets), wanted, rtol=1e-4, atol=1e-5)
        models.padding_is_invisible(found, sources)
        models.whole_equals_stepwise(found, sources)
        models.nothing_is_foreseen(found, sources)
        models.states_are_selected_rightly(found, sources)


@pytest.mark.parametrize("position", POSITIONS)
def test_every_position(position: Component) -> None:
    check(made(position))


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        {"key_width": 6, "head_width": 4},
        {"tie": "none", "width": 12, "inner": 7},
        {"pace": 2, "vocabulary": PACES},
        {"pace": 1, "vocabulary": PACES, "norm": "pre"},
    ],
)
def test_every_shape(changes: dict[str, Any]) -> None:
    check(made(**changes))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_tokens_are_taken_back(norm: str) -> None:
    model = made(norm=norm)
    scorer = frozen(model)
    sources = random_sources(SIZE)
    targets = random_targets(model, len(sources), 9)
    with torch.inference_mode():
        state: Any = scorer.start(*padded(sources))
        assert state.rewindable(4)
        scorer.advance(targets[:, :3], state)
        scorer.advance(targets[:, 5:9], state)
        state.rewind(4)
        found = scorer.advance(targets[:, 3:], state)
        wanted = model(*padded(sources), targets)[:, 3:]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_it_tells_what_is_looked_at() -> None:
    model = made(pace=2, vocabulary=PACES)
    source, mask = padded(random_sources(SIZE))
    targets = random_targets(model, len(source), 4)
    every = torch.arange(len(source)).repeat_interleave(2)
    looks = []
    for scorer in (model, frozen(model)):
        with torch.inference_mode():
            state: Any = scorer.start(source, mask)
            assert state.watch()
            scorer.advance(targets[:, :2], state)
            state = state.select(every)
            scorer.advance(targets[every, 2:], state)
            looks.append(state.looks)
    assert looks[0].shape == (len(every), 2, source.shape[1])
    torch.testing.assert_close(looks[1], looks[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("autocast", [False, True])
def test_neither_gradients_nor_autocast_matter(autocast: bool) -> None:
    model = made()
    scorer = frozen(model)
    source, mask = padded(random_sources(SIZE))
    targets = random_targets(model, len(source), 3)
    with torch.inference_mode():
        wanted = model(source, mask, targets)[:, -1:]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        state: Any = scorer.start(source, mask)
        scorer.advance(targets[:, :2], state)
        found = scorer.advance(targets[:, 2:], state.select(torch.arange(len(source))))
    assert not found.requires_grad
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_an_empty_memory_gives_nothing() -> None:
    model = made()
    source, mask = padded(random_sources(SIZE))
    mask[1] = False
    targets = random_targets(model, len(source), 4)
    with torch.inference_mode():
        found, wanted = (scorer(source, mask, targets) for scorer in (frozen(model), model))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_search_finds_the_same() -> None:
    model = made(norm="pre")
    source, mask = padded(random_sources(SIZE))
    request = Request(source, mask, mask.sum(1) + 9, count=3)
    with torch.inference_mode():
        search = Beam(BeamSettings(width=4))
        plain, fast = (search.decode(scorer, request) for scorer in (model, frozen(model)))
    for one, other in zip(plain, fast, strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


@pytest.mark.parametrize("name", ["restricted", "global", "grouped", "linear"])
def test_what_can_not_be_frozen_stays_as_it_is(name: str) -> None:
    component = registry().get("attention", name)
    torch.manual_seed(0)
    model = tiny_model(attention=lambda shape: build(component, shape)).eval()
    assert frozen(model) is model
    assert frozen(tiny_model(causal=False)).__class__ is Transducer


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 8, 20), (5, 20, 8), (3, 16, 16)])
@pytest.mark.parametrize("biased", [True, False])
def test_products(rows: int, inputs: int, outputs: int, biased: bool) -> None:
    torch.manual_seed(0)
    x, to = torch.randn(rows, inputs), torch.randn(rows, outputs)
    weight, bias = torch.randn(outputs, inputs), torch.randn(outputs) if biased else None
    plain = torch.nn.functional.linear(x, weight, bias)
    product = Product(weight, bias)
    for found, wanted in (
        (product(x), plain),
        (product.rectified(x), plain.relu()),
        (product.added(x, to), plain + to),
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 12 * BLOCK), st.integers(1, 6))
def test_the_greatest(seed: int, rows: int, size: int, count: int) -> None:
    torch.manual_seed(seed)
    scores, count = torch.randn(rows, size), min(count, size)
    scores[torch.rand(rows, size) < 0.3] = float("-inf")
    values, places = top(scores, count)
    assert torch.equal(values, scores.topk(count).values)
    assert torch.equal(scores.gather(1, places), values)
    assert all(len(set(row)) == count for row in places.tolist())
