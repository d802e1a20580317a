"""How the displays enter the encoder."""

from __future__ import annotations

from torch import Tensor, nn

from seqtrans.config import Shape
from seqtrans.settings import NoSettings
from seqtrans.task import Vocabulary


class Segments(nn.Module):
    """Segments [B, S, 7] become vectors [B, S, D]."""

    def __init__(self, settings: NoSettings, shape: Shape, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.project = nn.Linear(7, shape.width)

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.project(source), mask
