"""Score the outputs of runs, or of anything that wrote files, on the same references."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from seqtrans.errors import DataError, Problem, SettingsError
from seqtrans.lines import read_lines
from seqtrans.reuse import DecodingSettings, read_command

if TYPE_CHECKING:
    from seqtrans.settings import Words
    from seqtrans.task import Task


class CompareSettings(DecodingSettings):
    """What ``seqtrans compare`` can be told."""

    bare: ClassVar[str | None] = "systems"

    systems: tuple[Path, ...] = Field(
        (),
        description="run folders, or files of outputs, one a line, .gz as well; the first is the "
        "baseline",
    )
    split: str = Field("test", description="which split of the runs' data: train, dev or test")
    reference: Path | None = Field(
        None,
        description="the references if no run is compared: one a line, .gz as well, or what else "
        "the task reads, such as its tables",
    )
    task: str | None = Field(None, description="the task whose metric decides, if no run is there")
    report: Path | None = Field(None, description="write all figures here, as JSON")


def main(argv: list[str]) -> int:
    """Say whether runs or files of outputs differ by more than chance, or score one file.

    usage: seqtrans compare RUN|FILE RUN|FILE … [split=test] [report=FILE]
                            [step=best] [device=DEVICE] [tokens=N]
                            [decoder=NAME] [decoder.KEY=value …] [task.KEY=value …]
           seqtrans compare FILE [FILE …] task=NAME reference=FILE [report=FILE]
                            [task.KEY=value …]

    Each run decodes the split with its own decoder, unless another is named; a file has one output
    a line, in the order of the split. The first of all is the baseline of the others; a file that
    is alone is scored. The task decides what is measured; without a run it is named, and told the
    references, plain or as it reads its data. A run is scored alone by seqtrans evaluate.

    example: seqtrans compare runs/base runs/big split=test
    example: seqtrans compare theirs.de ours.de task=pairs reference=newstest.de
    """
    settings, changes = read_command(argv, CompareSettings)
    folders = check(settings, changes)
    import json

    from seqtrans.files import write_whole
    from seqtrans.task import Comparison, Score

    gathered = outputs_of_runs(settings, folders, changes) if folders else []
    if gathered:
        task, examples, where = gathered[0][1], gathered[0][2], f"the {settings.split} split"
    else:
        assert settings.reference is not None
        task = named_task(settings, changes)
        examples = task.read_references(settings.reference)
        where = str(settings.reference)
    lines = {path: written for path, *_, written in gathered}
    outputs: dict[str, list[Any]] = {}
    for path in settings.systems:
        found = lines[path] if path in lines else read_lines(path)
        if len(found) != len(examples):
            raise DataError(
                f"{path} has {len(found):,} outputs, and {where} has {len(examples):,} references: "
                "each needs the other."
            )
        outputs[str(path)] = recovered(task, found, examples, path)
        if path not in lines and (mistake := task.mistake(outputs[str(path)], examples)):
            raise DataError(f"{path}: {mistake}")
    result: Score | Comparison
    if len(outputs) == 1:
        [alone] = outputs.values()
        result = task.score(alone, examples)
    else:
        result = task.compare(outputs, examples)
    print(result.report, end="" if result.report.endswith("\n") else "\n")
    if isinstance(result, Score):
        print(
            f"{settings.systems[0]}: {result.metric} {result.value:.2f}  [{result.signature}]  "
            f"{len(examples)} examples"
        )
    if settings.report is not None:
        content: dict[str, Any] = {
            "systems": list(outputs),
            "split": settings.split if gathered else None,
            "reference": None if gathered else where,
            "examples": len(examples),
            "metric": result.metric,
            "figures": result.figures,
        }
        if isinstance(result, Score):
            content |= {"value": result.value, "signature": result.signature}
        write_whole(settings.report, json.dumps(content, indent=1, ensure_ascii=False))
    return 0


def check(settings: CompareSettings, changes: Words) -> list[Path]:
    """Which of the systems are run folders.

    Raises ``SettingsError`` with a line for everything that is missing or makes no sense.
    """
    problems: list[Problem | str] = []
    systems = settings.systems
    if not systems:
        problems.append("there is nothing to compare: name run folders or files of outputs")
    elif len(systems) == 1 and systems[0].is_dir():
        problems.append(
            f"{systems[0]} has nothing beside it to be compared with; it is scored alone by "
            f"seqtrans evaluate run={systems[0]}"
        )
    for path in sorted(set(systems)):
        if systems.count(path) > 1:
            problems.append(f"{path} is given {systems.count(path)} times")
        if not path.exists():
            problems.append(f"{path} is neither a run folder nor a file of outputs")
    folders = [path for path in systems if path.is_dir()]
    for key, value in (("reference", settings.reference), ("task", settings.task)):
        if folders and value is not None:
            problems.append(Problem(key, f"is for files alone: {folders[0]} brings its own"))
        elif not folders and value is None:
            problems.append(Problem(key, "must be given where no run is compared"))
    if not folders and (typed := changes.tree.get("decoder")):
        key = f"decoder.{next(iter(typed))}"
        problems.append(Problem(changes.typed.get(key, key), "decodes nothing: there is no run"))
    if problems:
        raise SettingsError(*problems)
    return folders


def outputs_of_runs(
    settings: CompareSettings, folders: Sequence[Path], changes: Words
) -> list[tuple[Path, Task, Sequence[Any], list[str]]]:
    """For each run its task, the examples of the split, and its outputs as published lines.

    Raises ``DataError`` if the runs have other references.
    """
    from seqtrans.engine import load
    from seqtrans.reporting import counting

    gathered: list[tuple[Path, Task, Sequence[Any], list[str]]] = []
    expected = ""
    for folder in folders:
        engine = load(folder, settings.step, settings.device, changes, settings.tokens)
        task = engine.task
        examples = task.examples(settings.split)
        _, fingerprint = task.data(settings.split)
        if gathered and (len(gathered[0][2]), expected) != (len(examples), fingerprint):
            raise DataError(
                f"{folders[0]} and {folder} can't be compared: their {settings.split} splits, of "
                f"{len(gathered[0][2]):,} and {len(examples):,} examples, are not the same data."
            )
        expected = fingerprint
        with counting(f"decoding {folder}", len(examples)) as bar:
            evaluation = engine.evaluate(
                settings.split,
                progress=lambda n, bar=bar: bar.advance(bar.task_ids[0], n),  # type: ignore[misc]
            )
        gathered.append((folder, task, examples, [task.publish(o) for o in evaluation.outputs]))
    return gathered


def named_task(settings: CompareSettings, changes: Words) -> Task:
    """The task that ``task=`` names, not opened.

    Raises ``SettingsError`` for its wrong settings, ``PluginError`` if there is none.
    """
    from seqtrans.plugins import registry
    from seqtrans.settings import fill
    from seqtrans.task import Task

    assert settings.task is not None
    component = registry().get("task", settings.task)
    values = changes.tree.get("task", {})
    filled = fill(component.settings, values, "task", typed=changes.typed, owner=settings.task)
    task = component.make(filled)
    assert isinstance(task, Task)
    return task


def recovered(task: Task, lines: Sequence[str], examples: Sequence[Any], path: Path) -> list[Any]:
    """The outputs that lines stand for. Raises ``DataError`` naming the line that fits none."""
    outputs = []
    for number, (line, example) in enumerate(zip(lines, examples, strict=True), start=1):
        try:
            outputs.append(task.recover(line, example))
        except DataError as error:
            raise DataError(f"{path}, line {number}: {error}") from None
    return outputs


if __name__ == "__main__":
    from seqtrans.commands import run

    sys.exit(run(main, sys.argv[1:]))
