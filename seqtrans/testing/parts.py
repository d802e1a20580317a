"""What the checks are made of: tiny models of parts that are known to be right, and how to say what
is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from seqtrans.attention import Attention
from seqtrans.config import Shape
from seqtrans.data import pad
from seqtrans.hooks import Component
from seqtrans.model import Transducer
from seqtrans.position import PositionScheme, sinusoid
from seqtrans.settings import Settings
from seqtrans.task import Vocabulary

TINY = Shape(encoder_layers=2, decoder_layers=2, width=16, inner=24, heads=2, dropout=0.0)
"""The shape of the models that components are tried in."""


SIZE = 12
"""Of the vocabularies of these models."""

CPU = torch.device("cpu")
ROUNDER = {torch.float64: 4.0, torch.float32: 4.0, torch.float16: 1024.0, torch.bfloat16: 8192.0}
"""By how much numbers of this type may differ more than those of fp32 do on a CPU, in proportion to
the largest of them. In fp32 that is for other devices, which sum in an order that depends on
shapes.
"""


def tiny_model(
    *,
    position: Callable[[Shape], PositionScheme] | None = None,
    attention: Callable[[Shape], Attention] | None = None,
    source: Callable[[Shape, Vocabulary | None], nn.Module] | None = None,
    vocabulary: Vocabulary | None = None,
    **changes: Any,
) -> Transducer:
    """A model of the shape `TINY`, with ``changes``, around the components that are given."""
    shape = TINY.model_copy(update=changes)
    vocabulary = vocabulary or Vocabulary(SIZE)
    position, attention, source = position or Adding, attention or Plainly, source or Embedded
    return Transducer(
        shape,
        vocabulary,
        source(shape, vocabulary),
        (position(shape), position(shape)),
        [attention(shape) for _ in range(shape.encoder_layers)],
        [attention(shape) for _ in range(shape.decoder_layers)],
        vocabulary,
    )


class Embedded(nn.Module):
    """A source of ids."""

    def __init__(self, shape: Shape, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        assert vocabulary is not None
        self.embedding = nn.Embedding(vocabulary.size, shape.width)

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.embedding(source), mask


class Adding(PositionScheme):
    """Positions that are added to the embeddings."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        return (x + sinusoid(at, x.shape[-1])).to(x.dtype)


class Turning(PositionScheme):
    """Positions that turn queries and keys, in pairs of coordinates."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def rotate(self, heads: Tensor, at: Tensor) -> Tensor:
        waves = sinusoid(at, heads.shape[-1])  # [T, D/H]
        sine, cosine = waves[:, 0::2], waves[:, 1::2]
        even, odd = heads[..., 0::2], heads[..., 1::2]
        turned = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1)
        return turned.flatten(-2).to(heads.dtype)


class Biasing(PositionScheme):
    """Positions that are seen in a bias, which depends on the query too."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.slope = nn.Linear(shape.head, 1)

    def bias(self, queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        distance = (query_at[:, None] - key_at).abs().to(queries.dtype)
        slopes: Tensor = self.slope(queries).sigmoid()  # [B, H, T, 1]
        return -slopes * distance


class Plainly(Attention):
    """Attention that sees everything."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()


class Nearby(Attention):
    """Attention to what lies no more than two positions away."""

    reach = 2

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def sees(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        return (query_at[:, None] - key_at[None, :]).abs() <= self.reach


def expect(holds: bool, sentence: str) -> None:
    """Raise an AssertionError unless it holds; also under ``python -O``."""
    if not holds:
        raise AssertionError(sentence)


def same(found: Tensor, wanted: Tensor, sentence: str, tolerance: float = 1e-5) -> None:
    """Raise an AssertionError if two tensors differ, or either is not finite.

    ``tolerance`` is for fp32 on a CPU; what is more for others depends on their type (`ROUNDER`).
    """
    expect(
        found.shape == wanted.shape,
        f"{sentence}, but their shapes are {list(found.shape)} and {list(wanted.shape)}.",
    )
    if found.numel():
        worst = float((found.detach().double() - wanted.detach().double()).abs().max())
        kind = min(found.dtype, wanted.dtype, key=lambda kind: torch.finfo(kind).bits)
        if kind != torch.float32 or found.device != CPU:
            tolerance *= ROUNDER[kind] * max(1.0, float(wanted.detach().abs().max()))
        expect(
            worst <= tolerance,
            f"{sentence}, but they differ by up to {worst:.2g}; {tolerance:g} is allowed.",
        )


def raises(kind: type[Exception], call: Callable[[], object]) -> bool:
    """Whether a call raises an error of this kind; another kind goes through."""
    try:
        call()
    except kind:
        return True
    return False


@contextmanager
def seeded(seed: int = 0, device: torch.device = CPU) -> Iterator[None]:
    """The same random numbers each time, without disturbing those of the caller."""
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
        torch.manual_seed(seed)
        yield


def made(component: Any, settings: Settings | None, *arguments: Any) -> Any:
    """What a component, or a function in place of one, builds."""
    if isinstance(component, Component):
        return component.make(settings or component.settings(), *arguments)
    return component(*arguments)


def disturbed(module: Any) -> Any:
    """The module with noise on all its weights, so that what begins at zero counts, too."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return module


def placed(x: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The same on a device, and in this type if it is no ids or mask."""
    return x.to(device, dtype) if x.is_floating_point() else x.to(device)


def random_sources(size: int) -> list[Tensor]:
    """Ids in sequences of different lengths, one of them of a single id."""
    return [torch.randint(3, size, (length,)) for length in (7, 4, 1, 6)]


def random_targets(model: Transducer, rows: int, length: int) -> Tensor:
    """Ids [rows, length], bos first, the same on every device."""
    targets = torch.randint(3, model.vocabulary.size, (rows, length)).to(model.device)
    targets[:, 0] = model.vocabulary.bos
    return targets


def padded(sources: Sequence[Tensor], length: int | None = None) -> tuple[Tensor, Tensor]:
    """A batch [B, S, ...] and its mask, longer than need be, with something in the padding."""
    source, mask = pad(sources)
    mask = mask.to(source.device)
    if length is not None and length > source.shape[1]:
        more = length - source.shape[1]
        source = torch.cat([source, source.new_zeros(len(source), more, *source.shape[2:])], 1)
        mask = torch.cat([mask, mask.new_zeros(len(mask), more)], 1)
        shape = mask.view(*mask.shape, *[1] * (source.dim() - 2))
        source = torch.where(shape, source, source.flatten(0, 1)[0])
    return source, mask
