"""Every position scheme that is offered with every attention that is, in encoder and decoder."""

from __future__ import annotations

from typing import Any

import components
import pytest
import torch
from torch import Tensor

from seqtrans.attention import Attention, for_each_query_head
from seqtrans.config import Shape
from seqtrans.hooks import Component
from seqtrans.model import Transducer
from seqtrans.plugins import registry
from seqtrans.testing import check_model, tiny_model
from seqtrans.testing.parts import disturbed, padded, random_sources, random_targets

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
