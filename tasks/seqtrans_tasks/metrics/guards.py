"""What makes a score of text mean nothing: refused if it must be a mistake, else warned of.

Line numbers are counted from 1. References come as sets, each a list with one line for each output,
so that the two axes can't be confused unseen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from seqtrans.errors import DataError

SHOWN = 5
"""Line numbers that a message names."""

SURE_MARKS = {
    "@@": re.compile(r"\S@@(?= |$)"),
    "▁": re.compile(r"▁"),
}
"""Sub-word marks that no text has; at the end of a piece, or before one."""

LIKELY_MARKS = {
    "##": re.compile(r"(?:^| )##(?!AT##)[^\s#]"),
    "Ġ": re.compile(r"Ġ"),
}
"""Marks that may be text (a hashtag, Maltese): only if no reference has them are they left over."""

TOKENISED_STOP = re.compile(r"\s[.。]\s*$")
STOP = re.compile(r"[.。]\s*$")


def check_lines(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse references that are no sets of as many lines as there are outputs."""
    if isinstance(references, str) or any(isinstance(lines, str) for lines in references):
        raise DataError(
            "the references are a list of sets, each a list with one line for each output; "
            "here a set is a single string."
        )
    if not references:
        raise DataError("there are no references to score against.")
    if not outputs and not any(map(len, references)):
        raise DataError("there are no outputs to score.")
    for number, lines in enumerate(references, start=1):
        if len(lines) == len(outputs):
            continue
        if len(references) == len(outputs) > 1:
            raise DataError(
                f"there are {len(outputs):,} outputs and as many sets of references, of "
                f"{counted(len(lines), 'line')}: give one list of lines for each set, not one "
                "list of references for each line."
            )
        which = f"set {number} of the references" if len(references) > 1 else "the references"
        raise DataError(
            f"{there(len(outputs), 'output')}, and {counted(len(lines), 'line')} in {which}: each "
            "output needs its reference."
        )


def left_marks(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> str | None:
    """The sentence about sub-word marks that were left in the text, if there are any.

    They join to no words, and BLEU counts the pieces. ``@@`` in the references is as wrong as in
    the outputs.
    """
    for mark, pattern in (SURE_MARKS | LIKELY_MARKS).items():
        in_references = sorted({n for lines in references for n in found(pattern, lines)})
        if in_references and mark in LIKELY_MARKS:
            continue
        for what, numbers in (("outputs", found(pattern, outputs)), ("references", in_references)):
            if numbers:
                return marks_in(what, mark, numbers)
    return None


def own_marks(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> str | None:
    """The sentence about sub-word marks that no text has but these outputs, if there are any.

    Marks that the references have as well, and those that may be text, `left_marks` tells of.
    """
    for mark, pattern in SURE_MARKS.items():
        numbers = found(pattern, outputs)
        if numbers and not any(found(pattern, lines) for lines in references):
            return marks_in("outputs", mark, numbers)
    return None


def marks_in(what: str, mark: str, numbers: Sequence[int]) -> str:
    """The sentence about a mark in the lines of these numbers."""
    return (
        f"sub-word marks {mark!r} are left in the {what}, {named(numbers)}: join the pieces to "
        "words before scoring."
    )


def doubts(
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    sources: Sequence[str] | None = None,
) -> list[str]:
    """Sentences about what is likely to be a mistake, none if nothing is.

    Sub-word marks, blank references, blank outputs, one side tokenised and the other not, and
    outputs or references that are the sources; a blank source is one that nothing is known of.
    Raises ``DataError`` for another number of sources.
    """
    if sources is not None and len(sources) != len(outputs):
        raise DataError(
            f"{there(len(outputs), 'output')}, and {counted(len(sources), 'source')}: each output "
            "needs its source."
        )
    marks = left_marks(outputs, references)
    told = [marks] if marks else []
    blank = [n for n, lines in enumerate(zip(*references, strict=True), 1) if not any_text(lines)]
    if blank:
        told.append(f"{counted(len(blank), 'reference')} {be(len(blank))} blank, {named(blank)}.")
    empty = [n for n, line in enumerate(outputs, 1) if not line.strip()]
    if empty:
        told.append(f"{counted(len(empty), 'output')} {be(len(empty))} blank, {named(empty)}.")
    told += stops(outputs, [line for lines in references for line in lines])
    known = [place for place, source in enumerate(sources or ()) if source.strip()]
    if sources is not None and known:
        for what, lines in (("outputs", outputs), ("references", references[0])):
            same = sum(lines[place] == sources[place] for place in known)
            if 2 * same > len(known):
                told.append(
                    f"{same:,} of {len(known):,} {what} are their own sources: are these the "
                    f"right {what}?"
                )
    return told


def any_text(lines: Iterable[str]) -> bool:
    return any(line.strip() for line in lines)


def stops(outputs: Sequence[str], references: Sequence[str]) -> list[str]:
    """Whether one side has its final stops as words of their own, and the other has not."""
    sides = {"outputs": outputs, "references": references}
    counts = {
        what: (sum(map(bool, map(TOKENISED_STOP.search, lines))), len(found(STOP, lines)))
        for what, lines in sides.items()
    }
    for what, other in (("outputs", "references"), ("references", "outputs")):
        apart, all_stops = counts[what]
        if 2 * apart > all_stops and 2 * counts[other][0] < counts[other][1]:
            return [
                f"the {what} seem to be tokenised and the {other} not: {apart:,} of {all_stops:,} "
                f"final stops in the {what} stand apart from their word, and {counts[other][0]:,} "
                f"of {counts[other][1]:,} in the {other}; scores of such a pair mean little."
            ]
    return []


def found(pattern: re.Pattern[str], lines: Sequence[str]) -> list[int]:
    """The numbers of the lines in which something is found."""
    return [number for number, line in enumerate(lines, start=1) if pattern.search(line)]


def named(numbers: Sequence[int]) -> str:
    """``line 3``, ``lines 3 and 7``, ``lines 1, 2, 3, 4, 5 and 10 more``."""
    shown = [str(number) for number in numbers[:SHOWN]]
    if len(numbers) > SHOWN:
        return f"lines {', '.join(shown)} and {len(numbers) - SHOWN:,} more"
    if len(shown) == 1:
        return f"line {shown[0]}"
    return f"lines {', '.join(shown[:-1])} and {shown[-1]}"


def counted(number: int, noun: str) -> str:
    """``1 line``, ``2 lines``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def there(number: int, noun: str) -> str:
    """``there is 1 line``, ``there are 2 lines``."""
    return f"there {be(number)} {counted(number, noun)}"


def be(number: int) -> str:
    return "is" if number == 1 else "are"
