from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from seqtrans.errors import DataError, SettingsError
from seqtrans.settings import fill
from seqtrans_tasks.parsing import ParsingSettings, grammar
from seqtrans_tasks.parsing.task import Parse, Parsing, Sentence, size_for
from seqtrans_tasks.parsing.tree import leaves, same, write_tree

RAW = [
    "( (S (NP-SBJ-1 (DT The) (NN cat)) (VP (VBD was) (VP (VBN seen) (NP (-NONE- *-1)))) (. .)) )",
    "( (S (NP-SBJ (PRP It)) (VP (VBD sat) (PRT|ADVP (RP down)) (PP-LOC (IN in) (NP (NN May\\/June) "
    "(-LRB- -LRB-) (CD 1993) (-RRB- -RRB-)))) (. .)) )",
    "( (S (`` ``) (NP-SBJ (NNS Cats)) (VP (VBP sleep)) (. .) ('' '')) )",
    "( (UH Yes) )",
]


def write(path: Path, trees: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(trees) + "\n", encoding="utf-8")
    return path


def prepared(folder: Path, **given: Any) -> Parsing:
    """A task over RAW as all three splits, unless told otherwise, prepared and opened."""
    if "treebank" not in given and "train" not in given:
        path = write(folder / "raw.mrg", RAW)
        given = {"train": path, "dev": path, "test": path, **given}
    task = Parsing(ParsingSettings(**given))
    target = folder / "task"
    target.mkdir(parents=True)
    task.prepare(target)
    task.open(target)
    return task


@pytest.mark.parametrize("linearisation", ["brackets", "inorder"])
@pytest.mark.parametrize("closings", ["labelled", "bare"])
@pytest.mark.parametrize("kind", ["words", "tags"])
def test_targets_round_trip(tmp_path: Path, linearisation: str, closings: str, kind: str) -> None:
    task = prepared(tmp_path, linearisation=linearisation, closings=closings, leaves=kind)
    examples = task.examples("train")
    outputs = [task.decode(task.encode_target(tree), task.input(tree)) for tree in examples]
    for found, example in zip(outputs, examples, strict=True):
        assert not found.repairs
        if kind == "tags":
            assert same(found.tree, task.reference(example).tree)
    assert task.score(outputs, examples).value == 100


def test_preparation_counts_what_it_does(tmp_path: Path) -> None:
    task = prepared(tmp_path)
    text = "\n".join(task.describe())
    assert "train: 4 trees read = 4 kept; 20 words" in text
    assert "1 traces removed" in text
    assert "1 PRT|ADVP renamed" in text
    assert "train, dev: 4" in text
    labels = {label for tree in task.examples("train") for label in write_tree(tree).split()}
    assert "(PRT" in labels
    assert "(PRT|ADVP" in {x for tree in task.examples("dev") for x in write_tree(tree).split()}


def test_no_gold_tag_reaches_the_parser(tmp_path: Path) -> None:
    task = prepared(tmp_path)
    for example in task.examples("test"):
        assert task.input(example) == Sentence(tuple(leaf.word for leaf in leaves(example)))


def test_typed_text_meets_the_treebanks_escapes(tmp_path: Path) -> None:
    task = prepared(tmp_path)
    [example] = [tree for tree in task.examples("dev") if "June" in write_tree(tree)]
    plain = task.read("It sat down in May/June ( 1993 ) .")
    assert plain == task.input(example)
    assert torch.equal(task.encode_source(plain), task.encode_source(task.input(example)))
    assert task.read("It sat down in May\\/June -LRB- 1993 -RRB- .") == plain


@pytest.mark.parametrize(
    ("kind", "line", "words", "tags"),
    [
        ("words", " The  cat\t. ", ("The", "cat", "."), None),
        ("words", '" The cat "', ("``", "The", "cat", "''"), None),
        ("raw", 'Say "no (way)."', ("Say", "``", "no", "-LRB-", "way", "-RRB-", ".", "''"), None),
        ("raw", "They don't.", ("They", "do", "n't", "."), None),
        ("tagged", "The/DT 1\\/2/CD //: (/-LRB-", ("The", "1\\/2", "\\/", "-LRB-"),
         ("DT", "CD", ":", "-LRB-")),
    ],
)  # fmt: skip
def test_kinds_of_input(
    tmp_path: Path, kind: Any, line: str, words: tuple[str, ...], tags: tuple[str, ...] | None
) -> None:
    assert Parsing(ParsingSettings(input=kind)).read(line) == Sentence(words, tags)


def test_given_tags_are_the_trees_tags(tmp_path: Path) -> None:
    task = prepared(tmp_path, leaves="words")
    sentence = Sentence(("The", "cat", "."), ("XY", "NN", "."))
    found = task.decode([], sentence)
    assert [leaf.tag for leaf in leaves(found.tree)] == ["XY", "NN", "."]


def test_given_tags_bind_the_decoder_too(tmp_path: Path) -> None:
    task = prepared(tmp_path, leaves="tags", input="tagged")
    sentence = task.read("The/NN cat/VBD sat/XYZ ./.")
    assert sentence.tags == ("NN", "VBD", "XYZ", ".")
    choices = task.choices(sentence)
    names = [str(symbol) for symbol in task.linearisation.symbols]
    allowed = [[names[i - 3] for i in row.nonzero()[:, 0].tolist()] for row in choices]
    assert allowed[0] == ["NN"]
    assert allowed[1] == ["VBD"]
    assert len(allowed[2]) > 1  # no symbol is called XYZ
    found = task.decode([], sentence)
    assert [leaf.tag for leaf in leaves(found.tree)] == list(sentence.tags)
    with pytest.raises(DataError) as caught:
        task.read("foo/(NN")
    assert str(caught.value) == ("'foo/(NN' isn't word/TAG; task.input=words reads words alone.")


@pytest.mark.parametrize("kind", ["words", "raw", "tagged"])
def test_a_line_without_words_is_refused(kind: Any) -> None:
    with pytest.raises(DataError) as caught:
        Parsing(ParsingSettings(input=kind)).read("  ")
    assert str(caught.value) == "there are no words."


def test_every_epoch_is_a_function_of_seed_and_epoch(tmp_path: Path) -> None:
    task = prepared(tmp_path, swap=0.5, word_swap=0.5, subword_dropout=0.3, subwords=300)

    def content(epoch: int, seed: int) -> tuple[bytes, bytes]:
        corpus = task.training(epoch, seed)
        return corpus.sources.values.tobytes(), corpus.targets.values.tobytes()

    assert content(0, 1) == content(0, 1)
    assert len({content(0, 1), content(1, 1), content(0, 2)}) == 3


def test_without_variation_every_epoch_is_the_same(tmp_path: Path) -> None:
    task = prepared(tmp_path)
    assert task.training(0, 1) is task.training(7, 2)


def test_silver_trees_are_seen_by_their_weight(tmp_path: Path) -> None:
    silver = write(tmp_path / "silver.trees", ["(S (NP (NN rain)) (VP (VBD fell)))"] * 10)
    task = prepared(tmp_path, silver=silver, silver_weight=1.5)
    sizes = [len(task.training(epoch, 1)) - len(RAW) for epoch in range(40)]
    assert min(sizes) >= 10
    assert max(sizes) <= 20
    assert 14 < sum(sizes) / len(sizes) < 16
    assert len(task.examples("train")) == len(RAW)


def test_a_treebank_in_sections(tmp_path: Path) -> None:
    for section in ("02", "21", "22", "23"):
        write(tmp_path / f"wsj/{section}/wsj_{section}00.mrg", [RAW[int(section) % 4]])
    task = prepared(tmp_path, treebank=tmp_path / "wsj", train_sections="02,21")
    assert [len(task.examples(split)) for split in ("train", "dev", "test")] == [2, 1, 1]
    assert task.summary["name"] == "wsj"
    write(tmp_path / "wsj/24/wsj_2400.mrg", RAW)  # which nobody reads
    names = [path.name for path in task.raw_files()]
    assert names == ["wsj_0200.mrg", "wsj_2100.mrg", "wsj_2200.mrg", "wsj_2300.mrg"]


def test_a_treebank_in_lists(tmp_path: Path) -> None:
    for name, tree in zip("abcd", RAW, strict=True):
        write(tmp_path / f"bank/{name}.mrg", [tree])
    lists = {
        split: write(tmp_path / f"{split}.txt", [f"{name}.mrg" for name in names])
        for split, names in (("train_list", "ab"), ("dev_list", "c"))
    }
    task = prepared(tmp_path, treebank=tmp_path / "bank", **lists)
    assert [len(task.examples(split)) for split in ("train", "dev")] == [2, 1]
    silver = write(tmp_path / "silver", RAW[:1])
    given = ParsingSettings(treebank=tmp_path / "bank", silver=silver, **lists)
    bank = [tmp_path / f"bank/{name}.mrg" for name in "abc"]
    assert Parsing(given).raw_files() == [*lists.values(), *bank, silver]
    assert Parsing(ParsingSettings()).raw_files() == []
    with pytest.raises(DataError) as caught:
        task.examples("test")
    assert str(caught.value) == (
        f"there is no split 'test' in {tmp_path / 'task'}; there are: dev, train."
    )


def test_the_built_in_treebank_says_that_it_is_synthetic(tmp_path: Path) -> None:
    task = Parsing(ParsingSettings())
    assert task.name() == grammar.NAME == "synthetic"
    small = prepared(tmp_path)
    small.summary["name"] = grammar.NAME
    assert "synthetic: written by a grammar" in next(iter(small.describe()))
    example = small.examples("dev")[0]
    assert "synthetic: written by a grammar" in small.score([Parse(example)], [example]).report


def test_a_label_that_no_training_tree_has_counts_in_the_score(tmp_path: Path) -> None:
    train = write(tmp_path / "train.mrg", RAW)
    dev = write(tmp_path / "dev.mrg", ["( (S (WHADJP (WRB How)) (. ?)) )"])
    task = prepared(tmp_path, train=train, dev=dev)
    [example] = task.examples("dev")
    with pytest.raises(DataError):
        task.encode_target(example)
    limits = torch.tensor([20])
    constraint = task.constraint([task.input(example)], limits)
    assert constraint is not None
    assert constraint.allowed().any()
    score = task.score([task.decode([], task.input(example))], [example])
    assert score.figures["labels"]["WHADJP"]["gold"] == 1
    assert score.value == pytest.approx(200 / 3)  # of two gold brackets the one proposed is right


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train_list": "a", "dev_list": "b"},
         "task.train_list and its like name files of a treebank; give task.treebank too"),
        ({"treebank": "x", "train": "a", "dev": "b"},
         "give either task.treebank or task.train, task.dev and task.test"),
        ({"train": "a"}, "task.train and task.dev go together"),
        ({"treebank": "x", "dev_list": "a"}, "task.train_list and task.dev_list go together"),
        ({"silver_weight": "2"}, "task.silver_weight has no effect without task.silver"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(given: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        fill(ParsingSettings, given, "task")
    assert str(caught.value) == f"task: {message}"


def test_nothing_left_to_train_on(tmp_path: Path) -> None:
    path = write(tmp_path / "raw.mrg", ["( (S (NP (-NONE- *)) (VP (-NONE- *?*))) )"])
    with pytest.raises(DataError) as caught:
        prepared(tmp_path, train=path, dev=path)
    assert str(caught.value).startswith("nothing is left of the train trees")


@pytest.mark.slow
def test_all_of_the_sample_treebank(shared: Path, tmp_path: Path) -> None:
    bank = shared / "data/wsj-sample"
    lists = {f"{split}_list": bank / f"split-{split}.txt" for split in ("train", "dev", "test")}
    task = prepared(tmp_path, treebank=bank, leaves="tags", **lists)
    assert [len(task.examples(s)) for s in ("train", "dev", "test")] == [3396, 273, 245]
    assert json.loads((tmp_path / "task/summary.json").read_text("utf-8")) == task.summary
    test = task.examples("test")
    outputs = [task.decode(task.encode_target(tree), task.input(tree)) for tree in test]
    score = task.score(outputs, test)
    assert score.value == 100
    assert score.figures["repaired"]["any"] == 0


@pytest.mark.parametrize(("words", "size"), [(100, 500), (80_000, 2000), (10**9, 16_000)])
def test_the_number_of_subwords_follows_the_data(words: int, size: int) -> None:
    assert size_for(words) == size
