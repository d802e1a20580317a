"""Paths in a row: under the data folder or the repository, so that they mean the same elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.results import ROOT
from seqtrans.errors import SettingsError
from seqtrans.fields import arms
from seqtrans.settings import Settings

VARIABLE = "SEQTRANS_DATA"
"""The environment variable that names the data folder, which holds ``data/``."""

SIGN = f"${VARIABLE}/"


def data_folder() -> Path:
    """Where data is looked for: what the variable names, or ``shared`` beside the repository."""
    return Path(os.environ.get(VARIABLE) or ROOT / ".." / "shared").resolve()


def path_keys(schema: type[Settings], values: Mapping[str, Any]) -> list[str]:
    """The settings whose values are paths, or lists of them: by their type, or since they are text
    that names what there is or what is recorded so.
    """
    return [
        key
        for key, value in values.items()
        if key in schema.model_fields
        and (found := texts(value))
        and (is_path(schema.model_fields[key].annotation) or any(map(names_file, found)))
    ]


def texts(value: Any) -> list[str]:
    """A text, or the texts of a list; none of anything else."""
    values = value if isinstance(value, list) else [value]
    return values if all(isinstance(one, str) for one in values) else []


def is_path(annotation: Any) -> bool:
    """Whether a type is that of paths."""
    return any(arm.type is Path or Path in arm.items for arm in arms(annotation))


def names_file(text: str) -> bool:
    """Whether a text is a path."""
    if text.startswith(SIGN):
        return True
    return "/" in text and (Path(text).exists() or (ROOT / text).exists())


def moved(value: Any, move: Callable[[str], str]) -> Any:
    """A path, or each of a list of them, elsewhere."""
    return [move(text) for text in value] if isinstance(value, list) else move(value)


def portable(values: Mapping[str, Any], keys: Iterable[str], group: str) -> dict[str, Any]:
    """The values of a group with paths as `portable_path` writes them.

    Raises ``SettingsError`` if two different paths would become one.
    """
    result = dict(values)
    origins: dict[str, tuple[str, str]] = {}
    for key in keys:
        result[key] = moved(values[key], portable_path)
        for path, recorded in zip(texts(values[key]), texts(result[key]), strict=True):
            other, first = origins.setdefault(recorded, (key, path))
            if Path(first).resolve() != Path(path).resolve():
                raise SettingsError(
                    f"{group}.{other}={first} and {group}.{key}={path} would both be recorded as "
                    f"{recorded}; set {VARIABLE} to a folder that holds both."
                )
    return result


def portable_run(run: Path) -> str:
    """A run folder relative to the repository; what lies elsewhere is as good as in ``runs``."""
    return run.relative_to(ROOT).as_posix() if run.is_relative_to(ROOT) else f"runs/{run.name}"


def portable_path(text: str) -> str:
    """A path as ``$SEQTRANS_DATA/…`` or relative to the repository, whichever it lies in.

    Of any other, a run becomes ``runs/NAME``, and the rest ``$SEQTRANS_DATA/data/NAME``: who has
    the same data can put it there.
    """
    given = Path(os.path.abspath(text))  # noqa: PTH100  # links are followed only if that helps
    if (given / "config.json").is_file():
        return portable_run(given)
    for path in (given, given.resolve()):
        if path.is_relative_to(data_folder()):
            return SIGN + path.relative_to(data_folder()).as_posix()
        if path.is_relative_to(ROOT):
            return path.relative_to(ROOT).as_posix()
    return f"{SIGN}data/{given.name}"


def portable_word(word: str) -> str:
    """A word with paths that mean the same on another machine."""
    key, equals, value = word.partition("=")
    parts = (portable_path(part) if names_file(part) else part for part in value.split(","))
    return f"{key}{equals}{','.join(parts)}"


def local_path(text: str) -> str:
    """Where a path of a row lies on this machine."""
    if text.startswith(SIGN):
        return str(data_folder() / text.removeprefix(SIGN))
    return str(ROOT / text)
