"""Words that don't exist: what a lemma and its form share, in other letters.

A model that has seen ten thousand forms of a language knows its stems by heart, and garbles one
that it does not know. Made-up stems teach it to copy (Silfverberg et al., 2017; Anastasopoulos and
Neubig, 2019, section 3.2, who call it hallucination). There a stem is what an alignment from left
to right has in common; here it is the longest common substring, which is also found where parts
have changed places, as in ``herabsetzen`` and ``setzt herab``.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from random import Random

LEAST = 3
"""Letters of a stem: of fewer, which stand together by chance, none would be exchanged."""


def stems(lemma: Sequence[int], form: Sequence[int]) -> list[tuple[int, int, int]]:
    """What both share: where in the lemma, where in the form, how many letters; longest first.

    No two overlap, and each has at least `LEAST` letters.
    """
    left, right = list(lemma), list(form)
    found: list[tuple[int, int, int]] = []
    while True:
        at, place, length = SequenceMatcher(None, left, right, autojunk=False).find_longest_match()
        if length < LEAST:
            return found
        found.append((at, place, length))
        left[at : at + length] = [-1] * length  # what is found is not found again
        right[place : place + length] = [-2] * length


def invent(
    lemma: Sequence[int], form: Sequence[int], letters: Sequence[int], random: Random
) -> tuple[list[int], list[int]]:
    """Lemma and form with the inside of one stem in other ``letters``, the same in both.

    The first and last letter of the stem stay, since what is added to it goes by them. The longer a
    stem, the more often it is the one. Without any, both come back as they are.
    """
    before, after = list(lemma), list(form)
    shared = stems(lemma, form)
    if shared:
        [(at, place, length)] = random.choices(shared, [length for *_, length in shared])
        inside = random.choices(letters, k=length - 2)
        before[at + 1 : at + length - 1] = inside
        after[place + 1 : place + length - 1] = inside
    return before, after
