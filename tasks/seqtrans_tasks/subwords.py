"""Sub-words of bytes: every text can be written, comes back exactly, and none is a control token.

What is encoded are words with the blanks before them, one at a time: sub-words never cross the
bounds of words. So whoever uses this says what a word is, and each word is looked up only once.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from itertools import count, pairwise, takewhile
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from seqtrans.task import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Kind = Literal["bpe", "unigram", "wordpiece"]

FIRST = 3
"""The id of the first piece; those below are pad, bos and eos, which no text gives."""
BLANK = "Ġ"
"""How the pieces have a blank: they are written in the 256 letters of byte-level BPE."""
STEP = 1e-4
"""By so much the trainer of unigram models has letters without use above each other."""
REMEMBERED = 500_000
"""So many words are kept at hand; then they are looked up anew."""
TOGETHER = 4_000
"""So many words are handed to the library in one text to learn from."""
DRAWS = 16
"""So many segmentations of a word are drawn for an epoch of BPE-dropout."""


class Subwords:
    """Words as ids of pieces, and back."""

    def __init__(self, content: str) -> None:
        from tokenizers import Tokenizer

        self.content = content
        self.tokenizer: Tokenizer = Tokenizer.from_str(content)
        found = sorted(self.tokenizer.get_vocab().items(), key=lambda item: item[1])
        self.pieces = [piece for piece, _ in found]
        self.alphabet = byte_letters()
        self.known: dict[str, tuple[int, ...]] = {}

    @classmethod
    def learn(
        cls, words: Iterable[str] | Mapping[str, int], size: int, kind: Kind = "bpe"
    ) -> Subwords:
        """Learn ``size`` pieces, or fewer if the words give no more, from words with their
        repetitions, or from how often each is there.

        Byte-pair encoding (Sennrich et al., 2016), a unigram language model (Kudo, 2018), or
        word-pieces: the pieces of the first, but of those that fit always the longest (the library
        learns them in the same way, but not the same twice).
        """
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        alphabet = pre_tokenizers.ByteLevel.alphabet()
        model: Any
        trainer: Any
        common: dict[str, Any] = {
            "vocab_size": size,
            "show_progress": False,
            "special_tokens": [],
        }
        if kind == "unigram":
            model = models.Unigram()
            trainer = trainers.UnigramTrainer(initial_alphabet=alphabet, **common)
        else:
            model = models.BPE()
            trainer = trainers.BpeTrainer(initial_alphabet=alphabet, **common)
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        parallelism = os.environ.get("TOKENIZERS_PARALLELISM")
        # In parallel unigram isn't the same twice, and the others take twice the processor time.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        try:
            tokenizer.train_from_iterator(in_letters(Counter(words)), trainer)
        finally:
            os.environ.pop("TOKENIZERS_PARALLELISM", None)
            if parallelism is not None:
                os.environ["TOKENIZERS_PARALLELISM"] = parallelism
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        content = json.loads(tokenizer.to_str())
        if kind == "wordpiece":
            content["model"] = {
                "type": "WordPiece",
                "unk_token": BLANK,  # one of the pieces has to be named; nothing is unknown
                "continuing_subword_prefix": "",
                "max_input_chars_per_word": 1 << 30,
                "vocab": content["model"]["vocab"],
            }
        if kind == "unigram":
            content["model"]["vocab"] = ordered(content["model"]["vocab"], alphabet, size)
        return cls(json.dumps(content, ensure_ascii=False))

    def vocabulary(self) -> Vocabulary:
        """The vocabulary; a piece that begins a word keeps pace."""
        return Vocabulary(
            FIRST + len(self.pieces),
            paces=(False,) * FIRST + tuple(piece.startswith(BLANK) for piece in self.pieces),
            fingerprint=self.fingerprint,
        )

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of the pieces in their order."""
        return sha256("\n".join(self.pieces).encode()).hexdigest()

    def word(self, word: str) -> tuple[int, ...]:
        """The ids of the pieces of one word."""
        ids = self.known.get(word)
        if ids is None:
            if len(self.known) >= REMEMBERED:
                self.known.clear()
            found = self.tokenizer.encode(word, add_special_tokens=False).ids
            self.known[word] = ids = tuple(FIRST + id for id in found)
        return ids

    def encode(self, words: Iterable[str]) -> list[int]:
        """The ids of the pieces of words."""
        return [id for word in words for id in self.word(word)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; control tokens give none, half a letter a replacement character."""
        written = b"".join(self.bytes[id - FIRST] for id in ids if id >= FIRST)
        return written.decode("utf-8", errors="replace")

    def varied(self, dropout: float, random: Random) -> Callable[[str], tuple[int, ...]]:
        """As :meth:`word`, each merge skipped with probability ``dropout`` (BPE-dropout, Provilkov
        et al., 2020), for an epoch.

        Written out here since the library's own dropout can't be seeded. A word that comes very
        often has a choice of ``DRAWS`` segmentations, which are others in each epoch.
        """
        drawn: dict[str, list[tuple[int, ...]]] = {}

        def word(word: str) -> tuple[int, ...]:
            draws = drawn.setdefault(word, [])
            if len(draws) == DRAWS:
                return draws[int(random.random() * DRAWS)]
            draws.append(self.drop(word, dropout, random))
            return draws[-1]

        return word

    def drop(self, word: str, dropout: float, random: Random) -> tuple[int, ...]:
        """The ids of a word, some merges skipped."""
        pieces = self.letters(word)
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
        return tuple(FIRST + self.ids[piece] for piece in pieces)

    def letters(self, word: str) -> list[str]:
        """The bytes of a word as the pieces write them."""
        return [self.alphabet[byte] for byte in word.encode()]

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of each piece."""
        return {piece: number for number, piece in enumerate(self.pieces)}

    @cached_property
    def merges(self) -> dict[tuple[str, str], int]:
        """The rank of each merge."""
        merges = json.loads(self.content)["model"]["merges"]
        return {(first, second): rank for rank, (first, second) in enumerate(merges)}

    @cached_property
    def bytes(self) -> list[bytes]:
        """What each piece writes."""
        number = {letter: byte for byte, letter in enumerate(self.alphabet)}
        return [bytes(number[letter] for letter in piece) for piece in self.pieces]


def ordered(scored: list[list[Any]], alphabet: Iterable[str], size: int) -> list[list[Any]]:
    """A unigram vocabulary by score, then by letters, and at its end the letters it can do without.

    It has at most ``size`` pieces, but all letters: the library may give more.
    The library has equals, and those letters, in another order each time; its sums are equal to
    nine digits or so. Those letters are told by their scores, each ``STEP`` above the one before,
    from the lowest score that there is; a letter in use that has such a score is one of them.
    """
    lowest = min(score for _, score in scored)
    steps: dict[int, list[str]] = {}
    for piece, score in scored:
        step = round((score - lowest) / STEP)
        if len(piece) == 1 and abs(score - lowest - step * STEP) < STEP / 100:
            steps.setdefault(step, []).append(piece)
    spare = {piece for step in takewhile(steps.__contains__, count()) for piece in steps[step]}
    known = [[piece, round(score, 6)] for piece, score in scored if piece not in spare]
    known.sort(key=lambda entry: (-entry[1], entry[0]))
    letters_of_all = set(alphabet)
    longer = [piece for piece, _ in known if len(piece) > 1]
    without = set(longer[max(0, size - len(letters_of_all)) :])
    known = [entry for entry in known if entry[0] not in without]
    lacking = sorted(letters_of_all - {piece for piece, _ in known})
    return known + [[letter, round(lowest - n * STEP, 6)] for n, letter in enumerate(lacking, 1)]


def in_letters(counts: Mapping[str, int]) -> Iterator[str]:
    """Words, each as often as it is there, as the letters of their bytes with blanks between them.

    ``TOGETHER`` of them are a text: to hand them over one by one takes longer than to learn.
    """
    letters = dict(enumerate(byte_letters()))
    held: list[str] = []
    room = TOGETHER
    for word, number in counts.items():
        written, left = f"{word.encode().decode('latin-1').translate(letters)} ", number
        while left:
            times = min(left, room)
            held.append(written * times)
            left, room = left - times, room - times
            if not room:
                yield "".join(held)
                held, room = [], TOGETHER
    if held:
        yield "".join(held)


def byte_letters() -> list[str]:
    """The letter for each byte: itself if it can be seen, else one from U+0100 on."""
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in seen else chr(next(hidden)) for byte in range(256)]
