"""Parallel text on disk to chunks of numbered pairs, streamed, with an error for whatever is wrong.

A line ends at LF and nowhere else. One CR before it is dropped, and so is a byte order mark at the
start of a file; U+2028, U+0085, VT, FF, a lone CR and NUL are characters of the line they stand in.
"""

from __future__ import annotations

import gzip
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

from seqtrans.errors import DataError
from seqtrans.lines import DAMAGES, GZIP, LF, damaged, decoded, is_sgml, refuse_utf16
from seqtrans.words import did_you_mean

BLOCK = 1 << 20
LONGEST_LINE = 1 << 26
"""Bytes. A file with a longer line is no text of lines, and would have to fit into memory."""
LINES = 20_000
"""So many lines are read at a time."""
TEXT = 1 << 22
"""Characters of one file's text after which a list of lines ends, however few they are."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_SEGMENT = re.compile(rb"<seg(?:\s[^>]*)?>(.*?)</seg\s*>", re.DOTALL | re.IGNORECASE)
_OPEN_SEGMENT = re.compile(rb"<seg[\s>]", re.IGNORECASE)
_LINE_BREAK = re.compile(rb"[ \t\r]*\n[ \t\r]*")
_ENTITY = re.compile(r"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


@dataclass(frozen=True)
class Files:
    """Two files in which equal line numbers belong together.

    Each is plain or packed by gzip. One called ``.sgm`` or ``.sgm.gz`` is an SGML test set, and its
    "lines" are its ``<seg>`` elements.
    """

    source: Path
    target: Path


@dataclass(frozen=True)
class Table:
    """One file of columns, split at tabs alone: there is no quoting.

    Columns are given by number, from 1, and then the first line is data already; or by name, and
    then the first line has the names. Both are given in the same way.
    """

    path: Path
    source_column: int | str
    target_column: int | str

    @classmethod
    def of(cls, path: Path, source_column: str, target_column: str) -> Table:
        """From columns as they are typed: digits are a number, anything else is a name.

        Raises ``DataError`` for a number below 1, and for one of each kind.
        """
        source, target = (
            int(column) if column.isascii() and column.isdigit() else column
            for column in (source_column, target_column)
        )
        if 0 in (source, target):
            raise DataError(f"{path}: columns are counted from 1; there is no column 0.")
        if isinstance(source, int) != isinstance(target, int):
            raise DataError(
                f"{path}: the columns {source_column} and {target_column} must both be numbers, "
                "for a table without header, or both names in its first line."
            )
        return cls(path, source, target)


Part = Files | Table
"""One corpus of pairs."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive pairs of a part."""

    part: Part
    first: int
    """The number of the first pair's line in the file, from 1."""
    source: list[str]
    target: list[str]
    done: int
    """How many bytes of the part's files had been read for this and all earlier chunks."""

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a table, each with all of its columns."""

    path: Path
    first: int
    rows: list[tuple[str, ...]]
    done: int

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of a file."""

    first: int
    lines: list[str]
    done: int


def chunks(part: Part, size: int = LINES) -> Iterator[Chunk]:
    """The pairs of a part, ``size`` at a time, the last chunk perhaps shorter, and so are those of
    long lines.

    Raises ``DataError`` for a file that is missing, empty, damaged or not UTF-8, a column that a
    line lacks, and, once the shorter is at its end, for two files of different lengths.
    """
    if isinstance(part, Files):
        yield from _aligned(part, size)
    else:
        yield from _columns(part, size)


def files_of(part: Part) -> tuple[Path, ...]:
    """The files a part is read from."""
    return (part.source, part.target) if isinstance(part, Files) else (part.path,)


def bytes_of(part: Part) -> int:
    """What ``done`` of the last chunk will be: the size of the part's files as they lie on disk.

    Raises ``DataError`` if one of them is not there.
    """
    require_files(part)
    return sum(path.stat().st_size for path in files_of(part))


def check(parts: Iterable[Part], read: Callable[[Part], Iterator[Chunk]] | None = None) -> None:
    """Read parts to their ends, by :func:`chunks` or in another way.

    Raises ``DataError`` with a line for each that can't be used.
    """
    wrong: dict[str, None] = {}
    for part in parts:
        try:
            for _ in (read or chunks)(part):
                pass
        except DataError as error:
            wrong[str(error)] = None
    if wrong:
        raise DataError("\n".join(wrong))


def rows(path: Path, columns: int, size: int = LINES) -> Iterator[Rows]:
    """The rows of a table without header, split at tabs, for readers that use several columns.

    A row has at least ``columns`` of them; a blank line is a row of ``columns`` blank ones. Raises
    ``DataError`` as :func:`chunks` does.
    """
    for part in lines(path, size):
        split = [tuple(line.split("\t")) for line in part.lines]
        for number, row in enumerate(split):
            if len(row) < columns:
                split[number] = _short_row(row, path, part.first + number, columns)
        yield Rows(path, part.first, split, part.done)


def lines(path: Path, size: int = LINES) -> Iterator[Lines]:
    """The lines of one file, ``size`` at a time, the last list perhaps shorter, and so are those
    that have ``TEXT`` characters before.

    Raises ``DataError`` for a file that is missing, empty, damaged or not UTF-8.
    """
    read = _segments if is_sgml(path) else _texts
    held: list[str] = []
    first, done, text = 1, 0, 0
    for more, done in read(path):
        while more:
            some = more[: size - len(held)]
            sums = list(accumulate(map(len, some), initial=text))
            if sums[-1] >= TEXT:
                some = some[: bisect_left(sums, TEXT)]
            held += some
            more, text = more[len(some) :], sums[len(some)]
            if len(held) == size or text >= TEXT:
                yield Lines(first, held, done)
                first, held, text = first + len(held), [], 0
    if held:
        yield Lines(first, held, done)


def require_file(path: Path) -> None:
    """Raises ``DataError`` unless ``path`` is a file, with what may have been meant."""
    if path.is_file():
        return
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it.")
    if path.exists():
        raise DataError(
            f"{path} is no regular file; it is read more than once, so write it to disk first."
        )
    if not path.parent.is_dir():
        raise DataError(f"{path} does not exist: there is no folder {path.parent}.")
    try:
        names = sorted(other.name for other in path.parent.iterdir() if other.is_file())
    except OSError:
        names = []
    hint = did_you_mean(path.name, names) or "."
    raise DataError(f"{path} does not exist{hint}")


def require_files(part: Part) -> None:
    """Raises ``DataError`` with a line for each file of a part that can't be one."""
    wrong = []
    for path in files_of(part):
        try:
            require_file(path)
        except DataError as error:
            wrong.append(str(error))
    if wrong:
        raise DataError("\n".join(wrong))


def refuse_unequal(part: Files) -> NoReturn:
    """Raises ``DataError`` with both counts and, if it can be told, where the files part."""
    from seqtrans_tasks.pairs.divergence import divergence

    counts = tuple(_count(path) for path in files_of(part))
    message = (
        f"{part.source} has {counts[0]:,} lines and {part.target} {counts[1]:,}; line by line they "
        "must belong together."
    )
    where = divergence(part)
    raise DataError(f"{message} {where}" if where else message)


def _aligned(part: Files, size: int) -> Iterator[Chunk]:
    """The pairs of two files. A chunk ends where the lines read of either side end."""
    require_files(part)
    sides = lines(part.source, size), lines(part.target, size)
    held: list[list[str]] = [[], []]
    done, first = [0, 0], 1
    while True:
        for side, read in enumerate(sides):
            if not held[side] and (found := next(read, None)) is not None:
                held[side], done[side] = found.lines, found.done
        count = min(map(len, held))
        if not count:
            break
        source, target = (side[:count] for side in held)
        yield Chunk(part, first, source, target, sum(done))
        held, first = [side[count:] for side in held], first + count
    if any(held):
        refuse_unequal(part)


def _count(path: Path) -> int:
    return sum(len(part.lines) for part in lines(path))


def _columns(part: Table, size: int) -> Iterator[Chunk]:
    path, named = part.path, isinstance(part.source_column, str)
    assert named == isinstance(part.target_column, str)
    places = () if named else (int(part.source_column) - 1, int(part.target_column) - 1)
    for read in lines(path, size):
        first, texts = read.first, read.lines
        if not places:
            places = _named_columns(part, texts[0])
            first, texts = 2, texts[1:]
        source_at, target_at = places
        needed = max(places) + 1
        source, target = [], []
        for number, line in enumerate(texts):
            cells: list[str] | tuple[str, ...] = line.split("\t", needed)
            if len(cells) < needed:
                cells = _short_row(tuple(cells), path, first + number, needed)
            source.append(cells[source_at])
            target.append(cells[target_at])
        if texts:
            yield Chunk(part, first, source, target, read.done)
    if named and read.first == 1 and len(read.lines) == 1:
        raise DataError(f"{path} holds nothing but a line of names of columns.")


def _named_columns(part: Table, header: str) -> tuple[int, int]:
    names = header.split("\t")
    for wanted in (part.source_column, part.target_column):
        if wanted not in names:
            raise DataError(
                f"{part.path} has no column {wanted!r}; its first line names "
                f"{', '.join(names)}{did_you_mean(str(wanted), names) or '.'}"
            )
        if names.count(str(wanted)) > 1:
            raise DataError(
                f"{part.path} has {names.count(str(wanted))} columns {wanted!r}; give their "
                "numbers, and take the line of names away."
            )
    return names.index(str(part.source_column)), names.index(str(part.target_column))


def _short_row(row: tuple[str, ...], path: Path, number: int, needed: int) -> tuple[str, ...]:
    """The cells of a blank line; refuses any other line that has too few."""
    if row == ("",):
        return ("",) * needed
    raise DataError(
        f"{path}, line {number}: needs {needed} columns, separated by tabs, and has {len(row)}: "
        f"{shortened(chr(9).join(row))}."
    )


def without_tabs(line: str, of: str) -> str:
    """A line that has nothing but ``of``. Raises ``DataError`` for one that has columns."""
    if "\t" in line:
        raise DataError(f"there is a tab, and a line must have nothing but {of}.")
    return line


def shortened(text: str, length: int = 60) -> str:
    """The text in quotes, escaped, and with … for what is more than ``length`` characters."""
    return repr(text if len(text) <= length else f"{text[:length]}…")


def _texts(path: Path) -> Iterator[tuple[list[str], int]]:
    """Lists of a file's lines, and how many bytes of it had been read."""
    number, done = 1, 0
    for block, done in blocks(path):
        found = decoded(block, str(path), number).replace("\r\n", "\n").split("\n")
        found.pop()
        number += len(found)
        yield found, done


def blocks(path: Path) -> Iterator[tuple[bytes, int]]:
    """The unpacked bytes of a file in blocks of whole lines, and how many had been read on disk.

    Each block ends with LF, one that the file lacks at its end included, after which a CR that
    stood there would not be dropped otherwise; a byte order mark is gone.
    """
    rest: list[bytes] = []
    waiting, number, start = 0, 1, True
    for content, done in _unpacked(path):
        if start:
            refuse_utf16(content, str(path))
            content, start = content.removeprefix(BYTE_ORDER_MARK), False
        end = content.rfind(LF) + 1
        if end:
            block = b"".join((*rest, content[:end]))
            yield block, done
            number += block.count(LF)
            rest, waiting = [], 0
        rest.append(content[end:])
        waiting += len(content) - end
        if waiting > LONGEST_LINE:
            raise DataError(
                f"{path}, line {number}: more than {LONGEST_LINE:,} bytes without an end of line; "
                "this is not a text of one sentence a line."
            )
    if start or (not waiting and number == 1):
        raise DataError(f"{path} is empty.")
    if waiting:
        yield b"".join((*rest, LF)), done


def _unpacked(path: Path) -> Iterator[tuple[bytes, int]]:
    """Blocks of the bytes of a file, unpacked, and how many had been read on disk."""
    require_file(path)
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            if not packed and path.suffix.lower() == ".gz":
                if not path.stat().st_size:
                    return
                raise DataError(f"{path} is not packed by gzip, as its name says.")
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
            while content := stream.read(BLOCK):
                yield content, file.tell()
    except DAMAGES as error:
        raise damaged(str(path), error) from None
    except OSError as error:
        raise DataError(f"{path} can't be read: {(error.strerror or str(error))}.") from None


def _segments(path: Path) -> Iterator[tuple[list[str], int]]:
    """Lists of an SGML file's segments as one line each, and how many bytes had been read."""
    rest, number, done = b"", 1, 0
    for block, done in blocks(path):
        content = rest + block
        found, end = [], 0
        for match in _SEGMENT.finditer(content):
            found.append(_LINE_BREAK.sub(b" ", match[1].strip(b" \t\r\n")))
            end = match.end()
        opened = _OPEN_SEGMENT.search(content, end)
        rest = content[opened.start() :] if opened else b""
        if len(rest) > LONGEST_LINE:
            break
        if found:
            text = decoded(LF.join(found), str(path), number, "segment")
            number += len(found)
            yield [_ENTITY.sub(_character, one) for one in text.split("\n")], done
    if rest:
        raise DataError(f"{path}: segment {number} begins with <seg> and does not end with </seg>.")
    if number == 1:
        raise DataError(f"{path} holds no <seg> element, which a file called .sgm must.")


def _character(entity: re.Match[str]) -> str:
    if entity[1]:
        return _NAMED[entity[1]]
    code = int(entity[2]) if entity[2] else int(entity[3], 16)
    if code in (10, 13):
        return " "
    # Surrogates are no characters, and nothing lies above 0x10FFFF: such text stays as it is.
    return entity[0] if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF else chr(code)
