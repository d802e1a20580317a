"""Files that are either whole or not there: written under a temporary name, synced, then renamed.

A process killed at any moment leaves nothing but temporaries, ``.NAME.PID.tmp`` beside the final
name, which :func:`sweep` deletes.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from seqtrans.errors import DataError, SeqtransError

MANIFEST = "manifest.json"
LARGE = 1 << 28
"""Bytes; what is larger is checked by its size alone."""
TEMPORARY = re.compile(r"\..+\.(\d+)\.tmp")
FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
)


def temporary_for(path: Path) -> Path:
    """Where this process writes what is to become ``path``."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes ``folder``, with a manifest, if the block ends well.

    An existing ``folder`` is replaced only then. Raises ``SeqtransError`` if the disk is full or
    the place can't be written to; nothing is left behind.
    """
    temporary = temporary_for(folder)
    delete(temporary)
    try:
        with writing(folder):
            temporary.mkdir(parents=True)
            yield temporary
            inside = sorted(temporary.rglob("*"))
            manifest = {
                str(path.relative_to(temporary)): {
                    "bytes": path.stat().st_size,
                    "sha256": digest(path),
                }
                for path in inside
                if path.is_file()
            }
            (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            for path in [*inside, temporary / MANIFEST, temporary]:
                sync(path)
            replace(folder, temporary)
            sync(folder.parent)
    finally:
        delete(temporary)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that appears, or replaces the old one, all at once.

    Raises ``SeqtransError`` if the disk is full or the place can't be written to.
    """
    with becoming(path) as place:
        place.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A text file to write to, which appears under its name only if the block ends well.

    Raises ``SeqtransError`` if the disk is full or the place can't be written to.
    """
    with becoming(path) as place, place.open("w", encoding="utf-8", newline="\n") as file:
        yield file


@contextmanager
def becoming(path: Path) -> Iterator[Path]:
    """Where to write a file that gets its name at the end of the block.

    A link stays a link, to the new file. A device or pipe, such as ``/dev/null``, is written to as
    it is: there is nothing of it to be whole, and a file must not take its place. Raises
    ``SeqtransError`` as `writing` does, and for a folder.
    """
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            yield path
            return
        final = path.resolve() if path.is_symlink() else path
        temporary = temporary_for(final)
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            put(temporary, final)
        finally:
            delete(temporary)


def put(temporary: Path, path: Path) -> None:
    """Rename a finished file, once its content is on the disk."""
    sync(temporary)
    temporary.rename(path)
    sync(path.parent)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Put what an operating system refuses into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise SeqtransError(
                f"{path} can't be written: no space left on the device; "
                "what was there before is intact."
            ) from None
        if error.errno in REFUSED:
            raise SeqtransError(f"{path} can't be written: {error.strerror}.") from None
        raise


def replace(folder: Path, new: Path) -> None:
    """Rename ``new`` to ``folder``; one that is there goes out of the way, and back on failure."""
    old = folder.with_name(f".{folder.name}.old.{os.getpid()}.tmp")
    delete(old)
    if folder.is_dir():
        folder.rename(old)
    try:
        new.rename(folder)
    except BaseException:
        if old.is_dir():
            old.rename(folder)
        raise
    delete(old)


def discard(folder: Path) -> None:
    """Delete a folder, if it is there, so that no moment shows a part of it under its name."""
    doomed = folder.with_name(f".{folder.name}.old.{os.getpid()}.tmp")
    delete(doomed)
    if folder.is_dir():
        folder.rename(doomed)
        delete(doomed)


def delete(path: Path) -> None:
    """Delete a file or folder, as far as it is there: what fails here must not hide why."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def sweep(folder: Path) -> None:
    """Delete the temporaries in ``folder`` of processes that are dead, and former ones of this."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        found = TEMPORARY.fullmatch(path.name)
        if found and not other_lives(int(found[1])):
            delete(path)


def other_lives(number: int) -> bool:
    """Whether a process of that number runs that isn't this one."""
    if number == os.getpid():
        return False
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a run folder against other processes that would write into it.

    Raises ``SeqtransError`` if one holds it already. A lock goes with its process, however it ends.
    A folder that is new goes, too, if what is done in it fails before it leaves anything there.
    """
    new = not folder.exists()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a+")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            raise SeqtransError(
                f"another process{f' ({holder})' if holder else ''} is training in {folder}; "
                "choose another run=FOLDER."
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}")
        lock.flush()
        try:
            yield
        except BaseException:
            if new and [path.name for path in folder.iterdir()] == [".lock"]:
                delete(folder)
            raise


def damage(folder: Path, only: Collection[str] | None = None) -> str | None:
    """What is wrong with a folder that :func:`whole_folder` wrote; ``None`` if nothing is.

    With ``only``, other files than these may be missing or changed. Of a file larger than ``LARGE``
    no more than the size is looked at, so that this takes no longer for a corpus of any size.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        listed = {str(k): (int(v["bytes"]), str(v["sha256"])) for k, v in manifest.items()}
    except FileNotFoundError:
        return "it has no manifest"
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return "its manifest can't be read"
    for name, (size, checksum) in listed.items():
        if only is not None and name not in only:
            continue
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size:,} bytes, not {size:,}"
        try:
            if size <= LARGE and digest(path) != checksum:
                return f"the content of {name} has changed"
        except OSError as error:
            return f"{name} can't be read: {error.strerror}"
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


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ``DataError`` if it is missing or no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} can't be read: {error}.") from None
