"""Every position scheme that is offered with every attention that is, in encoder and decoder."""

from __future__ import annotations

from typing import Any

import components
import pytest
import torch
from torch import Tensor

from seqtrans.attention import Attention, MultiHead, for_each_query_head
from seqtrans.config import Shape
from seqtrans.hooks import Component
from seqtrans.model import Transducer
from seqtrans.plugins import registry
from seqtrans.testing import check_model, tiny_model
from seqtrans.testing.parts import TINY, disturbed, padded, random_sources, random_targets

POSITIONS = [pytest.param(o.component, id=o.component.name) for o in registry().all("position")]
ATTENTIONS = [pytest.param(o.component, id=o.component.name) for o in registry().all("attention")]


def build(component: Component, shape: Shape) -> Any:
    """With settings that suit tiny models."""
    return component.make(components.SMALL.get(component.name, component.settings()), shape)


class Twin(Attention):
    """What a variant computes by the weights that it says it has."""

    def __init__(self, variant: Attention) -> None:
        super().__init__()
        self.variant, self.key_heads = variant, variant.key_heads

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **arguments: Any) -> Tensor:
        return self.variant.weigh(q, k, **arguments) @ for_each_query_head(v, q)


def gradients(model: Transducer) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits of a batch with padding, and the gradients of all weights."""
    torch.manual_seed(1)
    targets = random_targets(model, 4, 9)
    logits = model(*padded(random_sources(12)), targets)
    (logits * torch.randn_like(logits)).sum().backward()
    return logits, {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("position", POSITIONS)
def test_every_position_with_every_attention(position: Component, attention: Component) -> None:
    """Both stacks at once: the encoder looks both ways, the decoder back."""
    check_model(
        lambda: tiny_model(
            position=lambda shape: build(position, shape),
            attention=lambda shape: build(attention, shape),
        )
    )


@pytest.mark.parametrize("name", ["full", "restricted", "grouped", "linear"])
@pytest.mark.parametrize("scheme", ["rotary", "alibi", "relative", "t5", "none"])
def test_only_distances_matter_to_schemes_of_distances(scheme: str, name: str) -> None:
    """But linear attention takes no product of a query and a key, for which rotary is made."""
    names = registry()
    position = build(names.get("position", scheme), TINY)
    with torch.no_grad():
        for weight in position.parameters():
            weight.normal_()
    attention = build(names.get("attention", name), TINY)
    torch.manual_seed(3)
    layer = MultiHead(TINY.width, TINY.heads, TINY.head, TINY.head, attention, 0.0)
    x, at = torch.randn(2, 9, TINY.width), torch.arange(9)
    for causal in (False, True):
        here, there = (layer.look(x, at + by, position, causal=causal) for by in (0, 50))
        alike = torch.allclose(here, there, atol=1e-4)
        assert alike != (scheme == "rotary" and name == "linear")


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("position", POSITIONS)
def test_every_fast_path_against_its_plain_twin(
    position: Component, attention: Component, causal: bool
) -> None:
    torch.manual_seed(0)
    model = tiny_model(
        position=lambda shape: build(position, shape),
        attention=lambda shape: build(attention, shape),
        causal=causal,
    )
    found, mine = gradients(disturbed(model))
    model.zero_grad()
    for stack in (model.encoder, model.decoder):
        for layer in stack.layers:
            layer.attention.attention = Twin(layer.attention.attention)
    wanted, plain = gradients(model)
    assert torch.allclose(found, wanted, atol=1e-5)
    assert mine.keys() == plain.keys()
    for name, gradient in mine.items():
        assert torch.allclose(gradient, plain[name], atol=1e-4), name
