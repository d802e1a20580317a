"""Constituency trees as sequences of symbols, and back.

Two linearisations of ``(TOP (S (NP (DT The) (NN heron)) (VP (VBD slept)) (. .)))``:

- ``brackets``, depth first (Vinyals et al. 2015): ``(S (NP XX XX )NP (VP XX )VP XX )S``.
- ``inorder`` (Liu & Zhang 2017; Fernández-González & Gómez-Rodríguez 2020): the first child comes
  before its parent's opening, ``XX (NP XX )NP (S XX (VP )VP XX )S``.

Closings are ``labelled``, or ``bare``: one symbol ``)`` closes whatever is innermost. Leaves are
``words``, each the one symbol ``XX``, or ``tags``, each its part-of-speech tag. Words themselves
are never symbols.

The root TOP is elided if it has exactly one child, unless that is a TOP again: ``(TOP (UH Yes))``
is one leaf. Otherwise it is written like any constituent. Decoding puts TOP around every root that
isn't TOP, so a tree rooted in TOP comes back as it was, and any other comes back under a TOP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Self, get_args

from seqtrans.errors import DataError
from seqtrans.task import Vocabulary
from seqtrans_tasks.parsing.repair import TOP, UNKNOWN_TAG, mend
from seqtrans_tasks.parsing.tree import Leaf, Node, Tree

if TYPE_CHECKING:
    from torch import Tensor

    from seqtrans_tasks.parsing.constraint import TreeConstraint

Kind = Literal["brackets", "inorder"]
Closings = Literal["labelled", "bare"]
Leaves = Literal["words", "tags"]

PAD, BOS, EOS = 0, 1, 2
FIRST = 3
"""The id of the first symbol; those below are pad, bos and eos."""

SHORTEST_CAP = 3


class Symbol(NamedTuple):
    """A leaf, an opening or a closing, with its tag or label; a word or a bare closing has none."""

    kind: Literal["leaf", "opening", "closing"]
    name: str | None

    def __str__(self) -> str:
        if self.kind == "leaf":
            return UNKNOWN_TAG if self.name is None else self.name
        return ("(" if self.kind == "opening" else ")") + (self.name or "")


@dataclass(frozen=True)
class Linearisation:
    """A linearisation with the symbols that it knows: first leaves, then openings, then closings.

    ``tags`` is empty if leaves are words. ``cap`` is how many constituents may begin at once: the
    longest run of openings (``brackets``) or the longest unary chain (``inorder``) to expect.
    """

    kind: Kind
    closings: Closings
    leaves: Leaves
    labels: tuple[str, ...]
    tags: tuple[str, ...]
    cap: int

    @classmethod
    def learn(
        cls,
        trees: Iterable[Node],
        *,
        kind: Kind = "brackets",
        closings: Closings = "labelled",
        leaves: Leaves = "words",
    ) -> Self:
        """The linearisation with every label and tag of the trees, sorted.

        ``cap`` is the largest seen, and at least 3. Raises `DataError` if there are no trees.
        """
        trees = list(trees)
        if not trees:
            raise DataError("there are no training trees, but the symbols are learned from them.")
        labels: set[str] = set()
        tags: set[str] = set()
        for tree in trees:
            stack = [_beneath(tree)]
            while stack:
                node = stack.pop()
                if isinstance(node, Leaf):
                    tags.add(node.tag)
                else:
                    labels.add(node.label)
                    stack.extend(node.children)
        known_tags = tuple(sorted(tags)) if leaves == "tags" else ()
        inventory = cls(kind, closings, leaves, tuple(sorted(labels)), known_tags, SHORTEST_CAP)
        longest = max(inventory._longest_chain(inventory.encode(tree)) for tree in trees)
        return cls(
            kind,
            closings,
            leaves,
            inventory.labels,
            inventory.tags,
            max(longest, SHORTEST_CAP),
        )

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols; the id of each is its index + `FIRST`."""
        names: Iterable[str | None] = self.tags if self.leaves == "tags" else (None,)
        closings: Iterable[str | None] = self.labels if self.closings == "labelled" else (None,)
        return (
            *(Symbol("leaf", name) for name in names),
            *(Symbol("opening", label) for label in self.labels),
            *(Symbol("closing", name) for name in closings),
        )

    @cached_property
    def ids(self) -> Mapping[Symbol, int]:
        """The id of every symbol."""
        return {symbol: at for at, symbol in enumerate(self.symbols, start=FIRST)}

    @property
    def leaf_ids(self) -> range:
        """The ids of the leaf symbols."""
        return range(FIRST, FIRST + (len(self.tags) if self.leaves == "tags" else 1))

    @property
    def opening_ids(self) -> range:
        """The ids of the openings, in the order of ``labels``."""
        return range(self.leaf_ids.stop, self.leaf_ids.stop + len(self.labels))

    @property
    def closing_ids(self) -> range:
        """The ids of the closings: in the order of ``labels``, or the one bare closing."""
        return range(self.opening_ids.stop, FIRST + len(self.symbols))

    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the outputs. Leaf symbols pace, since each consumes one word."""
        size = FIRST + len(self.symbols)
        paces = tuple(at in self.leaf_ids for at in range(size))
        fingerprint = sha256(" ".join(map(str, self.symbols)).encode()).hexdigest()
        return Vocabulary(size, PAD, BOS, EOS, paces, fingerprint)

    def encode(self, tree: Node) -> list[int]:
        """The ids of a tree, without bos and eos.

        Raises `DataError`, naming it, for a label or tag that is in no training tree, and for a
        constituent without children.
        """
        ids = self.ids
        labelled = self.closings == "labelled"
        in_order = self.kind == "inorder"
        found: list[int] = []
        stack: list[Node | int] = [_beneath(tree)]
        while stack:
            item = stack.pop()
            if isinstance(item, int):
                found.append(item)
            elif isinstance(item, Leaf):
                leaf = ids.get(Symbol("leaf", item.tag if self.leaves == "tags" else None))
                if leaf is None:
                    _unseen("tag", item.tag)
                found.append(leaf)
            else:
                opening = ids.get(Symbol("opening", item.label))
                if opening is None:
                    _unseen("label", item.label)
                if not item.children:
                    raise DataError(
                        f"the constituent {item.label!r} has no children, so it has no place in a "
                        "linearisation; every constituent must cover a word."
                    )
                stack.append(ids[Symbol("closing", item.label if labelled else None)])
                stack.extend(reversed(item.children))
                if in_order:
                    stack.insert(len(stack) - 1, opening)
                else:
                    found.append(opening)
        return found

    def decode(
        self, ids: Sequence[int], words: Sequence[str], tags: Sequence[str] | None = None
    ) -> tuple[Tree, Counter[str]]:
        """The tree over exactly ``words`` for any ids, and how often `mend` needed each rule.

        A leading bos, everything from the first eos on, and pads at the end are no symbols and need
        no repair. ``tags``, one a word, are for leaves whose symbol names no tag: all of them if
        leaves are words, else those that are missing. Without ``tags`` they are ``XX``.
        """
        start = 1 if ids and ids[0] == BOS else 0
        end = next((at for at, symbol in enumerate(ids) if symbol == EOS), len(ids))
        while end > start and ids[end - 1] == PAD:
            end -= 1
        symbols = self.symbols
        read = (
            symbols[at - FIRST] if FIRST <= at < FIRST + len(symbols) else None
            for at in ids[start:end]
        )
        return mend(read, words, tags, in_order=self.kind == "inorder")

    def constraint(
        self,
        word_counts: Sequence[int],
        limits: Tensor,
        choices: Sequence[Tensor] | None = None,
    ) -> TreeConstraint:
        """What lets out only trees: see `constraint.TreeConstraint` for the arguments."""
        from seqtrans_tasks.parsing.constraint import TreeConstraint

        return TreeConstraint(self, word_counts, limits, choices)

    def as_json(self) -> dict[str, Any]:
        """Everything about it, as JSON can hold it."""
        return {
            "kind": self.kind,
            "closings": self.closings,
            "leaves": self.leaves,
            "labels": list(self.labels),
            "tags": list(self.tags),
            "cap": self.cap,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` gave. Raises `DataError` for anything else."""
        _check(value, "kind", value.get("kind") in get_args(Kind), "brackets or inorder")
        _check(value, "closings", value.get("closings") in get_args(Closings), "labelled or bare")
        _check(value, "leaves", value.get("leaves") in get_args(Leaves), "words or tags")
        _check(value, "labels", _are_strings(value.get("labels")), "a list of strings")
        _check(value, "tags", _are_strings(value.get("tags")), "a list of strings")
        cap = value.get("cap")
        _check(value, "cap", type(cap) is int and cap >= 1, "a whole number of at least 1")
        return cls(
            value["kind"],
            value["closings"],
            value["leaves"],
            tuple(value["labels"]),
            tuple(value["tags"]),
            value["cap"],
        )

    def _longest_chain(self, ids: Iterable[int]) -> int:
        """What ``cap`` must be for a constraint to let these ids out."""
        leaves, openings = self.leaf_ids, self.opening_ids
        longest = chain = opened = 0
        for at in ids:
            if at in leaves:
                chain = opened = 0
            elif self.kind == "brackets":
                opened = opened + 1 if at in openings else 0
                longest = max(longest, opened)
            elif at in openings:
                opened = chain + 1
            else:  # a closing right after its opening makes the chain longer; any other ends it
                chain, opened = opened, 0
                longest = max(longest, chain)
        return longest


def _beneath(tree: Node) -> Node:
    """What is written of a tree: all below TOP if it has one child that is not TOP itself."""
    if isinstance(tree, Tree) and tree.label == TOP and len(tree.children) == 1:
        child = tree.children[0]
        if isinstance(child, Leaf) or child.label != TOP:
            return child
    return tree


def _unseen(what: str, name: str) -> NoReturn:
    raise DataError(
        f"the {what} {name!r} is in no training tree, so there is no symbol for it; "
        "learn the symbols from trees that have it, or leave this tree out."
    )


def _are_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _check(value: Mapping[str, Any], key: str, right: bool, wanted: str) -> None:
    if not right:
        raise DataError(
            f"the linearisation's {key!r} is {value.get(key)!r}, but it must be {wanted}."
        )
