"""Files that are either whole or not there: written under a temporary name, synced, then renamed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from seqtrans.errors import SeqtransError

MANIFEST = "manifest.json"


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes ``folder``, with a manifest of its files, if the block ends well.

    An existing ``folder`` is replaced only then. Raises ``SeqtransError`` if the disk is full; nothing is left behind.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with writing(folder):
            temporary.mkdir(parents=True)
            yield temporary
            files = sorted(p for p in temporary.rglob("*") if p.is_file())
            manifest = {
                str(path.relative_to(temporary)): {
                    "bytes": path.stat().st_size,
                    "sha256": digest(path),
                }
                for path in files
            }
            (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            for path in [*files, temporary / MANIFEST, temporary]:
                sync(path)
            if folder.exists():
                shutil.rmtree(folder)
            temporary.rename(folder)
            sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that appears, or replaces the old one, all at once. Raises ``SeqtransError`` if the disk is full."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
            sync(temporary)
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A text file to write to, which appears under its name only if the block ends well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("w", encoding="utf-8", newline="\n") as file:
                yield file
            sync(temporary)
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Put what an operating system refuses into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise SeqtransError(
                f"{path} can't be written: no space left on the device; what was there before is intact."
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            raise SeqtransError(f"{path} can't be written: {error.strerror}.") from None
        raise


def damage(folder: Path) -> str | None:
    """What is wrong with a folder that :func:`whole_folder` wrote; ``None`` if every file is as it was."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        return "it has no manifest"
    except ValueError:
        return "its manifest can't be read"
    for name, entry in manifest.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != entry["bytes"]:
            return f"{name} has {path.stat().st_size:,} bytes, not {entry['bytes']:,}"
        if digest(path) != entry["sha256"]:
            return f"the content of {name} has changed"
    return None


def digest(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Have a file, or a folder's list of names, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
