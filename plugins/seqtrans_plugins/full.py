"""Full attention: every query looks at every key (section 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqtrans.attention import Attention

if TYPE_CHECKING:
    from seqtrans.config import Shape
    from seqtrans.settings import NoSettings


class Full(Attention):
    """Nothing is hidden but what lies ahead of a decoder and what is only padding."""

    def __init__(self, settings: NoSettings, shape: Shape) -> None:
        super().__init__()
