"""Letters to phones: tables and dictionaries, several pronunciations, and their score."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from seqtrans.errors import DataError, SettingsError
from seqtrans.settings import fill
from seqtrans_tasks.g2p import G2pSettings
from seqtrans_tasks.g2p.task import G2p, dictionary
from seqtrans_tasks.pairs.reading import Table
from seqtrans_tasks.pairs.task import Pair

DICTIONARY = """\
;;; # CMUdict 0.7b
;;; more of the head
# and a new one's
##

'BOUT  B AW1 T
#HASH-MARK  HH AE1 SH M AA2 R K
A  AH0
A(1)  EY1
A(10)  AA1

;;; a comment on the way
aalborg ao1 l b ao r g # place, danish
aalborg(2) aa1 l b ao r g
a(b)c ey1 b iy1 s iy1
d'art\td aa1 r t
"""
WORDS = [
    ("'bout", "B AW1 T"),
    ("#hash-mark", "HH AE1 SH M AA2 R K"),
    ("a", "AH0"),
    ("a", "EY1"),
    ("a", "AA1"),
    ("aalborg", "ao1 l b ao r g"),
    ("aalborg", "aa1 l b ao r g"),
    ("a(b)c", "ey1 b iy1 s iy1"),
    ("d'art", "d aa1 r t"),
]


def written(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def prepared(folder: Path, **given: Any) -> G2p:
    task = G2p(G2pSettings(**given))
    target = folder / "task"
    target.mkdir()
    task.prepare(target)
    opened = G2p(task.settings)
    opened.open(target)
    return opened


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_dictionary(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path / "cmudict.dict", DICTIONARY.replace("\n", ending))
    found = list(dictionary(Table(path, 1, 2)))
    pairs = [pair for chunk in found for pair in zip(chunk.source, chunk.target, strict=True)]
    assert pairs == WORDS
    # Each pair has the number of its line, whatever was skipped before it.
    numbers = [chunk.first + place for chunk in found for place in range(len(chunk))]
    lines = DICTIONARY.split("\n")
    for number, (word, _) in zip(numbers, WORDS, strict=True):
        assert lines[number - 1].lower().startswith(word)


def test_a_word_without_phones(tmp_path: Path) -> None:
    path = written(tmp_path / "words.dict", ";;; head\na  AH0\nb # B\n")
    with pytest.raises(DataError) as caught:
        list(dictionary(Table(path, 1, 2)))
    assert str(caught.value) == f"{path}, line 3: a word without phones: 'b # B'."


def test_a_dictionary_of_comments(tmp_path: Path) -> None:
    train = written(tmp_path / "train.tsv", "ab\tx y\n" * 3)
    dev = written(tmp_path / "dev.dict", ";;; nothing\n")
    with pytest.raises(DataError) as caught:
        prepared(tmp_path, train=(train,), dev=(dev,))
    assert str(caught.value) == "dev has no pairs."


@pytest.mark.parametrize("name", ["dev.tsv", "dev.TSV", "dev.tsv.gz"])
def test_tables_are_no_dictionaries(tmp_path: Path, name: str) -> None:
    train = written(tmp_path / "train.tsv", "Ab(1)\tx y\n# a\tz\n")
    dev = written(tmp_path / name, "Ab(1)\tx # y\n")
    task = prepared(tmp_path, train=(train,), dev=(dev,))
    assert task.examples("dev") == [Pair("Ab(1)", ("x # y",))]
    assert list(task.examples("train")) == [Pair("Ab(1)", ("x y",)), Pair("# a", ("z",))]


@pytest.mark.parametrize("name", ["words.txt", "words.dict", "words", "words.gz"])
def test_a_tab_in_the_first_entry_makes_a_table(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, ";;; a comment\n\nNew York\tn u j o k\nab\tx y\n")
    train = written(tmp_path / "train.tsv", "ab\tx y\n" * 3)
    task = prepared(tmp_path, train=(train,), dev=(written(path, "New York\tn u\nA\tx\n"),))
    assert task.examples("dev") == [Pair("New York", ("n u",)), Pair("A", ("x",))]
    columns = {"source_column": "word", "target_column": "ipa"}
    path = written(tmp_path / name, "ipa\tn\tword\nn u\t1\tNew York\n")
    task = G2p(G2pSettings(test=(path,), **columns))
    task.open_split("test", tmp_path)
    assert task.examples("test") == [Pair("New York", ("n u",))]


def test_what_comes_before_the_first_entry_does_not_tell(tmp_path: Path) -> None:
    """A comment has a tab, and there are more of them than are read at once."""
    path = written(tmp_path / "words", ";;; a\tb\n" * 30_000 + "A  AH0\nd'art\td aa1\n")
    task = G2p(G2pSettings(test=(path,)))
    task.open_split("test", tmp_path)
    assert task.examples("test") == [Pair("a", ("AH0",)), Pair("d'art", ("d aa1",))]


@pytest.mark.parametrize(
    "columns", [{"target_column": "3"}, {"source_column": "a", "target_column": "b"}]
)
def test_a_dictionary_has_no_columns(tmp_path: Path, columns: dict[str, str]) -> None:
    path = written(tmp_path / "words.txt", "A  AH0\n")
    with pytest.raises(DataError) as caught:
        G2p(G2pSettings(test=(path,), **columns)).open_split("test", tmp_path)
    assert str(caught.value) == (
        f"task.source_column and task.target_column have no effect on {path}, which has no tab in "
        "its first entry and is read as a dictionary."
    )


def spelt(task: G2p, line: str) -> str:
    """What the model sees of a line, as text."""
    return task.source.decode(task.encode_source(task.read(line)).tolist())


def test_words_of_a_dictionary_have_no_case(tmp_path: Path) -> None:
    path = written(tmp_path / "cmudict", "WORDA  W ER1\nWordb  W ER2\n")
    dev = written(tmp_path / "dev.tsv", "WorDa\tW ER1\n")
    task = prepared(tmp_path, train=(path,), dev=(dev,))
    for line in ("WORDA", "worda", "Worda"):
        assert spelt(task, line) == "worda"
    assert task.examples("dev")[0].source == "WorDa"
    assert task.read("WORDA") == "WORDA"


@pytest.mark.parametrize("languages", [(), ("Di",)])
def test_case_is_ignored_in_preparation(tmp_path: Path, languages: tuple[str, ...]) -> None:
    """Where train has none: in units that are unknown, and in what is in train as well."""
    path = written(tmp_path / "cmudict", "WORDA  W ER1\nWordb  W ER2\n")
    dev = written(tmp_path / "dev.tsv", "WorDa\tW ER1\nWARD\tW ER2\n")
    task = prepared(tmp_path, train=(path,), dev=(dev,), languages=languages)
    assert task.summary["splits"]["dev"]["unknown"] == [0, 0]
    assert task.summary["overlap"] == {"dev": {"sources": 1, "pairs": 1}}
    assert (
        task.training(0, 1).sources[0].tolist()
        == task.encode_source("".join(f"{language}\t" for language in languages) + "worDA").tolist()
    )


def test_words_of_tables_have_their_case(tmp_path: Path) -> None:
    table = written(tmp_path / "train.tsv", "Ab\tx\nab\ty\n")
    entries = written(tmp_path / "words", "AB  x\n")
    for number, train in enumerate(((table,), (table, entries))):
        (tmp_path / f"{number}").mkdir()
        task = prepared(tmp_path / f"{number}", train=train, dev=(table,))
        assert spelt(task, "Ab") == "Ab"
    (tmp_path / "languages").mkdir()
    task = prepared(
        tmp_path / "languages", train=(table, entries), dev=(table, entries), languages=("Ta", "Di")
    )
    assert spelt(task, "Ta\tAb") == "Ta\tAb"
    assert spelt(task, "Di\tAb") == "Di\tab"


def test_every_pronunciation_is_learnt_and_any_is_right(tmp_path: Path) -> None:
    path = written(tmp_path / "cmudict", DICTIONARY)
    task = prepared(tmp_path, train=(path,), dev=(path,))
    assert [(pair.source, pair.target) for pair in task.examples("train")] == WORDS
    examples = task.examples("dev")
    assert [example.source for example in examples] == list(dict(WORDS))
    assert examples[2] == Pair("a", ("AH0", "EY1", "AA1"))
    right = [example.targets[-1] for example in examples]
    score = task.score(right, examples)
    assert (score.metric, score.value) == ("WER", 0)
    wrong = task.score(["", *right[1:]], examples)
    assert wrong.value == pytest.approx(100 / 6)
    assert wrong.figures["PER"] == pytest.approx(100 * 3 / wrong.figures["symbols"])
    assert not task.maximise
    assert task.compare({"a": right, "b": ["", *right[1:]]}, examples).report
    assert task.data("dev") == task.data("train")


def test_accents_come_off_their_letters(tmp_path: Path) -> None:
    train = written(tmp_path / "train.tsv", "\u00e9t\u00e9\te t e\n\uac00\tk a\n")
    task = prepared(tmp_path, train=(train,), dev=(train,))
    for line in ("\u00e9t\u00e9", "e\u0301te\u0301"):
        assert task.source.decode(task.encode_source(line).tolist()) == "e\u0301te\u0301"
    assert task.source.decode(task.encode_source("\uac00").tolist()) == "\u1100\u1161"
    assert task.examples("dev")[0] == Pair("\u00e9t\u00e9", ("e t e",))
    assert task.decode(task.encode_target(Pair("x", ("e t e",))), "x") == "e t e"
    assert task.training(0, 1).sources[0].tolist() == task.encode_source("\u00e9t\u00e9").tolist()


@pytest.mark.parametrize("given", [{"metric": "exact"}, {"lowercase": "true"}, {"ter": "true"}])
def test_it_has_a_score_of_its_own(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as caught:
        fill(G2pSettings, given, "task")
    assert str(caught.value) == (
        "task: task.metric, task.lowercase and task.ter have no effect: phones are scored by "
        "word and phone error rate"
    )


def test_all_that_is_wrong_at_once(tmp_path: Path) -> None:
    train = written(tmp_path / "train.dict", "a ah0\nb\n")
    dev = written(tmp_path / "dev.tsv", "a ah0\n")
    with pytest.raises(DataError) as caught:
        list(G2p(G2pSettings(train=(train,), dev=(dev,))).examine(tmp_path))
    assert str(caught.value).splitlines() == [
        f"{train}, line 2: a word without phones: 'b'.",
        f"{dev}, line 1: needs 2 columns, separated by tabs, and has 1: 'a ah0'.",
    ]


@pytest.mark.parametrize("language", ["kor", "fre", "vie"])
def test_the_real_tables(shared: Path, tmp_path: Path, language: str) -> None:
    folder = shared / "data" / "sigmorphon2020-g2p"
    given = {
        split: (folder / split / f"{language}_{split}.tsv",) for split in ("train", "dev", "test")
    }
    task = prepared(tmp_path, **given)
    counts = {split: facts["account"]["read"] for split, facts in task.summary["splits"].items()}
    assert counts == {"train": 3600, "dev": 450, "test": 450}
    assert task.summary["splits"]["train"]["account"]["dropped"] == {}
    assert len(task.examples("train")) == 3600
    for example in task.examples("test"):
        assert task.source.decode(task.encode_source(example.source).tolist()) is not None
    test = task.examples("test")
    assert task.score([example.target for example in test], test).value == 0


# --- several languages ------------------------------------------------------------------------


def several(folder: Path, **given: Any) -> G2p:
    """A language of small letters, and one of the same letters that sounds otherwise."""
    soft = written(folder / "soft.tsv", "aé\tx e\nab\tx y\n\tx\n")
    hard = written(folder / "hard.tsv", "aé\tk e\nab\tk t\n")
    files = (soft, hard)
    return prepared(folder, train=files, dev=files, languages=("soft", "hard"), **given)


def test_a_language_is_one_unit_before_the_spelling(tmp_path: Path) -> None:
    task = several(tmp_path)
    assert list(task.examples("dev"))[:2] == [
        Pair("soft\taé", ("x e",)),
        Pair("soft\tab", ("x y",)),
    ]
    assert [pair.source for pair in task.examples("train")] == [
        f"{language}\t{word}" for language in ("soft", "hard") for word in ("ae\u0301", "ab")
    ]
    soft, hard = (task.encode_source(f"{language}\tab").tolist() for language in ("soft", "hard"))
    assert soft[1:] == hard[1:]
    assert len(soft) == len("ab") + 2
    assert soft[0] != hard[0]
    summary = task.summary["splits"]["train"]
    assert summary["account"]["read"] == 5


def test_lines_of_several_languages(tmp_path: Path) -> None:
    task = several(tmp_path)
    assert task.read("hard\tbc") == "hard\tbc"
    problem = (
        "a line begins with a language and a tab, as in 'soft\\tword'; the languages of this model "
        "are: soft, hard."
    )
    for line in ("bc", "loud\tbc", "hard\t ", "\tbc"):
        with pytest.raises(DataError) as caught:
            task.read(line)
        assert str(caught.value) == problem
    only = G2p(G2pSettings(train=(tmp_path / "hard.tsv",), languages=("hard",)))
    assert only.read("bc") == only.read("hard\tbc") == "hard\tbc"


def test_rates_of_each_language(tmp_path: Path) -> None:
    task = several(tmp_path)
    examples = list(task.examples("dev"))
    assert [example.source for example in examples].index("") == 2  # of no language
    score = task.score(["x e", "x z", "", "k e", "k t"], examples)
    assert score.value == 40.0
    assert score.figures["groups"] == {
        "hard": {"WER": 0.0, "PER": 0.0},
        "soft": {"WER": 50.0, "PER": 25.0},
    }
    assert score.figures["means"] == {"WER": 25.0, "PER": 12.5}
    assert score.report.splitlines()[2:] == [
        "  hard          WER = 0.00  PER = 0.00",
        "  soft          WER = 50.00  PER = 25.00",
        "  mean          WER = 25.00  PER = 12.50",
    ]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"languages": "a"},
            "task.languages needs one for each file of task.train, 2 in all, and has 1",
        ),
        ({"languages": "a,b c"}, "task.languages: 'b c' is no name without blanks"),
        *(
            (
                {"languages": "a,b", "source_level": level},
                "task.languages needs task.source_level=character",
            )
            for level in ("symbols", "none", "tagged")
        ),
    ],
)
def test_languages_that_do_not_fit(given: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        fill(G2pSettings, {"train": "a.tsv,b.tsv", **given}, "task")
    assert problem in str(caught.value)


# --- scores of other files --------------------------------------------------------------------


def compared(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    from seqtrans import compare
    from seqtrans.commands import run

    status = run(compare.main, [str(word) for word in argv])
    return status, *capsys.readouterr()


TABLE = "ab\tx y\nAc\tx z\nab\tx\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("g.tsv", TABLE, ["ab", "Ac"]),
        ("g.txt", TABLE, ["ab", "Ac"]),
        ("g.tsv.gz", TABLE, ["ab", "Ac"]),
        ("g.dict", "ab x y\nAc x z\nab(2) x\n", ["ab", "ac"]),
        ("cmudict", ";;; head\nAB x y\nAC x z\nAB(1) x\n", ["ab", "ac"]),
        ("g", "AB  x y\nAC  x z\nAB(1)  x\n", ["ab", "ac"]),
    ],
)
def test_references_in_every_form(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: str,
    words: list[str],
) -> None:
    """A word has one line of outputs, however many pronunciations it has."""
    path = written(tmp_path / name, content)
    assert G2p(G2pSettings()).read_references(path) == [
        Pair(words[0], ("x y", "x")),
        Pair(words[1], ("x z",)),
    ]
    outputs = written(tmp_path / "outputs", "x\nx z\n")
    status, out, err = compared(capsys, outputs, "task=g2p", f"reference={path}")
    assert (status, err) == (0, "")
    assert out.startswith("WER = 0.00  (0 of 2 words)\n")
    wrong = written(tmp_path / "wrong", "y\nx z\n")
    _, out, _ = compared(capsys, outputs, wrong, "task=g2p", f"reference={path}")
    assert "50.00" in out


def test_lines_of_phones_as_references(tmp_path: Path) -> None:
    path = written(tmp_path / "lines", "x y\nz\n")
    assert G2p(G2pSettings()).read_references(path) == [Pair("", ("x y",)), Pair("", ("z",))]


def test_columns_where_there_should_be_phones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = written(tmp_path / "g.tsv", TABLE)
    lines = written(tmp_path / "lines", "x y\nab\tx\n")
    said = "there is a tab, and a line must have nothing but phones, blanks between."
    for argv in ((lines, f"reference={table}"), (table, f"reference={lines}")):
        status, out, err = compared(capsys, *argv, "task=g2p")
        assert (status, out) == (2, "")
        assert err == f"seqtrans: {lines}, line 2: {said}\n"


def test_a_run_is_scored_on_another_test_set(tmp_path: Path) -> None:
    train = written(tmp_path / "train.tsv", "ab\tx y\n" * 3)
    task = prepared(tmp_path, train=(train,), dev=(train,))
    other = written(tmp_path / "words", "A  x\nA(2)  y\n")
    again = G2p(fill(G2pSettings, {**task.settings.model_dump(), "test": str(other)}, "task"))
    again.open(tmp_path / "task")
    assert again.examples("test") == [Pair("a", ("x", "y"))]
    assert {"test", "dev", "test_source"} <= G2pSettings.late
