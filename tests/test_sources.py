"""Sources: all that are offered, and one of features with a stride."""

from __future__ import annotations

from typing import Any

import components
import pytest
import torch
from torch import Tensor, nn

from seqtrans.config import Shape
from seqtrans.errors import DataError
from seqtrans.plugins import registry
from seqtrans.settings import NoSettings
from seqtrans.task import Vocabulary
from seqtrans.testing import TINY, check_source, tiny_model
from seqtrans_plugins.tokens import Tokens

INPUTS: dict[str, list[Tensor]] = {}
"""Inputs of the offered sources that take features, by name."""


@pytest.mark.parametrize("name", [o.component.name for o in registry().all("source")])
def test_keeps_what_the_engine_relies_on(name: str) -> None:
    check_source(registry().get("source", name), inputs=INPUTS.get(name))


def test_features_with_a_stride() -> None:
    inputs = [torch.randn(length, components.Frames.features) for length in (11, 6, 1, 4)]
    check_source(components.Frames, inputs=inputs)


class Leaky(components.Frames):
    """Does not hide what stands in the padding."""

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(source, torch.ones_like(mask))


class Summed(nn.Module):
    """One vector for the whole input, without a time of its own."""

    def __init__(self, shape: Shape, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.project = nn.Linear(5, shape.width)

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.project(source.sum(1)), mask


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Leaky, "An input must give the same vectors alone and padded to 4 times, but "),
        (Summed, "A source must give vectors [B, S', D], [4, 'S', 16], not [4, 16]."),
    ],
)
def test_the_kit_finds_what_is_wrong(broken: Any, sentence: str) -> None:
    inputs = [torch.randn(length, 5) for length in (11, 6, 1, 4)]
    with pytest.raises(AssertionError) as error:
        check_source(broken, inputs=inputs)
    assert str(error.value).startswith(sentence)


def test_tokens_need_a_vocabulary() -> None:
    with pytest.raises(DataError) as error:
        Tokens(NoSettings(), TINY, None)
    assert str(error.value) == (
        "source=tokens needs a task whose inputs are ids; this one's are features."
    )


def test_pace_needs_a_vector_for_each_id() -> None:
    class Halved(Tokens):
        def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            x, mask = super().forward(source, mask)
            return x[:, ::2], mask[:, ::2]

    vocabulary = Vocabulary(12, paces=(False,) * 6 + (True,) * 6)
    model = tiny_model(
        source=lambda shape, v: Halved(NoSettings(), shape, v), vocabulary=vocabulary, pace=2
    )
    with pytest.raises(DataError) as error:
        model.start(torch.full((1, 4), 3), torch.ones(1, 4, dtype=torch.bool))
    assert str(error.value) == "model.pace needs a source that gives one vector for each id."
