"""Text as Moses tokenizes it: what the paper's kind of BLEU counts words in.

The rules are those of the library sacremoses. They are the tokenizer's of 2017, when the paper was
written; ``last_stop`` adds the one change that came after.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

from seqtrans.errors import DataError
from seqtrans.words import there_are

# The tokenizer deletes control characters; these four its port would take for white space before.
SEPARATORS = dict.fromkeys(range(0x1C, 0x20))

WORD_WITH_STOP = re.compile(r"(\S*[^\s.])\.")


def tokenise(
    lines: Iterable[str], language: str, *, escape: bool = True, last_stop: bool = False
) -> list[str]:
    """The tokens of each line, joined by single blanks.

    Text that is tokenised already must not come here: its entities would be escaped again.

    Args:
        lines: plain text.
        language: as in ``de``; decides about apostrophes, and which abbreviations keep their stop.
        escape: write ``& | < > ' " [ ]`` as entities. Moses does; both sides must be alike.
        last_stop: separate the stop of a line's last word even from an abbreviation or ordinal,
            as Moses does since the end of 2018. Without it newstest2014.de has 64,496 tokens once
            its compounds are split, as published for the paper's kind of BLEU; with it, 64,504.

    Raises:
        DataError: there are no rules for the language.
    """
    separate = tokenizer(language)
    tokenised = [
        str(separate(line.translate(SEPARATORS), return_str=True, escape=escape)) for line in lines
    ]
    return [with_last_stop(line) for line in tokenised] if last_stop else tokenised


def with_last_stop(line: str) -> str:
    """A tokenised line whose last word has no stop of its own; ``...`` stays as it is."""
    before, blank, last = line.rpartition(" ")
    found = WORD_WITH_STOP.fullmatch(last)
    return f"{before}{blank}{found[1]} ." if found else line


def replace_punctuation(lines: Iterable[str]) -> list[str]:
    """Typographic quotes, dots and full-width forms in ASCII; „ « » – — stay.

    What ``replace-unicode-punctuation.perl`` does.
    """
    replace = normaliser().replace_unicode_punct
    return [str(replace(line)) for line in lines]


@functools.cache
def tokenizer(language: str) -> Callable[..., str]:
    from sacremoses import MosesTokenizer  # type: ignore[import-untyped]
    from sacremoses.corpus import NonbreakingPrefixes  # type: ignore[import-untyped]

    known = sorted(set(NonbreakingPrefixes().available_langs.values()))
    if language not in known:
        raise DataError(f"Moses has no rules for the language {language!r}; {there_are(known)}.")
    return MosesTokenizer(language).tokenize  # type: ignore[no-any-return]


@functools.cache
def normaliser() -> Any:
    from sacremoses import MosesPunctNormalizer

    return MosesPunctNormalizer()
