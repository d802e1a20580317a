"""Grouped-query attention (Ainslie et al., 2023, section 2.2): heads share keys and values.

With one head of keys and values for all queries it is multi-query attention (Shazeer, 2019). The
cache in decoding, and what is read of it in each step, shrinks as the number of these heads does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqtrans.attention import Attention
from seqtrans.errors import Problem, SettingsError
from seqtrans_plugins import GroupedSettings

if TYPE_CHECKING:
    from seqtrans.config import Shape


class Grouped(Attention):
    """Full attention with ``key_heads`` heads of keys and values.

    Raises ``SettingsError`` if the heads of the queries can't be divided among these.
    """

    def __init__(self, settings: GroupedSettings, shape: Shape) -> None:
        super().__init__()
        if shape.heads % settings.key_heads:
            raise SettingsError(
                Problem(
                    "attention.key_heads",
                    f"must divide model.heads={shape.heads}, and {settings.key_heads} doesn't",
                )
            )
        self.key_heads = settings.key_heads
