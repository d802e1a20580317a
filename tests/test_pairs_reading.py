"""Lines, tables and SGML of pairs: the LF rule, chunks, and a sentence for whatever is wrong."""

from __future__ import annotations

import gzip
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtrans.errors import DataError
from seqtrans_tasks.pairs import reading
from seqtrans_tasks.pairs.divergence import divergence
from seqtrans_tasks.pairs.reading import Files, Table, bytes_of, check, chunks, lines, rows

ODD = "a b\ttab\x00nul\x0bvt\x0cff\rcr\x85nel\u2028ls\x1cfs\ufeffbom"


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def all_lines(path: Path, size: int = 20_000) -> list[str]:
    return [line for part in lines(path, size) for line in part.lines]


def pairs(part: reading.Part, size: int = 20_000) -> list[tuple[int, str, str]]:
    return [
        (chunk.first + number, *pair)
        for chunk in chunks(part, size)
        for number, pair in enumerate(zip(chunk.source, chunk.target, strict=True))
    ]


def message(read: Iterator[object]) -> str:
    with pytest.raises(DataError) as error:
        list(read)
    return str(error.value)


def plain_lines(content: bytes) -> list[str]:
    """What lines are, said as simply as can be."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode()
    found = text.split("\n")
    if not found[-1]:
        found.pop()
    return [line[:-1] if line.endswith("\r") else line for line in found]


@given(
    st.text(st.sampled_from("ab\n\r\t\x00\x0b\x0c\x1c\x85\u2028é😀\ufeff"), min_size=1),
    st.integers(3, 12),
    st.integers(1, 5),
    st.booleans(),
)
def test_a_line_ends_at_lf_alone(
    tmp_path_factory: pytest.TempPathFactory, text: str, block: int, size: int, packed: bool
) -> None:
    content = text.encode()
    path = tmp_path_factory.getbasetemp() / ("lf.gz" if packed else "lf")
    path.write_bytes(gzip.compress(content) if packed else content)
    expected = plain_lines(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", block)
        if expected:
            read = list(lines(path, size))
            assert [line for part in read for line in part.lines] == expected
            assert [part.first for part in read] == list(range(1, len(expected) + 1, size))
            assert all(len(part.lines) == size for part in read[:-1])
            assert read[-1].done == path.stat().st_size
        else:
            assert message(lines(path, size)) == f"{path} is empty."


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1),
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(3, 50),
)
def test_chunks_of_long_lines_are_shorter(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[tuple[int, int]],
    most: int,
    size: int,
    block: int,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    expected = [(number, "s" * a, "t" * b) for number, (a, b) in enumerate(lengths, 1)]
    part = Files(
        written(folder, "long.source", "".join(f"{source}\n" for _, source, _ in expected)),
        written(folder, "long.target", "".join(f"{target}\n" for _, _, target in expected)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "TEXT", most)
        patch.setattr(reading, "BLOCK", block)
        assert pairs(part, size) == expected
        found = list(chunks(part, size))
        assert found[-1].done == bytes_of(part)
        for chunk in found:
            assert 0 < len(chunk) == len(chunk.target) <= size
            for side in (chunk.source, chunk.target):
                # No line was added to text enough.
                assert sum(map(len, side[:-1])) < most
        of_source = [len(one.lines) for one in lines(part.source, size)]
        patch.setattr(reading, "BLOCK", 1 << 20)
        assert [len(one.lines) for one in lines(part.source, size)] == of_source


def test_odd_characters_stay_in_their_line(tmp_path: Path) -> None:
    path = written(tmp_path, "odd", f"{ODD}\n\r\r\nlast")
    assert all_lines(path) == [ODD, "\r", "last"]


def test_crlf_and_mark_make_no_difference(tmp_path: Path) -> None:
    clean = "eins\nzwei\n\ndrei\n"
    plain = written(tmp_path, "plain", clean)
    windows = written(tmp_path, "windows", b"\xef\xbb\xbf" + clean.replace("\n", "\r\n").encode())
    assert all_lines(plain) == all_lines(windows) == ["eins", "zwei", "", "drei"]


def test_chunks_of_files(tmp_path: Path) -> None:
    part = Files(
        written(tmp_path, "a.gz", "".join(f"s{i}\n" for i in range(25))),
        written(tmp_path, "b", "\n".join(f"t{i}" for i in range(25))),
    )
    assert [(c.first, len(c)) for c in chunks(part, 10)] == [(1, 10), (11, 10), (21, 5)]
    assert pairs(part, 7) == [(i + 1, f"s{i}", f"t{i}") for i in range(25)]
    assert list(chunks(part))[-1].done == bytes_of(part)


def test_a_pack_of_several_members(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\n"))
    assert all_lines(path) == ["one", "two"]


def test_columns_by_number(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", 'x\t"y\tz\n\n1\t2\t3\t4\n')
    assert pairs(Table(path, 3, 2)) == [(1, "z", '"y'), (2, "", ""), (3, "3", "2")]
    assert list(chunks(Table(path, 1, 2)))[-1].done == bytes_of(Table(path, 1, 2))


@pytest.mark.parametrize("size", [1, 2, 100])
def test_columns_by_name(tmp_path: Path, size: int) -> None:
    path = written(tmp_path, "a.tsv.gz", "id\ten\tde\r\n1\tone\teins\r\n2\ttwo\tzwei")
    table = Table.of(path, "en", "de")
    assert pairs(table, size) == [(2, "one", "eins"), (3, "two", "zwei")]


def test_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "a\tb\tc\n\nd\te\tf\tg\n")
    found = list(rows(path, 3, size=2))
    assert [(part.first, part.rows) for part in found] == [
        (1, [("a", "b", "c"), ("", "", "")]),
        (3, [("d", "e", "f", "g")]),
    ]


@pytest.mark.parametrize("block", [8, 1 << 20])
def test_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(reading, "BLOCK", block)
    path = written(
        tmp_path,
        "a.sgm.gz",
        '<srcset setid="t"><doc docid="x">\n<seg id="1"> AT&amp;T &lt;b&gt; &amp;lt; </seg>\n'
        '<p><SEG id="2">wrapped\r\n  line &#x41;&#66;&#xD800;&nbsp;</SEG></p><seg id="3"></seg>\n'
        "<seg>u\u2028v&#10;w</seg></doc></srcset>\n",
    )
    assert all_lines(path) == [
        "AT&T <b> &lt;",
        "wrapped line AB&#xD800;&nbsp;",
        "",
        "u\u2028v w",
    ]


def test_the_same_test_set_as_text_and_sgml(tmp_path: Path) -> None:
    texts = ["one & two", "<three>", 'she said "four"']
    escaped = [t.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for t in texts]
    segments = [f'<seg id="{i}">{text}</seg>\n' for i, text in enumerate(escaped, 1)]
    sgml = written(tmp_path, "t.sgm", f"<doc>\n{''.join(segments)}</doc>\n")
    plain = written(tmp_path, "t.txt", "".join(f"{text}\n" for text in texts))
    assert pairs(Files(sgml, plain)) == [(i, t, t) for i, t in enumerate(texts, 1)]


BAD_CONTENTS = {
    "nothing": ("a", b"", "{path} is empty."),
    "nothing, said to be packed": ("a.tsv.gz.gz", None, "{path} is empty."),
    "only a mark": ("a", b"\xef\xbb\xbf", "{path} is empty."),
    "latin-1": (
        "a",
        b"eins\nzw\xf6lf\n",
        "{path}, line 2: byte 3 of the line, 0xf6, is not UTF-8; save the file as UTF-8.",
    ),
    "cut character": (
        "a",
        b"\xef\xbb\xbfeins\nzw\xc3",
        "{path}, line 2: byte 3 of the line, 0xc3, is not UTF-8; save the file as UTF-8.",
    ),
    "utf-16": ("a", "eins".encode("utf-16"), "{path} is UTF-16, not UTF-8; save it as UTF-8."),
    "segments without end": (
        "a.sgm",
        b"<seg>a</seg>\n<seg>b\n",
        "{path}: segment 2 begins with <seg> and does not end with </seg>.",
    ),
    "no segments": (
        "a.sgm",
        b"a\nb\n",
        "{path} holds no <seg> element, which a file called .sgm must.",
    ),
    "latin-1 in a segment": (
        "a.sgm",
        b"<seg>a</seg>\n<seg>\xf6</seg>\n",
        "{path}, segment 2: byte 1 of the segment, 0xf6, is not UTF-8; save the file as UTF-8.",
    ),
}


@pytest.mark.parametrize("name", BAD_CONTENTS)
def test_bad_content(tmp_path: Path, name: str) -> None:
    file, content, expected = BAD_CONTENTS[name]
    path = tmp_path / file
    path.write_bytes(gzip.compress(b"") if content is None else content)
    assert message(lines(path)) == expected.format(path=path)


def test_a_line_too_long_for_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK", 10)
    monkeypatch.setattr(reading, "LONGEST_LINE", 100)
    path = written(tmp_path, "a", "short\n" + 200 * "x")
    assert message(lines(path)) == (
        f"{path}, line 2: more than 100 bytes without an end of line; this is not a text of one "
        "sentence a line."
    )


def test_bad_packs(tmp_path: Path) -> None:
    whole = gzip.compress(random.Random(1).randbytes(5000).hex().encode())
    cut, changed = tmp_path / "cut.gz", tmp_path / "changed.gz"
    cut.write_bytes(whole[:-20])
    assert message(lines(cut)) == (
        f"{cut} can't be unpacked to its end: Compressed file ended before the end-of-stream "
        "marker was reached."
    )
    changed.write_bytes(whole[:-6] + b"xx" + whole[-4:])
    assert re.fullmatch(
        re.escape(f"{changed} can't be unpacked to its end: CRC check failed ") + r"\S+ != \S+\.",
        message(lines(changed)),
    )
    plain = tmp_path / "plain.gz"
    plain.write_text("text\n", encoding="utf-8")
    assert message(lines(plain)) == f"{plain} is not packed by gzip, as its name says."


def test_what_is_no_file(tmp_path: Path) -> None:
    target = written(tmp_path, "train.de", "a\n")
    for missing, hint in (("trian.de", "; did you mean train.de?"), ("zzz", ".")):
        path = tmp_path / missing
        assert message(chunks(Files(target, path))) == f"{path} does not exist{hint}"
    assert message(chunks(Files(tmp_path, target))) == f"{tmp_path} is a folder; name a file in it."
    deep = tmp_path / "no" / "train.de"
    assert message(lines(deep)) == f"{deep} does not exist: there is no folder {deep.parent}."
    assert message(lines(Path("/dev/null"))) == (
        "/dev/null is no regular file; it is read more than once, so write it to disk first."
    )


def test_bad_tables(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "english\tgerman\tgerman\none\n")
    assert message(chunks(Table(path, 1, 2))) == (
        f"{path}, line 2: needs 2 columns, separated by tabs, and has 1: 'one'."
    )
    assert message(rows(path, 4)) == (
        f"{path}, line 1: needs 4 columns, separated by tabs, and has 3: "
        r"'english\tgerman\tgerman'."
    )
    assert message(chunks(Table(path, "englsh", "german"))) == (
        f"{path} has no column 'englsh'; its first line names english, german, german; did you "
        "mean english?"
    )
    assert message(chunks(Table(path, "english", "german"))) == (
        f"{path} has 2 columns 'german'; give their numbers, and take the line of names away."
    )
    names = written(tmp_path, "b.tsv", "english\tgerman\n")
    assert message(chunks(Table(names, "english", "german"))) == (
        f"{names} holds nothing but a line of names of columns."
    )


def test_columns_as_typed() -> None:
    path = Path("a.tsv")
    assert Table.of(path, "2", "1") == Table(path, 2, 1)
    assert Table.of(path, "en", "²") == Table(path, "en", "²")
    with pytest.raises(DataError) as error:
        Table.of(path, "0", "1")
    assert str(error.value) == "a.tsv: columns are counted from 1; there is no column 0."
    with pytest.raises(DataError) as error:
        Table.of(path, "en", "1")
    assert str(error.value) == (
        "a.tsv: the columns en and 1 must both be numbers, for a table without header, or both "
        "names in its first line."
    )


@pytest.mark.parametrize("size", [1, 3, 100])
def test_unequal_counts(tmp_path: Path, size: int) -> None:
    part = Files(written(tmp_path, "a", "1\n2\n3\n"), written(tmp_path, "b", "1\n2\n3\n4\n5\n"))
    assert message(chunks(part, size)) == (
        f"{part.source} has 3 lines and {part.target} 5; line by line they must belong together."
    )


@pytest.mark.parametrize(
    ("surplus", "said"),
    [
        ("\n", "The last line of {} is blank; delete it."),
        (" \u00a0", "The last line of {} is blank; delete it."),
        ("\n\r\n \n", "The last 3 lines of {} are blank; delete them."),
        ("\nx\n", None),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_blank_lines_at_the_end(
    tmp_path: Path, surplus: str, said: str | None, turned: bool
) -> None:
    plain = written(tmp_path, "a", "1\n\n")
    longer = written(tmp_path, "b", f"1\n\n{surplus}")
    part = Files(longer, plain) if turned else Files(plain, longer)
    assert divergence(part) == (said.format(longer) if said else None)
    assert message(chunks(part)).endswith(said.format(longer) if said else "belong together.")


def test_all_that_is_wrong_at_once(tmp_path: Path) -> None:
    good, short = written(tmp_path, "a", "1\n2\n"), written(tmp_path, "b", "1\n")
    check([Files(good, good), Table(written(tmp_path, "t.tsv", "a\tb\n"), 1, 2)])
    with pytest.raises(DataError) as error:
        check([Files(good, short), Files(good, good), Files(tmp_path, good), Table(good, 1, 2)])
    assert str(error.value).splitlines() == [
        f"{good} has 2 lines and {short} 1; line by line they must belong together.",
        f"{tmp_path} is a folder; name a file in it.",
        f"{good}, line 1: needs 2 columns, separated by tabs, and has 1: '1'.",
    ]


def captions(shared: Path) -> tuple[list[str], list[str]]:
    tok = shared / "data" / "multi30k" / "tok"
    source, target = (all_lines(tok / f"val.lc.norm.tok.{side}.gz") for side in ("en", "de"))
    return source, target


def test_where_real_files_part(tmp_path: Path, shared: Path) -> None:
    def parted(source: list[str], target: list[str]) -> str | None:
        a = written(tmp_path, "a", "".join(f"{line}\n" for line in source))
        b = written(tmp_path, "b", "".join(f"{line}\n" for line in target))
        return divergence(Files(a, b))

    source, target = captions(shared)
    draw = random.Random(1)
    for count in (1, 1, 2, 20):
        place = draw.randrange(100, 800)
        fewer = source[:place] + source[place + count :]
        more = target[:place] + source[:count] + target[place:]
        for sentence in (parted(fewer, target), parted(source, more), parted(more, source)):
            assert sentence is not None
            found = re.match(r"They probably part near line ([0-9]+): '.+' and '.+'\.", sentence)
            assert found is not None
            assert abs(int(found[1]) - place) < 20
    for fewer in (source[:-1], source[:400]):
        assert parted(fewer, target) == (
            f"As far as both go they fit; {tmp_path / 'b'} probably has lines too many at its end."
        )
    shuffled = draw.sample(source, len(source))
    assert parted(shuffled[3:], target) is None


def test_unequal_real_files(tmp_path: Path, shared: Path) -> None:
    source, target = captions(shared)
    part = Files(
        written(tmp_path, "a", "".join(f"{line}\n" for line in source)),
        written(tmp_path, "b", "".join(f"{line}\n" for line in target[:500] + target[501:])),
    )
    said = message(chunks(part))
    assert said.startswith(
        f"{part.source} has 1,014 lines and {part.target} 1,013; line by line they must belong "
        "together. They probably part near line "
    )


def test_no_torch() -> None:
    modules = ", ".join(
        f"seqtrans_tasks.pairs.{name}" for name in ("reading", "account", "repeats", "divergence")
    )
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
