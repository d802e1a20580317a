"""What an encoder relies on in a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from seqtrans.config import Shape
from seqtrans.hooks import Component
from seqtrans.settings import Settings
from seqtrans.task import Vocabulary
from seqtrans.testing.models import check_model
from seqtrans.testing.parts import (
    SIZE,
    TINY,
    disturbed,
    expect,
    made,
    padded,
    placed,
    random_sources,
    same,
    seeded,
    tiny_model,
)


def check_source(
    source: Component | Callable[[Shape, Vocabulary | None], nn.Module],
    settings: Settings | None = None,
    *,
    inputs: Sequence[Tensor] | None = None,
    vocabulary: Vocabulary | None = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> None:
    """Check a source, alone and in a model.

    Args:
        source: what is checked.
        settings: of a component.
        inputs: at least three, of different lengths, as a task's ``encode_source`` gives them: ids
            [S] or features [S, ...]. By default random ids.
        vocabulary: that of the inputs, if they are ids.
        device: where it computes.
        dtype: of all weights, and of features.
    """
    device = torch.device(device)
    if inputs is None:
        vocabulary = vocabulary or Vocabulary(SIZE)
        inputs = random_sources(vocabulary.size)
    inputs = [placed(input, device, dtype) for input in inputs]

    def build(shape: Shape, _: Vocabulary | None) -> nn.Module:
        return made(source, settings, shape, vocabulary)  # type: ignore[no-any-return]

    with seeded(device=device), torch.no_grad():
        gives_vectors(disturbed(build(TINY, None)).to(device, dtype).eval(), inputs)
    check_model(lambda: tiny_model(source=build), inputs, device=device, dtype=dtype)


def gives_vectors(source: nn.Module, inputs: Sequence[Tensor]) -> None:
    """Vectors of the model's width, with a mask, that don't depend on what is padded."""
    batch, mask = padded(inputs)
    x, mask_out = source(batch, mask)
    expect(
        x.dim() == 3 and x.shape[0] == len(inputs) and x.shape[2] == TINY.width,
        f"A source must give vectors [B, S', D], {[len(inputs), 'S', TINY.width]}, "
        f"not {list(x.shape)}.",
    )
    expect(
        mask_out.dtype == torch.bool and mask_out.shape == x.shape[:2],
        f"A source must give a bool mask {list(x.shape[:2])}, "
        f"not {mask_out.dtype} {list(mask_out.shape)}.",
    )
    expect(bool(mask_out[:, 0].all()), "A source must give at least one vector for each input.")
    expect(
        bool((mask_out[:, :-1] | ~mask_out[:, 1:]).all()),
        "A source must give all its padding on the right.",
    )
    far, far_mask = source(*padded(inputs, 4 * batch.shape[1]))
    for row, input in enumerate(inputs):
        alone, alone_mask = source(*padded([input]))
        alone = alone[alone_mask]
        sentence = "An input must give the same vectors alone and"
        same(x[row, mask_out[row]], alone, f"{sentence} in a batch")
        same(far[row, far_mask[row]], alone, f"{sentence} padded to 4 times")
