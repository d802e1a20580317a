"""Edit distance, and the rates that count it over a corpus: WER, PER, exact match."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from seqtrans.errors import DataError
from seqtrans_tasks.metrics.guards import counted, there

Symbols = Sequence[Hashable]
"""A string, or a list of phones, words or ids."""


def levenshtein(first: Symbols, second: Symbols) -> int:
    """The fewest insertions, deletions and substitutions that turn one sequence into the other.

    Bit-parallel (Myers, 1999; Hyyrö, 2003): a column of the table of distances is two integers,
    the bits where it grows and where it falls by one. Python's integers are as long as it takes, so
    one symbol of ``second`` costs a dozen operations on them, and no library is needed.
    """
    if not first or not second:
        return len(first) + len(second)
    places: dict[Hashable, int] = {}
    for number, symbol in enumerate(first):
        places[symbol] = places.get(symbol, 0) | 1 << number
    every = (1 << len(first)) - 1
    last = 1 << len(first) - 1
    grows, falls, distance = every, 0, len(first)
    for symbol in second:
        equal = places.get(symbol, 0)
        upright = equal | falls
        level = (((equal & grows) + grows) ^ grows) | equal
        more = falls | (~(level | grows) & every)
        less = grows & level
        if more & last:
            distance += 1
        elif less & last:
            distance -= 1
        more, less = (more << 1 | 1) & every, less << 1 & every
        grows, falls = less | (~(upright | more) & every), more & upright
    return distance


@dataclass(frozen=True)
class Edits:
    """Counts over a corpus of words; all rates are in percent, and of nothing 0."""

    words: int
    wrong: int
    """Words that equal none of their references."""
    edits: int
    """Edits from each output to the nearest of its references."""
    symbols: int
    """Symbols of those references."""

    @property
    def word_error_rate(self) -> float:
        """WER: the share of words that are not exactly right."""
        return percent(self.wrong, self.words)

    @property
    def phone_error_rate(self) -> float:
        """PER: edits over the symbols of the references."""
        return percent(self.edits, self.symbols)

    @property
    def exact_match(self) -> float:
        """The share of words that are exactly right."""
        return percent(self.words - self.wrong, self.words)

    @property
    def mean_edit_distance(self) -> float:
        """Edits for each word."""
        return self.edits / self.words if self.words else 0.0

    def __add__(self, other: Edits) -> Edits:
        return Edits(
            self.words + other.words,
            self.wrong + other.wrong,
            self.edits + other.edits,
            self.symbols + other.symbols,
        )


def percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def count_word(output: Symbols, references: Sequence[Symbols]) -> Edits:
    """One word against all that would be right, of which there is at least one.

    Of references that are equally near the first counts.
    """
    distances = [levenshtein(output, reference) for reference in references]
    edits = min(distances)
    return Edits(1, int(edits > 0), edits, len(references[distances.index(edits)]))


def count_edits(outputs: Sequence[Symbols], references: Sequence[Sequence[Symbols]]) -> Edits:
    """Each output against its references: ``references[i]`` is all that output ``i`` may be.

    Raises ``DataError`` if the numbers differ, or a word has no reference.
    """
    check_words(outputs, references)
    total = Edits(0, 0, 0, 0)
    for output, allowed in zip(outputs, references, strict=True):
        total += count_word(output, allowed)
    return total


def check_words(outputs: Sequence[Symbols], references: Sequence[Sequence[Symbols]]) -> None:
    """Refuse unequal numbers, and words without a reference."""
    if len(outputs) != len(references):
        raise DataError(
            f"{there(len(outputs), 'output')}, and references for "
            f"{counted(len(references), 'word')}: each needs the other."
        )
    for number, allowed in enumerate(references, start=1):
        if isinstance(allowed, str) or not len(allowed):
            raise DataError(
                f"word {number} needs a list of one or more references, not {allowed!r}."
            )
