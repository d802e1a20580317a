"""The dry run: every phase once, with the largest and longest, so that none fails after hours; and
what can be told of all examples without one.
"""

from __future__ import annotations

import copy
import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from seqtrans import checkpoint
from seqtrans.corpus import Array, Corpus
from seqtrans.data import WINDOW, collate, cut
from seqtrans.engine import evaluating
from seqtrans.errors import DataError, SeqtransError
from seqtrans.files import delete, temporary_for
from seqtrans.processes import count, once

if TYPE_CHECKING:
    from seqtrans.model import Transducer
    from seqtrans.training import Training


def check_positions(
    training: Training,
    split: str,
    corpus: Corpus,
    longest_source: int | None = None,
    longest_target: int | None = None,
) -> None:
    """Refuse examples that the model has no positions for, apart from those that are longer than
    wanted, and so left out.

    Raises ``DataError`` saying how many there are, and what helps.
    """
    model, config = training.model, training.config
    limits = model.encoder.position.limit, model.decoder.position.limit
    if limits == (None, None):
        return
    longest = longest_source, longest_target
    number, greatest = [0, 0], [0, 0]
    for numbers, *sides in trained(corpus, longest):
        for side, lengths in enumerate(sides):
            place = lengths.argmax()
            if lengths[place] > greatest[side]:
                number[side], greatest[side] = int(numbers[place]), int(lengths[place])
    fitting = list(greatest)
    if limits[0] is not None and greatest[0]:
        fitting[0] = readable(model, corpus, number[0], limits[0])
    if limits[1] is not None:
        fitting[1] = min(greatest[1], limits[1] - 1)  # beside bos or eos
    if fitting == greatest:
        return
    count = sum(
        int(((sources > fitting[0]) | (targets > fitting[1])).sum())
        for _, sources, targets in trained(corpus, longest)
    )
    known = next(limit for limit in limits if limit is not None)
    settings = [f"position.{key}" for key in type(config.settings["position"]).model_fields]
    more = f"give it more ({', '.join(settings)})" if settings else "choose another position scheme"
    remedies = [
        f"data.longest_{side}={fits}"
        for side, fits, there in zip(("source", "target"), fitting, greatest, strict=True)
        if fits < there
    ]
    apart = f"leave them out by {' and '.join(remedies)}" if split == "train" else "shorten them"
    raise DataError(
        f"{count:,} of {len(corpus):,} {split} examples {'is' if count == 1 else 'are'} longer "
        f"than the {known:,} positions that position={config.names['position']} has, of which a "
        f"target takes one more than it has symbols; {apart}, or {more}."
    )


def within_positions(
    model: Transducer, longest: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    """The greatest lengths of source and target that are wanted and that there are positions for.

    For what is drawn anew in each epoch, of which no one knows the lengths before.
    """
    source, target = model.encoder.position.limit, model.decoder.position.limit
    limits = source, None if target is None else target - 1  # beside bos or eos
    found = [
        min((one for one in pair if one is not None), default=None)
        for pair in zip(longest, limits, strict=True)
    ]
    return found[0], found[1]


def trained(
    corpus: Corpus, longest: tuple[int | None, int | None]
) -> Iterator[tuple[Array, Array, Array]]:
    """The numbers of the examples that are not left out, and the lengths of their sources and
    targets, some at a time.
    """
    first = 0
    for size, weight in corpus.mixture or ((len(corpus), 1.0),):
        for begin in range(first, first + size if weight else first, WINDOW):
            numbers = np.arange(begin, min(begin + WINDOW, first + size))
            sides = corpus.sources.lengths(numbers), corpus.targets.lengths(numbers)
            fits = np.ones(len(numbers), bool)
            for lengths, most in zip(sides, longest, strict=True):
                if most is not None:
                    fits &= lengths <= most
            if fits.any():
                yield numbers[fits], sides[0][fits], sides[1][fits]
        first += size


def readable(model: Transducer, corpus: Corpus, number: int, limit: int) -> int:
    """How much of the source ``number`` takes no more than ``limit`` positions in the encoder."""
    values, _ = corpus.sources.rows(np.array([number]))
    source = torch.from_numpy(values).to(model.device)

    def taken(length: int) -> int:
        mask = torch.ones(1, length, dtype=torch.bool, device=source.device)
        x, _ = model.source(source[:, :length], mask)
        return int(x.shape[1])

    lengths = range(1, source.shape[1] + 1)
    with torch.no_grad(), evaluating(model):
        whole = taken(len(lengths)) <= limit
        return len(lengths) if whole else bisect_right(lengths, limit, key=taken)


def rehearse(training: Training) -> None:
    """Train, decode, score, save and read back, and leave no trace.

    Gradients are dropped and steps have rate 0; random numbers, buffers and the state of optimiser
    and scaler are put back; what is saved is deleted. Raises ``SeqtransError`` if memory runs out.
    """
    began = time.monotonic()
    device = training.accelerator.device
    buffers = {name: buffer.clone() for name, buffer in training.model.named_buffers()}
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            source, target, rows = rehearse_update(training)
            training.validation.rehearse()
    except torch.OutOfMemoryError:
        raise SeqtransError(
            "the largest batch doesn't fit into memory; try training.recompute=yes, a larger "
            f"training.accumulation (now {training.settings.accumulation}) or a smaller "
            f"data.tokens (now {training.config.data.tokens})."
        ) from None
    for name, buffer in training.model.named_buffers():
        buffer.copy_(buffers[name])
    once(training.accelerator, lambda: rehearse_saving(training))
    training.reporter.say(
        f"dry run: trained on {count(rows, 'example')} of {source} + {target} positions, "
        f"decoded, scored, saved and read back in {time.monotonic() - began:.1f} s."
    )


def rehearse_update(training: Training) -> tuple[int, int, int]:
    """One update at rate 0 over the longest examples and the largest part.

    Gives the largest part's padded source and target lengths and its number of examples.
    """
    corpus, accelerator = training.corpus, training.accelerator
    inner = training.inner_optimizer()
    scaler = None if accelerator.scaler is None else copy.deepcopy(accelerator.scaler.state_dict())
    largest = max(training.updates, key=lambda numbers: positions(corpus, numbers))
    part = cut(largest, training.world * training.settings.accumulation)[0]
    used = np.concatenate(training.updates)
    for numbers in (
        used[[corpus.sources.lengths(used).argmax()]],
        used[[corpus.targets.lengths(used).argmax()]],
        part,
    ):
        batch = collate(corpus, numbers, training.specials).to(accelerator.device)
        accelerator.backward(training.loss(batch) * 0.0)
    if not inner.state:  # a resumed one has its moments already
        training.optimizer.step()  # its rate is 0 until the first update
        inner.state.clear()
    training.optimizer.zero_grad()
    if accelerator.scaler is not None and scaler is not None:
        accelerator.scaler.load_state_dict(scaler)
    return batch.source.shape[1], batch.target_in.shape[1], len(part)


def rehearse_saving(training: Training) -> None:
    """Write a checkpoint, read it back, delete it."""
    trial = temporary_for(training.folder / "trial")
    inner = training.inner_optimizer()
    try:
        path = checkpoint.save(trial, training.model, inner, training.progress)
        checkpoint.load_weights(path, training.model)
        checkpoint.load_state(path, inner)
    finally:
        delete(trial)


def positions(corpus: Corpus, numbers: Array) -> int:
    """The padded positions of an update."""
    source = int(corpus.sources.lengths(numbers).max())
    target = int(corpus.targets.lengths(numbers).max()) + 1
    return len(numbers) * (source + target)
