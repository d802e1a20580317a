"""Lines of UTF-8 text: of a file, of standard input, of bytes. They end at LF and nowhere else."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from seqtrans.errors import DataError

LF = b"\n"
GZIP = b"\x1f\x8b"
"""What a file that gzip packed begins with."""
DAMAGES = gzip.BadGzipFile, EOFError, zlib.error
"""What unpacking it raises where it is damaged."""


def read_lines(path: Path | None) -> list[str]:
    """The lines of a file, plain or packed by gzip; of standard input, if none is named.

    Raises ``DataError`` if it can't be read, for SGML, or what `split_lines` raises.
    """
    if path is None and sys.stdin.isatty():
        print("seqtrans: type lines, then Ctrl-D", file=sys.stderr)
    if path is not None and is_sgml(path):
        raise DataError(
            f"{path} is SGML, of which the lines are no text: write its segments to a file of "
            "their own, one a line."
        )
    try:
        content = sys.stdin.buffer.read() if path is None else path.read_bytes()
    except OSError as error:
        raise DataError(f"{named(path)} can't be read: {error.strerror}.") from None
    return split_lines(unpacked(content, named(path)), named(path))


def is_sgml(path: Path) -> bool:
    """Whether a file is called as SGML test sets are."""
    return path.name.lower().removesuffix(".gz").endswith(".sgm")


def unpacked(content: bytes, where: str) -> bytes:
    """What gzip packed, if it is that, or the content as it is.

    Raises ``DataError`` naming ``where`` if it is damaged.
    """
    if not content.startswith(GZIP):
        return content
    try:
        return gzip.decompress(content)
    except DAMAGES as error:
        raise damaged(where, error) from None


def damaged(where: str, error: Exception) -> DataError:
    """What to raise for one of `DAMAGES`."""
    return DataError(f"{where} can't be unpacked to its end: {str(error).rstrip('.')}.")


def named(path: Path | None) -> str:
    """What messages call a file, or standard input if it is none."""
    return "standard input" if path is None else str(path)


def called(where: str, numbers: Sequence[int]) -> Callable[[int], str]:
    """What messages call the lines of ``where`` with these ``numbers``, by their places from 1."""
    return lambda place: f"{where}, line {numbers[place - 1]}"


def split_lines(content: bytes, where: str) -> list[str]:
    """The lines of a text; one CR before an LF and a byte order mark at the start are dropped.

    Raises ``DataError`` naming ``where`` if it isn't UTF-8.
    """
    refuse_utf16(content, where)
    lines = decoded(content, where).removeprefix("\ufeff").split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def refuse_utf16(content: bytes, where: str) -> None:
    """Raises ``DataError`` if the content begins as UTF-16 does."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{where} is UTF-16, not UTF-8; save it as UTF-8.")


def decoded(content: bytes, where: str, number: int = 1, unit: str = "line") -> str:
    """Bytes whose first line has that number as text.

    Raises ``DataError`` naming the line, or what else its ``unit`` is, and the byte in it.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        raise DataError(
            f"{where}, {unit} {number + before.count(LF)}: byte "
            f"{error.start - before.rfind(LF)} of the {unit}, {content[error.start]:#04x}, is "
            "not UTF-8; save the file as UTF-8."
        ) from None
