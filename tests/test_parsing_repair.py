"""Any symbols become a tree over exactly the words, and each rule does what it says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtrans_tasks.parsing.linear import Linearisation, Symbol
from seqtrans_tasks.parsing.repair import RULES, mend, report, shares
from seqtrans_tasks.parsing.tree import Leaf, Tree, constituents, leaves, write_tree


def read(text: str) -> list[Symbol | None]:
    """Symbols as they are shown: ``?`` is an unknown one, and a bare ``)`` names no label."""
    found: list[Symbol | None] = []
    for part in text.split():
        if part == "?":
            found.append(None)
        elif part[0] == "(":
            found.append(Symbol("opening", part[1:]))
        elif part[0] == ")":
            found.append(Symbol("closing", part[1:] or None))
        else:
            found.append(Symbol("leaf", None if part == "XX" else part))
    return found


def mended(text: str, words: str, *, in_order: bool) -> tuple[str, dict[str, int]]:
    tree, repairs = mend(read(text), words.split(), words.upper().split(), in_order=in_order)
    return write_tree(tree), dict(repairs)


BRACKETS = [
    # no repair
    ("(S XX (NP XX )NP )S", "a b", "(TOP (S (A a) (NP (B b))))", {}),
    ("XX", "a", "(TOP (A a))", {}),
    ("(TOP XX XX )TOP", "a b", "(TOP (A a) (B b))", {}),
    ("(S NN (NP XX ) )", "a b", "(TOP (S (NN a) (NP (B b))))", {}),
    # 1
    ("? (S ? XX )S ?", "a", "(TOP (S (A a)))", {"unknown symbol": 3}),
    # 2
    (")S (S XX )S )NP", "a", "(TOP (S (A a)))", {"stray closing": 2}),
    (") (S XX ) )", "a", "(TOP (S (A a)))", {"stray closing": 2}),
    (
        "(S (NP (PP XX )NP XX )S",
        "a b",
        "(TOP (S (NP (PP (A a))) (B b)))",
        {"mismatched closing": 1},
    ),
    (
        "(S (NP XX )VP XX )S",
        "a b",
        "(TOP (S (NP (A a)) (B b)))",
        {"mismatched closing": 1},
    ),
    (
        "(S (NP (NP (PP XX )NP XX )NP XX )S",
        "a b c",
        "(TOP (S (NP (NP (PP (A a))) (B b)) (C c)))",
        {"mismatched closing": 1},
    ),
    # 3
    ("(S XX (NP XX )NP )S", "a", "(TOP (S (A a)))", {"surplus leaf": 1, "empty constituent": 1}),
    ("(S XX )S XX XX", "a", "(TOP (S (A a)))", {"surplus leaf": 2}),
    # 4
    ("(S XX )S", "a b c", "(TOP (S (A a) (B b) (C c)))", {"missing leaf": 2}),
    (
        "(S XX (NP",
        "a b c",
        "(TOP (S (A a) (NP (B b) (C c))))",
        {"missing leaf": 2, "unclosed constituent": 2},
    ),
    ("XX", "a b", "(TOP (S (A a) (B b)))", {"missing leaf": 1, "several roots": 1}),
    (
        "(S XX )S (NP XX )NP",
        "a b c",
        "(TOP (S (S (A a)) (NP (B b)) (C c)))",
        {"missing leaf": 1, "several roots": 1},
    ),
    # 5
    (
        "(S (NP (PP )PP )NP XX (X )X )S",
        "a",
        "(TOP (S (A a)))",
        {"empty constituent": 3},
    ),
    ("(S )S XX", "a", "(TOP (A a))", {"empty constituent": 1}),
    ("XX (S (NP", "a", "(TOP (A a))", {"empty constituent": 2}),
    # 6
    ("(S (NP XX", "a", "(TOP (S (NP (A a))))", {"unclosed constituent": 2}),
    # 7
    ("(NP XX )NP (VP XX )VP", "a b", "(TOP (S (NP (A a)) (VP (B b))))", {"several roots": 1}),
    ("", "a b", "(TOP (S (A a) (B b)))", {"missing leaf": 2, "no root": 1}),
    ("", "a", "(TOP (S (A a)))", {"missing leaf": 1, "no root": 1}),
    (
        "? )S",
        "a",
        "(TOP (S (A a)))",
        {"unknown symbol": 1, "stray closing": 1, "missing leaf": 1, "no root": 1},
    ),
]

IN_ORDER = [
    ("XX (NP XX )NP (S )S", "a b", "(TOP (S (NP (A a) (B b))))", {}),
    ("XX (NP ) (S XX (VP ) )", "a b", "(TOP (S (NP (A a)) (VP (B b))))", {}),
    ("XX", "a", "(TOP (A a))", {}),
    ("XX ? (S ? )S", "a", "(TOP (S (A a)))", {"unknown symbol": 2}),
    (")S XX )S (S )S )S", "a", "(TOP (S (A a)))", {"stray closing": 3}),
    (
        "XX (S XX (NP XX (PP )NP XX )S",
        "a b c d",
        "(TOP (S (A a) (NP (B b) (PP (C c))) (D d)))",
        {"mismatched closing": 1},
    ),
    ("XX (NP )VP (S XX )S", "a b", "(TOP (S (NP (A a)) (B b)))", {"mismatched closing": 1}),
    ("(S XX XX )S", "a b", "(TOP (S (A a) (B b)))", {"opening without first child": 1}),
    (
        "XX (S (NP XX )NP )S",
        "a b",
        "(TOP (S (A a) (NP (B b))))",
        {"opening without first child": 1},
    ),
    (
        "(S )S XX",
        "a",
        "(TOP (A a))",
        {"opening without first child": 1, "empty constituent": 1},
    ),
    (
        "XX (S XX (NP )NP )S",
        "a",
        "(TOP (S (A a)))",
        {"surplus leaf": 1, "empty constituent": 1},
    ),
    ("XX (S )S", "a b", "(TOP (S (A a) (B b)))", {"missing leaf": 1}),
    (
        "XX (S XX (NP",
        "a b c",
        "(TOP (S (A a) (NP (B b) (C c))))",
        {"missing leaf": 1, "unclosed constituent": 2},
    ),
    ("XX (NP )NP XX", "a b", "(TOP (S (NP (A a)) (B b)))", {"several roots": 1}),
    ("XX XX (NP )NP", "a b", "(TOP (S (A a) (NP (B b))))", {"several roots": 1}),
    ("", "a", "(TOP (S (A a)))", {"missing leaf": 1, "no root": 1}),
]


@pytest.mark.parametrize(("text", "words", "tree", "repairs"), BRACKETS)
def test_rules_for_brackets(text: str, words: str, tree: str, repairs: dict[str, int]) -> None:
    assert mended(text, words, in_order=False) == (tree, repairs)


@pytest.mark.parametrize(("text", "words", "tree", "repairs"), IN_ORDER)
def test_rules_for_in_order(text: str, words: str, tree: str, repairs: dict[str, int]) -> None:
    assert mended(text, words, in_order=True) == (tree, repairs)


def test_the_examples_use_every_rule() -> None:
    used = {rule for *_, repairs in BRACKETS + IN_ORDER for rule in repairs}
    assert used == set(RULES)


FORMS: list[Any] = [
    Linearisation(kind, closings, leaves, ("NP", "S", "TOP"), (",", "N") * (leaves == "tags"), 3)
    for kind in ("brackets", "inorder")
    for closings in ("labelled", "bare")
    for leaves in ("words", "tags")
]


@given(
    form=st.sampled_from(FORMS),
    ids=st.lists(st.integers(-2, 14), max_size=40),
    words=st.lists(st.sampled_from(["a", ",", "TOP"]), max_size=8),
    tagged=st.booleans(),
)
def test_any_ids_give_a_tree_over_the_words(
    form: Linearisation, ids: list[int], words: list[str], tagged: bool
) -> None:
    tags = [f"T{at}" for at in range(len(words))] if tagged else None
    tree, repairs = form.decode(ids, words, tags)
    assert tree.label == "TOP"
    assert [leaf.word for leaf in leaves(tree)] == words
    allowed = {*form.tags, *(tags or ["XX"])}
    assert {leaf.tag for leaf in leaves(tree)} <= allowed
    assert all(here.children for here in constituents(tree)) or not words
    assert set(repairs) <= set(RULES)
    assert all(repairs.values())
    if not repairs and words:
        again, still = form.decode(form.encode(tree), words, tags)
        assert write_tree(again) == write_tree(tree)
        assert not still


@given(
    form=st.sampled_from(FORMS),
    ids=st.lists(st.integers(3, 10), max_size=40),
    words=st.lists(st.just("a"), min_size=1, max_size=8),
)
def test_a_mended_tree_needs_no_more_mending(
    form: Linearisation, ids: list[int], words: list[str]
) -> None:
    tree, _ = form.decode(ids, words, [","] * len(words))
    again, repairs = form.decode(form.encode(tree), words, [","] * len(words))
    assert write_tree(again) == write_tree(tree)
    assert not repairs


def test_no_words_give_a_top_without_children() -> None:
    tree, repairs = mend(read("(S XX )S"), [], [], in_order=False)
    assert (tree.label, tree.children) == ("TOP", [])
    assert repairs == {"surplus leaf": 1, "empty constituent": 1}


def test_nesting_is_no_limit() -> None:
    symbols = [Symbol("opening", "S")] * 100_000 + [Symbol("leaf", None)] * 2
    tree, repairs = mend(symbols, ["a"], ["A"], in_order=False)
    assert repairs == {"surplus leaf": 1, "unclosed constituent": 100_000}
    assert sum(1 for _ in constituents(tree)) == 100_001


def test_leaves_of_the_output_are_new() -> None:
    tree, _ = mend(read("XX"), ["a"], ["A"], in_order=False)
    assert isinstance(tree, Tree)
    assert isinstance(tree.children[0], Leaf)


COUNTS = [
    Counter(),
    Counter({"missing leaf": 3, "no root": 1}),
    Counter({"missing leaf": 1}),
    Counter[str](),
]


def test_shares_are_of_outputs() -> None:
    found = shares(COUNTS)
    assert list(found) == ["any", *RULES]
    assert {rule: share for rule, share in found.items() if share} == {
        "any": 0.5,
        "missing leaf": 0.5,
        "no root": 0.25,
    }
    assert set(shares([]).values()) == {0.0}


def test_the_report_names_the_rules_used() -> None:
    assert report(COUNTS) == (
        "repaired: 2 of 4 outputs (50.00%)\n"
        "  missing leaf: 2 (50.00%), 4 in all\n"
        "  no root: 1 (25.00%), 1 in all"
    )
    assert report([Counter(), Counter()]) == "repaired: none of 2 outputs"
