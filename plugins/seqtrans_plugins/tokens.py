"""The source of everything that is written as ids: embeddings, scaled by √D (section 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from seqtrans.errors import DataError
from seqtrans.task import Vocabulary

if TYPE_CHECKING:
    from seqtrans.config import Shape
    from seqtrans.settings import NoSettings


class Tokens(nn.Module):
    """Ids [B, S] become vectors [B, S, D]. ``embedding`` may be tied to the target's."""

    def __init__(self, settings: NoSettings, shape: Shape, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        if vocabulary is None:
            raise DataError(
                "source=tokens needs a task whose inputs are ids; this one's are features."
            )
        self.embedding = nn.Embedding(vocabulary.size, shape.width)
        nn.init.normal_(self.embedding.weight, std=shape.width**-0.5)
        self.scale = shape.width**0.5

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.embedding(source) * self.scale, mask
