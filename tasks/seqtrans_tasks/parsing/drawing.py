"""Pictures of trees, for people: with box characters for a terminal, and as SVG."""

from __future__ import annotations

import shutil
import unicodedata
from html import escape

from seqtrans_tasks.parsing.tree import Leaf, Node, Tree, depth, leaves, to_nltk

# nltk draws by recursion, and a drawing this tall is read more easily indented.
_TALLEST_DRAWING = 60
_NARROWEST_TEXT = 20

# SVG, in pixels: a row holds one line of text, and its middle part the letters.
_FONT = 14
_ROW = 44
_BASELINE = 26
_ABOVE = _BASELINE - _FONT - 2
_BELOW = _BASELINE + 6
_LETTER = 9.0
_GAP = 14.0


def draw(node: Node, width: int | None = None) -> str:
    """The tree drawn with box characters, its words along the bottom.

    A drawing wider than ``width`` columns (default: those of the terminal), a very deep tree, and
    one with letters of two columns become one line a node instead, indented. An indent that would
    fill the width is given as its number of levels, ``[40] NP``; words are never cut.
    """
    columns = shutil.get_terminal_size().columns if width is None else width
    words = [leaf.word for leaf in leaves(node)]
    fits = sum(map(len, words)) + len(words) - 1 <= columns and depth(node) <= _TALLEST_DRAWING
    # nltk takes every letter for one column wide.
    if fits and all(_columns(word) == len(word) for word in words):
        from nltk.tree.prettyprinter import TreePrettyPrinter

        drawing: str = TreePrettyPrinter(to_nltk(node)).text(unicodelines=True)
        lines = [line.rstrip() for line in drawing.rstrip().split("\n")]
        if max(map(len, lines)) <= columns:
            return "\n".join(lines)
    return _indented(node, columns)


def svg(node: Node) -> str:
    """The tree as an SVG picture of its own, its tags and words along the bottom."""
    widths = _widths(node)
    tag_row = depth(node) - 1
    branches: list[str] = []
    labels: list[str] = []
    tags: list[str] = []
    words: list[str] = []
    # A node with its row and the left edge of its room.
    stack: list[tuple[Node, int, float]] = [(node, 0, 0.0)]
    while stack:
        here, row, left = stack.pop()
        middle = left + widths[id(here)] / 2
        if isinstance(here, Leaf):
            tags.append(_svg_text(middle, tag_row, here.tag))
            words.append(_svg_text(middle, tag_row + 1, here.word))
            continue
        labels.append(_svg_text(middle, row, here.label))
        room = sum(widths[id(child)] for child in here.children)
        edge = left + (widths[id(here)] - room) / 2
        below: list[tuple[float, int]] = []
        for child in here.children:
            stack.append((child, row + 1, edge))
            child_row = tag_row if isinstance(child, Leaf) else row + 1
            below.append((edge + widths[id(child)] / 2, child_row))
            edge += widths[id(child)]
        branches.append(_svg_branches(middle, row, below))
    wide, high = widths[id(node)], (tag_row + 2) * _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:g}" height="{high}"'
        f' viewBox="0 0 {wide:g} {high}" font-family="sans-serif" font-size="{_FONT}"'
        ' text-anchor="middle">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<g fill="none" stroke="#999">',
        *branches,
        '</g>\n<g font-weight="bold">',
        *labels,
        '</g>\n<g fill="#555">',
        *tags,
        "</g>\n<g>",
        *words,
        "</g>\n</svg>\n",
    ]
    return "\n".join(parts)


def _widths(node: Node) -> dict[int, float]:
    """How much room each node needs, by its id: its own text, and that of all below it."""
    order: list[Node] = []
    stack = [node]
    while stack:
        here = stack.pop()
        order.append(here)
        if isinstance(here, Tree):
            stack.extend(here.children)
    widths: dict[int, float] = {}
    for here in reversed(order):
        if isinstance(here, Leaf):
            columns = max(_columns(here.tag), _columns(here.word))
            widths[id(here)] = columns * _LETTER + _GAP
        else:
            room = sum(widths[id(child)] for child in here.children)
            widths[id(here)] = max(room, _columns(here.label) * _LETTER + _GAP)
    return widths


def _svg_text(middle: float, row: int, text: str) -> str:
    return f'<text x="{middle:g}" y="{row * _ROW + _BASELINE}">{_for_xml(text)}</text>'


def _svg_branches(middle: float, row: int, below: list[tuple[float, int]]) -> str:
    """Right-angled lines from a label to those below it, which thus cross no other lines."""
    bar = row * _ROW + _ROW
    path = f"M{middle:g} {row * _ROW + _BELOW}V{bar}M{below[0][0]:g} {bar}H{below[-1][0]:g}"
    for child_middle, child_row in below:
        path += f"M{child_middle:g} {bar}V{child_row * _ROW + _ABOVE}"
    return f'<path d="{path}"/>'


def _for_xml(text: str) -> str:
    allowed = (
        letter
        if letter.isprintable() or unicodedata.category(letter) == "Zs"
        else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )
    return escape("".join(allowed), quote=False)


def _columns(text: str) -> int:
    """The columns a text takes in a terminal, where East Asian letters take two and marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(letter)
        else 2
        if unicodedata.east_asian_width(letter) in "WF"
        else 1
        for letter in text
    )


def _indented(node: Node, columns: int) -> str:
    """One line a node, joined by box characters down to the level that the width has room for."""
    lines: list[str] = []
    # The indent of a node's own line, that of the lines below it, and its level.
    stack: list[tuple[Node, str, str, int]] = [(node, "", "", 0)]
    most = max(columns - _NARROWEST_TEXT, 0)
    while stack:
        here, first, rest, level = stack.pop()
        indent = first if level * 3 <= most else f"[{level}] "
        if isinstance(here, Leaf):
            lines.append(f"{indent}{here.tag} {here.word}")
            continue
        lines.append(indent + here.label)
        last = here.children[-1]
        for child in reversed(here.children):
            if (level + 1) * 3 > most:
                stack.append((child, "", "", level + 1))
            elif child is last:
                stack.append((child, rest + "└─ ", rest + "   ", level + 1))
            else:
                stack.append((child, rest + "├─ ", rest + "│  ", level + 1))
    return "\n".join(lines)
