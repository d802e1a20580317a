"""Trees: reading and writing brackets, for good input, for bad input, and at any depth."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtrans.errors import DataError
from seqtrans_tasks.parsing.tree import (
    Leaf,
    Node,
    Tree,
    constituents,
    copy,
    depth,
    escape,
    escape_quotes,
    from_nltk,
    leaves,
    read_numbered_trees,
    read_tree,
    read_tree_lines,
    read_trees,
    same,
    spans,
    to_nltk,
    unescape,
    words,
    write_tree,
)

HERON = "(S (NP (DT The) (NN heron)) (VP (VBD slept)) (. .))"

unhurried = settings(deadline=None, max_examples=60)

atoms = st.text(
    st.characters(exclude_characters="() \t\n\r\v\f", exclude_categories=["Cs"]), min_size=1
)
trees = st.recursive(
    st.builds(Leaf, atoms, atoms),
    lambda below: st.builds(
        Tree, st.one_of(atoms, st.just("")), st.lists(below, min_size=1, max_size=4)
    ),
    max_leaves=12,
)
white_space = st.text(" \t\n\r\v\f", min_size=1, max_size=3)


def deep(levels: int) -> str:
    return "(X " * levels + "(NN heron)" + ")" * levels


@unhurried
@given(trees)
def test_reading_back_what_was_written_gives_the_same_tree(node: Node) -> None:
    written = write_tree(node)
    assert "\n" not in written
    assert same(read_tree(written), node)


@unhurried
@given(st.lists(trees, max_size=4), st.data())
def test_white_space_does_not_matter(nodes: list[Node], data: st.DataObject) -> None:
    text = "".join(write_tree(node) + data.draw(white_space) for node in nodes)
    spread = text.replace("(", "( ").replace(")", data.draw(white_space) + ")")
    # An unlabelled bracket stays unlabelled only if another bracket follows it, which it does.
    read = list(read_trees(spread, "spread"))
    assert [write_tree(node) for node in read] == [write_tree(node) for node in nodes]


@unhurried
@given(trees)
def test_lines_of_a_file_are_read_as_its_text_is(node: Node) -> None:
    text = write_tree(node).replace(" (", "\n(")
    assert [write_tree(one) for one in read_trees(text.split("\n"), "lines")] == [write_tree(node)]


def test_brackets_become_nodes() -> None:
    tree = read_tree("( (S (NP (DT The)\n\t(NN heron)) (VP(VBD slept))))")
    assert isinstance(tree, Tree)
    assert tree.label == ""
    assert repr(tree) == "Tree('( (S (NP (DT The) (NN heron)) (VP (VBD slept))))')"
    single = read_tree("(UH Yes)")
    assert isinstance(single, Leaf)
    assert (single.tag, single.word) == ("UH", "Yes")


def test_only_the_white_space_of_c_separates() -> None:
    (leaf,) = leaves(read_tree("(NN\v10\u00a0kg\u2028\u3000\f)"))
    assert leaf.word == "10\u00a0kg\u2028\u3000"


def test_lines_and_trees_are_numbered_from_one() -> None:
    text = f"\n{HERON} {HERON}\r\n\n( (S\n  (NN a)))\n(NN b)"
    assert [line for line, _ in read_numbered_trees(text, "trees")] == [2, 2, 4, 6]


def test_no_text_is_no_trees() -> None:
    assert list(read_trees("", "empty")) == []
    assert list(read_trees(" \n\t", "blank")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{HERON}\n(S (NN a)\n",
            "f, line 2, column 1: a closing bracket is missing from the tree that begins here, "
            "at the end of the file.",
        ),
        (
            f"(S (NP (NN a)\n{HERON}\n",
            "f, line 1, column 1: 2 closing brackets are missing from the tree that begins here, "
            "perhaps before line 2, which seems to begin another tree.",
        ),
        (
            f"{HERON}\n {HERON})\n",
            "f, line 2, column 53: this closing bracket has no opening one; "
            "remove it, or add the missing '('.",
        ),
        (
            "(S\n  () (NN a))",
            "f, line 2, column 3: these brackets are empty; "
            "they must hold a label and a word or constituents.",
        ),
        (
            "(S)",
            "f, line 1, column 1: (S) holds neither a word nor constituents; "
            "write a tag and a word, e.g. (NN heron), or remove it.",
        ),
        (
            "(NP the cat)",
            "f, line 1, column 5: (NP the ...) holds several words; "
            "each needs a bracket and a tag of its own, e.g. (NN heron).",
        ),
        (
            "(NP (DT the) cat)",
            "f, line 1, column 14: the word 'cat' stands beside constituents in (NP ...); "
            "give it a bracket and a tag of its own, e.g. (NN cat).",
        ),
        (
            "(NP the (NN cat))",
            "f, line 1, column 5: the word 'the' stands beside constituents in (NP ...); "
            "give it a bracket and a tag of its own, e.g. (NN the).",
        ),
        (
            "(NP (DT the",
            "f, line 1, column 9: (DT the is not closed before the end of the file; "
            "add the missing ')'.",
        ),
        (
            "It was a heron.",
            "f, line 1, column 1: 'It' stands outside all brackets; a tree begins with '('.",
        ),
        (
            f"{HERON} 0.93",
            "f, line 1, column 53: '0.93' stands outside all brackets; a tree begins with '('.",
        ),
    ],
)
def test_malformed_text_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        list(read_trees(text, "f"))
    assert str(caught.value) == message
    with pytest.raises(DataError) as caught:
        list(read_trees(text.splitlines(keepends=True), "f"))
    assert str(caught.value) == message


@unhurried
@given(trees, st.data())
def test_one_bracket_too_few_or_too_many_is_never_accepted(node: Node, data: st.DataObject) -> None:
    text = write_tree(node)
    brackets = [place for place, letter in enumerate(text) if letter in "()"]
    place = data.draw(st.sampled_from(brackets))
    for broken in (text[:place] + text[place + 1 :], text[:place] + text[place] + text[place:]):
        with pytest.raises(DataError):
            list(read_trees(broken, "broken"))


def test_read_tree_wants_exactly_one() -> None:
    with pytest.raises(DataError) as caught:
        read_tree(" \n", "f")
    assert str(caught.value) == "f: there is no tree, but exactly one in brackets is expected."
    with pytest.raises(DataError) as caught:
        read_tree(f"{HERON}\n{HERON}")
    assert str(caught.value) == (
        "the text, line 2: a second tree begins here, but exactly one is expected."
    )


def test_one_tree_a_line() -> None:
    found = list(read_tree_lines(f"{HERON}\n\n(UH Yes)\n", "f", allow_blank=True))
    assert [node and write_tree(node) for node in found] == [HERON, None, "(UH Yes)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{HERON}\n\n",
            "f, line 2: this line is blank, but every line must hold one tree.",
        ),
        (
            f"{HERON}\n{HERON} {HERON}\n",
            "f, line 2: there are several trees on this line, "
            "but every line must hold exactly one.",
        ),
        (
            f"{HERON}\n(S (NN a\n))",
            "f, line 2, column 8: (NN a is not closed before the end of the line; "
            "add the missing ')'.",
        ),
        (
            f"{HERON}\n (S (NN a)\n)",
            "f, line 2, column 2: a closing bracket is missing from the tree that begins here; "
            "it must end on its line.",
        ),
        (
            f"{HERON}\n(S (NN a)))\n",
            "f, line 2, column 11: this closing bracket has no opening one; "
            "remove it, or add the missing '('.",
        ),
    ],
)
def test_a_line_without_exactly_one_tree_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        list(read_tree_lines(text, "f"))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            Leaf("NN", "a b"),
            "the word 'a b' holds a bracket or white space, so the tree cannot be written; "
            "write brackets as -LRB- and -RRB- (see escape).",
        ),
        (
            Tree("S", [Leaf("NN", ":)")]),
            "the word ':)' holds a bracket or white space, so the tree cannot be written; "
            "write brackets as -LRB- and -RRB- (see escape).",
        ),
        (
            Tree("S (", [Leaf("NN", "a")]),
            "the label 'S (' holds a bracket or white space, so the tree cannot be written; "
            "write brackets as -LRB- and -RRB- (see escape).",
        ),
        (Leaf("NN", ""), "a word is empty, so the tree cannot be written in brackets."),
        (Leaf("", "a"), "a tag is empty, so the tree cannot be written in brackets."),
        (
            Tree("S", [Tree("NP")]),
            "the constituent 'NP' has no children, so it cannot be written; "
            "a constituent needs at least one.",
        ),
    ],
)
def test_what_brackets_cannot_hold_is_not_written(node: Node, message: str) -> None:
    with pytest.raises(DataError) as caught:
        write_tree(node)
    assert str(caught.value) == message


@unhurried
@given(st.text())
def test_unescaping_undoes_escaping(word: str) -> None:
    escaped = escape(word)
    assert not set(escaped) & set("(){}[]")
    assert unescape(escaped) == word


def test_escapes_are_those_of_the_penn_treebank() -> None:
    assert escape("(1/2)*") == r"-LRB-1\/2-RRB-\*"
    assert unescape(r"-LCB-s-RCB--LSB-\/-RSB-") == "{s}[/]"
    assert unescape("-NONE-") == "-NONE-"
    assert [unescape(word, quotes=True) for word in ("``", "''", "'s")] == ['"', '"', "'s"]
    assert unescape("``") == "``"


def test_straight_quotes_open_and_close_in_turn() -> None:
    assert escape_quotes(['"', "No", '"', ",", '"', "I", '"']) == [
        "``",
        "No",
        "''",
        ",",
        "``",
        "I",
        "''",
    ]
    assert escape_quotes(["``", "No", '"', "'s"]) == ["``", "No", "''", "'s"]


def test_leaves_words_and_spans() -> None:
    tree = read_tree(HERON)
    assert words(tree) == ["The", "heron", "slept", "."]
    assert [leaf.tag for leaf in leaves(tree)] == ["DT", "NN", "VBD", "."]
    assert [constituent.label for constituent in constituents(tree)] == ["S", "NP", "VP"]
    assert spans(tree) == [("S", 0, 4), ("NP", 0, 2), ("VP", 2, 3)]
    assert spans(Leaf("UH", "Yes")) == []
    assert (depth(Leaf("UH", "Yes")), depth(tree)) == (1, 3)


@unhurried
@given(trees, trees)
def test_same_is_equality_of_brackets(first: Node, second: Node) -> None:
    assert same(first, second) == (write_tree(first) == write_tree(second))


@unhurried
@given(trees)
def test_a_copy_is_the_same_and_shares_no_node(node: Node) -> None:
    before = write_tree(node)
    twin = copy(node)
    assert same(twin, node)
    for leaf in leaves(twin):
        leaf.word += "x"
    for constituent in constituents(twin):
        constituent.children.append(Leaf("X", "x"))
    assert write_tree(node) == before


@unhurried
@given(trees)
def test_nltk_has_the_same_tree(node: Node) -> None:
    theirs = to_nltk(node)
    assert theirs.pos() == [(leaf.word, leaf.tag) for leaf in leaves(node)]
    assert theirs.height() == depth(node) + 1
    assert same(from_nltk(theirs), node)


def test_nltk_trees_that_are_no_treebank_trees_are_refused() -> None:
    import nltk

    with pytest.raises(DataError) as caught:
        from_nltk(nltk.Tree("S", [nltk.Tree("NP", ["the", "cat"])]))
    assert str(caught.value) == (
        "the nltk tree 'NP' has the word 'the' beside other children; "
        "a word needs a tree of its own with its tag as the label."
    )
    with pytest.raises(DataError) as caught:
        from_nltk(nltk.Tree("S", []))
    assert str(caught.value) == (
        "the nltk tree 'S' has no children; a tree needs a word or constituents."
    )


def test_no_depth_is_too_deep() -> None:
    levels = 100_000
    text = deep(levels)
    tree = read_tree(text)
    twin = copy(tree)
    assert write_tree(tree) == text
    assert same(tree, twin)
    assert depth(tree) == levels + 1
    assert len(spans(tree)) == levels
    assert words(tree) == ["heron"]
    assert same(from_nltk(to_nltk(tree)), tree)
    with pytest.raises(DataError, match="100000 closing brackets are missing"):
        list(read_trees("(X " * levels, "deep"))


def test_reading_takes_seconds_for_a_million_words() -> None:
    text = f"{HERON}\n" * 20_000
    started = time.perf_counter()
    count = sum(1 for _ in read_trees(text, "many"))
    seconds = time.perf_counter() - started
    assert count == 20_000
    assert seconds < 2.0  # 80,000 words; about 0.15 s on an idle processor


def real_files(shared: Path) -> list[Path]:
    data = shared / "data"
    return [
        *sorted((data / "wsj-sample").glob("*.mrg")),
        *sorted((data / "craft-treebank").glob("*.tree")),
        *sorted((data / "gum-const").glob("*.ptb")),
    ]


def test_real_files_survive_reading_and_writing(shared: Path) -> None:
    for path in random.Random(0).sample(real_files(shared), 60):
        text = path.read_text(encoding="utf-8")
        written = "".join(write_tree(node) for node in read_trees(text, path.name))
        assert "".join(written.split()) == "".join(text.split()), path


def test_nltk_reads_real_trees_alike(shared: Path) -> None:
    import nltk

    for path in random.Random(1).sample(real_files(shared), 12):
        for node in list(read_trees(path.read_text(encoding="utf-8"), path.name))[:40]:
            if all(not letter.isspace() for word in words(node) for letter in word):
                assert to_nltk(node) == nltk.Tree.fromstring(write_tree(node)), path
