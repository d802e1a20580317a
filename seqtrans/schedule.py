"""The learning rate as a function of the update's number alone (section 5.3)."""

from __future__ import annotations


def learning_rate(
    update: int, *, schedule: str, lr: float, warmup: int, steps: int, width: int
) -> float:
    """The rate of update 1, 2, ..., ``steps``.

    ``paper``: lr · width^-0.5 · min(update^-0.5, update · warmup^-1.5); ``lr`` is a factor, 1 in
    the paper. ``constant``: ``lr`` after a linear warm-up. ``linear``: the same, then straight down
    to 0 after the last update.
    """
    if schedule == "paper":
        warm = update * warmup**-1.5 if warmup else float("inf")
        return float(lr * width**-0.5 * min(update**-0.5, warm))
    rate = lr * min(1.0, update / warmup) if warmup else lr
    if schedule == "linear" and update > warmup:
        rate *= max(0.0, (steps + 1 - update) / (steps + 1 - warmup))
    return rate
