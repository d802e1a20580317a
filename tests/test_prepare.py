"""``seqtrans prepare``: once for the same raw data, and never on with other data unseen."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from seqtrans import rawfiles
from seqtrans.__main__ import main
from seqtrans.rawfiles import RAW, named, state, states, write_states
from seqtrans.task import Task
from seqtrans_tasks.pairs import PairsSettings
from seqtrans_tasks.parsing import ParsingSettings
from seqtrans_tasks.parsing.task import Parsing

Captured = pytest.CaptureFixture[str]

TREE = "(TOP (S (NP (DT the) (NN cat)) (VP (VBD sat))))\n"


def pairs(folder: Path) -> list[str]:
    """The words that prepare a few pairs."""
    words = ["prepare", "task=pairs", "task.level=character", f"run={folder / 'run'}"]
    for split, count in (("train", 5), ("dev", 2)):
        for side in ("source", "target"):
            path = folder / f"{split}.{side}"
            path.write_text("".join(f"{split} {side} {number}\n" for number in range(count)))
            words.append(f"task.{split}_{side}={path}")
    return words


def trees(folder: Path) -> list[str]:
    """The words that prepare a few trees, those to train on in a folder."""
    (folder / "bank").mkdir()
    for path in (folder / "bank" / "a.mrg", folder / "bank" / ".b.mrg", folder / "dev.mrg"):
        path.write_text(TREE)
    words = ["prepare", "task=parsing", "task.subwords=256", f"run={folder / 'bank' / 'run'}"]
    return [*words, f"task.train={folder / 'bank'}", f"task.dev={folder / 'dev.mrg'}"]


def refused(words: list[str], capsys: Captured) -> str:
    """What is said when the raw data has changed."""
    capsys.readouterr()
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


def changed(path: Path, run: Path) -> str:
    """What is said of a file that has changed."""
    return (
        f"seqtrans: {path} has changed since {run / 'task'} was prepared; choose another folder by "
        f"run=FOLDER, or delete {run}.\n"
    )


def last_line(words: list[str], capsys: Captured) -> str:
    """The last line of a preparation that succeeds."""
    capsys.readouterr()
    assert main(words) == 0
    return capsys.readouterr().out.splitlines()[-1]


def mend(path: Path, old: str, new: str, later: int = 1) -> None:
    """Change a file, some seconds after it was written."""
    status = path.stat()
    path.write_text(path.read_text().replace(old, new))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + later * 10**9))


def test_the_same_data_is_prepared_once(tmp_path: Path, capsys: Captured) -> None:
    words, task = pairs(tmp_path), tmp_path / "run" / "task"
    assert last_line(words, capsys) == f"prepared in {task}"
    assert last_line(words, capsys) == f"already prepared in {task}"


@pytest.mark.parametrize(("old", "new"), [("3", "4"), ("3", "33")])
@pytest.mark.parametrize("name", ["train.source", "dev.target"])
def test_data_that_was_mended(
    tmp_path: Path, capsys: Captured, name: str, old: str, new: str
) -> None:
    words, run = pairs(tmp_path), tmp_path / "run"
    assert main(words) == 0
    mend(tmp_path / name, "1", new)
    assert refused(words, capsys) == changed(tmp_path / name, run)
    words[words.index(f"run={run}")] = f"run={tmp_path / 'other'}"
    assert last_line(words, capsys) == f"prepared in {tmp_path / 'other' / 'task'}"


def test_all_that_has_changed_is_told(tmp_path: Path, capsys: Captured) -> None:
    words, run = pairs(tmp_path), tmp_path / "run"
    assert main(words) == 0
    files = [tmp_path / f"train.{side}" for side in ("source", "target")]
    for path in files:
        mend(path, "1", "2")
    assert refused(words, capsys) == (
        f"seqtrans: {files[0]}, {files[1]} have changed since {run / 'task'} was prepared; choose "
        f"another folder by run=FOLDER, or delete {run}.\n"
    )


def test_data_that_was_touched_or_moved(tmp_path: Path, capsys: Captured) -> None:
    words, task = pairs(tmp_path), tmp_path / "run" / "task"
    assert main(words) == 0
    already = f"already prepared in {task}"
    mend(tmp_path / "train.source", "", "")
    assert last_line(words, capsys) == already
    (tmp_path / "train.target").unlink()
    assert last_line(words, capsys) == already


def test_training_does_not_go_on_with_other_data(tmp_path: Path, capsys: Captured) -> None:
    words, run = pairs(tmp_path), tmp_path / "run"
    words[0] = "train"
    words += ["model.width=8", "model.inner=8", "model.heads=2", "model.encoder_layers=1"]
    words += ["model.decoder_layers=1", "training.warmup=2", "run.threads=1", "decoder=greedy"]
    words += ["training.dry_run=false"]
    assert main([*words, "training.steps=1"]) == 0
    mend(tmp_path / "dev.source", "", "")
    assert main([*words, "training.steps=2"]) == 0
    mend(tmp_path / "dev.source", "1", "2")
    said = refused([*words, "training.steps=3"], capsys)
    assert said.endswith(changed(tmp_path / "dev.source", run))


def test_files_that_are_not_read_may_change(tmp_path: Path, capsys: Captured) -> None:
    words, task = trees(tmp_path), tmp_path / "bank" / "run" / "task"
    bank = tmp_path / "bank"
    (bank / "notes.txt").write_text("1")
    assert last_line(words, capsys) == f"prepared in {task}"
    noted = json.loads((task / RAW).read_text())
    assert sorted(noted) == [str(bank / "a.mrg"), str(tmp_path / "dev.mrg")]
    (bank / "c.mrg").write_text(TREE)
    (bank / ".b.mrg").write_text("")
    mend(bank / "notes.txt", "1", "2")
    assert last_line(words, capsys) == f"already prepared in {task}"
    mend(bank / "a.mrg", "cat", "dog")
    assert refused(words, capsys) == changed(bank / "a.mrg", bank / "run")


def test_a_task_that_names_no_files_by_itself(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of its settings are noted, and those below folders, but not those of the run itself."""
    monkeypatch.setattr(Parsing, "raw_files", Task.raw_files)
    words, bank = trees(tmp_path), tmp_path / "bank"
    (bank / "notes.txt").write_text("1")
    assert main(words) == 0
    noted = json.loads((bank / "run" / "task" / RAW).read_text())
    assert sorted(noted) == [
        str(bank / "a.mrg"),
        str(bank / "notes.txt"),
        str(tmp_path / "dev.mrg"),
    ]
    mend(bank / "notes.txt", "1", "2")
    assert refused(words, capsys) == changed(bank / "notes.txt", bank / "run")


def test_nothing_is_noted_of_what_could_not_be_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(path: Path) -> str:
        raise AssertionError(path)

    monkeypatch.setattr(rawfiles, "checksum", never)
    words = pairs(tmp_path)
    (tmp_path / "train.source").write_bytes(b"\xff\n")
    assert main(words) == 2
    assert not list((tmp_path / "run").glob("task/*"))
    (tmp_path / "train.source").write_text("".join(f"{number}\n" for number in range(5)))
    assert main(["doctor", *(word for word in words[1:] if not word.startswith("run="))]) == 0


def test_what_settings_name(tmp_path: Path) -> None:
    for name in ("bank/b/c.mrg", "bank/a.mrg", "bank/.d/e.mrg", "bank/run/f.mrg"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    bank = tmp_path / "bank"
    settings = ParsingSettings(train=bank, dev=tmp_path / "dev", parameters=str(bank / "a.mrg"))
    found = states(named(settings, bank / "run"))
    assert sorted(found) == [bank / "a.mrg", bank / "b" / "c.mrg"]
    # What may change for a use is passed over, unless training keeps to it.
    pairs = PairsSettings(test=(bank / "a.mrg",), dev=(bank / "b" / "c.mrg",))
    assert list(named(pairs, bank / "run")) == [bank / "b" / "c.mrg"]


def test_a_file_that_changes_while_it_is_read_has_changed(tmp_path: Path, capsys: Captured) -> None:
    words = trees(tmp_path)
    path, prepare = tmp_path / "dev.mrg", Parsing.prepare

    def meddling(task: Task, folder: Path) -> None:
        assert isinstance(task, Parsing)
        prepare(task, folder)
        mend(path, "cat", "dog")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parsing, "prepare", meddling)
        assert main(words) == 0
    # It is what it was when the preparation ended, but that isn't what was read.
    assert refused(words, capsys) == changed(path, tmp_path / "bank" / "run")


def test_states(tmp_path: Path) -> None:
    path, gone = tmp_path / "a", tmp_path / "gone"
    path.write_text("abc")
    assert state(path) == (3, path.stat().st_mtime_ns)
    assert state(tmp_path) is None
    assert states([path, gone, tmp_path, Path("/dev/null")]) == {path: state(path)}
    write_states(tmp_path, states([path, gone]))
    assert json.loads((tmp_path / RAW).read_text()) == {
        str(path): {
            "bytes": 3,
            "modified": path.stat().st_mtime_ns,
            "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        }
    }
