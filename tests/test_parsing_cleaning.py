"""Preparing treebank trees: each step alone, all together, and an account that adds up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtrans_tasks.parsing.cleaning import Account, Steps, clean, strip_function
from seqtrans_tasks.parsing.tree import (
    Leaf,
    Node,
    Tree,
    constituents,
    leaves,
    read_tree,
    read_trees,
    words,
    write_tree,
)
from seqtrans_tasks.parsing.treebank import find_files

NOTHING = Steps(drop_outer=False, root="", remove_traces=False, strip_functions=False)

labels = st.sampled_from(["", "S", "NP-SBJ-1", "NP=2", "PRT|ADVP", "ROOT", "TOP", "-NONE-"])
trees = st.recursive(
    st.builds(Leaf, st.sampled_from(["NN", "-NONE-", "-LRB-", "PRP$"]), st.just("x")),
    lambda below: st.builds(Tree, labels, st.lists(below, min_size=1, max_size=3)),
    max_leaves=10,
)
steps = st.builds(
    Steps,
    drop_outer=st.booleans(),
    root=st.sampled_from(["TOP", "S1", ""]),
    remove_traces=st.booleans(),
    strip_functions=st.booleans(),
    prt_advp=st.booleans(),
    collapse_same_unaries=st.booleans(),
    max_words=st.one_of(st.none(), st.integers(1, 8)),
    max_unary=st.one_of(st.none(), st.integers(1, 4)),
)


def cleaned(text: str, steps: Steps) -> str | None:
    node = clean(read_tree(text), steps)
    return None if node is None else write_tree(node)


@pytest.mark.parametrize(
    ("steps", "before", "after"),
    [
        (replace(NOTHING, drop_outer=True), "( (S (NN a)))", "(S (NN a))"),
        (replace(NOTHING, drop_outer=True), "( ( (S (NN a))))", "(S (NN a))"),
        (replace(NOTHING, drop_outer=True), "( (UH Yes))", "(UH Yes)"),
        (replace(NOTHING, drop_outer=True), "( (S (NN a)) (. .))", "(TOP (S (NN a)) (. .))"),
        (replace(NOTHING, root="TOP"), "(S (NN a))", "(TOP (S (NN a)))"),
        (replace(NOTHING, root="TOP"), "(TOP (S (NN a)))", "(TOP (S (NN a)))"),
        (replace(NOTHING, root="TOP"), "(ROOT (S (NN a)))", "(TOP (S (NN a)))"),
        (replace(NOTHING, root="TOP"), "(S1 (S (NN a)))", "(TOP (S (NN a)))"),
        (replace(NOTHING, root="ROOT"), "(TOP (S (NN a)))", "(ROOT (S (NN a)))"),
        (replace(NOTHING, root="TOP"), "(UH Yes)", "(TOP (UH Yes))"),
        (
            replace(NOTHING, remove_traces=True),
            "(S (NP (-NONE- *)) (VP (NN a) (SBAR (-NONE- 0) (S (-NONE- *T*)))))",
            "(S (VP (NN a)))",
        ),
        (replace(NOTHING, remove_traces=True), "(S (NP (-NONE- *)))", None),
        (replace(NOTHING, remove_traces=True), "(-NONE- *)", None),
        (
            replace(NOTHING, strip_functions=True),
            "(S-TPC-1 (NP=2 (NN-X a)) (X-=1 (-LRB- -LRB-)) (PRN (-RRB- -RRB-)))",
            "(S (NP (NN a)) (X (-LRB- -LRB-)) (PRN (-RRB- -RRB-)))",
        ),
        (
            replace(NOTHING, prt_advp=True),
            "(VP (PRT|ADVP (RP up)) (ADVP|PRT (RP up)))",
            "(VP (PRT (RP up)) (ADVP|PRT (RP up)))",
        ),
        (
            replace(NOTHING, collapse_same_unaries=True),
            "(S (S (S (NP (NP (NN a)) (NP (NN a))))) (NP (NP (NN a))))",
            "(S (S (NP (NP (NN a)) (NP (NN a)))) (NP (NN a)))",
        ),
        (replace(NOTHING, max_words=2), "(S (NN a) (NN a))", "(S (NN a) (NN a))"),
        (replace(NOTHING, max_words=1), "(S (NN a) (NN a))", None),
        (replace(NOTHING, max_unary=2), "(S (S (NN a) (NN a)))", "(S (S (NN a) (NN a)))"),
        (replace(NOTHING, max_unary=1), "(S (S (NN a) (NN a)))", None),
        (
            replace(NOTHING, max_unary=1),
            "(S (NP (NN a)) (NP (NN a)))",
            "(S (NP (NN a)) (NP (NN a)))",
        ),
    ],
)
def test_each_step_alone(steps: Steps, before: str, after: str | None) -> None:
    assert cleaned(before, NOTHING) == before
    assert cleaned(before, steps) == after


def test_the_usual_preparation() -> None:
    before = (
        "( (S (NP-SBJ-1 (DT The) (NN heron)) (VP (VBD was) (VP (VBN seen) (NP (-NONE- *-1)) "
        "(ADVP-TMP=2 (RB once)))) (-RRB- -RRB-)))"
    )
    assert cleaned(before, Steps()) == (
        "(TOP (S (NP (DT The) (NN heron)) (VP (VBD was) (VP (VBN seen) (ADVP (RB once)))) "
        "(-RRB- -RRB-)))"
    )


@pytest.mark.parametrize(
    ("label", "stripped"),
    [
        ("NP", "NP"),
        ("NP-SBJ-1", "NP"),
        ("NP=2", "NP"),
        ("NP=2-1", "NP"),
        ("S-TTL-3-FRM", "S"),
        ("-LRB-", "-LRB-"),
        ("-NONE-", "-NONE-"),
        ("-", "-"),
        ("--", "--"),
        ("=", "="),
        ("-SBJ", "-SBJ"),
        ("PRP$", "PRP$"),
        ("", ""),
    ],
)
def test_functions_and_indices_are_cut(label: str, stripped: str) -> None:
    assert strip_function(label) == stripped


@settings(deadline=None)
@given(st.lists(trees, max_size=5), steps)
def test_the_account_adds_up(nodes: list[Node], steps: Steps) -> None:
    account = Account()
    before = [write_tree(node) for node in nodes]
    kept = [tree for node in nodes if (tree := clean(node, steps, account)) is not None]
    assert [write_tree(node) for node in nodes] == before, "the trees given are left alone"
    assert account.read == len(nodes) == account.kept + account.dropped.total()
    assert account.kept == len(kept)
    read_words = sum(len(leaves(node)) for node in nodes)
    if not account.dropped:
        assert sum(len(leaves(node)) for node in kept) == read_words - account.traces
        assert (
            sum(1 for node in kept for _ in constituents(node))
            == sum(1 for node in nodes for _ in constituents(node))
            - account.empty_constituents
            - account.unaries
            - account.wrappers
            + account.roots_added
        )


@settings(deadline=None)
@given(trees, steps)
def test_cleaning_twice_is_cleaning_once(node: Node, steps: Steps) -> None:
    once = clean(node, steps)
    if once is not None:
        twice = clean(once, steps)
        assert twice is not None
        assert write_tree(twice) == write_tree(once)


def test_the_account_as_a_table() -> None:
    account = Account()
    text = "( (S (NP-SBJ (-NONE- *)) (NN a))) ( (NP (-NONE- *))) (ROOT (NN a) (NN a) (NN a))"
    for node in read_trees(text, "text"):
        clean(node, Steps(max_words=2), account)
    assert account.as_dict() == {
        "read": 3,
        "kept": 1,
        "dropped: no words left": 1,
        "dropped: too many words": 1,
        "dropped: too many unary levels": 0,
        "wrappers removed": 1,
        "traces removed": 2,
        "empty constituents removed": 3,
        "function tags cut": 1,
        "PRT|ADVP renamed": 0,
        "same unaries collapsed": 0,
        "roots added": 1,
        "roots renamed": 1,
    }
    assert account.text() == (
        "read                        3\n"
        "kept                        1\n"
        "dropped: no words left      1\n"
        "dropped: too many words     1\n"
        "wrappers removed            1\n"
        "traces removed              2\n"
        "empty constituents removed  3\n"
        "function tags cut           1\n"
        "roots added                 1\n"
        "roots renamed               1"
    )
    assert Account().text() == "read  0\nkept  0"


def test_no_depth_is_too_deep() -> None:
    levels = 100_000
    text = "(X-1 " * levels + "(NN a)" + ")" * levels
    account = Account()
    node = clean(read_tree(text), Steps(collapse_same_unaries=True), account)
    assert node is not None
    assert write_tree(node) == "(TOP (X (NN a)))"
    assert account.unaries == levels - 1


def test_the_sample_of_the_wall_street_journal(shared: Path) -> None:
    account = Account()
    left = 0
    for path in find_files(shared / "data" / "wsj-sample"):
        for node in read_trees(path.read_text(encoding="ascii"), path.name):
            prepared = clean(node, Steps(), account)
            assert isinstance(prepared, Tree)
            assert prepared.label == "TOP"
            left += len(words(prepared))
            assert all(
                constituent.children and not set(constituent.label) & set("-=")
                for constituent in constituents(prepared)
            )
    assert (account.read, account.kept, account.wrappers) == (3914, 3914, 3914)
    assert (left, account.traces) == (94084, 6592)
