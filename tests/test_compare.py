"""``seqtrans compare``: runs and files against the first, and all ways to ask for nonsense."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import words as training_words
from pydantic import Field
from toy import Reversal, ReversalSettings

from seqtrans import assembly, checkpoint, compare
from seqtrans.commands import run as command
from seqtrans.errors import DataError
from seqtrans.hooks import Component, hookimpl
from seqtrans.plugins import BUILTIN, Registry
from seqtrans.prepare import prepare
from seqtrans.resolving import packaged, resolve
from seqtrans.settings import parse_words
from seqtrans.task import Comparison, Task
from seqtrans.words import split_bare

Captured = pytest.CaptureFixture[str]


class ComparedSettings(ReversalSettings):
    """Reversing digits, compared."""

    unit: str = Field("right", description="what the report calls what it counts")


class Compared(Reversal):
    """Outputs are compared by how many are right."""

    settings: ComparedSettings

    def example(self, reference: str) -> str:
        if not reference.isdigit():
            raise DataError(f"{reference!r} is no number.")
        return reference[::-1]

    def recover(self, line: str, example: Any) -> str:
        if not line.isdigit():
            raise DataError(f"{line!r} is no number.")
        return line

    def publish(self, output: Any) -> str:
        return str(output) or "0"

    def mistake(self, outputs: Sequence[Any], examples: Sequence[Any]) -> str | None:
        return "too long" if any(len(output) > 9 for output in outputs) else None

    def compare(self, outputs: Mapping[str, Sequence[Any]], examples: Sequence[Any]) -> Comparison:
        right = {
            name: sum(a == b[::-1] for a, b in zip(lines, examples, strict=True))
            for name, lines in outputs.items()
        }
        report = ", ".join(f"{Path(name).name} {count}" for name, count in right.items())
        return Comparison("right", {"right": right}, f"{report} {self.settings.unit}")


@hookimpl
def seqtrans_tasks() -> list[Component]:
    return [
        Component(
            name="compared",
            build=Compared,
            settings=ComparedSettings,
            defaults={"decoder": {"name": "greedy", "extra": 3}},
        )
    ]


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The built-in components, and the tasks of tests."""
    registry = Registry([*BUILTIN, "toy", "test_compare"])
    monkeypatch.setattr("seqtrans.plugins.registry", lambda: registry)
    monkeypatch.setattr("seqtrans.engine.registry", lambda: registry)
    return registry


def saved_run(folder: Path, names: Registry, *more: str) -> Path:
    """A run with one checkpoint of random weights."""
    argv = [*training_words(folder, "task=compared"), *more]
    config = resolve(parse_words(argv, packaged()), names)
    prepare(config, names)
    task = assembly.build_task(config, names)
    task.open(config.folder / "task")
    model = assembly.build_model(config, names, task)
    optimizer = torch.optim.Adam(model.parameters())
    checkpoint.save(config.folder, model, optimizer, checkpoint.Progress(step=1))
    return config.folder


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def refused(capsys: Captured, *argv: str) -> list[str]:
    """What the command says as it refuses, without its name before each line."""
    assert command(compare.main, argv) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return [line.removeprefix("seqtrans: ") for line in shown.err.splitlines()]


def test_files(tmp_path: Path, capsys: Captured) -> None:
    first = write(tmp_path / "first", "12", "34", "5")
    second = write(tmp_path / "second", "12", "43", "5")
    reference = write(tmp_path / "reference", "12", "43", "6")
    report = tmp_path / "report.json"
    argv = [str(first), str(second), "task=compared", f"reference={reference}"]
    assert command(compare.main, [*argv, f"report={report}", "task.unit=hits"]) == 0
    assert capsys.readouterr() == ("first 1, second 2 hits\n", "")
    assert json.loads(report.read_text(encoding="utf-8")) == {
        "systems": [str(first), str(second)],
        "split": None,
        "reference": str(reference),
        "examples": 3,
        "metric": "right",
        "figures": {"right": {str(first): 1, str(second): 2}},
    }


def test_runs_and_files(tmp_path: Path, capsys: Captured, names: Registry) -> None:
    first = saved_run(tmp_path / "one", names)
    second = saved_run(tmp_path / "two", names, "run.seed=7")
    task = Compared(ComparedSettings())
    task.open(first / "task")
    numbers = task.examples("dev")
    perfect = write(tmp_path / "perfect", *(number[::-1] for number in numbers))
    report = tmp_path / "report.json"
    argv = [str(perfect), str(first), str(second), "split=dev", f"report={report}"]
    assert command(compare.main, argv) == 0
    written = json.loads(report.read_text(encoding="utf-8"))
    assert written["systems"] == [str(perfect), str(first), str(second)]
    assert (written["split"], written["reference"], written["examples"]) == ("dev", None, 9)
    right = written["figures"]["right"]
    assert right[str(perfect)] == 9
    assert right[str(first)] < 9
    shown = f"perfect 9, one {right[str(first)]}, two {right[str(second)]} right\n"
    assert capsys.readouterr() == (shown, "")


def test_a_single_file(tmp_path: Path, capsys: Captured) -> None:
    system = write(tmp_path / "system", "12", "34")
    reference = write(tmp_path / "reference", "12", "43")
    report = tmp_path / "report.json"
    argv = [str(system), "task=compared", f"reference={reference}", f"report={report}"]
    assert command(compare.main, argv) == 0
    score = Compared(ComparedSettings()).score(["12", "34"], ["21", "34"])
    shown = f"{system}: digits 50.00  [digits in their place]  2 examples"
    assert capsys.readouterr() == (f"{score.report}\n{shown}\n", "")
    assert json.loads(report.read_text(encoding="utf-8")) == {
        "systems": [str(system)],
        "split": None,
        "reference": str(reference),
        "examples": 2,
        "metric": score.metric,
        "figures": score.figures,
        "value": score.value,
        "signature": score.signature,
    }


def test_what_is_surely_wrong_with_a_file(
    tmp_path: Path, capsys: Captured, names: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused; what a run wrote is what its model has learnt."""
    short, long = write(tmp_path / "short", "1"), write(tmp_path / "long", "1" * 10)
    for systems in ([long], [short, long]):
        argv = [*map(str, systems), "task=compared", f"reference={short}"]
        assert refused(capsys, *argv) == [f"{long}: too long"]
    run = saved_run(tmp_path / "run", names)
    perfect = write(tmp_path / "perfect", *["1"] * 9)
    monkeypatch.setattr(Compared, "publish", lambda self, output: "1" * 10)
    assert command(compare.main, [str(run), str(perfect), "split=dev"]) == 0
    assert capsys.readouterr().err == ""


def test_runs_on_other_data(tmp_path: Path, capsys: Captured, names: Registry) -> None:
    first = saved_run(tmp_path / "one", names)
    second = saved_run(tmp_path / "two", names, "task.dev=8")
    third = saved_run(tmp_path / "three", names, "task.longest=5")
    assert refused(capsys, str(first), str(second), "split=dev") == [
        f"{first} and {second} can't be compared: their dev splits, of 9 and 8 examples, are not "
        "the same data."
    ]
    assert refused(capsys, str(first), str(third), "split=dev") == [
        f"{first} and {third} can't be compared: their dev splits, of 9 and 9 examples, are not "
        "the same data."
    ]
    short = write(tmp_path / "short", "1", "2")
    assert refused(capsys, str(first), str(short), "split=dev") == [
        f"{short} has 2 outputs, and the dev split has 9 references: each needs the other."
    ]


def test_unequal_files(tmp_path: Path, capsys: Captured) -> None:
    first = write(tmp_path / "first", *["1"] * 1002)
    second = write(tmp_path / "second", *["1"] * 1001)
    reference = write(tmp_path / "reference", *["1"] * 1002)
    argv = [str(first), str(second), "task=compared", f"reference={reference}"]
    assert refused(capsys, *argv) == [
        f"{second} has 1,001 outputs, and {reference} has 1,002 references: each needs the other."
    ]


def test_lines_that_the_task_refuses(tmp_path: Path, capsys: Captured) -> None:
    first = write(tmp_path / "first", "1", "2")
    second = write(tmp_path / "second", "1", "x")
    reference = write(tmp_path / "reference", "1", "2")
    task = "task=compared"
    assert refused(capsys, str(first), str(second), task, f"reference={reference}") == [
        f"{second}, line 2: 'x' is no number."
    ]
    assert refused(capsys, str(first), str(reference), task, f"reference={second}") == [
        f"{second}, line 2: 'x' is no number."
    ]


def test_what_is_missing_or_makes_no_sense(tmp_path: Path, capsys: Captured) -> None:
    first, second = (str(write(tmp_path / name, "1")) for name in ("first", "second"))
    must = [
        "reference: must be given where no run is compared",
        "task: must be given where no run is compared",
    ]
    assert refused(capsys) == [
        "there is nothing to compare: name run folders or files of outputs",
        *must,
    ]
    assert refused(capsys, first) == must
    assert refused(capsys, first, second) == must
    files = [f"reference={first}", "task=compared"]
    gone = str(tmp_path / "gone")
    assert refused(capsys, first, gone, *files) == [
        f"{gone} is neither a run folder nor a file of outputs"
    ]
    assert refused(capsys, first, first, *files) == [f"{first} is given 2 times"]
    assert refused(capsys, first, second, *files, "decoder=beam") == [
        "decoder: decodes nothing: there is no run"
    ]
    assert refused(capsys, first, second, f"reference={gone}", "task=compared") == [
        f"{gone} can't be read: No such file or directory."
    ]
    run = tmp_path / "run"
    run.mkdir()
    assert refused(capsys, str(run)) == [
        f"{run} has nothing beside it to be compared with; it is scored alone by seqtrans evaluate "
        f"run={run}"
    ]
    assert refused(capsys, str(run), second, *files) == [
        f"reference: is for files alone: {run} brings its own",
        f"task: is for files alone: {run} brings its own",
    ]
    assert refused(capsys, first, second, *files, "splt=dev", "--report=x") == [
        "'--report=x': settings begin without dashes: write report=x"
    ]
    assert refused(capsys, first, second, *files, "splt=dev", "model.width=3") == [
        "splt: no such setting; did you mean split?",
        "model.width: belongs to the run and can't be changed here",
    ]
    assert refused(capsys, first, second, *files, "task.units=x") == [
        "task.units: no such setting; did you mean task.unit?"
    ]


def test_a_task_that_compares_nothing(tmp_path: Path, capsys: Captured) -> None:
    first, second = (str(write(tmp_path / name, "1")) for name in ("first", "second"))
    assert refused(capsys, first, second, "task=reversal", f"reference={first}") == [
        f"{first}, line 1: Reversal scores against no file of references."
    ]
    with pytest.raises(DataError, match=r"^Reversal compares no outputs\.$"):
        Task.compare(Reversal(ReversalSettings()), {}, [])


def test_words_without_an_equals_sign() -> None:
    words = ["runs/a", "b", "split=test", "./x=1/run", "--help", "task.unit=a/b", "out/lr=1"]
    assert split_bare(words) == (
        ["runs/a", "b", "./x=1/run", "out/lr=1"],
        ["split=test", "--help", "task.unit=a/b"],
    )
