"""No positions: order reaches the model only through what an attention hides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqtrans.position import PositionScheme

if TYPE_CHECKING:
    from seqtrans.config import Shape
    from seqtrans.settings import NoSettings


class Nothing(PositionScheme):
    """Neither embeddings nor queries, keys and logits are changed."""

    def __init__(self, settings: NoSettings, shape: Shape) -> None:
        super().__init__()
