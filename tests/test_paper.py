"""What "Attention Is All You Need" states, held against independent sums (Vaswani et al., 2017).

Its section and table numbers stand beside each test. Total parameters of Table 3 are not tested
against the table, whose rows fit no single vocabulary; their differences are.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from seqtrans.attention import Attention, weights
from seqtrans.config import MODELS, Shape
from seqtrans.decoding import length_penalty
from seqtrans.dropout import Dropout
from seqtrans.model import FeedForward, Sublayer, Transducer
from seqtrans.position import sinusoid
from seqtrans.schedule import learning_rate
from seqtrans.settings import NoSettings
from seqtrans.task import Vocabulary
from seqtrans.testing import TINY, tiny_model
from seqtrans_plugins import LearnedSettings
from seqtrans_plugins.full import Full
from seqtrans_plugins.learned import Learned
from seqtrans_plugins.sinusoidal import Sinusoidal
from seqtrans_plugins.tokens import Tokens


def test_scaled_dot_product_attention() -> None:
    """Section 3.2.1: softmax(QKᵀ/√d)V with d = 2; 0.422, 0.155, 0.422 would be the unscaled one."""
    q = torch.tensor([[[[1.0, 0.0]]]])
    k = torch.tensor([[[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]])
    v = torch.tensor([[[[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]]]])
    assert [round(w, 3) for w in weights(q, k).flatten().tolist()] == [0.401, 0.198, 0.401]
    at = torch.arange(3)
    for output in (weights(q, k) @ v, Attention()(q, k, v, query_at=at[:1], key_at=at)):
        assert [round(x, 2) for x in output.flatten().tolist()] == [6.02, 3.98]


@pytest.mark.parametrize("width", [4, 64])
def test_dot_products_have_a_variance_of_their_width(width: int) -> None:
    """Section 3.2.1, footnote 4, and why they are scaled."""
    random = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 20_000, width, generator=random)
    assert float((q * k).sum(-1).var()) == pytest.approx(width, rel=0.05)
    seen = weights(q[:1], k[:20])  # of the softmax: its logits are log-weights up to a constant
    logits = q[:1] @ k[:20].T
    assert torch.allclose(seen.log().diff() * math.sqrt(width), logits.diff(), atol=1e-4)


def test_sinusoids_by_their_formula() -> None:
    """Section 3.5: sines and cosines interleaved, the exponent 2i/d."""
    width, positions = 16, torch.tensor([0, 1, 2, 77, 5000])
    wanted = torch.zeros(len(positions), width, dtype=torch.float64)
    for row, at in enumerate(positions.tolist()):
        for i in range(width // 2):
            angle = at / 10000 ** (2 * i / width)
            wanted[row, 2 * i] = math.sin(angle)
            wanted[row, 2 * i + 1] = math.cos(angle)
    assert torch.allclose(sinusoid(positions, width).double(), wanted, atol=1e-3)
    assert torch.allclose(sinusoid(positions[:4], width).double(), wanted[:4], atol=1e-5)


@pytest.mark.parametrize("offset", [1, 7, 50])
def test_a_sinusoid_further_on_is_a_linear_function(offset: int) -> None:
    """Section 3.5: one matrix takes every position to the one ``offset`` further on."""
    width = 8
    angles = [offset / 10000 ** (2 * i / width) for i in range(width // 2)]
    turn = torch.block_diag(  # type: ignore[no-untyped-call]
        *(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in angles)
    )
    at = torch.arange(200)
    assert torch.allclose(sinusoid(at, width) @ turn.T, sinusoid(at + offset, width), atol=1e-4)


def test_learning_rate() -> None:
    """Section 5.3: rises until step 4000, to 6.99e-4 (base) and 4.94e-4 (big)."""
    for width, peak in ((512, 6.99e-4), (1024, 4.94e-4)):
        rates = [
            learning_rate(update, schedule="paper", lr=1.0, warmup=4000, steps=100_000, width=width)
            for update in range(1, 20_001)
        ]
        assert max(rates) == rates[3999]
        assert float(f"{rates[3999]:.2e}") == peak
        assert rates[1999] == pytest.approx(rates[3999] / 2)
        assert rates[15_999] == pytest.approx(rates[3999] / 2)


def parameters(vocabulary: int = 37_000, learned: int = 0, **changes: int) -> int:
    """Counted by building the model without memory for its weights."""
    shape = Shape(**{**changes, "tie": "all"})
    ids = Vocabulary(vocabulary)

    def position() -> Sinusoidal | Learned:
        if learned:
            return Learned(LearnedSettings(limit=learned), shape)
        return Sinusoidal(NoSettings(), shape)

    with torch.device("meta"):
        model = Transducer(
            shape,
            ids,
            Tokens(NoSettings(), shape, ids),
            (position(), position()),
            [Full(NoSettings(), shape) for _ in range(shape.encoder_layers)],
            [Full(NoSettings(), shape) for _ in range(shape.decoder_layers)],
        )
    return sum(parameter.numel() for parameter in model.parameters())


def formula(
    encoder_layers: int = 6,
    decoder_layers: int = 6,
    width: int = 512,
    inner: int = 2048,
    heads: int = 8,
    head_width: int | None = None,
    key_width: int | None = None,
    vocabulary: int = 37_000,
    **_: float,
) -> int:
    """By the paper: one matrix for the vocabulary; attention without biases; gain and bias of each
    LayerNorm.
    """
    value = head_width or width // heads
    attention = 2 * width * heads * ((key_width or value) + value)
    feed_forward = width * inner + inner + inner * width + width
    norm = 2 * width
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return vocabulary * width + encoder_layers * encoder + decoder_layers * decoder


N = {n: {"encoder_layers": n, "decoder_layers": n} for n in (2, 4, 8)}
TABLE_3: list[tuple[dict[str, int], float, float]] = [
    # Changes from base; our count in millions; the table's difference from its base, in millions.
    ({"key_width": 16}, 55.97, 58 - 65),
    ({"key_width": 32}, 58.33, 60 - 65),
    (N[2], 33.64, 36 - 65),
    (N[4], 48.35, 50 - 65),
    (N[8], 77.75, 80 - 65),
    ({"inner": 1024}, 50.45, 53 - 65),
    ({"inner": 4096}, 88.24, 90 - 65),
]


@pytest.mark.parametrize("heads", [1, 4, 16, 32])
def test_rows_a_of_table_3_have_as_many_parameters_as_base(heads: int) -> None:
    assert parameters(heads=heads) == parameters() == formula()


@pytest.mark.parametrize(("changes", "millions", "difference"), TABLE_3)
def test_parameters_of_table_3(changes: dict[str, int], millions: float, difference: float) -> None:
    """The table's figures are rounded to millions on both sides of a difference."""
    found = parameters(**changes)
    assert found == formula(**changes)
    assert round(found / 1e6, 2) == millions
    assert abs((found - parameters()) / 1e6 - difference) <= 1


@pytest.mark.parametrize(
    ("changes", "millions"),
    [
        ({}, 63.05),
        ({"width": 256, "head_width": 32}, 26.82),
        ({"width": 1024, "head_width": 128}, 163.82),
        ({key: int(MODELS["big"][key]) for key in ("width", "inner", "heads")}, 214.17),
    ],
)
def test_parameters_of_other_widths(changes: dict[str, int], millions: float) -> None:
    """Where the width changes, the difference depends on the vocabulary, which no row tells."""
    assert parameters(**changes) == formula(**changes)
    assert round(parameters(**changes) / 1e6, 2) == millions


def test_learned_positions_add_a_table_to_each_stack() -> None:
    """Table 3, row E."""
    assert parameters(learned=256) == parameters() + 2 * 256 * 512


def test_table_3_is_the_presets() -> None:
    base = Shape()
    assert (base.encoder_layers, base.decoder_layers, base.width, base.inner) == (6, 6, 512, 2048)
    assert (base.heads, base.head, base.dropout) == (8, 64, 0.1)
    big = Shape(**MODELS["big"])
    assert (big.encoder_layers, big.decoder_layers, big.width, big.inner) == (6, 6, 1024, 4096)
    assert (big.heads, big.head, big.dropout) == (16, 64, 0.3)


def tokens(shape: Shape, vocabulary: Vocabulary | None) -> nn.Module:
    return Tokens(NoSettings(), shape, vocabulary)


def test_three_matrices_are_one() -> None:
    """Section 3.4: both embeddings and the softmax share a matrix, and all three train it."""
    models = {tie: tiny_model(tie=tie, source=tokens) for tie in ("all", "none")}
    tied, free = models["all"], models["none"]
    assert isinstance(tied.source, Tokens)
    assert isinstance(free.source, Tokens)
    assert free.projection is not None
    assert tied.projection is None
    assert tied.source.embedding.weight is tied.embedding.weight
    assert [name for name, _ in tied.named_parameters() if "embedding" in name] == [
        "source.embedding.weight"
    ]
    with torch.no_grad():
        for weight in (free.source.embedding.weight, free.embedding.weight, free.projection.weight):
            weight.copy_(tied.embedding.weight)
        rest = dict(free.named_parameters())
        for name, parameter in tied.named_parameters():
            rest[name].copy_(parameter)
    source, target = torch.tensor([[3, 4]]), torch.tensor([[1, 5]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    for model in models.values():
        model(source, mask, target).square().sum().backward()
    three = [free.source.embedding.weight, free.embedding.weight, free.projection.weight]
    parts = [weight.grad for weight in three]
    whole = tied.embedding.weight.grad
    assert whole is not None
    assert all(part is not None and bool(part.any()) for part in parts)
    total = torch.stack([part for part in parts if part is not None]).sum(0)
    assert torch.allclose(whole, total, rtol=1e-4, atol=1e-4)


def test_embeddings_are_scaled() -> None:
    """Section 3.4: by the root of the width, on both sides."""
    source = Tokens(NoSettings(), TINY, Vocabulary(9))
    x, _ = source(torch.tensor([[4]]), torch.ones(1, 1, dtype=torch.bool))
    assert torch.allclose(x[0, 0], source.embedding.weight[4] * 4)  # the width is 16
    model = tiny_model().eval()
    entered: list[Tensor] = []
    model.decoder.position.embed = lambda x, at: entered.append(x) or x  # type: ignore
    model(torch.tensor([[3]]), torch.ones(1, 1, dtype=torch.bool), torch.tensor([[5]]))
    assert torch.equal(entered[0][0, 0], model.embedding.weight[5] * 4)


def test_feed_forward() -> None:
    """Section 3.3."""
    layer, x = FeedForward(TINY), torch.randn(2, 3, TINY.width)
    hidden = (x @ layer.inner.weight.T + layer.inner.bias).clamp(min=0)
    assert torch.allclose(layer(x), hidden @ layer.output.weight.T + layer.output.bias, atol=1e-6)


def normalised(x: Tensor) -> Tensor:
    """LayerNorm with a gain of 1 and a bias of 0."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def test_post_norm() -> None:
    """Section 5.4: LayerNorm(x + Dropout(Sublayer(x))), and no norm at the end of a stack."""
    sublayer, x = Sublayer(TINY).eval(), torch.randn(2, 3, TINY.width)
    assert torch.allclose(sublayer(x, torch.sin), normalised(x + x.sin()), atol=1e-5)
    sublayer = Sublayer(TINY.model_copy(update={"dropout": 0.5})).train()
    torch.manual_seed(1)
    found = sublayer(x, torch.sin)
    torch.manual_seed(1)
    assert torch.allclose(found, normalised(x + Dropout(0.5)(x.sin())), atol=1e-5)
    model = tiny_model()
    assert isinstance(model.encoder.norm, nn.Identity)
    assert isinstance(model.decoder.norm, nn.Identity)


def test_pre_norm_has_norms_at_the_end() -> None:
    """Not the paper's: x + Dropout(Sublayer(LayerNorm(x))), which leaves the sum unnormalised."""
    shape = TINY.model_copy(update={"norm": "pre"})
    sublayer, x = Sublayer(shape).eval(), torch.randn(2, 3, TINY.width)
    assert torch.allclose(sublayer(x, torch.sin), x + normalised(x).sin(), atol=1e-5)
    model = tiny_model(norm="pre")
    assert isinstance(model.encoder.norm, nn.LayerNorm)
    assert isinstance(model.decoder.norm, nn.LayerNorm)


def test_dropout_is_on_embeddings_with_positions_too() -> None:
    """Section 5.4, in both stacks."""
    for dropout, zeros in ((0.0, 0), (0.5, 1)):
        model = tiny_model(dropout=dropout).train()
        x = torch.ones(1, 50, TINY.width)
        for stack in (model.encoder, model.decoder):
            assert int((stack.enter(x, torch.arange(50)) == 0).sum() > 100) == zeros


def test_attention_projections_have_no_biases_and_heads_their_width() -> None:
    """Section 3.2.2."""
    model = tiny_model(heads=4, head_width=5)
    for layer in model.decoder.layers:
        assert layer.cross is not None
        for heads in (layer.attention, layer.cross):
            for name in ("query", "key", "value", "output"):
                projection = getattr(heads, name)
                assert projection.bias is None
                assert sorted(projection.weight.shape) == [16, 20]


def test_length_penalty() -> None:
    """Section 6.1, after Wu et al. (2016): α = 0.6 at 13 symbols divides by 3^0.6."""
    assert float(length_penalty(13, 0.6)) == pytest.approx(3**0.6)
