"""A position scheme that acts through the bias alone."""

from __future__ import annotations

from torch import Tensor

from seqtrans.config import Shape
from seqtrans.position import PositionScheme
from seqtrans_displays import SlopeSettings


class Slope(PositionScheme):
    """The farther away a key, the less it is looked at."""

    def __init__(self, settings: SlopeSettings, shape: Shape) -> None:
        super().__init__()
        self.slope = settings.slope

    def bias(self, queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        return -self.slope * (query_at[:, None] - key_at).abs()  # [T, K]
