"""Lines of text, and what is none."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from seqtrans.errors import DataError
from seqtrans.lines import read_lines, split_lines


def test_lines_end_at_lf_alone() -> None:
    content = "\ufeffa\u2028b\x85c\x0bd\x0ce\x1cf\rg\r\n\n\x00\n last".encode()
    assert split_lines(content, "x") == ["a\u2028b\x85c\x0bd\x0ce\x1cf\rg", "", "\x00", " last"]
    assert split_lines(b"", "x") == []
    assert split_lines(b"a\n", "x") == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"a\nab\xff",
            "corpus.de, line 2: byte 3 of the line, 0xff, is not UTF-8; save the file as UTF-8.",
        ),
        ("a\n".encode("utf-16"), "corpus.de is UTF-16, not UTF-8; save it as UTF-8."),
    ],
)
def test_what_is_not_utf8(content: bytes, message: str) -> None:
    with pytest.raises(DataError) as error:
        split_lines(content, "corpus.de")
    assert str(error.value) == message


def test_a_file_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(DataError) as error:
        read_lines(path)
    assert str(error.value) == f"{path} can't be read: No such file or directory."
    path.write_bytes(b"a\r\nb")
    assert read_lines(path) == ["a", "b"]
    for content, lines in ((b"c\n", ["c"]), (b"\xff", None)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        if lines is not None:
            assert read_lines(None) == lines
            continue
        with pytest.raises(DataError, match=r"^standard input, line 1: byte 1 of the line, 0xff, "):
            read_lines(None)


def test_what_gzip_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first bytes tell, whatever the file is called."""
    packed = gzip.compress("\ufeffa\r\nb\n".encode())
    path = tmp_path / "a.txt"
    path.write_bytes(packed)
    assert read_lines(path) == ["a", "b"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert read_lines(None) == ["a", "b"]
    path = tmp_path / "plain.gz"
    path.write_bytes(b"a\n")
    assert read_lines(path) == ["a"]
    path.write_bytes(packed[:-9])
    with pytest.raises(DataError) as error:
        read_lines(path)
    assert str(error.value) == (
        f"{path} can't be unpacked to its end: Compressed file ended before the end-of-stream "
        "marker was reached."
    )
    for damaged in (packed[:12] + b"?" + packed[13:], packed[:2] + b"\x07" + packed[3:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"plain\.gz can't be unpacked to its end: .*[^.]\.$"):
            read_lines(path)


@pytest.mark.parametrize("name", ["set.sgm", "set.SGM.gz"])
def test_sgml_has_no_lines(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as error:
        read_lines(tmp_path / name)
    assert str(error.value) == (
        f"{tmp_path / name} is SGML, of which the lines are no text: write its segments to a file "
        "of their own, one a line."
    )
