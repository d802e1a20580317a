"""Measuring attention over long inputs, and measurements as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import benchmarks.__main__ as front
from benchmarks import board, long_inputs
from benchmarks.results import Measurement, measurements, read_measurement, rows
from seqtrans.errors import SettingsError

Captured = pytest.CaptureFixture[str]
SMALL = ["lengths=32,64", "reach=4", "width=16", "heads=2", "rounds=1"]


@pytest.fixture
def results(tmp_path: Path, capsys: Captured) -> Path:
    """A folder with the two exponents of a very small layer."""
    (tmp_path / "README.md").write_text(f"{board.BEGIN}\n{board.END}\n", "utf-8")
    folder = tmp_path / "results"
    assert long_inputs.main([*SMALL, f"report={folder}"]) == 0
    assert "| positions | restricted | full" in capsys.readouterr().out
    return folder


def test_exponents_are_recorded_shown_and_checked(results: Path, capsys: Captured) -> None:
    files = [f"measured-long-inputs-restricted-{m}_exponent.json" for m in ("memory", "time")]
    assert [path.name for path in measurements(results)] == files
    assert rows(results) == []
    found = [read_measurement(path) for path in measurements(results)]
    assert [one.metric for one in found] == ["memory_exponent", "time_exponent"]
    for one in found:
        assert one.settings["attention"] == "restricted"
        assert one.settings["attention.reach"] == 4
        assert one.command == (
            "python -m benchmarks.long_inputs lengths=32,64 reach=4 width=16 heads=2 rounds=1"
        )
        assert set(one.figures["seconds"]["restricted"]) == {"32", "64"}
    assert front.main(["board", f"results={results}"]) == 0
    assert "| [long-inputs-restricted](results/" in capsys.readouterr().out
    assert front.main(["verify", f"results={results}"]) == 0


def test_a_measurement_that_was_changed_is_found(results: Path, capsys: Captured) -> None:
    assert front.main(["board", f"results={results}"]) == 0
    path = measurements(results)[1]
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**content, "metric": "exponent"}), "utf-8")
    capsys.readouterr()
    assert front.main(["verify", f"results={results}"]) == 1
    assert (
        f"{path}: the file must be called measured-long-inputs-restricted-exponent.json, by what "
        "it says.\n"
    ) in capsys.readouterr().err
    path.write_text(json.dumps({**content, "value": "low"}), "utf-8")
    assert front.main(["verify", f"results={results}"]) == 1
    assert f"{path}: value should be a valid number, not 'low'.\n" in capsys.readouterr().err


def test_the_exponent_is_the_slope_of_logarithms() -> None:
    assert long_inputs.exponent({n: 3.0 * n**1.5 for n in (64, 100, 1000)}) == pytest.approx(1.5)


def test_two_lengths_are_needed() -> None:
    with pytest.raises(SettingsError) as error:
        long_inputs.main(["lengths=64,64"])
    assert str(error.value) == "lengths must be two different numbers at least."


def test_names_of_files_are_safe() -> None:
    name = Measurement.model_construct(recipe="a/b c", metric="x").name  # type: ignore[call-arg]
    assert name == "measured-a-b-c-x.json"
