"""Constituency scores equal to EVALB's (Sekine and Collins, the release with the F-measure).

EVALB leaves sentences out of its totals where the words of the two trees differ or the parser gave
none, so a parser can gain by failing. Here its totals stand beside totals over all sentences, in
which a failure counts as wrong. ``python -m seqtrans_tasks.parsing.evalb GOLD TEST`` scores files.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import seqtrans
from seqtrans.errors import DataError, SeqtransError, SettingsError
from seqtrans_tasks.parsing.tree import Leaf, Node, Tree

Roots: TypeAlias = Node | Sequence[Node] | None
"""What stands on one line: a tree, or several, or ``None`` where there is none."""

Span: TypeAlias = tuple[int, int]
Bracket: TypeAlias = tuple[int, int, str]
"""First word, end (exclusive) and what the label counts as."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What counts: the contents of a ``.prm`` file.

    EVALB's limit on errors (``MAX_ERROR``) has no place here: every sentence is scored.
    Raises `SettingsError` for a label or word in two classes of equivalents.
    """

    name: str
    """Stands in reports and signatures."""
    labelled: bool = True
    """Whether brackets must agree in their labels, or in their words only."""
    delete_labels: frozenset[str] = frozenset()
    """A leaf with such a tag is left out; a constituent loses its bracket and keeps its words."""
    delete_labels_for_length: frozenset[str] = frozenset()
    """Tags of the leaves that do not count in a sentence's length."""
    equivalent_labels: tuple[frozenset[str], ...] = ()
    """Classes of labels, and of tags, that count as one."""
    equivalent_words: tuple[frozenset[str], ...] = ()
    """Classes of words that count as one."""
    quote_labels: frozenset[str] = frozenset()
    """Tags that parsers mix up on quotation marks; if one of the two deletes the mark, it stays."""
    cutoff: int = 40
    """The greatest length of a gold sentence in the totals of short sentences."""

    def __post_init__(self) -> None:
        for kind, classes in (("label", self.equivalent_labels), ("word", self.equivalent_words)):
            for one, other in combinations(classes, 2):
                if both := one & other:
                    raise SettingsError(
                        f"parameters {self.name}: the {kind} {min(both)!r} is in two classes of "
                        "equivalents; a class must hold all that count as one."
                    )

    @classmethod
    def read(cls, path: str | Path) -> Parameters:
        """The settings of a file in EVALB's format, called by the file's name.

        Raises `DataError`, with the line, for what EVALB would pass over with a warning: an unknown
        setting, a missing or wrong value; and where equivalences do not close (A = B, B = C but
        not A = C), since EVALB's result then hangs on the order of brackets.
        """
        path = Path(path)
        labels: dict[str, set[str]] = {name: set() for name in _LISTS}
        pairs: dict[str, list[frozenset[str]]] = {"EQ_LABEL": [], "EQ_WORD": []}
        numbers = {"DEBUG": 0, "MAX_ERROR": 10, "LABELED": 1, "CUTOFF_LEN": 40}
        for number, line in enumerate(_lines(path), start=1):
            if line.startswith("#") or not line.strip():
                continue
            where = f"{path}, line {number}"
            setting, *values = line.split()
            if line[0].isspace() or not (setting in labels or setting in pairs | numbers):
                raise DataError(
                    f"{where}: {line.strip()!r} is not a setting; a line begins with one of "
                    f"{', '.join([*numbers, *labels, *pairs])}, or with # for a remark."
                )
            wanted = 2 if setting in pairs else 1
            if len(values) != wanted:
                raise DataError(
                    f"{where}: {setting} takes {('one value', 'two values')[wanted - 1]}, "
                    f"not {len(values)}."
                )
            if setting in labels:
                labels[setting].add(values[0])
            elif setting in pairs:
                pairs[setting].append(frozenset(values))
            else:
                numbers[setting] = _whole_number(values[0], setting, where)
        return cls(
            name=path.name,
            labelled=bool(numbers["LABELED"]),
            **{_LISTS[setting]: frozenset(found) for setting, found in labels.items()},
            equivalent_labels=_classes(pairs["EQ_LABEL"], "EQ_LABEL", path),
            equivalent_words=_classes(pairs["EQ_WORD"], "EQ_WORD", path),
            cutoff=numbers["CUTOFF_LEN"],
        )

    @cached_property
    def _label_representatives(self) -> dict[str, str]:
        return _representatives(self.equivalent_labels)

    @cached_property
    def _word_representatives(self) -> dict[str, str]:
        return _representatives(self.equivalent_words)

    @cached_property
    def _bracket_names(self) -> _BracketNames:
        return _BracketNames(self)


_LISTS = {
    "DELETE_LABEL": "delete_labels",
    "DELETE_LABEL_FOR_LENGTH": "delete_labels_for_length",
    "QUOTE_LABEL": "quote_labels",
}


def _whole_number(value: str, setting: str, where: str) -> int:
    if not re.fullmatch("[01]" if setting == "LABELED" else "[0-9]+", value):
        right = "0 or 1" if setting == "LABELED" else "a whole number"
        raise DataError(f"{where}: {setting} must be {right}, not {value!r}.")
    return int(value)


def _classes(pairs: list[frozenset[str]], setting: str, path: Path) -> tuple[frozenset[str], ...]:
    """The classes that pairs of equivalents make up."""
    classes: list[frozenset[str]] = []
    for pair in pairs:
        touched = [known for known in classes if known & pair]
        classes = [known for known in classes if not known & pair]
        classes.append(pair.union(*touched))
    for known in classes:
        for one, other in combinations(sorted(known), 2):
            if frozenset((one, other)) not in pairs:
                raise DataError(
                    f"{path}: {setting} joins {one} and {other} by way of others only, so the "
                    f"score would hang on the order of brackets; add the line {setting} {one} "
                    f"{other}."
                )
    return tuple(classes)


def _representatives(classes: tuple[frozenset[str], ...]) -> dict[str, str]:
    """The one member that stands for each member of a class."""
    return {member: min(known) for known in classes for member in known}


class _BracketNames(dict[str, str | None]):
    """What each label counts as, worked out when first asked; ``None`` where it does not count."""

    def __init__(self, parameters: Parameters) -> None:
        self.labelled = parameters.labelled
        # A trimmed label holds no "=", so that no other label has such a name.
        classes = parameters.equivalent_labels
        self.common = {label: "=".join(sorted(known)) for known in classes for label in known}
        self.deleted = {self.common.get(label, label) for label in parameters.delete_labels}

    def __missing__(self, label: str) -> str | None:
        # Trimmed before it is compared: a constituent -NONE- is trimmed to "" and so counts.
        trimmed = _FUNCTION_TAG.split(label, maxsplit=1)[0]
        name = self.common.get(trimmed, trimmed)
        found = None if name in self.deleted else name if self.labelled else UNLABELLED
        self[label] = found
        return found


_FUNCTION_TAG = re.compile("[-=]")
UNLABELLED = "*"
"""What every label counts as where labels are not compared."""

COLLINS = Parameters(
    name="COLLINS",
    delete_labels=frozenset(("TOP", "-NONE-", ",", ":", "``", "''", ".")),
    delete_labels_for_length=frozenset(("-NONE-",)),
    equivalent_labels=(frozenset(("ADVP", "PRT")),),
)
"""The parameters that papers on the Penn Treebank report (COLLINS.prm)."""

NEW = dataclasses.replace(
    COLLINS,
    name="NEW",
    delete_labels=COLLINS.delete_labels | {"S1", "?", "!"},
    quote_labels=frozenset(("``", "''", "POS", "NN", "CD", "VBZ", ":")),
)
"""As `COLLINS` for parsers with the root S1, and forgiving mixed-up quotation marks (new.prm)."""

_BUILT_IN = {"COLLINS": COLLINS, "NEW": NEW}


def parameters_named(name: str) -> Parameters:
    """``COLLINS``, ``NEW``, or what the ``.prm`` file at this path says (`Parameters.read`)."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if not Path(name).is_file():
        raise DataError(
            f"{name!r} is neither COLLINS nor NEW nor a parameter file; name one of them."
        )
    return Parameters.read(name)


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
            _percent(self.matched, self.gold_brackets, empty=0.0),
            _percent(self.matched, self.test_brackets, empty=0.0),
            self.matched,
            self.gold_brackets,
            self.test_brackets,
            self.crossing,
            self.words,
            self.correct_tags,
            _percent(self.correct_tags, self.words, empty=0.0),
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
            f"the test tree has {_counted(len(test_side.words), 'word')} to score, "
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


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over sentences, and the shares in percent that they give."""

    sentences: int
    errors: int
    skipped: int
    valid: int
    matched: int
    gold_brackets: int
    test_brackets: int
    crossing: int
    words: int
    correct_tags: int
    recall: float
    precision: float
    f1: float
    complete_match: float
    average_crossing: float
    """Test brackets in a valid sentence that cross a gold bracket."""
    no_crossing: float
    two_or_less_crossing: float
    tagging_accuracy: float


@dataclass(frozen=True, kw_only=True)
class LabelScore:
    """The brackets of one label over all sentences; shares in percent."""

    gold: int
    test: int
    matched: int

    @property
    def recall(self) -> float:
        return _percent(self.matched, self.gold, empty=math.nan)

    @property
    def precision(self) -> float:
        return _percent(self.matched, self.test, empty=math.nan)

    @property
    def f1(self) -> float:
        return _percent(2 * self.matched, self.gold + self.test, empty=math.nan)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The scores of a corpus, over all sentences and as EVALB gives them, all and short ones."""

    parameters: Parameters
    sentences: tuple[SentenceScore, ...] = field(repr=False)
    overall: Totals
    """Over all sentences: of one in error or skipped, every gold bracket counts as missed, every
    test bracket and tag as wrong, and it is neither a complete match nor without crossing; the
    average crossing is still over valid sentences. A share of nothing is nan.
    """
    evalb: Totals
    """EVALB's own: sentences in error or skipped are left out. A share of nothing is 0, F1 is nan
    if recall and precision are 0, as EVALB prints them.
    """
    overall_short: Totals
    """As ``overall``, over sentences of no greater length than the cutoff."""
    evalb_short: Totals
    labels: Mapping[str, LabelScore] = field(repr=False)
    """By label as it counts (``ADVP=PRT`` for equivalents), most frequent in gold first."""

    @property
    def signature(self) -> str:
        """What was measured and how: to be quoted beside a score."""
        kind = "labelled" if self.parameters.labelled else "unlabelled"
        return (
            f"{kind}-F1|parameters:{self.parameters.name}|sentences:{self.overall.sentences}"
            f"|skipped:{self.overall.skipped}|errors:{self.overall.errors}"
            f"|seqtrans:{seqtrans.__version__}"
        )

    def as_dict(self) -> dict[str, Any]:
        """All numbers but those of single sentences, ready for JSON: nan is given as ``None``."""
        result: dict[str, Any] = {
            "signature": self.signature,
            "parameters": self.parameters.name,
            "labelled": self.parameters.labelled,
            "cutoff": self.parameters.cutoff,
        }
        for kind in ("overall", "evalb", "overall_short", "evalb_short"):
            totals = dataclasses.asdict(getattr(self, kind))
            result[kind] = {name: _or_none(value) for name, value in totals.items()}
        result["labels"] = {
            label: {
                "gold": found.gold,
                "test": found.test,
                "matched": found.matched,
                "recall": _or_none(found.recall),
                "precision": _or_none(found.precision),
                "f1": _or_none(found.f1),
            }
            for label, found in self.labels.items()
        }
        return result

    def text(self) -> str:
        """The totals side by side and the table of labels, to be read by people."""
        kinds = (self.overall, self.evalb, self.overall_short, self.evalb_short)
        short = f"<= {self.parameters.cutoff}"
        lines = [
            self.signature,
            "",
            f"{'':<24}{'all lengths':>14}{'':>14}{'length ' + short:>14}",
            f"{'':<24}" + f"{'overall':>14}{'EVALB':>14}" * 2,
        ]
        for name, caption in _CAPTIONS.items():
            values = (getattr(totals, name) for totals in kinds)
            lines.append(f"{caption:<24}" + "".join(f"{_shown(value):>14}" for value in values))
        failed = self.overall.errors + self.overall.skipped
        lines += [
            "",
            f"{self.overall.errors} in error and {self.overall.skipped} skipped: overall counts "
            "them as wrong, EVALB leaves them out."
            if failed
            else "No sentence is in error or skipped, so overall and EVALB rest on the same ones.",
            "",
            f"{'label':<24}{'gold':>9}{'test':>9}{'matched':>9}{'recall':>11}{'precision':>11}"
            f"{'F1':>9}",
        ]
        for label, found in self.labels.items():
            lines.append(
                f"{label or '(empty)':<24}{found.gold:>9}{found.test:>9}{found.matched:>9}"
                f"{_shown(found.recall):>11}{_shown(found.precision):>11}{_shown(found.f1):>9}"
            )
        return "\n".join(lines) + "\n"

    def sentence_rows(self) -> str:
        """One row for each sentence in EVALB's columns, with the reason where one is not scored."""
        lines = [
            "  Sent.                        Matched  Bracket   Cross        Correct Tag",
            " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
            "=" * 76,
        ]
        for number, sentence in enumerate(self.sentences, start=1):
            length, status, recall, precision, matched, gold, test, crossing, words, tags, share = (
                sentence.columns()
            )
            lines.append(
                f"{number:4}  {length:3}    {status}  {recall:6.2f} {precision:6.2f}   {matched:3}"
                f"    {gold:3}  {test:3}    {crossing:3}   {words:4}  {tags:4}   {share:6.2f}"
                + (f"  {sentence.reason}" if sentence.reason else "")
            )
        return "\n".join([*lines, "=" * 76]) + "\n"


_CAPTIONS = {
    "sentences": "Sentences",
    "errors": "In error",
    "skipped": "Skipped",
    "valid": "Valid",
    "recall": "Bracketing recall",
    "precision": "Bracketing precision",
    "f1": "Bracketing F1",
    "complete_match": "Complete match",
    "average_crossing": "Average crossing",
    "no_crossing": "No crossing",
    "two_or_less_crossing": "2 or less crossing",
    "tagging_accuracy": "Tagging accuracy",
}


def score(
    golds: Iterable[Roots], tests: Iterable[Roots], parameters: Parameters = COLLINS
) -> Report:
    """The scores of a corpus; ``None`` among ``tests`` where the parser gave no tree.

    Raises `DataError` where the numbers of trees differ.
    """
    golds, tests = list(golds), list(tests)
    if len(golds) != len(tests):
        raise DataError(
            f"there are {_counted(len(golds), 'gold tree')} but "
            f"{_counted(len(tests), 'test tree')}; there must be one test tree, or None, for each "
            "gold tree."
        )
    pairs = zip(golds, tests, strict=True)
    sentences = tuple(score_sentence(gold, test, parameters) for gold, test in pairs)
    short = [sentence for sentence in sentences if sentence.length <= parameters.cutoff]
    return Report(
        parameters=parameters,
        sentences=sentences,
        overall=_totals(sentences, leave_out=False),
        evalb=_totals(sentences, leave_out=True),
        overall_short=_totals(short, leave_out=False),
        evalb_short=_totals(short, leave_out=True),
        labels=_label_scores(sentences),
    )


def _totals(sentences: Sequence[SentenceScore], *, leave_out: bool) -> Totals:
    """The totals, EVALB's own if failures are left out."""
    valid = [sentence for sentence in sentences if sentence.status is Status.OK]
    base = valid if leave_out else sentences
    agreeing = [s for s in base if s.status is Status.OK or s.exact]
    matched = sum(s.matched for s in base)
    gold = sum(s.gold_brackets for s in base)
    test = sum(s.test_brackets for s in base)
    words = sum(s.words for s in base)
    correct_tags = sum(s.correct_tags for s in base)
    crossing = sum(s.crossing for s in base)
    empty = 0.0 if leave_out else math.nan
    f1 = _percent(2 * matched, gold + test, empty=math.nan)
    return Totals(
        sentences=len(sentences),
        errors=sum(s.status is Status.ERROR for s in sentences),
        skipped=sum(s.status is Status.SKIPPED for s in sentences),
        valid=len(valid),
        matched=matched,
        gold_brackets=gold,
        test_brackets=test,
        crossing=crossing,
        words=words,
        correct_tags=correct_tags,
        recall=_percent(matched, gold, empty=empty),
        precision=_percent(matched, test, empty=empty),
        f1=math.nan if leave_out and not matched else f1,
        complete_match=_percent(sum(s.exact for s in base), len(base), empty=empty),
        average_crossing=crossing / len(valid) if valid else empty,
        no_crossing=_percent(sum(s.crossing == 0 for s in agreeing), len(base), empty=empty),
        two_or_less_crossing=_percent(
            sum(s.crossing <= 2 for s in agreeing), len(base), empty=empty
        ),
        tagging_accuracy=_percent(correct_tags, words, empty=empty),
    )


def _label_scores(sentences: Sequence[SentenceScore]) -> dict[str, LabelScore]:
    gold, test, matched = Counter[str](), Counter[str](), Counter[str]()
    for sentence in sentences:
        gold.update(sentence.gold_labels)
        test.update(sentence.test_labels)
        matched.update(sentence.matched_labels)
    return {
        label: LabelScore(gold=gold[label], test=test[label], matched=matched[label])
        for label in sorted(gold | test, key=lambda label: (-gold[label], label))
    }


def score_files(
    gold_path: str | Path, test_path: str | Path, parameters: Parameters = COLLINS
) -> Report:
    """The scores of a file of test trees against one of gold trees, a tree a line (`read_line`).

    A blank test line stands for no tree. Raises `DataError` for a missing or empty file, for
    malformed brackets (with line and column), and where the numbers of lines differ.
    """
    golds, tests = _read_file(Path(gold_path)), _read_file(Path(test_path))
    if not golds:
        raise DataError(f"{gold_path}: the file is empty, but it must hold one gold tree a line.")
    if len(golds) != len(tests):
        raise DataError(
            f"{gold_path} has {_counted(len(golds), 'line')} but {test_path} has {len(tests)}; "
            "there must be one line, blank if the parser gave no tree, for each gold tree."
        )
    return score(golds, tests, parameters)


def _read_file(path: Path) -> list[list[Node]]:
    lines = enumerate(_lines(path), start=1)
    return [read_line(line, f"{path}, line {number}") for number, line in lines]


_SPACE, _ATOM = r"[ \t\n\r\v\f]", r"[^() \t\n\r\v\f]"
_BRACKETS = re.compile(
    rf"\({_SPACE}*+({_ATOM}++){_SPACE}++({_ATOM}++){_SPACE}*+(?=\))"  # a leaf but for its close
    rf"|\({_SPACE}*+({_ATOM}*+)|(\))|({_ATOM}++)"  # an opening, a closing, a word out of place
)


def read_line(line: str, where: str = "the line") -> list[Node]:
    """The trees on one line as EVALB reads them: none, one, or several side by side.

    More lenient than `seqtrans_tasks.parsing.tree.read_tree`, as parsers' output needs it: a
    bracket may be empty, such as ``()`` and ``(TOP)``. Raises `DataError`, with ``where`` and the
    column, for unbalanced brackets and for words that do not stand alone beside their tag.
    """
    roots: list[Node] = []
    here, around = roots, list[list[Node]]()
    openings: list[int] = []
    in_leaf = False
    for match in _BRACKETS.finditer(line):
        kind, column = match.lastindex, match.start() + 1
        if kind == 2:
            here.append(Leaf(sys.intern(match[1]), match[2]))
            in_leaf = True
        elif kind == 3:
            opened = Tree(sys.intern(match[3]), [])
            here.append(opened)
            around.append(here)
            openings.append(column)
            here = opened.children
        elif kind == 5:
            raise DataError(
                f"{where}, column {column}: the word {match[5]!r} does not stand alone beside its "
                "tag; write every word as (TAG word)."
            )
        elif in_leaf:
            in_leaf = False
        elif around:
            here = around.pop()
            openings.pop()
        else:
            raise DataError(f"{where}, column {column}: this bracket closes none that is open.")
    if openings:
        raise DataError(f"{where}, column {openings[-1]}: this bracket is never closed.")
    return roots


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file, ended by line feeds alone: no other character ends a line of trees."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\r\n")
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: the file is not UTF-8 text: {error}.") from error


def _percent(part: float, whole: float, *, empty: float) -> float:
    return 100.0 * part / whole if whole else empty


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _shown(value: float) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: prints the report, or one sentence on standard error and gives 1."""
    parser = argparse.ArgumentParser(
        prog="python -m seqtrans_tasks.parsing.evalb",
        description="Score parses against gold trees as EVALB does, and over all sentences.",
    )
    parser.add_argument("gold", help="gold trees, one a line")
    parser.add_argument("test", help="the parser's trees, one a line; blank: it gave none")
    parser.add_argument(
        "--parameters", default="COLLINS", help="COLLINS (the default), NEW, or a .prm file"
    )
    parser.add_argument("--sentences", action="store_true", help="print a row for each sentence")
    chosen = parser.parse_args(arguments)
    try:
        report = score_files(chosen.gold, chosen.test, parameters_named(chosen.parameters))
    except SeqtransError as error:
        print(error, file=sys.stderr)
        return 1
    if chosen.sentences:
        print(report.sentence_rows())
    print(report.text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
