"""Trainings that differ in one choice, compared over seeds."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TextIO

import pytest

import benchmarks.__main__ as front
import seqtrans.__main__ as product
from benchmarks import board, variants
from benchmarks.results import measurements, read_measurement

Captured = pytest.CaptureFixture[str]
PAIRS = [
    "task=pairs",
    "task.title=sets/one",
    "task.level=character",
    "model.width=8",
    "model.inner=8",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "training.steps=2",
    "training.validate_every=2",
    "training.dry_run=no",
]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those of a small training, in this process."""

    def here(command: list[str], log: TextIO) -> int:
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            return product.main(command)

    monkeypatch.setattr(variants, "seqtrans", here)
    monkeypatch.setenv("SEQTRANS_DATA", str(tmp_path))
    for name in ("train", "dev"):
        for side, text in (("source", "ab\nba\nabb\n"), ("target", "AB\nBA\nABB\n")):
            (tmp_path / f"{name}.{side}").write_text(text * 4, encoding="utf-8")
    files = [
        f"task.{n}_{s}={tmp_path}/{n}.{s}" for n in ("train", "dev") for s in ("source", "target")
    ]
    return ["variants", *PAIRS, *files, f"folder={tmp_path}/runs"]


def test_every_variant_with_every_seed(words: list[str], tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "README.md").write_text(f"{board.BEGIN}\n{board.END}\n", "utf-8")
    results = tmp_path / "results"
    words += [
        "variants=position=sinusoidal;attention=restricted attention.reach=2",
        "seeds=1,2",
        "name=looks",
        f"report={results}",
    ]
    assert front.main(words) == 0
    (path,) = measurements(results)
    assert path.name == "measured-looks-chrF2.json"
    found = read_measurement(path)
    scores = found.figures["variants"]
    assert list(scores) == ["position=sinusoidal", "attention=restricted attention.reach=2"]
    assert all(list(values) == ["1", "2"] for values in scores.values())
    assert found.value == max(sum(values.values()) / 2 for values in scores.values())
    assert found.settings["position"] == "sinusoidal"
    assert found.settings["task.dev_source"] == ["$SEQTRANS_DATA/dev.source"]
    assert not found.settings.keys() & {"attention", "attention.reach", "run.seed", "run.folder"}
    assert found.command == (
        "python -m benchmarks variants name=looks 'variants=position=sinusoidal;attention="
        f"restricted attention.reach=2' seeds=1,2 folder=runs/looks {' '.join(PAIRS)} "
        'task.train_source="$SEQTRANS_DATA"/train.source '
        'task.train_target="$SEQTRANS_DATA"/train.target '
        'task.dev_source="$SEQTRANS_DATA"/dev.source '
        'task.dev_target="$SEQTRANS_DATA"/dev.target'
    )
    shown = capsys.readouterr()
    assert "4 of 4: attention=restricted attention.reach=2, seed 2: chrF2" in shown.err
    assert "| `attention=restricted attention.reach=2` | " in shown.out

    assert front.main(["board", f"results={results}"]) == 0
    assert "### looks: chrF2 of " in (tmp_path / "README.md").read_text("utf-8")
    assert front.main(["verify", f"results={results}"]) == 0

    assert front.main(words) == 0  # what is finished is not trained again
    assert read_measurement(path).figures == found.figures


def test_what_is_wrong_is_told_before_the_first_training(
    words: list[str], tmp_path: Path, capsys: Captured
) -> None:
    for given, problem in (
        ("position=sinusoidal;position=sinus", "did you mean 'sinusoidal'?"),
        (" ; ", "variants must be words with semicolons between, no two alike."),
        ("position=alibi;position=alibi", "variants must be words"),
        ("position=alibi;", "variants must be words"),
        ("position=alibi run.seed=4", "run.seed is another for each training; leave it out."),
        ("training.lr=1e-3;training.lr=1e+3", "variants must differ in letters and digits"),
    ):
        assert front.main([*words, f"variants={given}"]) == 2
        assert problem in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_training_that_fails_is_named_with_its_reason(
    words: list[str], tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "train.source").write_text("a\n", encoding="utf-8")
    assert front.main([*words, "variants=position=none"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("seqtrans: position=none, seed 1: seqtrans train failed: ")
    assert f"({tmp_path}/runs/position-none-1.log)" in error
