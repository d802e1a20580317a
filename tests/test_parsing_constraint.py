"""The constraint lets out exactly the linearisations of trees, and keeps within the limit."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from seqtrans_tasks.parsing.constraint import TreeConstraint
from seqtrans_tasks.parsing.linear import EOS, PAD, Linearisation
from seqtrans_tasks.parsing.tree import Leaf, Node, Tree

KINDS: tuple[Any, ...] = ("brackets", "inorder")
CLOSINGS: tuple[Any, ...] = ("labelled", "bare")
FORMS = [
    pytest.param(kind, closings, id=f"{kind}-{closings}") for kind in KINDS for closings in CLOSINGS
]


@dataclass
class Twin:
    """One row in plain lists, with every rule read off what is open and what was written."""

    linearisation: Linearisation
    left: int
    limit: int
    choices: list[set[int]] | None = None
    open: list[Any] = field(default_factory=list)  # [label, completed children, unary chain inside]
    root: tuple[str, int] | None = None  # label and unary chain of the last outermost node
    written: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.words = self.left
        self.limit = max(self.limit, self.words + 3 if self.words > 1 else 2)
        symbols = self.linearisation.symbols
        self.named = dict(enumerate(symbols, start=3))

    def allowed(self) -> set[int]:
        if EOS in self.written:
            return {PAD}
        return {at for at in [EOS, *self.named] if self._may(at)}

    def advance(self, token: int) -> None:
        self.written.append(token)
        if token in (PAD, EOS):
            return
        symbol = self.named[token]
        if symbol.kind == "leaf":
            self.left -= 1
            self._complete("", 0)
        elif symbol.kind == "opening":
            if self.linearisation.kind == "brackets":
                self.open.append([symbol.name, 0, 0])
            elif self.open:
                chain = self.open[-1][2]
                self.open[-1][1] -= 1
                self.open.append([symbol.name, 1, chain])
            else:
                assert self.root is not None
                self.open.append([symbol.name, 1, self.root[1]])
                self.root = None
        else:
            label, children, chain = self.open.pop()
            self._complete(label, chain + 1 if children == 1 else 0)

    def _complete(self, label: str, chain: int) -> None:
        if self.open:
            self.open[-1][1] += 1
            self.open[-1][2] = chain
        else:
            self.root = (label, chain)

    def _last(self) -> str:
        return self.named[self.written[-1]].kind if self.written else "nothing"

    def _fits(self, after: int) -> bool:
        """Whether ``after`` more symbols fit once the next one is written."""
        return len(self.written) + 1 + after <= self.limit

    def _may(self, at: int) -> bool:
        brackets = self.linearisation.kind == "brackets"
        if at == EOS:
            return self.left == 0 and not self.open
        symbol = self.named[at]
        deep = len(self.open)
        if symbol.kind == "leaf":
            if self.left == 0:
                return False
            if self.choices is not None and at not in self.choices[self.words - self.left]:
                return False
            if brackets and deep:
                return self.left > self._kept_for_top()
            return bool(deep) or (not self.written and (self.words == 1 or not brackets))
        if symbol.kind == "closing":
            if not deep:
                return False
            label, children, chain = self.open[-1]
            if symbol.name not in (None, label) or children == 0:
                return False
            if deep == 1 and label == "TOP":
                return self.left == 0
            if brackets:
                return deep > 1 or self.left == 0
            if self._last() == "opening" and chain >= self.linearisation.cap:
                return False
            if deep == 1 and self.left:
                return self._fits(self.left + 3)
            return True
        if symbol.name == "TOP" and (deep or self.left == 0 or (brackets and self.words == 1)):
            return False
        if brackets:
            kinds = [self.named[earlier].kind for earlier in self.written]
            run = sum(1 for _ in itertools.takewhile("opening".__eq__, reversed(kinds)))
            return (
                self.left > self._kept_for_top()
                and run < self.linearisation.cap
                and self._fits(self.left + deep + 2)
            )
        if self._last() in ("nothing", "opening"):
            return False
        chain = self.open[-1][2] if deep else self.root[1] if self.root else 0
        if not deep and self.root and self.root[0] == "TOP":
            return False
        if self.left == 0 and chain >= self.linearisation.cap:
            return False
        return self._fits(self.left + deep + 2)

    def _kept_for_top(self) -> int:
        return int(bool(self.open) and self.open[0][0] == "TOP" and self.open[0][1] == 0)


def rows_of(allowed: torch.Tensor) -> list[set[int]]:
    return [set(row.nonzero()[:, 0].tolist()) for row in allowed]


def complete_sequences(constraint: TreeConstraint) -> list[tuple[int, ...]]:
    """Every sequence that the constraint lets out, without eos; all prefixes move together."""
    prefixes = torch.zeros(1, 0, dtype=torch.long)
    found: list[tuple[int, ...]] = []
    while len(prefixes):
        allowed = constraint.allowed()
        assert allowed.any(dim=1).all()
        rows, tokens = allowed.nonzero(as_tuple=True)
        ended = tokens == EOS
        found.extend(tuple(row) for row in prefixes[rows[ended]].tolist())
        rows, tokens = rows[~ended], tokens[~ended]
        constraint = constraint.select(rows)
        constraint.advance(tokens)
        prefixes = torch.cat([prefixes[rows], tokens[:, None]], dim=1)
    return found


def forests(words: int, trees: Any) -> Iterator[tuple[Any, ...]]:
    """Every sequence of two or more trees over the words."""
    for first in range(1, words):
        for head in trees(first):
            for tail in trees(words - first):
                yield (head, tail)
            for tails in forests(words - first, trees):
                yield (head, *tails)


def all_trees(words: int, labels: Sequence[str], chain: int) -> Iterator[Any]:
    """Every tree with unary chains of at most ``chain``, as nested tuples (label, children...)."""
    cores: list[Any] = []
    if words == 1:
        cores.append("w")
    for children in forests(words, lambda some: list(all_trees(some, labels, chain))):
        cores.extend((label, *children) for label in labels)
    for core in cores:
        layer = [core]
        yield core
        for _ in range(chain):
            layer = [(label, below) for label in labels for below in layer]
            yield from layer


def grown(value: Any) -> Node:
    if value == "w":
        return Leaf("XX", "w")
    return Tree(value[0], [grown(child) for child in value[1:]])


def linearisation(kind: Any, closings: Any, labels: Sequence[str], cap: int) -> Linearisation:
    return Linearisation(kind, closings, "words", tuple(labels), (), cap)


def longest_run(ids: Sequence[int], openings: range) -> int:
    return max(
        (len(list(run)) for opens, run in itertools.groupby(ids, openings.__contains__) if opens),
        default=0,
    )


def expected(form: Linearisation, words: int, limit: int) -> set[tuple[int, ...]]:
    """The encodings of all trees over the words, also those that TOP has several children in."""
    labels = [label for label in form.labels if label != "TOP"]
    trees = [grown(tree) for tree in all_trees(words, labels, form.cap)]
    trees = [tree for tree in trees if words == 1 or isinstance(tree, Tree)]
    if "TOP" in form.labels:
        below = lambda some: list(all_trees(some, labels, form.cap))  # noqa: E731
        trees.extend(grown(("TOP", *children)) for children in forests(words, below))
    found = {tuple(form.encode(tree)) for tree in trees}
    if form.kind == "brackets":
        found = {ids for ids in found if longest_run(ids, form.opening_ids) <= form.cap}
    return {ids for ids in found if len(ids) < limit}


@pytest.mark.parametrize(("kind", "closings"), FORMS)
@pytest.mark.parametrize(
    ("labels", "words", "cap"),
    [
        ("AB", 1, 3),
        ("AB", 2, 2),
        ("AB", 3, 1),
        ("A", 3, 2),
        (("A", "TOP"), 1, 2),
        (("A", "TOP"), 2, 2),
        (("A", "TOP"), 3, 1),
    ],
    ids=str,
)
def test_lets_out_exactly_the_encodings_of_trees(
    kind: Any, closings: Any, labels: Sequence[str], words: int, cap: int
) -> None:
    form = linearisation(kind, closings, labels, cap)
    for limit in (words + 3, words + 5, words + 6, 1000):
        constraint = form.constraint([words], torch.tensor([limit]))
        found = complete_sequences(constraint)
        assert len(found) == len(set(found))
        assert set(found) == expected(form, words, limit)


def tagged(kind: Any, closings: Any) -> Linearisation:
    return Linearisation(kind, closings, "tags", ("A", "B", "S", "TOP"), (",", "N", "V"), 3)


@pytest.mark.parametrize(("kind", "closings"), FORMS)
@pytest.mark.parametrize("with_choices", [False, True])
def test_random_walks_agree_with_the_twin_and_end_in_trees(
    kind: Any, closings: Any, with_choices: bool
) -> None:
    form = tagged(kind, closings)
    generator = torch.Generator().manual_seed(7)
    shuffle = random.Random(7)
    counts = [1, 1, 1, 2, 2, 3, 4, 5, 8, 13, 21, 30] * 3
    limits = [count + shuffle.choice([0, 2, 3, 4, 5, 8, 20, 60]) for count in counts]
    choices = None
    if with_choices:
        size = form.vocabulary().size
        choices = [torch.rand(count, size, generator=generator) < 0.4 for count in counts]
    constraint = form.constraint(counts, torch.tensor(limits), choices)
    twins = [
        Twin(form, count, limit, None if choices is None else leaf_choices(form, choices[row]))
        for row, (count, limit) in enumerate(zip(counts, limits, strict=True))
    ]
    order = list(range(len(twins)))
    for _ in range(max(limits) + 4):
        allowed = constraint.allowed()
        assert rows_of(allowed) == [twin.allowed() for twin in twins]
        tokens = torch.multinomial(allowed.double(), 1, generator=generator)[:, 0]
        constraint.advance(tokens)
        for twin, token in zip(twins, tokens.tolist(), strict=True):
            twin.advance(token)
        shuffle.shuffle(order)  # the rows change places at every step
        constraint = constraint.select(torch.tensor(order))
        twins = [twins[row] for row in order]
    for twin in twins:
        end = twin.written.index(EOS)
        assert end < twin.limit
        assert set(twin.written[end + 1 :]) <= {PAD}
        words = [f"w{at}" for at in range(twin.words)]
        tree, repairs = form.decode(twin.written[:end], words)
        assert not repairs
        assert form.encode(tree) == twin.written[:end]


def leaf_choices(form: Linearisation, choices: torch.Tensor) -> list[set[int]]:
    return [row & set(form.leaf_ids) or set(form.leaf_ids) for row in rows_of(choices)]


@pytest.mark.parametrize(("kind", "closings"), FORMS)
def test_select_gives_independent_rows(kind: Any, closings: Any) -> None:
    form = tagged(kind, closings)
    generator = torch.Generator().manual_seed(3)
    counts, limits = [4, 9, 1], torch.tensor([30, 40, 9])
    together = form.constraint(counts, limits).select(torch.tensor([0, 0, 1, 1, 2, 2]))
    alone = [
        form.constraint([counts[sentence]], limits[sentence : sentence + 1])
        for sentence in (0, 0, 1, 1, 2, 2)
    ]
    for _ in range(45):
        allowed = together.allowed()
        assert torch.equal(allowed, torch.cat([row.allowed() for row in alone]))
        tokens = torch.multinomial(allowed.double(), 1, generator=generator)[:, 0]
        kept = together.select(torch.arange(6))
        together.advance(tokens)
        assert torch.equal(
            kept.allowed(), allowed
        )  # the original is left alone, and so is the copy
        for row, token in zip(alone, tokens, strict=True):
            row.advance(token[None])


def treebank(seed: int, trees: int) -> list[Tree]:
    """Random trees with long unary chains, left branching, and roots of one or several children."""
    dice = random.Random(seed)

    def below(words: int) -> Node:
        if words == 1:
            node: Node = Leaf(dice.choice([",", "N", "V"]), "w")
        else:
            first = dice.randint(1, words - 1)
            node = Tree(dice.choice("ABS"), [below(first), below(words - first)])
        for _ in range(dice.choice([0, 0, 0, 1, 2, 5])):
            node = Tree(dice.choice("ABS"), [node])
        return node

    return [
        Tree("TOP", [below(dice.randint(1, 9)) for _ in range(dice.choice([1, 1, 1, 2, 3]))])
        for _ in range(trees)
    ]


def lets_out(form: Linearisation, trees: Sequence[Node], spare: int = 0) -> None:
    """Every tree's encoding is allowed, step by step, within the limit of its own length."""
    encoded = [form.encode(tree) for tree in trees]
    counts = [sum(at in form.leaf_ids for at in ids) for ids in encoded]
    limits = torch.tensor([len(ids) + 1 + spare for ids in encoded])
    constraint = form.constraint(counts, limits)
    longest = max(map(len, encoded)) + 1
    padded = torch.tensor([[*ids, EOS] + [PAD] * (longest - len(ids) - 1) for ids in encoded])
    for tokens in padded.T:
        allowed = constraint.allowed()
        assert allowed.gather(1, tokens[:, None]).all()
        constraint.advance(tokens)


@pytest.mark.parametrize(("kind", "closings"), FORMS)
@pytest.mark.parametrize("leaves", ["words", "tags"])
def test_lets_out_every_training_tree(kind: Any, closings: Any, leaves: Any) -> None:
    trees = treebank(11, 200)
    form = Linearisation.learn(trees, kind=kind, closings=closings, leaves=leaves)
    lets_out(form, trees)
    lets_out(form, trees, spare=7)


@pytest.mark.parametrize(("kind", "closings"), FORMS)
def test_finished_rows_take_pad_and_eos(kind: Any, closings: Any) -> None:
    form = linearisation(kind, closings, ("S", "TOP"), 3)
    constraint = form.constraint([1, 1], torch.tensor([20, 20]))
    leaf = form.leaf_ids[0]
    constraint.advance(torch.tensor([leaf, leaf]))
    constraint.advance(torch.tensor([EOS, EOS]))
    for tokens in ([PAD, EOS], [EOS, PAD], [PAD, PAD]):
        assert rows_of(constraint.allowed()) == [{PAD}, {PAD}]
        constraint.advance(torch.tensor(tokens))


@pytest.mark.parametrize(("kind", "closings"), FORMS)
def test_a_limit_below_the_smallest_tree_gives_the_smallest_tree(kind: Any, closings: Any) -> None:
    form = linearisation(kind, closings, ("S", "TOP"), 3)
    for words in (1, 2, 5):
        found = complete_sequences(form.constraint([words], torch.tensor([0])))
        assert {len(ids) for ids in found} == {1 if words == 1 else words + 2}


@pytest.mark.parametrize(("kind", "closings"), FORMS)
def test_a_sentence_without_words_can_only_end(kind: Any, closings: Any) -> None:
    form = tagged(kind, closings)
    choices = [torch.ones(0, form.vocabulary().size, dtype=torch.bool)]
    constraint = form.constraint([0], torch.tensor([10]), choices)
    assert rows_of(constraint.allowed()) == [{EOS}]


@pytest.mark.parametrize("kind", KINDS)
def test_holds_more_open_constituents_than_it_began_with(kind: Any) -> None:
    form = linearisation(kind, "labelled", ("A", "B"), 200)
    dice = random.Random(5)
    tree: Node = Leaf("XX", "w")
    for _ in range(150):
        tree = Tree(
            dice.choice("AB"),
            [tree, Leaf("XX", "w")] if kind == "brackets" else [Leaf("XX", "w"), tree],
        )
    lets_out(form, [tree, Leaf("XX", "w")])


@pytest.mark.parametrize(("kind", "closings"), FORMS)
def test_lets_out_real_trees(kind: Any, closings: Any, real_trees: list[Tree]) -> None:
    form = Linearisation.learn(real_trees, kind=kind, closings=closings, leaves="tags")
    lets_out(form, real_trees)


@pytest.fixture(scope="module")
def real_trees(shared: Any) -> list[Tree]:
    from seqtrans_tasks.parsing.tree import read_trees

    found = []
    for path in sorted((shared / "data" / "gum-const").glob("*.ptb"))[:6]:
        for tree in read_trees(path.read_text(encoding="utf-8"), path.name):
            assert isinstance(tree, Tree)
            found.append(Tree("TOP", tree.children))
    return found
