"""Say what a task's raw data is like and what training would see of it, before any training."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from seqtrans.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from seqtrans.resolving import Config
    from seqtrans.task import Task

WARNING = "warning: "


def main(argv: list[str]) -> int:
    """Say what a task's raw data is like and what training would see of it.

    usage: seqtrans doctor task=NAME [key=value …]

    Takes the words that seqtrans train takes, reads all of the data and leaves nothing behind. The
    exit status is 0 if the data can be used, perhaps with warnings, and 2 if it can't.

    example: seqtrans doctor task=parsing task.treebank=trees data.tokens=5000
    """
    from seqtrans.plugins import registry
    from seqtrans.resolving import packaged, resolve
    from seqtrans.settings import parse_words

    names = registry()
    config = resolve(parse_words(argv, packaged()), names)
    import tempfile
    from pathlib import Path

    from seqtrans import assembly

    task = assembly.build_task(config, names)
    warnings = 0
    with tempfile.TemporaryDirectory(prefix="seqtrans-doctor-") as folder:
        for lines in (task.examine(Path(folder)), training_sees(task, config)):
            for line in lines:
                print(line, flush=True)
                warnings += line.startswith(WARNING)
    print("usable" + (f", with {warnings} warning{'s' * (warnings > 1)}" if warnings else ""))
    return 0


def training_sees(task: Task, config: Config) -> Iterator[str]:
    """Lines on the vocabularies, the lengths, and the updates of the first epoch of an open task.

    Of a large corpus only the first window of the epoch is looked at. Raises ``DataError`` if no
    example is left.
    """
    from seqtrans.data import NONE_LEFT, Epoch, left_out
    from seqtrans.processes import count

    data, source, target = config.data, task.source_vocabulary, task.target_vocabulary
    if source is not None:
        yield f"vocabulary of the source: {source.size:,}"
    shared = " (one for both sides)" if task.shares_vocabulary else ""
    yield f"vocabulary of the target: {target.size:,}{shared}"
    corpus = task.training(0, config.run.seed)
    longest = data.longest_source, data.longest_target
    epoch = Epoch(corpus, data.tokens, config.run.seed, 0, *longest)
    numbers = epoch.numbers(0)
    if len(epoch) > 1:
        yield f"of {len(corpus):,} training examples, {len(numbers):,} were looked at:"
    if len(numbers):
        yield spread("source", corpus.sources.lengths(numbers))
        yield spread("target", corpus.targets.lengths(numbers))
    corpus, updates = epoch.open(0)
    used = sum(map(len, updates))
    if not used:
        raise DataError(NONE_LEFT)
    if used < len(numbers):
        yield f"{WARNING}{left_out(len(numbers) - used, len(numbers))}"
    filled = padded = 0
    over = 0
    for update in updates:
        sides = corpus.sources.lengths(update), corpus.targets.lengths(update) + 1
        filled += sum(int(lengths.sum()) for lengths in sides)
        padded += sum(int(lengths.max()) * len(update) for lengths in sides)
        over += any(int(lengths.max()) > data.tokens for lengths in sides)
    share = 100 * (1 - filled / padded)
    yield (
        f"{count(used, 'example')} in {count(len(updates), 'update')} of "
        f"data.tokens={data.tokens}: {used / len(updates):,.0f} in each, {share:.1f} % of the "
        "positions are padding"
    )
    if over:
        yield (
            f"{WARNING}{count(over, 'update')} of a single example that is longer than "
            "data.tokens; leave such out by data.longest_source and data.longest_target."
        )


def spread(side: str, lengths: NDArray[np.int64]) -> str:
    """A line on how long the sequences of a side are."""
    import numpy as np

    middle, most, nearly_all, longest = np.percentile(
        lengths, (50, 90, 99, 100), method="inverted_cdf"
    )
    return (
        f"symbols of a {side}: half have at most {middle:,}, 90 % {most:,}, 99 % {nearly_all:,}; "
        f"the longest has {longest:,}"
    )


if __name__ == "__main__":
    from seqtrans.commands import run

    sys.exit(run(main, sys.argv[1:]))
