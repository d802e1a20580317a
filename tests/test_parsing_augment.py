from __future__ import annotations

from random import Random

import pytest

from seqtrans_tasks.parsing import grammar
from seqtrans_tasks.parsing.augment import LONGEST, OPEN, Variations
from seqtrans_tasks.parsing.cleaning import Steps, clean
from seqtrans_tasks.parsing.tree import (
    Leaf,
    Node,
    Tree,
    constituents,
    leaves,
    read_tree,
    same,
    write_tree,
)


@pytest.fixture(scope="module")
def trees() -> list[Node]:
    random = Random(3)
    cleaned = (clean(grammar.write_sentence(random)[0], Steps()) for _ in range(400))
    return [tree for tree in cleaned if tree is not None]


def places(trees: list[Node]) -> dict[tuple[str, str], set[str]]:
    """What stands where in some trees, as text."""
    found: dict[tuple[str, str], set[str]] = {}
    for root in trees:
        if isinstance(root, Tree):
            for tree in constituents(root):
                for child in tree.children:
                    if isinstance(child, Tree):
                        found.setdefault((tree.label, child.label), set()).add(write_tree(child))
    return found


def test_nothing_changes_without_probability(trees: list[Node]) -> None:
    variations = Variations(trees, swap=0, word_swap=0)
    assert all(same(variations.vary(tree, Random(1)), tree) for tree in trees)


def test_the_same_random_numbers_give_the_same_trees(trees: list[Node]) -> None:
    variations = Variations(trees, swap=0.3, word_swap=0.3)
    once, again, other = (
        [write_tree(variations.vary(tree, random)) for tree in trees]
        for random in (Random(1), Random(1), Random(2))
    )
    assert once == again != other


def test_what_is_put_in_stood_in_such_a_place(trees: list[Node]) -> None:
    variations = Variations(trees, swap=1, word_swap=0)
    known = places(trees)
    changed = 0
    for tree in trees:
        before = write_tree(tree)
        varied = variations.vary(tree, Random(before))
        changed += write_tree(varied) != before
        assert isinstance(varied, Tree) == isinstance(tree, Tree)
        if isinstance(varied, Tree):
            for child in varied.children:
                if isinstance(child, Tree):
                    assert write_tree(child) in known[varied.label, child.label]
                    assert len(leaves(child)) <= LONGEST
    assert changed > len(trees) / 2


def test_words_are_exchanged_for_others_of_their_tag(trees: list[Node]) -> None:
    variations = Variations(trees, swap=0, word_swap=1)
    known: dict[str, set[str]] = {}
    for tree in trees:
        for leaf in leaves(tree):
            known.setdefault(leaf.tag, set()).add(leaf.word)
    open_tags = {tag for tag, words in known.items() if len(words) >= OPEN}
    assert {"NN", "VBD"} <= open_tags
    assert not {"DT", ".", "IN"} & open_tags
    changed = 0
    for tree in trees:
        varied = variations.vary(tree, Random(5))
        for old, new in zip(leaves(tree), leaves(varied), strict=True):
            assert new.tag == old.tag
            assert new.word in known[old.tag]
            changed += new.word != old.word
            if old.tag not in open_tags:
                assert new.word == old.word
    assert changed > 0


def test_training_trees_are_left_alone(trees: list[Node]) -> None:
    before = [write_tree(tree) for tree in trees]
    variations = Variations(trees, swap=1, word_swap=1)
    for tree in trees:
        variations.vary(tree, Random(1))
    assert [write_tree(tree) for tree in trees] == before


def test_any_depth() -> None:
    root: Node = Leaf("NN", "x")
    for _ in range(2000):
        root = Tree("NP", [root])
    assert same(Variations([root], 0, 1).vary(root, Random(1)), root)
    assert same(Variations([], 1, 1).vary(read_tree("(UH Yes)"), Random(1)), read_tree("(UH Yes)"))
