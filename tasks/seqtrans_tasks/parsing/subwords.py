"""Sub-words of the source: byte-level BPE inside words, so that every word can be written and none
is a control token.

Each word begins with a blank of its own, by which the pieces that begin a word are known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from seqtrans.task import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FIRST = 3
"""The id of the first piece; those below are pad, bos and eos, which no text gives."""
BLANK = "Ġ"
"""How byte-level BPE writes a blank."""


class Subwords:
    """Words as ids of pieces, and how many words lie before each."""

    def __init__(self, content: str) -> None:
        from tokenizers import Tokenizer

        self.content = content
        self.tokenizer: Tokenizer = Tokenizer.from_str(content)
        self.pieces = [
            piece
            for piece, _ in sorted(self.tokenizer.get_vocab().items(), key=lambda item: item[1])
        ]
        self.known: dict[str, tuple[int, ...]] = {}

    @classmethod
    def learn(cls, words: Iterable[str], size: int) -> Subwords:
        """Learn ``size`` pieces, or fewer if the words give no more, from words with their
        repetitions.
        """
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[],
            show_progress=False,
        )
        tokenizer.train_from_iterator(words, trainer)
        return cls(tokenizer.to_str())

    def vocabulary(self) -> Vocabulary:
        """The vocabulary; a piece that begins a word keeps pace."""
        return Vocabulary(
            FIRST + len(self.pieces),
            paces=(False,) * FIRST + tuple(piece.startswith(BLANK) for piece in self.pieces),
        )

    def encode(self, words: Sequence[str]) -> list[int]:
        """The ids of the pieces of words."""
        return [id for word in words for id in self.word(word)]

    def word(self, word: str) -> tuple[int, ...]:
        """The ids of the pieces of one word."""
        if word not in self.known:
            ids = self.tokenizer.encode(word, add_special_tokens=False).ids
            self.known[word] = tuple(FIRST + id for id in ids)
        return self.known[word]

    def encode_with_dropout(
        self, words: Sequence[str], dropout: float, random: Random
    ) -> list[int]:
        """As :meth:`encode`, each merge skipped with probability ``dropout`` (BPE-dropout,
        Provilkov et al., 2020).

        Written out here since the library's own dropout can't be seeded.
        """
        found: list[int] = []
        for word in words:
            pieces = self.characters(word)
            while len(pieces) > 1:
                ranked = [
                    (rank, place)
                    for place, pair in enumerate(pairwise(pieces))
                    if (rank := self.merges.get(pair)) is not None and random.random() >= dropout
                ]
                if not ranked:
                    break
                _, place = min(ranked)
                pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
            found.extend(FIRST + self.ids[piece] for piece in pieces)
        return found

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of each piece."""
        return {piece: number for number, piece in enumerate(self.pieces)}

    @cached_property
    def merges(self) -> dict[tuple[str, str], int]:
        """The rank of each merge."""
        merges = json.loads(self.content)["model"]["merges"]
        return {(first, second): rank for rank, (first, second) in enumerate(merges)}

    def characters(self, word: str) -> list[str]:
        """The bytes of a word, its blank first, as byte-level BPE writes them."""
        (text, _), *_ = self.tokenizer.pre_tokenizer.pre_tokenize_str(word)
        return list(text)


def size_for(words: int) -> int:
    """How many pieces suit so many words of training text: one for 40, from 500 to the paper's
    16,000.
    """
    return min(16_000, max(500, words // 40))
