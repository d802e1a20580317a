"""Whether the rows are true: their form, their hypotheses, and the score that these give."""

from __future__ import annotations

import json
import math
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import board
from benchmarks.places import local_path, moved, path_keys, texts
from benchmarks.results import (
    SYNTHETIC,
    Folder,
    Row,
    hypotheses_name,
    measurements,
    read_hypotheses,
    read_measurement,
    read_row,
    rows,
)
from seqtrans import __version__
from seqtrans.errors import DataError, PluginError, SeqtransError
from seqtrans.plugins import registry
from seqtrans.settings import fill, parse_words

TOLERANCE = 1e-9


class NotAtHandError(Exception):
    """The data of a row, or the plug-in of its task, is not on this machine."""


def main(argv: list[str]) -> int:
    """Check rows, and score them again from their hypotheses where the data is at hand.

    usage: python -m benchmarks verify [FILE …] [results=FOLDER]

    Without a FILE all rows are checked, and that the tables of the README are those of the rows.
    Data is looked for in the folder that SEQTRANS_DATA names, else in shared beside the repository;
    the synthetic data is always at hand. Exits with 1 if anything differs.

    example: python -m benchmarks verify
    """
    named = [Path(word) for word in argv if "=" not in word]
    words = parse_words(word for word in argv if "=" in word)
    typed = {
        key if key != "name" else group: value
        for group, values in words.tree.items()
        for key, value in values.items()
    }
    folder = fill(Folder, typed, "", typed=words.typed).results
    wrong = 0
    for path in named or rows(folder):
        try:
            outcome, problems = check(path)
        except SeqtransError as error:
            outcome, problems = "is no row", str(error).splitlines()
        if not problems:
            print(f"{path.name}: {outcome}")
        for problem in problems:
            print(problem if str(path) in problem else f"{path}: {problem}", file=sys.stderr)
        wrong += len(problems)
    if not named:
        for problem in [*mismeasured(folder), *orphans(folder), *board.out_of_date(folder)]:
            print(problem, file=sys.stderr)
            wrong += 1
        if not rows(folder):
            print(f"{folder} holds no rows.")
    return 1 if wrong else 0


def mismeasured(folder: Path) -> list[str]:
    """What is wrong with the form of measurements, a sentence each; they can't be scored again."""
    problems = []
    for path in measurements(folder):
        try:
            name = read_measurement(path).name
        except DataError as error:
            problems += str(error).splitlines()
            continue
        if name != path.name:
            problems.append(f"{path}: the file must be called {name}, by what it says.")
    return problems


def check(path: Path) -> tuple[str, list[str]]:
    """What became of a row, in words, and everything that is wrong with it, a sentence each.

    Raises ``DataError`` for a file that is no row.
    """
    row = read_row(path)
    problems = list(inconsistent(row, path.name))
    try:
        lines = read_hypotheses(row, path.parent)
    except DataError as error:
        return "not scored", [*problems, str(error)]
    try:
        problems += rescored(row, lines)
    except NotAtHandError as error:
        return f"in order; not scored again: {error}", problems
    return f"in order; scored again: {row.metric} {row.value:.2f}", problems


def inconsistent(row: Row, name: str) -> list[str]:
    """What a row says of itself that does not fit together, or only this machine understands."""
    problems = []
    if row.name != name:
        problems.append(f"the file must be called {row.name}, by what the row says.")
    if row.hypotheses.file != hypotheses_name(row.name):
        problems.append(
            f"hypotheses.file must be {hypotheses_name(row.name)}, not {row.hypotheses.file}."
        )
    for field, key in (("task", "task"), ("seed", "run.seed")):
        if row.settings.get(key) != getattr(row, field):
            problems.append(
                f"{field} is {getattr(row, field)!r} in the row and {row.settings.get(key)!r} in "
                "its settings."
            )
    for key, value in row.settings.items():
        if isinstance(value, str) and value.startswith(("/", "~")):
            problems.append(f"settings.{key} is {value!r}, a path of one machine.")
    for kind, command in row.command:
        for word in split(command):
            if word.partition("=")[2].startswith(("/", "~")):
                problems.append(f"command.{kind} has {word!r}, a path of one machine.")
    return problems


def split(command: str) -> list[str]:
    """The words of a command; one that no shell reads is a single word."""
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def rescored(row: Row, lines: Sequence[str]) -> list[str]:
    """Where the data and the score differ from the row's, a sentence each.

    Raises `NotAtHandError` if this can't be found out here.
    """
    names = registry()
    try:
        component = names.get("task", row.task)
    except PluginError as error:
        raise NotAtHandError(str(error)) from None
    values = {
        key.removeprefix("task."): value
        for key, value in row.settings.items()
        if key.startswith("task.")
    }
    keys = path_keys(component.settings, values)
    paths = {key: moved(values[key], local_path) for key in keys}
    absent = [
        f"{key}={path}"
        for key, value in paths.items()
        for path in texts(value)
        if not Path(path).exists()
    ]
    try:
        task = component.make(fill(component.settings, {**values, **paths}, "task"))
        with tempfile.TemporaryDirectory() as folder:
            task.open_split(row.split, Path(folder))
            examples = task.examples(row.split)
            name, fingerprint = task.data(row.split)
    except DataError as error:
        if absent:
            raise NotAtHandError(f"the data is not at hand ({', '.join(absent)})") from None
        return [f"the data can't be read: {error}"]
    except SeqtransError as error:
        return [f"its settings can't be used: {error}"]
    if fingerprint != row.data.fingerprint:
        return [
            f"the {row.split} data here has the fingerprint {fingerprint[:12]}…, and the row says "
            f"{row.data.fingerprint[:12]}…."
        ]
    if name.startswith(SYNTHETIC) != row.synthetic:
        return [f"the data is called {row.data.name!r}, and is {name!r}."]
    if len(examples) != len(lines):
        return [f"there are {len(lines)} hypotheses for {len(examples)} examples."]
    outputs, problems = [], []
    for number, (line, example) in enumerate(zip(lines, examples, strict=True), start=1):
        try:
            outputs.append(task.recover(line, example))
        except SeqtransError as error:
            problems.append(f"hypothesis {number}: {error}")
    return problems or differences(row, task.score(outputs, examples))


def differences(row: Row, score: Any) -> list[str]:
    """Where a score is not what the row says."""
    before = {
        "metric": row.metric,
        "value": row.value,
        "signature": row.signature,
        **flattened(row.figures),
    }
    now = {
        "metric": score.metric,
        "value": score.value,
        "signature": score.signature,
        **flattened(json.loads(json.dumps(score.figures))),
    }
    return [
        f"{key} is {shown(before, key)} in the row, and {shown(now, key)} by the hypotheses."
        for key in sorted(before.keys() | now.keys())
        if key not in before or key not in now or not same(before[key], now[key], row)
    ]


def flattened(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Each figure under the names that lead to it, joined by dots."""
    found: dict[str, Any] = {}
    pending: list[tuple[str, Any]] = [("figures", figures)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, dict):
            pending.extend((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            found[name] = value
    return found


def shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "absent"


def same(before: object, now: object, row: Row) -> bool:
    """Whether two figures agree; a signature may name the version of seqtrans that made it."""
    if isinstance(before, str) and isinstance(now, str):
        return before.replace(f"seqtrans:{row.versions.seqtrans}", f"seqtrans:{__version__}") == now
    if isinstance(before, bool) or isinstance(now, bool):
        return before is now
    if isinstance(before, int | float) and isinstance(now, int | float):
        return math.isclose(before, now, rel_tol=0, abs_tol=TOLERANCE)
    return before == now


def orphans(folder: Path) -> list[str]:
    """Hypotheses without a row."""
    wanted = {hypotheses_name(path.name) for path in rows(folder)}
    return [
        f"{path}: there is no row for these hypotheses."
        for path in sorted(folder.glob("*.txt.gz"))
        if path.name not in wanted
    ]
