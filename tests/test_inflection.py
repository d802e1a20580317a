"""Inflection: lemmas and features as symbols, forms as symbols, and lines for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtrans.errors import DataError, SettingsError
from seqtrans.settings import fill
from seqtrans_tasks.inflection import InflectionSettings
from seqtrans_tasks.inflection.task import Inflection, question, spell
from seqtrans_tasks.pairs.task import Pair
from seqtrans_tasks.pairs.units import Inventory

TABLE = [
    ("walk", "walked", "V;PST"),
    ("ausweisen", "wies aus", "V;IND;PST;3;SG"),
    ("give up", "gives up", "V;PRS;3;SG"),
    ("a+b", "a+bs", "N;PL"),
    ("Bär", "Bären", "N;NOM(GEN);PL"),
]


def written(path: Path, rows: list[tuple[str, ...]]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def prepared(folder: Path, **given: Any) -> Inflection:
    if not given.get("train"):
        path = written(folder / "table.tsv", TABLE)
        given = {"train": (path,), "dev": (path,), **given}
    settings = InflectionSettings(**given)
    target = folder / "task"
    target.mkdir()
    Inflection(settings).prepare(target)
    task = Inflection(settings)
    task.open(target)
    return task


def test_letters_and_features_are_symbols(tmp_path: Path) -> None:
    task = prepared(tmp_path)
    assert (
        list(task.examples("dev"))
        == list(task.examples("train"))
        == [
            Pair("w a l k +V +PST", ("w a l k e d",)),
            Pair("a u s w e i s e n +V +IND +PST +3 +SG", ("w i e s ␣ a u s",)),
            Pair("g i v e ␣ u p +V +PRS +3 +SG", ("g i v e s ␣ u p",)),
            Pair("a + b +N +PL", ("a + b s",)),
            Pair("B ä r +N +NOM(GEN) +PL", ("B ä r e n",)),
        ]
    )


def test_lines_for_people(tmp_path: Path) -> None:
    """An input is a line of lemma and features, an output the form as it is written."""
    task = prepared(tmp_path)
    for (lemma, form, features), example in zip(TABLE, task.examples("dev"), strict=True):
        assert task.read(f"{lemma}\t{features}") == task.input(example)
        output = task.decode(task.encode_target(example), task.input(example))
        assert task.write(output) == form
        assert task.recover(task.publish(output), example) == output
        assert task.example(form).target == example.target


@pytest.mark.parametrize("line", ["walk", "walk V;PST"])
def test_a_line_without_features(line: str) -> None:
    with pytest.raises(DataError) as caught:
        Inflection(InflectionSettings()).read(line)
    assert str(caught.value) == (
        "a lemma and its features, such as 'walk\tV;PST', have a tab between."
    )


def test_a_blank_line() -> None:
    with pytest.raises(DataError) as caught:
        Inflection(InflectionSettings()).read(" \t ")
    assert str(caught.value) == "there is no text."


@given(word=st.text(st.characters(exclude_characters="␣\n", exclude_categories=["Cs"])))
def test_a_form_comes_back_as_it_was_spelt(word: str) -> None:
    task = Inflection(InflectionSettings())
    plain = "".join(" " if letter.isspace() else letter for letter in word.strip())
    assert task.write(spell(word)) == plain
    assert spell(plain) == spell(word)


def test_odd_features() -> None:
    assert question("x", " V ; ;PST LGSPEC1; ") == "x +V +PST␣LGSPEC1"
    assert question("", "") == ""


def test_features_are_no_letters_of_the_lemma(tmp_path: Path) -> None:
    """They all come at its end, and the reader doesn't move along."""
    for shared in (True, False):
        folder = tmp_path / str(shared)
        folder.mkdir()
        task = prepared(folder, shared=shared)
        assert isinstance(task.source, Inventory)
        paces = task.source_vocabulary.paces
        assert paces is not None
        assert len(paces) == task.source_vocabulary.size
        for id, unit in enumerate(task.source.units, start=4):
            assert paces[id] == (unit == "+" or not unit.startswith("+"))
        assert (task.source_vocabulary == task.target_vocabulary) == shared


def test_scores(tmp_path: Path) -> None:
    task = prepared(tmp_path)
    examples = task.examples("dev")
    right = [example.target for example in examples]
    score = task.score(right, examples)
    assert (score.metric, score.value) == ("exact match", 100)
    score = task.score(["w a l k d", *right[1:]], examples)
    assert score.value == 80
    assert score.figures["edit distance"] == pytest.approx(1 / 5)
    assert task.maximise
    assert "edit distance" in task.compare({"a": right, "b": right[::-1]}, examples).report


def test_a_column_of_its_own(tmp_path: Path) -> None:
    """UniMorph's older tables have the features between lemma and form."""
    path = written(tmp_path / "other.tsv", [(lemma, tags, form) for lemma, form, tags in TABLE])
    other = prepared(tmp_path, train=(path,), dev=(path,), target_column="3", features_column=2)
    (tmp_path / "plain").mkdir()
    assert other.examples("dev") == prepared(tmp_path / "plain").examples("dev")


@pytest.mark.parametrize("given", [{"metric": "exact"}, {"lowercase": "true"}, {"ter": "true"}])
def test_it_has_a_score_of_its_own(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as caught:
        fill(InflectionSettings, given, "task")
    assert str(caught.value) == (
        "task: task.metric, task.lowercase and task.ter have no effect: forms are scored by "
        "exact match and edit distance"
    )


def test_tables_that_are_wrong(tmp_path: Path) -> None:
    path = written(tmp_path / "short.tsv", [TABLE[0], ("walk", "walked")])
    with pytest.raises(DataError) as caught:
        prepared(tmp_path, train=(path,))
    assert str(caught.value) == (
        f"{path}, line 2: needs 3 columns, separated by tabs, and has 2: 'walk\\twalked'."
    )
    given = {"train": (path,), "source_column": "lemma", "target_column": "form"}
    with pytest.raises(DataError) as caught:
        list(Inflection(InflectionSettings(**given)).examine(tmp_path))
    assert str(caught.value) == f"{path}: columns of lemmas and forms are given by number."


@pytest.mark.parametrize("language", ["german", "finnish"])
def test_the_real_tables(shared: Path, tmp_path: Path, language: str) -> None:
    folder = shared / "data" / "conll2018-inflection"
    names = {"train": "train-medium", "dev": "dev", "test": "test"}
    task = prepared(
        tmp_path, **{split: (folder / f"{language}-{name}.tsv",) for split, name in names.items()}
    )
    for split in names:
        account = task.summary["splits"][split]["account"]
        assert (account["read"], account["kept"]) == (1000, 1000)
    lines = (folder / f"{language}-test.tsv").read_text("utf-8").splitlines()
    for line, example in zip(lines, task.examples("test"), strict=True):
        lemma, form, features = line.split("\t")
        assert task.write(task.reference(example)) == form
        assert task.read(f"{lemma}\t{features}") == example.source
