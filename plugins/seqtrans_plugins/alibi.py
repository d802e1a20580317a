"""Attention with linear biases (Press et al., 2022, section 3): the farther away, the less seen.

Each head subtracts its own slope times the distance from the logits; nothing is learned, and any
length is defined. The paper has decoders only; here a key that lies ahead counts as one behind.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seqtrans.position import PositionScheme

if TYPE_CHECKING:
    from seqtrans.config import Shape
    from seqtrans.settings import NoSettings


class Alibi(PositionScheme):
    """A penalty in proportion to the distance, with a slope of its own for each head."""

    slopes: Tensor

    def __init__(self, settings: NoSettings, shape: Shape) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes(shape.heads)), persistent=False)  # [H]

    def bias(self, queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        distance = (query_at[:, None] - key_at).abs().float()  # [T, K]
        return -self.slopes.float()[:, None, None] * distance  # [H, T, K]


def slopes(heads: int) -> list[float]:
    """A geometric series from 2^(-8/h) to 2^-8 if h is a power of two.

    Else that of the power below, and as many as are missing from that of the power above, every
    other one of them, as the authors' code has it.
    """
    power = 2 ** math.floor(math.log2(heads))
    own = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    between = [2 ** (-4 * head / power) for head in range(1, 2 * power + 1, 2)]
    return own + between[: heads - power]
