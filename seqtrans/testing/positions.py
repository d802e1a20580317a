"""What a model relies on in a position scheme."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from seqtrans.config import Shape
from seqtrans.errors import DataError
from seqtrans.hooks import Component
from seqtrans.model import Transducer
from seqtrans.position import PositionScheme
from seqtrans.settings import Settings
from seqtrans.testing.models import check_model
from seqtrans.testing.parts import (
    TINY,
    Nearby,
    Plainly,
    disturbed,
    expect,
    made,
    padded,
    raises,
    same,
    seeded,
    tiny_model,
)


def check_position(
    position: Component | Callable[[Shape], PositionScheme],
    settings: Settings | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> None:
    """Check a position scheme, alone and in models with full and with restricted attention.

    Args:
        position: what is checked.
        settings: of a component.
        device: where it computes.
        dtype: of all weights, and of what goes in.
    """
    device = torch.device(device)

    def build(shape: Shape) -> PositionScheme:
        return made(position, settings, shape)  # type: ignore[no-any-return]

    with seeded(device=device):
        scheme = disturbed(build(TINY)).to(device).eval()
        with torch.no_grad():
            positions_are_exact_in_bf16(scheme, device)
            only_positions_count(scheme.to(dtype), device, dtype)
        if scheme.limit is not None:
            beyond_the_limit_is_refused(tiny_model(position=build).to(device, dtype))
    for attention, causal in itertools.product((Plainly, Nearby), (True, False)):
        check_model(
            lambda: tiny_model(position=build, attention=attention, causal=causal),  # noqa: B023
            device=device,
            dtype=dtype,
        )


def only_positions_count(
    scheme: PositionScheme, device: torch.device, dtype: torch.dtype = torch.float32
) -> None:
    """A part of a sequence at its positions gives that part of what the whole gives."""
    length = min(9, scheme.limit or 9)
    at = torch.arange(length, device=device)
    part = torch.randperm(length).to(device)[: max(1, length // 2)]
    x, heads = (
        torch.randn(2, *size).to(device, dtype)
        for size in ((length, TINY.width), (TINY.heads, length, TINY.head))
    )
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
    beside = torch.tensor([-1, 0, 2], device=device)
    windows = (at[:, None] + beside).clamp(0, length - 1)  # [T, 3]
    same(
        bias(turned, at, windows),
        full.gather(3, windows.expand(2, TINY.heads, -1, -1)),
        "bias() must take keys [T, K], others for each query, as it takes [K], "
        "with the same result",
    )


def positions_are_exact_in_bf16(scheme: PositionScheme, device: torch.device) -> None:
    """In bf16, which can't tell 600 positions apart, only results are rounded, not positions."""
    length = min(600, scheme.limit or 600)
    at = torch.arange(length, device=device)
    low, high = copy.deepcopy(scheme).bfloat16(), copy.deepcopy(scheme)
    for parameter in high.parameters():
        parameter.copy_(parameter.bfloat16().float())
    x = torch.randn(1, length, TINY.width).to(device, torch.bfloat16)
    heads = torch.randn(1, TINY.heads, length, TINY.head).to(device, torch.bfloat16)
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
        with torch.autocast(device.type, torch.bfloat16):
            found = call(high, torch.float32)
        sentence = f"{name}() must take positions in fp32, also under autocast"
        same(found.float(), wanted, sentence, tolerance)


def beyond_the_limit_is_refused(model: Transducer) -> None:
    """What has no position is refused in a sentence, and leaves the state as it was."""
    limit = model.decoder.position.limit
    assert limit is not None
    model.eval()
    with torch.no_grad():
        symbol = torch.full((1,), 3, device=model.device)
        state = model.start(*padded([symbol.expand(limit)]))
        model.advance(symbol.expand(1, limit), state)
        for side, call in {
            "source": lambda: model.start(*padded([symbol.expand(limit + 1)])),
            "target": lambda: model.advance(symbol[None], state),
        }.items():
            expect(
                raises(DataError, call),
                f"A {side} of {limit + 1} positions must be refused with a DataError.",
            )
        expect(state.length == limit, "A step that is refused must leave the state as it was.")
