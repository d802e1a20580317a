"""The learning rate at each update."""

from __future__ import annotations

import pytest

from seqtrans.schedule import learning_rate


def rates(schedule: str, updates: list[int], warmup: int = 10, steps: int = 30) -> list[float]:
    return [
        learning_rate(u, schedule=schedule, lr=2.0, warmup=warmup, steps=steps, width=100)
        for u in updates
    ]


def test_paper() -> None:
    found = rates("paper", [1, 5, 10, 40])
    assert found == pytest.approx([0.2 * 10**-1.5, 1.0 * 10**-1.5, 0.2 * 10**-0.5, 0.2 * 40**-0.5])


def test_constant() -> None:
    assert rates("constant", [1, 5, 10, 11, 30]) == pytest.approx([0.2, 1.0, 2.0, 2.0, 2.0])


def test_linear() -> None:
    found = rates("linear", [5, 10, 11, 20, 30, 31, 40])
    assert found == pytest.approx([1.0, 2.0, 40 / 21, 22 / 21, 2 / 21, 0.0, 0.0])


@pytest.mark.parametrize("schedule", ["paper", "constant", "linear"])
def test_without_a_warm_up_the_first_rate_is_the_highest(schedule: str) -> None:
    found = rates(schedule, list(range(1, 31)), warmup=0)
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx({"paper": 0.2, "constant": 2.0, "linear": 60 / 31}[schedule])
