"""Letters to phones: pairs of a spelling and a pronunciation, by word and phone error rate.

Tables have a word and its phones, blanks between them (SIGMORPHON 2020 and 2021, WikiPron). A file
without a tab in its first entry is read as the CMU Pronouncing Dictionary is written. Where one
model learns several languages, a source is the language, a tab and the spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from seqtrans.errors import DataError
from seqtrans.files import read_json
from seqtrans.task import Comparison, Score
from seqtrans_tasks.g2p import G2pSettings
from seqtrans_tasks.pairs.preparing import SPLITS, write_json
from seqtrans_tasks.pairs.reading import Chunk, Part, Table, lines, shortened, without_tabs
from seqtrans_tasks.pairs.task import Pair, Pairs
from seqtrans_tasks.pairs.units import Caseless, normaliser

VARIANT = re.compile(r"\(\d+\)$")
"""What follows a word of the CMU dictionary from its second pronunciation on."""
COMMENT = re.compile(r"\s#.*$")
SKIPPED = re.compile(r"\s*$|;;;|#(\s|#|$)")
"""Blank lines and comments; the words of CMUdict begin with # as well, such as #HASH-MARK."""
ENTRY = re.compile(r"\S+  \S")
"""How an entry of CMUdict begins, and no line of phones."""
CASELESS = "caseless.json"
"""The languages of which all training words come from dictionaries, in lower case; there is no
such file if there are none."""
PHONES = "phones, blanks between"
"""What stands in a line of outputs."""


class G2p(Pairs):
    """Words to phones. A word may have several right pronunciations: the nearest counts."""

    maximise: ClassVar[bool] = False

    settings: G2pSettings

    @cached_property
    def language_of(self) -> dict[Part, str]:
        """The language of each file, if that is to be told."""
        return {
            part: language
            for split in SPLITS
            for part, language in zip(self.parts(split), self.settings.languages, strict=False)
        }

    def prepare(self, folder: Path) -> None:
        kinds: dict[str, set[bool]] = {}
        for part in self.parts("train"):
            kinds.setdefault(self.language_of.get(part, ""), set()).add(is_dictionary(part))
        caseless = [name for name, found in kinds.items() if found == {True}]
        self.ignore_case(caseless)
        super().prepare(folder)
        if caseless:
            write_json(folder / CASELESS, caseless)

    def open(self, folder: Path) -> None:
        super().open(folder)
        path = folder / CASELESS
        self.ignore_case(read_json(path) if path.is_file() else [])

    def ignore_case(self, languages: Sequence[str]) -> None:
        """Encode words of these languages in lower case; where none is told, ``""`` is the one."""
        self.form = normaliser(self.settings.normalise)
        if languages:
            tags = frozenset(languages) if self.settings.languages else None
            self.form = Caseless(self.form, tags)

    def read_part(self, part: Part) -> Iterator[Chunk]:
        chunks = dictionary(part) if is_dictionary(part) else super().read_part(part)
        language = self.language_of.get(part)
        if language is None:
            return chunks
        # A line without a word stays blank, and is left out as such.
        return (
            replace(chunk, source=[word and f"{language}\t{word}" for word in chunk.source])
            for chunk in chunks
        )

    def read(self, line: str) -> str:
        word, languages = super().read(line), self.settings.languages
        if not languages:
            return word
        if len(languages) == 1 and "\t" not in word:
            return f"{languages[0]}\t{word}"
        language, _, spelling = word.partition("\t")
        if language not in languages or not spelling.strip():
            raise DataError(
                f"a line begins with a language and a tab, as in '{languages[0]}\\tword'; the "
                f"languages of this model are: {', '.join(languages)}."
            )
        return word

    def grouped(self, pairs: list[Pair]) -> Sequence[Pair]:
        found: dict[str, tuple[str, ...]] = {}
        for pair in pairs:
            found[pair.source] = (*found.get(pair.source, ()), *pair.targets)
        return [Pair(source, targets) for source, targets in found.items()]

    def score(self, outputs: Sequence[str], examples: Sequence[Pair]) -> Score:
        from seqtrans_tasks.metrics.scores import phone_score

        split = [output.split() for output in outputs]
        tags = [example.source.partition("\t")[0] for example in examples]
        languages = [tag if tag in self.settings.languages else "" for tag in tags]
        return phone_score(split, phones(examples), languages if any(languages) else None)

    def compare(self, outputs: Mapping[str, Sequence[str]], examples: Sequence[Pair]) -> Comparison:
        from seqtrans_tasks.metrics.significance import compare_words

        split = {name: [line.split() for line in lines] for name, lines in outputs.items()}
        return compare_words(split, phones(examples))

    def mistake(self, outputs: Sequence[str], examples: Sequence[Pair]) -> str | None:
        return None

    def recover(self, line: str, example: Pair) -> str:
        return without_tabs(line, PHONES)

    def example(self, reference: str) -> Pair:
        return Pair("", (without_tabs(reference, PHONES),))

    def has_sources(self, path: Path) -> bool:
        """Whether a file of references is a table or a dictionary, or has lines of phones alone.

        A dictionary is called .dict, begins with ;;; or has two blanks after its words.
        """
        if not path.is_file():
            return False
        if is_table(path) or ".dict" in path.name.lower():
            return True
        [first, *_] = next(lines(path)).lines
        return first.startswith(";;;") or ENTRY.match(first_entry(path)) is not None


def phones(examples: Sequence[Pair]) -> list[list[list[str]]]:
    """All pronunciations of each example."""
    return [[target.split() for target in example.targets] for example in examples]


def is_dictionary(part: Part) -> bool:
    """Whether a part is a dictionary, and no table. Raises ``DataError`` as `lines` does."""
    return isinstance(part, Table) and not is_table(part.path)


def is_table(path: Path) -> bool:
    """Whether a file is a table: by its name, or by a tab in its first entry."""
    return ".tsv" in path.name.lower() or "\t" in first_entry(path)


def first_entry(path: Path) -> str:
    """The first line that is neither blank nor a comment; blank if there is none."""
    entries = (line for read in lines(path) for line in read.lines if not SKIPPED.match(line))
    return next(entries, "")


def dictionary(part: Part) -> Iterator[Chunk]:
    """The entries of a dictionary in the format of CMUdict, old or new.

    A line is a word, blanks, and phones; from a second pronunciation on the word ends in (2), (3),
    … Lines that begin with ;;; or with # and a blank, and what follows a # after a blank, are
    comments. Raises ``DataError`` for a word without phones, and for columns other than the first.
    """
    assert isinstance(part, Table)
    path = part.path
    if (part.source_column, part.target_column) != (1, 2):
        raise DataError(
            f"task.source_column and task.target_column have no effect on {path}, which has no tab "
            "in its first entry and is read as a dictionary."
        )
    for read in lines(path):
        words: list[str] = []
        pronunciations: list[str] = []
        for number, line in enumerate(read.lines, start=read.first):
            if SKIPPED.match(line):
                if words:  # what follows isn't on the next line
                    yield Chunk(part, number - len(words), words, pronunciations, read.done)
                    words, pronunciations = [], []
                continue
            word, *phones = COMMENT.sub("", line).split()
            if not phones:
                raise DataError(f"{path}, line {number}: a word without phones: {shortened(line)}.")
            words.append(VARIANT.sub("", word).lower())
            pronunciations.append(" ".join(phones))
        if words:
            first = read.first + len(read.lines) - len(words)
            yield Chunk(part, first, words, pronunciations, read.done)
