"""A trained model, frozen for decoding: the same numbers with less work at each step.

What reads the same is projected at once, by weights that are laid out for products with few rows;
keys and values are written to where they stay; modules, masks and positions cost nothing twice.
Training goes another way: `seqtrans.model` is the plain twin, and says what all of this means.
Some weights are copied and some are shared, so a model that learns on has to be frozen anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqtrans.attention import Attention, weights
from seqtrans.int8 import WORTH, Int8Product, check_finite, check_int8, shrink
from seqtrans.model import Layer, LayerState, State, Sublayer, Transducer, check_length
from seqtrans.position import PositionScheme

WORTH_PACKING = 1 << 18
"""Weights of a matrix from which on a product with few rows gains by packing them."""
WORTH_PRODUCTS = 32
"""Heads of all rows from which on attention is computed by products."""
FEW = 8
"""Queries of a row for which that holds: it keeps the logits of all."""
ROOM = 32
"""Positions that a cache has room for at first; then always half as many again as it needs."""


def frozen(model: Transducer, int8: bool = False) -> Transducer | Frozen:
    """The model for decoding: frozen where it can be, or else itself.

    With ``int8`` its linear layers are replaced for good, by `seqtrans.int8`. Raises
    ``SettingsError`` if there is no such thing where the model is, and ``SeqtransError`` if its
    weights are not finite.
    """
    if int8:
        check_int8(model.device)
        check_finite(model)
    found = Frozen(model, int8) if can_freeze(model) else model
    if int8:
        shrink(model)
    return found


def can_freeze(model: Transducer) -> bool:
    """Whether the decoder looks at all that it has written with full attention, one head of keys
    for each head of queries, in fp32 on a CPU. Its positions may be of any scheme.
    """
    plain = (Attention.sees, Attention.forward, Attention.cache, Attention.extend)
    for layer in model.decoder.layers:
        assert layer.cross is not None
        for heads in (layer.attention, layer.cross):
            kind = type(heads.attention)
            own = (kind.sees, kind.forward, kind.cache, kind.extend)
            if own != plain or heads.attention.reach is not None or heads.key_heads != heads.heads:
                return False
    plain_weights = model.device.type == "cpu" and model.output_weight.dtype == torch.float32
    return model.shape.causal and plain_weights


def product(weight: Tensor, bias: Tensor | None, int8: bool) -> Product | Int8Product:
    """Products with this weight, in 8 bits if that is wanted and worth it."""
    return (Int8Product if int8 and weight.numel() >= WORTH else Product)(weight, bias)


class Product:
    """x ↦ xWᵀ + b for ``x`` [N, K], a few rows at a time."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        weight = weight.detach()
        self.bias = None if bias is None else bias.detach()
        self.packed: Tensor | None = None
        self.weight = weight
        if weight.numel() >= WORTH_PACKING and can_pack(weight):
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        # A vector is multiplied fastest along the longer side.
        elif weight.shape[0] > weight.shape[1]:
            self.weight = weight.t().contiguous().t()
        self.turned = self.weight.t()

    def __call__(self, x: Tensor) -> Tensor:
        """[N, K] -> [N, M]."""
        if self.packed is not None:
            return cast(Tensor, pointwise(x, self.packed, self.bias, "none", [], ""))
        if self.bias is None:
            return torch.mm(x, self.turned)
        return torch.addmm(self.bias, x, self.turned)

    def rectified(self, x: Tensor) -> Tensor:
        """max(0, xWᵀ + b)."""
        if self.packed is not None:
            return cast(Tensor, pointwise(x, self.packed, self.bias, "relu", [], ""))
        return self(x).relu_()

    def added(self, x: Tensor, to: Tensor) -> Tensor:
        """``to`` + xWᵀ + b."""
        if self.packed is not None:
            return cast(Tensor, pointwise.binary(x, to, self.packed, self.bias, "add"))
        found = torch.addmm(to, x, self.turned)
        return found if self.bias is None else found.add_(self.bias)


pointwise: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""oneDNN's product with packed weights, as `torch.compile` calls it."""


def can_pack(weight: Tensor) -> bool:
    """Whether there is such a product here."""
    return (
        pointwise is not None
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and weight.dtype == torch.float32
        and weight.device.type == "cpu"
    )


class Norm:
    """LayerNorm of ``x`` [N, D]."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self.shape, self.eps = list(norm.normalized_shape), norm.eps
        self.weight, self.bias = norm.weight.detach(), norm.bias.detach()

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps, False)


@dataclass
class GrowingCache:
    """Keys and values of what was read, written to where they stay as long as the rows do."""

    rooms: Sequence[Tensor] = ()
    """Of keys and of values, [R, H, C, D/H] each."""
    length: int = 0
    spare: int = 0

    def write(self, *new: Tensor) -> list[Tensor]:
        """Add keys and values [R, H, T, D/H]; all that are now held, where they stand."""
        before, self.length = self.length, self.length + new[0].shape[2]
        if not self.rooms or self.length > self.rooms[0].shape[2]:
            self.rooms = self.larger(new, before)
        for room, some in zip(self.rooms, new, strict=True):
            room[:, :, before : self.length] = some
        return [room[:, :, : self.length] for room in self.rooms]

    def larger(self, new: Sequence[Tensor], before: int) -> list[Tensor]:
        """Rooms for half as many positions again as are needed."""
        size = max(ROOM, self.length * 3 // 2)
        larger = [some.new_empty(*some.shape[:2], size, some.shape[3]) for some in new]
        for room, old in zip(larger, self.rooms, strict=False):  # at first there is none
            room[:, :, :before] = old[:, :, :before]
        return larger

    def select(self, rows: Tensor) -> Self:
        """The cache of these rows, in this order."""
        rooms = [room.new_empty(len(rows), *room.shape[1:]) for room in self.rooms]
        for room, old in zip(rooms, self.rooms, strict=True):
            torch.index_select(old[:, :, : self.length], 0, rows, out=room[:, :, : self.length])
        return type(self)(rooms, self.length, self.spare)

    def rewind(self, steps: int) -> None:
        """Take the last ``steps`` positions back."""
        self.length -= steps


@dataclass
class FrozenState(State):
    """Where a frozen decoder stands."""

    hides: Tensor | None = None
    """[M, 1, 1, S]: what is added to the logits of looks at the memory; ``None``: nothing."""

    def select(self, rows: Tensor) -> Self:
        found = super().select(rows)
        if found.layers[0].mask is not self.layers[0].mask:
            found.hides = hidden_memory(found.layers[0].mask)
        return found


def hidden_memory(mask: Tensor) -> Tensor | None:
    """What hides the memory where ``mask`` [M, S] is False; ``None`` if it never is.

    Of a memory that is empty nothing is hidden: its values are zeros, and so is what is seen there.
    """
    known = mask | ~mask.any(1, keepdim=True)
    return None if bool(known.all()) else hiding(known)[:, None, None]


def hiding(mask: Tensor) -> Tensor:
    """-inf where ``mask`` is False, and 0 elsewhere."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, float("-inf"))


class FrozenLayer:
    """A layer of the decoder."""

    def __init__(self, layer: Layer, int8: bool) -> None:
        own, cross, feed_forward = layer.attention, layer.cross, layer.feed_forward
        assert cross is not None
        self.heads = own.heads
        kinds = own.query.weight, own.key.weight, own.value.weight
        self.look = product(torch.cat(kinds), None, int8)
        self.widths = [own.query.out_features, own.key.out_features, own.value.out_features]
        self.looked, self.ask, self.asked, self.inner, self.output = (
            product(linear.weight, linear.bias, int8)
            for linear in (
                own.output,
                cross.query,
                cross.output,
                feed_forward.inner,
                feed_forward.output,
            )
        )
        sublayers = layer.attention_sublayer, layer.cross_sublayer, layer.feed_forward_sublayer
        self.norms = [Norm(cast(Sublayer, sublayer).norm) for sublayer in sublayers]
        self.pre = layer.attention_sublayer.pre
        self.pace = layer.pace

    def split(self, x: Tensor, rows: int) -> Tensor:
        """[rows · T, H · D/H] or [rows, T, H · D/H] -> [rows, H, T, D/H]."""
        return x.view(rows, -1, self.heads, x.shape[-1] // self.heads).transpose(1, 2)

    def look_back(
        self, x: Tensor, at: Tensor, scheme: PositionScheme, cache: GrowingCache, rows: int
    ) -> Tensor:
        """Self-attention of ``x`` [R · T, D] up to its output projection."""
        q, k, v = (self.split(y, rows) for y in torch.split(self.look(x), self.widths, 1))
        if rotates(scheme):
            q, k = scheme.rotate(q, at), scheme.rotate(k, at)
        k, v = cache.write(k, v)
        added = None
        if scheme.biased or len(at) > 1:
            key_at = torch.arange(cache.length, device=at.device)
            if scheme.biased:
                added = scheme.bias(q, at, key_at).to(q.dtype)
            if len(at) > 1:
                ahead = hiding(key_at <= at[:, None])
                added = ahead if added is None else added + ahead
        return attended(q, k, v, added)

    def consult(
        self, x: Tensor, past: LayerState, added: Tensor | None, looks: list[Tensor] | None
    ) -> Tensor:
        """The look of ``x`` [R · T, D] at the memory, up to its output projection."""
        q = self.split(self.ask(x), len(past.keys))  # [M, H, R/M · T, D/H]
        if looks is not None:
            looks.append(weights(q, past.keys, bias=added).mean(1))
        return attended(q, past.keys, past.values, added)

    def __call__(
        self,
        x: Tensor,
        at: Tensor,
        scheme: PositionScheme,
        past: LayerState,
        hides: Tensor | None,
        offsets: Tensor | None,
        rows: int,
        looks: list[Tensor] | None,
    ) -> Tensor:
        """``x`` [R · T, D], after whatever ``past`` has seen. To ``looks``, if given, is appended
        how much the memory is looked at, [M, R/M · T, S].
        """
        cache = cast(GrowingCache, past.cache)
        if self.pace is not None:
            bias = self.pace(offsets)
            hides = bias if hides is None else bias + hides
        first, second, third = self.norms
        if self.pre:
            x = self.looked.added(self.look_back(first(x), at, scheme, cache, rows), x)
            x = self.asked.added(self.consult(second(x), past, hides, looks), x)
            return self.output.added(self.inner.rectified(third(x)), x)
        x = first(self.looked.added(self.look_back(x, at, scheme, cache, rows), x))
        x = second(self.asked.added(self.consult(x, past, hides, looks), x))
        return third(self.output.added(self.inner.rectified(x), x))


def attended(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None) -> Tensor:
    """Softmax(qk/√d + ``added``)v of all heads side by side, [B · T, H · D/H]."""
    rows, heads, steps = q.shape[:3]
    if rows * heads < WORTH_PRODUCTS or steps > FEW:
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=added)
    else:  # for few queries and many heads the products alone are faster than the fused kernel
        logits = torch.baddbmm(
            q.new_empty(()),
            q.reshape(rows * heads, steps, -1),
            k.flatten(0, 1).transpose(1, 2),
            beta=0,
            alpha=q.shape[3] ** -0.5,
        ).view(rows, heads, steps, -1)
        if added is not None:
            logits += added
        found = torch.matmul(logits.softmax(3), v)
    return found.transpose(1, 2).reshape(rows * steps, -1)


def without_autocast() -> AbstractContextManager[object]:
    """Packed weights know no autocast; to leave it costs time only where it is."""
    if torch.is_autocast_enabled("cpu"):
        return torch.autocast("cpu", enabled=False)
    return nullcontext()


def rotates(scheme: PositionScheme) -> bool:
    """Whether a scheme turns queries and keys at all."""
    return type(scheme).rotate is not PositionScheme.rotate


class Frozen:
    """A `seqtrans.decoding.Scorer`, with the outputs of the model that it was made of."""

    def __init__(self, model: Transducer, int8: bool = False) -> None:
        self.model, self.vocabulary = model, model.vocabulary
        self.embedding = model.embedding.weight.detach()
        self.scale = model.shape.width**0.5
        self.scheme = model.decoder.position
        self.layers = [FrozenLayer(layer, int8) for layer in model.decoder.layers]
        norm = model.decoder.norm
        self.norm = Norm(norm) if isinstance(norm, nn.LayerNorm) else None
        self.project = product(model.output_weight, None, int8)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    @property
    def longest(self) -> int | None:
        """The most target symbols that there are positions for."""
        return self.model.longest

    def start(self, source: Tensor, mask: Tensor) -> FrozenState:
        """As `Transducer.start`."""
        with torch.no_grad(), without_autocast():
            state = self.model.start(source, mask)
        known = state.layers[0].mask.any(1)[:, None, None, None]
        for layer in state.layers:
            layer.keys = layer.keys.contiguous()
            layer.values = layer.values.contiguous().masked_fill_(~known, 0.0)
            layer.cache = GrowingCache()
        return FrozenState(**vars(state), hides=hidden_memory(state.layers[0].mask))

    def advance(self, tokens: Tensor, state: FrozenState) -> Tensor:
        """As `Transducer.advance`."""
        with torch.no_grad(), without_autocast():
            rows, steps = tokens.shape
            check_length(state.length + steps, self.scheme, "target")
            at = torch.arange(state.length, state.length + steps, device=tokens.device)
            x = F.embedding(tokens, self.embedding) * self.scale
            x = self.scheme.embed(x, at).flatten(0, 1)
            offsets, looks = self.model.offsets(tokens, state), list[Tensor]()
            for layer, past in zip(self.layers, state.layers, strict=True):
                kept = looks if state.watched and past is state.layers[-1] else None
                x = layer(x, at, self.scheme, past, state.hides, offsets, rows, kept)
            state.length += steps
            state.looks = looks[0].view(rows, steps, -1) if looks else None
            return self.project(x if self.norm is None else self.norm(x)).view(rows, steps, -1)

    def __call__(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """As the model does: logits [B, T, V] for what follows each prefix of ``target``."""
        return self.advance(target, self.start(source, mask))
