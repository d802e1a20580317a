"""Where two files of unequal numbers of lines cease to belong together, told by lengths alone.

Texts that are translations of each other are about as long as each other, up to a factor (Gale and
Church, "A Program for Aligning Sentences in Bilingual Corpora", 1993). So while the files belong
together, the ratio of the lengths of two lines of the same number varies less than that of lines
some numbers apart, and where a line is missing it begins to vary more.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqtrans_tasks.pairs import reading

WINDOW = 2000
"""How many lines before and after a place are looked at to judge it."""
CONVINCING = 6.0
"""How many standard errors must speak for a place, from either side."""
BLOCKS = 50_000
"""Of so many blocks of lines, at most, the cheapest path is found; a place is then found within."""
CHANGE = 8.0
"""What a change of the shift costs; less would see one in any run of free translations."""
NEAR = 8
"""How many missing lines in one place are thought of, besides all of them."""
BOUND = 1.0
"""The most that one pair of lines can say, as the logarithm of a ratio of lengths."""

Numbers = NDArray[np.float32]


def divergence(part: reading.Files) -> str | None:
    """A sentence on the first place where the files part, or ``None`` if it can't be told.

    Reads both files; takes about 30 bytes of memory for each line.
    """
    files = reading.files_of(part)
    sizes = [_log_lengths(path) for path in files]
    shorter, longer = min(map(len, sizes)), files[int(len(sizes[0]) < len(sizes[1]))]
    if _blank_from(longer, shorter):
        surplus = max(map(len, sizes)) - shorter
        if surplus == 1:
            return f"The last line of {longer} is blank; delete it."
        return f"The last {surplus:,} lines of {longer} are blank; delete them."
    found = first_divergence(*sizes)
    if found is None:
        return None
    if found == shorter:
        return f"As far as both go they fit; {longer} probably has lines too many at its end."
    shown = " and ".join(reading.shortened(_line(path, found + 1), 40) for path in files)
    return f"They probably part near line {found + 1:,}: {shown}."


def first_divergence(source: Numbers, target: Numbers) -> int | None:
    """From log lengths [n] and [m], n != m: how many lines belong together before the first break.

    The smaller of n and m if it is all of them; ``None`` if there is no convincing place.
    """
    shorter, surplus = min(len(source), len(target)), len(source) - len(target)
    if not shorter:
        return None
    sign = 1 if surplus > 0 else -1
    shifts = [0, *sorted({*range(1, min(NEAR, abs(surplus)) + 1), abs(surplus), -1, -2})]

    def cost(state: int) -> Numbers:
        return _cost(source, target, sign * shifts[state], shorter)

    width = -(-shorter // BLOCKS)
    starts = np.arange(0, shorter, width)
    path = _cheapest(np.stack([np.add.reduceat(cost(s), starts) for s in range(len(shifts))], 1))
    changes = [0, *(np.flatnonzero(np.diff(path)) + 1), len(path)]
    if path[0] == 0:
        changes.pop(0)
    if changes == [len(path)]:
        gain = cost(shifts.index(abs(surplus))) - cost(0)
        fits = _strength(gain[-WINDOW:]) > CONVINCING and _strength(gain[-50:]) > 2
        return shorter if fits else None
    block, end = int(changes[0]), min(int(changes[1]) * width, shorter)
    gain = cost(int(path[block])) - cost(0)
    from_ = max(block - 1, 0) * width
    sums = np.cumsum(gain[from_ : min((block + 1) * width, end)], dtype=np.float64)
    place = from_ + int(np.argmax(np.concatenate([[0.0], sums])))
    after = -gain[place : min(place + WINDOW, end)]
    before = gain[max(0, place - WINDOW) : place]
    if _strength(after) > CONVINCING and (place < 20 or _strength(before) > CONVINCING):
        return place
    return None


def _cheapest(costs: NDArray[np.float32]) -> NDArray[np.intp]:
    """The cheapest path [blocks] through ``costs`` [blocks, states], where changes cost as well."""
    total = np.zeros(costs.shape[1])
    came_from = np.empty(costs.shape, np.int16)
    stay = np.arange(costs.shape[1])
    for block, cost in enumerate(costs):
        best = int(total.argmin())
        leave = total > total[best] + CHANGE
        came_from[block] = np.where(leave, best, stay)
        total = np.minimum(total, total[best] + CHANGE) + cost
    path = np.empty(len(costs), np.intp)
    state = int(total.argmin())
    for block in range(len(costs) - 1, -1, -1):
        path[block] = state
        state = came_from[block, state]
    return path


def _cost(source: Numbers, target: Numbers, skip: int, length: int) -> Numbers:
    """How badly lines fit each other, [length], if ``skip`` more were skipped in the source.

    A negative ``skip`` is in the target. Where there are no lines it is the worst.
    """
    left, right = source[max(skip, 0) :], target[max(-skip, 0) :]
    number = min(len(left), len(right), length)
    cost = np.full(length, BOUND, np.float32)
    if number:
        ratio = left[:number] - right[:number]
        ratio -= np.median(ratio)
        np.minimum(np.abs(ratio, out=ratio), BOUND, out=cost[:number])
    return cost


def _strength(gain: Numbers) -> float:
    """The mean of independent numbers in its standard errors."""
    if len(gain) < 20:
        return 0.0
    error = float(gain.std()) / np.sqrt(len(gain))
    return float(gain.mean()) / error if error else 0.0


def _log_lengths(path: Path) -> Numbers:
    """The logarithm of each line's length."""
    found = [
        np.log1p(np.array([len(line) for line in part.lines], np.float32))
        for part in reading.lines(path)
    ]
    return np.concatenate(found)


def _blank_from(path: Path, number: int) -> bool:
    """Whether all lines from ``number`` on, counted from 0, are blank."""
    return not any(
        line.strip()
        for part in reading.lines(path)
        for line in part.lines[max(0, number + 1 - part.first) :]
    )


def _line(path: Path, number: int) -> str:
    for part in reading.lines(path):
        if number < part.first + len(part.lines):
            return part.lines[number - part.first]
    raise AssertionError
