"""Part-of-speech tags by look-up: for outputs without tags, and to keep punctuation what it is.

EVALB deletes leaves by their tags, so gold and output must agree on which words are punctuation: a
leaf more or less makes the whole sentence an error. Gold tags of a test set are out of bounds, but
punctuation can be told by the word alone nearly always, and other words never are punctuation.

A known word has its most frequent tag; a sign with several tags, such as an apostrophe or a hyphen
between spaces, has the most frequent one between neighbours that look like those it has here. An
unknown word is tagged by its shape and the longest ending seen among rare words (as in Brants 2000,
TnT, without its interpolation).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from seqtrans.errors import DataError
from seqtrans_tasks.parsing.tree import Node, leaves

if TYPE_CHECKING:
    from torch import Tensor

    from seqtrans_tasks.parsing.linear import Linearisation

Counts: TypeAlias = "defaultdict[str, defaultdict[str, Counter[str]]]"

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
RARE = 10
"""Words seen at most so often show how unknown ones are tagged (as in TnT)."""

ENOUGH = 5
"""An ending, or a pair of neighbours, must have been seen so often to tell a tag."""

SMALLEST_SHARE = 0.01
"""Tags that a word has more rarely than this are taken as mistakes."""


@dataclass(frozen=True)
class Tagger:
    """What was learned from training trees: tags of words, and what tells the tags of others."""

    words: Mapping[str, str]
    """The most frequent tag of every word."""
    endings: Mapping[str, Mapping[str, str]]
    """For each shape of words, the tags that go with endings; under ``""``, the last resort."""
    signs: Mapping[str, tuple[str, ...]]
    """For each word of punctuation, all the tags that it may have."""
    neighbours: Mapping[str, Mapping[str, str]]
    """For each sign with several tags, the tag that goes with the looks of the words beside it."""

    @classmethod
    def learn(cls, trees: Iterable[Node]) -> Self:
        """The tagger of training trees. Raises `DataError` if they have no words."""
        sentences = [leaves(tree) for tree in trees]
        seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for sentence in sentences:
            for leaf in sentence:
                seen[leaf.word][leaf.tag] += 1
        if not seen:
            raise DataError("there are no training trees, but tags are learned from their leaves.")

        endings: Counts = defaultdict(lambda: defaultdict(Counter))
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
        neighbours: Counts = defaultdict(lambda: defaultdict(Counter))
        for sentence in sentences:
            words = [leaf.word for leaf in sentence]
            for at, leaf in enumerate(sentence):
                if len(signs.get(leaf.word, ())) > 1 and leaf.tag in signs[leaf.word]:
                    neighbours[leaf.word][_beside(words, at)][leaf.tag] += 1
        return cls(
            words={word: _commonest(tags) for word, tags in sorted(seen.items())},
            endings=_commonest_of_each(endings),
            signs=dict(sorted(signs.items())),
            neighbours=_commonest_of_each(neighbours),
        )

    def tag(self, words: Sequence[str]) -> list[str]:
        """One tag for each word of a sentence."""
        return [self._tag(words, at) for at in range(len(words))]

    def choices(self, words: Sequence[str], linearisation: Linearisation) -> Tensor:
        """Bool [n, V]: the leaf symbols that may stand for each word.

        Punctuation has the tags that it was seen with; any other word has all but EVALB's deleted
        tags. Where the linearisation has none of these, all its leaf symbols are left, as they are
        if its leaves are words.
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
            "endings": {shape: dict(tags) for shape, tags in self.endings.items()},
            "signs": {word: list(tags) for word, tags in self.signs.items()},
            "neighbours": {word: dict(tags) for word, tags in self.neighbours.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` gave. Raises `DataError` if a part is missing."""
        for key in ("words", "endings", "signs", "neighbours"):
            if not isinstance(value.get(key), Mapping):
                raise DataError(
                    f"the tagger's {key!r} is {value.get(key)!r}, but it must be an object."
                )
        return cls(
            words=value["words"],
            endings=value["endings"],
            signs={word: tuple(tags) for word, tags in value["signs"].items()},
            neighbours=value["neighbours"],
        )

    def _tag(self, words: Sequence[str], at: int) -> str:
        word = words[at]
        if word in self.neighbours:
            beside = self.neighbours[word].get(_beside(words, at))
            if beside is not None:
                return beside
        known = self.words.get(word) or SIGNS.get(word)
        if known is None and at == 0:
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


def _commonest_of_each(counts: Counts) -> dict[str, dict[str, str]]:
    """The commonest tag under each pair of keys that has evidence, or whose inner one is empty."""
    return {
        outer: {
            inner: _commonest(tags)
            for inner, tags in sorted(of_outer.items())
            if tags.total() >= ENOUGH or not inner
        }
        for outer, of_outer in sorted(counts.items())
    }


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
        return "mixed" if any(map(str.isalpha, word)) else "digits"
    if word[:1].isupper():
        return "capital"
    return "hyphen" if "-" in word else "plain"


def _beside(words: Sequence[str], at: int) -> str:
    """How the neighbours of a word look: before and after it, with "edge" for the sentence's."""
    before = _look(words[at - 1]) if at else "edge"
    after = _look(words[at + 1]) if at + 1 < len(words) else "edge"
    return f"{before} {after}"


def _look(word: str) -> str:
    """A sign as it is; of other words the shape, and whether they may be plurals or genitives."""
    if word in SIGNS:
        return word
    return f"{_shape(word)}-s" if word.endswith("s") else _shape(word)


def _endings(word: str) -> Iterable[str]:
    """The endings of a word from the longest on, down to the empty one."""
    for length in range(min(LONGEST_ENDING, len(word)), 0, -1):
        yield word[-length:]
    yield ""
