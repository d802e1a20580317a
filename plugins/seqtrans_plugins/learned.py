"""Learned positions (section 3.5; row E of Table 3): one vector for each position up to a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from seqtrans.position import PositionScheme
from seqtrans_plugins import LearnedSettings

if TYPE_CHECKING:
    from seqtrans.config import Shape


class Learned(PositionScheme):
    """A table of ``limit`` vectors of the model's width; longer sequences are refused."""

    def __init__(self, settings: LearnedSettings, shape: Shape) -> None:
        super().__init__()
        self.limit = settings.limit
        self.table = nn.Embedding(settings.limit, shape.width)
        nn.init.normal_(self.table.weight, std=shape.width**-0.5)

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        vectors: Tensor = self.table(at)
        return x + vectors
