"""The task of pairs: texts to ids and back, epochs, splits, scores, and all of it by commands."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtrans.corpus import Corpus
from seqtrans.data import Epoch
from seqtrans.errors import DataError, SettingsError
from seqtrans.settings import fill
from seqtrans_tasks.pairs import PairsSettings
from seqtrans_tasks.pairs.reading import Chunk, Files
from seqtrans_tasks.pairs.task import Decoded, Pair, Pairs
from seqtrans_tasks.pairs.units import EOS, UNKNOWN

WORDS = ["the", "cat", "sees", "two", "dogs", "and", "hears", "birds"]


def drawn(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Lines of words, and the same written backwards."""
    draw = random.Random(seed)
    lines = [draw.choices(WORDS, k=draw.randint(1, 6)) for _ in range(count)]
    return [(" ".join(line), " ".join(reversed(line))) for line in lines]


def written(folder: Path, name: str, pairs: list[tuple[str, str]]) -> dict[str, tuple[Path]]:
    """The settings that name the two files of a split."""
    folder.mkdir(parents=True, exist_ok=True)
    given: dict[str, tuple[Path]] = {}
    for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        path = folder / f"{name}.{side}"
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
        given[f"{name}_{side}"] = (path,)
    return given


def prepared(folder: Path, **given: Any) -> Pairs:
    """A task, prepared in a folder and opened."""
    if not any(key.startswith("train") for key in given):
        data = folder / "data"
        given = {**written(data, "train", drawn(40)), **written(data, "dev", drawn(6, 1)), **given}
    settings = PairsSettings(**given)
    Pairs(settings).prepare(made(folder / "task"))
    return opened(folder / "task", settings)


def opened(folder: Path, settings: PairsSettings) -> Pairs:
    task = Pairs(settings)
    task.open(folder)
    return task


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    return prepared(tmp_path_factory.mktemp("pairs"), vocabulary=300)


# Text to ids and back

odd = st.text() | st.lists(st.sampled_from([*" \t\x00\r\u2028\ufeff", "<s>", "</s>", "cat"])).map(
    "".join
)


@given(line=odd.filter(lambda line: "\n" not in line))
def test_any_line_comes_back(byte_level: Pairs, line: str) -> None:
    example = Pair("cat", (line,))
    assert byte_level.decode(byte_level.encode_target(example), "cat") == line
    source = byte_level.encode_source(line).tolist()
    assert source[-1] == EOS
    assert min([3, *source[:-1]]) == 3
    assert byte_level.source.decode(source) == line


@given(ids=st.lists(st.integers(0, 258)))
def test_any_output_is_one_line(byte_level: Pairs, ids: list[int]) -> None:
    assert "\n" not in byte_level.write(byte_level.decode(ids, "cat"))


def test_an_output_with_ends_of_lines_stays_a_line(byte_level: Pairs) -> None:
    ids = byte_level.target.encode("two\nlines\n")
    assert byte_level.write(byte_level.decode(ids, "cat")) == "two lines "


def test_a_blank_line_has_a_blank_output(byte_level: Pairs) -> None:
    ids = byte_level.target.encode("something")
    for line in ("", "  ", "\t"):
        assert byte_level.decode(ids, line) == ""
        assert byte_level.encode_source(line)[-1] == EOS
        with pytest.raises(DataError) as caught:
            byte_level.read(line)
        assert str(caught.value) == "there is no text."


@pytest.mark.parametrize("level", ["subword", "character", "word", "symbols"])
def test_training_sees_what_decoding_does(tmp_path: Path, level: str) -> None:
    task = prepared(tmp_path, level=level, vocabulary=300, normalise="nfd")
    corpus = task.training(0, 1)
    examples = task.examples("train")
    assert [(pair.source, pair.target) for pair in examples] == drawn(40)
    for number, example in enumerate(examples):
        assert corpus.sources[number].tolist() == task.encode_source(example.source).tolist()
        assert corpus.targets[number].tolist() == task.encode_target(example)


def test_training_pairs_by_number(byte_level: Pairs) -> None:
    pairs = byte_level.examples("train")
    assert isinstance(pairs, Decoded)
    assert len(pairs) == 40
    assert pairs[-1] == pairs[39] == Pair(drawn(40)[39][0], (drawn(40)[39][1],))
    assert pairs[2:4] == [pairs[2], pairs[3]]
    with pytest.raises(IndexError):
        pairs[40]


def test_lines_of_dev_stay_as_they_are(tmp_path: Path) -> None:
    """One CR and one mark are dropped when they are read, and no more when they are read again."""
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes("\ufeff\ufeffx\r\r\n\ny\u2028\x00\tz".encode())
    target.write_bytes(b"1\r\r\n 2 \n3")
    task = prepared(
        tmp_path,
        **written(tmp_path / "data", "train", drawn(20)),
        dev_source=(source,),
        dev_target=(target,),
        level="character",
    )
    assert task.examples("dev") == [
        Pair("\ufeffx\r", ("1\r",)), Pair("", (" 2 ",)), Pair("y\u2028\x00\tz", ("3",)),
    ]  # fmt: skip


# Epochs


def whole(corpus: Corpus) -> Corpus:
    """What a window of all examples trains on."""
    return corpus.drawn(np.arange(len(corpus)), 0)[0]


def ids(corpus: Corpus) -> tuple[bytes, bytes]:
    return corpus.sources.values.tobytes(), corpus.targets.values.tobytes()


def test_dropout_is_a_function_of_seed_and_epoch(tmp_path: Path) -> None:
    task = prepared(tmp_path, vocabulary=300, dropout=0.3)
    epochs = {(e, seed): whole(task.training(e, seed)) for e in (0, 1) for seed in (1, 2)}
    assert len({ids(corpus) for corpus in epochs.values()}) == 4
    again = opened(tmp_path / "task", task.settings)
    for (epoch, seed), corpus in epochs.items():
        assert ids(whole(again.training(epoch, seed))) == ids(corpus)
        pairs = [(pair.source, pair.target) for pair in Decoded(corpus, task.source, task.target)]
        assert pairs == drawn(40)
        assert [source[-1] for source in corpus.sources] == [EOS] * 40
        assert EOS not in corpus.targets.values


def test_dropout_leaves_other_levels_alone(tmp_path: Path) -> None:
    task = prepared(
        tmp_path,
        source_level="word",
        shared=False,
        vocabulary=300,
        sample=2,
        dropout=0.5,
    )
    assert UNKNOWN in task.corpus.sources.values
    epoch = whole(task.training(0, 1))
    assert ids(epoch)[0] == ids(task.corpus)[0] == ids(whole(task.corpus))[0]
    assert ids(epoch)[1] != ids(task.corpus)[1]


def test_hidden_sources_are_a_function_of_seed_and_epoch(tmp_path: Path) -> None:
    task = prepared(tmp_path, level="symbols", unknown=0.3)
    epochs = {(e, seed): whole(task.training(e, seed)) for e in (0, 1) for seed in (1, 2)}
    assert len({ids(corpus)[0] for corpus in epochs.values()}) == 4
    plain = task.corpus.sources.values
    for (epoch, seed), corpus in epochs.items():
        assert ids(whole(task.training(epoch, seed))) == ids(corpus)
        assert ids(corpus)[1] == task.corpus.targets.values.astype(np.uint16).tobytes()
        hidden = corpus.sources.values == UNKNOWN
        assert np.array_equal(corpus.sources.values[~hidden], plain[~hidden])
        assert not hidden[plain == EOS].any()
        assert 0.15 < hidden[plain != EOS].mean() < 0.45
    assert UNKNOWN not in plain


def test_units_of_another_run(tmp_path: Path) -> None:
    """They are the same, whatever there is to be learnt from this run's own text."""
    first = prepared(tmp_path / "first", vocabulary=300)
    second = prepared(
        tmp_path / "second",
        **written(tmp_path / "data", "train", [("zebra", "arbez"), ("ox", "xo")] * 5),
        units=tmp_path / "first",
    )
    assert second.source is second.target
    for text in ("the cat sees", "zebra"):
        assert second.source.encode(text) == first.source.encode(text)
    assert second.target_vocabulary == first.target_vocabulary


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"level": "word"},
            "task.units={run}: its units are subword for both sides together, and those that are "
            "wanted here word for both sides together.",
        ),
        (
            {"shared": False},
            "task.units={run}: its units are subword for both sides together, and those that are "
            "wanted here subword and subword.",
        ),
        ({"units": "x"}, "task.units=x: there is no run of pairs with units of its own."),
    ],
)
def test_units_that_do_not_fit(tmp_path: Path, given: dict[str, Any], problem: str) -> None:
    run = tmp_path / "first"
    prepared(run, vocabulary=300)
    data = written(tmp_path / "data", "train", drawn(10))
    with pytest.raises(DataError) as raised:
        prepared(tmp_path / "second", **{**data, "units": run, **given})
    assert str(raised.value) == problem.format(run=run)


def test_units_that_are_damaged(tmp_path: Path) -> None:
    run = tmp_path / "first"
    prepared(run, vocabulary=300)
    units = next((run / "task").glob("source.units*"))
    units.write_text('{"units": []}', encoding="utf-8")
    data = written(tmp_path / "data", "train", drawn(10))
    with pytest.raises(DataError, match=f"^{units} holds no units: KeyError"):
        prepared(tmp_path / "second", **{**data, "units": run})


def test_nothing_to_vary(byte_level: Pairs) -> None:
    assert byte_level.training(0, 1) is byte_level.training(5, 2)


@pytest.mark.parametrize("varied", [{}, {"unknown": 0.1}])
def test_a_mixture(tmp_path: Path, varied: dict[str, float]) -> None:
    first, second = (
        written(tmp_path / name, "train", drawn(count)) for name, count in (("a", 10), ("b", 4))
    )
    task = prepared(
        tmp_path,
        train_source=first["train_source"] + second["train_source"],
        train_target=first["train_target"] + second["train_target"],
        **written(tmp_path / "data", "dev", drawn(3)),
        level="symbols",
        weights=(1, 3),
        **varied,
    )
    corpus = task.training(0, 1)
    assert corpus.mixture == ((10, 1.0), (4, 3.0))
    numbers = Epoch(corpus, 100, 1, 0).numbers(0)
    assert np.bincount(numbers, minlength=14).tolist() == [1] * 10 + [3] * 4


def test_a_part_of_which_nothing_is_left_has_its_weight(tmp_path: Path) -> None:
    first, second = (
        written(tmp_path / name, "train", pairs)
        for name, pairs in (("a", drawn(5)), ("b", [("", "x")] * 2))
    )
    task = prepared(
        tmp_path,
        train_source=first["train_source"] + second["train_source"],
        train_target=first["train_target"] + second["train_target"],
        **written(tmp_path / "data", "dev", drawn(3)),
        level="symbols",
        weights=(2, 3),
    )
    assert task.corpus.mixture == ((5, 2.0), (0, 3.0))
    assert sorted(Epoch(task.corpus, 100, 1, 0).numbers(0)) == sorted([*range(5)] * 2)


# Splits


def test_it_opens_without_the_data(tmp_path: Path) -> None:
    task = prepared(tmp_path, vocabulary=300)
    said, dev = list(task.describe()), task.examples("dev")
    shutil.rmtree(tmp_path / "data")
    again = opened(tmp_path / "task", task.settings)
    assert list(again.describe()) == said
    assert again.examples("dev") == dev
    assert ids(again.training(0, 1)) == ids(task.training(0, 1))
    assert again.source.as_json() == task.source.as_json()


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_split_alone_is_what_was_prepared(tmp_path: Path, split: str) -> None:
    data = tmp_path / "data"
    given = {**written(data, "train", drawn(40)), **written(data, "dev", drawn(6, 1))}
    given |= written(data, "test", [("", "x"), ("y\r", "z")])
    task = prepared(tmp_path, **given, level="character")
    alone = Pairs(task.settings)
    alone.open_split(split, made(tmp_path / "alone"))
    assert alone.data(split) == task.data(split)
    assert alone.examples(split) == task.examples(split)


def test_a_held_out_split_alone(tmp_path: Path) -> None:
    task = prepared(tmp_path, **written(tmp_path / "data", "train", drawn(40)), level="character")
    alone = Pairs(task.settings)
    alone.open_split("dev", made(tmp_path / "alone"))
    assert alone.data("dev") == task.data("dev")
    assert alone.examples("dev") == task.examples("dev")
    assert len(alone.examples("dev")) == 4


def test_a_test_set_needs_nothing_else(tmp_path: Path) -> None:
    task = Pairs(PairsSettings(**written(tmp_path / "mine", "test", drawn(3))))
    task.open_split("test", made(tmp_path / "alone"))
    assert task.data("test")[0] == "mine"
    assert len(task.examples("test")) == 3
    for wrong in ("dev", "tset"):
        with pytest.raises(DataError):
            task.open_split(wrong, tmp_path / "alone")


def test_splits_that_are_not_there(byte_level: Pairs) -> None:
    with pytest.raises(DataError) as caught:
        byte_level.examples("test")
    assert str(caught.value) == (
        "there is no split 'test'; there are: train, dev; name its files by task.test_source=FILE "
        "task.test_target=FILE, or a table by task.test=FILE."
    )
    with pytest.raises(DataError) as caught:
        byte_level.data("tset")
    assert str(caught.value) == "there is no split 'tset'; there are: train, dev."
    with pytest.raises(DataError) as caught:
        Pairs(PairsSettings(title="mine")).open_split("test", Path())
    assert str(caught.value) == "the data mine has no split 'test'."


def test_what_the_data_is_called(tmp_path: Path) -> None:
    task = prepared(tmp_path, level="character")
    assert task.data("dev")[0] == "data"
    assert prepared(tmp_path / "b", level="character", title="mine").data("dev")[0] == "mine"
    assert Pairs(PairsSettings()).name() == "pairs"


def test_what_is_said(tmp_path: Path) -> None:
    pairs = drawn(12)
    data = tmp_path / "data"
    dev = [min(pairs, key=lambda pair: len(pair[0])), ("", "blank")]
    pairs.remove(dev[0])
    pairs.insert(0, dev[0])
    given = {**written(data, "train", [*pairs, ("", "x")]), **written(data, "dev", dev)}
    said = list(prepared(tmp_path, **given, level="symbols", max_length=3, sample=8).describe())
    kept = sum(len(source.split()) <= 3 for source, _ in pairs)
    assert said[0] == "data data"
    assert f"  train: 13 pairs read = {kept} kept + 1 blank source + {12 - kept} too long" in said
    learnt = {symbol for pair in [*pairs, ("", "x")][::2] for symbol in " ".join(pair).split()}
    assert f"  {len(learnt) + 4} ids of both sides, level symbols" in said
    assert "  learnt from one pair in 2, 7 pairs" in said
    assert "  of dev, 1 sources and 1 pairs are in train as well" in said
    assert (
        "warning: dev: 1 of 2 pairs (50.0 %) have a source that is in train as well; the model "
        "may have memorised them."
    ) in said
    assert "warning: dev: 1 of 2 pairs kept with a blank source." in said


# Scores


@pytest.mark.parametrize(
    ("given", "metric", "best"),
    [
        ({}, "BLEU", 100),
        ({"lowercase": True}, "BLEU", 100),
        ({"metric": "tokenised-bleu"}, "tokenised BLEU", 100),
        ({"metric": "exact"}, "exact match", 100),
        ({"metric": "chrf"}, "chrF2", 100),
        ({"level": "character"}, "chrF2", 100),
        ({"level": "character", "metric": "bleu"}, "BLEU", 100),
    ],
)
def test_scores_by_metric(given: dict[str, Any], metric: str, best: float) -> None:
    task = Pairs(PairsSettings(**given))
    examples = [
        Pair("x", (f"The cat sees {number} dogs and {number} birds .",)) for number in "abc"
    ]
    right = [example.target for example in examples]
    score = task.score(right, examples)
    assert score.metric == metric
    assert score.value == pytest.approx(best)
    assert score.signature
    assert json.loads(json.dumps(score.figures)) is not None
    assert task.score([right[0], right[0], right[2]], examples).value < best
    shouted = task.score([line.upper() for line in right], examples).value
    assert (shouted == pytest.approx(best)) == bool(given.get("lowercase"))
    compared = task.compare({"a": right, "b": right[::-1]}, examples)
    assert compared.metric.startswith(score.metric)


def test_words_in_characters_are_told_apart() -> None:
    """Of one word BLEU is 0 whatever it is, so that no checkpoint would be better than another."""
    examples = [Pair("3", ("three",)), Pair("4", ("four",))]
    task = Pairs(PairsSettings(level="character"))
    assert task.score(["three", "for"], examples).value > task.score(["tree", "f"], examples).value


# Settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train": "a.tsv", "train_source": "a", "train_target": "b"},
         "task.train is a table of both sides; leave out task.train_source and task.train_target, "
         "or task.train"),
        ({"dev": "a.tsv", "dev_source": "a", "dev_target": "b"},
         "task.dev is a table of both sides; leave out task.dev_source and task.dev_target, or "
         "task.dev; to clear a setting of the run, give it no value: task.dev="),
        ({"train_source": "a,b", "train_target": "c"},
         "task.train_source and task.train_target need equally many files, and name 2 and 1"),
        ({"test_target": "c"},
         "task.test_source and task.test_target need equally many files, and name 0 and 1"),
        ({"train_source": "a", "train_target": "b", "weights": "1,2"},
         "task.weights needs a number for each file of train, 1 in all, and has 2"),
        ({"train": "a.tsv", "weights": "0"}, "task.weights must be above 0"),
        ({"level": "character", "dropout": "0.1"},
         "task.dropout has no effect without task.level=subword and task.subwords=bpe"),
        ({"subwords": "unigram", "dropout": "0.1"},
         "task.dropout has no effect without task.level=subword and task.subwords=bpe"),
        ({"unknown": "0.1"},
         "task.unknown has no effect on sub-words, which leave none unknown"),
        ({"metric": "exact", "ter": "true"},
         "task.ter has no effect without task.metric=bleu or chrf"),
        ({"metric": "exact", "lowercase": "true"},
         "task.lowercase has no effect with task.metric=exact"),
        ({"source_level": "character"},
         "task.shared needs the same level on both sides, which are character and subword; give "
         "task.shared=false"),
        ({"vocabulary": "255"},
         "task.vocabulary must be 256 or more for sub-words, of which one for each byte is there "
         "always"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(given: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        fill(PairsSettings, given, "task")
    assert str(caught.value) == f"task: {message}"


def test_nothing_to_train_on(tmp_path: Path) -> None:
    for act in (Pairs.prepare, lambda task, folder: list(task.examine(folder))):
        with pytest.raises(DataError) as caught:
            act(Pairs(PairsSettings()), tmp_path)
        assert str(caught.value) == (
            "there is nothing to train on; name two files by task.train_source=FILE "
            "task.train_target=FILE, or a table by task.train=FILE.tsv."
        )


def test_unknown_units_are_warned_of(tmp_path: Path) -> None:
    data = {
        **written(tmp_path, "train", [("aab", "x")] * 9),
        **written(tmp_path, "dev", [("abc", "x"), ("ccc", "y")]),
    }
    task = prepared(tmp_path, **data, level="character", shared=False, vocabulary=2)
    warnings = [line for line in task.describe() if line.startswith("warning: ")]
    said = (
        "units are unknown: not seen where units are learnt, or too rare there for "
        "task.vocabulary=2"
    )
    assert warnings == [
        f"warning: dev: 66.7 % of the source's {said}",
        f"warning: dev: 50.0 % of the target's {said}",
    ]


def test_a_test_set_that_is_the_training_set(tmp_path: Path) -> None:
    data = tmp_path / "data"
    train = written(data, "train", [(f"{n}", f"-{n}") for n in range(200)])
    dev = written(
        data, "dev", [*((f"x{n}", "y") for n in range(98)), ("a\u2028b\r", "z"), ("7", "?")]
    )
    test = {f"test_{side}": train[f"train_{side}"] for side in ("source", "target")}
    said = list(prepared(tmp_path, **train, **dev, **test, level="character").describe())
    assert "  of dev, 1 sources and 0 pairs are in train as well" in said
    assert "  of test, 200 sources and 200 pairs are in train as well" in said
    place = said.index("    kept, 200 whose source is in train as well:")
    assert said[place + 1 : place + 4] == [
        f"      {data / 'train.source'}, line {n + 1}: '{n}'" for n in range(3)
    ]
    place = said.index("    kept, 1 whose source is in train as well:")
    assert said[place + 1] == f"      {data / 'dev.source'}, line 100: '7'"
    assert [line for line in said if line.startswith("warning: ") and "unknown" not in line] == [
        "warning: test: 200 of 200 pairs (100.0 %) have a source that is in train as well; the "
        "model may have memorised them."
    ]


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    table = tmp_path / "train.tsv"
    table.write_text("english\tgerman\na\tb\n")
    settings = PairsSettings(train=(table,), source_column="englisch", target_column="german")
    with pytest.raises(DataError) as caught:
        Pairs(settings).prepare(tmp_path)
    assert str(caught.value) == (
        f"{table} has no column 'englisch'; its first line names english, german; did you mean "
        "english?"
    )
    with pytest.raises(DataError) as caught:
        Pairs(PairsSettings(train=(table,), target_column="german")).prepare(tmp_path)
    assert str(caught.value) == (
        f"{table}: the columns 1 and german must both be numbers, for a table without header, or "
        "both names in its first line."
    )


def test_all_files_that_are_wrong_are_told_at_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    given = {**written(data, "train", drawn(3)), **written(data, "test", drawn(2))}
    given["train_target"][0].write_text("one\n")
    given["test_source"][0].write_bytes(b"a\nb\xff\n")
    dev = {"dev_source": (data / "dev.source",), "dev_target": (data / "test.target",)}
    task = Pairs(PairsSettings(**given, **dev))
    with pytest.raises(DataError) as caught:
        list(task.examine(made(tmp_path / "task")))
    said = str(caught.value).splitlines()
    assert len(said) == 3
    assert said[0].startswith(f"{given['train_source'][0]} has 3 lines and ")
    assert said[1].startswith(f"{data / 'dev.source'} does not exist")
    assert said[2] == (
        f"{given['test_source'][0]}, line 2: byte 2 of the line, 0xff, is not UTF-8; save the file "
        "as UTF-8."
    )


def test_files_are_examined_as_the_task_reads_them(tmp_path: Path) -> None:
    class Strict(Pairs):
        def read_part(self, part: Any) -> Any:
            for chunk in super().read_part(part):
                assert isinstance(chunk, Chunk)
                if "cat" in " ".join(chunk.source):
                    assert isinstance(part, Files)
                    raise DataError(f"{part.source} has a cat in it.")
                yield chunk

    data = tmp_path / "data"
    given = {
        **written(data, "train", [("a cat", "b")] * 9),
        **written(data, "dev", [("cats", "b")]),
        **written(data, "test", [("a dog", "b")]),
    }
    with pytest.raises(DataError) as caught:
        list(Strict(PairsSettings(**given)).examine(made(tmp_path / "task")))
    assert str(caught.value).splitlines() == [
        f"{data / 'train.source'} has a cat in it.",
        f"{data / 'dev.source'} has a cat in it.",
    ]


def test_what_can_be_used_is_described(tmp_path: Path) -> None:
    task = prepared(tmp_path, level="character")
    fresh = Pairs(task.settings)
    assert list(fresh.examine(made(tmp_path / "examined"))) == list(task.describe())
    assert len(fresh.training(0, 1)) == 40


# By commands


def test_from_files_to_a_translation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from seqtrans.__main__ import main

    data, run = tmp_path / "data", f"run={tmp_path / 'run'}"
    given = {**written(data, "train", drawn(200)), **written(data, "dev", drawn(8, 1))}
    words = [f"task.{key}={value[0]}" for key, value in given.items()]
    small = ["model.width=16", "model.inner=32", "model.heads=2", "model.encoder_layers=1"]
    small += ["model.decoder_layers=1", "training.steps=6", "training.warmup=2", "run.threads=1"]
    small += ["decoder=greedy", "training.dry_run=false", "training.log_every=2"]
    assert main(["train", "task=pairs", "task.level=character", run, *words, *small]) == 0
    outputs, report = tmp_path / "outputs", tmp_path / "report.json"
    assert main(["evaluate", run, f"output={outputs}", f"report={report}"]) == 0
    assert outputs.read_bytes().count(b"\n") == 8
    assert json.loads(report.read_text("utf-8"))["metric"] == "chrF2"
    lines = tmp_path / "lines"
    lines.write_bytes("the cat\n\ntwo dogs\u2028\x00\r\n<s> </s>\n  \n".encode())
    assert main(["transduce", run, f"input={lines}", f"output={outputs}"]) == 0
    found = outputs.read_bytes().decode().split("\n")
    assert len(found) == 6
    assert [found[place] for place in (1, 4, 5)] == ["", "", ""]
    alone = tmp_path / "alone"
    alone.write_text("the cat\n")
    assert main(["transduce", run, f"input={alone}", f"output={outputs}"]) == 0
    assert outputs.read_bytes().decode().split("\n") == [found[0], ""]
    capsys.readouterr()
