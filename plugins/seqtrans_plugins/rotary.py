"""Rotary positions ("RoFormer", Su et al., 2021, section 3.2): queries and keys are turned.

Each pair of a head's coordinates is turned by an angle in proportion to the position, so that the
product of a query with a key depends on how far they are apart. An attention that takes no such
product, as linear attention, sees where each of them stands instead. Defined for any length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seqtrans.errors import Problem, SettingsError
from seqtrans.position import PositionScheme, sinusoid
from seqtrans_plugins import RotarySettings

if TYPE_CHECKING:
    from seqtrans.config import Shape


class Rotary(PositionScheme):
    """The angles of pair i are those of sinusoidal positions, position / base^(2i/d) (equation 15).

    Raises ``SettingsError`` for heads of odd width.
    """

    def __init__(self, settings: RotarySettings, shape: Shape) -> None:
        super().__init__()
        if shape.head % 2:
            raise SettingsError(
                Problem(
                    "position",
                    f"rotary turns pairs of coordinates, but the width of a head's queries and "
                    f"keys is odd, {shape.head}; set model.key_width",
                )
            )
        self.base = settings.base

    def rotate(self, heads: Tensor, at: Tensor) -> Tensor:
        waves = sinusoid(at, heads.shape[-1], self.base)  # [T, D/H]
        sine, cosine = waves[..., 0::2], waves[..., 1::2]
        even, odd = heads[..., 0::2], heads[..., 1::2]
        turned = torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], -1)
        return turned.flatten(-2).to(heads.dtype)
