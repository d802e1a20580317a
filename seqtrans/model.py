"""The Transducer: the model of "Attention Is All You Need" (Vaswani et al., 2017), section 3.

Letters of shapes, here and everywhere: B sentences, R rows of a decoder (sentences × hypotheses), M
rows of memory, S source time, T target time, D width, H heads, V target vocabulary.

``start`` reads the source once; ``advance`` reads more target and gives logits. Training is
``advance`` over the whole target, decoding ``advance`` by one token; there is no second way through
the model. With ``model.causal=no`` each ``advance`` reads a whole target anew, from both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqtrans.attention import Attention, Cache, MultiHead, Rewindable
from seqtrans.data import unpadded
from seqtrans.dropout import Dropout
from seqtrans.errors import DataError
from seqtrans.position import PositionScheme
from seqtrans.task import Vocabulary

if TYPE_CHECKING:
    from seqtrans.config import Shape


class Sublayer(nn.Module):
    """LayerNorm(x + Dropout(f(x))) (sections 3.1, 5.4); ``pre``: x + Dropout(f(LayerNorm(x)))."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.dropout = Dropout(shape.dropout)
        self.pre = shape.norm == "pre"

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return x + self.dropout(f(self.norm(x)))  # type: ignore[no-any-return]
        return self.norm(x + self.dropout(f(x)))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """max(0, xW₁ + b₁)W₂ + b₂ at each position (section 3.3)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.inner = nn.Linear(shape.width, shape.inner)
        self.output = nn.Linear(shape.inner, shape.width)
        self.dropout = Dropout(shape.relu_dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.dropout(F.relu(self.inner(x))))  # type: ignore[no-any-return]


class Pace(nn.Module):
    """A bias on the look at the memory: how many units a key lies from where the target stands.

    Not in the paper. It is learned for each head and offset within ±``reach``, as relative
    positions are by Raffel et al. (2020), but along the units (words) that both sides share; it
    begins by favouring the unit that is next.
    """

    def __init__(self, heads: int, reach: int) -> None:
        super().__init__()
        table = torch.zeros(2 * reach + 1, heads)
        table[reach] = 3.0
        self.table = nn.Parameter(table)

    def forward(self, offsets: Tensor) -> Tensor:
        """``offsets`` [M, T', S], counted from 0, to a bias [M, H, T', S]."""
        return F.embedding(offsets, self.table).movedim(-1, 1)


class Length(nn.Module):
    """How many symbols an output has, told from the memory, for models that do not see an end come.

    As in Ghazvininejad et al. (2019), but each class is a difference to the source's length, so
    that long sentences need no more of them. The utmost two also stand for all that lies beyond.
    """

    def __init__(self, width: int, reach: int) -> None:
        super().__init__()
        self.reach = reach
        self.output = nn.Linear(width, 2 * reach + 1)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, memory: Tensor, mask: Tensor) -> Tensor:
        """Log-probabilities [B, N] of the lengths 0 to N-1, eos not counted, from ``memory``
        [B, S, D] where ``mask`` [B, S] is True; -inf for what is out of reach.
        """
        source = mask.sum(1, keepdim=True)
        mean = memory.masked_fill(~mask[:, :, None], 0.0).sum(1) / source.clamp(min=1)
        lengths = torch.arange(mask.shape[1] + self.reach + 1, device=mask.device)
        classes = lengths - source + self.reach  # [B, N]
        known = (classes >= 0) & (classes <= 2 * self.reach)
        logits = self.output(mean).float().gather(1, classes.clamp(0, 2 * self.reach))
        found: Tensor = logits.masked_fill(~known, float("-inf")).log_softmax(1)
        return found


class Layer(nn.Module):
    """Self-attention, in the decoder a look at the memory, and feed-forward (section 3.1)."""

    def __init__(self, shape: Shape, attention: Attention, cross: Attention | None = None) -> None:
        super().__init__()

        def heads(attention: Attention) -> MultiHead:
            return MultiHead(
                shape.width,
                shape.heads,
                shape.head,
                shape.value,
                attention,
                shape.attention_dropout,
            )

        self.attention, self.attention_sublayer = heads(attention), Sublayer(shape)
        self.cross = heads(cross) if cross is not None else None
        self.cross_sublayer = Sublayer(shape) if cross is not None else None
        self.pace = None
        if cross is not None and shape.pace is not None:
            self.pace = Pace(shape.heads, shape.pace)
        self.feed_forward, self.feed_forward_sublayer = FeedForward(shape), Sublayer(shape)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def encode(self, x: Tensor, at: Tensor, scheme: PositionScheme, mask: Tensor | None) -> Tensor:
        """``x`` [B, S, D] where ``mask`` [B, S] is True; without one, all of it."""
        x = self.attention_sublayer(x, lambda x: self.attention.look(x, at, scheme, key_mask=mask))
        return self.feed_forward_sublayer(x, self.feed_forward)  # type: ignore[no-any-return]

    def decode(
        self,
        x: Tensor,
        at: Tensor,
        scheme: PositionScheme,
        mask: Tensor | None,
        past: LayerState,
        offsets: Tensor | None,
        looks: list[Tensor] | None = None,
    ) -> Tensor:
        """``x`` [R, T, D], after whatever ``past`` has already seen; ``past`` grows by it.

        With a ``mask`` [R, T] it is all there is, real where that is True and seen from both sides.
        To ``looks``, if given, is appended how much the memory is looked at, [R, T, S].
        """
        assert self.cross is not None
        assert self.cross_sublayer is not None
        cross = self.cross
        bias = self.pace(offsets) if self.pace is not None else None
        known = past.mask if past.padded else None
        view = {"causal": True, "cache": past.cache} if mask is None else {"key_mask": mask}
        x = self.attention_sublayer(x, lambda x: self.attention.look(x, at, scheme, **view))
        x = self.cross_sublayer(
            x, lambda x: cross.consult(x, past.keys, past.values, known, bias, looks)
        )
        return self.feed_forward_sublayer(x, self.feed_forward)  # type: ignore[no-any-return]


class Stack(nn.Module):
    """The layers of one side with their position scheme; with pre-norm, one more LayerNorm at the
    end.
    """

    def __init__(self, shape: Shape, position: PositionScheme, layers: list[Layer]) -> None:
        super().__init__()
        self.position = position
        self.layers: list[Layer] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.dropout = Dropout(shape.dropout)
        self.norm = nn.LayerNorm(shape.width) if shape.norm == "pre" else nn.Identity()

    def enter(self, x: Tensor, at: Tensor) -> Tensor:
        """Embeddings [B, T, D] with their positions ``at`` [T], dropped out as in section 5.4."""
        return self.dropout(self.position.embed(x, at))  # type: ignore[no-any-return]


@dataclass
class LayerState:
    """What a decoder layer remembers: its past, and the memory's keys and values [M, H, S, D/H]."""

    keys: Tensor
    values: Tensor
    mask: Tensor  # [M, S], shared by all layers
    cache: Cache
    padded: bool = True
    """Whether ``mask`` may be False somewhere; if not, looks at the memory do without it."""

    def fresh(self) -> LayerState:
        """The same memory, and no past."""
        return replace(self, cache=type(self.cache)())


@dataclass
class State:
    """Where a decoder stands: for each row its past, for each sentence its memory.

    Rows come in runs that share one sentence's memory: row r looks at memory r // (R/M).
    """

    layers: list[LayerState]
    rows: int
    length: int = 0
    """How many target tokens each row has read."""
    units: Tensor | None = None
    """[R, 1 + T]: how many units of the shared input each row had consumed before the T tokens that
    were read last, and after each of them; only with ``model.pace``.
    """
    memory_units: Tensor | None = None
    """[M, S]: which unit each memory position belongs to."""
    lengths: Tensor | None = None
    """[M, N]: log-probabilities of the lengths 0 to N-1; only with ``model.causal=no``."""
    watched: bool = False
    """Whether :attr:`looks` is kept."""
    looks: Tensor | None = None
    """[R, T, S]: how much each of the tokens that were read last, together, looked at each position
    of the memory: in the last layer, the mean of its heads. Only once this is watched.
    """

    @property
    def memory(self) -> Tensor:
        """Bool [R, S]: where each row has a memory."""
        mask = self.layers[0].mask
        return mask.repeat_interleave(self.rows // max(1, len(mask)), 0)

    def watch(self) -> bool:
        """From now on keep :attr:`looks`; True, since the look at the memory has weights."""
        self.watched = True
        return True

    def rewindable(self, steps: int) -> bool:
        """From now on keep what it takes to :meth:`rewind` so far; whether all attentions can."""
        caches = [layer.cache for layer in self.layers]
        for cache in caches:
            if isinstance(cache, Rewindable):
                cache.spare = steps
        return all(isinstance(cache, Rewindable) for cache in caches)

    def rewind(self, steps: int) -> None:
        """Take the last ``steps`` tokens back, of those that were read last, together."""
        self.length -= steps
        for layer in self.layers:
            assert isinstance(layer.cache, Rewindable)
            layer.cache.rewind(steps)
        if self.units is not None:
            self.units = self.units[:, : self.units.shape[1] - steps]

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows`` [R'], in that order, each as often as named; this is left alone.

        The memory is copied only if it must be, and stays one per sentence as long as every
        sentence keeps equally many rows.
        """
        first = self.layers[0]
        owners = rows // max(1, self.rows // max(1, len(first.keys)))
        sentences, counts = torch.unique_consecutive(owners, return_counts=True)
        if len(counts) and bool((counts != counts[0]).any()):
            sentences = owners
        same = len(sentences) == len(first.keys) and bool(
            (sentences == torch.arange(len(sentences), device=rows.device)).all()
        )
        mask = first.mask if same else first.mask[sentences]
        return replace(
            self,
            layers=[
                LayerState(
                    layer.keys if same else layer.keys[sentences],
                    layer.values if same else layer.values[sentences],
                    mask,
                    layer.cache.select(rows),
                    layer.padded,
                )
                for layer in self.layers
            ],
            rows=len(rows),
            units=None if self.units is None else self.units[rows],
            memory_units=self.memory_units
            if same or self.memory_units is None
            else self.memory_units[sentences],
            lengths=self.lengths if same or self.lengths is None else self.lengths[sentences],
            looks=None,
        )


class Transducer(nn.Module):
    """The whole model. ``source`` is the component through which the modality enters."""

    source_paces: Tensor
    target_paces: Tensor
    recompute: bool = False
    """Keep of each layer no more than what goes in, and compute the rest again in the backward pass
    (Chen et al., 2016): less memory for a third more work. In training only, where a state is read
    once."""

    def __init__(
        self,
        shape: Shape,
        vocabulary: Vocabulary,
        source: nn.Module,
        positions: tuple[PositionScheme, PositionScheme],
        encoder_attentions: list[Attention],
        decoder_attentions: list[Attention],
        source_vocabulary: Vocabulary | None = None,
    ) -> None:
        super().__init__()
        self.shape, self.vocabulary = shape, vocabulary
        self.source = source
        positions[1].causal = shape.causal
        self.embedding = nn.Embedding(vocabulary.size, shape.width)
        nn.init.normal_(self.embedding.weight, std=shape.width**-0.5)
        if shape.tie == "all":
            tie_source(source, self.embedding)
        self.encoder = Stack(shape, positions[0], [Layer(shape, a) for a in encoder_attentions])
        self.decoder = Stack(
            shape, positions[1], [Layer(shape, a, Attention()) for a in decoder_attentions]
        )
        self.projection = (
            nn.Linear(shape.width, vocabulary.size, bias=False) if shape.tie == "none" else None
        )
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection.weight)
        self.length = None if shape.causal else Length(shape.width, shape.length_reach)
        if shape.pace is not None:
            self.register_buffer("source_paces", paces(source_vocabulary), persistent=False)
            self.register_buffer("target_paces", paces(vocabulary), persistent=False)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.weight.device

    @property
    def longest(self) -> int | None:
        """The most target symbols that the decoder's position scheme has positions for."""
        return self.decoder.position.limit

    def start(self, source: Tensor, mask: Tensor) -> State:
        """Read ``source`` [B, S] or [B, S, ...], real where ``mask`` [B, S] is True, padded on the
        right.

        Raises ``DataError`` if it is longer than the position scheme can tell apart.
        """
        x, mask_out = self.source(source, mask)
        check_length(x.shape[1], self.encoder.position, "source")
        at = torch.arange(x.shape[1], device=x.device)
        x = self.encoder.enter(x, at)
        padded = not unpadded(mask_out)
        key_mask = mask_out if padded else None  # attention without one is faster
        for layer in self.encoder.layers:
            x = self.through(layer.encode, x, at, self.encoder.position, key_mask)
        memory = self.encoder.norm(x)
        layers = []
        for layer in self.decoder.layers:
            assert layer.cross is not None
            keys, values = layer.cross.keys_values(memory)
            cache = layer.attention.attention.cache()
            layers.append(LayerState(keys, values, mask_out, cache, padded))
        state = State(layers, rows=len(x))
        if self.length is not None:
            state.lengths = self.length(memory, mask_out)
        if self.shape.pace is not None:
            state.units = torch.zeros(len(x), 1, dtype=torch.long, device=x.device)
            if mask_out.shape != source.shape:
                raise DataError("model.pace needs a source that gives one vector for each id.")
            state.memory_units = self.source_paces[source].cumsum(1) - 1
        return state

    @property
    def output_weight(self) -> Tensor:
        """The projection [V, D] to logits; with tied embeddings theirs (section 3.4)."""
        return (self.embedding if self.projection is None else self.projection).weight

    def advance(self, tokens: Tensor, state: State) -> Tensor:
        """Read ``tokens`` [R, T] after all that ``state`` has read, and give logits [R, T, V] for
        what follows each.

        ``state`` moves on by T. With ``model.causal=no`` it does not: the tokens, filled up with
        pad, are whole targets, and the logits are for what stands at each. Raises ``DataError``
        beyond the last position that the scheme can tell apart.
        """
        return F.linear(self.read(tokens, state), self.output_weight)

    def read(self, tokens: Tensor, state: State) -> Tensor:
        """As :meth:`advance`, but what the logits are projected from, [R, T, D]."""
        steps = tokens.shape[1]
        check_length(state.length + steps, self.decoder.position, "target")
        x = self.embedding(tokens) * self.shape.width**0.5  # section 3.4
        offsets = self.offsets(tokens, state)
        at = torch.arange(state.length, state.length + steps, device=tokens.device)
        x = self.decoder.enter(x, at)
        mask = None if self.shape.causal else tokens != self.vocabulary.pad
        looks: list[Tensor] = []
        for layer, past in zip(self.decoder.layers, state.layers, strict=True):
            kept = looks if state.watched and past is state.layers[-1] else None
            x = self.through(layer.decode, x, at, self.decoder.position, mask, past, offsets, kept)
        state.looks = looks[0] if looks else None
        if self.shape.causal:
            state.length += steps
        return self.decoder.norm(x)  # type: ignore[no-any-return]

    def through(self, layer: Callable[..., Tensor], x: Tensor, *rest: Any) -> Tensor:
        """``layer(x, *rest)``, recomputed in the backward pass if that is wanted."""
        if not (self.recompute and self.training and torch.is_grad_enabled()):
            return layer(x, *rest)

        # What a state has read would be read again, so a layer begins anew each time.
        def anew(x: Tensor) -> Tensor:
            return layer(x, *(p.fresh() if isinstance(p, LayerState) else p for p in rest))

        found: Tensor = checkpoint(anew, x, use_reentrant=False)
        return found

    def offsets(self, tokens: Tensor, state: State) -> Tensor | None:
        """[M, R/M·T, S]: how many units each memory position lies ahead of where each token stands,
        within ±pace, counted from 0; ``None`` without ``model.pace``. Moves ``state.units`` on.
        """
        reach = self.shape.pace
        if reach is None or state.units is None or state.memory_units is None:
            return None
        before = state.units[:, -1:]
        units = before + self.target_paces[tokens].cumsum(1)  # [R, T]
        state.units = torch.cat([before, units], 1)
        units = units.view(len(state.memory_units), -1)
        ahead = state.memory_units[:, None, :] - units[:, :, None]
        return ahead.clamp(-reach, reach) + reach

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """Teacher forcing: logits [B, T, V] for what follows each prefix of ``target`` [B, T]; with
        ``model.causal=no`` for what stands at each of its positions.
        """
        return self.advance(target, self.start(source, mask))


def tie_source(source: nn.Module, embedding: nn.Embedding) -> None:
    """Let a source that offers ``embedding`` use the target's (section 3.4)."""
    own = getattr(source, "embedding", None)
    if not isinstance(own, nn.Embedding) or own.weight.shape != embedding.weight.shape:
        raise DataError(
            "model.tie=all needs a source with an embedding over the target's vocabulary; "
            "use model.tie=output."
        )
    source.embedding = embedding


def paces(vocabulary: Vocabulary | None) -> Tensor:
    """The vocabulary's ``paces`` as [V] of 0 and 1."""
    if vocabulary is None or vocabulary.paces is None:
        raise DataError(
            "model.pace needs a task whose vocabularies both say which symbols keep pace."
        )
    return torch.tensor(vocabulary.paces, dtype=torch.long)


def check_length(length: int, scheme: PositionScheme, side: str) -> None:
    """Refuse what the scheme has no position for, before any look-up."""
    if scheme.limit is not None and length > scheme.limit:
        raise DataError(
            f"a {side} of {length} positions is longer than the {scheme.limit} "
            "that this model's position scheme was built for."
        )
