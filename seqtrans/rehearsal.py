"""The dry run: every phase once, with the largest and longest, so that none fails after hours."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from seqtrans import checkpoint
from seqtrans.corpus import Array, Corpus
from seqtrans.data import collate, cut
from seqtrans.errors import SeqtransError
from seqtrans.files import delete, temporary_for
from seqtrans.processes import count, once

if TYPE_CHECKING:
    from seqtrans.training import Training


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
