"""Lines of UTF-8 text: of a file, of standard input, of bytes. They end at LF and nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path

from seqtrans.errors import DataError

LF = b"\n"


def read_lines(path: Path | None) -> list[str]:
    """The lines of a file; of standard input, if none is named.

    Raises ``DataError`` if it can't be read, or what `split_lines` raises.
    """
    if path is None and sys.stdin.isatty():
        print("seqtrans: type lines, then Ctrl-D", file=sys.stderr)
    try:
        content = sys.stdin.buffer.read() if path is None else path.read_bytes()
    except OSError as error:
        raise DataError(f"{named(path)} can't be read: {error.strerror}.") from None
    return split_lines(content, named(path))


def named(path: Path | None) -> str:
    """What messages call a file, or standard input if it is none."""
    return "standard input" if path is None else str(path)


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
