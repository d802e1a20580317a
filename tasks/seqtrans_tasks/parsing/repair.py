"""How any symbols become a tree over exactly the input's words, and which rules it took.

Vinyals et al. (2015) "simply add brackets to either the beginning or the end of the tree"; nothing
is said there of a wrong number of leaves. The rules here always give a tree, and no sentence is
ever dropped: EVALB leaves erroneous sentences out of its totals, so dropping hard ones would raise
F1. They apply in this order, each counted under its name:

1. *unknown symbol*: what is no symbol of the vocabulary is dropped.
2. *stray closing*: a closing with no open constituent is dropped.
   *mismatched closing*: a closing with another label than the innermost open constituent closes the
   nearest open one of its label, and those inside that; if there is none, it closes the innermost
   one under its own label. (Bare closings cannot mismatch.)
3. *surplus leaf*: leaves beyond the last word are dropped.
4. *missing leaf*: words without a leaf are attached to the innermost open constituent, or if none
   is open to the root, or if there is no single root to the wrapper of rule 7.
5. *empty constituent*: constituents without leaves are dropped, and those left empty by that.
6. *unclosed constituent*: what is still open at the end is closed there.
7. *several roots* are wrapped in S; with *no root*, so are all the words.
8. Words and tags are put back from the input. This is no repair, and is not counted.

The in-order linearisation has the same rules, with one more beside rule 2:

2. *opening without first child*: an opening takes the node completed just before it as its first
   child. If there is none, at the beginning or right after another opening, it opens empty as in
   the bracket linearisation, and what follows fills it.

A dropped symbol leaves no trace, save that rule 3 comes after rule 2: an in-order opening takes a
surplus leaf as its first child, and then falls to rule 5 rather than cover an earlier node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from seqtrans_tasks.parsing.tree import Leaf, Node, Tree

if TYPE_CHECKING:
    from seqtrans_tasks.parsing.linear import Symbol

TOP = "TOP"
"""The label of every root."""

UNKNOWN_TAG = "XX"
"""The tag of a leaf for which neither the output nor the input has one."""

UNKNOWN_SYMBOL = "unknown symbol"
STRAY_CLOSING = "stray closing"
MISMATCHED_CLOSING = "mismatched closing"
CHILDLESS_OPENING = "opening without first child"
SURPLUS_LEAF = "surplus leaf"
MISSING_LEAF = "missing leaf"
EMPTY_CONSTITUENT = "empty constituent"
UNCLOSED_CONSTITUENT = "unclosed constituent"
SEVERAL_ROOTS = "several roots"
NO_ROOT = "no root"

RULES = (
    UNKNOWN_SYMBOL,
    STRAY_CLOSING,
    MISMATCHED_CLOSING,
    CHILDLESS_OPENING,
    SURPLUS_LEAF,
    MISSING_LEAF,
    EMPTY_CONSTITUENT,
    UNCLOSED_CONSTITUENT,
    SEVERAL_ROOTS,
    NO_ROOT,
)
"""The names of the rules in the order in which they apply."""


def mend(
    symbols: Iterable[Symbol | None],
    words: Sequence[str],
    tags: Sequence[str] | None = None,
    *,
    in_order: bool,
) -> tuple[Tree, Counter[str]]:
    """The tree over ``words`` that ``symbols`` stand for, and how often each rule was needed.

    ``None`` among the symbols is an unknown one. A leaf whose symbol names no tag takes that of
    ``tags``, or ``XX`` without them. The root is TOP. Over no words at all it has no children.
    """
    repairs: Counter[str] = Counter()
    roots, unclosed, leaves = _grow(symbols, repairs, in_order=in_order)

    surplus = leaves[len(words) :]
    missing = [Leaf("", "") for _ in range(len(leaves), len(words))]
    rootless = not roots
    if surplus:
        repairs[SURPLUS_LEAF] += len(surplus)
    if missing:
        repairs[MISSING_LEAF] += len(missing)
        _siblings(roots, unclosed).extend(missing)

    roots, empty = _prune(roots, surplus)
    if empty:
        repairs[EMPTY_CONSTITUENT] += empty
    still_unclosed = sum(bool(tree.children) for tree in unclosed)
    if still_unclosed:
        repairs[UNCLOSED_CONSTITUENT] += still_unclosed

    if words and (rootless or len(roots) > 1):
        repairs[NO_ROOT if rootless else SEVERAL_ROOTS] += 1
        roots = [Tree("S", roots)]

    leaves = [*leaves[: len(words)], *missing]
    for position, (leaf, word) in enumerate(zip(leaves, words, strict=True)):
        leaf.word = word
        leaf.tag = leaf.tag or (tags[position] if tags is not None else UNKNOWN_TAG)

    if len(roots) == 1 and isinstance(roots[0], Tree) and roots[0].label == TOP:
        return roots[0], repairs
    return Tree(TOP, roots), repairs


def shares(repairs: Sequence[Counter[str]]) -> dict[str, float]:
    """The share of outputs that needed each rule, and ``"any"`` for those that needed at least one.

    ``repairs`` has what `mend` counted for each output. Every rule is named, in order; all are 0.0
    if there are no outputs.
    """
    total = max(len(repairs), 1)
    needed = {"any": sum(bool(counts) for counts in repairs) / total}
    for rule in RULES:
        needed[rule] = sum(rule in counts for counts in repairs) / total
    return needed


def report(repairs: Sequence[Counter[str]]) -> str:
    """What `mend` counted over a set of outputs: a line for people, and one for each rule used."""
    repaired = sum(bool(counts) for counts in repairs)
    if not repaired:
        return f"repaired: none of {len(repairs)} outputs"
    lines = [f"repaired: {repaired} of {len(repairs)} outputs ({repaired / len(repairs):.2%})"]
    for rule in RULES:
        outputs = sum(rule in counts for counts in repairs)
        if outputs:
            times = sum(counts[rule] for counts in repairs)
            lines.append(f"  {rule}: {outputs} ({outputs / len(repairs):.2%}), {times} in all")
    return "\n".join(lines)


def _grow(
    symbols: Iterable[Symbol | None], repairs: Counter[str], *, in_order: bool
) -> tuple[list[Node], list[Tree], list[Leaf]]:
    """The roots, what is still open in them from the outside in, and the leaves: rules 1 and 2."""
    roots: list[Node] = []
    unclosed: list[Tree] = []
    leaves: list[Leaf] = []
    completed = False  # whether a node ended just before, which an in-order opening would take
    for symbol in symbols:
        siblings = unclosed[-1].children if unclosed else roots
        if symbol is None:
            repairs[UNKNOWN_SYMBOL] += 1
        elif symbol.kind == "leaf":
            leaf = Leaf(symbol.name or "", "")
            siblings.append(leaf)
            leaves.append(leaf)
            completed = True
        elif symbol.kind == "opening":
            tree = Tree(symbol.name or "")
            if in_order:
                if completed:
                    tree.children.append(siblings.pop())
                else:
                    repairs[CHILDLESS_OPENING] += 1
            siblings.append(tree)
            unclosed.append(tree)
            completed = False
        elif not unclosed:
            repairs[STRAY_CLOSING] += 1
        else:
            if symbol.name is None or symbol.name == unclosed[-1].label:
                unclosed.pop()
            else:
                repairs[MISMATCHED_CLOSING] += 1
                del unclosed[_innermost(unclosed, symbol.name) :]
            completed = True
    return roots, unclosed, leaves


def _innermost(unclosed: Sequence[Tree], label: str) -> int:
    """Where the nearest open constituent with the label is, or else the innermost of all."""
    last = len(unclosed) - 1
    return next((at for at in range(last, -1, -1) if unclosed[at].label == label), last)


def _siblings(roots: list[Node], unclosed: Sequence[Tree]) -> list[Node]:
    """Where missing leaves go."""
    if unclosed:
        return unclosed[-1].children
    if len(roots) == 1 and isinstance(roots[0], Tree):
        return roots[0].children
    return roots


def _prune(roots: Sequence[Node], surplus: Iterable[Leaf]) -> tuple[list[Node], int]:
    """The roots without surplus leaves and empty constituents, and how many of the latter fell."""
    dropped = {id(leaf) for leaf in surplus}
    holder = Tree("", list(roots))
    parents_first = [holder]
    for tree in parents_first:  # grows while it is read
        parents_first.extend(child for child in tree.children if isinstance(child, Tree))
    empty = 0
    for tree in reversed(parents_first):
        kept: list[Node] = []
        for child in tree.children:
            if isinstance(child, Leaf):
                if id(child) not in dropped:
                    kept.append(child)
            elif child.children:
                kept.append(child)
            else:
                empty += 1
        tree.children[:] = kept
    return holder.children, empty
