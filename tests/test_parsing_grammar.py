"""The built-in treebank: the same everywhere, no leaks, all that a raw one has, no ambiguity."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from random import Random

import pytest

from seqtrans.errors import SettingsError
from seqtrans_tasks.parsing.grammar import (
    LONGEST,
    NAME,
    inflect,
    rules,
    write_sentence,
    write_treebank,
)
from seqtrans_tasks.parsing.tree import Leaf, Tree, constituents, leaves, read_trees, write_tree

PHENOMENA = {
    "outer bracket without a label": r"^\( \(S ",
    "a word alone": r"^\( \(UH \w+\)\)$",
    "trace of a passive": r"\(NP \(-NONE- \*-\d+\)\)",
    "trace of a movement": r"\(NP-SBJ \(-NONE- \*T\*-\d+\)\)",
    "trace of a topic": r"\(S \(-NONE- \*T\*-\d+\)\)",
    "unexpressed subject": r"\(NP-SBJ \(-NONE- \*\)\)",
    "extraposition": r"\(-NONE- \*EXP\*-\d+\)",
    "unit": r"\(\$ \$\) \(CD [\d,]+\) \(-NONE- \*U\*\)",
    "empty complementizer": r"\(SBAR \(-NONE- 0\) \(S ",
    "complementizer": r"\(SBAR \(IN that\) \(S ",
    "function tags": r"\(NP-SBJ .*\(PP-LOC .*\(PP-TMP ",
    "gapping": r"\(NP-SBJ=1 .*\(NP=2 ",
    "relative clause": r"\(SBAR \(WHNP-\d+ \(WP who\)\) \(S ",
    "relative clause without a pronoun": r"\(SBAR \(WHNP-\d+ \(-NONE- 0\)\) \(S ",
    "reduced relative clause": r"\(VP \(VBN \w+\) \(NP \(-NONE- \*\)\) \(PP \(IN by\) \(NP-LGS ",
    "place relative": r"\(SBAR \(WHADVP-\d+ \(WRB where\)\)",
    "coordination of sentences": r"\) \(, ,\) \(CC (and|but)\) \(S ",
    "coordination of verb phrases": r"\)\) \(CC and\) \(VP ",
    "coordination of three": r"\)\) \(, ,\) \(NP [^,]*\)\) \(CC and\) \(NP ",
    "infinitive": r"\(VP \(TO to\) \(VP \(VB ",
    "purpose": r"\(S-PRP ",
    "subject that is a clause": r"\(S-NOM-SBJ ",
    "clause within a clause": r"\(SBAR .*\(SBAR ",
    "wh-question": r"\(SBARQ \(WHNP-1 \(WP What\)\) \(SQ ",
    "yes-no question": r"^\( \(SQ ",
    "fragment": r"\(FRAG ",
    "interjection": r"\(INTJ \(UH ",
    "inversion after a quotation": r"^\( \(SINV \(`` ``\) .*\(, ,\) \('' ''\) ",
    "particle": r"\(PRT \(RP ",
    "number": r"\(NP(-\w+)* \(QP ",
    "possessive": r"\(NP [^()]*(\([^()]*\) )+\(POS 's\)\) \(NNS? ",
    "brackets": r"\(-LRB- -LRB-\) .* \(-RRB- -RRB-\)",
    "colon": r"\(: [;-]+\)",
    "adverb": r"\(ADVP-MNR \(RB ",
    "noun phrase of one noun": r"\(NP(-SBJ)? \(NNS \w+\)\)",
    "negation": r"\(RB n't\)",
    "an before a vowel": r"\(DT [Aa]n\) \(\w+ [aeiou]",
}


@pytest.fixture(scope="module")
def treebank() -> dict[str, list[Tree]]:
    return write_treebank()


@pytest.fixture(scope="module")
def trees(treebank: dict[str, list[Tree]]) -> list[Tree]:
    return [tree for split in treebank.values() for tree in split]


def words(tree: Tree) -> tuple[str, ...]:
    return tuple(leaf.word for leaf in leaves(tree) if leaf.tag != "-NONE-")


def test_it_is_called_synthetic() -> None:
    assert NAME == "synthetic"


def test_the_sizes_are_those_asked_for(treebank: dict[str, list[Tree]]) -> None:
    assert {name: len(split) for name, split in treebank.items()} == {
        "train": 6000,
        "dev": 300,
        "test": 300,
    }
    assert write_treebank(train=0, dev=0, test=0) == {"train": [], "dev": [], "test": []}


def test_a_seed_gives_the_same_trees_on_every_machine_and_another_seed_others() -> None:
    def digest(seed: int) -> str:
        splits = write_treebank(seed=seed, train=200, dev=20, test=20)
        text = "\n".join(write_tree(tree) for split in splits.values() for tree in split)
        return hashlib.sha256(text.encode()).hexdigest()

    assert digest(1) == digest(1) != digest(2)
    assert digest(0) == "ac78953427728e7c4c4097497392a7f5f81caef49a68edfa85a372034d14d7fc"


def test_dev_and_test_do_not_depend_on_the_size_of_train(treebank: dict[str, list[Tree]]) -> None:
    small = write_treebank(train=10)
    for split in ("dev", "test"):
        assert list(map(write_tree, small[split])) == list(map(write_tree, treebank[split]))


def test_no_sentence_occurs_twice(trees: list[Tree]) -> None:
    assert len({words(tree) for tree in trees}) == len(trees)


def test_the_sentences_are_of_the_size_that_a_small_model_can_learn(
    treebank: dict[str, list[Tree]], trees: list[Tree]
) -> None:
    lengths = [len(words(tree)) for tree in trees]
    assert 12 < sum(lengths) / len(lengths) < 14.5
    assert 30 < max(lengths) <= LONGEST
    known = {word for tree in treebank["train"] for word in words(tree)}
    assert 500 < len(known) < 900
    held_out = [word for tree in treebank["dev"] + treebank["test"] for word in words(tree)]
    assert sum(word not in known for word in held_out) < 0.005 * len(held_out)


@pytest.mark.parametrize("pattern", PHENOMENA.values(), ids=PHENOMENA.keys())
def test_the_phenomenon_occurs_in_train_and_held_out(
    treebank: dict[str, list[Tree]], pattern: str
) -> None:
    for trees in (treebank["train"], treebank["dev"] + treebank["test"]):
        assert any(re.search(pattern, write_tree(tree)) for tree in trees)


def test_every_pp_hangs_where_its_words_say(trees: list[Tree]) -> None:
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for tree in trees:
        for parent in constituents(tree):
            for child in parent.children:
                if isinstance(child, Tree) and child.label.startswith("PP"):
                    preposition = leaves(child)[0].word.lower()
                    homes[preposition].add(parent.label.partition("-")[0])
    assert homes["of"] == homes["beside"] == {"NP"}
    assert homes["near"] == homes["past"] == homes["during"] - {"S"} == {"VP"}
    assert homes["with"] == homes["from"] == {"NP", "VP"}


def test_brackets_round_trip(trees: list[Tree]) -> None:
    text = [write_tree(tree) for tree in trees]
    assert [write_tree(tree) for tree in read_trees("\n".join(text), "the treebank")] == text


def test_no_constituent_is_empty_and_those_without_words_hold_traces(trees: list[Tree]) -> None:
    for tree in trees:
        assert tree.label == ""
        assert len(tree.children) == 1
        for part in constituents(tree):
            assert part.children
            assert part.label or part is tree
            if all(leaf.tag == "-NONE-" for leaf in leaves(part)):
                assert re.match("NP|WHNP|ADVP|SBAR$|S$", part.label)


def test_every_index_of_a_trace_has_one_antecedent(trees: list[Tree]) -> None:
    for tree in trees:
        text = write_tree(tree)
        antecedents = re.findall(r"\([A-Z-]+-(\d+) ", text)
        assert len(set(antecedents)) == len(antecedents)
        assert set(re.findall(r"-NONE- \*\S*-(\d+)\)", text)) <= set(antecedents)


def test_the_classes_of_the_words_leave_one_tree() -> None:
    """Where the words of two of 20,000 sentences are of the same classes, the trees are the same.

    A stronger property than one tree for the same words, since many more sentences coincide.
    """
    classes: defaultdict[str, set[str]] = defaultdict(set)
    for name, alternatives in rules().items():
        for alternative in alternatives:
            if len(alternative.steps) == 1 and alternative.steps[0].endswith(")"):
                word = alternative.steps[0][1:-1].split(" ")[1]
                classes[word].add(f"{name} {alternative.only}")
    class_of = {word: "|".join(sorted(names)) for word, names in classes.items()}
    for word in list(class_of):
        class_of.setdefault(word.capitalize(), class_of[word])
    found: dict[tuple[str, ...], str] = {}
    random = Random(7)
    coincide = 0
    for _ in range(20_000):
        tree, sentence = write_sentence(random)
        for leaf in leaves(tree):
            leaf.word = leaf.word if leaf.tag == "-NONE-" else "w"
        written = write_tree(tree)
        key = tuple(class_of.get(word) or word.lower() for word in sentence)
        coincide += key in found
        if found.setdefault(key, written) != written:
            pytest.fail(f"{' '.join(sentence)}: {found[key]} or {written}")
    assert coincide > 2_000


def test_every_slot_has_a_rule_and_every_rule_a_slot() -> None:
    slots = {
        step[1:-1].partition(" ")[0]
        for alternatives in rules().values()
        for alternative in alternatives
        for step in alternative.steps
        if step.startswith("<")
    }
    assert slots - set(rules()) == set()
    assert set(rules()) - slots == {"sentence"}


@pytest.mark.parametrize(
    ("tag", "entry", "written"),
    [
        ("NN", "boat", "boat boats"),
        ("NN", "fox", "fox foxes"),
        ("NN", "ferry", "ferry ferries"),
        ("NN", "quay", "quay quays"),
        ("NN", "knife/knives", "knife knives"),
        ("JJ", "red", "red"),
        ("DT", "a/some", "a some"),
        ("VB", "carry", "carry carried carried carrying carries carried carry"),
        ("VB", "borrow", "borrow borrowed borrowed borrowing borrows borrowed borrow"),
        ("VB", "glide", "glide glided glided gliding glides glided glide"),
        ("VB", "sell/sold", "sell sold sold selling sells sold sell"),
        ("VB", "do/did/done/doing", "do did done doing does did do"),
        ("VB", "be/was/been/being/is/were/are", "be was been being is were are"),
    ],
)
def test_inflection(tag: str, entry: str, written: str) -> None:
    assert [word for _, _, word in inflect(tag, *entry.split("/"))] == written.split()


@pytest.mark.parametrize("name", ["seed", "train", "dev", "test"])
def test_a_negative_number_is_refused(name: str) -> None:
    with pytest.raises(SettingsError) as error:
        write_treebank(**{name: -1})
    assert str(error.value) == f"{name}: must be zero or more, not -1"


def test_leaves_are_words_with_tags_of_the_treebank(trees: list[Tree]) -> None:
    tags = {leaf.tag for tree in trees for leaf in leaves(tree)}
    assert " ".join(sorted(tags)) == (
        "$ '' , -LRB- -NONE- -RRB- . : CC CD DT EX IN JJ JJR MD NN NNP NNS POS PRP PRP$ RB RP TO "
        "UH VB VBD VBG VBN VBP VBZ WDT WP WRB ``"
    )
    assert all(isinstance(leaf, Leaf) and leaf.word for tree in trees for leaf in leaves(tree))
