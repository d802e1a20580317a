"""Treebanks on disk: which files hold trees, which belong to a split, and what was read from them.

A treebank is a folder, at any depth below it, of files of bracketed trees. The Penn Treebank
(LDC99T42) keeps Wall Street Journal trees by section, ``parsed/mrg/wsj/02/wsj_0200.mrg``.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, cast

from seqtrans.errors import DataError, SettingsError
from seqtrans_tasks.parsing.tree import (
    Leaf,
    Node,
    leaves,
    read_numbered_trees,
    read_tree_lines,
    write_tree,
)

ENDINGS = (".mrg", ".tree", ".trees", ".ptb", ".parse")
"""Endings of files of trees in a folder, each also followed by ``.gz``; a file named alone may have
any. ``.txt`` is not among them: beside a treebank it is a note or a list of files."""

TRAIN_SECTIONS = "02-21"
DEV_SECTIONS = "22"
TEST_SECTIONS = "23"

_SECTION_RANGE = re.compile(r"([0-9]{2})(?:-([0-9]{2}))?")
_SECTION_FOLDER = re.compile(r"[0-9]{2}")
_WSJ_FILE = re.compile(r"wsj_([0-9]{2})[0-9]{2}\.")


def find_files(folder: Path) -> list[Path]:
    """The files of trees below a folder, or the one file given, sorted by path.

    Hidden files and folders are passed over. Raises `DataError` for an absent folder and for one
    without files of trees.
    """
    if folder.is_file():
        return [folder]
    _require_folder(folder)
    found = [
        path
        for path in folder.rglob("*")
        if path.name.removesuffix(".gz").endswith(ENDINGS)
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not found:
        raise DataError(
            f"the folder {folder} holds no files of trees; looked at every depth for names that "
            f"end in {', '.join(ENDINGS)}, or in one of these and .gz."
        )
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


def parse_sections(text: str) -> list[str]:
    """Section numbers from text such as ``02-21,24``, sorted and without repetition.

    Raises `SettingsError` for anything but two-digit numbers and rising ranges of them.
    """
    sections: set[int] = set()
    for part in text.split(","):
        match = _SECTION_RANGE.fullmatch(part.strip())
        if match is None:
            raise SettingsError(
                f"the sections {text!r} hold {part.strip()!r}, which is no two-digit section or "
                "range of them; write for example 02-21,24."
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise SettingsError(
                f"the sections {text!r} hold the range {part.strip()!r}, which runs backwards; "
                f"write {last:02d}-{first:02d}."
            )
        sections.update(range(first, last + 1))
    return [f"{section:02d}" for section in sorted(sections)]


def section_of(path: Path) -> str | None:
    """The section a file belongs to: its folder's two-digit name, else that of ``wsj_SSNN``."""
    if _SECTION_FOLDER.fullmatch(path.parent.name):
        return path.parent.name
    match = _WSJ_FILE.match(path.name)
    return match[1] if match else None


def files_in_sections(folder: Path, sections: str) -> list[Path]:
    """The files below a folder that belong to the given sections, e.g. ``02-21,24``, sorted.

    Raises `DataError` if a section is absent, or lies in several places below the folder, and
    `SettingsError` as `parse_sections` does.
    """
    wanted = parse_sections(sections)
    _require_folder(folder)
    by_section: dict[str, list[Path]] = {}
    for path in find_files(folder):
        section = section_of(path)
        if section is not None:
            by_section.setdefault(section, []).append(path)
    absent = [section for section in wanted if section not in by_section]
    if absent:
        there = ", ".join(sorted(by_section)) or "none"
        raise DataError(
            f"the folder {folder} lacks the sections {', '.join(absent)} of {sections!r}; "
            f"sections found: {there} (two-digit folders of trees, or files named wsj_SSNN)."
        )
    for section in wanted:
        places = sorted({path.parent for path in by_section[section]})
        if len(places) > 1:
            raise DataError(
                f"section {section} lies in {len(places)} places below {folder}, among them "
                f"{places[0]} and {places[1]}; give the folder above just one of them."
            )
    return [path for section in wanted for path in by_section[section]]


def files_listed(folder: Path, list_file: Path) -> list[Path]:
    """The files that a text file names, one a line, relative to the folder, in the list's order.

    Raises `DataError` if the list is absent or empty, or names a file that is absent or twice.
    """
    if not list_file.is_file():
        raise DataError(f"the list of files {list_file} does not exist or is not a file.")
    _require_folder(folder)
    lines: dict[Path, int] = {}
    with list_file.open("rb") as stream:
        for number, line in enumerate(_decoded(stream, list_file), start=1):
            name = line.strip()
            if not name:
                continue
            path = folder / name
            if path in lines:
                raise DataError(
                    f"{list_file}, line {number}: {name!r} is already listed on line "
                    f"{lines[path]}; list every file once."
                )
            if not path.is_file():
                raise DataError(
                    f"{list_file}, line {number}: there is no file {name!r} in the folder "
                    f"{folder}; write one name a line, relative to that folder."
                )
            lines[path] = number
    if not lines:
        raise DataError(f"the list of files {list_file} is empty; write one file name a line.")
    return list(lines)


def read_files(
    paths: Iterable[Path], *, one_tree_a_line: bool = False
) -> Iterator[tuple[str, Node]]:
    """The trees of files, in order, each with its origin ``file:line``; ``.gz`` is unpacked.

    A line with two trees is an error; with ``one_tree_a_line``, so is a tree over several lines.
    Raises `DataError` for a file that is absent, without trees, not UTF-8 or not well formed.
    """
    for path in paths:
        empty = True
        for line, node in _read_file(path, one_tree_a_line):
            empty = False
            yield f"{path}:{line}", node
        if empty:
            raise DataError(f"the file {path} holds no trees; expected bracketed trees in it.")


@dataclass(frozen=True, slots=True)
class Counts:
    """How much a list of trees holds. Tags of words are no labels; ``longest`` is in words."""

    trees: int
    words: int
    constituents: int
    longest: int
    labels: int
    tags: int

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)


def count(trees: Iterable[Node]) -> Counts:
    """Counts the trees, their words and constituents, and their different labels and tags."""
    total = words = constituents = longest = 0
    labels: set[str] = set()
    tags: set[str] = set()
    for root in trees:
        total += 1
        length = 0
        stack = [root]
        while stack:
            here = stack.pop()
            if isinstance(here, Leaf):
                length += 1
                tags.add(here.tag)
            else:
                constituents += 1
                labels.add(here.label)
                stack.extend(here.children)
        words += length
        longest = max(longest, length)
    return Counts(total, words, constituents, longest, len(labels), len(tags))


def fingerprint(trees: Iterable[Node]) -> str:
    """The SHA-256, in hexadecimal, of the trees written one a line: equal only for equal trees in
    equal order, so that results can name the treebank they were measured on."""
    digest = hashlib.sha256()
    for node in trees:
        digest.update(write_tree(node).encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()


def overlap(splits: Mapping[str, Sequence[Node]]) -> dict[tuple[str, str], int]:
    """For every two splits, in order, how many trees of the later have words of one in the earlier.

    Sentences such as ``No .`` recur in most treebanks, so a small number is no mistake.
    """
    sentences = {
        name: Counter(tuple(leaf.word for leaf in leaves(node)) for node in trees)
        for name, trees in splits.items()
    }
    names = list(splits)
    return {
        (earlier, later): sum(
            times for words, times in sentences[later].items() if words in sentences[earlier]
        )
        for position, earlier in enumerate(names)
        for later in names[position + 1 :]
    }


def _require_folder(folder: Path) -> None:
    if not folder.exists():
        raise DataError(f"the treebank folder {folder} does not exist.")
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the folder that holds the treebank.")


def _read_file(path: Path, one_tree_a_line: bool) -> Iterator[tuple[int, Node]]:
    if not path.is_file():
        raise DataError(f"the file of trees {path} does not exist or is not a file.")
    try:
        opened = _opened(path)
    except OSError as error:
        raise DataError(f"the file {path} cannot be read: {error.strerror}.") from error
    with opened as stream:
        lines = _decoded(stream, path)
        if one_tree_a_line:
            for number, node in enumerate(read_tree_lines(lines, str(path)), start=1):
                yield number, cast(Node, node)
        else:
            yield from read_numbered_trees(lines, str(path), share_lines=False)


def _opened(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    return path.open("rb")


def _decoded(stream: IO[bytes], path: Path) -> Iterator[str]:
    """The lines of a file of bytes as text, without a byte order mark."""
    read = 0
    try:
        for line in stream:
            start = 3 if read == 0 and line.startswith(b"\xef\xbb\xbf") else 0
            try:
                yield line[start:].decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"the file {path} is not UTF-8: byte {line[start + error.start]:#04x} at "
                    f"offset {read + start + error.start} cannot be read; save the file as UTF-8."
                ) from error
            read += len(line)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"the file {path} cannot be unpacked ({error}); it must be a whole gzip file."
        ) from error
