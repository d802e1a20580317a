"""The conformance kit: what the engine relies on in each kind of component, checked by one call.

For authors of components, in a test of their own::

    from seqtrans.testing import check_position

    def test_my_scheme() -> None:
        check_position(lambda shape: MyScheme(shape.heads))

Each check takes a `Component`, with settings if its defaults don't suit, or a function of what the
hook of that kind says ``build`` is given after the settings. It builds tiny models around the
component, on the CPU, in well under a second or two, and raises an AssertionError whose sentence
says what must hold and by how much it doesn't. Letters of shapes are those of ``seqtrans.model``.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from seqtrans import checkpoint
from seqtrans.attention import Attention, Bias, view, weights
from seqtrans.config import Shape
from seqtrans.data import pad
from seqtrans.decoding import Decoder, Hypothesis, Request
from seqtrans.errors import DataError
from seqtrans.hooks import Component
from seqtrans.model import State, Transducer
from seqtrans.position import PositionScheme, sinusoid
from seqtrans.settings import Settings
from seqtrans.task import Constraint, Task, Vocabulary

__all__ = [
    "TINY",
    "NoRepeats",
    "TableScorer",
    "check_attention",
    "check_decoder",
    "check_model",
    "check_position",
    "check_source",
    "check_task",
    "random_table",
    "tiny_model",
]

TINY = Shape(encoder_layers=2, decoder_layers=2, width=16, inner=24, heads=2, dropout=0.0)
"""The shape of the models that components are tried in."""

SIZE = 12
"""Of the vocabularies of these models."""

Plain = Callable[..., Tensor]


def check_position(
    position: Component | Callable[[Shape], PositionScheme], settings: Settings | None = None
) -> None:
    """Check a position scheme, alone and in models with full and with restricted attention."""

    def build(shape: Shape) -> PositionScheme:
        return made(position, settings, shape)  # type: ignore[no-any-return]

    with seeded():
        scheme = disturbed(build(TINY)).eval()
        with torch.no_grad():
            only_positions_count(scheme)
            positions_are_exact_in_bf16(scheme)
        if scheme.limit is not None:
            beyond_the_limit_is_refused(tiny_model(position=build))
    for attention, causal in itertools.product((Plainly, Nearby), (True, False)):
        check_model(lambda: tiny_model(position=build, attention=attention, causal=causal))  # noqa: B023


def check_attention(
    attention: Component | Callable[[Shape], Attention],
    settings: Settings | None = None,
    *,
    plain: Plain | None = None,
) -> None:
    """Check an attention, alone and in models with positions that add, turn and bias.

    Args:
        attention: what is checked.
        settings: of a component.
        plain: the same in a way that is slow and plain, with the arguments of ``forward``. By
            default a softmax over what ``sees`` shows, so a variant with a fast ``forward`` of its
            own is compared with its own ``sees``.
    """

    def build(shape: Shape) -> Attention:
        return made(attention, settings, shape)  # type: ignore[no-any-return]

    with seeded():
        variant = disturbed(build(TINY)).eval()
        reach_holds(variant)
        equals_its_plain_twin(variant, plain or plainly(variant))
        nothing_to_see_gives_zeros(variant)
        dropout_acts(variant)
    for position, causal in itertools.product((Adding, Turning, Biasing), (True, False)):
        check_model(lambda: tiny_model(position=position, attention=build, causal=causal))  # noqa: B023


def check_source(
    source: Component | Callable[[Shape, Vocabulary | None], nn.Module],
    settings: Settings | None = None,
    *,
    inputs: Sequence[Tensor] | None = None,
    vocabulary: Vocabulary | None = None,
) -> None:
    """Check a source, alone and in a model.

    Args:
        source: what is checked.
        settings: of a component.
        inputs: at least three, of different lengths, as a task's ``encode_source`` gives them: ids
            [S] or features [S, ...]. By default random ids.
        vocabulary: that of the inputs, if they are ids.
    """
    if inputs is None:
        vocabulary = vocabulary or Vocabulary(SIZE)
        inputs = random_sources(vocabulary.size)

    def build(shape: Shape, _: Vocabulary | None) -> nn.Module:
        return made(source, settings, shape, vocabulary)  # type: ignore[no-any-return]

    with seeded(), torch.no_grad():
        gives_vectors(disturbed(build(TINY, None)).eval(), inputs)
    check_model(lambda: tiny_model(source=build), inputs)


def check_decoder(
    decoder: Component | Callable[[], Decoder],
    settings: Settings | None = None,
    *,
    score: Callable[[float, int], float] | None = None,
    exhaustive: bool = False,
) -> None:
    """Check a decoder against scorers whose every probability is known.

    Args:
        decoder: what is checked.
        settings: of a component.
        score: what a search ranks by, from a log-probability and the number of symbols, eos
            included; then its best may not depend on how many are asked for.
        exhaustive: whether it is set so wide that it must find the very best by ``score``.
    """
    search: Decoder = made(decoder, settings)
    counts = range(1, min(search.most or 4, 4) + 1)
    for seed in range(4):
        scorer = TableScorer(Vocabulary(7), random_table(7, seed))
        sources = [torch.tensor(ids) for ids in ([3, 4], [5], [6, 6, 3], [4, 5], [3], [5, 6])]
        limits = [4, 5, 3, 1, 5, 4]
        for constrained, count in itertools.product((False, True), counts):
            check_outputs(search, scorer, sources, limits, constrained, count)
            if score is not None:
                ranking_is_right(search, scorer, sources, limits, constrained, count, score)
            if exhaustive:
                nothing_better_exists(
                    search, scorer, sources, limits, constrained, count, score or by_probability
                )
        a_dead_end_is_truncated(search, scorer)


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


def check_model(build: Callable[[], Transducer], sources: Sequence[Tensor] | None = None) -> None:
    """Check that a model keeps what training and decoding rely on.

    Args:
        build: builds the model, each time with other weights but otherwise alike.
        sources: at least three inputs of different lengths; by default random ids.
    """
    with seeded():
        model = disturbed(build()).eval()
        sources = list(sources or random_sources(SIZE))
        with torch.no_grad():
            padding_is_invisible(model, sources)
            states_are_selected_rightly(model, sources)
            if model.shape.causal:
                whole_equals_stepwise(model, sources)
                nothing_is_foreseen(model, sources)
            reloads(model, build, sources)
        gradients_are_finite(model, sources)
        an_empty_source_is_harmless(model, sources)


# What the checks are made of: parts that are known to be right.


def tiny_model(
    *,
    position: Callable[[Shape], PositionScheme] | None = None,
    attention: Callable[[Shape], Attention] | None = None,
    source: Callable[[Shape, Vocabulary | None], nn.Module] | None = None,
    vocabulary: Vocabulary | None = None,
    **changes: Any,
) -> Transducer:
    """A model of the shape `TINY`, with ``changes``, around the components that are given."""
    shape = TINY.model_copy(update=changes)
    vocabulary = vocabulary or Vocabulary(SIZE)
    position, attention, source = position or Adding, attention or Plainly, source or Embedded
    return Transducer(
        shape,
        vocabulary,
        source(shape, vocabulary),
        (position(shape), position(shape)),
        [attention(shape) for _ in range(shape.encoder_layers)],
        [attention(shape) for _ in range(shape.decoder_layers)],
        vocabulary,
    )


class Embedded(nn.Module):
    """A source of ids."""

    def __init__(self, shape: Shape, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        assert vocabulary is not None
        self.embedding = nn.Embedding(vocabulary.size, shape.width)

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.embedding(source), mask


class Adding(PositionScheme):
    """Positions that are added to the embeddings."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        return (x + sinusoid(at, x.shape[-1])).to(x.dtype)


class Turning(PositionScheme):
    """Positions that turn queries and keys, in pairs of coordinates."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def rotate(self, heads: Tensor, at: Tensor) -> Tensor:
        waves = sinusoid(at, heads.shape[-1])  # [T, D/H]
        sine, cosine = waves[:, 0::2], waves[:, 1::2]
        even, odd = heads[..., 0::2], heads[..., 1::2]
        turned = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1)
        return turned.flatten(-2).to(heads.dtype)


class Biasing(PositionScheme):
    """Positions that are seen in a bias, which depends on the query too."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.slope = nn.Linear(shape.head, 1)

    def bias(self, queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        distance = (query_at[:, None] - key_at).abs().to(queries.dtype)
        slopes: Tensor = self.slope(queries).sigmoid()  # [B, H, T, 1]
        return -slopes * distance


class Plainly(Attention):
    """Attention that sees everything."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()


class Nearby(Attention):
    """Attention to what lies no more than two positions away."""

    reach = 2

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def sees(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        return (query_at[:, None] - key_at[None, :]).abs() <= self.reach


Table = Callable[[tuple[int, ...], tuple[int, ...]], Sequence[float]]
"""(a source's ids, a prefix without bos) to the logits of what follows it."""


def random_table(size: int, seed: int = 0, spread: float = 2.0) -> Table:
    """Normally distributed logits that depend on the source and the prefix, and on nothing else."""

    @functools.cache
    def logits(source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        draw = random.Random(f"{seed} {source} {prefix}")
        return [draw.gauss(0.0, spread) for _ in range(size)]

    return logits


@dataclass
class Prefixes:
    """The state of a `TableScorer`: for each row its source and what it has read."""

    rows: list[tuple[tuple[int, ...], tuple[int, ...]]]

    def select(self, rows: Tensor) -> Prefixes:
        """These rows, in this order."""
        return Prefixes([self.rows[row] for row in rows.tolist()])


class TableScorer:
    """A scorer of which every probability is known, for tests of searches."""

    def __init__(self, vocabulary: Vocabulary, table: Table) -> None:
        self.vocabulary, self.table = vocabulary, table

    def start(self, source: Tensor, mask: Tensor) -> Prefixes:
        """One row for each source [B, S] of ids."""
        return Prefixes(
            [
                (tuple(ids[real].tolist()), ())
                for ids, real in zip(source.cpu(), mask.cpu(), strict=True)
            ]
        )

    def advance(self, tokens: Tensor, state: Prefixes) -> Tensor:
        """Logits [R, T, V]."""
        expect(
            len(tokens) == len(state.rows),
            f"A decoder must advance every row of a state, {len(state.rows)} here, "
            f"not {len(tokens)}.",
        )
        logits = []
        for row, ids in enumerate(tokens.tolist()):
            source, prefix = state.rows[row]
            for token in ids:
                if token == self.vocabulary.bos:
                    expect(not prefix, f"bos may only come first, not after {prefix}.")
                else:
                    prefix = (*prefix, token)
                logits.append(list(self.table(source, prefix)))
            state.rows[row] = (source, prefix)
        size = (*tokens.shape, self.vocabulary.size)
        return torch.tensor(logits, dtype=torch.float32).view(size)

    def log_probability(self, source: Sequence[int], ids: Sequence[int]) -> float:
        """Of ``ids`` and eos after them."""
        total = 0.0
        for length, token in enumerate([*ids, self.vocabulary.eos]):
            logits = self.table(tuple(source), tuple(ids[:length]))
            total += logits[token] - math.log(math.fsum(map(math.exp, logits)))
        return total

    def outputs(self, limit: int) -> Iterator[tuple[int, ...]]:
        """Every output of at most ``limit`` symbols, eos included and left off."""
        special = {self.vocabulary.pad, self.vocabulary.bos, self.vocabulary.eos}
        symbols = [token for token in range(self.vocabulary.size) if token not in special]
        for length in range(limit):
            yield from itertools.product(symbols, repeat=length)


class NoRepeats(Constraint):
    """No symbol twice in a row's output, and none of those ``banned`` for its sentence."""

    def __init__(self, vocabulary: Vocabulary, banned: Sequence[Sequence[int]]) -> None:
        self.vocabulary, self.used = vocabulary, [set(ids) for ids in banned]

    def allows(self, ids: Sequence[int], row: int = 0) -> bool:
        """Whether a whole output is right in this row."""
        return len(set(ids)) == len(ids) and not self.used[row] & set(ids)

    def allowed(self) -> Tensor:
        allowed = torch.ones(len(self.used), self.vocabulary.size, dtype=torch.bool)
        for row, ids in enumerate(self.used):
            allowed[row, list(ids)] = False
        return allowed

    def advance(self, tokens: Tensor) -> None:
        expect(
            len(tokens) == len(self.used),
            f"A decoder must advance every row of a constraint, {len(self.used)} here, "
            f"not {len(tokens)}.",
        )
        for ids, token in zip(self.used, tokens.tolist(), strict=True):
            expect(token not in ids, f"A decoder must not take {token}, which was not allowed.")
            expect(token != self.vocabulary.eos, "A constraint must not be told of eos.")
            ids.add(token)

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.vocabulary, [list(self.used[row]) for row in rows.tolist()])


class Endless(Constraint):
    """Allows one symbol for ever, and no end."""

    def __init__(self, size: int, rows: int) -> None:
        self.size, self.rows = size, rows

    def allowed(self) -> Tensor:
        allowed = torch.zeros(self.rows, self.size, dtype=torch.bool)
        allowed[:, -1] = True
        return allowed

    def advance(self, tokens: Tensor) -> None:
        pass

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.size, len(rows))


# How they are said.


def expect(holds: bool, sentence: str) -> None:
    """Raise an AssertionError unless it holds; also under ``python -O``."""
    if not holds:
        raise AssertionError(sentence)


def same(found: Tensor, wanted: Tensor, sentence: str, tolerance: float = 1e-5) -> None:
    """Raise an AssertionError if two tensors differ, or either is not finite."""
    expect(
        found.shape == wanted.shape,
        f"{sentence}, but their shapes are {list(found.shape)} and {list(wanted.shape)}.",
    )
    if found.numel():
        worst = float((found.detach().double() - wanted.detach().double()).abs().max())
        expect(
            worst <= tolerance,
            f"{sentence}, but they differ by up to {worst:.2g}; {tolerance:g} is allowed.",
        )


def raises(kind: type[Exception], call: Callable[[], object]) -> bool:
    """Whether a call raises an error of this kind; another kind goes through."""
    try:
        call()
    except kind:
        return True
    return False


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """The same random numbers each time, without disturbing those of the caller."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def made(component: Any, settings: Settings | None, *arguments: Any) -> Any:
    """What a component, or a function in place of one, builds."""
    if isinstance(component, Component):
        return component.make(settings or component.settings(), *arguments)
    return component(*arguments)


def disturbed(module: Any) -> Any:
    """The module with noise on all its weights, so that what begins at zero counts, too."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return module


def random_sources(size: int) -> list[Tensor]:
    """Ids in sequences of different lengths, one of them of a single id."""
    return [torch.randint(3, size, (length,)) for length in (7, 4, 1, 6)]


def random_targets(model: Transducer, rows: int, length: int) -> Tensor:
    """Ids [rows, length], bos first."""
    targets = torch.randint(3, model.vocabulary.size, (rows, length))
    targets[:, 0] = model.vocabulary.bos
    return targets


def padded(sources: Sequence[Tensor], length: int | None = None) -> tuple[Tensor, Tensor]:
    """A batch [B, S, ...] and its mask, longer than need be, with something in the padding."""
    source, mask = pad(sources)
    if length is not None and length > source.shape[1]:
        more = length - source.shape[1]
        source = torch.cat([source, source.new_zeros(len(source), more, *source.shape[2:])], 1)
        mask = torch.cat([mask, mask.new_zeros(len(mask), more)], 1)
        shape = mask.view(*mask.shape, *[1] * (source.dim() - 2))
        source = torch.where(shape, source, source.flatten(0, 1)[0])
    return source, mask


def longest(model: Transducer, sources: Sequence[Tensor]) -> int:
    """Four times the longest source, or the most that the model's positions allow."""
    most = 4 * max(len(source) for source in sources)
    return min(most, model.encoder.position.limit or most)


# Properties of a model.


def padding_is_invisible(model: Transducer, sources: Sequence[Tensor]) -> None:
    """A sentence gives the same alone, in a batch, and in one that is padded to four times it."""
    targets = random_targets(model, len(sources), 5)
    batch = model(*padded(sources), targets)
    far = model(*padded(sources, longest(model, sources)), targets)
    for row, source in enumerate(sources):
        alone = model(*padded([source]), targets[row : row + 1])[0]
        same(batch[row], alone, "A sentence must give the same logits alone and in a batch")
        same(far[row], alone, "A sentence must give the same logits alone and padded to 4 times")


def whole_equals_stepwise(model: Transducer, sources: Sequence[Tensor]) -> None:
    """The target at once, step by step and in pieces give the same, and no cache outgrows."""
    targets = random_targets(model, len(sources), 9)
    source, mask = padded(sources)
    whole = model(source, mask, targets)
    for sizes in ([1] * 9, [4, 1, 4], [2, 3, 4], [8, 1]):
        state = model.start(source, mask)
        pieces = [model.advance(piece, state) for piece in torch.split(targets, sizes, 1)]
        same(
            torch.cat(pieces, 1),
            whole,
            "The whole target at once must give the same logits as pieces of "
            f"{', '.join(map(str, sizes))}",
        )
        for layer, past in zip(model.decoder.layers, state.layers, strict=True):
            reach = layer.attention.attention.reach
            held = 0 if past.cache.at is None else len(past.cache.at)
            expect(
                reach is None or held <= reach,
                f"A cache of an attention that reaches back {reach} must not hold {held} keys.",
            )


def nothing_is_foreseen(model: Transducer, sources: Sequence[Tensor]) -> None:
    """Another token changes no logits before it, and those at it."""
    targets = random_targets(model, len(sources), 7)
    source, mask = padded(sources)
    whole = model(source, mask, targets)
    for at in range(1, targets.shape[1]):
        other = targets.clone()
        other[:, at] = 3 + (other[:, at] - 2) % (model.vocabulary.size - 3)
        changed = model(source, mask, other)
        same(
            changed[:, :at],
            whole[:, :at],
            f"Another target token {at} must leave the logits before it the same",
            1e-6,
        )
        expect(
            bool((changed[:, at] != whole[:, at]).any(-1).all()),
            f"Another target token {at} must change the logits of what follows it.",
        )


def states_are_selected_rightly(model: Transducer, sources: Sequence[Tensor]) -> None:
    """Rows that are kept, dropped, reordered and repeated go on like those that never were."""
    source, mask = padded(sources)
    rows, steps = len(sources), (3, 2, 2) if model.shape.causal else (4,)

    def advance(state: State, targets: Tensor) -> Tensor:
        return model.advance(targets, state)

    def anew(owners: Tensor, *read: Tensor) -> Tensor:
        """The logits of the last piece, for rows with a memory of their own each."""
        state = model.start(source[owners], mask[owners])
        return [advance(state, targets) for targets in read][-1]

    everything = torch.arange(rows)
    choices = {
        "reordered": everything.flip(0),
        "repeated": everything.repeat_interleave(3),
        "repeated in another order": everything.flip(0).repeat_interleave(2),
        "repeated unequally": torch.cat([everything, everything[-1:], everything[:1]]),
        "dropped": everything[1:2],
    }
    for how, chosen in choices.items():
        state = model.start(source, mask)
        first = random_targets(model, rows, steps[0])
        if len(steps) == 1:
            state, owners = state.select(chosen), chosen
            targets = random_targets(model, len(owners), steps[0])
            found, wanted = advance(state, targets), anew(owners, targets)
            same(found, wanted, f"Rows that are {how} must give the same as rows of their own")
            continue
        advance(state, first)
        second = random_targets(model, len(chosen), steps[1])
        selected = state.select(chosen)
        sentence = f"Rows that are {how} must go on with the same logits as rows of their own"
        same(advance(selected, second), anew(chosen, first[chosen], second), sentence)
        if how == "repeated":
            expect(
                len(selected.layers[0].keys) == rows,
                "Rows of one sentence must share its memory, and not copy it.",
            )
        again = torch.cat([torch.arange(len(chosen)).flip(0), torch.zeros(1, dtype=torch.long)])
        third = random_targets(model, len(again), steps[2])
        wanted = anew(chosen[again], first[chosen][again], second[again], third)
        same(advance(selected.select(again), third), wanted, f"{sentence}, also a second time")
        rest = random_targets(model, rows, steps[1])
        same(
            advance(state, rest),
            anew(everything, first, rest),
            f"A state of which rows were {how} must itself stay the same",
        )
    nobody = model.start(source, mask).select(everything[:0])
    expect(nobody.select(everything[:0]).rows == 0, "No rows at all must be selectable.")


def reloads(model: Transducer, build: Callable[[], Transducer], sources: Sequence[Tensor]) -> None:
    """Weights that were written and read give the same in a model that was built anew."""
    targets = random_targets(model, len(sources), 5)
    other = disturbed(build()).eval()
    with tempfile.TemporaryDirectory(prefix="seqtrans-check-") as folder:
        checkpoint.save_weights(Path(folder), checkpoint.tensors(model))
        checkpoint.load_weights(Path(folder), other)
    same(
        other(*padded(sources), targets),
        model(*padded(sources), targets),
        "A model that was saved and loaded must give the same logits",
        0.0,
    )


def gradients_are_finite(model: Transducer, sources: Sequence[Tensor]) -> None:
    """Every weight takes part in the loss, with a finite gradient."""
    model.zero_grad()
    model(*padded(sources), random_targets(model, len(sources), 5)).square().mean().backward()
    for name, parameter in model.named_parameters():
        expect(
            not parameter.requires_grad or parameter.grad is not None,
            f"Every weight must take part in the loss, but {name} doesn't.",
        )
        expect(
            parameter.grad is None or bool(parameter.grad.isfinite().all()),
            f"Gradients must be finite, but that of {name} isn't.",
        )


def an_empty_source_is_harmless(model: Transducer, sources: Sequence[Tensor]) -> None:
    """A row whose source is only padding gives finite logits, and changes nothing in others."""
    targets = random_targets(model, len(sources), 5)
    source, mask = padded(sources)
    before = model(source, mask, targets)
    mask[1] = False
    model.zero_grad()
    after = model(source, mask, targets)
    after.square().mean().backward()
    others = torch.arange(len(sources)) != 1
    sentence = "An empty source in a batch must leave the other sentences the same"
    same(after[others], before[others], sentence)
    expect(bool(after.isfinite().all()), "An empty source must give finite logits.")
    for name, parameter in model.named_parameters():
        expect(
            parameter.grad is None or bool(parameter.grad.isfinite().all()),
            f"With an empty source the gradient of {name} must be finite.",
        )


# Properties of a position scheme.


def only_positions_count(scheme: PositionScheme) -> None:
    """A part of a sequence at its positions gives that part of what the whole gives."""
    length = min(9, scheme.limit or 9)
    at = torch.arange(length)
    part = torch.randperm(length)[: max(1, length // 2)]
    x, heads = torch.randn(2, length, TINY.width), torch.randn(2, TINY.heads, length, TINY.head)
    whole = scheme.embed(x, at)
    same(
        scheme.embed(x[:, part], at[part]),
        whole[:, part],
        "embed() must depend on positions alone, so that a part of the tokens gives the same",
    )
    same(
        scheme.embed(x, at.expand(2, -1)),
        whole,
        "embed() must take positions [B, T] as it takes [T], with the same result",
    )
    turned = scheme.rotate(heads, at)
    same(
        scheme.rotate(heads[:, :, part], at[part]),
        turned[:, :, part],
        "rotate() must depend on positions alone, so that a part of the heads gives the same",
    )
    if not scheme.biased:
        return

    def bias(queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        size = (2, TINY.heads, len(query_at), key_at.shape[-1])
        return scheme.bias(queries, query_at, key_at).expand(size)

    full = bias(turned, at, at)  # [B, H, T, K]
    same(
        bias(turned[:, :, part], at[part], at),
        full[:, :, part],
        "bias() must depend on positions alone, so that some of the queries give the same",
    )
    same(
        bias(turned, at, at[part]),
        full[..., part],
        "bias() must depend on positions alone, so that some of the keys give the same",
    )
    windows = (at[:, None] + torch.tensor([-1, 0, 2])).clamp(0, length - 1)  # [T, 3]
    same(
        bias(turned, at, windows),
        full.gather(3, windows.expand(2, TINY.heads, -1, -1)),
        "bias() must take keys [T, K], others for each query, as it takes [K], "
        "with the same result",
    )


def positions_are_exact_in_bf16(scheme: PositionScheme) -> None:
    """In bf16, which can't tell 600 positions apart, only results are rounded, not positions."""
    length = min(600, scheme.limit or 600)
    at = torch.arange(length)
    low, high = copy.deepcopy(scheme).bfloat16(), copy.deepcopy(scheme)
    for parameter in high.parameters():
        parameter.copy_(parameter.bfloat16().float())
    x = torch.randn(1, length, TINY.width).bfloat16()
    heads = torch.randn(1, TINY.heads, length, TINY.head).bfloat16()
    near = at[-2:]
    calls: dict[str, Callable[[PositionScheme, torch.dtype], Tensor]] = {
        "embed": lambda scheme, kind: scheme.embed(x.to(kind), at),
        "rotate": lambda scheme, kind: scheme.rotate(heads.to(kind), at),
    }
    if scheme.biased:
        calls["bias"] = lambda scheme, kind: scheme.bias(heads[:, :, -2:].to(kind), near, at)
    for name, call in calls.items():
        wanted = call(high, torch.float32)
        tolerance = 0.02 * float(wanted.abs().max())
        found = call(low, torch.bfloat16)
        same(
            found.float(), wanted, f"{name}() must take positions in fp32, also in bf16", tolerance
        )
        expect(
            name == "bias" or found.dtype == torch.bfloat16,
            f"{name}() must give the type that it is given, bfloat16, not {found.dtype}.",
        )
        with torch.autocast("cpu", torch.bfloat16):
            found = call(high, torch.float32)
        sentence = f"{name}() must take positions in fp32, also under autocast"
        same(found.float(), wanted, sentence, tolerance)


def beyond_the_limit_is_refused(model: Transducer) -> None:
    """What has no position is refused in a sentence, and leaves the state as it was."""
    limit = model.decoder.position.limit
    assert limit is not None
    model.eval()
    with torch.no_grad():
        state = model.start(*padded([torch.full((limit,), 3)]))
        model.advance(torch.full((1, limit), 3), state)
        for side, call in {
            "source": lambda: model.start(*padded([torch.full((limit + 1,), 3)])),
            "target": lambda: model.advance(torch.full((1, 1), 3), state),
        }.items():
            expect(
                raises(DataError, call),
                f"A {side} of {limit + 1} positions must be refused with a DataError.",
            )
        expect(state.length == limit, "A step that is refused must leave the state as it was.")


# Properties of an attention.


def plainly(variant: Attention) -> Plain:
    """What a variant computes if it is a softmax over what ``sees`` shows."""

    def plain(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_at: Tensor,
        key_at: Tensor,
        key_mask: Tensor | None = None,
        causal: bool = False,
        bias: Bias | None = None,
    ) -> Tensor:
        mask = view(variant.sees(query_at, key_at), key_mask, query_at, key_at, causal)
        return weights(q, k, mask, bias(q, query_at, key_at) if bias else None) @ v

    return plain


def some_bias(queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
    """A bias [B, H, T, K] that depends on the queries."""
    return queries.mean(-1, keepdim=True) * (query_at[:, None] - key_at).to(queries.dtype)


def random_heads(length: int) -> Tensor:
    """[3, H, length, D/H]."""
    return torch.randn(3, TINY.heads, length, TINY.head, requires_grad=True)


def equals_its_plain_twin(variant: Attention, plain: Plain) -> None:
    """Values and gradients are those of the plain way, for a whole and for later pieces."""
    length = 11
    at = torch.arange(length)
    mask = at[None, :] < torch.tensor([length, 5, 1])[:, None]
    for first, masked, causal, bias in itertools.product(
        (0, 4, length - 1), (False, True), (False, True), (None, some_bias)
    ):
        query_at = at[first:] if first else at
        q, k, v = random_heads(len(query_at)), random_heads(length), random_heads(length)
        arguments: dict[str, Any] = {
            "query_at": query_at,
            "key_at": at,
            "key_mask": mask if masked else None,
            "causal": causal,
            "bias": bias,
        }
        found, wanted = variant(q, k, v, **arguments), plain(q, k, v, **arguments)
        case = (
            f"with queries from {first} on, {'a' if masked else 'no'} mask, "
            f"causal={causal}, {'a' if bias else 'no'} bias"
        )
        same(found, wanted, f"The attention must give the same as its plain twin {case}")
        towards = torch.randn_like(found)
        for name, mine, twin in zip(
            "qkv",
            torch.autograd.grad((found * towards).sum(), (q, k, v), materialize_grads=True),
            torch.autograd.grad((wanted * towards).sum(), (q, k, v), materialize_grads=True),
            strict=True,
        ):
            same(mine, twin, f"Gradients of {name} must be the same as the plain twin's {case}")


def reach_holds(variant: Attention) -> None:
    """What lies further back than ``reach`` can be left out."""
    if variant.reach is None:
        return
    length = variant.reach + 6
    at = torch.arange(length)
    q, k, v = random_heads(1), random_heads(length), random_heads(length)
    first = length - 1 - variant.reach
    same(
        variant(q, k[:, :, first:], v[:, :, first:], query_at=at[-1:], key_at=at[first:]),
        variant(q, k, v, query_at=at[-1:], key_at=at),
        f"Keys further back than reach={variant.reach} must be left out or in with the same result",
    )


def nothing_to_see_gives_zeros(variant: Attention) -> None:
    """A query that may look at nothing gives zeros and finite gradients."""
    at = torch.arange(5)
    mask = torch.tensor([[True] * 5, [False] * 5, [True] * 5])
    for causal, bias in itertools.product((False, True), (None, some_bias)):
        q, k, v = (random_heads(5) for _ in range(3))
        found = variant(q, k, v, query_at=at, key_at=at, key_mask=mask, causal=causal, bias=bias)
        same(found[1], torch.zeros_like(found[1]), "A query that sees nothing must give zeros", 0.0)
        found.square().sum().backward()
        for name, heads in zip("qkv", (q, k, v), strict=True):
            expect(
                heads.grad is not None and bool(heads.grad.isfinite().all()),
                f"Where a query sees nothing the gradient of {name} must be finite.",
            )


def dropout_acts(variant: Attention) -> None:
    """``dropout`` acts in training only."""
    at = torch.arange(9)
    q, k, v = (random_heads(9) for _ in range(3))
    usual = variant(q, k, v, query_at=at, key_at=at)
    variant.dropout = 0.5
    same(
        variant(q, k, v, query_at=at, key_at=at), usual, "dropout must leave an evaluation the same"
    )
    variant.train()
    dropped = variant(q, k, v, query_at=at, key_at=at)
    variant.eval()
    variant.dropout = 0.0
    expect(
        not torch.equal(dropped, usual),
        "Attention.dropout, which model.attention_dropout sets, must have an effect in training.",
    )


# Properties of a source.


def gives_vectors(source: nn.Module, inputs: Sequence[Tensor]) -> None:
    """Vectors of the model's width, with a mask, that don't depend on what is padded."""
    batch, mask = padded(inputs)
    x, mask_out = source(batch, mask)
    expect(
        x.dim() == 3 and x.shape[0] == len(inputs) and x.shape[2] == TINY.width,
        f"A source must give vectors [B, S', D], {[len(inputs), 'S', TINY.width]}, "
        f"not {list(x.shape)}.",
    )
    expect(
        mask_out.dtype == torch.bool and mask_out.shape == x.shape[:2],
        f"A source must give a bool mask {list(x.shape[:2])}, "
        f"not {mask_out.dtype} {list(mask_out.shape)}.",
    )
    expect(bool(mask_out[:, 0].all()), "A source must give at least one vector for each input.")
    expect(
        bool((mask_out[:, :-1] | ~mask_out[:, 1:]).all()),
        "A source must give all its padding on the right.",
    )
    far, far_mask = source(*padded(inputs, 4 * batch.shape[1]))
    for row, input in enumerate(inputs):
        alone, alone_mask = source(*padded([input]))
        alone = alone[alone_mask]
        sentence = "An input must give the same vectors alone and"
        same(x[row, mask_out[row]], alone, f"{sentence} in a batch")
        same(far[row, far_mask[row]], alone, f"{sentence} padded to 4 times")


# Properties of a decoder.


def by_probability(log_probability: float, length: int) -> float:
    """What a search without a length penalty ranks by."""
    return log_probability


def banned(sources: Sequence[Tensor]) -> list[list[int]]:
    """For each source the one symbol that its output may not have: its own first."""
    return [[int(source[0])] for source in sources]


def decoded(
    search: Decoder,
    scorer: TableScorer,
    sources: Sequence[Tensor],
    limits: Sequence[int],
    constrained: bool,
    count: int,
) -> list[list[Hypothesis]]:
    """What a decoder gives, with or without a constraint."""
    constraint = NoRepeats(scorer.vocabulary, banned(sources)) if constrained else None
    return search.decode(scorer, Request(*pad(sources), torch.tensor(limits), constraint, count))


def check_outputs(
    search: Decoder,
    scorer: TableScorer,
    sources: Sequence[Tensor],
    limits: Sequence[int],
    constrained: bool,
    count: int,
) -> None:
    """Outputs are what the request asks for, and the same in any batch."""
    found = decoded(search, scorer, sources, limits, constrained, count)
    expect(
        len(found) == len(sources),
        f"A decoder must give a list for each of {len(sources)} sentences, not {len(found)}.",
    )
    special = {scorer.vocabulary.pad, scorer.vocabulary.bos, scorer.vocabulary.eos}
    rule = NoRepeats(scorer.vocabulary, banned(sources))
    for row, (hypotheses, source, limit) in enumerate(zip(found, sources, limits, strict=True)):
        expect(
            1 <= len(hypotheses) <= count,
            f"A decoder must give 1 to {count} hypotheses, not {len(hypotheses)}.",
        )
        scores = [hypothesis.score for hypothesis in hypotheses]
        expect(
            scores == sorted(scores, reverse=True), f"The best must come first, not as in {scores}."
        )
        expect(
            len({hypothesis.ids for hypothesis in hypotheses}) == len(hypotheses),
            f"No two hypotheses may be alike, as in {[h.ids for h in hypotheses]}.",
        )
        for hypothesis in hypotheses:
            ids = hypothesis.ids
            expect(not special & set(ids), f"ids must be without pad, bos and eos, not {ids}.")
            expect(
                len(ids) + 1 <= limit,
                f"With a limit of {limit} symbols, eos included, {ids} is too long.",
            )
            expect(
                len(ids) + 1 == limit or not hypothesis.truncated,
                f"{ids} is shorter than its limit of {limit}, so it is not truncated.",
            )
            expect(
                not constrained or rule.allows(ids, row), f"The constraint does not allow {ids}."
            )
            same(
                torch.tensor(hypothesis.log_probability),
                torch.tensor(scorer.log_probability(source.tolist(), ids)),
                f"log_probability of {ids} must be the same as the scorer's",
                1e-4,
            )
    backwards = decoded(search, scorer, sources[::-1], list(limits)[::-1], constrained, count)[::-1]
    for row, hypotheses in enumerate(found):
        one = slice(row, row + 1)
        for how, others in (
            ("alone", decoded(search, scorer, sources[one], limits[one], constrained, count)[0]),
            ("in another order of sentences", backwards[row]),
        ):
            expect(
                [h.ids for h in hypotheses] == [h.ids for h in others],
                f"A sentence must have the same outputs in any batch, but {how} it has "
                f"{[h.ids for h in others]}, not {[h.ids for h in hypotheses]}.",
            )


def ranking_is_right(
    search: Decoder,
    scorer: TableScorer,
    sources: Sequence[Tensor],
    limits: Sequence[int],
    constrained: bool,
    count: int,
    score: Callable[[float, int], float],
) -> None:
    """Scores are by the formula, and the best is the same however many are wanted."""
    found = decoded(search, scorer, sources, limits, constrained, count)
    one = decoded(search, scorer, sources, limits, constrained, 1)
    for hypotheses, (best,) in zip(found, one, strict=True):
        expect(
            hypotheses[0].ids == best.ids,
            f"The best must not depend on how many are asked for: it is {best.ids} of 1, but "
            f"{hypotheses[0].ids} of {count}.",
        )
        for hypothesis in hypotheses:
            wanted = score(hypothesis.log_probability, len(hypothesis.ids) + 1)
            same(
                torch.tensor(hypothesis.score),
                torch.tensor(wanted),
                f"The score of {hypothesis.ids} must be the same as the formula's",
            )


def nothing_better_exists(
    search: Decoder,
    scorer: TableScorer,
    sources: Sequence[Tensor],
    limits: Sequence[int],
    constrained: bool,
    count: int,
    score: Callable[[float, int], float],
) -> None:
    """The outputs are the best of all that exist."""
    found = decoded(search, scorer, sources, limits, constrained, count)
    rule = NoRepeats(scorer.vocabulary, banned(sources))
    for row, (hypotheses, source, limit) in enumerate(zip(found, sources, limits, strict=True)):
        ranked = sorted(
            (ids for ids in scorer.outputs(limit) if not constrained or rule.allows(ids, row)),
            key=lambda ids: -score(scorer.log_probability(source.tolist(), ids), len(ids) + 1),
        )[:count]
        expect(
            [hypothesis.ids for hypothesis in hypotheses] == ranked,
            f"Of all outputs the best are {ranked}, but the search gave "
            f"{[hypothesis.ids for hypothesis in hypotheses]}.",
        )


def a_dead_end_is_truncated(search: Decoder, scorer: TableScorer) -> None:
    """Where the limit leaves a constraint no way to its end there still is an output."""
    size = scorer.vocabulary.size
    request = Request(*pad([torch.tensor([3])]), torch.tensor([3]), Endless(size, 1))
    (hypotheses,) = search.decode(scorer, request)
    expect(
        bool(hypotheses) and hypotheses[0].truncated,
        "Where a constraint does not come to its end within the limit, a decoder must give a "
        f"truncated hypothesis, not {hypotheses}.",
    )


# Properties of a task.


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


def training_is_repeatable(task: Task) -> None:
    """An epoch is a function of its number and the seed, and in the vocabularies."""
    first, again = task.training(3, 1), task.training(3, 1)
    expect(len(first) > 0, "There must be something to train on.")
    for side in ("sources", "targets"):
        one, other = getattr(first, side), getattr(again, side)
        expect(
            one.ends.tolist() == other.ends.tolist() and bool((one.values == other.values).all()),
            f"training() must give the same {side} for the same epoch and seed.",
        )
        expect(bool((one.lengths > 0).all()) or side == "targets", "No source may be empty.")
    ids_are_known(first.targets.values, task.target_vocabulary, "training() gives targets")
    if task.source_vocabulary is not None:
        ids_are_known(first.sources.values, task.source_vocabulary, "training() gives sources")


def ids_are_known(ids: Any, vocabulary: Vocabulary, where: str) -> None:
    """They are of the vocabulary, and none of them special."""
    found = {int(i) for i in ids}
    unknown = sorted(i for i in found if not 0 <= i < vocabulary.size)
    special = sorted(found & {vocabulary.pad, vocabulary.bos, vocabulary.eos})
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
            ids_are_known(source.tolist(), task.source_vocabulary, "encode_source() gives a source")
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
