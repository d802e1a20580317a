"""Inflection: a lemma and features to a form, by exact match and edit distance.

Tables as SIGMORPHON's shared tasks and UniMorph have them: lemma, form, features with ; between. A
letter is a symbol, and so is a feature: ``walk`` with ``V;PST`` is read as ``w a l k +V +PST``, and
``walked`` written as ``w a l k e d``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from seqtrans.corpus import Corpus, Ragged
from seqtrans.errors import DataError
from seqtrans.task import Comparison, Score, Vocabulary
from seqtrans_tasks.inflection import InflectionSettings
from seqtrans_tasks.inflection.inventing import invent
from seqtrans_tasks.pairs.reading import Chunk, Part, Table, lines, rows, without_tabs
from seqtrans_tasks.pairs.task import Pair, Pairs
from seqtrans_tasks.pairs.units import UNKNOWN, Inventory, Units

BLANK = "␣"
"""How a blank inside a lemma or form stands among the symbols."""
FEATURE = "+"
"""What a feature begins with."""
FORM = "a form"
"""What stands in a line of outputs."""


class Inflection(Pairs):
    """Lemmas with features to forms. An input is a line of both, a tab between."""

    settings: InflectionSettings

    def read_part(self, part: Part) -> Iterator[Chunk]:
        if not isinstance(part, Table):
            yield from super().read_part(part)
            return
        columns = part.source_column, part.target_column, self.settings.features_column
        if not all(isinstance(column, int) for column in columns):
            raise DataError(f"{part.path}: columns of lemmas and forms are given by number.")
        lemma, form, features = (int(column) - 1 for column in columns)
        for read in rows(part.path, max(lemma, form, features) + 1):
            sources = [question(row[lemma], row[features]) for row in read.rows]
            yield Chunk(part, read.first, sources, [spell(r[form]) for r in read.rows], read.done)

    @property
    def varies(self) -> bool:
        return super().varies or bool(self.settings.invented)

    def redraw(self, corpus: Corpus, random: Random) -> tuple[Ragged, Ragged]:
        sources, targets = super().redraw(corpus, random)
        if not self.settings.invented:
            return sources, targets
        pairs = ((sources[i].tolist(), targets[i].tolist()) for i in range(len(corpus)))
        drawn = Corpus.of(
            self.invented(*pair, random) if random.random() < self.settings.invented else pair
            for pair in pairs
        )
        return drawn.sources, drawn.targets

    def invented(
        self, source: list[int], target: list[int], random: Random
    ) -> tuple[list[int], list[int]]:
        """The pair with a stem of letters as often as they are in lemmas."""
        end = next(i for i, id in enumerate(source) if not self.is_letter[id])
        lemma, form = invent(source[:end], target, self.letters, random)
        return lemma + source[end:], form

    @cached_property
    def is_letter(self) -> NDArray[np.bool_]:
        """[V]: which ids are neither features nor control tokens."""
        return np.array(self.source_vocabulary.paces)

    @cached_property
    def letters(self) -> list[int]:
        """The letters of all lemmas, each as often as it is there."""
        ids = np.asarray(self.corpus.sources.values)
        found: list[int] = ids[self.is_letter[ids] & (ids != UNKNOWN)].tolist()
        return found

    @property
    def source_vocabulary(self) -> Vocabulary:
        return vocabulary(self.source)

    @property
    def target_vocabulary(self) -> Vocabulary:
        return vocabulary(self.target)

    def read(self, line: str) -> str:
        lemma, tab, features = super().read(line).partition("\t")
        if not tab:
            raise DataError("a lemma and its features, such as 'walk\tV;PST', have a tab between.")
        if not lemma.strip():
            raise DataError("there is no lemma before the tab.")
        return question(lemma, features)

    def write(self, output: str) -> str:
        return "".join(output.split()).replace(BLANK, " ")

    def mistake(self, outputs: Sequence[str], examples: Sequence[Pair]) -> str | None:
        return None

    def recover(self, line: str, example: Pair) -> str:
        return spell(without_tabs(line, FORM))

    def example(self, reference: str) -> Pair:
        return Pair("", (spell(without_tabs(reference, FORM)),))

    def has_sources(self, path: Path) -> bool:
        """Whether a file of references is a table, of which the first row has a tab."""
        if not path.is_file():
            return False
        return "\t" in next((row for read in lines(path) for row in read.lines if row.strip()), "")

    def score(self, outputs: Sequence[str], examples: Sequence[Pair]) -> Score:
        from seqtrans_tasks.metrics.scores import form_score

        return form_score([output.split() for output in outputs], forms(examples))

    def compare(self, outputs: Mapping[str, Sequence[str]], examples: Sequence[Pair]) -> Comparison:
        from seqtrans_tasks.metrics.significance import compare_words

        split = {name: [line.split() for line in lines] for name, lines in outputs.items()}
        return compare_words(split, forms(examples), ("exact match", "edit distance"))


def vocabulary(units: Units) -> Vocabulary:
    """The vocabulary of units. A feature stands at the end of the lemma, and isn't a letter of it.

    Both sides have it so, since a vocabulary that they share is one.
    """
    found = units.vocabulary()
    if not isinstance(units, Inventory):
        return found
    features = [len(unit) > 1 and unit.startswith(FEATURE) for unit in units.units]
    return replace(found, paces=(False,) * UNKNOWN + (True, *(not feature for feature in features)))


def forms(examples: Sequence[Pair]) -> list[list[list[str]]]:
    """The letters of the right forms of each example."""
    return [[target.split() for target in example.targets] for example in examples]


def spell(word: str) -> str:
    """The letters of a word as symbols."""
    return " ".join(BLANK if letter.isspace() else letter for letter in word.strip())


def question(lemma: str, features: str) -> str:
    """A lemma and its features as symbols."""
    given = (BLANK.join(feature.split()) for feature in features.split(";"))
    return " ".join([spell(lemma), *(f"{FEATURE}{feature}" for feature in given if feature)])
