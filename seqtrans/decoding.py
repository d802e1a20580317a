"""What search and model say to each other: scorers, hypotheses and decoders (section 6.1).

A decoder sees logits, never modules. B sentences, R rows (sentences × hypotheses), T target time, V
vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from seqtrans.task import Constraint, Vocabulary

BLOCK = 128
"""Neighbouring scores that are looked through together for the greatest."""
WORTH_BLOCKS = 1 << 16
"""Scores from which on that is faster than to look through all at once."""
FORCED = 1024
"""The most symbols that are read at a time because they are forced, over all rows together: the
logits of each are held."""


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

        And it may have ``watch()``, called before anything is read, which says whether it can tell
        what is looked at. If so, ``looks`` [R, T, S'] is how much each of the tokens that were read
        last, together, looked at each position of its memory, 1 in all, and ``memory`` [R, S'] is
        True where a row has one.
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
    """Whether it ended only because the length limit was reached, or though the constraint would
    not have had it end there."""


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

    together: int | None = None
    """The most sentences it should be given at a time; ``None`` if as many as memory allows."""

    extra: int = 50
    """An output may have as many symbols as its input has positions and so many more (6.1)."""

    least: int = 0
    """The fewest symbols of an output, eos left off; whoever makes its requests sees to it."""

    no_repeat: int = 0
    """No run of so many symbols comes twice in an output; likewise. 0: any may."""

    runs: tuple[Path, ...] = ()
    """Runs whose models it asks besides the one that it decodes with."""

    models: tuple[Scorer, ...] = ()
    """These models, in that order. Whoever builds it opens them, where its tensors are, and refuses
    those that have other vocabularies."""

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
    """Log-probabilities [R, V] with -inf wherever a symbol may not come next, as `open_to` has it.

    They are not renormalised: what a hypothesis scores is the model's own probability of it. A row
    in which nothing may come next, because the limit leaves a constraint no way to its end, is all
    -inf: decoders end it as truncated, at -inf.
    """
    allowed = open_to(vocabulary, last, constraint)
    return torch.where(allowed, log_probabilities, float("-inf"))


def open_to(vocabulary: Vocabulary, last: Tensor, constraint: Constraint | None) -> Tensor:
    """Bool [R, V]: what may come next.

    pad and bos never may; in rows that are at their ``last`` [R] symbol only eos may; the rest is
    the constraint's.
    """
    if constraint is None:
        size = len(last), vocabulary.size
        allowed = torch.ones(size, dtype=torch.bool, device=last.device)
    else:
        allowed = constraint.allowed().clone()
    allowed[:, vocabulary.pad] = allowed[:, vocabulary.bos] = False
    if bool(last.any()):
        only_eos = torch.zeros(vocabulary.size, dtype=torch.bool, device=last.device)
        only_eos[vocabulary.eos] = True
        allowed &= ~last[:, None] | only_eos
    return allowed


def top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` greatest of ``scores`` [R, V] and where they stand, [R, count] each.

    As ``Tensor.topk``, which looks at everything at once, but in two turns: whatever is among the
    greatest stands in one of as many blocks, those with the greatest maxima.
    """
    rows, size = scores.shape
    blocks = size // BLOCK
    if blocks < 4 * count or rows * size < WORTH_BLOCKS:
        return tuple(scores.topk(count))  # type: ignore[return-value]
    whole = scores[:, : blocks * BLOCK].view(rows, blocks, BLOCK)
    chosen = whole.amax(2).topk(count).indices  # [R, count]
    looked_at = whole.gather(1, chosen[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    places = torch.arange(BLOCK, device=scores.device) + chosen[:, :, None] * BLOCK
    places = places.flatten(1)
    if size > blocks * BLOCK:
        rest = torch.arange(blocks * BLOCK, size, device=scores.device)
        looked_at = torch.cat([looked_at, scores[:, blocks * BLOCK :]], 1)
        places = torch.cat([places, rest.expand(rows, -1)], 1)
    values, found = looked_at.topk(count)
    return values, places.gather(1, found)


def forced(
    vocabulary: Vocabulary, left: Tensor, constraint: Constraint | None
) -> tuple[Tensor, Tensor]:
    """What comes next whatever a model holds likely, [R, F], and what may come after it [R, V].

    It goes on as long as one symbol alone may come next in every row, and in none of them eos: what
    is forced can be read in one call, together with the token before it. The constraint is moved on
    past it. ``left`` [R] is how many symbols each row may still have, eos included.
    """
    found: list[Tensor] = []
    while True:
        allowed = open_to(vocabulary, left <= len(found) + 1, constraint)
        if constraint is None or not 0 < (len(found) + 1) * len(left) <= FORCED:
            break
        # The first row alone mostly tells.
        if int(allowed[0].sum()) != 1 or not bool((allowed.sum(1) == 1).all()):
            break
        if bool(allowed[:, vocabulary.eos].any()):
            break
        found.append(allowed.int().argmax(1))
        constraint.advance(found[-1])
    return torch.stack(found, 1) if found else left.new_empty(len(left), 0), allowed


def log_probability(logits: Tensor, tokens: Tensor) -> Tensor:
    """Of all ``tokens`` [R, T] of a row together, [R] in fp64, by their ``logits`` [R, T, V]."""
    chosen = logits.gather(2, tokens[:, :, None])[:, :, 0].double()
    return (chosen - logits.logsumexp(2).double()).sum(1)
