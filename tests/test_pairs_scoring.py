"""What a run of pairs is scored on: other files than it was prepared with, files of anyone's
outputs, and what is likely to be a mistake in them.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from seqtrans import compare
from seqtrans.commands import run as command
from seqtrans.errors import DataError
from seqtrans_tasks.pairs import PairsSettings
from seqtrans_tasks.pairs.task import Pair, Pairs
from seqtrans_tasks.wmt import WmtEnDeSettings

Captured = pytest.CaptureFixture[str]
WORDS = ["one two", "three four", "five six seven", "eight nine ten"]
LINES = ["Die Katze sitzt auf der Matte.", "Es regnet seit heute Morgen.", "Niemand weiß warum."]


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def sides(folder: Path, split: str, lines: list[str] = WORDS) -> dict[str, tuple[Path]]:
    """The settings that name two files of a split, which are written."""
    shouted = [line.upper() for line in lines]
    return {
        f"{split}_source": (write(folder / f"{split}.source", *lines),),
        f"{split}_target": (write(folder / f"{split}.target", *shouted),),
    }


def prepared(folder: Path, **given: Any) -> Pairs:
    """A task that was prepared in ``folder/run/task``, not opened."""
    task = Pairs(PairsSettings(**given))
    (folder / "run/task").mkdir(parents=True)
    task.prepare(folder / "run/task")
    return task


def opened(folder: Path, task: Pairs, **changed: Any) -> Pairs:
    """The prepared task with some settings changed."""
    values = {**dict(task.settings), **changed}
    again = type(task)(type(task.settings)(**values))
    again.open(folder / "run/task")
    return again


def alone(task: Pairs, split: str, folder: Path) -> tuple[str, str]:
    """What the data of a split is, read without anything prepared."""
    fresh = type(task)(task.settings)
    fresh.open_split(split, folder)
    return fresh.data(split)


# Other files than were prepared


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("before", [True, False])
def test_a_run_is_scored_on_other_files(tmp_path: Path, split: str, before: bool) -> None:
    data = sides(tmp_path / "data", "train")
    if before:
        data |= sides(tmp_path / "data", split, WORDS[:2])
    first = prepared(tmp_path, **data, level="word", dev_size=1)
    other = sides(tmp_path / "other", split, ["seven eight nine"])
    task = opened(tmp_path, first, **other)
    assert task.examples(split) == [Pair("seven eight nine", ("SEVEN EIGHT NINE",))]
    assert task.data(split) == ("other", alone(task, split, tmp_path)[1])
    if before:
        unchanged = opened(tmp_path, first)
        assert len(unchanged.examples(split)) == 2
        assert unchanged.data(split)[1] != task.data(split)[1]


def test_the_name_of_other_files(tmp_path: Path) -> None:
    """The title of the run's own data isn't theirs; another may be given."""
    first = prepared(tmp_path, **sides(tmp_path / "data", "train"), level="word", title="mine")
    other = sides(tmp_path / "other", "test")
    assert opened(tmp_path, first, **other).data("test")[0] == "other"
    assert opened(tmp_path, first, **other, title="theirs").data("test")[0] == "theirs"
    assert opened(tmp_path, first).data("dev")[0] == "mine"
    assert opened(tmp_path, first, title="ours").data("dev")[0] == "ours"


def test_files_may_go_once_they_are_prepared(tmp_path: Path) -> None:
    data = {**sides(tmp_path / "data", "train"), **sides(tmp_path / "data", "test")}
    first = prepared(tmp_path, **data, level="word")
    for path in (tmp_path / "data").iterdir():
        path.unlink()
    assert len(opened(tmp_path, first).examples("test")) == len(WORDS)
    none = opened(tmp_path, first, test_source=(), test_target=())
    assert len(none.examples("test")) == len(WORDS)
    gone = opened(tmp_path, first, test_source=(tmp_path / "x",), test_target=(tmp_path / "y",))
    with pytest.raises(DataError, match="x does not exist"):
        gone.examples("test")


def test_a_refused_training_leaves_the_run_as_it_was(tmp_path: Path, capsys: Captured) -> None:
    """Training keeps to its dev; another test set may be named."""
    from seqtrans.__main__ import main

    run, data = tmp_path / "run", sides(tmp_path / "data", "train")
    words = ["task=pairs", "task.level=word", f"run={run}"]
    words += [f"task.{key}={value[0]}" for key, value in data.items()]
    assert main(["prepare", *words]) == 0
    before = (run / "config.json").read_bytes()
    test, dev = (
        [f"task.{key}={value[0]}" for key, value in sides(tmp_path / "other", split).items()]
        for split in ("test", "dev")
    )
    capsys.readouterr()
    assert main(["train", *words, *dev]) == 2
    assert (run / "config.json").read_bytes() == before
    config, other = run / "config.json", tmp_path / "other"
    assert capsys.readouterr().err.splitlines() == [
        f"seqtrans: task.dev_source: is [] in {config} and ['{other / 'dev.source'}'] now",
        f"seqtrans: task.dev_target: is [] in {config} and ['{other / 'dev.target'}'] now",
        f"seqtrans: {run} is a run of other settings; choose another folder by run=FOLDER.",
    ]
    assert main(["prepare", *words, *test]) == 0
    assert (run / "config.json").read_bytes() != before


def test_the_folder_of_wmt_and_other_files(tmp_path: Path) -> None:
    from seqtrans_tasks.wmt.task import WmtEnDe

    folder = tmp_path / "data"
    for split, count in (("train", 12), ("dev", 2), ("test", 3)):
        for language in ("en", "de"):
            write(folder / f"{split}.{language}", *(f"{split} {n}" for n in range(count)))
    task = WmtEnDe(WmtEnDeSettings(folder=folder, vocabulary=300))
    (tmp_path / "run/task").mkdir(parents=True)
    task.prepare(tmp_path / "run/task")
    other = sides(tmp_path / "other", "test")
    assert len(opened(tmp_path, task, **other).examples("test")) == len(WORDS)
    for path in folder.iterdir():
        path.unlink()
    again = opened(tmp_path, task)
    assert len(again.examples("test")) == 3
    assert again.data("test")[0] == "wmt14-en-de"


def test_by_commands(tmp_path: Path, capsys: Captured) -> None:
    """A run without a test set is scored on one, and goes on as it was."""
    from seqtrans.__main__ import main

    data, run = sides(tmp_path / "data", "train"), f"run={tmp_path / 'run'}"
    words = [f"task.{key}={value[0]}" for key, value in data.items()]
    words += ["model.width=8", "model.inner=8", "model.heads=2", "model.encoder_layers=1"]
    words += ["model.decoder_layers=1", "training.steps=2", "training.warmup=1", "run.threads=1"]
    words += ["decoder=greedy", "training.dry_run=false", "task=pairs", "task.level=word"]
    assert main(["train", run, *words]) == 0
    capsys.readouterr()
    assert main(["evaluate", run, "split=test"]) == 2
    assert capsys.readouterr().err == (
        "seqtrans: there is no split 'test'; there are: train, dev; name its files by "
        "task.test_source=FILE task.test_target=FILE, or a table by task.test=FILE.\n"
    )
    other, report = sides(tmp_path / "other", "test", WORDS[:3]), tmp_path / "report.json"
    named = [f"task.{key}={value[0]}" for key, value in other.items()]
    assert main(["evaluate", run, "split=test", *named, f"report={report}"]) == 0
    found = json.loads(report.read_text("utf-8"))
    expected = alone(Pairs(PairsSettings(**other)), "test", tmp_path)
    assert (found["data"], found["fingerprint"]) == ("other", expected[1])
    assert found["figures"]["lines"] == 3
    table = write(tmp_path / "table.tsv", "one\tONE")
    assert main(["evaluate", run, "split=test", f"task.test={table}"]) == 0
    assert main(["train", run, *words, *named]) == 0
    # Now the run names a test set, which it was not prepared with.
    assert main(["evaluate", run, "split=test", f"report={report}"]) == 0
    assert json.loads(report.read_text("utf-8"))["fingerprint"] == expected[1]
    capsys.readouterr()
    assert main(["evaluate", run, "split=test", f"task.test={table}"]) == 2
    assert capsys.readouterr().err == (
        "seqtrans: task: task.test is a table of both sides; leave out task.test_source and "
        "task.test_target, or task.test; to clear a setting of the run, give it no value: "
        "task.test=\n"
    )
    emptied = ["task.test_source=", "task.test_target="]
    assert main(["evaluate", run, "split=test", f"task.test={table}", *emptied]) == 0


# What is told of outputs


@pytest.mark.parametrize("metric", ["bleu", "chrf", "tokenised-bleu"])
def test_doubts_about_outputs(metric: Any) -> None:
    task = Pairs(PairsSettings(metric=metric))
    examples = [Pair(f"source {n}", (line,)) for n, line in enumerate(LINES)]
    outputs = ["Die Kat@@ ze sitzt.", "", LINES[2]]
    told = [
        "sub-word marks '@@' are left in the outputs, line 1: join the pieces to words before "
        "scoring.",
        "1 output is blank, line 2.",
    ]
    score = task.score(outputs, examples)
    assert (score.figures["lines"], score.figures["blank outputs"]) == (3, 1)
    assert score.figures["warnings"] == told
    assert score.report.splitlines()[-2:] == [f"warning: {text}" for text in told]
    copied = [example.source for example in examples]
    swapped = "3 of 3 outputs are their own sources: are these the right outputs?"
    assert task.score(copied, examples).figures["warnings"] == [swapped]
    compared = task.compare({"a": outputs, "b": copied}, examples)
    assert compared.figures["warnings"] == [*(f"a: {text}" for text in told), f"b: {swapped}"]
    unknown = [Pair("", example.targets) for example in examples]
    assert task.score([" ", "", ""], unknown).figures["warnings"] == [
        "3 outputs are blank, lines 1, 2 and 3."
    ]
    blank = [*examples[:2], Pair("source 2", ("",))]
    assert "1 reference is blank, line 3." in task.score(outputs, blank).figures["warnings"]


# Files of outputs


def compared(capsys: Captured, *argv: object) -> tuple[int, str, str]:
    status = command(compare.main, [str(word) for word in argv])
    return status, *capsys.readouterr()


def refused(capsys: Captured, *argv: object) -> str:
    status, out, err = compared(capsys, *argv)
    assert (status, out) == (2, "")
    return err.removeprefix("seqtrans: ").removesuffix("\n")


@pytest.mark.parametrize("metric", ["bleu", "tokenised-bleu"])
@pytest.mark.parametrize(("mark", "line"), [("@@", "Die Kat@@ ze sitzt ."), ("▁", "▁Es ▁regnet")])
def test_marks_are_refused(
    tmp_path: Path, capsys: Captured, metric: str, mark: str, line: str
) -> None:
    plain, cut = write(tmp_path / "plain", *LINES), write(tmp_path / "cut", *LINES[:2], line)
    words = ["task=pairs", f"task.metric={metric}"]
    said = f"sub-word marks '{mark}' are left in the outputs, line 3: join the pieces to words "
    for systems in ([cut], [plain, cut]):
        assert refused(capsys, *systems, *words, f"reference={plain}") == (
            f"{cut}: {said}before scoring."
        )
    assert compared(capsys, cut, *words[:1], "task.metric=exact", f"reference={plain}")[0] == 0


def test_marks_that_the_references_have_are_warned_of(tmp_path: Path, capsys: Captured) -> None:
    text = write(tmp_path / "text", *LINES[:2], "a b@@ c")
    status, out, err = compared(capsys, text, "task=pairs", f"reference={text}")
    assert (status, err) == (0, "")
    assert out.startswith("BLEU = 100.00, ")
    assert "warning: sub-word marks '@@' are left in the outputs, line 3: " in out


def test_a_single_file_is_scored(tmp_path: Path, capsys: Captured) -> None:
    reference = write(tmp_path / "reference", *LINES)
    system = write(tmp_path / "system.gz", *LINES[:2], "Keiner weiß warum.")
    report = tmp_path / "report.json"
    argv = [system, "task=wmt-en-de", "task.ter=yes", f"reference={reference}", f"report={report}"]
    status, out, err = compared(capsys, *argv)
    assert (status, err) == (0, "")
    *lines, last = out.splitlines()
    assert last.startswith(f"{system}: BLEU ")
    assert [line.partition(" = ")[0] for line in lines] == [
        "BLEU",
        "chrF2",
        "TER",
        "tokenised BLEU (Moses, compounds split)",
    ]
    found = json.loads(report.read_text("utf-8"))
    assert (found["systems"], found["examples"], found["split"]) == ([str(system)], 3, None)
    assert (found["metric"], found["reference"]) == ("BLEU", str(reference))
    assert found["value"] == found["figures"]["BLEU"]["value"]
    assert found["signature"] == found["figures"]["BLEU"]["signature"]


SGML = '<refset><doc><seg id="1">One &amp; two</seg>\n<seg id="2">three\nfour</seg></doc></refset>'


def test_references_as_the_task_reads_them(tmp_path: Path) -> None:
    task = Pairs(PairsSettings())
    lines = ["a\tb", "c"]
    for name in ("lines", "lines.gz"):
        assert task.read_references(write(tmp_path / name, *lines)) == [
            Pair("", (line,)) for line in lines
        ]
    for name in ("set.sgm", "SET.SGM", "set.sgm.gz"):
        assert task.read_references(write(tmp_path / name, SGML)) == [
            Pair("", ("One & two",)),
            Pair("", ("three four",)),
        ]
    table = write(tmp_path / "test.tsv", "en\tde\tno", "one\teins\t1", "two\tzwei\t2")
    named = Pairs(PairsSettings(source_column="en", target_column="de"))
    assert named.read_references(table) == [Pair("one", ("eins",)), Pair("two", ("zwei",))]
    with pytest.raises(DataError) as caught:
        task.read_references(write(tmp_path / "no.tsv", "one", "two"))
    assert str(caught.value) == (
        f"{tmp_path / 'no.tsv'}, line 1: needs 2 columns, separated by tabs, and has 1: 'one'."
    )


def test_a_table_of_references_knows_the_sources(tmp_path: Path, capsys: Captured) -> None:
    table = write(tmp_path / "test.tsv", *(f"{word}\t{word.upper()}" for word in WORDS))
    system = write(tmp_path / "system", *WORDS)
    _, out, _ = compared(capsys, system, "task=pairs", f"reference={table}")
    assert out.splitlines()[-2] == (
        "warning: 4 of 4 outputs are their own sources: are these the right outputs?"
    )


def test_sgml_of_outputs_is_refused(tmp_path: Path, capsys: Captured) -> None:
    system = write(tmp_path / "system.sgm", SGML)
    assert refused(capsys, system, "task=pairs", f"reference={system}") == (
        f"{system} is SGML, of which the lines are no text: write its segments to a file of their "
        "own, one a line."
    )
