"""Text as units and back: learnt sub-words, characters, words, or symbols between blanks and tabs.

At the level ``tagged`` a text begins with a tag and a tab, such as its language, which are one unit
together; the rest is characters.

Ids 0, 1 and 2 are pad, bos and eos, which no text gives. Sub-words write every text; the others
have one more id for what they never saw in training.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from random import Random
from typing import Any, Final, get_args

from seqtrans.errors import DataError
from seqtrans.task import Vocabulary
from seqtrans_tasks.pairs import Level
from seqtrans_tasks.subwords import FIRST, REMEMBERED, Kind, Subwords

PACKED: Final = "i"
"""The type of packed ids, of four bytes."""
EOS = 2
"""The id that ends every source, so that none is empty."""
UNKNOWN = FIRST
"""The id of what has no other, where there may be such."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""How an unknown unit is written."""
MEMORABLE = 100
"""Characters. What is longer than this between two blanks hardly comes again."""


class Units(ABC):
    """The units of a side: text to ids from ``FIRST`` on, and any ids to a text."""

    level: Level
    unknown: int | None
    """The id of what was never seen; ``None`` if everything can be written."""

    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the units. Each keeps pace: both sides are read in step."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of a text."""

    def packed(self, text: str) -> bytes:
        """The ids of a text, four bytes each: what many texts are joined from."""
        return array(PACKED, self.encode(text)).tobytes()

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; control tokens give none."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """For a JSON file; :func:`from_json` reads it."""

    def varied(self, dropout: float, random: Random) -> Callable[[str], list[int]]:
        """``encode`` for an epoch with BPE-dropout, for units that have it."""
        raise NotImplementedError


class Known(dict[str, bytes]):
    """What was encoded lately; anything else is, when it is asked for.

    When ``size`` are there it starts anew, and what is asked for again is taken over from what was
    there before: so the frequent stays.
    """

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        super().__init__()
        self.encode, self.size = encode, REMEMBERED
        self.before: dict[str, bytes] = {}

    def __missing__(self, run: str) -> bytes:
        if len(run) > MEMORABLE:
            return array(PACKED, self.encode(run)).tobytes()
        if len(self) >= self.size:
            self.before = dict(self)
            self.clear()
        ids = self.before.pop(run, None)
        if ids is None:
            ids = array(PACKED, self.encode(run)).tobytes()
        self[run] = ids
        return ids


class Pieces(Units):
    """Sub-words of words, each with the blank before it. Every text comes back exactly.

    No word crosses a blank, so what stands between two is looked up at once: most of it was there
    before.
    """

    level: Level = "subword"
    unknown = None

    def __init__(self, subwords: Subwords, pattern: str) -> None:
        self.subwords, self.pattern = subwords, pattern
        self.words = re.compile(pattern).findall
        self.known = Known(self.looked_up)
        self.pieces = subwords.tokenizer.model.tokenize
        self.letters = dict(enumerate(subwords.alphabet))

    @classmethod
    def learn(cls, texts: Iterable[str], size: int, kind: Kind) -> Pieces:
        """Learn at most ``size`` sub-words; 256 of them are the bytes."""
        pattern = word_pattern()
        find = re.compile(pattern).findall
        counts: Counter[str] = Counter()
        for text in texts:
            if text:
                counts.update(text.split(" "))
        if not counts:
            raise nothing_to_learn("subword")
        # In an order of their own, since sets of texts in another order have the same sub-words.
        words: Counter[str] = Counter()
        for run in sorted(counts):
            for word in find(f" {run}"):
                words[word] += counts[run]
        return cls(Subwords.learn(words, size, kind), pattern)

    def vocabulary(self) -> Vocabulary:
        size = FIRST + len(self.subwords.pieces)
        paces = (False,) * FIRST + (True,) * (size - FIRST)
        return Vocabulary(size, paces=paces, fingerprint=self.subwords.fingerprint)

    def encode(self, text: str) -> list[int]:
        return list(memoryview(self.packed(text)).cast(PACKED))

    def packed(self, text: str) -> bytes:
        return b"".join(map(self.known.__getitem__, text.split(" "))) if text else b""

    def looked_up(self, run: str) -> list[int]:
        """The ids of what stands between two blanks, by the model itself: `Subwords.encode` keeps
        words at hand, of which there are nearly as many."""
        return [
            FIRST + piece.id
            for word in self.words(f" {run}")
            for piece in self.pieces(word.encode().decode("latin-1").translate(self.letters))
        ]

    def share_memory(self, processes: int) -> None:
        """Keep no more at hand than one of so many processes should."""
        self.known.size = REMEMBERED // processes

    def decode(self, ids: Iterable[int]) -> str:
        return self.subwords.decode(ids).removeprefix(" ")

    def varied(self, dropout: float, random: Random) -> Callable[[str], list[int]]:
        word = self.subwords.varied(dropout, random)
        return lambda text: (
            [id for found in self.words(f" {text}") for id in word(found)] if text else []
        )

    def as_json(self) -> dict[str, Any]:
        return {"level": self.level, "pattern": self.pattern, "subwords": self.subwords.content}


class Inventory(Units):
    """A list of units, which were seen in training: characters, words or symbols."""

    unknown = UNKNOWN

    def __init__(self, level: Level, units: Sequence[str]) -> None:
        self.level, self.units = level, list(units)
        self.split = splitter(level)
        self.ids = {unit: id for id, unit in enumerate(self.units, start=UNKNOWN + 1)}

    @classmethod
    def learn(cls, texts: Iterable[str], size: int, level: Level) -> Inventory:
        """The most frequent ``size`` units, of equal ones the first in alphabetical order."""
        split = splitter(level)
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(split(text))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls(level, [unit for unit, _ in ranked[:size]])

    def vocabulary(self) -> Vocabulary:
        size = UNKNOWN + 1 + len(self.units)
        paces = (False,) * FIRST + (True,) * (size - FIRST)
        fingerprint = sha256("\n".join(self.units).encode()).hexdigest()
        return Vocabulary(size, paces=paces, fingerprint=fingerprint)

    def encode(self, text: str) -> list[int]:
        known = self.ids
        return [known.get(unit, UNKNOWN) for unit in self.split(text)]

    def decode(self, ids: Iterable[int]) -> str:
        units = (
            REPLACEMENT if id == UNKNOWN else self.units[id - UNKNOWN - 1]
            for id in ids
            if id >= UNKNOWN
        )
        if self.level == "symbols":
            return " ".join(units)
        text = "".join(units)
        return text.removeprefix(" ") if self.level == "word" else text

    def as_json(self) -> dict[str, Any]:
        return {"level": self.level, "units": self.units}


def from_json(content: Any, name: str = "this") -> Units:
    """The units that ``as_json`` gave. Raises ``DataError`` with ``name`` for anything else."""
    try:
        if content["level"] == "subword":
            return Pieces(Subwords(content["subwords"]), content["pattern"])
        if content["level"] not in get_args(Level):
            raise KeyError(content["level"])
        return Inventory(content["level"], content["units"])
    except (KeyError, TypeError) as error:
        raise DataError(f"{name} holds no units: {error!r}.") from None


def learn(texts: Iterable[str], level: Level, size: int, kind: Kind) -> Units:
    """Learn units of a level from texts. Raises ``DataError`` if there are none."""
    if level == "subword":
        return Pieces.learn(texts, size, kind)
    units = Inventory.learn(texts, size, level)
    if not units.units:
        raise nothing_to_learn(level)
    return units


def nothing_to_learn(level: Level) -> DataError:
    """What is raised if there are no units in the texts."""
    return DataError(f"there are no {level} units to learn: all texts are blank.")


def splitter(level: Level) -> Callable[[str], list[str]]:
    """What cuts a text into the units of a level other than sub-words."""
    if level == "character":
        return list
    if level == "symbols":
        return re.compile("[^ \t]+").findall
    if level == "tagged":
        return tagged
    words = re.compile(word_pattern()).findall
    return lambda text: words(f" {text}") if text else []


def tagged(text: str) -> list[str]:
    """A tag with its tab, if there is one, and characters."""
    tag, tab, rest = text.partition("\t")
    return [f"{tag}{tab}", *rest] if tab else list(text)


@cache
def word_pattern() -> str:
    """A regular expression for words: everything belongs to one.

    Letters and digits, or punctuation and symbols, with one blank before them; a blank alone; or
    other white space. What these are is written out, since versions of Unicode differ, and for the
    first 65,536 characters alone, which is much faster; emoji count as letters.
    """
    marks = characters(lambda letter: unicodedata.category(letter)[0] in "PS")
    spaces = characters(str.isspace)
    return rf" ?[^{marks}{spaces}]+| ?[{marks}]+| |(?:(?! )[{spaces}])+"


def characters(wanted: Callable[[str], bool]) -> str:
    """Those of the first 65,536 characters that are wanted, for a class of a regular expression."""
    found: list[list[int]] = []
    for code in filter(lambda code: wanted(chr(code)), range(1 << 16)):
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in found)


NORMAL_FORMS = {"nfc": "NFC", "nfd": "NFD", "nfkc": "NFKC"}


Form = Callable[[str], str]
"""What a text is turned into before it is split into units. It can be pickled."""


def normaliser(form: str) -> Form:
    """What brings a text into a Unicode form; ``none`` leaves it alone."""
    if form == "none":
        return str
    name: Any = NORMAL_FORMS[form]
    return partial(unicodedata.normalize, name)


@dataclass(frozen=True)
class Caseless:
    """Lower case, then another form."""

    form: Form
    tags: frozenset[str] | None = None
    """Of tagged texts, the tags after which this is done; the tags themselves have their case."""

    def __call__(self, text: str) -> str:
        tag, tab, rest = ("", "", text) if self.tags is None else text.partition("\t")
        lower = self.tags is None or tag in self.tags
        return self.form(f"{tag}{tab}{rest.lower()}" if lower else text)
