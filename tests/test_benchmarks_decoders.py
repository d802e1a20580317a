"""Searches that decode the same split in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_variants import PAIRS

import benchmarks.__main__ as front
import seqtrans.__main__ as product
from benchmarks import board
from benchmarks.results import measurements, read_measurement

Captured = pytest.CaptureFixture[str]


def trained(folder: Path, name: str, text: str) -> str:
    """A run of a small training; the word that names it."""
    folder.mkdir(exist_ok=True)
    for side, lines in (("source", text), ("target", text.upper())):
        (folder / f"{name}.{side}").write_text(lines * 4, encoding="utf-8")
    files = [
        f"task.{split}_{side}={folder}/{name}.{side}"
        for split in ("train", "dev")
        for side in ("source", "target")
    ]
    word = f"run={folder}/{name}"
    assert product.main(["train", *PAIRS, *files, word]) == 0
    return word


def test_searches_in_turn(tmp_path: Path, capsys: Captured) -> None:
    run = trained(tmp_path, "one", "ab\nba\nabb\n")
    results = tmp_path / "results"
    compared = "decoders=decoder=greedy;decoder=speculative;decoder=beam decoder.width=2"
    words = ["decoders", run, compared, "rounds=2", "name=searches", f"report={results}"]
    (tmp_path / "README.md").write_text(f"{board.BEGIN}\n{board.END}\n", "utf-8")
    capsys.readouterr()
    assert front.main(words) == 0
    shown = capsys.readouterr()
    assert "round 2 of 2" in shown.err
    (path,) = measurements(results)
    found = read_measurement(path)
    first, fast, beam = found.figures["decoders"].values()
    assert list(found.figures["decoders"]) == [
        "decoder=greedy",
        "decoder=speculative",
        "decoder=beam decoder.width=2",
    ]
    assert first["ratio"] == [1, 1, 1]
    assert first["equal"] == fast["equal"] == found.figures["outputs"] == 12
    assert beam["equal"] <= 12
    assert first["score"] == fast["score"]
    assert all(len(one["seconds"]) == 2 for one in (first, fast, beam))
    assert fast["ratio"][1] <= fast["ratio"][0] <= fast["ratio"][2]
    assert found.value == max(one["ratio"][0] for one in (first, fast, beam))
    assert first["checkpoints"] == ["runs/one/step-2"]
    assert found.command == (
        "python -m benchmarks decoders name=searches 'decoders=decoder=greedy;decoder=speculative;"
        "decoder=beam decoder.width=2' rounds=2 run=runs/one"
    )
    assert front.main(["board", f"results={results}"]) == 0
    table = capsys.readouterr().out
    assert "### searches: chrF2 of sets/one, dev" in table
    assert "12 of 12" in table
    assert "× the first" in table


def test_what_can_not_be_compared(tmp_path: Path, capsys: Captured) -> None:
    one, other = (
        trained(tmp_path, name, text) for name, text in (("one", "ab\nba\n"), ("two", "ba\nbb\n"))
    )
    for words, message in (
        ([one, "decoders=decoder=greedy;decoder=greedy"],
         "decoders must be words with semicolons between, no two alike."),
        ([f"decoders={one};{other}"], "'run=runs/two' has another dev than the first."),
    ):  # fmt: skip
        capsys.readouterr()
        assert front.main(["decoders", *words]) == 2
        assert message in capsys.readouterr().err
