"""What search and model say to each other: scorers, hypotheses and decoders (section 6.1).

A decoder sees logits, never modules. B sentences, R rows (sentences × hypotheses), T target time, V
vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from seqtrans.task import Constraint, Vocabulary


class Scorer(Protocol):
    """A model as decoders see it. An ensemble is another one."""

    vocabulary: Vocabulary

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        ...

    @property
    def longest(self) -> int | None:
        """The most target symbols that it has positions for; ``None`` if any number."""
        ...

    def start(self, source: Tensor, mask: Tensor) -> Any:
        """Read sources [B, S, ...], real where ``mask`` [B, S] is True: one row each.

        What it gives has one method, ``select(rows)``: the state of those rows, in that order,
        each as often as named. It may have two more: ``rewind(steps)`` takes the last of the tokens
        that were read last, together, back; ``rewindable(steps)``, called before these were read,
        says whether it can. Where the model is not causal, it has ``lengths`` [B, N] instead: the
        log-probabilities that an output has 0 to N-1 symbols, eos not counted.
        """
        ...

    def advance(self, tokens: Tensor, state: Any) -> Tensor:
        """Move ``state`` on by tokens [R, T]: logits [R, T, V] of what follows each of them.

        A model that is not causal reads them as whole outputs, each ending with eos and filled up
        with pad, in which bos stands for a symbol that is hidden. The logits are of what stands at
        each place, and ``state`` is left alone.
        """
        ...


@dataclass(frozen=True)
class Hypothesis:
    """One output: its ids without bos and eos, and how likely the model holds it."""

    ids: tuple[int, ...]
    log_probability: float
    """The model's own log-probability of ids and eos, whatever a constraint has masked."""
    score: float
    """What the decoder ranks by: with a length penalty, not the same."""
    truncated: bool = False
    """Whether it ended only because the length limit was reached."""


@dataclass(frozen=True)
class Request:
    """What a decoder is asked: sources [B, S, ...], their mask [B, S], and how far it may go."""

    source: Tensor
    mask: Tensor
    limits: Tensor
    """[B]: the most symbols an output may have, eos included; at least 1."""
    constraint: Constraint | None = None
    """What may come next: the task's rules, a prefix, and whatever else is asked of outputs."""
    count: int = 1
    """How many hypotheses are wanted for each sentence."""


class Decoder(ABC):
    """A search strategy."""

    causal: ClassVar[bool] = True
    """Whether it is for models that write from left to right, or for those that do not."""

    most: int | None = None
    """The most hypotheses it can give for a sentence; ``None`` if any number."""

    extra: int = 50
    """An output may have as many symbols as its input has positions and so many more (6.1)."""

    least: int = 0
    """The fewest symbols of an output, eos left off; whoever makes its requests sees to it."""

    no_repeat: int = 0
    """No run of so many symbols comes twice in an output; likewise. 0: any may."""

    @abstractmethod
    def decode(self, scorer: Scorer, request: Request) -> list[list[Hypothesis]]:
        """For each sentence 1 to ``request.count`` hypotheses, best first, no two alike."""


def length_penalty(length: Tensor | int, alpha: float) -> Tensor:
    """((5 + length) / 6)^alpha of Wu et al. (2016), by which a log-probability is divided.

    ``length`` counts the generated symbols, eos included and bos not; 0 for alpha switches it off.
    """
    return ((5 + torch.as_tensor(length, dtype=torch.float64)) / 6) ** alpha


def admissible(
    log_probabilities: Tensor, vocabulary: Vocabulary, last: Tensor, constraint: Constraint | None
) -> Tensor:
    """Log-probabilities [R, V] with -inf wherever a symbol may not come next.

    pad and bos never may; in rows that are at their ``last`` [R] symbol only eos may; the rest is
    the constraint's. They are not renormalised: what a hypothesis scores is the model's own
    probability of it. A row in which nothing may come next, because the limit leaves a constraint
    no way to its end, is all -inf: decoders end it as truncated, at -inf.
    """
    barred = torch.zeros(vocabulary.size, dtype=torch.bool, device=log_probabilities.device)
    barred[vocabulary.pad] = barred[vocabulary.bos] = True
    only_eos = torch.ones_like(barred)
    only_eos[vocabulary.eos] = False
    mask = barred | (last[:, None] & only_eos)
    if constraint is not None:
        mask = mask | ~constraint.allowed()
    return log_probabilities.masked_fill(mask, float("-inf"))
