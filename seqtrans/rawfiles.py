"""What raw files were like when they were read, noted beside what was prepared from them.

`states` looks at the files before they are read, `write_states` notes them once they were, with
their SHA-256, and `check_unchanged` tells later which of them have changed. They are the files that
`Task.raw_files` gives, or else those that the task's settings name, which `named` finds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from seqtrans.errors import DataError
from seqtrans.files import digest, read_json

if TYPE_CHECKING:
    from seqtrans.settings import Settings

State = tuple[int, int]
"""A file's size, and the time in ns when it was last modified."""
RAW = "raw.json"
"""The file of notes, in the folder of what was prepared; there is none if no file was read."""


def named(settings: Settings, apart: Path) -> Iterator[Path]:
    """The files that settings name by their type ``Path``, and those below folders that they name.

    None below ``apart``, none that is hidden, and none of a setting that may change later.
    """
    apart = apart.resolve()
    fixed = type(settings).model_fields.keys() - (settings.late - settings.fixed_in_training)
    for key in sorted(fixed):
        value = getattr(settings, key)
        for path in value if isinstance(value, tuple | list) else [value]:
            if not isinstance(path, Path):
                continue
            if not path.is_dir():
                yield path
                continue
            for below in sorted(path.rglob("*")):
                hidden = any(part.startswith(".") for part in below.relative_to(path).parts)
                if not hidden and not below.resolve().is_relative_to(apart):
                    yield below


def states(files: Iterable[Path]) -> dict[Path, State]:
    """The states of those that are files."""
    return {path: found for path in files if (found := state(path)) is not None}


def state(path: Path) -> State | None:
    """The state of a file; ``None`` for anything else, and for what can't be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if path.is_file() else None


def write_states(folder: Path, before: Mapping[Path, State]) -> None:
    """Note states of files, with the SHA-256 of each that hasn't changed meanwhile."""
    noted = {
        str(path): {
            "bytes": was[0],
            "modified": was[1],
            "sha256": checksum(path) if state(path) == was else None,
        }
        for path, was in before.items()
    }
    if noted:
        (folder / RAW).write_text(json.dumps(noted, indent=1), encoding="utf-8")


def checksum(path: Path) -> str | None:
    """The SHA-256 of a file; ``None`` if it can't be read."""
    try:
        return digest(path)
    except OSError:
        return None


def check_unchanged(prepared: Path) -> None:
    """Raises ``DataError`` naming each noted file that is there and has changed since.

    ``prepared`` is the folder ``task`` of a run.
    """
    changed = []
    noted = read_json(prepared / RAW) if (prepared / RAW).is_file() else {}
    for name, was in noted.items():
        now = state(Path(name))
        if now is None or now == (was["bytes"], was["modified"]):
            continue
        if now[0] != was["bytes"] or checksum(Path(name)) not in (was["sha256"], None):
            changed.append(name)
    if changed:
        raise DataError(
            f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed since "
            f"{prepared} was prepared; choose another folder by run=FOLDER, or delete "
            f"{prepared.parent}."
        )
