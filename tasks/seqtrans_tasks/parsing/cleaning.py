"""Preparing treebank trees for training and scoring: every step a switch, every change counted.

The steps are the usual ones for the Penn Treebank: the outer bracket is dropped and ``TOP`` added,
traces go and with them what they leave empty, and labels lose their functions and indices.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from seqtrans_tasks.parsing.tree import Leaf, Node, Tree

TRACE_TAG = "-NONE-"
ROOT_LABELS = ("TOP", "ROOT", "S1")

NO_WORDS = "no words left"
TOO_LONG = "too many words"
TOO_MANY_UNARIES = "too many unary levels"
REASONS = (NO_WORDS, TOO_LONG, TOO_MANY_UNARIES)

# Cut at the first - or =, but never to nothing: -LRB- and a lone - are labels in their own right.
_FUNCTION = re.compile(r"(?!-.*-\Z)([^=-][^=-]*)[=-]")


@dataclass(frozen=True, slots=True)
class Steps:
    """Which steps `clean` takes. The defaults suit training and test sets alike."""

    drop_outer: bool = True
    """Drop the unlabelled bracket around a tree; over several children it becomes the root."""
    root: str = "TOP"
    """The label of every tree's top: TOP, ROOT or S1 there is renamed to it, above any other it is
    added. Empty leaves tops as they are."""
    remove_traces: bool = True
    """Remove -NONE- leaves, and constituents left without words."""
    strip_functions: bool = True
    """Cut labels and tags at their first - or =, NP-SBJ-1 to NP; -LRB- and its like stay."""
    prt_advp: bool = False
    """Rename PRT|ADVP to PRT. For training sets only: elsewhere it changes what is scored."""
    collapse_same_unaries: bool = False
    """Make one constituent of X over nothing but X. Off, since EVALB counts both brackets, so that
    figures on a collapsed test set compare with nobody's."""
    max_words: int | None = None
    """Drop trees with more words than this."""
    max_unary: int | None = None
    """Drop trees in which more constituents than this, the root included, span the same words."""


@dataclass(slots=True)
class Account:
    """What `clean` did to the trees it was given, those it dropped included."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    wrappers: int = 0
    traces: int = 0
    empty_constituents: int = 0
    function_tags: int = 0
    prt_advp: int = 0
    unaries: int = 0
    roots_added: int = 0
    roots_renamed: int = 0

    def as_dict(self) -> dict[str, int]:
        """Every count by name; the names of reasons for dropping begin with ``dropped:``."""
        assert self.read == self.kept + self.dropped.total()
        return {
            "read": self.read,
            "kept": self.kept,
            **{f"dropped: {reason}": self.dropped[reason] for reason in REASONS},
            "wrappers removed": self.wrappers,
            "traces removed": self.traces,
            "empty constituents removed": self.empty_constituents,
            "function tags cut": self.function_tags,
            "PRT|ADVP renamed": self.prt_advp,
            "same unaries collapsed": self.unaries,
            "roots added": self.roots_added,
            "roots renamed": self.roots_renamed,
        }

    def text(self) -> str:
        """The counts as a small table, those that are zero left out except read and kept."""
        rows = [
            (name, f"{number:,}")
            for name, number in self.as_dict().items()
            if number or name in ("read", "kept")
        ]
        names = max(len(name) for name, _ in rows)
        numbers = max(len(number) for _, number in rows)
        return "\n".join(f"{name:<{names}}  {number:>{numbers}}" for name, number in rows)


@lru_cache(maxsize=4096)
def strip_function(label: str) -> str:
    """The label without functions and indices: ``NP-SBJ-1`` and ``NP=2`` are NP, -LRB- itself."""
    match = _FUNCTION.match(label)
    return match[1] if match else label


def clean(node: Node, steps: Steps, account: Account | None = None) -> Node | None:
    """A new tree prepared by the steps, or ``None`` if they drop it; ``account`` is added to."""
    account = Account() if account is None else account
    account.read += 1
    prepared = _rebuild(node, steps, account)
    if prepared is not None:
        prepared = _rooted(prepared, steps, account)
    reason = _reason_to_drop(prepared, steps)
    if reason is not None:
        account.dropped[reason] += 1
        return None
    account.kept += 1
    return prepared


def _rebuild(root: Node, steps: Steps, account: Account) -> Node | None:
    """The tree without what the steps remove, bottom-up; ``None`` if nothing is left."""
    holder = Tree("")
    # A constituent is met twice: going down, and with its new node once its children are done.
    stack: list[tuple[Node, Tree, Tree | None]] = [(root, holder, None)]
    while stack:
        here, parent, done = stack.pop()
        if isinstance(here, Leaf):
            if steps.remove_traces and here.tag == TRACE_TAG:
                account.traces += 1
            else:
                parent.children.append(Leaf(_label(here.tag, steps, account), here.word))
        elif done is None:
            twin = Tree(_label(here.label, steps, account))
            stack.append((here, parent, twin))
            stack.extend((child, twin, None) for child in reversed(here.children))
        elif not done.children:
            account.empty_constituents += 1
        else:
            only = done.children[0]
            if (
                steps.collapse_same_unaries
                and len(done.children) == 1
                and isinstance(only, Tree)
                and only.label == done.label
            ):
                account.unaries += 1
                done = only
            parent.children.append(done)
    return holder.children[0] if holder.children else None


def _label(label: str, steps: Steps, account: Account) -> str:
    if steps.strip_functions:
        stripped = strip_function(label)
        if stripped != label:
            account.function_tags += 1
            label = stripped
    if steps.prt_advp and label == "PRT|ADVP":
        account.prt_advp += 1
        label = "PRT"
    return label


def _rooted(node: Node, steps: Steps, account: Account) -> Node:
    """The tree with its outer brackets dropped and the root label at its top."""
    if steps.drop_outer:
        while isinstance(node, Tree) and not node.label:
            account.wrappers += 1
            if len(node.children) > 1:
                account.roots_added += 1
                node.label = steps.root or ROOT_LABELS[0]
            else:
                node = node.children[0]
    if not steps.root or (isinstance(node, Tree) and node.label == steps.root):
        return node
    if isinstance(node, Tree) and node.label in ROOT_LABELS:
        account.roots_renamed += 1
        node.label = steps.root
        return node
    account.roots_added += 1
    return Tree(steps.root, [node])


def _reason_to_drop(node: Node | None, steps: Steps) -> str | None:
    if node is None:
        return NO_WORDS
    if steps.max_words is None and steps.max_unary is None:
        return None
    words = most_unaries = 0
    stack = [(node, 1)]
    while stack:
        here, unaries = stack.pop()
        if isinstance(here, Leaf):
            words += 1
        else:
            most_unaries = max(most_unaries, unaries)
            below = unaries + 1 if len(here.children) == 1 else 1
            stack.extend((child, below) for child in here.children)
    if steps.max_words is not None and words > steps.max_words:
        return TOO_LONG
    if steps.max_unary is not None and most_unaries > steps.max_unary:
        return TOO_MANY_UNARIES
    return None
