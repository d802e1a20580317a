"""Several models that decode as one: at each step the mean of what they hold likely.

A decoder sees one `seqtrans.decoding.Scorer`, and nothing of what is behind. The mean of the
probabilities favours what one model is sure of, that of their logarithms what none holds unlikely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqtrans.frozen import Frozen
from seqtrans.model import Transducer
from seqtrans.reuse import Mean


@dataclass
class States:
    """Where each of the models stands, a `seqtrans.model.State`; their rows are the same."""

    members: list[Any]

    def select(self, rows: Tensor) -> States:
        """These rows of each, in this order."""
        return States([state.select(rows) for state in self.members])

    @property
    def lengths(self) -> Tensor:
        """[B, N]: the logarithms of the mean of what they hold likely, of models not causal."""
        each = [state.lengths for state in self.members if state.lengths is not None]
        widest = max(lengths.shape[1] for lengths in each)
        same = [F.pad(x, (0, widest - x.shape[1]), value=-math.inf) for x in each]
        return torch.stack(same).logsumexp(0) - math.log(len(same))

    @property
    def looks(self) -> Tensor:
        """[R, T, S]: the mean of what they looked at, once this is watched."""
        each = [state.looks for state in self.members if state.looks is not None]
        return torch.stack(each).mean(0)

    @property
    def memory(self) -> Tensor:
        """Bool [R, S]: where each row has a memory."""
        memory: Tensor = self.members[0].memory
        return memory

    def watch(self) -> bool:
        """From now on keep :attr:`looks`; whether the members see the same positions of a source,
        as they need not if their sources differ.
        """
        first = self.memory
        same = all(
            state.memory.shape == first.shape and bool((state.memory == first).all())
            for state in self.members
        )
        return same and all(state.watch() for state in self.members)

    def rewindable(self, steps: int) -> bool:
        """Prepare for :meth:`rewind`; whether all members can."""
        can = [state.rewindable(steps) for state in self.members]  # each is to prepare
        return all(can)

    def rewind(self, steps: int) -> None:
        """Take the last ``steps`` tokens back in each."""
        for state in self.members:
            state.rewind(steps)


class Ensemble:
    """A scorer of one or more models over the same vocabularies, none of them in training."""

    def __init__(self, models: Sequence[Transducer | Frozen], mean: Mean = "probabilities") -> None:
        self.models, self.mean = models, mean
        self.vocabulary = models[0].vocabulary

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.models[0].device

    @property
    def longest(self) -> int | None:
        """The most target symbols that all of them have positions for."""
        return min((m.longest for m in self.models if m.longest is not None), default=None)

    def start(self, source: Tensor, mask: Tensor) -> States:
        """Let each read ``source`` [B, S, ...], real where ``mask`` [B, S] is True."""
        return States([model.start(source, mask) for model in self.models])

    def advance(self, tokens: Tensor, state: States) -> Tensor:
        """The logarithms of the mean [R, T, V] after ``tokens`` [R, T]; not normalised for the mean
        of logarithms.
        """
        each = torch.stack(
            [
                model.advance(tokens, member).float().log_softmax(-1)
                for model, member in zip(self.models, state.members, strict=True)
            ]
        )
        if self.mean == "logarithms":
            return each.mean(0)
        return each.logsumexp(0) - math.log(len(each))

    def __call__(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """Teacher forcing: [B, T, V] for what follows each prefix of ``target`` [B, T]."""
        return self.advance(target, self.start(source, mask))
