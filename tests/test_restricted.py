"""Restricted attention at its true cost, and that with global tokens, against their plain twins."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention import flex_attention as flex

from seqtrans.attention import Attention, Bias, view
from seqtrans.testing import TINY
from seqtrans_plugins import GlobalSettings, RestrictedSettings, block_sparse
from seqtrans_plugins.global_tokens import Global
from seqtrans_plugins.restricted import Blocks, Restricted, Windows


def broadcast_bias(queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
    """[H, T, K], of positions alone."""
    distance = (query_at[:, None] - key_at).abs().float()
    return -torch.tensor([0.3, 0.02])[:, None, None] * distance


def query_bias(queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
    """[B, H, T, K], of the queries too."""
    return queries.mean(-1, keepdim=True) * (query_at[:, None] - key_at).float()


def column_bias(queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
    """[T, 1], broadcast over keys: without effect, but of an unusual shape."""
    return query_at[:, None].float()


BIASES = st.sampled_from([None, broadcast_bias, query_bias, column_bias])


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Shapes, masks and positions: whole sequences, and queries after a cache."""
    reach, block = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    keys = draw(st.integers(1, 30))
    steps = draw(st.integers(1, keys))
    rows = draw(st.integers(1, 3))
    lengths = draw(st.lists(st.integers(0, keys), min_size=rows, max_size=rows))
    return {
        "reach": reach,
        "block": block,
        "first": draw(st.integers(1, 4)),
        "keys": keys,
        "steps": steps,
        "start": draw(st.integers(0, 3)),
        "lengths": draw(st.none()) if draw(st.booleans()) else lengths,
        "rows": rows,
        "causal": draw(st.booleans()),
        "bias": draw(BIASES),
        "seed": draw(st.integers(0, 1000)),
    }


def compare(variant: Attention, case: dict[str, Any], start: int) -> None:
    """Values, gradients of queries, keys and values, and what a row gives that sees nothing."""
    torch.manual_seed(case["seed"])
    rows, keys, steps = case["rows"], case["keys"], case["steps"]
    q = torch.randn(rows, steps, 2, 8).transpose(1, 2).requires_grad_()
    k, v = (torch.randn(rows, keys, 2, 8).transpose(1, 2).requires_grad_() for _ in range(2))
    key_at = torch.arange(start, start + keys)
    query_at = key_at if steps == keys else key_at[keys - steps :]
    mask = None
    if case["lengths"] is not None:
        mask = torch.arange(keys) < torch.tensor(case["lengths"])[:, None]
    arguments: dict[str, Any] = {
        "query_at": query_at,
        "key_at": key_at,
        "key_mask": mask,
        "causal": case["causal"],
        "bias": case["bias"],
    }
    found = variant(q, k, v, **arguments)
    seen = variant.weigh(q, k, **arguments)
    wanted = seen @ v
    assert torch.allclose(found, wanted, atol=1e-5)
    blind = seen.sum(-1) == 0
    assert found[blind].eq(0).all()
    towards = torch.randn_like(found)
    for mine, twin in zip(
        torch.autograd.grad((found * towards).sum(), (q, k, v), materialize_grads=True),
        torch.autograd.grad((wanted * towards).sum(), (q, k, v), materialize_grads=True),
        strict=True,
    ):
        assert torch.allclose(mine, twin, atol=1e-4)


@given(cases())
def test_restricted_equals_its_plain_twin(case: dict[str, Any]) -> None:
    settings = RestrictedSettings(reach=case["reach"], block=case["block"])
    compare(Restricted(settings, TINY).eval(), case, case["start"])


@given(cases())
def test_global_equals_its_plain_twin(case: dict[str, Any]) -> None:
    settings = GlobalSettings(reach=case["reach"], block=case["block"], first=case["first"])
    compare(Global(settings, TINY).eval(), case, 0)


@pytest.mark.parametrize("steps", [1, 2, 7, 20])
def test_global_after_a_cache_that_forgot(steps: int) -> None:
    """The first and the last few keys are left; so many new queries come."""
    variant = Global(GlobalSettings(reach=3, block=2, first=2), TINY).eval()
    q, k, v = torch.randn(3, 2, 2, 40, 8)
    at = torch.arange(40)
    whole = variant(q, k, v, query_at=at, key_at=at, causal=True)
    cache, parts = variant.cache(), []
    for first in range(0, 40, steps):
        a, b = first, min(40, first + steps)
        new = (q[:, :, a:b], k[:, :, a:b], v[:, :, a:b])
        parts.append(variant.extend(*new, at=at[a:b], cache=cache, causal=True))
        assert len(cache.at) <= 5  # type: ignore[attr-defined]
    assert torch.allclose(torch.cat(parts, 2), whole, atol=1e-5)


def test_a_bias_is_asked_for_where_it_is_looked_at_only() -> None:
    """No more than three times the keys that are seen, and none that there is not."""
    asked = []

    def bias(queries: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        assert int(key_at.min()) >= 0
        assert int(key_at.max()) < 1000
        asked.append(key_at.shape)
        return (query_at[:, None] - key_at).float()

    q, k, v = torch.randn(3, 1, 2, 1000, 8)
    at = torch.arange(1000)
    for variant, most in (
        (Restricted(RestrictedSettings(reach=8, block=8), TINY), 24),
        (Global(GlobalSettings(reach=8, block=8, first=2), TINY), 24),
    ):
        asked.clear()
        variant.eval()(q, k, v, query_at=at, key_at=at, causal=True, bias=bias)
        assert all(shape[0] == 1000 and shape[1] <= most for shape in asked if len(shape) == 2)
        assert all(len(shape) == 2 or shape[0] == 2 for shape in asked)


def test_dropout_of_blocks_keeps_the_mean() -> None:
    variant = Restricted(RestrictedSettings(reach=3, block=4), TINY)
    variant.dropout = 0.3
    q, k = torch.randn(2, 1, 2, 50, 8)
    v, at = torch.ones(1, 2, 50, 8), torch.arange(50)
    torch.manual_seed(0)
    mean = torch.stack([variant(q, k, v, query_at=at, key_at=at) for _ in range(200)]).mean()
    assert abs(float(mean) - 1) < 0.02
    assert not torch.equal(variant(q, k, v, query_at=at, key_at=at), v)


@pytest.mark.parametrize(("block", "length"), [(1, 1), (2, 5), (3, 7), (4, 4), (4, 12)])
def test_windows_are_views_whose_gradients_add_up(block: int, length: int) -> None:
    x = torch.randn(2, length + 3 * block, 2, 3, dtype=torch.float64, requires_grad=True)
    windows = Windows.apply(x, block, length)  # type: ignore[no-untyped-call]
    assert windows.shape == (2, 4, 2, length, 3)
    assert windows.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    for n in range(4):
        assert torch.equal(windows[:, n], x[:, n * block : n * block + length].transpose(1, 2))
    assert torch.autograd.gradcheck(lambda x: Windows.apply(x, block, length), x)  # type: ignore[no-untyped-call]


def memory(variant: Attention, length: int, bias: Bias | None) -> int:
    """The most elements that a tensor has which is kept for the way back."""
    most = 0

    def pack(x: Tensor) -> Tensor:
        nonlocal most
        most = max(most, x.untyped_storage().nbytes() // x.element_size())
        return x

    q, k, v = (torch.randn(1, 2, length, 8, requires_grad=True) for _ in range(3))
    at = torch.arange(length)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        variant(q, k, v, query_at=at, key_at=at, bias=bias)
    return most


@pytest.mark.parametrize("bias", [None, broadcast_bias])
def test_what_is_kept_grows_with_the_length(bias: Bias | None) -> None:
    variants: list[Attention] = [
        Restricted(RestrictedSettings(reach=8, block=8), TINY),
        Global(GlobalSettings(reach=8, block=8, first=2), TINY),
    ]
    for variant in variants:
        sizes = [memory(variant, length, bias) for length in (256, 512, 1024)]
        assert all(b / a < 2.2 for a, b in itertools.pairwise(sizes)), sizes


def test_blocks_without_padding() -> None:
    blocks = Blocks(first=0, queries_in_all=12, keys=12, block=4, before=2, after=2)
    assert (blocks.count, blocks.length, blocks.padding) == (3, 8, (2, 2))
    x = torch.randn(1, 2, 12, 8)
    assert torch.equal(blocks.join(blocks.queries(x)), x)


# The block-sparse kernel: what it is told to look at, and the same uncompiled.


@given(st.integers(1, 40), st.integers(1, 12), st.booleans(), st.booleans())
def test_the_kernel_visits_the_blocks_in_which_something_is_seen(
    length: int, reach: int, causal: bool, masked: bool
) -> None:
    """No others, from either side; and of a block's keys just those that are seen."""
    variant, at = Restricted(RestrictedSettings(reach=reach), TINY), torch.arange(length)
    key_mask = at < torch.tensor([length // 2, length])[:, None] if masked else None
    near = view(variant.sees(at, at), None, at, at, causal)
    seen = view(variant.sees(at, at), key_mask, at, at, causal)
    assert near is not None
    assert seen is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_sparse, "BLOCK", 4)
        mask = block_sparse.mask(torch.zeros(2, 2, length, 8), key_mask, reach, causal)
        inside = flex.create_mask(mask.mask_mod, 2, 1, length, length, "cpu")
        assert torch.equal(inside, seen.expand(2, 1, length, length))
        missing = -length % 4
        padded = torch.nn.functional.pad(near, (0, missing, 0, missing))
        # Blocks that hold something, by row and column.
        count = len(padded) // 4
        wanted = padded.view(count, 4, count, 4).any(3).any(1)
        assert mask.q_num_blocks is not None
        assert mask.q_indices is not None
        for side, number, order in (
            (wanted, mask.kv_num_blocks[0, 0], mask.kv_indices[0, 0]),
            (wanted.T, mask.q_num_blocks[0, 0], mask.q_indices[0, 0]),
        ):
            for block, row in enumerate(side):
                visited = order[block, : int(number[block])].tolist()
                assert visited == row.nonzero()[:, 0].tolist()


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The kernel's plain form in its place, on a CPU, too; which shapes it was asked for."""
    asked = []

    def kernel(q: Tensor, k: Tensor, v: Tensor, block_mask: flex.BlockMask) -> Tensor:
        asked.append(tuple(q.shape))
        return flex.flex_attention(q, k, v, block_mask=block_mask)

    monkeypatch.setattr(block_sparse, "kernel", lambda: kernel)
    monkeypatch.setattr(block_sparse, "suits", lambda *_: True)
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)  # refuses gradients on a CPU
    return asked


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both sides"])
@pytest.mark.parametrize("lengths", [None, [0, 30, 11]], ids=["whole", "padded"])
def test_the_kernel_equals_the_plain_twin(
    uncompiled: list[tuple[int, ...]], lengths: list[int] | None, causal: bool
) -> None:
    """Values and gradients, those of rows that see nothing included."""
    case = {
        "rows": 3,
        "keys": 30,
        "steps": 30,
        "lengths": lengths,
        "causal": causal,
        "bias": None,
        "seed": 1,
    }
    variant = Restricted(RestrictedSettings(reach=3, block=4), TINY).eval()
    block_sparse.band.cache_clear()
    with torch.inference_mode():  # as in a validation, before training goes on
        q, at = torch.zeros(1, 2, 30, 8), torch.arange(30)
        variant(q, q, q, query_at=at, key_at=at, causal=causal)
    compare(variant, case, 0)
    assert uncompiled == [(1, 2, 30, 8), (3, 2, 30, 8)]


def test_the_kernel_is_used_for_what_it_holds(uncompiled: list[tuple[int, ...]]) -> None:
    """Neither with a bias nor with dropout, nor after a cache, nor where it is switched off."""
    variant = Restricted(RestrictedSettings(reach=3, block=4), TINY).eval()
    q, k, v = torch.randn(3, 1, 2, 30, 8)
    at = torch.arange(30)
    variant(q, k, v, query_at=at, key_at=at, bias=broadcast_bias)
    variant(q[:, :, 9:], k, v, query_at=at[9:], key_at=at, causal=True)
    variant.dropout = 0.1
    variant.train()(q, k, v, query_at=at, key_at=at)
    variant.eval().sparse = False
    variant(q, k, v, query_at=at, key_at=at)
    assert uncompiled == []


def test_where_the_kernel_is_used() -> None:
    """On CUDA, and where it leaves out blocks of heads that it has tiles for."""

    class Elsewhere(Tensor):
        """Says that it is on a GPU."""

        device = torch.device("cuda")

    def suits(length: int, width: int, kind: torch.dtype, reach: int, causal: bool) -> bool:
        q = torch.zeros(1, 1, length, width, dtype=kind).as_subclass(Elsewhere)
        return block_sparse.suits(q, q, reach, causal)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_sparse, "COMPILER", True)
        assert suits(385, 64, torch.bfloat16, 128, False)
        assert not suits(384, 64, torch.bfloat16, 128, False)
        assert suits(257, 64, torch.float32, 128, True)
        assert not suits(257, 64, torch.float32, 129, True)
        assert not suits(1000, 8, torch.float32, 128, True)
        assert not suits(1000, 64, torch.float64, 128, True)
        q = torch.zeros(1, 1, 1000, 64)
        assert not block_sparse.suits(q, q, 128, True)
        patch.setattr(block_sparse, "COMPILER", False)
        assert not suits(1000, 64, torch.float32, 128, True)
