"""The loss: both conventions of smoothing, padding, and batches in which nothing counts."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div, linear

from seqtrans.data import Unpadded
from seqtrans.loss import OBJECTIVES, projected_loss, smoothed_loss
from seqtrans.testing import tiny_model


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_smoothing_over_all_is_torchs(smoothing: float) -> None:
    logits, target = torch.randn(3, 4, 7), torch.randint(1, 7, (3, 4))
    found = smoothed_loss(logits, target, 0, smoothing)
    wanted = cross_entropy(
        logits.flatten(0, 1), target.flatten(), label_smoothing=smoothing, reduction="sum"
    )
    assert torch.allclose(found, wanted)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_smoothing_over_the_others_is_by_its_distribution(smoothing: float) -> None:
    symbols = 7
    logits, target = torch.randn(3, 4, symbols), torch.randint(1, symbols, (3, 4))
    wanted = 0.0
    for row, right in zip(logits.flatten(0, 1).log_softmax(-1), target.flatten(), strict=True):
        for symbol in range(symbols):
            share = 1 - smoothing if symbol == right else smoothing / (symbols - 1)
            wanted -= share * float(row[symbol])
    found = smoothed_loss(logits, target, 0, smoothing, "others")
    assert float(found) == pytest.approx(wanted, rel=1e-5)
    if smoothing:
        assert not torch.isclose(found, smoothed_loss(logits, target, 0, smoothing))


@pytest.mark.parametrize("over", ["all", "others"])
def test_padding_does_not_count(over: str) -> None:
    logits, target = torch.randn(2, 3, 5), torch.tensor([[4, 2, 3], [1, 2, 4]])
    padded = torch.cat([logits, torch.randn(2, 6, 5)], 1)
    longer = torch.cat([target, torch.zeros(2, 6, dtype=torch.long)], 1)
    alone = smoothed_loss(logits, target, 0, 0.1, over)
    assert torch.allclose(smoothed_loss(padded, longer, 0, 0.1, over), alone)


@pytest.mark.parametrize("over", ["all", "others"])
def test_nothing_but_padding_costs_nothing(over: str) -> None:
    logits = torch.randn(2, 3, 5, requires_grad=True)
    loss = smoothed_loss(logits, torch.zeros(2, 3, dtype=torch.long), 0, 0.1, over)
    assert loss.item() == 0
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.eq(0).all()


def test_the_sum_is_in_fp32() -> None:
    logits, target = torch.randn(2, 3, 5).bfloat16(), torch.randint(1, 5, (2, 3))
    found = smoothed_loss(logits, target, 0)
    assert found.dtype == torch.float32
    assert torch.equal(found, smoothed_loss(logits.float(), target, 0))


@pytest.mark.parametrize("over", ["all", "others"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 20, 1 << 20])
def test_the_loss_without_logits_is_that_of_the_logits(
    over: str, smoothing: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast path against its plain twin, gradients too, for any size of its chunks."""
    monkeypatch.setattr("seqtrans.loss.CHUNK", chunk)
    target = torch.randint(0, 11, (3, 5))
    target[0] = 0
    found, gradients = [], []
    for fast in (True, False):
        torch.manual_seed(1)
        hidden = torch.randn(3, 5, 8, requires_grad=True)
        weight = torch.randn(11, 8, requires_grad=True)
        if fast:
            loss = projected_loss(hidden, weight, target, 0, smoothing, over)
        else:
            loss = smoothed_loss(linear(hidden, weight), target, 0, smoothing, over)
        found.append(loss)
        gradients.append(torch.autograd.grad(3 * loss, [hidden, weight]))
    assert torch.allclose(*found, rtol=1e-5)
    for mine, its in zip(*gradients, strict=True):
        assert torch.allclose(mine, its, atol=1e-5)


def test_the_loss_without_logits_where_nothing_counts_or_nothing_is_wanted() -> None:
    hidden, weight = torch.randn(2, 3, 4, requires_grad=True), torch.randn(5, 4)
    loss = projected_loss(hidden, weight, torch.zeros(2, 3, dtype=torch.long), 0, 0.1)
    assert loss.item() == 0
    (gradient,) = torch.autograd.grad(loss, hidden)
    assert gradient.eq(0).all()
    target = torch.randint(1, 5, (2, 3))
    with torch.no_grad():
        loss = projected_loss(hidden, weight, target, 0, 0.1)
    assert torch.allclose(loss, smoothed_loss(linear(hidden, weight), target, 0, 0.1))


def test_the_loss_without_logits_in_a_lower_precision() -> None:
    """Products in bf16, sums and softmax in fp32, as with the logits."""
    target = torch.randint(1, 11, (4, 6))
    hidden, weight = torch.randn(4, 6, 8), torch.randn(11, 8)
    found = []
    for fast in (True, False):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if fast:
                loss = projected_loss(h, w, target, 0, 0.1)
            else:
                loss = smoothed_loss(linear(h, w), target, 0, 0.1)
        assert loss.dtype == torch.float32
        found.append((loss, *torch.autograd.grad(loss, [h, w])))
    for mine, its in zip(*found, strict=True):
        assert mine.dtype == its.dtype
        assert torch.allclose(mine, its, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("consistency", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 50, 1 << 20])
def test_two_passes_that_are_to_agree(
    consistency: float, smoothing: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the objective of the paper, written out, gradients too: half of it."""
    monkeypatch.setattr("seqtrans.loss.CHUNK", chunk)
    target = torch.randint(0, 11, (3, 5))
    target[0, 2:] = 0
    hidden = torch.randn(2, 3, 5, 8, requires_grad=True)
    weight = torch.randn(11, 8, requires_grad=True)
    found = projected_loss(hidden, weight, target, 0, smoothing, "all", consistency)
    logits = linear(hidden, weight)
    first, second = logits[:, target != 0].log_softmax(-1)
    apart = kl_div(first, second, reduction="sum", log_target=True)
    apart = apart + kl_div(second, first, reduction="sum", log_target=True)
    wanted = sum(smoothed_loss(one, target, 0, smoothing) for one in logits)
    wanted = (wanted + consistency * apart / 2) / 2
    assert torch.allclose(found, wanted, rtol=1e-5)
    gradients = (torch.autograd.grad(2 * loss, [hidden, weight]) for loss in (found, wanted))
    for mine, its in zip(*gradients, strict=True):
        assert torch.allclose(mine, its, atol=1e-4)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_passes_differ_by_their_dropout_alone(name: str) -> None:
    """Without dropout there is nothing to agree on; and one that doesn't train makes one pass."""
    source = torch.randint(3, 12, (4, 6))
    mask = torch.ones(4, 6, dtype=torch.bool)
    target = torch.cat([torch.randint(3, 12, (4, 5)), torch.full((4, 1), 2)], 1)

    def loss(consistency: float, dropout: float, training: bool) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(1)
        model = tiny_model(dropout=dropout, causal=name != "masked")
        objective = OBJECTIVES[name](model, 0.1, "all", consistency).train(training)
        torch.manual_seed(2)
        found = objective(source, mask, target, target)
        return found, *torch.autograd.grad(found, list(model.parameters()))

    for one, two in (
        (loss(0, 0.0, True), loss(5, 0.0, True)),
        (loss(0, 0.3, False), loss(5, 0.3, False)),
    ):
        for mine, its in zip(one, two, strict=True):
            assert torch.allclose(mine, its, atol=1e-4)
    weak, strong = loss(1, 0.3, True)[0], loss(5, 0.3, True)[0]
    assert weak < strong


@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_passes_over_a_batch_without_padding_know_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def note(mask: torch.Tensor) -> bool:
        seen.append((type(mask), len(mask)))
        return False

    monkeypatch.setattr("seqtrans.model.unpadded", note)
    model = tiny_model(causal=name != "masked")
    objective = OBJECTIVES[name](model, consistency=1.0).train()
    source, target = torch.randint(3, 12, (3, 5)), torch.randint(3, 12, (3, 4))
    mask = torch.ones_like(source).bool()
    for kind in (torch.Tensor, Unpadded):
        objective(source, mask.as_subclass(kind), target, target)
    assert seen == [(torch.Tensor, 6), (Unpadded, 6)]
