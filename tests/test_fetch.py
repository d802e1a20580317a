"""Fetching from a local server: whole, cut, killed, wrong, hostile; never without being asked."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import socket
import subprocess
import sys
import tarfile
import threading
import types
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from seqtrans.__main__ import main
from seqtrans.commands import COMMANDS
from seqtrans.downloads import Download, File
from seqtrans.errors import DataError, PluginError, SeqtransError
from seqtrans.fetch import RECORD, WORK, fetch, offers, only_one
from seqtrans.files import put
from seqtrans.hooks import Component, hookimpl
from seqtrans.plugins import Registry
from seqtrans.receiving import TRIES, UnavailableError, receive
from seqtrans.unpacking import unpack

CONTENT = bytes(range(256)) * 5000
"""More than one block."""

Captured = pytest.CaptureFixture[str]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@dataclass
class Server:
    """What a server holds, how it misbehaves, and what it was asked."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    """After how many bytes each next answer is cut."""
    statuses: list[int] = field(default_factory=list)
    """What each next request is answered with, before there is content."""
    tags: bool = True
    ranges: bool = True
    lengths: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    sent: int = 0


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name, asked = self.path.lstrip("/"), self.headers.get("Range")
            server.requests.append((name, asked))
            self.close_connection = True
            status = server.statuses.pop(0) if server.statuses else 200
            content = server.files.get(name)
            if content is None or status >= 400:
                self.send_error(404 if content is None else status)
                return
            tag = f'"{md5(content)}"'
            first = 0
            condition = self.headers.get("If-Range")
            if asked and server.ranges and condition in (None, tag):
                first = int(asked.removeprefix("bytes=").rstrip("-"))
                if first >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                span = f"bytes {first}-{len(content) - 1}/{len(content)}"
                self.send_header("Content-Range", span)
            else:
                self.send_response(200)
            if server.lengths:
                self.send_header("Content-Length", str(len(content) - first))
            if server.tags:
                self.send_header("ETag", tag)
            self.end_headers()
            body = content[first:]
            if server.cuts:
                body = body[: server.cuts.pop(0)]
            server.sent += len(body)
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    return Handler


class Listening(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what is tested, and no error here."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    state = Server()
    with Listening(("127.0.0.1", 0), handler(state)) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        state.url = f"http://127.0.0.1:{listening.server_address[1]}"
        yield state
        listening.shutdown()
        thread.join()


def download(*files: File) -> Download:
    return Download(summary="a test", terms="none", files=files)


def checked(usual: str, **given: Any) -> File:
    """A file with a checksum of the test's, unless another is given."""
    file = {"checksum": usual, **given}
    return File(**file, checksum_from="the test" if file["checksum"] else "")


def plain(server: Server, content: bytes = CONTENT, **given: Any) -> Download:
    """A download of one file that is kept whole."""
    server.files["data.bin"] = content
    urls = (f"{server.url}/data.bin",)
    return download(checked(f"sha256:{sha256(CONTENT)}", **{"urls": urls, **given}))


def quietly(download: Download, folder: Path) -> list[str]:
    said: list[str] = []
    fetch(download, folder, said.append, pause=0)
    return said


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def failure(download: Download, folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        quietly(download, folder)
    return str(caught.value)


# Whole files


def test_a_file_is_fetched_once(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    wanted = plain(server, size=len(CONTENT))
    assert quietly(wanted, folder) == [
        f"data.bin: {server.url}/data.bin, 1.3 MB",
        "data.bin: right by the sha256 of the test",
    ]
    assert names(folder) == ["data.bin", RECORD]
    assert (folder / "data.bin").read_bytes() == CONTENT
    today = json.loads((folder / RECORD).read_text())["data.bin"]["fetched"][:10]
    assert quietly(wanted, folder) == [f"data.bin: there already, as fetched on {today}"]
    assert server.requests == [("data.bin", None)]


def test_progress_is_told(server: Server, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    fetch(
        plain(server),
        tmp_path,
        lambda text: None,
        lambda name: lambda have, total: told.append((name, have, total)),
    )
    assert told[0] == ("data.bin", 0, len(CONTENT))
    assert told[-1] == ("data.bin", len(CONTENT), len(CONTENT))
    assert [have for _, have, _ in told] == sorted(have for _, have, _ in told)


def test_md5_where_only_that_is_known(server: Server, tmp_path: Path) -> None:
    wanted = plain(server, checksum=f"md5:{md5(CONTENT)}")
    assert quietly(wanted, tmp_path)[-1] == "data.bin: right by the md5 of the test"
    wrong = plain(server, b"other", checksum=f"md5:{md5(CONTENT)}")
    assert failure(wrong, tmp_path / "other") == (
        f"data.bin can't be fetched: {server.url}/data.bin: its md5 is {md5(b'other')}, not "
        f"{md5(CONTENT)} as the test says; it was deleted."
    )


def test_a_local_file(tmp_path: Path) -> None:
    source = tmp_path / "a b.bin"
    source.write_bytes(CONTENT)
    folder = tmp_path / "folder"
    wanted = download(checked(f"sha256:{sha256(CONTENT)}", urls=(source.as_uri(),)))
    quietly(wanted, folder)
    assert (folder / "a b.bin").read_bytes() == CONTENT


# What was cut, or killed


def test_a_cut_connection_is_taken_up(server: Server, tmp_path: Path) -> None:
    server.cuts = [700_000, 300_000]
    quietly(plain(server), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [None, "bytes=700000-", "bytes=1000000-"]
    assert server.sent == len(CONTENT)


def test_a_server_without_ranges_begins_anew(server: Server, tmp_path: Path) -> None:
    server.ranges, server.cuts = False, [700_000]
    quietly(plain(server), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert server.sent == len(CONTENT) + 700_000


def test_what_never_comes_is_given_up_and_kept(server: Server, tmp_path: Path) -> None:
    server.cuts = [700_000, *[0] * TRIES]
    wanted = plain(server)
    assert failure(wanted, tmp_path) == (
        f"data.bin can't be fetched: {server.url}/data.bin: the connection was cut after 700,000 "
        "of 1,280,000 bytes; 700,000 bytes are kept, to be gone on with."
    )
    assert names(tmp_path) == [WORK, f"{WORK}/data.bin.part", f"{WORK}/data.bin.part.json"]
    assert quietly(wanted, tmp_path) == [
        f"data.bin: {server.url}/data.bin, from byte 700,000 on",
        "data.bin: right by the sha256 of the test",
    ]
    assert server.sent == len(CONTENT)
    assert names(tmp_path) == ["data.bin", RECORD]


def test_a_killed_process_is_gone_on_with(server: Server, tmp_path: Path) -> None:
    server.files["data.bin"] = CONTENT
    part = tmp_path / WORK / "data.bin.part"
    part.parent.mkdir()
    program = f"""
import os, pathlib
from seqtrans.receiving import receive
def progress(have, total):
    if have:
        os.kill(os.getpid(), 9)
part = pathlib.Path({str(part)!r})
receive({server.url + "/data.bin"!r}, part, interchangeable=True, progress=progress)
"""
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    (tmp_path / WORK / "tmpabc").write_bytes(b"pooch's temporary file")
    have = part.stat().st_size
    assert 0 < have < len(CONTENT)
    server.requests.clear()
    quietly(plain(server), tmp_path)
    assert server.requests == [("data.bin", f"bytes={have}-")]
    assert names(tmp_path) == ["data.bin", RECORD]


def test_a_whole_part_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / WORK).mkdir()
    (tmp_path / WORK / "data.bin.part").write_bytes(CONTENT)
    quietly(plain(server, size=len(CONTENT)), tmp_path)
    assert server.requests == []
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_whole_part_of_unknown_size(server: Server, tmp_path: Path) -> None:
    (tmp_path / WORK).mkdir()
    (tmp_path / WORK / "data.bin.part").write_bytes(CONTENT)
    quietly(plain(server), tmp_path)
    assert server.sent == 0
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_part_that_is_too_long_begins_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / WORK).mkdir()
    (tmp_path / WORK / "data.bin.part").write_bytes(CONTENT + b"more")
    quietly(plain(server), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_file_that_changed_meanwhile_begins_anew(server: Server, tmp_path: Path) -> None:
    """Without a checksum nothing else would tell that two halves don't belong together."""
    server.files["data.bin"] = CONTENT
    server.cuts = [700_000, *[0] * TRIES]
    part = tmp_path / "data.bin.part"
    url = f"{server.url}/data.bin"
    with pytest.raises(UnavailableError):
        receive(url, part, interchangeable=False, pause=0)
    server.files["data.bin"] = CONTENT[::-1]
    receive(url, part, interchangeable=False, pause=0)
    assert part.read_bytes() == CONTENT[::-1]
    assert server.requests[-1] == ("data.bin", "bytes=700000-")


def test_what_nothing_pins_down_begins_anew(server: Server, tmp_path: Path) -> None:
    server.files["data.bin"], server.tags, server.cuts = CONTENT, False, [700_000]
    receive(f"{server.url}/data.bin", tmp_path / "part", interchangeable=False, pause=0)
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [None, None]


def test_a_passing_refusal_is_waited_for(server: Server, tmp_path: Path) -> None:
    server.statuses = [503, 429]
    quietly(plain(server), tmp_path)
    assert len(server.requests) == 3


# What can't be had, or is wrong


def test_nothing_of_that_name(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    wanted = download(File(urls=(f"{server.url}/none.tgz",)))
    assert failure(wanted, folder) == (
        f"none.tgz can't be fetched: {server.url}/none.tgz: 404 Not Found."
    )
    assert names(tmp_path) == []
    assert len(server.requests) == 1


def test_mirrors_in_turn(server: Server, tmp_path: Path) -> None:
    server.files["wrong"] = b"wrong"
    urls = tuple(f"{server.url}/{name}" for name in ("none", "wrong", "data.bin"))
    wanted = plain(server, urls=urls[:2])
    assert failure(wanted, tmp_path) == (
        f"none can't be fetched: {urls[0]}: 404 Not Found; {urls[1]}: its sha256 is "
        f"{sha256(b'wrong')}, not {sha256(CONTENT)} as the test says; it was deleted."
    )
    assert names(tmp_path) == []
    quietly(plain(server, urls=urls), tmp_path)
    assert (tmp_path / "none").read_bytes() == CONTENT
    assert json.loads((tmp_path / RECORD).read_text())["none"]["url"] == urls[2]


def test_another_size_is_refused_before_a_byte(server: Server, tmp_path: Path) -> None:
    wanted = plain(server, size=3, checksum=None)
    assert failure(wanted, tmp_path) == (
        f"data.bin can't be fetched: {server.url}/data.bin: it has 1,280,000 bytes there, not 3."
    )
    assert names(tmp_path) == []


def test_no_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    wanted = download(File(urls=(f"http://127.0.0.1:{port}/data.bin",)))
    assert failure(wanted, tmp_path) == (
        f"data.bin can't be fetched: http://127.0.0.1:{port}/data.bin: Connection refused."
    )


def test_without_a_checksum_the_first_fetch_is_the_measure(server: Server, tmp_path: Path) -> None:
    wanted = plain(server, checksum=None)
    assert quietly(wanted, tmp_path)[-1] == (
        f"data.bin: no checksum is known for it; what came has the sha256 {sha256(CONTENT)}, "
        f"noted in {tmp_path / RECORD}"
    )
    entry = json.loads((tmp_path / RECORD).read_text())["data.bin"]
    assert entry.pop("fetched").endswith("+00:00")
    assert entry == {
        "url": f"{server.url}/data.bin",
        "bytes": len(CONTENT),
        "sha256": sha256(CONTENT),
        "checksum": None,
        "checksum_from": "",
        "kept": {"data.bin": sha256(CONTENT)},
    }
    today = json.loads((tmp_path / RECORD).read_text())["data.bin"]["fetched"][:10]

    (tmp_path / "data.bin").write_bytes(b"changed")
    assert failure(wanted, tmp_path) == (
        f"{tmp_path / 'data.bin'} is not what was fetched on {today}: its sha256 is "
        f"{sha256(b'changed')}, not {sha256(CONTENT)}; delete it to have it fetched again, or "
        "give another folder=."
    )
    (tmp_path / "data.bin").unlink()
    server.files["data.bin"] = b"other"
    assert failure(wanted, tmp_path) == (
        f"data.bin can't be fetched: {server.url}/data.bin: its sha256 is {sha256(b'other')}, not "
        f"{sha256(CONTENT)} as the fetch of {today} says; it was deleted."
    )
    server.files["data.bin"] = CONTENT
    assert quietly(wanted, tmp_path)[-1] == f"data.bin: right by the sha256 of the fetch of {today}"


def test_somebody_elses_file_is_left_alone(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_text("mine")
    assert failure(plain(server), tmp_path) == (
        f"{tmp_path / 'data.bin'} is there already, and was not fetched from "
        f"{server.url}/data.bin; move it, or give another folder=."
    )
    assert names(tmp_path) == ["data.bin"]
    assert server.requests == []


def test_a_damaged_record(server: Server, tmp_path: Path) -> None:
    for text in ("{", "[]", '{"data.bin": {"url": 1}}', '{"data.bin": 1}'):
        (tmp_path / RECORD).write_text(text)
        assert failure(plain(server), tmp_path) == (
            f"{tmp_path / RECORD} can't be read as a record of what was fetched; delete it and "
            "the files it was about, or give another folder=."
        )


def test_two_at_once(server: Server, tmp_path: Path) -> None:
    with only_one(tmp_path), pytest.raises(SeqtransError) as caught:
        quietly(plain(server), tmp_path)
    assert str(caught.value) == (
        f"another process is fetching into {tmp_path}; wait for it, or give another folder=."
    )


def test_a_folder_that_is_a_file(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SeqtransError) as caught:
        quietly(plain(server), tmp_path / "file")
    assert str(caught.value) == f"{tmp_path / 'file' / WORK} can't be written: Not a directory."


# Archives


def tar_of(*entries: tuple[str, bytes | tarfile.TarInfo], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in entries:
            if isinstance(content, bytes):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                tar.addfile(content)
    return buffer.getvalue()


def zip_of(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in entries:
            packed.writestr(name, content)
    return buffer.getvalue()


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


TEXTS = (("other", b"no"), ("corpus/a.en", b"hello\n" * 9), ("./corpus/a.de", b"hallo\n"))
MEMBERS = {"corpus/a.en": "train.en", "corpus/a.de": "train.de"}


def packed(server: Server, name: str, content: bytes, **given: Any) -> Download:
    server.files[name] = content
    file = {"urls": (f"{server.url}/{name}",), "members": MEMBERS}
    return download(checked(f"sha256:{sha256(content)}", **{**file, **given}))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tgz", tar_of(*TEXTS)),
        ("a.tar", tar_of(*TEXTS, mode="w")),
        ("a.tar.xz", tar_of(*TEXTS, mode="w:xz")),
        ("a.zip", zip_of(*((name.removeprefix("./"), content) for name, content in TEXTS))),
    ],
)
def test_the_wanted_members_of_an_archive(
    server: Server, tmp_path: Path, name: str, content: bytes
) -> None:
    wanted = packed(server, name, content)
    quietly(wanted, tmp_path)
    assert names(tmp_path) == [RECORD, "train.de", "train.en"]
    assert (tmp_path / "train.en").read_bytes() == b"hello\n" * 9
    assert (tmp_path / "train.de").read_bytes() == b"hallo\n"
    (tmp_path / "train.de").unlink()
    quietly(wanted, tmp_path)
    assert (tmp_path / "train.de").read_bytes() == b"hallo\n"
    assert len(server.requests) == 2


def test_a_lone_gzip_file(server: Server, tmp_path: Path) -> None:
    quietly(
        packed(server, "t.tsv.gz", gzip.compress(CONTENT), members={"t.tsv": "train.tsv"}), tmp_path
    )
    assert (tmp_path / "train.tsv").read_bytes() == CONTENT


def test_no_name_leads_outside(server: Server, tmp_path: Path) -> None:
    """Not even a wanted member's own: what it is called here is the catalogue's word."""
    evil = tar_of(
        ("../evil", b"1"), ("/evil", b"2"), *TEXTS, ("x", link("x", "/etc")), ("x/evil", b"3")
    )
    folder = tmp_path / "folder"
    quietly(packed(server, "evil.tgz", evil), folder)
    assert names(tmp_path) == ["folder", *(f"folder/{n}" for n in (RECORD, "train.de", "train.en"))]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_only_regular_files(server: Server, tmp_path: Path, kind: bytes) -> None:
    evil = tar_of(TEXTS[1], ("", link("corpus/a.de", "/etc/passwd", kind)))
    folder = tmp_path / "folder"
    assert failure(packed(server, "evil.tgz", evil), folder) == (
        "'corpus/a.de' in evil.tgz is no regular file."
    )
    assert names(folder) == [WORK, f"{WORK}/evil.tgz"]


def test_a_link_in_a_zip(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("a")
    info.external_attr = 0o120777 << 16
    (tmp_path / "a.zip").write_bytes(zip_of((info, b"/etc/passwd")))
    with pytest.raises(DataError) as caught:
        unpack(tmp_path / "a.zip", {"a": "b"}, tmp_path)
    assert str(caught.value) == "'a' in a.zip is no regular file."
    assert names(tmp_path) == ["a.zip"]


def test_a_missing_member(server: Server, tmp_path: Path) -> None:
    wanted = packed(server, "a.tgz", tar_of(TEXTS[1], ("corpus/a.dee", b"")))
    assert failure(wanted, tmp_path) == (
        "a.tgz has no member 'corpus/a.de'; did you mean corpus/a.dee?"
    )
    assert names(tmp_path) == [WORK, f"{WORK}/a.tgz"]


def test_a_page_instead_of_an_archive(server: Server, tmp_path: Path) -> None:
    """As a server sends it that knows no 404; without a checksum nothing else tells."""
    wanted = packed(server, "a.tgz", b"<!DOCTYPE html><p>Not found</p>", checksum=None)
    assert failure(wanted, tmp_path) == (
        "a.tgz is no archive; it begins with b'<!DOCTYPE html><p>Not found</p>'."
    )
    assert names(tmp_path) == []


def test_a_damaged_archive(server: Server, tmp_path: Path) -> None:
    whole = tar_of(("corpus/a.en", CONTENT), TEXTS[2])
    wanted = packed(server, "a.tgz", whole[: len(whole) // 2], checksum=None)
    assert re.fullmatch(r"a\.tgz can't be unpacked: .+\.", failure(wanted, tmp_path))
    assert names(tmp_path) == []


def test_interrupted_unpacking_leaves_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = packed(server, "a.tgz", tar_of(*TEXTS))

    def interrupted(*arguments: Any) -> None:
        unpack(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr("seqtrans.unpacking.unpack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        quietly(wanted, tmp_path)
    assert names(tmp_path) == [WORK, f"{WORK}/a.tgz"]
    monkeypatch.undo()
    monkeypatch.setenv("no_proxy", "*")
    quietly(wanted, tmp_path)
    assert len(server.requests) == 1
    assert names(tmp_path) == [RECORD, "train.de", "train.en"]


def test_a_death_between_two_names(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = packed(server, "a.tgz", tar_of(*TEXTS))

    def dying(temporary: Path, path: Path) -> None:
        put(temporary, path)
        raise KeyboardInterrupt

    monkeypatch.setattr("seqtrans.fetch.put", dying)
    with pytest.raises(KeyboardInterrupt):
        quietly(wanted, tmp_path)
    monkeypatch.setattr("seqtrans.fetch.put", put)
    assert "train.de" not in names(tmp_path)
    quietly(wanted, tmp_path)
    assert len(server.requests) == 1
    assert names(tmp_path) == [RECORD, "train.de", "train.en"]


# Records


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: File(urls=()), "a file to fetch needs a URL"),
        (
            lambda: File(urls=("gopher://x/y",)),
            "a URL begins with one of https, http, ftp, file, not as 'gopher://x/y'",
        ),
        (
            lambda: File(urls=("http://x/y",), checksum="abc"),
            "a checksum is sha256: or md5: and lower-case hexadecimal digits, not 'abc'",
        ),
        (
            lambda: File(urls=("http://x/y",), checksum=f"md5:{md5(b'')}"),
            "a checksum, and who gives it, belong together",
        ),
        (
            lambda: File(urls=("http://x/y",), members={"a": "../a"}),
            "a file is kept under a plain name, without folders, not '../a'",
        ),
        (
            lambda: File(urls=("http://x/..%2f",)),
            "a file is kept under a plain name, without folders, not '..'",
        ),
        (lambda: download(), "a download needs a file"),
        (
            lambda: download(*[File(urls=(f"http://{host}/y",)) for host in "ab"]),
            "two files of a download are called 'y'",
        ),
    ],
)
def test_records_are_checked(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value) == message


def test_a_components_downloads_are_checked() -> None:
    with pytest.raises(ValueError) as caught:
        Component(name="mine", build=dict, downloads={"A": "a:b"})
    assert str(caught.value) == (
        "mine: a download's name is lower-case letters and digits, joined by '-', '_' or '.', "
        "not 'A'"
    )
    for wrong in ("module", 3):
        with pytest.raises(TypeError) as typed:
            Component(name="mine", build=dict, downloads={"a": wrong})  # type: ignore[dict-item]
        assert str(typed.value) == (
            "mine: the download 'a' is a seqtrans.downloads.Download or 'module:attribute', "
            f"not {wrong!r}"
        )


# The command


ONE = download(File(urls=("http://127.0.0.1:9/one.tgz",), size=1_234_567))
TWO = download(File(urls=("http://127.0.0.1:9/two.tgz",)))


def offering(monkeypatch: pytest.MonkeyPatch, **components: dict[str, Any]) -> Registry:
    """A registry in which tasks of these names offer these downloads."""
    made = [
        Component(name=name, build=dict, downloads=downloads)
        for name, downloads in components.items()
    ]
    module = types.ModuleType("seqtrans_test_downloads")
    vars(module).update(seqtrans_tasks=hookimpl(lambda: made), ONE=ONE)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    registry = Registry([module.__name__])
    monkeypatch.setattr("seqtrans.plugins.registry", lambda: registry)
    return registry


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was connected to."""
    connected: list[object] = []

    def connect(self: object, address: object) -> None:
        connected.append(address)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", connect)
    return connected


def test_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, no_network: list[object]
) -> None:
    both = download(*ONE.files, *TWO.files)
    offering(monkeypatch, b={"two": TWO, "both": both}, a={"one": "seqtrans_test_downloads:ONE"})
    assert main(["fetch"]) == 0
    provider = "(seqtrans {})".format(__import__("seqtrans").__version__)
    assert capsys.readouterr().out.splitlines() == [
        "both: a test",
        f"  2 files, more than 1.2 MB; for task=b {provider}",
        "  terms: none",
        "one: a test",
        f"  1 file, 1.2 MB; for task=a {provider}",
        "  terms: none",
        "two: a test",
        f"  1 file, of unknown size; for task=b {provider}",
        "  terms: none",
    ]
    assert no_network == []


def test_nothing_to_list(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    offering(monkeypatch)
    assert main(["fetch"]) == 0
    assert capsys.readouterr().out == "nothing that is installed offers anything to fetch\n"


def test_the_built_in_list_needs_no_network(capsys: Captured, no_network: list[object]) -> None:
    assert main(["fetch"]) == 0
    assert no_network == []


def test_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path, server: Server
) -> None:
    monkeypatch.chdir(tmp_path)
    offering(monkeypatch, mine={"mine": plain(server)})
    assert main(["fetch", "mine"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "terms: none\nfetched into data/mine\n"
    assert shown.err.splitlines()[0] == f"data.bin: {server.url}/data.bin"
    assert (tmp_path / "data" / "mine" / "data.bin").read_bytes() == CONTENT
    assert main(["fetch", "mine", "folder=other"]) == 0
    assert (tmp_path / "other" / "data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["onne"], "nothing to fetch is called 'onne'; did you mean one?; there are: one"),
        (["one", "two"], "one download at a time, not one and two"),
        (["folder=x"], "what is to be fetched into x? give its NAME first"),
        (["one", "fodler=x"], "fodler: no such setting; did you mean folder?"),
        (["one", "to=x"], "to: no such setting; seqtrans fetch has folder"),
    ],
)
def test_mistakes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    no_network: list[object],
    words: list[str],
    message: str,
) -> None:
    offering(monkeypatch, a={"one": ONE})
    assert main(["fetch", *words]) == 2
    assert capsys.readouterr().err == f"seqtrans: {message}\n"
    assert no_network == []


def test_one_name_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    offers(offering(monkeypatch, a={"one": ONE}, b={"one": ONE}))
    registry = offering(monkeypatch, a={"one": ONE}, b={"one": TWO})
    version = __import__("seqtrans").__version__
    with pytest.raises(PluginError) as caught:
        offers(registry)
    assert str(caught.value) == (
        f"the download 'one' is offered more than once, for task=a by seqtrans {version} and for "
        f"task=b by seqtrans {version}; uninstall one of them"
    )


def test_text_that_names_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PluginError) as caught:
        offers(offering(monkeypatch, a={"one": "seqtrans_test_downloads:NONE"}))
    assert str(caught.value) == (
        "the download 'one' could not be imported from seqtrans_test_downloads:NONE: "
        "AttributeError: module 'seqtrans_test_downloads' has no attribute 'NONE'"
    )
    with pytest.raises(PluginError) as caught:
        offers(offering(monkeypatch, a={"one": "sys:path"}))
    assert str(caught.value) == (
        "the download 'one' is to be a seqtrans.downloads.Download, and sys:path is not"
    )


def test_the_command_is_listed() -> None:
    assert "fetch" in COMMANDS
