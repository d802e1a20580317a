"""Part-of-speech tags by look-up: for outputs without tags, and to keep punctuation what it is.

EVALB deletes leaves by their tags, so gold and output must agree on which words are punctuation: a
leaf more or less makes the whole sentence an error. Gold tags of a test set are out of bounds, but
punctuation can be told by the word alone nearly always, and other words never are punctuation.

A known word has its most frequent tag. An unknown one is tagged by its shape and the longest ending
seen among rare words (as in Brants 2000, TnT, without its interpolation).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from seqtrans.errors import DataError
from seqtrans_tasks.parsing.tree import Node, leaves

if TYPE_CHECKING:
    from torch import Tensor

    from seqtrans_tasks.parsing.linear import Linearisation

DELETED_TAGS = frozenset([",", ":", "``", "''", "."])
"""The tags by which EVALB (COLLINS.prm) deletes leaves."""

PUNCTUATION_TAGS = DELETED_TAGS | {"-LRB-", "-RRB-", "$", "#"}
"""Tags that no ending suggests: only words seen with them have them, and `SIGNS`."""

SIGNS: Mapping[str, str] = {
    ",": ",",
    ".": ".",
    "?": ".",
    "!": ".",
    ":": ":",
    ";": ":",
    "-": ":",
    "--": ":",
    "–": ":",
    "—": ":",
    "...": ":",
    "…": ":",
    "``": "``",
    "`": "``",
    "“": "``",
    "‘": "``",
    "''": "''",
    "'": "''",
    "”": "''",
    "’": "''",
    '"': "''",
    "-LRB-": "-LRB-",
    "-LCB-": "-LRB-",
    "-LSB-": "-LRB-",
    "-RRB-": "-RRB-",
    "-RCB-": "-RRB-",
    "-RSB-": "-RRB-",
    "$": "$",
    "#": "#",
}
"""The Penn Treebank's tags of signs, for those that are in no training tree."""

LONGEST_ENDING = 4
RARE = 2
"""Words seen at most so often show how unknown ones are tagged."""

SMALLEST_SHARE = 0.01
"""Tags that a word has more rarely than this are taken as mistakes."""


@dataclass(frozen=True)
class Tagger:
    """What was learned: each word's tag, each shape's endings with theirs, and words of punctuation.

    ``signs`` has, for each word that was punctuation, all the tags that it may have.
    """

    words: Mapping[str, str]
    endings: Mapping[str, Mapping[str, str]]
    signs: Mapping[str, tuple[str, ...]]

    @classmethod
    def learn(cls, trees: Iterable[Node]) -> Self:
        """The tagger of training trees. Raises `DataError` if they have no words."""
        seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for tree in trees:
            for leaf in leaves(tree):
                seen[leaf.word][leaf.tag] += 1
        if not seen:
            raise DataError("there are no training trees, but tags are learned from their leaves.")

        endings: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(
            lambda: defaultdict(Counter)
        )
        overall: Counter[str] = Counter()
        for word, tags in seen.items():
            overall.update(tags)
            if tags.total() <= RARE:
                tag = _commonest(tags)
                if tag not in PUNCTUATION_TAGS:
                    for ending in _endings(word):
                        endings[_shape(word)][ending][tag] += 1
        endings[""][""] = overall

        signs = {word: kept for word, tags in seen.items() if (kept := _sign_tags(tags))}
        return cls(
            words={word: _commonest(seen[word]) for word in sorted(seen)},
            endings={
                shape: {
                    ending: _commonest(tags)
                    for ending, tags in sorted(of_shape.items())
                    if tags.total() > 1 or not ending
                }
                for shape, of_shape in sorted(endings.items())
            },
            signs={word: signs[word] for word in sorted(signs)},
        )

    def tag(self, words: Sequence[str]) -> list[str]:
        """One tag for each word of a sentence."""
        return [self._tag(word, begins=at == 0) for at, word in enumerate(words)]

    def choices(self, words: Sequence[str], linearisation: Linearisation) -> Tensor:
        """Bool [n, V]: the leaf symbols that may stand for each word.

        Punctuation has the tags that it was seen with; any other word has all but EVALB's deleted
        tags. Where the linearisation has none of these, all its leaf symbols are left, as they are if
        its leaves are words.
        """
        import torch

        allowed = torch.zeros(len(words), linearisation.vocabulary().size, dtype=torch.bool)
        leaf_ids = linearisation.leaf_ids
        rows = [[self._may_be(word, tag) for tag in linearisation.tags] for word in words]
        for at, row in enumerate(rows):
            allowed[at, leaf_ids.start : leaf_ids.stop] = torch.tensor(row) if any(row) else True
        return allowed

    def as_json(self) -> dict[str, Any]:
        """Everything that was learned, as JSON can hold it."""
        return {
            "words": dict(self.words),
            "endings": {shape: dict(endings) for shape, endings in self.endings.items()},
            "signs": {word: list(tags) for word, tags in self.signs.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` gave. Raises `DataError` if a part is missing."""
        for key in ("words", "endings", "signs"):
            if not isinstance(value.get(key), Mapping):
                raise DataError(
                    f"the tagger's {key!r} is {value.get(key)!r}, but it must be an object."
                )
        return cls(
            words=value["words"],
            endings=value["endings"],
            signs={word: tuple(tags) for word, tags in value["signs"].items()},
        )

    def _tag(self, word: str, *, begins: bool) -> str:
        known = self.words.get(word)
        if known is None:
            known = SIGNS.get(word)
        if known is None and begins:
            known = self.words.get(word.lower())
        if known is not None:
            return known
        endings = self.endings.get(_shape(word), {})
        for ending in _endings(word):
            if ending in endings:
                return endings[ending]
        return self.endings[""][""]

    def _may_be(self, word: str, tag: str) -> bool:
        if word in self.signs:
            return tag in self.signs[word]
        sign = None if word in self.words else SIGNS.get(word)
        if sign in DELETED_TAGS:
            return tag == sign
        return tag not in DELETED_TAGS


def _commonest(tags: Counter[str]) -> str:
    return min(tags, key=lambda tag: (-tags[tag], tag))


def _sign_tags(tags: Counter[str]) -> tuple[str, ...]:
    """The tags of a word of punctuation; none for other words.

    What a word was seen with but once in several, or very rarely, is no tag of it.
    """
    commonest = _commonest(tags)
    enough = max(2, SMALLEST_SHARE * tags.total())
    kept = tuple(tag for tag in sorted(tags) if tag == commonest or tags[tag] >= enough)
    return kept if DELETED_TAGS.intersection(kept) else ()


def _shape(word: str) -> str:
    if any(character.isdigit() for character in word):
        return "digits with letters" if any(map(str.isalpha, word)) else "digits"
    if word[:1].isupper():
        return "capital"
    return "hyphen" if "-" in word else "plain"


def _endings(word: str) -> Iterable[str]:
    """The endings of a word from the longest on, down to the empty one."""
    for length in range(min(LONGEST_ENDING, len(word)), 0, -1):
        yield word[-length:]
    yield ""
