"""Trees become symbols and come back the same, in both linearisations, whatever their shape."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtrans.errors import DataError
from seqtrans.task import Vocabulary
from seqtrans_tasks.parsing.linear import BOS, EOS, PAD, Linearisation
from seqtrans_tasks.parsing.tree import Leaf, Node, Tree, leaves, read_tree, read_trees, same

HERON = "(TOP (S (NP (DT The) (NN heron)) (VP (VBD slept)) (. .)))"
FORMS: list[dict[str, Any]] = [
    {"kind": kind, "closings": closings, "leaves": of}
    for kind in ("brackets", "inorder")
    for closings in ("labelled", "bare")
    for of in ("words", "tags")
]
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form.values()))


def symbols(form: Linearisation, tree: Node) -> str:
    return " ".join(str(form.symbols[at - 3]) for at in form.encode(tree))


def words_and_tags(tree: Node) -> tuple[list[str], list[str]]:
    found = leaves(tree)
    return [leaf.word for leaf in found], [leaf.tag for leaf in found]


def there_and_back(form: Linearisation, tree: Node) -> Tree:
    words, tags = words_and_tags(tree)
    decoded, repairs = form.decode(form.encode(tree), words, tags)
    assert not repairs
    return decoded


any_leaf = st.builds(
    Leaf, st.sampled_from(["NN", ",", "XX"]), st.sampled_from(["heron", ",", "TOP"])
)
any_node: st.SearchStrategy[Node] = st.recursive(
    any_leaf,
    lambda below: st.builds(
        Tree, st.sampled_from(["S", "NP", "X", "TOP"]), st.lists(below, min_size=1, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("kind", "closings", "of", "expected"),
    [
        ("brackets", "labelled", "words", "(S (NP XX XX )NP (VP XX )VP XX )S"),
        ("brackets", "bare", "words", "(S (NP XX XX ) (VP XX ) XX )"),
        ("brackets", "labelled", "tags", "(S (NP DT NN )NP (VP VBD )VP . )S"),
        ("inorder", "labelled", "words", "XX (NP XX )NP (S XX (VP )VP XX )S"),
        ("inorder", "bare", "tags", "DT (NP NN ) (S VBD (VP ) . )"),
    ],
)
def test_writes_what_the_literature_does(kind: Any, closings: Any, of: Any, expected: str) -> None:
    tree = read_tree(HERON)
    form = Linearisation.learn([tree], kind=kind, closings=closings, leaves=of)
    assert symbols(form, tree) == expected


@every_form
@given(children=st.lists(any_node, min_size=1, max_size=4))
def test_a_tree_under_top_comes_back_as_it_was(form: dict[str, Any], children: list[Node]) -> None:
    tree = Tree("TOP", children)
    assert same(there_and_back(Linearisation.learn([tree], **form), tree), tree)


@every_form
@given(tree=any_node)
def test_any_other_tree_comes_back_under_top(form: dict[str, Any], tree: Node) -> None:
    rooted = isinstance(tree, Tree) and tree.label == "TOP"
    expected = tree if rooted else Tree("TOP", [tree])
    assert same(there_and_back(Linearisation.learn([tree], **form), tree), expected)


@pytest.mark.parametrize(
    ("text", "brackets", "in_order"),
    [
        ("(TOP (UH Yes))", "XX", "XX"),
        ("(TOP (S (UH Yes)))", "(S XX )S", "XX (S )S"),
        ("(S (UH Yes))", "(S XX )S", "XX (S )S"),
        ("(TOP (UH Yes) (. .))", "(TOP XX XX )TOP", "XX (TOP XX )TOP"),
        ("(TOP (TOP (UH Yes)))", "(TOP (TOP XX )TOP )TOP", "XX (TOP )TOP (TOP )TOP"),
    ],
)
def test_top_is_elided_over_one_child(text: str, brackets: str, in_order: str) -> None:
    tree = read_tree(text)
    assert symbols(Linearisation.learn([tree], kind="brackets"), tree) == brackets
    assert symbols(Linearisation.learn([tree], kind="inorder"), tree) == in_order


@pytest.mark.parametrize("form", FORMS[1::2], ids=lambda form: "-".join(form.values()))
def test_a_tree_of_100_000_levels_comes_back(form: dict[str, Any]) -> None:
    tree: Node = Leaf("NN", "heron")
    for level in range(100_000):
        below = [tree, Leaf(",", ",")] if level % 3 else [tree]
        tree = Tree("S" if level % 2 else "NP", below)
    tree = Tree("TOP", [tree])
    assert same(there_and_back(Linearisation.learn([tree], **form), tree), tree)


def test_ids_are_the_specials_then_sorted_leaves_openings_and_closings() -> None:
    form = Linearisation.learn([read_tree(HERON), read_tree("(TOP (X (A a)))")], leaves="tags")
    found = [str(symbol) for symbol in form.symbols]
    assert " ".join(found) == ". A DT NN VBD (NP (S (VP (X )NP )S )VP )X"
    assert form.ids == {symbol: at + 3 for at, symbol in enumerate(form.symbols)}
    assert (PAD, BOS, EOS) == (0, 1, 2)
    assert (form.leaf_ids, form.opening_ids, form.closing_ids) == (
        range(3, 8),
        range(8, 12),
        range(12, 16),
    )


def test_learning_takes_the_trees_in_any_order() -> None:
    trees = [read_tree(HERON), read_tree("(TOP (X (A a)))")]
    assert Linearisation.learn(trees) == Linearisation.learn(reversed(trees))


@every_form
def test_exactly_the_leaf_symbols_pace(form: dict[str, Any]) -> None:
    learned = Linearisation.learn([read_tree(HERON)], **form)
    paces = (False, False, False, *(symbol.kind == "leaf" for symbol in learned.symbols))
    wanted = Vocabulary(len(paces), pad=0, bos=1, eos=2, paces=paces)
    assert replace(learned.vocabulary(), fingerprint="") == wanted


@every_form
def test_json_gives_the_same_linearisation(form: dict[str, Any]) -> None:
    learned = Linearisation.learn([read_tree(HERON)], **form)
    assert Linearisation.from_json(json.loads(json.dumps(learned.as_json()))) == learned


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "kind",
            "prefix",
            "the linearisation's 'kind' is 'prefix', but it must be brackets or inorder.",
        ),
        (
            "closings",
            None,
            "the linearisation's 'closings' is None, but it must be labelled or bare.",
        ),
        ("leaves", 3, "the linearisation's 'leaves' is 3, but it must be words or tags."),
        ("labels", "NP", "the linearisation's 'labels' is 'NP', but it must be a list of strings."),
        ("tags", [1], "the linearisation's 'tags' is [1], but it must be a list of strings."),
        ("cap", 0, "the linearisation's 'cap' is 0, but it must be a whole number of at least 1."),
    ],
)
def test_json_of_something_else_is_refused(key: str, value: Any, message: str) -> None:
    written = Linearisation.learn([read_tree(HERON)]).as_json()
    with pytest.raises(DataError) as error:
        Linearisation.from_json({**written, key: value})
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("text", "brackets", "in_order"),
    [
        (HERON, 3, 3),
        ("(TOP (A (B (C (D (E (X x)))))))", 5, 5),
        ("(TOP (A (B (C (D (E (X x) (X x)) (X x)) (X x)) (X x)) (X x)))", 5, 3),
        ("(TOP (A (B (C (D (X x) (X x))))) (A (X x)))", 5, 3),
        ("(TOP (A (B (C (D (E (X x) (X x)))))) (A (X x)))", 6, 4),
    ],
)
def test_the_cap_is_the_longest_run_or_chain(text: str, brackets: int, in_order: int) -> None:
    tree = read_tree(text)
    assert Linearisation.learn([tree], kind="brackets").cap == brackets
    assert Linearisation.learn([tree], kind="inorder").cap == in_order


@pytest.mark.parametrize(
    "form", [{"leaves": "tags"}, {"leaves": "tags", "kind": "inorder"}], ids=str
)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "(TOP (S (SQ (NN heron))))",
            "the label 'SQ' is in no training tree, so there is no symbol for it; "
            "learn the symbols from trees that have it, or leave this tree out.",
        ),
        (
            "(TOP (S (NN heron) (JJ grey)))",
            "the tag 'JJ' is in no training tree, so there is no symbol for it; "
            "learn the symbols from trees that have it, or leave this tree out.",
        ),
    ],
)
def test_what_was_never_seen_is_named(form: dict[str, Any], text: str, message: str) -> None:
    learned = Linearisation.learn([read_tree(HERON)], **form)
    with pytest.raises(DataError) as error:
        learned.encode(read_tree(text))
    assert str(error.value) == message


def test_a_new_tag_is_no_matter_where_leaves_are_words() -> None:
    learned = Linearisation.learn([read_tree(HERON)])
    assert symbols(learned, read_tree("(TOP (S (JJ grey)))")) == "(S XX )S"


def test_a_constituent_without_children_is_refused() -> None:
    learned = Linearisation.learn([read_tree(HERON)])
    with pytest.raises(DataError) as error:
        learned.encode(Tree("TOP", [Tree("S", [])]))
    assert str(error.value) == (
        "the constituent 'S' has no children, so it has no place in a linearisation; "
        "every constituent must cover a word."
    )


def test_no_trees_at_all_are_refused() -> None:
    with pytest.raises(DataError) as error:
        Linearisation.learn([])
    assert str(error.value) == "there are no training trees, but the symbols are learned from them."


@every_form
def test_specials_around_the_symbols_need_no_repair(form: dict[str, Any]) -> None:
    tree = read_tree(HERON)
    learned = Linearisation.learn([tree], **form)
    ids = learned.encode(tree)
    words, tags = words_and_tags(tree)
    for dressed in ([BOS, *ids], [*ids, EOS], [BOS, *ids, EOS, PAD, 5, 99], [*ids, PAD, PAD]):
        decoded, repairs = learned.decode(dressed, words, tags)
        assert same(decoded, tree)
        assert not repairs


def test_tags_of_words_come_from_the_caller() -> None:
    tree = read_tree(HERON)
    learned = Linearisation.learn([tree])
    decoded, _ = learned.decode(learned.encode(tree), ["A", "b", "c", "!"], ["W", "X", "Y", "Z"])
    assert same(decoded, read_tree("(TOP (S (NP (W A) (X b)) (VP (Y c)) (Z !)))"))
    decoded, _ = learned.decode(learned.encode(tree), ["A", "b", "c", "!"])
    assert same(decoded, read_tree("(TOP (S (NP (XX A) (XX b)) (VP (XX c)) (XX !)))"))


def test_tags_among_the_symbols_come_before_the_callers() -> None:
    tree = read_tree(HERON)
    learned = Linearisation.learn([tree], leaves="tags")
    decoded, _ = learned.decode(learned.encode(tree), ["A", "b", "c", "!"], ["W", "X", "Y", "Z"])
    assert same(decoded, read_tree("(TOP (S (NP (DT A) (NN b)) (VP (VBD c)) (. !)))"))


def test_importing_it_leaves_torch_alone() -> None:
    code = "import sys, seqtrans_tasks.parsing.linear; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture(scope="module")
def real_trees(shared: Path) -> list[Tree]:
    """Some of each treebank, without traces and functions."""
    found = []
    for pattern in (
        "wsj-sample/wsj_00[0-3]*.mrg",
        "craft-treebank/14*.tree",
        "gum-const/*news*.ptb",
    ):
        for path in sorted((shared / "data").glob(pattern)):
            for tree in read_trees(path.read_text(encoding="utf-8"), path.name):
                assert isinstance(tree, Tree)
                found.append(without_traces(tree))
    assert len(found) > 1000
    return found


def without_traces(tree: Tree) -> Tree:
    tree.label = "TOP"
    parents_first = [tree]
    for parent in parents_first:
        parent.label = parent.label.split("-")[0].split("=")[0]
        parents_first.extend(child for child in parent.children if isinstance(child, Tree))
    for parent in reversed(parents_first):
        parent.children = [
            child
            for child in parent.children
            if (child.tag != "-NONE-" if isinstance(child, Leaf) else child.children)
        ]
    return tree


@every_form
def test_real_trees_come_back(form: dict[str, Any], real_trees: list[Tree]) -> None:
    learned = Linearisation.learn(real_trees, **form)
    assert all(same(there_and_back(learned, tree), tree) for tree in real_trees)
