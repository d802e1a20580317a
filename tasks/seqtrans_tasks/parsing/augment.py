"""Variations of training trees: constituents and words exchanged for others that could stand in
their place.

A constituent may be exchanged for one with the same label under a parent with the same label,
anywhere in the training trees; a word for another with the same tag, if that tag is of an open
class. It is done anew in each epoch, as a function of the random numbers given alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from seqtrans_tasks.parsing.tree import Leaf, Node, Tree, leaves

LONGEST = 25
"""Constituents of more words are not put in another's place."""
OPEN = 50
"""A tag is of an open class if it has at least so many different words."""


class Variations:
    """What may stand in whose place, learned from the training trees."""

    def __init__(self, trees: Iterable[Node], swap: float, word_swap: float) -> None:
        self.swap, self.word_swap = swap, word_swap
        self.constituents: dict[tuple[str, str], list[Tree]] = {}
        words: dict[str, set[str]] = {}
        for root in trees:
            stack = [root]
            while stack:
                node = stack.pop()
                if isinstance(node, Leaf):
                    words.setdefault(node.tag, set()).add(node.word)
                    continue
                for child in node.children:
                    if isinstance(child, Tree) and len(leaves(child)) <= LONGEST:
                        place = (node.label, child.label)
                        self.constituents.setdefault(place, []).append(child)
                    stack.append(child)
        self.words = {tag: sorted(known) for tag, known in words.items() if len(known) >= OPEN}

    def vary(self, root: Node, random: Random) -> Node:
        """A new tree with each constituent exchanged with probability ``swap`` and each word with
        ``word_swap``.

        What was put in is not exchanged again, only its words are.
        """
        if isinstance(root, Leaf):
            return self.word(root, random)
        result = Tree(root.label)
        stack = [(root, result, False)]
        while stack:
            old, new, put_in = stack.pop()
            for child in old.children:
                if isinstance(child, Leaf):
                    new.children.append(self.word(child, random))
                    continue
                inside, place = put_in, (old.label, child.label)
                if not inside and place in self.constituents and random.random() < self.swap:
                    child, inside = random.choice(self.constituents[place]), True
                copied = Tree(child.label)
                new.children.append(copied)
                stack.append((child, copied, inside))
        return result

    def word(self, leaf: Leaf, random: Random) -> Leaf:
        """A leaf with its word, or another with the same tag."""
        known = self.words.get(leaf.tag)
        if known is None or random.random() >= self.word_swap:
            return leaf
        return Leaf(leaf.tag, random.choice(known))
