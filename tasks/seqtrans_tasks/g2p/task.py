"""Letters to phones: pairs of a spelling and a pronunciation, by word and phone error rate.

Tables have a word and its phones, blanks between them (SIGMORPHON 2020 and 2021, WikiPron). Any
other file is read as the CMU Pronouncing Dictionary is written. Where one model learns several
languages, a source is the language, a tab and the spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, cast

from seqtrans.errors import DataError
from seqtrans.task import Comparison, Score
from seqtrans_tasks.g2p import G2pSettings
from seqtrans_tasks.pairs.preparing import SPLITS
from seqtrans_tasks.pairs.reading import Chunk, Part, Table, lines, shortened
from seqtrans_tasks.pairs.task import Pair, Pairs

VARIANT = re.compile(r"\(\d+\)$")
"""What follows a word of the CMU dictionary from its second pronunciation on."""
COMMENT = re.compile(r"\s#.*$")
SKIPPED = re.compile(r"\s*$|;;;|#(\s|#|$)")
"""Blank lines and comments; the words of CMUdict begin with # as well, such as #HASH-MARK."""


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

    def read_part(self, part: Part) -> Iterator[Chunk]:
        entries = isinstance(part, Table) and ".tsv" not in part.path.name.lower()
        chunks = dictionary(cast(Table, part)) if entries else super().read_part(part)
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


def phones(examples: Sequence[Pair]) -> list[list[list[str]]]:
    """All pronunciations of each example."""
    return [[target.split() for target in example.targets] for example in examples]


def dictionary(part: Table) -> Iterator[Chunk]:
    """The entries of a dictionary in the format of CMUdict, old or new.

    A line is a word, blanks, and phones; from a second pronunciation on the word ends in (2), (3),
    … Lines that begin with ;;; or with # and a blank, and what follows a # after a blank, are
    comments. Raises ``DataError`` for a word without phones.
    """
    path: Path = part.path
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
