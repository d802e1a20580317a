"""The wanted members of an archive into a folder: regular files only, and under names of ours.

No name in the archive ever becomes a path, so none can lead outside; links, devices and folders are
refused where a file is wanted.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from seqtrans.errors import DataError
from seqtrans.files import writing
from seqtrans.lines import GZIP
from seqtrans.words import did_you_mean

BLOCK = 1 << 20
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,  # a zip packed in a way that is not known here
    RuntimeError,  # a zip with a password
)


@dataclass(frozen=True)
class Unpacked:
    """A member that was unpacked."""

    path: Path
    size: int
    sha256: str


def unpack(archive: Path, members: Mapping[str, str], folder: Path) -> dict[str, Unpacked]:
    """Unpack into ``folder`` those members of a tar, zip or gzip file that ``members`` names.

    A member is written under the name that ``members`` gives it. The one member of a lone ``.gz``
    is called as it is, without ``.gz``. Of two members of one name the first counts.

    Raises:
        DataError: it is no archive, is damaged, lacks a member, or has something else than a file
            under that name.
        SeqtransError: there is no room for a member.
    """
    found: dict[str, Unpacked] = {}
    seen: list[str] = []
    try:
        for name, stream in _members(archive, frozenset(members), seen):
            if members[name] not in found:
                found[members[name]] = _write(stream, folder / members[name])
            if len(found) == len(members):
                return found
    except DAMAGE as error:
        raise DataError(
            f"{archive.name} can't be unpacked: {error or type(error).__name__}."
        ) from None
    missing = next(name for name, kept in members.items() if kept not in found)
    hint = did_you_mean(missing, seen) or "."
    raise DataError(f"{archive.name} has no member {missing!r}{hint}")


def _members(
    archive: Path, wanted: frozenset[str], seen: list[str]
) -> Iterator[tuple[str, IO[bytes]]]:
    """The wanted members with their content, to be read before the next is asked for.

    All names are added to ``seen``.
    """
    if tarfile.is_tarfile(archive):
        with tarfile.open(archive, "r|*") as tar:
            for entry in tar:
                name = entry.name.removeprefix("./")
                seen.append(name)
                if name in wanted:
                    content = tar.extractfile(entry) if entry.isreg() else None
                    if content is None:
                        raise DataError(f"{name!r} in {archive.name} is no regular file.")
                    yield name, content
    elif zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for item in packed.infolist():
                seen.append(item.filename)
                if item.filename in wanted:
                    mode = item.external_attr >> 16
                    if item.is_dir() or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)):
                        raise DataError(f"{item.filename!r} in {archive.name} is no regular file.")
                    with packed.open(item) as content:
                        yield item.filename, content
    elif _begins(archive, GZIP):
        name = archive.name.removesuffix(".gz")
        seen.append(name)
        if name in wanted:
            with gzip.open(archive) as lone:
                yield name, cast("IO[bytes]", lone)
    else:
        raise DataError(f"{archive.name} is no archive; it begins with {_start(archive)!r}.")


def _write(stream: IO[bytes], path: Path) -> Unpacked:
    """Copy a member to ``path``."""
    digest, size = hashlib.sha256(), 0
    with writing(path), path.open("wb") as file:
        while block := stream.read(BLOCK):
            file.write(block)
            digest.update(block)
            size += len(block)
    return Unpacked(path, size, digest.hexdigest())


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(32)


def _begins(path: Path, magic: bytes) -> bool:
    return _start(path).startswith(magic)
