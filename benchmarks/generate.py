"""Pairs of lines of any number that look like a corpus to whatever reads, counts and learns them.

Lines are of log-normal length, about 26 words on average; words come by Zipf's law from 300,000 on
each side, the frequent ones short, all of syllables that come by Zipf's law as well. There are
capitals, numbers, commas, and marks at the end. The two sides fit in length alone.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seqtrans.commands import run
from seqtrans.files import whole_file
from seqtrans.reuse import read_command
from seqtrans.settings import Settings

WORDS = 300_000
SYLLABLES = 3_000
NUMBERS = 0.03
"""The share of words that are numbers."""
COMMAS = 0.06
"""The share of words with a comma after them."""
LONGEST = 200
"""Words of a line."""
GRAIN = 1 << 24
"""The probabilities of words are multiples of one in so many."""
CHUNK = 50_000
"""Lines that are made at a time."""

STOCK = {
    "source": ("b c d f g h j k l m n p r s t v w z st tr pl", "a e i o u ea ou"),
    "target": ("b d f g h k l m n p r s t v w z sch st pf", "a e i o u ä ö ü ei"),
}
"""What syllables begin with, and their vowels."""
CODAS = ["", "", "", "", "", "n", "r", "s", "t", "l", "ng", "nd"]
ENDS = [".", ".", ".", ".", "?", "!", "."]

Words = NDArray[np.object_]


class GenerateSettings(Settings):
    """How much of it, and where."""

    pairs: int = Field(ge=1, description="how many")
    folder: Path = Field(description="where source.txt and target.txt are written")
    seed: int = Field(1, ge=0, description="another one gives other words and lines")


def main(argv: list[str]) -> int:
    """Write pairs of lines that a program made up, for measuring what large corpora take.

    usage: python -m benchmarks generate pairs=NUMBER folder=FOLDER [seed=1]

    The same settings give the same files, source.txt and target.txt, and a smaller number of pairs
    their beginning, up to whole chunks of 50,000.

    example: python -m benchmarks generate pairs=4500000 folder=corpus
    """
    settings, _ = read_command(argv, GenerateSettings)
    generate(settings.pairs, settings.folder, settings.seed)
    return 0


def generate(pairs: int, folder: Path, seed: int) -> None:
    """Write ``source.txt`` and ``target.txt`` into ``folder``, a few chunks of them in memory."""
    forms = [inflected(words(side, seed)) for side in STOCK]
    ranks = zipf(WORDS, GRAIN)
    with ExitStack() as stack:
        files = [stack.enter_context(whole_file(folder / f"{side}.txt")) for side in STOCK]
        for first in range(0, pairs, CHUNK):
            draw = np.random.default_rng((seed, first))
            count = min(CHUNK, pairs - first)
            lengths = np.exp(draw.normal(3.08, 0.6, count)).clip(1, LONGEST).astype(np.int64)
            other = (lengths * np.exp(draw.normal(0, 0.2, count))).clip(1, LONGEST)
            for file, known, long in zip(files, forms, (lengths, other), strict=True):
                file.write(lines(known, ranks, long.astype(np.int64), draw))


def zipf(size: int, grain: int) -> NDArray[np.int32]:
    """Ranks below ``size`` [about grain], each as often as the law of Zipf and Mandelbrot says."""
    weights = 1 / (np.arange(size) + 2.7) ** 1.05
    times = np.ceil(weights * (grain / weights.sum())).astype(np.int64)
    return np.repeat(np.arange(size, dtype=np.int32), times)


def words(side: str, seed: int) -> list[str]:
    """Different words by rank; the higher, the fewer syllables."""
    draw = np.random.default_rng((seed, *side.encode()))
    onsets, vowels = (stock.split() for stock in STOCK[side])
    parts = [draw.choice(stock, 2 * SYLLABLES) for stock in (onsets, vowels, CODAS)]
    syllables = list(dict.fromkeys(map("".join, zip(*parts, strict=True))))[:SYLLABLES]
    often = zipf(len(syllables), 1 << 16)
    # About one in four is there already, and left out.
    count = 2 * WORDS
    sizes = 1 + draw.poisson(np.log10(np.arange(count) + 1) / 3)
    chosen = often[draw.integers(0, len(often), sizes.sum())].tolist()
    ends = np.cumsum(sizes).tolist()
    kind = draw.random(count)
    numbers = draw.integers(0, 10 ** draw.integers(1, 7, count)).tolist()
    capital = 1 - (0.15 if side == "source" else 0.3)
    found: dict[str, None] = {}
    for end, size, share, number in zip(ends, sizes.tolist(), kind.tolist(), numbers, strict=True):
        word = "".join(syllables[i] for i in chosen[end - size : end])
        if share < NUMBERS:
            word = f"{number:,}"
        elif share > capital:
            word = word.capitalize()
        found[word] = None
    assert len(found) >= WORDS
    return list(found)[:WORDS]


def inflected(known: list[str]) -> list[Words]:
    """Words as they are inside of a line, before a comma, at the beginning and at the end."""
    return [
        np.array(form, object)
        for form in (
            [f"{word} " for word in known],
            [f"{word}, " for word in known],
            [f"{word[0].upper()}{word[1:]} " for word in known],
            [f"{word}{ENDS[rank % len(ENDS)]}\n" for rank, word in enumerate(known)],
        )
    ]


def lines(
    forms: list[Words],
    ranks: NDArray[np.int32],
    lengths: NDArray[np.int64],
    draw: np.random.Generator,
) -> str:
    """Lines of so many words each, every line with LF."""
    total, ends = int(lengths.sum()), np.cumsum(lengths)
    which = (draw.random(total) < COMMAS).astype(np.int64)
    which[ends - lengths] = 2
    which[ends - 1] = 3
    drawn = ranks[draw.integers(0, len(ranks), total)]
    text = forms[0][drawn]
    for number, form in enumerate(forms[1:], start=1):
        here = which == number
        text[here] = form[drawn[here]]
    return "".join(text.tolist())


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
