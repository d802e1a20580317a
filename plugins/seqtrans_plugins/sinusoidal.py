"""Sinusoidal positions (section 3.5): added to the embeddings, defined for any length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from seqtrans.position import PositionScheme, sinusoid

if TYPE_CHECKING:
    from seqtrans.config import Shape
    from seqtrans.settings import NoSettings


class Sinusoidal(PositionScheme):
    """Sines and cosines of geometrically growing wave lengths, from 2π to 10000 · 2π."""

    def __init__(self, settings: NoSettings, shape: Shape) -> None:
        super().__init__()

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        return (x + sinusoid(at, x.shape[-1])).to(x.dtype)  # the sum in fp32, too
