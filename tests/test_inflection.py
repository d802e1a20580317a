"""Inflection: lemmas and features as symbols, forms as symbols, and lines for people."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtrans.errors import DataError, SettingsError
from seqtrans.settings import fill
from seqtrans_tasks.inflection import InflectionSettings
from seqtrans_tasks.inflection.inventing import LEAST, invent, stems
from seqtrans_tasks.inflection.task import Inflection, question, spell
from seqtrans_tasks.pairs.task import Pair
from seqtrans_tasks.pairs.units import UNKNOWN, Inventory

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
    target.mkdir(parents=True)
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


def test_a_line_without_a_lemma() -> None:
    with pytest.raises(DataError) as caught:
        Inflection(InflectionSettings()).read(" \tV;PST")
    assert str(caught.value) == "there is no lemma before the tab."


def test_what_is_hidden_is_no_letter(tmp_path: Path) -> None:
    """Stems are made up before units are hidden, and of letters that are known."""
    task = prepared(tmp_path, invented=1.0, unknown=0.5)
    assert UNKNOWN not in task.letters
    drawn, _ = task.training(1, 1).drawn(np.arange(len(TABLE)), 0)
    table = (tmp_path / "table.tsv",)
    plain, _ = (
        prepared(tmp_path / "plain", train=table, dev=table, invented=1.0)
        .training(1, 1)
        .drawn(np.arange(len(TABLE)), 0)
    )
    assert (drawn.sources.values == UNKNOWN).any()
    assert (drawn.targets.values == plain.targets.values).all()
    seen = drawn.sources.values != UNKNOWN
    assert (drawn.sources.values[seen] == plain.sources.values[seen]).all()


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


# Scores of other files


def test_its_own_tables_are_references(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from seqtrans import compare
    from seqtrans.commands import run

    table = written(tmp_path / "table.txt", [(), *TABLE])
    task = Inflection(InflectionSettings())
    pairs = [Pair(question(lemma, features), (spell(form),)) for lemma, form, features in TABLE]
    assert task.read_references(table) == [Pair("", ("",)), *pairs]
    forms = written(tmp_path / "forms", [(), *((form,) for _, form, _ in TABLE)])
    assert [pair.target for pair in task.read_references(forms)] == [
        pair.target for pair in task.read_references(table)
    ]
    for reference in (table, forms):
        argv = [str(forms), "task=inflection", f"reference={reference}"]
        assert run(compare.main, argv) == 0
        assert capsys.readouterr().out.startswith("exact match = 100.00  (6 of 6 forms)\n")
    assert run(compare.main, [str(table), "task=inflection", f"reference={forms}"]) == 2
    assert capsys.readouterr().err == (
        f"seqtrans: {table}, line 2: there is a tab, and a line must have nothing but a form.\n"
    )
    columns = {"target_column": "3", "features_column": 2}
    other = written(tmp_path / "other", [(lemma, tags, form) for lemma, form, tags in TABLE])
    assert Inflection(InflectionSettings(**columns)).read_references(other) == pairs  # type: ignore[arg-type]


def test_a_run_is_scored_on_another_test_set(tmp_path: Path) -> None:
    task = prepared(tmp_path)
    table = written(tmp_path / "other.tsv", TABLE[:2])
    again = Inflection(task.settings.model_copy(update={"test": (table,)}))
    again.open(tmp_path / "task")
    assert again.examples("test") == task.examples("dev")[:2]
    assert {"test", "dev", "test_source"} <= InflectionSettings.late


# Invented stems


@given(st.lists(st.integers(4, 9), max_size=12), st.lists(st.integers(4, 9), max_size=12))
def test_stems_are_what_both_sides_share(lemma: list[int], form: list[int]) -> None:
    found = stems(lemma, form)
    lengths = [length for *_, length in found]
    assert lengths == sorted(lengths, reverse=True)
    for at, place, length in found:
        assert length >= LEAST
        assert lemma[at : at + length] == form[place : place + length]
    for side in (0, 1):
        places = [stem[side] + step for stem in found for step in range(stem[2])]
        assert len(places) == len(set(places))
    longest = max(
        (n for n in range(len(lemma) + 1) for i in range(len(lemma) - n + 1)
         if any(lemma[i : i + n] == form[j : j + n] for j in range(len(form) - n + 1))),
        default=0,
    )  # fmt: skip
    assert (lengths[0] if lengths else 0) == (longest if longest >= LEAST else 0)


def test_stems_that_change_places() -> None:
    """``herabsetzen`` and ``setzt herab`` share both parts, whichever comes first."""
    assert stems([ord(c) for c in "herabsetzen"], [ord(c) for c in "setzt herab"]) == [
        (0, 6, 5),
        (5, 0, 4),
    ]


@given(st.text("abcdef", max_size=12), st.text("abcdef", max_size=12), st.randoms())
def test_invented_words_differ_inside_a_stem_alone(lemma: str, form: str, random: Random) -> None:
    before, after = [ord(c) for c in lemma], [ord(c) for c in form]
    made, formed = invent(before, after, [ord("X")], random)
    assert len(made) == len(before)
    assert len(formed) == len(after)
    changed = [i for i, (old, new) in enumerate(zip(before, made, strict=True)) if old != new]
    moved = [i for i, (old, new) in enumerate(zip(after, formed, strict=True)) if old != new]
    if not stems(before, after):
        assert not changed
        assert not moved
        return
    assert changed == list(range(changed[0], changed[0] + len(changed)))
    assert any(
        changed == list(range(at + 1, at + length - 1))
        and moved == list(range(place + 1, place + length - 1))
        for at, place, length in stems(before, after)
    )


def test_an_epoch_with_invented_stems(tmp_path: Path) -> None:
    """The epoch and the seed alone say which; features, and letters outside stems, stay."""
    task = prepared(tmp_path, invented=1.0)
    numbers = np.arange(len(TABLE))

    def lines(epoch: int) -> list[tuple[str, str]]:
        drawn, places = task.training(epoch, 1).drawn(numbers, 0)
        assert list(places) == list(numbers)
        return [
            (task.source.decode(drawn.sources[i][:-1].tolist()),
             task.target.decode(drawn.targets[i].tolist()))
            for i in numbers
        ]  # fmt: skip

    assert lines(1) == lines(1)
    assert any(lines(epoch) != lines(1) for epoch in (2, 3, 4))
    for (source, target), pair in zip(lines(1), task.examples("train"), strict=True):
        letters, kept = source.split(), pair.source.split()
        assert letters[0] == kept[0]
        assert [x for x in letters if len(x) > 1] == [x for x in kept if len(x) > 1]
        assert len(letters) == len(kept)
        assert len(target.split()) == len(pair.target.split())
    assert not Inflection(InflectionSettings()).varies
    with pytest.raises(SettingsError, match=r"task\.invented needs task\.shared=yes"):
        fill(InflectionSettings, {"invented": "0.5", "shared": "no"}, "task")
