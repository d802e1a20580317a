"""Rows of results: recorded from a run, checked, scored again, and shown."""

from __future__ import annotations

import gzip
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import benchmarks.__main__ as front
from benchmarks import board, verify
from benchmarks.commands import evaluation_command, joined, training_command, training_words
from benchmarks.places import local_path, moved, path_keys, portable, portable_path
from benchmarks.results import (
    ROOT,
    Data,
    Row,
    file_name,
    packed,
    read_hypotheses,
    read_row,
    rows,
    sha256,
)
from seqtrans.errors import DataError, SettingsError
from seqtrans.plugins import registry
from seqtrans.resolving import resolve
from seqtrans.settings import parse_words
from seqtrans_tasks.pairs import PairsSettings
from seqtrans_tasks.parsing import ParsingSettings, grammar, repair
from seqtrans_tasks.parsing.cleaning import Steps, clean
from seqtrans_tasks.parsing.tree import Leaf, Tree, leaves, read_tree, same, write_tree

Captured = pytest.CaptureFixture[str]
NAME = "train.trees-run-7.json"
TINY = (
    "model.width=8 model.inner=8 model.heads=2 model.encoder_layers=1 model.decoder_layers=1 "
    "task.constrained=false decoder=greedy decoder.extra=20 run.seed=7"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder with a small treebank, a run of it, and the row of that run."""
    import torch

    from seqtrans import assembly, checkpoint
    from seqtrans.prepare import prepare

    folder = tmp_path_factory.mktemp("home")
    random = Random(1)
    (folder / "data").mkdir()
    for split, count in (("train", 60), ("dev", 5), ("test", 12)):
        trees = [write_tree(grammar.write_sentence(random)[0]) + "\n" for _ in range(count)]
        (folder / f"data/{split}.trees").write_text("".join(trees), encoding="utf-8")
    (folder / "README.md").write_text(f"# Results\n\n{board.BEGIN}\n{board.END}\nEnd.\n", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQTRANS_DATA", str(folder))
        words = [f"task.{split}={folder}/data/{split}.trees" for split in ("train", "dev", "test")]
        config = resolve(
            parse_words(["task=parsing", *words, *TINY.split(), f"run={folder}/run"]), registry()
        )
        prepare(config, registry())
        task = assembly.build_task(config, registry())
        task.open(config.folder / "task")
        model = assembly.build_model(config, registry(), task)
        optimizer = torch.optim.Adam(model.parameters())
        for step in (3, 5):
            progress = checkpoint.Progress(step=step, seconds=2.5 * step, processes=2)
            checkpoint.save(config.folder, model, optimizer, progress)
        checkpoint.write_validations(config.folder, {3: 20.0, 5: 10.0}, True)
        assert front.main(["record", f"run={folder}/run", f"results={folder}/results"]) == 0
        assert front.main(["board", f"results={folder}/results"]) == 0
        yield folder


@pytest.fixture
def results(home: Path, tmp_path: Path) -> Path:
    """A copy of the row, its hypotheses and the tables, to be damaged."""
    shutil.copytree(home / "results", tmp_path / "results")
    shutil.copy(home / "README.md", tmp_path)
    return tmp_path / "results"


def edit(results: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the row in its file."""
    content = json.loads((results / NAME).read_text("utf-8"))
    change(content)
    (results / NAME).write_text(json.dumps(content), "utf-8")


def rewrite(results: Path, change: Callable[[list[str]], object]) -> None:
    """Change the hypotheses, and what the row says of their file."""
    row = read_row(results / NAME)
    lines = read_hypotheses(row, results)
    change(lines)
    content = packed(lines)
    (results / row.hypotheses.file).write_bytes(content)
    told = {"sha256": sha256(content), "lines": len(lines)}
    edit(results, lambda content: content["hypotheses"].update(told))


def verified(results: Path, capsys: Captured) -> tuple[int, str, str]:
    """Exit status, output and complaints of ``verify``."""
    capsys.readouterr()
    status = front.main(["verify", f"results={results}"])
    out, err = capsys.readouterr()
    return status, out, err


# --- recording --------------------------------------------------------------------------------


def test_a_recorded_row(home: Path) -> None:
    row = read_row(home / "results" / NAME)
    assert rows(home / "results") == [home / "results" / NAME]
    assert (row.task, row.split, row.recipe, row.seed) == ("parsing", "test", "run", 7)
    assert (row.metric, row.better, row.step, row.updates) == ("F1", "higher", "best", 3)
    assert (row.training.updates, row.training.seconds, row.training.processes) == (5, 12.5, 2)
    assert row.seconds.training == 7.5
    assert row.figures["overall"]["f1"] == row.value
    assert row.figures["repaired"]["any"] > 0
    assert not row.synthetic
    assert row.settings["task.test"] == "$SEQTRANS_DATA/data/test.trees"
    assert row.settings["run.folder"] == "runs/run"
    assert str(home) not in (home / "results" / NAME).read_text("utf-8")
    assert row.command.training.startswith(
        "accelerate launch --multi_gpu --num_processes 2 -m seqtrans.train task=parsing "
        "decoder=greedy "
        'task.train="$SEQTRANS_DATA"/data/train.trees task.dev="$SEQTRANS_DATA"/data/dev.trees '
    )
    assert row.command.evaluation == "seqtrans evaluate run=runs/run split=test step=best"
    assert row.versions.providers["decoder"] == f"seqtrans {row.versions.seqtrans}"
    assert len(read_hypotheses(row, home / "results")) == 12


def test_hypotheses_hold_no_words(home: Path) -> None:
    for line in read_hypotheses(read_row(home / "results" / NAME), home / "results"):
        words = re.findall(r" ([^\s()]+)\)", line.partition("\t")[0])
        assert words == [str(number) for number in range(len(words))]


def test_a_row_is_not_overwritten_unasked(home: Path, results: Path, capsys: Captured) -> None:
    words = ["record", f"run={home}/run", f"results={results}"]
    before = (results / NAME).with_suffix(".txt.gz").read_bytes()
    capsys.readouterr()
    assert front.main(words) == 2
    assert capsys.readouterr().err == (
        f"seqtrans: {results / NAME} is there already; give replace=true to overwrite it, or "
        "another recipe=NAME.\n"
    )
    assert front.main([*words, "replace=true"]) == 0
    assert capsys.readouterr().out.startswith(f"{results / NAME}: test F1 ")
    assert (results / NAME).with_suffix(".txt.gz").read_bytes() == before


def test_recording_with_changes(home: Path, results: Path) -> None:
    parameters = home / "data/own.prm"
    parameters.write_text("LABELED 0\n", "utf-8")
    words = [f"task.parameters={parameters}", "decoder=beam", "decoder.width=2", "decoder.extra=3"]
    own = [f"run={home}/run", f"results={results}", "split=dev", "recipe=a b", "step=last"]
    assert front.main(["record", *own, *words]) == 0
    row = read_row(results / "train.trees-a-b-7-dev.json")
    assert row.updates == 5
    assert row.settings["decoder.width"] == 2
    assert row.signature.startswith("unlabelled-F1|parameters:own.prm")
    assert row.command.evaluation == (
        "seqtrans evaluate run=runs/run split=dev step=last "
        'task.parameters="$SEQTRANS_DATA"/data/own.prm decoder=beam decoder.width=2 decoder.extra=3'
    )
    assert "own.prm" not in row.command.training
    assert verify.check(results / row.name)[1] == []


def test_recording_an_average_and_what_lies_elsewhere(
    home: Path, results: Path, tmp_path: Path, capsys: Captured
) -> None:
    from seqtrans.average import main as average

    (tmp_path / "my.prm").write_text("LABELED 0\n", "utf-8")
    assert average([f"run={home}/run", "last=2"]) == 0
    words = ["recipe=mean", "step=average", f"task.parameters={tmp_path}/my.prm"]
    capsys.readouterr()
    assert front.main(["record", f"run={home}/run", f"results={results}", *words]) == 0
    assert capsys.readouterr().out.splitlines()[2] == (
        "task.parameters is recorded as $SEQTRANS_DATA/data/my.prm: put the data, or a link to it, "
        "there to verify."
    )
    row = read_row(results / "train.trees-mean-7.json")
    assert (row.step, row.updates, row.seconds.training) == ("average", 5, 12.5)
    assert "5 (average)" in board.cells(row)
    assert verify.check(results / row.name)[0].startswith("in order; not scored again: the data")
    shutil.copy(tmp_path / "my.prm", home / "data")
    assert verify.check(results / row.name)[0].startswith("in order; scored again: F1 ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "run: must be given: the run folder, or several that decode together"),
        (
            ["run=runs/x", "split=train"],
            "split=train: results are recorded for data that was not trained on.",
        ),
        (
            ["run=runs/x", "model.width=8"],
            "model.width: belongs to the run and can't be changed here",
        ),
        (["run=/nowhere"], "there is no run folder /nowhere."),
    ],
)
def test_mistakes_in_recording(words: list[str], message: str, capsys: Captured) -> None:
    assert front.main(["record", *words]) == 2
    assert capsys.readouterr().err == f"seqtrans: {message}\n"


# --- verifying --------------------------------------------------------------------------------


def test_a_true_row(results: Path, capsys: Captured) -> None:
    value = read_row(results / NAME).value
    assert verified(results, capsys) == (
        0,
        f"{NAME}: in order; scored again: F1 {value:.2f}\n",
        "",
    )


def test_the_data_is_not_at_hand(
    results: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEQTRANS_DATA", str(tmp_path / "none"))
    where = tmp_path / "none/data"
    assert verified(results, capsys) == (
        0,
        f"{NAME}: in order; not scored again: the data is not at hand (train={where}/train.trees, "
        f"dev={where}/dev.trees, test={where}/test.trees)\n",
        "",
    )


def test_only_the_split_is_needed(
    home: Path, results: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    shutil.copy(home / "data/test.trees", tmp_path / "data")
    monkeypatch.setenv("SEQTRANS_DATA", str(tmp_path))
    outcome, problems = verify.check(results / NAME)
    assert problems == []
    assert outcome.startswith("in order; scored again: F1 ")


def test_a_task_that_is_not_installed(results: Path) -> None:
    def change(row: dict[str, Any]) -> None:
        row["task"] = row["settings"]["task"] = "yodelling"

    edit(results, change)
    outcome, problems = verify.check(results / NAME)
    assert problems == []
    assert outcome.startswith("in order; not scored again: no task is called 'yodelling'; ")


def test_a_later_version_of_seqtrans(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (results / NAME).read_text("utf-8")
    version = read_row(results / NAME).versions.seqtrans
    older = text.replace(f"seqtrans:{version}", "seqtrans:0.0.9")
    older = older.replace(f'"seqtrans": "{version}"', '"seqtrans": "0.0.9"')
    assert older != text
    (results / NAME).write_text(older, "utf-8")
    assert verify.check(results / NAME)[1] == []


def put(*keys: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    """A change of one field."""

    def change(row: dict[str, Any]) -> None:
        here: Any = row
        for key in keys[:-1]:
            here = here[key]
        here[keys[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row.pop("value"), "value is missing."),
        (lambda row: row["hardware"].pop("cpu"), "hardware.cpu is missing."),
        (put("colour", to="red"), "colour is no field of a row."),
        (put("value", to="84"), "value should be a valid number, not '84'."),
        (put("seed", to=True), "seed should be a valid integer, not True."),
        (put("seed", to=-1), "seed should be greater than or equal to 0, not -1."),
        (put("format", to=2), "format should be 1, not 2."),
        (put("better", to="larger"), "better should be 'higher' or 'lower', not 'larger'."),
        (
            put("versions", "providers", to=[]),
            "versions.providers should be a valid dictionary, not [].",
        ),
    ],
)
def test_a_damaged_field(
    change: Callable[[dict[str, Any]], object], message: str, results: Path, capsys: Captured
) -> None:
    edit(results, change)
    assert verified(results, capsys) == (1, "", f"{results / NAME}: {message}\n")


def test_every_damaged_field_is_told(results: Path, capsys: Captured) -> None:
    edit(results, lambda row: (row.pop("value"), row.pop("seed")))
    lines = verified(results, capsys)[2].splitlines()
    assert lines == [f"{results / NAME}: {field} is missing." for field in ("seed", "value")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "{",
            "the file is no JSON: Expecting property name enclosed in double quotes: line 1 "
            "column 2 (char 1).",
        ),
        ('{"value": NaN}', "the file is no JSON: it holds NaN."),
        ("[]", "the row should be a valid dictionary or instance of row, not []."),
    ],
)
def test_no_row_at_all(content: str, message: str, results: Path, capsys: Captured) -> None:
    (results / NAME).write_text(content, "utf-8")
    assert verified(results, capsys) == (1, "", f"{results / NAME}: {message}\n")


def test_no_such_file(tmp_path: Path, capsys: Captured) -> None:
    assert front.main(["verify", str(tmp_path / "x.json")]) == 1
    assert capsys.readouterr().err == (
        f"{tmp_path}/x.json: the file cannot be read: No such file or directory.\n"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            put("recipe", to="other"),
            "the file must be called train.trees-other-7.json, by what the row says.",
        ),
        (put("seed", to=8), "seed is 8 in the row and 7 in its settings."),
        (put("task", to="g2p"), "task is 'g2p' in the row and 'parsing' in its settings."),
        (
            put("settings", "task.test", to="/home/me/test.trees"),
            "settings.task.test is '/home/me/test.trees', a path of one machine.",
        ),
        (
            put("command", "training", to="seqtrans train task.train=/home/me/x"),
            "command.training has 'task.train=/home/me/x', a path of one machine.",
        ),
        (
            put("settings", "task.leaves", to="twigs"),
            "its settings can't be used: task.leaves: must be one of words, tags, not 'twigs'",
        ),
        (
            put("split", to="final"),
            "the file must be called train.trees-run-7-final.json, by what the row says.",
        ),
        (
            put("split", to="final"),
            "the data can't be read: the data train.trees has no split 'final'.",
        ),
    ],
)
def test_a_row_that_contradicts_itself(
    change: Callable[[dict[str, Any]], object], message: str, results: Path
) -> None:
    edit(results, change)
    assert message in verify.check(results / NAME)[1]


def test_hypotheses_that_are_absent(results: Path, capsys: Captured) -> None:
    path = (results / NAME).with_suffix(".txt.gz")
    path.unlink()
    assert verified(results, capsys) == (
        1,
        "",
        f"{results / NAME}: the hypotheses {path} cannot be read: no such file or directory.\n",
    )


def test_hypotheses_that_were_changed(results: Path, capsys: Captured) -> None:
    path = (results / NAME).with_suffix(".txt.gz")
    before = sha256(path.read_bytes())
    path.write_bytes(packed(["(TOP (X 0))"]))
    assert verified(results, capsys) == (
        1,
        "",
        f"{results / NAME}: the hypotheses {path} have the SHA-256 "
        f"{sha256(path.read_bytes())[:12]}…, and the row says {before[:12]}….\n",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", "are no gzip file of UTF-8 text: Not a gzipped file (b'no')."),
        (packed(["a"])[:-2], "are no gzip file of UTF-8 text: "),
        (gzip.compress(b"\xff\n", mtime=0), "are no gzip file of UTF-8 text: "),
        (gzip.compress(b"a\nb", mtime=0), "is cut off."),
        (packed(["a", "b"]), "have 2 lines, and the row says 12."),
    ],
)
def test_hypotheses_that_are_none(content: bytes, message: str, results: Path) -> None:
    (results / NAME).with_suffix(".txt.gz").write_bytes(content)
    edit(results, put("hypotheses", "sha256", to=sha256(content)))
    with pytest.raises(DataError) as raised:
        read_hypotheses(read_row(results / NAME), results)
    assert message in str(raised.value)


def test_too_few_hypotheses(results: Path) -> None:
    rewrite(results, lambda lines: lines.pop())
    assert verify.check(results / NAME)[1] == ["there are 11 hypotheses for 12 examples."]


def test_a_hypothesis_that_fits_no_example(results: Path) -> None:
    rewrite(results, lambda lines: lines.__setitem__(3, "(TOP (X 1))"))
    (problem,) = verify.check(results / NAME)[1]
    assert re.fullmatch(
        r"hypothesis 4: the leaves of the tree must be the numbers from 0 to \d+ in order, one for "
        r"each word of the sentence\.",
        problem,
    )


def test_other_data(
    home: Path, results: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(home / "data", tmp_path / "data")
    trees = (tmp_path / "data/test.trees").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "data/test.trees").write_text("".join(trees[::-1]), "utf-8")
    monkeypatch.setenv("SEQTRANS_DATA", str(tmp_path))
    (problem,) = verify.check(results / NAME)[1]
    assert re.fullmatch(
        r"the test data here has the fingerprint [0-9a-f]{12}…, and the row says [0-9a-f]{12}….",
        problem,
    )


def test_data_that_is_damaged(
    home: Path, results: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(home / "data", tmp_path / "data")
    (tmp_path / "data/test.trees").write_text("(S (NN", "utf-8")
    monkeypatch.setenv("SEQTRANS_DATA", str(tmp_path))
    (problem,) = verify.check(results / NAME)[1]
    assert problem.startswith(f"the data can't be read: {tmp_path}/data/test.trees, line 1")


def test_real_data_called_synthetic(results: Path) -> None:
    edit(results, put("data", "name", to="synthetic"))
    assert (
        "the data is called 'synthetic', and is 'train.trees'." in verify.check(results / NAME)[1]
    )


@pytest.mark.parametrize(
    ("keys", "by"),
    [
        (("value",), 1e-8),
        (("figures", "overall", "recall"), -1.0),
        (("figures", "evalb_short", "matched"), 1),
        (("figures", "repaired", "any"), -0.01),
    ],
)
def test_an_embellished_figure(keys: tuple[str, ...], by: float, results: Path) -> None:
    row: Any = json.loads((results / NAME).read_text("utf-8"))
    for key in keys:
        row = row[key]
    edit(results, put(*keys, to=row + by))
    assert verify.check(results / NAME)[1] == [
        f"{'.'.join(keys)} is {row + by!r} in the row, and {row!r} by the hypotheses."
    ]


def test_rounding_of_the_last_digit_is_no_difference(results: Path) -> None:
    edit(results, put("value", to=read_row(results / NAME).value + 1e-11))
    assert verify.check(results / NAME)[1] == []


def test_another_signature(results: Path) -> None:
    signature = read_row(results / NAME).signature
    edit(results, put("signature", to=signature.replace("COLLINS", "NEW")))
    assert verify.check(results / NAME)[1] == [
        f"signature is {signature.replace('COLLINS', 'NEW')!r} in the row, and {signature!r} by "
        "the hypotheses."
    ]


def test_figures_that_are_missing_or_made_up(results: Path) -> None:
    def change(row: dict[str, Any]) -> None:
        row["figures"]["bleu"] = 30.0
        del row["figures"]["cutoff"]

    edit(results, change)
    assert verify.check(results / NAME)[1] == [
        "figures.bleu is 30.0 in the row, and absent by the hypotheses.",
        "figures.cutoff is absent in the row, and 40 by the hypotheses.",
    ]


def test_an_embellished_hypothesis(home: Path, results: Path) -> None:
    gold = read_tree((home / "data/test.trees").read_text("utf-8").splitlines()[0])
    tree = clean(gold, Steps())
    assert tree is not None
    line = parsing_task().publish(parse_of(tree))
    rewrite(results, lambda lines: lines.__setitem__(0, line))
    problems = verify.check(results / NAME)[1]
    assert any(problem.startswith("value is ") for problem in problems)


def test_hypotheses_without_a_row(results: Path, capsys: Captured) -> None:
    (results / "x.txt.gz").write_bytes(packed([]))
    status, _, complaints = verified(results, capsys)
    assert status == 1
    assert complaints == f"{results}/x.txt.gz: there is no row for these hypotheses.\n"


def test_form_is_checked_without_torch(results: Path) -> None:
    edit(results, put("hypotheses", "lines", to=3))
    code = (
        "import sys; from pathlib import Path; from benchmarks import verify, record, board\n"
        "assert len(verify.check(Path(sys.argv[1]))[1]) == 1\n"
        "assert not {'torch', 'accelerate', 'tokenizers', 'numpy', 'nltk'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(results / NAME)], cwd=ROOT, check=True)


# --- the tables -------------------------------------------------------------------------------


def test_tables_out_of_date(results: Path, capsys: Captured) -> None:
    readme = results.parent / "README.md"
    text = readme.read_text("utf-8")
    readme.write_text(text.replace("| 7 |", "| 8 |"), "utf-8")
    status, _, complaints = verified(results, capsys)
    assert (status, complaints) == (
        1,
        f"{readme}: the tables are not those of the rows; run python -m benchmarks board.\n",
    )
    assert front.main(["board", f"results={results}"]) == 0
    assert readme.read_text("utf-8") == text
    assert text.endswith(f"\n{board.END}\nEnd.\n")


def test_a_readme_without_markers(results: Path, capsys: Captured) -> None:
    readme = results.parent / "README.md"
    readme.write_text("# Results\n", "utf-8")
    assert front.main(["board", f"results={results}"]) == 2
    assert capsys.readouterr().err == (
        f"seqtrans: {readme} must hold the lines {board.BEGIN} and {board.END}, between them the "
        "tables.\n"
    )
    assert verified(results, capsys)[0] == 1


def test_synthetic_data_stands_apart(home: Path) -> None:
    row = read_row(home / "results" / NAME)

    def of(name: str, **fields: Any) -> Row:
        data = row.data.model_copy(update={"name": name})
        return row.model_copy(update={"data": data, **fields})

    text = board.render(
        [
            of("synthetic", value=99.0, recipe="a"),
            of("wsj-sample", value=70.0, recipe="b"),
            of("wsj-sample", value=80.0, recipe="c"),
            of("wsj-sample", value=90.0, recipe="d", split="dev"),
        ]
    )
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "### Real data",
        "#### wsj-sample, dev: F1 of parsing",
        "#### wsj-sample, test: F1 of parsing",
        "### Synthetic data",
        "#### synthetic, test: F1 of parsing",
    ]
    assert re.findall(r"\| \[(\w)\]", text) == ["d", "c", "b", "a"]
    tables = [block for block in text.split("\n\n") if block.startswith("| recipe")]
    assert all(("synthetic-" in table) != ("wsj-sample-" in table) for table in tables)
    for table in tables:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table.strip().splitlines()}
        assert counts == {len(board.COLUMNS) + 1}


def test_lower_may_be_better(home: Path) -> None:
    row = read_row(home / "results" / NAME)
    worse = row.model_copy(update={"better": "lower", "value": 9.0, "recipe": "w"})
    better = row.model_copy(update={"better": "lower", "value": 3.0, "recipe": "b"})
    assert re.findall(r"\| \[(\w)\]", board.render([worse, better])) == ["b", "w"]


def test_a_family_has_one_table_for_each_recipe_and_a_mean(home: Path) -> None:
    row = read_row(home / "results" / NAME)

    def of(member: str, value: float, recipe: str) -> Row:
        data = Data(name=f"words/{member}", fingerprint=row.data.fingerprint)
        return row.model_copy(update={"data": data, "value": value, "recipe": recipe})

    text = board.render(
        [of("fra", 10.004, "a"), of("bul", 20.0, "a"), of("kor", 33.333, "a"), of("bul", 5.0, "b")]
    )
    assert text.count("#### words, test: F1 of parsing") == 1
    assert "| a | 7 | 21.11 |\n| b | 7 | 2 lacking |\n" in text  # of what the tables show
    assert re.findall(r"\| (\w+) \| \[(\w)\]", text) == [
        ("bul", "a"),
        ("fra", "a"),
        ("kor", "a"),
        ("bul", "b"),
    ]
    assert of("bul", 1.0, "a").name == f"words-bul-a-{row.seed}.json"


def test_the_tables_of_this_repository() -> None:
    assert board.out_of_date(ROOT / "benchmarks/results") == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (720, "12 min"), (12600, "3.5 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert board.duration(seconds) == text


# --- names, places, commands ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("wsj-sample", "brackets", 1, "test"), "wsj-sample-brackets-1.json"),
        (("wsj-sample", "brackets", 1, "dev"), "wsj-sample-brackets-1-dev.json"),
        (("a b/ü", "r\\s", 12, "test"), "a-b-r-s-12.json"),
    ],
)
def test_file_names(parts: tuple[str, str, int, str], name: str) -> None:
    assert file_name(*parts) == name


@given(st.lists(st.text().map(lambda text: text.replace("\n", ""))))
def test_packing_is_a_function_of_the_lines(lines: list[str]) -> None:
    assert packed(lines) == packed(lines)
    assert gzip.decompress(packed(lines)).decode("utf-8").split("\n") == [*lines, ""]


def test_an_output_of_several_lines() -> None:
    with pytest.raises(DataError) as raised:
        packed(["a", "b\nc"])
    assert str(raised.value) == "output 2 is published as several lines; it must be one."


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shared/data").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    monkeypatch.setenv("SEQTRANS_DATA", str(tmp_path / "shared"))
    monkeypatch.chdir(tmp_path)
    for given_path in (f"{tmp_path}/shared/data/x", "shared/data/x", "link/data/x"):
        assert portable_path(given_path) == "$SEQTRANS_DATA/data/x"
    assert portable_path(str(ROOT / "runs/silver.trees")) == "runs/silver.trees"
    assert portable_path("/elsewhere/ptb") == "$SEQTRANS_DATA/data/ptb"
    assert local_path("$SEQTRANS_DATA/data/x") == f"{tmp_path}/shared/data/x"
    assert local_path("runs/silver.trees") == str(ROOT / "runs/silver.trees")
    (tmp_path / "runs/first").mkdir(parents=True)
    (tmp_path / "runs/first/config.json").touch()
    assert portable_path("runs/first") == "runs/first"


def test_what_of_a_task_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of files, too; a title is none, though it may have a slash."""
    monkeypatch.setenv("SEQTRANS_DATA", str(tmp_path))
    values = {
        "train": [f"{tmp_path}/a.tsv", f"{tmp_path}/b.tsv"],
        "dev": [],
        "units": None,
        "title": "sets/one",
        "dev_size": 3,
    }
    assert path_keys(PairsSettings, values) == ["train"]
    there = portable(values, ["train"], "task")
    assert there == {**values, "train": ["$SEQTRANS_DATA/a.tsv", "$SEQTRANS_DATA/b.tsv"]}
    assert path_keys(PairsSettings, there) == ["train"]
    assert moved(there["train"], local_path) == values["train"]
    assert joined([f"task.train={','.join(there['train'])}"]) == (
        'task.train="$SEQTRANS_DATA"/a.tsv,"$SEQTRANS_DATA"/b.tsv'
    )


def test_places_that_would_become_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEQTRANS_DATA", str(tmp_path))
    values = {"train": "/a/x.trees", "dev": "/b/x.trees", "silver_weight": 2.0}
    with pytest.raises(SettingsError) as raised:
        portable(values, ["train", "dev"], "task")
    assert str(raised.value) == (
        "task.train=/a/x.trees and task.dev=/b/x.trees would both be recorded as "
        "$SEQTRANS_DATA/data/x.trees; set SEQTRANS_DATA to a folder that holds both."
    )
    assert portable({**values, "dev": "/a/x.trees"}, ["train", "dev"], "task")["silver_weight"] == 2


WORDS = (
    "model=small",
    "model.dropout=0.25",
    "model.pace=none",
    "model.norm=pre",
    "training=base",
    "training.lr=2e-3",
    "training.steps=1e5",
    "training.clip=1",
    "training.dry_run=no",
    "training.save_minutes=10",
    "decoder=greedy",
    "decoder.extra=7",
    "data.tokens=4000",
    "task.subwords=300",
    "task.leaves=words",
    "task.treebank=/data/my trees",
    "task.test_sections=23,24",
    "task.parameters=a'b.prm",
    "run=runs/x y",
    "run.seed=3",
    "run.threads=2",
)


def flat(words: list[str]) -> Mapping[str, Any]:
    """All settings that the words give."""
    return resolve(parse_words(words), registry()).flat()


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(WORDS)))
def test_the_training_command_gives_the_same_settings(chosen: set[str]) -> None:
    before = flat(["task=parsing", *chosen])
    words = training_words(before, registry())
    assert flat(words) == before
    assert len(words) <= 1 + len(chosen)


def test_defaults_need_no_words() -> None:
    assert training_words(flat(["task=parsing"]), registry()) == ["task=parsing"]
    chosen = flat(["task=parsing", "model=tiny", "decoder=beam", "decoder.alpha=0.3", "run.seed=1"])
    assert training_words(chosen, registry()) == ["task=parsing"]
    assert training_command(chosen, registry(), 1, "no") == (
        "accelerate launch -m seqtrans.train task=parsing"
    )
    assert training_command(chosen, registry(), 2, "bf16") == (
        "accelerate launch --multi_gpu --num_processes 2 --mixed_precision bf16 "
        "-m seqtrans.train task=parsing"
    )


def test_commands_mean_the_same_to_a_shell() -> None:
    words = ["task=parsing", "task.treebank=$SEQTRANS_DATA/data/my trees", "run=a'b $x", "n=\\"]
    result = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {joined(words)}"],
        env={**os.environ, "SEQTRANS_DATA": "/my data"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines() == [
        "task=parsing",
        "task.treebank=/my data/data/my trees",
        "run=a'b $x",
        "n=\\",
    ]


def test_the_evaluation_command() -> None:
    changes = {"decoder": {"name": "beam", "width": "8"}, "task": {"constrained": "no"}}
    assert evaluation_command({"runs/x": ()}, "test", "best", changes) == (
        "seqtrans evaluate run=runs/x split=test step=best decoder=beam decoder.width=8 "
        "task.constrained=no"
    )
    assert evaluation_command({"runs/x": (1, 2), "runs/y": (3,)}, "dev", "average", {}) == (
        "seqtrans average run=runs/x last=2 until=2 && seqtrans average run=runs/y last=1 until=3 "
        "&& seqtrans evaluate run=runs/x,runs/y split=dev step=average"
    )


def test_several_runs_that_decode_as_one(home: Path, tmp_path: Path, capsys: Captured) -> None:
    shutil.copytree(home / "run", tmp_path / "other")
    (tmp_path / "README.md").write_text(f"{board.BEGIN}\n{board.END}\n", "utf-8")
    results = tmp_path / "results"
    both = f"run={home}/run,{tmp_path}/other"
    assert front.main(["record", both, "recipe=two", f"results={results}"]) == 0
    one, two = read_row(home / "results" / NAME), read_row(next(iter(rows(results))))
    assert two.recipe == "two"
    assert two.parameters == 2 * one.parameters
    assert two.updates == 2 * one.updates
    assert two.training.seconds == 2 * one.training.seconds
    assert two.value == one.value
    assert two.command.training.split(" && ") == [
        one.command.training,
        one.command.training.replace("runs/run", "runs/other"),
    ]
    assert "run=runs/run,runs/other " in two.command.evaluation
    assert front.main(["board", f"results={results}"]) == 0
    assert verified(results, capsys)[0] == 0


# --- what a task publishes --------------------------------------------------------------------


def parsing_task() -> Any:
    from seqtrans_tasks.parsing.task import Parsing

    return Parsing(ParsingSettings())


def parse_of(tree: Tree | Leaf, repairs: Mapping[str, int] | None = None) -> Any:
    from seqtrans_tasks.parsing.task import Parse

    return Parse(tree, Counter(repairs or {}))


@settings(max_examples=30, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.dictionaries(st.sampled_from(repair.RULES), st.integers(1, 9)),
)
def test_a_published_parse_is_recovered(random: Random, repairs: dict[str, int]) -> None:
    tree, _ = grammar.write_sentence(random)
    task = parsing_task()
    before = write_tree(tree)
    line = task.publish(parse_of(tree, repairs))
    assert write_tree(tree) == before
    assert re.findall(r" ([^\s()]+)\)", line.partition("\t")[0]) == [
        str(number) for number in range(len(leaves(tree)))
    ]
    found = task.recover(line, tree)
    assert same(found.tree, tree)
    assert found.repairs == repairs


def test_a_deep_parse_is_recovered() -> None:
    tree: Tree | Leaf = Leaf("NN", "heron")
    for _ in range(100_000):
        tree = Tree("X", [tree])
    task = parsing_task()
    assert same(task.recover(task.publish(parse_of(tree)), tree).tree, tree)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "(S (NN 0) (NN 2))",
            "the leaves of the tree must be the numbers from 0 to 1 in order, one for each word of "
            "the sentence.",
        ),
        (
            "(S (NN 0))\t{}",
            "the leaves of the tree must be the numbers from 0 to 1 in order, one for each word of "
            "the sentence.",
        ),
        ("", "the line: there is no tree, but exactly one in brackets is expected."),
        ("(S (NN 0) (NN 1))\tx", "what follows the tree is no count of repairs: 'x'."),
        ("(S (NN 0) (NN 1))\t[]", "what follows the tree is no count of repairs: '[]'."),
        (
            '(S (NN 0) (NN 1))\t{"no rule": 1}',
            "what follows the tree is no count of repairs: '{\"no rule\": 1}'.",
        ),
        (
            '(S (NN 0) (NN 1))\t{"no root": 0}',
            "what follows the tree is no count of repairs: '{\"no root\": 0}'.",
        ),
    ],
)
def test_lines_that_are_no_parse(line: str, message: str) -> None:
    example = Tree("S", [Leaf("NN", "heron"), Leaf("NN", "pond")])
    with pytest.raises(DataError) as raised:
        parsing_task().recover(line, example)
    assert str(raised.value) == message


def test_a_split_read_alone_is_the_prepared_one(home: Path, tmp_path: Path) -> None:
    from seqtrans_tasks.parsing.task import Parsing

    paths = {split: home / f"data/{split}.trees" for split in ("train", "dev", "test")}
    prepared, alone = Parsing(ParsingSettings(**paths)), Parsing(ParsingSettings(**paths))
    prepared.open(home / "run/task")
    for split in paths:
        alone.open_split(split, tmp_path)
        assert alone.data(split) == prepared.data(split)
        pairs = zip(alone.examples(split), prepared.examples(split), strict=True)
        assert all(same(one, other) for one, other in pairs)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError) as raised:
        prepared.data("final")
    assert str(raised.value) == "there is no split 'final'; there are: train, dev, test."


def test_what_tasks_do_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests/plugin_example"))
    from seqtrans_displays import DisplaySettings  # type: ignore[import-not-found, unused-ignore]
    from seqtrans_displays.task import Displays  # type: ignore[import-not-found, unused-ignore]

    task = Displays(DisplaySettings())
    task.open_split("test", tmp_path)
    name, fingerprint = task.data("test")
    assert name == "displays"
    assert re.fullmatch("[0-9a-f]{64}", fingerprint)
    assert fingerprint != task.data("dev")[1]
    assert task.recover(task.publish("123"), "124") == "123"


# --- the commands -----------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help(words: list[str], capsys: Captured) -> None:
    assert front.main(words) == 0
    text = capsys.readouterr().out
    assert text == f"{inspect.getdoc(front.front)}\n"
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert listed == list(front.COMMANDS)


@pytest.mark.parametrize("command", front.COMMANDS)
def test_help_of_a_command(command: str, capsys: Captured) -> None:
    assert front.main([command, "--help"]) == 0
    text = capsys.readouterr().out
    for part in ("usage", "example"):
        assert re.search(rf"^{part}: python -m benchmarks {command}\b", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 100


def test_an_unknown_command(capsys: Captured) -> None:
    assert front.main(["recrod"]) == 2
    assert capsys.readouterr().err == (
        "seqtrans: no command is called 'recrod'; did you mean record?; there are: "
        f"{', '.join(front.COMMANDS)}\n"
    )


def test_an_unknown_setting_of_verify(capsys: Captured) -> None:
    assert front.main(["verify", "result=x"]) == 2
    assert capsys.readouterr().err == ("seqtrans: result: no such setting; did you mean results?\n")
