"""What preparing a corpus takes, beside others: measured, kept and shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import benchmarks.__main__ as front
from benchmarks import board
from benchmarks.results import measurements, read_measurement

Captured = pytest.CaptureFixture[str]

PYTHON = """#!/bin/sh
case "$2" in *importlib.metadata*) echo '{"subword-nmt": "1", "sentencepiece": "2"}';; esac
"""
OTHER = "#!/bin/sh\nsleep 0.01\n"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    assert front.main(["generate", "pairs=300", f"folder={folder}"]) == 0
    return folder


def words(tmp_path: Path, corpus: Path) -> list[str]:
    small = ["vocabulary=400", "sample=100", "pairs=200", "rounds=2"]
    return ["preparing", f"corpus={corpus}", f"folder={tmp_path}", *small]


def test_figures_are_kept_and_shown(tmp_path: Path, corpus: Path, capsys: Captured) -> None:
    peers, results = tmp_path / "peers", tmp_path / "results"
    peers.mkdir()
    for name, text in (("python", PYTHON), ("subword-nmt", OTHER), ("fairseq-preprocess", OTHER)):
        (peers / name).write_text(text, encoding="utf-8")
        (peers / name).chmod(0o755)
    assert front.main([*words(tmp_path, corpus), f"peers={peers}", f"report={results}"]) == 0
    assert not (tmp_path / "preparing").exists()
    (path,) = measurements(results)
    found = read_measurement(path)
    assert found.name == "measured-prepare-200-pairs_per_second.json"
    taken = found.figures["taken"]
    names = ["seqtrans", "subword-nmt, fairseq", "sentencepiece, fairseq"]
    assert [one["name"] for one in taken] == names * 2
    ours = [one["steps"][0] for one in taken if one["name"] == "seqtrans"]
    assert found.value == pytest.approx(sum(200 / step["seconds"] for step in ours) / 2)
    assert all(step["peak"] > 0 for step in ours)
    assert found.versions.providers == {"subword-nmt": "1", "sentencepiece": "2"}
    assert found.command == (
        "python -m benchmarks preparing pairs=200 vocabulary=400 sample=100 rounds=2 "
        "corpus=corpus folder=prepared peers=peers/bin"
    )
    assert str(tmp_path) not in path.read_text("utf-8")
    capsys.readouterr()
    table = board.tables_of(results)
    assert "### Preparing 200 pairs" in table
    assert "subword-nmt 1, sentencepiece 2; `python -m benchmarks preparing" in table
    rows = [line for line in table.splitlines() if line.startswith("| seqtrans |")]
    assert [row.split(" | ")[-1] for row in rows] == ["1.0 |", "1.0 |"]
    assert sum(line.startswith("| – learn |") for line in table.splitlines()) == 4


def test_what_fails_is_told(tmp_path: Path, corpus: Path, capsys: Captured) -> None:
    (tmp_path / "preparing").mkdir()
    assert front.main(words(tmp_path, corpus)) == 2
    (tmp_path / "preparing").rmdir()
    none = words(tmp_path, tmp_path / "none")
    assert front.main(none) == 2
    said = capsys.readouterr().err
    assert "is there already, and would be deleted." in said
    assert "source.txt does not exist; write it by python -m benchmarks.generate." in said


def test_a_layer_for_long_inputs_is_shown(tmp_path: Path) -> None:
    folder = Path(__file__).parent.parent / "benchmarks" / "results"
    path = folder / "measured-long-inputs-restricted-time_exponent.json"
    content = json.loads(path.read_text("utf-8"))
    content["figures"]["seconds"] = {"restricted": {"8": 1.0, "16": 2.0}, "full": {"8": 3.0}}
    content["figures"]["bytes"] = {"restricted": {"8": 10e6, "16": 20e6}, "full": {"8": 5e6}}
    (tmp_path / path.name).write_text(json.dumps(content), encoding="utf-8")
    lines = board.tables_of(tmp_path).splitlines()
    assert "| 8 | 1.000 s, 10 MB | 3.000 s, 5 MB: 3.00 × time, 0.50 × memory |" in lines
    assert "| 16 | 2.000 s, 20 MB | – |" in lines
    assert any("time_exponent | 1.042" in line for line in lines)
