"""Paths in a row: under the data folder or the repository, so that they mean the same elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
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
    """The settings whose values are paths: by their type, or since they are text with a slash."""
    return [
        key
        for key, value in values.items()
        if isinstance(value, str)
        and key in schema.model_fields
        and (
            "/" in value
            or any(arm.type is Path for arm in arms(schema.model_fields[key].annotation))
        )
    ]


def portable(values: Mapping[str, Any], keys: Iterable[str], group: str) -> dict[str, Any]:
    """The values of a group with paths as `portable_path` writes them.

    Raises ``SettingsError`` if two different paths would become one.
    """
    result = dict(values)
    origins: dict[str, str] = {}
    for key in keys:
        result[key] = portable_path(values[key])
        other = origins.setdefault(result[key], key)
        if Path(values[other]).resolve() != Path(values[key]).resolve():
            raise SettingsError(
                f"{group}.{other}={values[other]} and {group}.{key}={values[key]} would both be "
                f"recorded as {result[key]}; set {VARIABLE} to a folder that holds both."
            )
    return result


def portable_path(text: str) -> str:
    """A path as ``$SEQTRANS_DATA/…`` or relative to the repository, whichever it lies in.

    Any other becomes ``$SEQTRANS_DATA/data/NAME``: who has the same data can put it there.
    """
    given = Path(os.path.abspath(text))  # noqa: PTH100  # links are followed only if that helps
    for path in (given, given.resolve()):
        if path.is_relative_to(data_folder()):
            return SIGN + path.relative_to(data_folder()).as_posix()
        if path.is_relative_to(ROOT):
            return path.relative_to(ROOT).as_posix()
    return f"{SIGN}data/{given.name}"


def local_path(text: str) -> str:
    """Where a path of a row lies on this machine."""
    if text.startswith(SIGN):
        return str(data_folder() / text.removeprefix(SIGN))
    return str(ROOT / text)
