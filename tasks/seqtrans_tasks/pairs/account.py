"""Which pairs are kept and why the others are not: an account that adds up, read = kept + dropped.

Only training pairs are ever dropped. Of pairs to validate or test on every one is kept, blank ones
too, so that there is one output for each line of input; what is odd about them is noted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seqtrans.errors import DataError
from seqtrans_tasks.pairs.reading import Chunk, files_of, shortened

BLANK_SOURCE = "blank source"
BLANK_TARGET = "blank target"
TOO_LONG = "too long"
RATIO = "lengths too different"
COPY = "copy"
DUPLICATE = "duplicate"
HELD_OUT = "held out for dev"
REASONS = (HELD_OUT, BLANK_SOURCE, BLANK_TARGET, TOO_LONG, RATIO, COPY, DUPLICATE)
"""Why a pair is dropped. It counts under the first of these that applies."""

LINE_ENDS = "other ends of lines"
CONTROLS = "control characters"
SPECIALS = "names of control tokens"
PADDED = "blanks at an end"
EQUAL = "equal sides"
IN_TRAIN = "source in train"
NOTES = {
    BLANK_SOURCE: "with a blank source",
    BLANK_TARGET: "with a blank target",
    TOO_LONG: "longer than the limit for training",
    LINE_ENDS: "with characters that other programs take for the end of a line, such as U+2028; "
    "they stay in the line",
    CONTROLS: "with control characters, such as NUL; they stay in the line",
    SPECIALS: "with <s>, </s>, <pad> or <unk>; these are text like any other",
    PADDED: "with blanks at the beginning or end of a line",
    EQUAL: "whose two sides are equal",
    IN_TRAIN: "whose source is in train as well",
}
"""What is noted of pairs that are kept, and how that is said."""

SHOWN = 3
"""So many of the first lines are kept for each reason."""
ALARMING = 0.01
"""A larger share of pairs that are too long or known from training, or of units that are unknown,
is worth a warning."""

_TYPED_SPECIALS = ("<s>", "</s>", "<pad>", "<unk>")
_LINE_ENDS = re.compile("[\v\f\r\x1c-\x1e\x85\u2028\u2029]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")

Flags = NDArray[np.bool_]
Lengths = Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True)
class Filters:
    """What is dropped from training."""

    max_length: int | None = None
    """In units of the longer side."""
    max_ratio: float | None = None
    """Of the lengths of the longer and the shorter side."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Pairs that are equal to an earlier one."""
    copies: Literal["keep", "drop"] = "keep"
    """Pairs of two equal sides."""


@dataclass(frozen=True)
class Line:
    """A line that was dropped or noted, and where it stands."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.number}: {self.text}"


@dataclass(frozen=True)
class Account:
    """What became of the pairs of a split, or of a part of it; accounts of parts can be added."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    """How many of the kept pairs something is noted of."""
    first: Mapping[str, tuple[Line, ...]] = field(default_factory=dict)
    """The first lines dropped for each reason, or noted."""

    def __post_init__(self) -> None:
        assert self.read == self.kept + self.dropped.total()

    def __add__(self, later: Account) -> Account:
        """Of both; ``later`` is of what comes after this."""
        names = dict.fromkeys((*self.first, *later.first))
        return Account(
            self.read + later.read,
            self.kept + later.kept,
            self.dropped + later.dropped,
            self.noted + later.noted,
            {n: (*self.first.get(n, ()), *later.first.get(n, ()))[:SHOWN] for n in names},
        )

    def as_json(self) -> dict[str, Any]:
        """For a JSON file; :meth:`from_json` reads it."""
        return {
            "read": self.read,
            "kept": self.kept,
            "dropped": {r: self.dropped[r] for r in REASONS if self.dropped[r]},
            "noted": {n: self.noted[n] for n in NOTES if self.noted[n]},
            "first": {name: [asdict(line) for line in self.first[name]] for name in self.first},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Account:
        """The account that :meth:`as_json` gave."""
        return cls(
            content["read"],
            content["kept"],
            Counter(content["dropped"]),
            Counter(content["noted"]),
            {name: tuple(Line(**line) for line in of) for name, of in content["first"].items()},
        )

    def text(self, name: str) -> Iterator[str]:
        """Lines for people: the sum, and the first lines of whatever was dropped or noted."""
        dropped = [f" + {self.dropped[r]:,} {r}" for r in REASONS if self.dropped[r]]
        yield f"{name}: {self.read:,} pairs read = {self.kept:,} kept{''.join(dropped)}"
        for reason in REASONS:
            if self.dropped[reason] and reason != HELD_OUT:
                yield from self._lines(reason, f"dropped as {reason}")
        for note, said in NOTES.items():
            if self.noted[note]:
                yield from self._lines(note, f"kept, {self.noted[note]:,} {said}")

    def _lines(self, name: str, said: str) -> Iterator[str]:
        yield f"  {said}:"
        for line in self.first.get(name, ()):
            yield f"    {line}"

    def warnings(self, name: str) -> Iterator[str]:
        """Sentences on what is likely to be a mistake."""
        long = self.dropped[TOO_LONG]
        if long > ALARMING * self.read:
            yield (
                f"{name}: {long:,} of {self.read:,} pairs ({100 * long / self.read:.1f} %) dropped "
                "as too long; is the limit meant, and are the lines single sentences?"
            )
        for note, share, said in (
            (EQUAL, 0.5, "equal sides; if that is not meant, set task.copies=drop."),
            (
                IN_TRAIN,
                ALARMING,
                "a source that is in train as well; the model may have memorised them.",
            ),
        ):
            number = self.noted[note]
            # Nothing is ever dropped from dev and test, so there equal sides are only noted.
            if number > share * self.kept and (name == "train" or note != EQUAL):
                yield (
                    f"{name}: {number:,} of {self.kept:,} pairs ({100 * number / self.kept:.1f} %) "
                    f"have {said}"
                )
        for note in (BLANK_SOURCE, BLANK_TARGET):
            if self.noted[note]:
                yield f"{name}: {self.noted[note]:,} of {self.read:,} pairs kept {NOTES[note]}."

    def check(self, name: str) -> None:
        """Raises ``DataError`` if there is no pair left."""
        if not self.kept:
            said = " + ".join(f"{self.dropped[r]:,} {r}" for r in REASONS if self.dropped[r])
            raise DataError(
                f"nothing is left of {name}: of {self.read:,} pairs all are dropped, {said}."
                if self.read
                else f"{name} has no pairs."
            )


def sift(
    chunk: Chunk,
    filters: Filters,
    *,
    training: bool,
    source_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    repeated: Flags | None = None,
    held_out: Flags | None = None,
) -> tuple[NDArray[np.intp], Account]:
    """Which pairs of a chunk to keep, as numbers in it from 0, and the account of all of them.

    Args:
        chunk: pairs of one part.
        filters: what to drop.
        training: if not, nothing is dropped; blank and over-long pairs are noted.
        source_lengths: in units, one for each pair; needed for ``max_length`` and ``max_ratio``.
        target_lengths: the same of the targets.
        repeated: which pairs are equal to an earlier one; needed for ``duplicates="drop"``.
        held_out: which pairs are kept for dev, and not for training.
    """
    sides = chunk.source, chunk.target
    stripped = [[line.strip() for line in side] for side in sides]
    blank = [_flags(not line for line in side) for side in stripped]
    faults = {BLANK_SOURCE: blank[0], BLANK_TARGET: blank[1]}
    if held_out is not None:
        faults = {HELD_OUT: held_out, **faults}
    longer: NDArray[np.intp] | None = None
    if filters.max_length is not None or filters.max_ratio is not None:
        assert source_lengths is not None
        assert target_lengths is not None
        lengths = np.array([source_lengths, target_lengths], np.int64)
        longer = lengths.argmax(0)
        if filters.max_length is not None:
            faults[TOO_LONG] = lengths.max(0) > filters.max_length
        if filters.max_ratio is not None and training:
            # A side without units has no ratio, and is a matter of the rule for blank ones.
            faults[RATIO] = (lengths.min(0) > 0) & (
                lengths.max(0) > filters.max_ratio * lengths.min(0)
            )
    equal = _flags(a == b for a, b in zip(*sides, strict=True)) & ~blank[0]
    if filters.copies == "drop" and training:
        faults[COPY] = equal
    if filters.duplicates == "drop" and training:
        assert repeated is not None
        faults[DUPLICATE] = repeated

    kept = np.ones(len(chunk), bool)
    dropped, noted = Counter[str](), Counter[str]()
    first: dict[str, tuple[Line, ...]] = {}
    for reason, flags in faults.items():
        counter, which = (dropped, flags & kept) if training else (noted, flags)
        if not which.any():
            continue
        counter[reason] += int(which.sum())
        side = longer if reason == TOO_LONG else int(reason == BLANK_TARGET)
        first[reason] = _first(chunk, which, side)
        if training:
            kept &= ~flags
    for note, both in {**_odd(sides, stripped), EQUAL: (equal, equal)}.items():
        which = (both[0] | both[1]) & kept
        if which.any():
            noted[note] += int(which.sum())
            first[note] = _first(chunk, which, np.where(both[0], 0, 1))
    account = Account(len(chunk), int(kept.sum()), dropped, noted, first)
    return np.flatnonzero(kept), account


def _first(chunk: Chunk, which: Flags, side: NDArray[np.intp] | int | None) -> tuple[Line, ...]:
    """The first lines of those flagged; ``side`` tells, for each or for all, which one is shown."""
    files = files_of(chunk.part)
    sides = np.broadcast_to(0 if side is None else side, len(chunk))
    return tuple(
        Line(
            str(files[min(sides[i], len(files) - 1)]),
            chunk.first + int(i),
            shortened((chunk.source, chunk.target)[sides[i]][i]),
        )
        for i in np.flatnonzero(which)[:SHOWN]
    )


def _odd(
    sides: Sequence[Sequence[str]], stripped: Sequence[Sequence[str]]
) -> dict[str, tuple[Flags, Flags]]:
    """For each note that is of the text, the lines of source and of target that it is of."""
    odd: dict[str, list[Flags]] = {note: [] for note in (LINE_ENDS, CONTROLS, SPECIALS, PADDED)}
    for lines, short in zip(sides, stripped, strict=True):
        none = np.zeros(len(lines), bool)
        # Most text has nothing of this: then it is told at once, and not line by line.
        unprintable = [] if "".join(lines).isprintable() else [not a.isprintable() for a in lines]
        for note, pattern in ((LINE_ENDS, _LINE_ENDS), (CONTROLS, _CONTROLS)):
            odd[note].append(
                _flags(
                    unprintable[i] and pattern.search(line) is not None
                    for i, line in enumerate(lines)
                )
                if unprintable
                else none
            )
        text = "\n".join(lines)
        typed = [name for name in _TYPED_SPECIALS if name in text]
        odd[SPECIALS].append(
            _flags(any(name in line for name in typed) for line in lines) if typed else none
        )
        odd[PADDED].append(_flags(0 < len(b) < len(a) for a, b in zip(lines, short, strict=True)))
    return {note: (source, target) for note, (source, target) in odd.items()}


def _flags(values: Iterable[bool]) -> Flags:
    return np.fromiter(values, bool)
