"""Treebanks on disk: finding the files of a split, reading them, and what is said of bad ones."""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtrans.errors import DataError, SettingsError
from seqtrans_tasks.parsing.tree import leaves, read_tree, read_trees, write_tree
from seqtrans_tasks.parsing.treebank import (
    Counts,
    count,
    files_in_sections,
    files_listed,
    find_files,
    fingerprint,
    overlap,
    parse_sections,
    read_files,
    section_of,
)

HERON = "(TOP (S (NP (DT The) (NN heron)) (VP (VBD slept)) (. .)))"
YES = "(TOP (UH Yes))"


def put(path: Path, text: str = HERON) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def message(kind: type[Exception], action: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value)


def test_files_are_found_at_every_depth_in_order(tmp_path: Path) -> None:
    expected = [
        put(tmp_path / "02" / "wsj_0200.mrg"),
        put(tmp_path / "02" / "wsj_0201.mrg"),
        put(tmp_path / "03" / "wsj_0300.mrg.gz"),
        put(tmp_path / "more.tree"),
    ]
    put(tmp_path / "02" / "._wsj_0200.mrg")
    put(tmp_path / ".cache" / "wsj_0200.mrg")
    put(tmp_path / "split.txt")
    put(tmp_path / "wsj_0200.prd")
    assert find_files(tmp_path) == expected
    assert find_files(tmp_path / "split.txt") == [tmp_path / "split.txt"]


def test_a_hidden_folder_above_the_treebank_hides_nothing(tmp_path: Path) -> None:
    path = put(tmp_path / ".data" / "a.mrg")
    assert find_files(tmp_path / ".data") == [path]


def test_a_folder_without_trees_is_refused(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert message(DataError, lambda: find_files(absent)) == (
        f"the treebank folder {absent} does not exist."
    )
    put(tmp_path / "notes.txt")
    assert message(DataError, lambda: find_files(tmp_path)) == (
        f"the folder {tmp_path} holds no files of trees; looked at every depth for names that end "
        "in .mrg, .tree, .trees, .ptb, .parse, or in one of these and .gz."
    )


@settings(deadline=None)
@given(st.sets(st.integers(0, 99), min_size=1))
def test_sections_are_what_was_listed(sections: set[int]) -> None:
    names = [f"{section:02d}" for section in sorted(sections)]
    assert parse_sections(", ".join(reversed(names))) == names


def test_sections_may_be_ranges() -> None:
    assert parse_sections("02-21,24") == [f"{n:02d}" for n in [*range(2, 22), 24]]
    assert parse_sections("22-22") == ["22"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "2-21",
            "the sections '2-21' hold '2-21', which is no two-digit section or range of them; "
            "write for example 02-21,24.",
        ),
        (
            "",
            "the sections '' hold '', which is no two-digit section or range of them; "
            "write for example 02-21,24.",
        ),
        (
            "02,21-03",
            "the sections '02,21-03' hold the range '21-03', which runs backwards; write 03-21.",
        ),
    ],
)
def test_other_sections_are_refused(text: str, expected: str) -> None:
    assert message(SettingsError, lambda: parse_sections(text)) == expected


def test_sections_are_folders_or_names_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "parsed" / "mrg" / "wsj"
    paths = [
        put(folder / section / f"wsj_{section}{number}.mrg")
        for section in ("02", "03", "22", "24")
        for number in ("00", "01")
    ]
    put(tmp_path / "parsed" / "mrg" / "brown" / "cf" / "cf01.mrg")
    assert files_in_sections(tmp_path, "02-03,24") == [*paths[:4], *paths[6:]]
    assert section_of(Path("combined/wsj_0199.mrg")) == "01"
    assert section_of(Path("24/wsj_0199.mrg")) == "24"
    assert section_of(Path("cf/cf01.mrg")) is None


def test_absent_and_doubled_sections_are_refused(tmp_path: Path) -> None:
    first = put(tmp_path / "a" / "22" / "wsj_2200.mrg")
    assert message(DataError, lambda: files_in_sections(tmp_path, "21-23")) == (
        f"the folder {tmp_path} lacks the sections 21, 23 of '21-23'; sections found: 22 "
        "(two-digit folders of trees, or files named wsj_SSNN)."
    )
    second = put(tmp_path / "b" / "22" / "wsj_2200.mrg")
    assert message(DataError, lambda: files_in_sections(tmp_path, "22")) == (
        f"section 22 lies in 2 places below {tmp_path}, among them {first.parent} and "
        f"{second.parent}; give the folder above just one of them."
    )
    assert message(DataError, lambda: files_in_sections(first, "22")) == (
        f"{first} is not a folder; give the folder that holds the treebank."
    )


def test_files_are_taken_in_the_order_of_a_list(tmp_path: Path) -> None:
    first, second = put(tmp_path / "a.mrg"), put(tmp_path / "b" / "b.txt")
    listing = put(tmp_path / "list.txt", "b/b.txt\r\n\na.mrg\n")
    assert files_listed(tmp_path, listing) == [second, first]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n", "the list of files {list} is empty; write one file name a line."),
        (
            "a.mrg\nc.mrg\n",
            "{list}, line 2: there is no file 'c.mrg' in the folder {folder}; "
            "write one name a line, relative to that folder.",
        ),
        (
            "a.mrg\n\na.mrg\n",
            "{list}, line 3: 'a.mrg' is already listed on line 1; list every file once.",
        ),
    ],
)
def test_a_bad_list_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    put(tmp_path / "a.mrg")
    listing = put(tmp_path / "list.txt", text)
    assert message(DataError, lambda: files_listed(tmp_path, listing)) == expected.format(
        list=listing, folder=tmp_path
    )


def test_an_absent_list_is_refused(tmp_path: Path) -> None:
    listing = tmp_path / "list.txt"
    assert message(DataError, lambda: files_listed(tmp_path, listing)) == (
        f"the list of files {listing} does not exist or is not a file."
    )


def test_trees_come_with_their_origin(tmp_path: Path) -> None:
    plain = put(tmp_path / "a.mrg", f"\ufeff{YES}\n\n{HERON}\n")
    packed = tmp_path / "b.mrg.gz"
    packed.write_bytes(gzip.compress(f"(TOP\n {YES[5:]}".encode()))
    found = [(origin, write_tree(node)) for origin, node in read_files([plain, packed])]
    assert found == [(f"{plain}:1", YES), (f"{plain}:3", HERON), (f"{packed}:1", YES)]


def test_files_may_be_held_to_one_tree_a_line(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tree", f"{HERON}\n{YES} {YES}\n")
    assert message(DataError, lambda: list(read_files([path]))) == (
        f"{path}, line 2: a second tree begins on the line on which another ends; "
        "begin every tree on a line of its own."
    )
    spread = put(tmp_path / "c.tree", f"{HERON}\n{YES.replace(' ', chr(10))}\n")
    assert len(list(read_files([spread]))) == 2
    assert message(DataError, lambda: list(read_files([path], one_tree_a_line=True))) == (
        f"{path}, line 2: there are several trees on this line, "
        "but every line must hold exactly one."
    )
    good = put(tmp_path / "b.tree", f"{HERON}\n{YES}\n")
    assert [origin for origin, _ in read_files([good], one_tree_a_line=True)] == [
        f"{good}:1",
        f"{good}:2",
    ]


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    absent = tmp_path / "absent.mrg"
    assert message(DataError, lambda: list(read_files([absent]))) == (
        f"the file of trees {absent} does not exist or is not a file."
    )
    empty = put(tmp_path / "empty.mrg", "\n \n")
    assert message(DataError, lambda: list(read_files([empty]))) == (
        f"the file {empty} holds no trees; expected bracketed trees in it."
    )
    latin = tmp_path / "latin.mrg"
    latin.write_bytes(b"(UH Yes)\n(NN caf\xe9)\n")
    assert message(DataError, lambda: list(read_files([latin]))) == (
        f"the file {latin} is not UTF-8: byte 0xe9 at offset 16 cannot be read; "
        "save the file as UTF-8."
    )
    prose = put(tmp_path / "prose.mrg", "It was a heron.\n")
    assert message(DataError, lambda: list(read_files([prose]))) == (
        f"{prose}, line 1, column 1: 'It' stands outside all brackets; a tree begins with '('."
    )
    not_packed = put(tmp_path / "plain.mrg.gz")
    assert message(DataError, lambda: list(read_files([not_packed]))) == (
        f"the file {not_packed} cannot be unpacked (Not a gzipped file (b'(T')); "
        "it must be a whole gzip file."
    )
    cut = tmp_path / "cut.mrg.gz"
    cut.write_bytes(gzip.compress(HERON.encode() * 50)[:-9])
    assert message(DataError, lambda: list(read_files([cut]))) == (
        f"the file {cut} cannot be unpacked (Compressed file ended before the end-of-stream "
        "marker was reached); it must be a whole gzip file."
    )


def test_counts() -> None:
    trees = [read_tree(HERON), read_tree(YES)]
    assert count(trees) == Counts(trees=2, words=5, constituents=5, longest=4, labels=4, tags=5)
    assert count([]).as_dict() == dict.fromkeys(
        ("trees", "words", "constituents", "longest", "labels", "tags"), 0
    )


def test_the_fingerprint_depends_on_trees_and_their_order_alone() -> None:
    heron, yes = read_tree(HERON), read_tree(YES)
    assert fingerprint([heron, yes]) == fingerprint([read_tree(HERON.replace(" (", "\n(")), yes])
    different = {fingerprint(trees) for trees in ([], [heron], [heron, yes], [yes, heron])}
    assert len(different) == 4
    assert all(re.fullmatch("[0-9a-f]{64}", one) for one in different)
    assert fingerprint([yes]) == hashlib.sha256(f"{YES}\n".encode()).hexdigest()


def test_overlap_counts_later_trees_by_words() -> None:
    heron, yes = read_tree(HERON), read_tree(YES)
    otherwise = read_tree("(TOP (NP (UH Yes)))")
    assert overlap({"train": [heron, yes], "dev": [otherwise, yes], "test": [heron]}) == {
        ("train", "dev"): 2,
        ("train", "test"): 1,
        ("dev", "test"): 0,
    }


def words_and_traces(paths: list[Path]) -> tuple[int, int, int]:
    trees = words = traces = 0
    for path in paths:
        for node in read_trees(path.read_text(encoding="utf-8"), path.name):
            trees += 1
            tags = [leaf.tag for leaf in leaves(node)]
            traces += tags.count("-NONE-")
            words += len(tags) - tags.count("-NONE-")
    return trees, words, traces


def test_the_sample_of_the_wall_street_journal(shared: Path) -> None:
    folder = shared / "data" / "wsj-sample"
    sizes = {
        split: words_and_traces(files_listed(folder, folder / f"split-{split}.txt"))
        for split in ("train", "dev", "test")
    }
    assert [size[:2] for size in sizes.values()] == [(3396, 81793), (273, 6327), (245, 5964)]
    assert sum(size[2] for size in sizes.values()) == 6592
    assert len(files_in_sections(folder, "00-01")) == len(find_files(folder)) == 199


@pytest.mark.parametrize(
    ("name", "ending", "expected"),
    [
        ("gum-const", ".ptb", {"train": (1983, 41947), "dev": (207, 5075), "test": (275, 5496)}),
        (
            "craft-treebank",
            ".tree",
            {"dev": (2780, 67652), "test": (5462, 142425)},
        ),
    ],
)
def test_other_treebanks_by_their_own_splits(
    shared: Path, name: str, ending: str, expected: dict[str, tuple[int, int]]
) -> None:
    folder = shared / "data" / name
    sizes: Counter[tuple[str, str]] = Counter()
    with (folder / "documents.tsv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            if row["partition"] in expected:
                path = folder / row["file"]
                trees, words, _ = words_and_traces([path])
                sizes[row["partition"], "trees"] += trees
                sizes[row["partition"], "words"] += words
    assert {split: (sizes[split, "trees"], sizes[split, "words"]) for split in expected} == expected
