"""Pictures of trees: in a terminal, and as SVG."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtrans_tasks.parsing.drawing import draw, svg
from seqtrans_tasks.parsing.tree import Leaf, Node, Tree, read_tree, read_trees

SVG = "{http://www.w3.org/2000/svg}"
HERON = "(TOP (S (NP (DT The) (NN heron)) (VP (VBD slept)) (. .)))"


def test_a_small_tree_is_drawn_with_its_words_along_the_bottom() -> None:
    lines = draw(read_tree(HERON), width=80).split("\n")
    assert lines[0].strip() == "TOP"
    assert lines[-1].split() == ["The", "heron", "slept", "."]
    assert [line.split() for line in lines if "S" in line or "P" in line] == [
        ["TOP"],
        ["S"],
        ["NP", "VP", "│"],
    ]
    assert set("".join(lines[1:-1])) >= set("│┌─┴┬┐")
    assert not any(line.endswith(" ") for line in lines)


def test_a_tree_wider_than_the_terminal_is_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "22")
    assert draw(read_tree("(S (A b) (C d))")).startswith("     S")
    indented = draw(read_tree(HERON), width=21)
    monkeypatch.setenv("COLUMNS", "21")
    assert draw(read_tree(HERON)) == indented
    assert draw(read_tree(HERON), width=40) != indented


def test_indented_lines_show_the_nesting() -> None:
    tree = read_tree("(S (NP (DT The) (NN heron)) (VP (VBD 眠った)) (. .))")
    assert draw(tree, width=80) == "\n".join(
        [
            "S",
            "├─ NP",
            "│  ├─ DT The",
            "│  └─ NN heron",
            "├─ VP",
            "│  └─ VBD 眠った",
            "└─ . .",
        ]
    )


def test_an_indent_that_fills_the_width_is_given_as_a_number() -> None:
    tree = read_tree("(A (B (C (D (E f)))) (G h))")
    assert draw(tree, width=9) == "\n".join(["A", "[1] B", "[2] C", "[3] D", "[4] E f", "[1] G h"])
    levels = 100_000
    deep = read_tree("(X " * levels + "(NN a)" + ")" * levels)
    lines = draw(deep, width=80).split("\n")
    assert len(lines) == levels + 1
    assert lines[-1] == f"[{levels}] NN a"
    assert svg(deep).count("<text") == levels + 2


def test_a_single_word_can_be_drawn() -> None:
    assert draw(Leaf("UH", "Yes"), width=80) == " UH\n │\nYes"
    assert [text.text for text in texts(Leaf("UH", "Yes"))] == ["UH", "Yes"]


def texts(node: Node) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg(node)).iter(f"{SVG}text"))


def test_svg_holds_labels_tags_and_words_where_they_belong() -> None:
    found = texts(read_tree(HERON))
    assert [text.text for text in found[:4]] == ["TOP", "S", "VP", "NP"]
    rows = {text.text: float(text.attrib["y"]) for text in found}
    columns = [float(text.attrib["x"]) for text in found if text.text in ("The", "heron", "slept")]
    assert rows["TOP"] < rows["S"] < rows["NP"] == rows["VP"] < rows["NN"] < rows["heron"]
    assert rows["The"] == rows["heron"] == rows["slept"]
    assert len(set(columns)) == 3


def test_svg_escapes_text() -> None:
    node = Tree("A&B", [Leaf("<", "</svg>"), Leaf('"', "\x07\u00a0")])
    assert {text.text for text in texts(node)} == {"A&B", "<", "</svg>", '"', "\ufffd\u00a0"}


labels = st.sampled_from(["S", "NP", "a-very-long-label", ""])
trees = st.recursive(
    st.builds(Leaf, st.sampled_from(["N", "-LRB-"]), st.text(min_size=1, max_size=9)),
    lambda below: st.builds(Tree, labels, st.lists(below, min_size=1, max_size=4)),
    max_leaves=15,
)


@settings(deadline=None)
@given(trees)
def test_svg_is_well_formed_and_inside_its_frame(node: Node) -> None:
    root = ElementTree.fromstring(svg(node))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for text in root.iter(f"{SVG}text"):
        assert 0 < float(text.attrib["x"]) < width
        assert 0 < float(text.attrib["y"]) < height
    for path in root.iter(f"{SVG}path"):
        for x, y in re.findall(r"M([\d.]+) ([\d.]+)", path.attrib["d"]):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


def test_real_trees_are_drawn_within_the_width(shared: Path) -> None:
    path = shared / "data" / "wsj-sample" / "wsj_0003.mrg"
    for node in read_trees(path.read_text(encoding="ascii"), path.name):
        for width in (60, 400):
            assert max(map(len, draw(node, width=width).split("\n"))) <= width
        ElementTree.fromstring(svg(node))
