"""The model's two methods in every shape that can be set, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import components
import pytest
import torch
from torch import Tensor, nn

from seqtrans.config import Shape
from seqtrans.data import Unpadded
from seqtrans.errors import DataError
from seqtrans.model import Pace, Transducer
from seqtrans.plugins import registry
from seqtrans.settings import NoSettings
from seqtrans.task import Vocabulary
from seqtrans.testing import check_model, tiny_model
from seqtrans.testing.parts import Nearby
from seqtrans_plugins.tokens import Tokens

PACED = Vocabulary(12, paces=(False,) * 5 + (True, False, True, True, False, True, True))


def tokens(shape: Shape, vocabulary: Vocabulary | None) -> nn.Module:
    return Tokens(NoSettings(), shape, vocabulary)


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        {"norm": "pre", "causal": False},
        {"tie": "none"},
        {"tie": "all"},
        {"heads": 3, "head_width": 6},
        {"key_width": 4},
        {"encoder_layers": 1, "decoder_layers": 3},
        {"pace": 1},
        {"pace": 3},
        {"pace": 3, "causal": False},
        {"pace": 2, "norm": "pre", "tie": "all"},
    ],
    ids=str,
)
def test_keeps_what_decoding_relies_on(changes: dict[str, Any]) -> None:
    check_model(lambda: tiny_model(source=tokens, vocabulary=PACED, **changes))


def test_pace_with_restricted_attention() -> None:
    check_model(lambda: tiny_model(attention=Nearby, vocabulary=PACED, pace=2))


def test_pace_counts_units_on_both_sides() -> None:
    """The offset is the key's unit less the units consumed: 0 at the unit that is next."""
    vocabulary = Vocabulary(6, paces=(False, False, False, False, False, True))
    model = tiny_model(vocabulary=vocabulary, pace=2)
    source = torch.tensor([[5, 4, 5, 5, 4]])  # units 0 0 1 2 2
    state = model.start(source, torch.ones_like(source).bool())
    assert state.memory_units is not None
    assert state.memory_units.tolist() == [[0, 0, 1, 2, 2]]
    first = model.offsets(torch.tensor([[1, 4, 5]]), state)  # 0, 0 and 1 unit consumed
    assert first is not None
    assert (first - 2).tolist() == [[[0, 0, 1, 2, 2], [0, 0, 1, 2, 2], [-1, -1, 0, 1, 1]]]
    state = state.select(torch.tensor([0, 0]))
    second = model.offsets(torch.tensor([[5], [4]]), state)  # 2 and 1: one sentence, two rows
    assert second is not None
    assert (second - 2).tolist() == [[[-2, -2, -1, 0, 0], [-1, -1, 0, 1, 1]]]


def test_pace_begins_by_favouring_the_next_unit() -> None:
    bias = Pace(heads=2, reach=3)(torch.tensor([[[0, 2, 3, 4, 6]]]))
    assert bias.shape == (1, 2, 1, 5)
    assert bias[0, 0, 0].argmax() == 2


@pytest.mark.parametrize("paces", [(None, PACED.paces), (PACED.paces, None)])
def test_pace_needs_both_sides(paces: tuple[Any, Any]) -> None:
    def build() -> None:
        vocabulary = Vocabulary(12, paces=paces[0])
        model = tiny_model(vocabulary=vocabulary)
        type(model)(
            model.shape.model_copy(update={"pace": 2}),
            vocabulary,
            model.source,
            (model.encoder.position, model.decoder.position),
            [layer.attention.attention for layer in model.encoder.layers],
            [layer.attention.attention for layer in model.decoder.layers],
            Vocabulary(12, paces=paces[1]),
        )

    with pytest.raises(DataError) as error:
        build()
    assert str(error.value) == (
        "model.pace needs a task whose vocabularies both say which symbols keep pace."
    )


def test_tying_needs_an_embedding_of_the_same_size() -> None:
    class Without(nn.Module):
        def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            return source, mask

    def smaller(shape: Shape, vocabulary: Vocabulary | None) -> nn.Module:
        return Tokens(NoSettings(), shape, Vocabulary(7))

    for source in (smaller, lambda shape, vocabulary: Without()):
        with pytest.raises(DataError) as error:
            tiny_model(tie="all", source=source)
        assert str(error.value) == (
            "model.tie=all needs a source with an embedding over the target's vocabulary; "
            "use model.tie=output."
        )


def test_a_model_that_is_not_causal_sees_ahead() -> None:
    """As non-autoregressive decoding needs: one step over the whole output."""
    model = tiny_model(causal=False).eval()
    source = torch.tensor([[3, 4, 5]])
    mask = torch.ones_like(source).bool()
    one, other = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[5, 6, 7, 9]])
    assert not torch.equal(model(source, mask, one)[0, 0], model(source, mask, other)[0, 0])


class Peeking(nn.Module):
    """A source whose vectors depend on how far a batch is padded."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, shape.width)

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.embedding(source) * source.shape[1], mask


class Shifty(Nearby):
    """Looks ahead whatever it is told."""

    reach = None  # type: ignore[assignment]

    def sees(self, query_at: Tensor, key_at: Tensor) -> None:  # type: ignore[override]
        return None

    def forward(self, *heads: Tensor, **more: Any) -> Tensor:
        return super().forward(*heads, **{**more, "causal": False})


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (
            {"source": lambda shape, vocabulary: Peeking(shape)},
            "A sentence must give the same logits alone and ",
        ),
        ({"attention": Shifty}, "The whole target at once must give the same logits as "),
    ],
)
def test_the_kit_finds_what_is_wrong(parts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AssertionError) as error:
        check_model(lambda: tiny_model(**parts))
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_recomputing_changes_nothing_but_memory(norm: str) -> None:
    """Values, gradients and the random numbers of dropout."""
    model = tiny_model(norm=norm, dropout=0.3)
    model.train()
    source, target = torch.randint(3, 9, (3, 5)), torch.randint(3, 9, (3, 4))
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] * 4 + [False]])
    found = []
    for recompute in (False, True):
        model.recompute = recompute
        torch.manual_seed(5)
        logits = model(source, mask, target)
        torch.manual_seed(6)
        gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
        found.append((logits, *gradients))
    for plain, again in zip(*found, strict=True):
        assert torch.equal(plain, again)


# Batches without padding


def masks_of(model: Transducer) -> list[Tensor | None]:
    """Where from now on the key masks of all looks are noted but those back in the decoder."""
    seen: list[Tensor | None] = []
    looks = [layer.attention.attention for layer in model.encoder.layers]
    looks += [layer.cross.attention for layer in model.decoder.layers if layer.cross is not None]
    for attention in looks:
        attention.register_forward_pre_hook(
            lambda module, given, named: seen.append(named["key_mask"]), with_kwargs=True
        )
    return seen


def values_and_gradients(
    model: Transducer, source: Tensor, mask: Tensor, target: Tensor
) -> list[Tensor]:
    torch.manual_seed(5)
    state = model.start(source, mask)
    logits = model.advance(target, state)
    loss = logits.square().mean()
    if state.lengths is not None:
        loss = loss + state.lengths.exp().square().sum()
    return [logits.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def offered(kind: str) -> list[Any]:
    """A component of a kind, and how it is built with small settings."""

    def build(component: Any) -> Callable[[Shape], Any]:
        settings = components.SMALL.get(component.name, component.settings())
        return lambda shape: component.make(settings, shape)

    return [
        pytest.param({kind: build(o.component)}, id=o.component.name) for o in registry().all(kind)
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre", "attention_dropout": 0.3, "dropout": 0.2},
        {"causal": False},
        {"pace": 2, "source": tokens, "vocabulary": PACED},
        *offered("attention"),
        *offered("position"),
    ],
    ids=lambda changes: ",".join(changes),
)
def test_without_padding_there_is_no_mask_and_all_is_the_same(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(**changes)
    seen = masks_of(model)
    source, target = torch.randint(3, 12, (3, 7)), torch.randint(3, 12, (3, 5))
    mask = torch.ones_like(source).bool()
    for recompute in (False, True):
        model.recompute = recompute
        known = values_and_gradients(model, source, mask.as_subclass(Unpadded), target)
        found = values_and_gradients(model, source, mask, target)
        assert seen
        assert all(one is None for one in seen)
        seen.clear()
        with monkeypatch.context() as patch:
            patch.setattr("seqtrans.model.unpadded", lambda mask: False)
            wanted = values_and_gradients(model, source, mask, target)
        assert all(one is mask for one in seen)
        seen.clear()
        for one, other, masked in zip(known, found, wanted, strict=True):
            assert torch.equal(one, other)
            assert torch.allclose(other, masked, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lengths", [(7, 7, 5), (7, 0, 7), (0, 0, 0)])
def test_with_padding_there_is_a_mask(lengths: tuple[int, ...]) -> None:
    model = tiny_model()
    seen = masks_of(model)
    mask = torch.arange(7) < torch.tensor(lengths)[:, None]
    model(torch.randint(3, 12, (3, 7)), mask, torch.randint(3, 12, (3, 5)))
    assert seen
    assert all(one is mask for one in seen)


def test_what_is_selected_needs_no_mask_either() -> None:
    model = tiny_model().eval()
    source, target = torch.randint(3, 12, (3, 7)), torch.randint(3, 12, (3, 5))
    state = model.start(source, torch.ones_like(source).bool())
    seen = masks_of(model)
    state = state.select(torch.tensor([2, 0, 0]))
    model.advance(target, state)
    assert seen == [None, None]


def test_a_source_has_a_mask_of_its_own() -> None:
    """What it hides stays hidden, though nothing of the batch is padding."""

    class Longer(nn.Module):
        """Adds a vector that is not to be seen."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            x, mask = self.inner(source, mask)
            more = torch.full_like(x[:, :1], 9.0)
            return torch.cat([x, more], 1), torch.cat([mask, ~mask[:, :1]], 1)

    model = tiny_model().eval()
    source, target = torch.randint(3, 12, (3, 7)), torch.randint(3, 12, (3, 5))
    mask = torch.ones_like(source).bool().as_subclass(Unpadded)
    wanted = model(source, mask, target)
    model.source = Longer(model.source)
    assert torch.allclose(model(source, mask, target), wanted, atol=1e-5)


def test_the_device_is_not_asked_whether_there_is_padding() -> None:
    """On the device meta nothing can be asked, which on a GPU would be waited for."""
    model = tiny_model().to("meta")
    seen = masks_of(model)
    source, target = (torch.ones(3, n, dtype=torch.long, device="meta") for n in (7, 5))
    mask = torch.ones(3, 7, dtype=torch.bool, device="meta")
    model(source, mask, target)
    assert all(one is mask for one in seen)
    seen.clear()
    model(source, mask.as_subclass(Unpadded), target)
    assert seen == [None] * 4
