"""One sentence: which brackets of a test tree are in the gold tree, counted as EVALB does."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from seqtrans_tasks.parsing.parameters import COLLINS, Parameters
from seqtrans_tasks.parsing.tree import Leaf, Node, Tree

Roots: TypeAlias = Node | Sequence[Node] | None
"""What stands on one line: a tree, or several, or ``None`` where there is none."""

Span: TypeAlias = tuple[int, int]
Bracket: TypeAlias = tuple[int, int, str]
"""First word, end (exclusive) and what the label counts as."""


class Status(enum.IntEnum):
    """Whether a sentence was scored; the numbers are EVALB's."""

    OK = 0
    ERROR = 1
    """The two trees differ in their words."""
    SKIPPED = 2
    """The test tree has no words, or there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceScore:
    """The counts of one sentence. Brackets are counted in whole whatever the status."""

    status: Status
    reason: str = ""
    """Why the sentence is in error or skipped, as a phrase."""
    length: int
    """Gold leaves but those deleted for length (traces), punctuation included."""
    words: int
    """Gold leaves that are scored."""
    correct_tags: int = 0
    matched: int = 0
    gold_brackets: int
    test_brackets: int
    crossing: int = 0
    """Test brackets that cross a gold bracket."""
    matched_labels: Mapping[str, int] = field(default_factory=dict)
    gold_labels: Mapping[str, int]
    test_labels: Mapping[str, int]

    @property
    def exact(self) -> bool:
        """Whether test and gold agree in words and brackets, be it that neither has any."""
        agree = self.status is Status.OK or (self.status is Status.SKIPPED and not self.words)
        return agree and self.matched == self.gold_brackets == self.test_brackets

    def columns(self) -> tuple[int, int, float, float, int, int, int, int, int, int, float]:
        """EVALB's columns after the number: length, status, recall, precision, matched, gold and
        test brackets, crossing, words, correct tags, tagging accuracy; 0 where it does not score.
        """
        if self.status is not Status.OK:
            return self.length, int(self.status), 0.0, 0.0, 0, 0, 0, 0, 0, 0, 0.0
        return (
            self.length,
            int(self.status),
            percent(self.matched, self.gold_brackets, empty=0.0),
            percent(self.matched, self.test_brackets, empty=0.0),
            self.matched,
            self.gold_brackets,
            self.test_brackets,
            self.crossing,
            self.words,
            self.correct_tags,
            percent(self.correct_tags, self.words, empty=0.0),
        )


def score_sentence(gold: Roots, test: Roots, parameters: Parameters = COLLINS) -> SentenceScore:
    """The counts of one sentence, in time linear in its leaves and brackets (but for one sort).

    ``None``, or a sequence of no trees, stands for a parser that gave none.
    """
    gold_side, test_side = _read(gold, parameters), _read(test, parameters)
    if not test_side.words:
        reason = "the test tree has no words to score" if _forest(test) else "there is no test tree"
        return _unscored(Status.SKIPPED, reason, gold_side, test_side)
    if len(gold_side.words) != len(test_side.words):
        reason = (
            f"the test tree has {counted(len(test_side.words), 'word')} to score, "
            f"the gold tree {len(gold_side.words)}"
        )
        gold_restored, test_restored = _restored(gold_side, test_side)
        with_marks = (
            _read(gold, parameters, gold_restored),
            _read(test, parameters, test_restored),
        )
        if len(with_marks[0].words) != len(with_marks[1].words):
            return _unscored(Status.ERROR, reason, gold_side, test_side)
        gold_side, test_side = with_marks
    if gold_side.words != test_side.words:
        common = parameters._word_representatives
        pairs = zip(gold_side.words, test_side.words, strict=True)
        for number, (one, other) in enumerate(pairs, start=1):
            if common.get(one, one) != common.get(other, other):
                reason = f"word {number} is {other!r} in the test tree, {one!r} in the gold tree"
                return _unscored(Status.ERROR, reason, gold_side, test_side)

    gold_counts, matched_labels, matched = Counter(gold_side.brackets), Counter[str](), 0
    for bracket, count in Counter(test_side.brackets).items():
        if both := min(count, gold_counts.get(bracket, 0)):
            matched_labels[bracket[2]] += both
            matched += both
    common = parameters._label_representatives
    return SentenceScore(
        status=Status.OK,
        length=gold_side.length,
        words=len(gold_side.words),
        correct_tags=sum(
            one == other or common.get(one, one) == common.get(other, other)
            for one, other in zip(gold_side.tags, test_side.tags, strict=True)
        ),
        matched=matched,
        gold_brackets=len(gold_side.brackets),
        test_brackets=len(test_side.brackets),
        crossing=_crossing(gold_side.brackets, test_side.brackets),
        matched_labels=matched_labels,
        gold_labels=_label_counts(gold_side),
        test_labels=_label_counts(test_side),
    )


class _Quote(NamedTuple):
    """A quotation mark: which leaf it is, how many scored leaves precede it, if it is scored."""

    leaf: int
    at: int
    kept: bool


@dataclass(slots=True)
class _Side:
    """What is scored of one tree."""

    length: int
    tags: list[str]
    words: list[str]
    brackets: list[Bracket]
    quotes: list[_Quote]


_QUOTATION_MARKS = frozenset(("'", '"', "/"))
_NONE: Mapping[int, int] = {}


def _read(roots: Roots, parameters: Parameters, restored: Mapping[int, int] = _NONE) -> _Side:
    """What is scored of a tree; ``restored`` are leaves to score, so many times, all the same."""
    deleted, no_length = parameters.delete_labels, parameters.delete_labels_for_length
    quote_labels, names = parameters.quote_labels, parameters._bracket_names
    side = _Side(0, [], [], [], [])
    tags, words, brackets = side.tags, side.words, side.brackets
    leaf = 0
    stack: list[Node | tuple[int, str]] = [*reversed(_forest(roots))]
    while stack:
        here = stack.pop()
        if isinstance(here, Leaf):
            tag, word = here.tag, here.word
            times = restored.get(leaf, 0) if tag in deleted else 1
            if tag not in no_length:
                side.length += 1
            if tag in quote_labels and word in _QUOTATION_MARKS:
                side.quotes.append(_Quote(leaf, len(words), tag not in deleted))
            for _ in range(times):
                tags.append(tag)
                words.append(word)
            leaf += 1
        elif isinstance(here, Tree):
            name = names[here.label]
            if name is not None:
                stack.append((len(words), name))
            stack.extend(here.children[::-1])
        else:
            start, name = here
            if start < len(words):
                brackets.append((start, len(words), name))
    return side


def _forest(roots: Roots) -> Sequence[Node]:
    if roots is None:
        return ()
    return (roots,) if isinstance(roots, Tree | Leaf) else roots


def _restored(gold: _Side, test: _Side) -> tuple[dict[int, int], dict[int, int]]:
    """The deleted quotation marks to score again, where the other side scores one in that place.

    Gives how often each leaf returns. EVALB asks for the same place among the scored leaves, and
    moves a mark that has returned on by one. A mark may so return again, for the next one of the
    other side, though it is a single one in the tree; that is EVALB's doing, and kept.
    """
    gold_restored, test_restored = Counter[int](), Counter[int]()
    gold_shift = test_shift = 0
    # Among marks in one place all but the last are deleted; `kept_from` finds that one.
    kept_from = [len(gold.quotes)] * (len(gold.quotes) + 1)
    for index in reversed(range(len(gold.quotes))):
        kept_from[index] = index if gold.quotes[index].kept else kept_from[index + 1]
    first = 0
    for mark in test.quotes:
        place = mark.at + test_shift
        while first < len(gold.quotes) and gold.quotes[first].at + gold_shift < place:
            first += 1
        found = first if mark.kept else kept_from[first]
        if found == len(gold.quotes):
            continue
        other = gold.quotes[found]
        if other.at + gold_shift != place or other.kept == mark.kept:
            continue
        if mark.kept:
            gold_restored[other.leaf] += 1
            gold_shift += 1
        else:
            test_restored[mark.leaf] += 1
            test_shift += 1
    return gold_restored, test_restored


def _unscored(status: Status, reason: str, gold: _Side, test: _Side) -> SentenceScore:
    return SentenceScore(
        status=status,
        reason=reason,
        length=gold.length,
        words=len(gold.words),
        gold_brackets=len(gold.brackets),
        test_brackets=len(test.brackets),
        gold_labels=_label_counts(gold),
        test_labels=_label_counts(test),
    )


def _label_counts(side: _Side) -> Counter[str]:
    return Counter([name for _, _, name in side.brackets])


def _crossing(gold: list[Bracket], test: list[Bracket]) -> int:
    """How many test brackets cross at least one gold bracket.

    A test bracket crosses one if and only if, at its start or at its end, the smallest gold
    bracket that runs on across that point ends within it, or starts within it.
    """
    spans = {(start, end) for start, end, _ in gold}
    others = [(start, end) for start, end, _ in test if (start, end) not in spans]
    if not others:
        return 0
    around = _smallest_around(spans)
    crossing = 0
    for start, end in others:
        before, after = around.get(start), around.get(end)
        if (before and before[1] < end) or (after and after[0] > start):
            crossing += 1
    return crossing


def _smallest_around(spans: set[Span]) -> dict[int, Span]:
    """For each point between words, the smallest of the nested spans that has it in its inside."""
    around: dict[int, Span] = {}
    open_points: list[int] = []
    reached = 0
    # Nested spans in this order stand inner before outer, so the first to hold a point is smallest.
    for start, end in sorted(spans, key=lambda span: (span[1], -span[0])):
        open_points.extend(range(reached, end))
        reached = end
        while open_points and open_points[-1] > start:
            around[open_points.pop()] = (start, end)
    return around


def percent(part: float, whole: float, *, empty: float) -> float:
    """The part in percent of the whole, ``empty`` if there is nothing of it."""
    return 100.0 * part / whole if whole else empty


def counted(count: int, noun: str) -> str:
    """``1 tree``, ``2 trees``."""
    return f"{count} {noun}" + ("" if count == 1 else "s")
