"""What training and decoding rely on in a model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from seqtrans import checkpoint
from seqtrans.attention import KeyValueCache
from seqtrans.model import State, Transducer
from seqtrans.testing.parts import (
    SIZE,
    disturbed,
    expect,
    padded,
    placed,
    random_sources,
    random_targets,
    same,
    seeded,
)


def check_model(
    build: Callable[[], Transducer],
    sources: Sequence[Tensor] | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> None:
    """Check that a model keeps what training and decoding rely on.

    Args:
        build: builds the model, each time with other weights but otherwise alike.
        sources: at least three inputs of different lengths; by default random ids.
        device: where it computes.
        dtype: of its weights, and of sources that are no ids.
    """
    device = torch.device(device)
    with seeded(device=device):
        model = disturbed(build()).to(device, dtype).eval()
        sources = [placed(one, device, dtype) for one in sources or random_sources(SIZE)]
        with torch.no_grad():
            padding_is_invisible(model, sources)
            states_are_selected_rightly(model, sources)
            if model.shape.causal:
                whole_equals_stepwise(model, sources)
                nothing_is_foreseen(model, sources)
            reloads(model, build, sources)
        gradients_are_finite(model, sources)
        an_empty_source_is_harmless(model, sources)


def longest(model: Transducer, sources: Sequence[Tensor]) -> int:
    """Four times the longest source, or the most that the model's positions allow."""
    most = 4 * max(len(source) for source in sources)
    return min(most, model.encoder.position.limit or most)


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
            attention = layer.attention.attention
            if attention.reach is None or not isinstance(past.cache, KeyValueCache):
                continue
            held = 0 if past.cache.at is None else len(past.cache.at)
            expect(
                held <= attention.first + attention.reach,
                f"A cache of an attention that reaches back {attention.reach} must not hold "
                f"{held} keys.",
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

    everything = torch.arange(rows, device=model.device)
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
        again = torch.arange(len(chosen), device=model.device).flip(0)
        again = torch.cat([again, again[-1:]])
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
    other = disturbed(build()).to(model.embedding.weight).eval()
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
    state = model.start(*padded(sources))
    loss = model.advance(random_targets(model, len(sources), 5), state).square().mean()
    if state.lengths is not None:
        loss = loss + state.lengths.exp().square().sum()
    torch.autograd.backward(loss)
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
    others = torch.arange(len(sources), device=model.device) != 1
    sentence = "An empty source in a batch must leave the other sentences the same"
    same(after[others], before[others], sentence)
    expect(bool(after.isfinite().all()), "An empty source must give finite logits.")
    for name, parameter in model.named_parameters():
        expect(
            parameter.grad is None or bool(parameter.grad.isfinite().all()),
            f"With an empty source the gradient of {name} must be finite.",
        )
