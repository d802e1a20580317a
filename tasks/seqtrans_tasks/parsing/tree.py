"""Constituency trees: the nodes, and a reader and a writer of brackets that know no depth limit.

The format is that of the Penn Treebank (Marcus et al. 1993): ``(S (NP (DT The) (NN heron)) ...)``.
White space is what C and EVALB call so: space, tab, line feed, carriage return, vertical tab and
form feed. Every other character, the no-break space included, is an ordinary character of a word.
Nothing here recurses: a tree may be nested as deeply as memory allows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import Any, NoReturn, TypeAlias

from seqtrans.errors import DataError

_SPACE = r"[ \t\n\r\v\f]"
_ATOM = r"[^() \t\n\r\v\f]"
_ATOM_ALONE = re.compile(rf"{_ATOM}+")
_SCANNER = re.compile(
    rf"\({_SPACE}*+({_ATOM}++){_SPACE}++({_ATOM}++){_SPACE}*+\)"  # a leaf: its tag and word
    rf"|\({_SPACE}*+({_ATOM}*+)"  # an opening bracket and its label
    r"|(\))"
    rf"|({_ATOM}++)"  # a word that is not alone in its bracket
)
_LEAF, _OPEN, _CLOSE = 2, 3, 4


@dataclass(slots=True, eq=False)
class Leaf:
    """One word under its part-of-speech tag, ``(NN heron)``, both as in the file, escapes kept."""

    tag: str
    word: str


@dataclass(slots=True, eq=False, repr=False)
class Tree:
    """A constituent: a label and at least one child. An unlabelled bracket has the label ``""``."""

    label: str
    children: list[Tree | Leaf] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Tree({_brackets(self)!r})"


Node: TypeAlias = Tree | Leaf


def read_trees(text_or_lines: str | Iterable[str], name: str) -> Iterator[Node]:
    """The trees of a text, or of the lines of a file, in order; a tree may span lines.

    A bracket around one word is a `Leaf`, any other a `Tree`; ``( (S ...))`` has the label ``""``.
    ``name`` stands for the file in messages. Lines are held only until their brackets balance.
    Raises `DataError` with line and column for unbalanced or empty brackets, a bracket with several
    words or with words beside constituents, and text outside brackets.
    """
    for _, node in read_numbered_trees(text_or_lines, name):
        yield node


def read_numbered_trees(
    text_or_lines: str | Iterable[str], name: str, *, share_lines: bool = True
) -> Iterator[tuple[int, Node]]:
    """As `read_trees`, each tree with the number of the line on which it begins, from 1.

    Unless trees may ``share_lines``, one that begins where another ends is a `DataError`.
    """
    for first_line, text in _balanced_blocks(_lines(text_or_lines)):
        for place, (line, node) in enumerate(_scan(text, first_line, name)):
            if place and not share_lines:
                raise DataError(
                    f"{name}, line {line}: a second tree begins on the line on which another "
                    "ends; begin every tree on a line of its own."
                )
            yield line, node


def read_tree(text: str, name: str = "the text") -> Node:
    """The one tree of a text. Raises `DataError` for none, for several, and as `read_trees`."""
    found: Node | None = None
    for line, node in read_numbered_trees(text, name):
        if found is not None:
            raise DataError(
                f"{name}, line {line}: a second tree begins here, but exactly one is expected."
            )
        found = node
    if found is None:
        raise DataError(f"{name}: there is no tree, but exactly one in brackets is expected.")
    return found


def read_tree_lines(
    text_or_lines: str | Iterable[str], name: str, *, allow_blank: bool = False
) -> Iterator[Node | None]:
    """The trees of a file that holds exactly one on every line, as parsers write them.

    A blank line gives ``None`` if ``allow_blank``. Raises `DataError` for a blank line otherwise,
    for a second tree on a line, for one that does not end on its line, and as `read_trees` does.
    """
    for number, line in enumerate(_lines(text_or_lines), start=1):
        found: Node | None = None
        for _, node in _scan(line, number, name, one_line=True):
            if found is not None:
                raise DataError(
                    f"{name}, line {number}: there are several trees on this line, "
                    "but every line must hold exactly one."
                )
            found = node
        if found is None and not allow_blank:
            raise DataError(
                f"{name}, line {number}: this line is blank, but every line must hold one tree."
            )
        yield found


def write_tree(node: Node) -> str:
    """The tree on one line; reading it back gives the same tree.

    Raises `DataError` for what brackets cannot hold: a word, tag or label with brackets or white
    space in it, an empty word or tag, and a constituent without children.
    """
    stack: list[Node] = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, Tree):
            if not here.children:
                raise DataError(
                    f"the constituent {here.label!r} has no children, so it cannot be written; "
                    "a constituent needs at least one."
                )
            if here.label and not _ATOM_ALONE.fullmatch(here.label):
                _refuse("label", here.label)
            stack.extend(here.children)
        else:
            if not _ATOM_ALONE.fullmatch(here.tag):
                _refuse("tag", here.tag)
            if not _ATOM_ALONE.fullmatch(here.word):
                _refuse("word", here.word)
    return _brackets(node)


_ESCAPES = {
    "(": "-LRB-",
    ")": "-RRB-",
    "{": "-LCB-",
    "}": "-RCB-",
    "[": "-LSB-",
    "]": "-RSB-",
    "/": r"\/",
    "*": r"\*",
}
_PLAIN = {escaped: plain for plain, escaped in _ESCAPES.items()}
_TO_ESCAPE = re.compile(r"[(){}\[\]/*]")
_TO_UNESCAPE = re.compile(r"-[LR][RCS]B-|\\[/*]")


def escape(word: str) -> str:
    r"""A plain word as the Penn Treebank writes it: ``(`` as ``-LRB-``, ``/`` as ``\/`` and so on.

    `unescape` undoes it exactly, unless the plain word itself spells an escape such as ``-LRB-``.
    Straight quotation marks stay: which way one points depends on its neighbours (`escape_quotes`).
    """
    return _TO_ESCAPE.sub(lambda match: _ESCAPES[match[0]], word)


def unescape(word: str, *, quotes: bool = False) -> str:
    """A treebank's word as plain text has it; with ``quotes``, the words `` and '' become ``"``."""
    if quotes and word in ("``", "''"):
        return '"'
    return _TO_UNESCAPE.sub(lambda match: _PLAIN[match[0]], word)


def escape_quotes(words: Sequence[str]) -> list[str]:
    """The words of a sentence with its straight quotation marks ``"`` as `` and '' in turn."""
    opened = False
    result = []
    for word in words:
        if word == '"':
            word = "''" if opened else "``"
        if word in ("``", "''"):
            opened = word == "``"
        result.append(word)
    return result


def leaves(node: Node) -> list[Leaf]:
    """The leaves from left to right."""
    found = []
    stack = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, Leaf):
            found.append(here)
        else:
            stack.extend(reversed(here.children))
    return found


def words(node: Node) -> list[str]:
    """The words from left to right, escapes kept."""
    return [leaf.word for leaf in leaves(node)]


def constituents(node: Node) -> Iterator[Tree]:
    """The constituents from left to right, each before those inside it."""
    stack = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, Tree):
            yield here
            stack.extend(reversed(here.children))


def spans(node: Node) -> list[tuple[str, int, int]]:
    """Label, first word and end (exclusive) of every constituent, ordered as `constituents` is."""
    found: list[tuple[str, int, int]] = []
    position = 0
    stack: list[Node | int] = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, Leaf):
            position += 1
        elif isinstance(here, Tree):
            stack.append(len(found))
            found.append((here.label, position, position))
            stack.extend(reversed(here.children))
        else:
            label, start, _ = found[here]
            found[here] = (label, start, position)
    return found


def depth(node: Node) -> int:
    """How many brackets are nested at most: 1 for a leaf, 2 for a constituent over leaves."""
    deepest = 0
    level: list[Node] = [node]
    while level:
        deepest += 1
        level = [child for here in level if isinstance(here, Tree) for child in here.children]
    return deepest


def same(first: Node, second: Node) -> bool:
    """Whether two trees have the same shape, labels, tags and words."""
    stack = [(first, second)]
    while stack:
        one, other = stack.pop()
        if isinstance(one, Leaf):
            if not isinstance(other, Leaf) or (one.tag, one.word) != (other.tag, other.word):
                return False
        else:
            if isinstance(other, Leaf) or one.label != other.label:
                return False
            if len(one.children) != len(other.children):
                return False
            stack.extend(zip(one.children, other.children, strict=True))
    return True


def copy(node: Node) -> Node:
    """A tree of new nodes that is the `same`."""
    if isinstance(node, Leaf):
        return Leaf(node.tag, node.word)
    root = Tree(node.label)
    stack = [(node, root)]
    while stack:
        original, twin = stack.pop()
        for child in original.children:
            if isinstance(child, Leaf):
                twin.children.append(Leaf(child.tag, child.word))
            else:
                below = Tree(child.label)
                twin.children.append(below)
                stack.append((child, below))
    return root


def to_nltk(node: Node) -> Any:
    """The tree as an `nltk.Tree`, a leaf as a tree over one string; depth is not limited."""
    import nltk

    if isinstance(node, Leaf):
        return nltk.Tree(node.tag, [node.word])
    root = nltk.Tree(node.label, [])
    stack = [(node, root)]
    while stack:
        original, twin = stack.pop()
        for child in original.children:
            if isinstance(child, Leaf):
                twin.append(nltk.Tree(child.tag, [child.word]))
            else:
                below = nltk.Tree(child.label, [])
                twin.append(below)
                stack.append((child, below))
    return root


def from_nltk(tree: Any) -> Node:
    """The `nltk.Tree` as our own; a tree over one string becomes a `Leaf`.

    Raises `DataError` for a tree without children and for strings beside other children.
    """
    holder = Tree("")
    stack = [(tree, holder)]
    while stack:
        original, parent = stack.pop()
        label = str(original.label())
        strings = sum(isinstance(child, str) for child in original)
        if strings == 1 and len(original) == 1:
            parent.children.append(Leaf(label, original[0]))
        elif len(original) == 0:
            raise DataError(
                f"the nltk tree {label!r} has no children; a tree needs a word or constituents."
            )
        elif strings:
            raise DataError(
                f"the nltk tree {label!r} has the word {_first_string(original)!r} beside other "
                "children; a word needs a tree of its own with its tag as the label."
            )
        else:
            twin = Tree(label)
            parent.children.append(twin)
            stack.extend((child, twin) for child in reversed(original))
    return holder.children[0]


def _first_string(children: Iterable[Any]) -> str:
    return next(child for child in children if isinstance(child, str))


def _brackets(node: Node) -> str:
    parts: list[str] = []
    stack: list[Node | None] = [node]
    while stack:
        here = stack.pop()
        if here is None:
            parts.append(")")
        elif isinstance(here, Leaf):
            parts.append(f" ({here.tag} {here.word})")
        else:
            parts.append(f" ({here.label}")
            stack.append(None)
            stack.extend(reversed(here.children))
    return "".join(parts)[1:]


def _refuse(kind: str, value: str) -> NoReturn:
    if not value:
        raise DataError(f"a {kind} is empty, so the tree cannot be written in brackets.")
    raise DataError(
        f"the {kind} {value!r} holds a bracket or white space, so the tree cannot be written; "
        "write brackets as -LRB- and -RRB- (see escape)."
    )


def _lines(text_or_lines: str | Iterable[str]) -> Iterable[str]:
    # str.splitlines would also break at characters that are no line ends here, such as U+2028.
    return io.StringIO(text_or_lines) if isinstance(text_or_lines, str) else text_or_lines


def _balanced_blocks(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Whole trees as text, with the number of the first line: as few lines as balance."""
    block: list[str] = []
    first_line, open_brackets = 1, 0
    number = 0
    for number, line in enumerate(lines, start=1):
        block.append(line if line.endswith("\n") else line + "\n")
        open_brackets += line.count("(") - line.count(")")
        if open_brackets <= 0:
            yield first_line, "".join(block)
            block, first_line, open_brackets = [], number + 1, 0
    if block:
        yield first_line, "".join(block)


def _scan(
    text: str, first_line: int, name: str, *, one_line: bool = False
) -> Iterator[tuple[int, Node]]:
    """The trees of a text, each with its line; positions are worked out for roots and errors."""
    line, counted = first_line, 0
    parents: list[Tree] = []
    openings: list[int] = []
    here: Tree | None = None
    for match in _SCANNER.finditer(text):
        kind = match.lastindex
        if kind == _LEAF:
            tag, word = match.group(1, 2)
            leaf = Leaf(intern(tag), word)
            if here is None:
                line, counted = line + text.count("\n", counted, match.start()), match.start()
                yield line, leaf
            else:
                here.children.append(leaf)
        elif kind == _OPEN:
            opened = Tree(intern(match[3]), [])
            if here is not None:
                here.children.append(opened)
                parents.append(here)
            openings.append(match.start())
            here = opened
        elif kind == _CLOSE:
            if here is None:
                raise _error(
                    text,
                    match.start(),
                    first_line,
                    name,
                    "this closing bracket has no opening one; remove it, or add the missing '('.",
                )
            start = openings.pop()
            if not here.children:
                raise _error(text, start, first_line, name, _why_empty(here.label))
            if parents:
                here = parents.pop()
            else:
                line, counted = line + text.count("\n", counted, start), start
                root, here = here, None
                yield line, root
        else:
            problem = _why_stray(text, match, here, one_line)
            raise _error(text, match.start(), first_line, name, problem)
    if here is not None:
        raise _error(
            text, openings[0], first_line, name, _why_open(text, first_line, openings, one_line)
        )


def _place(text: str, position: int) -> tuple[int, int]:
    """How many lines lie before a position, and its column from 1."""
    return text.count("\n", 0, position), position - text.rfind("\n", 0, position)


def _error(text: str, position: int, first_line: int, name: str, problem: str) -> DataError:
    line, column = _place(text, position)
    return DataError(f"{name}, line {first_line + line}, column {column}: {problem}")


def _why_empty(label: str) -> str:
    if not label:
        return "these brackets are empty; they must hold a label and a word or constituents."
    return (
        f"({label}) holds neither a word nor constituents; "
        "write a tag and a word, e.g. (NN heron), or remove it."
    )


def _why_stray(text: str, match: re.Match[str], here: Tree | None, one_line: bool) -> str:
    word = match[0]
    if here is None:
        return f"{word!r} stands outside all brackets; a tree begins with '('."
    after = text[match.end() :].lstrip(" \t\n\r\v\f")
    if here.children or after.startswith("("):
        return (
            f"the word {word!r} stands beside constituents in ({here.label} ...); "
            f"give it a bracket and a tag of its own, e.g. (NN {word})."
        )
    if not after:
        end = "line" if one_line else "file"
        return (
            f"({here.label} {word} is not closed before the end of the {end}; add the missing ')'."
        )
    return (
        f"({here.label} {word} ...) holds several words; "
        "each needs a bracket and a tag of its own, e.g. (NN heron)."
    )


def _why_open(text: str, first_line: int, openings: list[int], one_line: bool) -> str:
    count = len(openings)
    missing = "a closing bracket is" if count == 1 else f"{count} closing brackets are"
    if one_line:
        return f"{missing} missing from the tree that begins here; it must end on its line."
    next_tree = text.find("\n(", openings[0])
    if next_tree < 0:
        return f"{missing} missing from the tree that begins here, at the end of the file."
    line = first_line + text.count("\n", 0, next_tree + 1)
    return (
        f"{missing} missing from the tree that begins here, "
        f"perhaps before line {line}, which seems to begin another tree."
    )
