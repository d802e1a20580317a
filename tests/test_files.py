"""Files and folders that are whole or not there."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sabotage import Saboteur

from seqtrans import files
from seqtrans.errors import DataError, SeqtransError
from seqtrans.files import (
    alone,
    damage,
    discard,
    read_json,
    sweep,
    temporary_for,
    whole_file,
    whole_folder,
    write_whole,
)


def fill(folder: Path, text: str = "content") -> None:
    with whole_folder(folder) as temporary:
        (temporary / "a.txt").write_text(text)
        (temporary / "below").mkdir()
        (temporary / "below/b.txt").write_text(text * 2)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def refused() -> None:
    raise OSError(errno.EROFS, "Read-only file system")


def broken() -> None:
    raise OSError(errno.EIO, "Input/output error")


def stopped() -> None:
    raise KeyboardInterrupt


def test_a_folder_with_its_manifest(tmp_path: Path) -> None:
    folder = tmp_path / "new/folder"
    fill(folder)
    assert names(folder) == ["a.txt", "below", "manifest.json"]
    assert names(tmp_path / "new") == ["folder"]
    assert damage(folder) is None
    fill(folder, "other")
    assert (folder / "a.txt").read_text() == "other"
    assert names(tmp_path / "new") == ["folder"]
    assert damage(folder) is None


@pytest.mark.parametrize("harm", [full, refused, broken, stopped])
def test_a_fault_at_any_write_leaves_the_old_or_the_new_and_nothing_else(
    tmp_path: Path, harm: Callable[[], None]
) -> None:
    folder = tmp_path / "folder"
    with pytest.MonkeyPatch.context() as patch:
        counter = Saboteur(-1, harm)
        counter.install(patch)
        fill(folder)
        fill(folder)
    seen = set()
    for at in range(counter.calls // 2 + 2):
        fill(folder, "old")
        with pytest.MonkeyPatch.context() as patch:
            Saboteur(at, harm).install(patch)
            try:
                fill(folder, "new")
                outcome = "done"
            except (SeqtransError, OSError, KeyboardInterrupt) as error:
                outcome = type(error).__name__
        assert damage(folder) is None
        text = (folder / "a.txt").read_text()
        assert text == "new" if outcome == "done" else text in ("old", "new")
        assert names(tmp_path) == ["folder"], f"at {at}"
        seen.add(text)
    assert seen == {"old", "new"}


def test_a_full_disk_and_a_place_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_whole(path, "before")
    monkeypatch.setattr(os, "fsync", lambda handle: full())
    for write in (lambda: write_whole(path, "after"), lambda: fill(tmp_path / "folder")):
        with pytest.raises(SeqtransError) as error:
            write()
        name = "file" if write.__code__.co_names[0] == "write_whole" else "folder"
        assert str(error.value) == (
            f"{tmp_path / name} can't be written: no space left on the device; "
            "what was there before is intact."
        )
    monkeypatch.setattr(os, "fsync", lambda handle: refused())
    with pytest.raises(SeqtransError) as error, whole_file(path) as file:
        file.write("after")
    assert str(error.value) == f"{path} can't be written: Read-only file system."
    monkeypatch.setattr(os, "fsync", lambda handle: broken())
    with pytest.raises(OSError, match="Input/output error"):
        write_whole(path, "after")
    assert path.read_text() == "before"
    assert names(tmp_path) == ["file"]
    monkeypatch.undo()
    with pytest.raises(SeqtransError) as error:
        write_whole(path / "below", "x")
    assert str(error.value) == f"{path / 'below'} can't be written: File exists."
    with pytest.raises(SeqtransError) as error:
        fill(path / "below/deeper")
    assert str(error.value) == f"{path / 'below/deeper'} can't be written: Not a directory."


def test_a_file_appears_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "deep/er/file"
    write_whole(path, "ä\r\n")
    assert path.read_bytes() == b"\xc3\xa4\r\n"
    with whole_file(path) as file:
        file.write("half")
        assert path.read_bytes() == b"\xc3\xa4\r\n"
    assert path.read_text() == "half"
    with pytest.raises(ZeroDivisionError), whole_file(path) as file:
        file.write(str(1 / 0))
    assert path.read_text() == "half"
    assert names(path.parent) == ["file"]


def test_a_device_or_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole_file(pipe) as file:
            file.write("one\n")
        write_whole(pipe, "two\n")
        assert os.read(reading, 100) == b"one\ntwo\n"
    finally:
        os.close(reading)
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe"]


def test_a_link_stays_and_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    link, real = tmp_path / "link", tmp_path / "below" / "real"
    link.symlink_to(real)
    for content in ("one", "two"):
        write_whole(link, content)
        assert link.is_symlink()
        assert real.read_text() == content
    with (
        pytest.raises(SeqtransError, match=r"below can't be written: Is a directory\.$"),
        whole_file(real.parent),
    ):
        raise AssertionError


def spoil_manifest(content: object) -> Callable[[Path], object]:
    return lambda folder: (folder / "manifest.json").write_text(json.dumps(content))


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda f: (f / "manifest.json").unlink(), "it has no manifest"),
    (lambda f: (f / "manifest.json").write_text("{"), "its manifest can't be read"),
    (lambda f: (f / "manifest.json").write_bytes(b"\xff"), "its manifest can't be read"),
    (spoil_manifest([]), "its manifest can't be read"),
    (spoil_manifest({"a.txt": 3}), "its manifest can't be read"),
    (spoil_manifest({"a.txt": {}}), "its manifest can't be read"),
    (lambda f: (f / "a.txt").unlink(), "a.txt is missing"),
    (lambda f: (f / "below/b.txt").write_text(""), "below/b.txt has 0 bytes, not 14"),
    (lambda f: (f / "a.txt").write_text("cOntent"), "the content of a.txt has changed"),
]


@pytest.mark.parametrize(("harm", "wrong"), DAMAGES)
def test_damage_is_told(tmp_path: Path, harm: Callable[[Path], object], wrong: str) -> None:
    fill(tmp_path / "folder")
    harm(tmp_path / "folder")
    assert damage(tmp_path / "folder") == wrong


def test_temporaries_of_the_dead_are_swept(tmp_path: Path) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    number = int(dead.stdout)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (tmp_path / f".step-3.{number}.tmp").mkdir()
        (tmp_path / f".step-3.{number}.tmp/x").write_text("x")
        (tmp_path / f".config.json.{number}.tmp").write_text("x")
        temporary_for(tmp_path / "mine").write_text("from a former process of this number")
        (tmp_path / f".average.{other.pid}.tmp").mkdir()
        (tmp_path / "step-3").mkdir()
        (tmp_path / ".hidden").write_text("x")
        sweep(tmp_path)
        assert names(tmp_path) == sorted([f".average.{other.pid}.tmp", ".hidden", "step-3"])
        sweep(tmp_path / "absent")
        assert files.other_lives(1), "another user's process, or one of the same user's, lives"
        assert not files.other_lives(10**30)
    finally:
        other.communicate(b"\n")


def test_a_folder_is_discarded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "folder")
    monkeypatch.setattr(files.shutil, "rmtree", lambda *_, **__: None)  # killed just before
    discard(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    monkeypatch.undo()
    sweep(tmp_path)
    assert names(tmp_path) == []
    discard(tmp_path / "folder")


def test_one_process_holds_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs/one"
    with alone(folder):
        with pytest.raises(SeqtransError) as error, alone(folder):
            pass
        assert str(error.value) == (
            f"another process ({os.getpid()}) is training in {folder}; choose another run=FOLDER."
        )
    with alone(folder):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(SeqtransError) as error, alone(tmp_path / "file/run"):
        pass
    assert str(error.value) == f"{tmp_path / 'file/run'} can't be written: Not a directory."


def test_of_a_large_file_the_size_alone_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with whole_folder(tmp_path / "corpus") as temporary:
        (temporary / "ids").write_text("123456789")
        (temporary / "words").write_text("abc")
    monkeypatch.setattr("seqtrans.files.LARGE", 5)
    for name, text, wrong in (
        ("ids", "987654321", None),
        ("words", "cba", "the content of words has changed"),
        ("ids", "1", "ids has 1 bytes, not 9"),
    ):
        (tmp_path / "corpus" / name).write_text(text)
        assert damage(tmp_path / "corpus") == wrong
        if name == "words":
            (tmp_path / "corpus" / name).write_text("abc")


def test_json_that_is_missing_or_none(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(DataError) as error:
        read_json(path)
    assert str(error.value) == (
        f"{path} can't be read: [Errno 2] No such file or directory: '{path}'."
    )
    path.write_text("{")
    with pytest.raises(DataError) as error:
        read_json(path)
    assert str(error.value) == (
        f"{path} can't be read: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)."
    )
    path.write_text("[1]")
    assert read_json(path) == [1]


def test_a_new_folder_goes_if_nothing_came_of_it(tmp_path: Path) -> None:
    def fail(folder: Path, left: bool) -> None:
        with alone(folder):
            if left:
                (folder / "config.json").touch()
            raise ZeroDivisionError

    (tmp_path / "there").mkdir()
    for name, left, stays in (("new", False, False), ("begun", True, True), ("there", False, True)):
        with pytest.raises(ZeroDivisionError):
            fail(tmp_path / name, left)
        assert (tmp_path / name).exists() == stays
