"""What the engine relies on in a task."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqtrans.corpus import Corpus
from seqtrans.errors import DataError
from seqtrans.hooks import Component
from seqtrans.settings import Settings
from seqtrans.task import Task, Vocabulary
from seqtrans.testing.parts import expect, made, raises


def check_task(
    task: Component | Callable[[], Task],
    settings: Settings | None = None,
    *,
    splits: Sequence[str] = ("train", "dev"),
    count: int = 20,
    exact: bool = True,
) -> None:
    """Prepare a task in a temporary folder, open it anew, and check what it says of its examples.

    Args:
        task: what is checked.
        settings: of a component.
        splits: whose examples are tried.
        count: how many of each split.
        exact: whether a target holds all of its output, so that decoding it gives the reference;
            if not, what it gives must only score as well.
    """
    with tempfile.TemporaryDirectory(prefix="seqtrans-check-") as name:
        folder = Path(name)
        made(task, settings).prepare(folder)
        opened: Task = made(task, settings)
        opened.open(folder)
        vocabularies_are_sane(opened)
        training_is_repeatable(opened)
        for split in splits:
            examples_are_sane(opened, opened.examples(split)[:count], split, exact)
        expect(
            raises(DataError, lambda: opened.examples("no such split")),
            "A split that does not exist must be refused with a DataError.",
        )
        for line in opened.describe():
            expect(isinstance(line, str), "describe() must give lines of text.")


def vocabularies_are_sane(task: Task) -> None:
    """Special ids differ and exist, and paces have a flag for each id."""
    for side, vocabulary in (
        ("target", task.target_vocabulary),
        ("source", task.source_vocabulary),
    ):
        if vocabulary is None:
            continue
        special = {vocabulary.pad, vocabulary.bos, vocabulary.eos}
        expect(
            len(special) == 3 and min(special) >= 0 and max(special) < vocabulary.size,
            f"pad, bos and eos of the {side} vocabulary must be three of its ids, "
            f"not {sorted(special)} of {vocabulary.size}.",
        )
        expect(
            vocabulary.paces is None or len(vocabulary.paces) == vocabulary.size,
            f"The {side} vocabulary must have a pace for each of its {vocabulary.size} ids.",
        )
    expect(
        not task.shares_vocabulary or task.source_vocabulary == task.target_vocabulary,
        "A task that shares its vocabulary must give the same one for both sides.",
    )


def drawn(corpus: Corpus) -> Corpus:
    """A corpus as a window of all its examples has it."""
    return corpus.drawn(np.arange(len(corpus)), 0)[0]


def training_is_repeatable(task: Task) -> None:
    """An epoch is a function of its number and the seed, and in the vocabularies."""
    first, again = drawn(task.training(3, 1)), drawn(task.training(3, 1))
    expect(len(first) > 0, "There must be something to train on.")
    for side in ("sources", "targets"):
        one, other = getattr(first, side), getattr(again, side)
        expect(
            one.bounds.tolist() == other.bounds.tolist()
            and bool((one.values == other.values).all()),
            f"training() must give the same {side} for the same epoch and seed.",
        )
        expect(bool((one.lengths() > 0).all()) or side == "targets", "No source may be empty.")
    ids_are_known(first.targets.values, task.target_vocabulary, "training() gives targets")
    if task.source_vocabulary is not None:
        ids_are_known(
            first.sources.values, task.source_vocabulary, "training() gives sources", source=True
        )


def ids_are_known(ids: Any, vocabulary: Vocabulary, where: str, *, source: bool = False) -> None:
    """They are of the vocabulary, and none of them special, but that a source may have its eos."""
    found = {int(i) for i in ids}
    unknown = sorted(i for i in found if not 0 <= i < vocabulary.size)
    reserved = {vocabulary.pad, vocabulary.bos} | (set() if source else {vocabulary.eos})
    special = sorted(found & reserved)
    expect(not unknown, f"{where} with the ids {unknown[:3]}, of {vocabulary.size} there are.")
    expect(not special, f"{where} with the special ids {special}, which the engine adds.")


def examples_are_sane(task: Task, examples: Sequence[Any], split: str, exact: bool) -> None:
    """Examples round-trip, any output can be decoded, and perfect ones score best."""
    expect(len(examples) > 0, f"There must be examples of the split {split!r}.")
    inputs = [task.input(example) for example in examples]
    draw = random.Random(0)
    vocabulary = task.target_vocabulary
    special = {vocabulary.pad, vocabulary.bos, vocabulary.eos}
    symbols = [i for i in range(vocabulary.size) if i not in special]
    round_trips, worst = [], []
    for example, input in zip(examples, inputs, strict=True):
        source = task.encode_source(input)
        expect(len(source) > 0, f"encode_source() must give something for {input!r:.80}.")
        expect(
            torch.equal(source, task.encode_source(input)),
            "encode_source() must give the same for the same input.",
        )
        if task.source_vocabulary is not None:
            ids_are_known(
                source.tolist(),
                task.source_vocabulary,
                "encode_source() gives a source",
                source=True,
            )
        ids = task.encode_target(example)
        ids_are_known(ids, vocabulary, "encode_target() gives a target")
        decoded = task.decode(ids, input)
        round_trips.append(decoded)
        found, wanted = task.write(decoded), task.write(task.reference(example))
        pairs = enumerate(zip(found, wanted, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(found), len(wanted)))
        expect(
            found == wanted or not exact,
            "decode(encode_target(example)) must be the reference, but from character "
            f"{at} on it is {found[at : at + 40]!r}, not {wanted[at : at + 40]!r}.",
        )
        expect("\n" not in wanted, f"write() must give one line, not {wanted!r:.80}.")
        for length in (1, len(ids), 3 * len(ids) + 5):
            task.write(task.decode(draw.choices(symbols, k=length), input))
        worst.append(task.decode([], input))
    best = task.score([task.reference(example) for example in examples], examples).value
    value = task.score(round_trips, examples).value
    expect(value == best, f"Decoded targets must score as references do, {best}, not {value}.")
    value = task.score(worst, examples).value
    expect(
        best >= value if task.maximise else best <= value,
        f"References must score no worse than empty outputs, but they have {best} to {value}.",
    )
    constraint_lets_references_through(task, examples, inputs)


def constraint_lets_references_through(
    task: Task, examples: Sequence[Any], inputs: Sequence[Any]
) -> None:
    """References are allowed, each in its row, whatever rows are selected on the way."""
    targets = [list(task.encode_target(example)) for example in examples]
    limits = torch.tensor([2 * len(ids) + 50 for ids in targets])
    constraint = task.constraint(inputs, limits)
    if constraint is None:
        return
    alive = torch.arange(len(targets))
    step = 0
    while len(alive):
        allowed = constraint.allowed()
        expect(
            allowed.shape == (len(alive), task.target_vocabulary.size),
            f"allowed() must be [R, V], {[len(alive), task.target_vocabulary.size]}, "
            f"not {list(allowed.shape)}.",
        )
        following = [[*targets[i], task.target_vocabulary.eos][step] for i in alive.tolist()]
        for row, token in enumerate(following):
            expect(
                bool(allowed[row, token]),
                f"The constraint must allow the reference of {inputs[int(alive[row])]!r:.80}, "
                f"but not its symbol {step}, {token}.",
            )
        going = torch.tensor(following) != task.target_vocabulary.eos
        rows = going.nonzero()[:, 0].flip(0)  # in another order each time
        alive, tokens = alive[rows], torch.tensor(following)[rows]
        constraint = constraint.select(rows)
        constraint.advance(tokens)
        step += 1
