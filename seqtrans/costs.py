"""What a model costs before there is one: parameters, FLOPs, memory, by arithmetic alone.

The sums are those of "Attention Is All You Need" (Vaswani et al., 2017), sections 3 and 6.1, for
the engine's own skeleton: embeddings of ids, the two stacks and the softmax. What a component adds
of its own, such as a table of learned positions, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from seqtrans.config import Shape

FLOAT = 4
"""Bytes of a number in fp32."""
HALF = 2
"""And in fp16 or bf16."""
CHUNK, CPU_CHUNK = 1 << 26, 1 << 22
"""So many logits exist at a time, on a GPU and on a CPU (see `seqtrans.loss`)."""

Precision = Literal["fp32", "fp16", "bf16"]
"""Of the products in training; weights and optimiser are always in fp32."""


def bytes_of(precision: Precision) -> int:
    """Of a number that goes into a product, or comes out of one."""
    return FLOAT if precision == "fp32" else HALF


@dataclass(frozen=True)
class Vocabularies:
    """How many symbols there are to embed and to choose from."""

    target: int
    source: int | None
    """``None`` where the source is not written in ids."""
    shared: bool = False
    """Whether both are one vocabulary, so that ``model.tie=auto`` means ``all``."""

    def tie(self, shape: Shape) -> str:
        """``model.tie`` with ``auto`` resolved: ``all``, ``output`` or ``none``."""
        if shape.tie == "auto":
            return "all" if self.shared else "output"
        return shape.tie


@dataclass(frozen=True)
class Stack:
    """The weights of one stack, by what they are for."""

    attention: int
    feed_forward: int
    norms: int
    cross: int = 0
    """The look at the memory; of the decoder alone."""
    pace: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.attention + self.feed_forward + self.norms + self.cross + self.pace


@dataclass(frozen=True)
class Parameters:
    """The weights of a model, each counted once."""

    embeddings: int
    projection: int
    """The softmax's own matrix; 0 where it is the target's embedding."""
    encoder: Stack
    decoder: Stack
    length: int = 0
    """What tells the length of an output, where the model is not causal."""

    @property
    def total(self) -> int:
        """All of them."""
        stacks = self.encoder.total + self.decoder.total
        return self.embeddings + self.projection + stacks + self.length


def heads_weights(shape: Shape) -> int:
    """The four projections of one multi-head attention, without biases (section 3.2.2)."""
    return 2 * shape.width * shape.heads * (shape.head + shape.value)


def parameters(shape: Shape, vocabularies: Vocabularies) -> Parameters:
    """How many weights a model of ``shape`` has."""
    width = shape.width
    tie = vocabularies.tie(shape)
    rows = vocabularies.target
    if tie != "all" and vocabularies.source is not None:
        rows += vocabularies.source
    feed_forward = 2 * width * shape.inner + shape.inner + width
    last = 2 * width if shape.norm == "pre" else 0
    pace = 0 if shape.pace is None else (2 * shape.pace + 1) * shape.heads
    encoder, decoder = shape.encoder_layers, shape.decoder_layers
    return Parameters(
        embeddings=rows * width,
        projection=vocabularies.target * width if tie == "none" else 0,
        encoder=Stack(
            attention=encoder * heads_weights(shape),
            feed_forward=encoder * feed_forward,
            norms=encoder * 4 * width + last,
        ),
        decoder=Stack(
            attention=decoder * heads_weights(shape),
            feed_forward=decoder * feed_forward,
            norms=decoder * 6 * width + last,
            cross=decoder * heads_weights(shape),
            pace=decoder * pace,
        ),
        length=0 if shape.causal else (2 * shape.length_reach + 1) * (width + 1),
    )


@dataclass(frozen=True)
class Work:
    """All that the cost of an update depends on, summed over its sentences, padding included.

    Of whole numbers if the lengths are. Targets count what the decoder reads or, equally many, what
    it predicts: the symbols and one of bos or eos.
    """

    source: float
    """Positions on the source side, ΣS."""
    target: float
    """Positions on the target side, ΣT."""
    source_pairs: float
    """What the encoder's positions look at, ΣS²."""
    cross_pairs: float
    """What the decoder's positions look at in the source, ΣST."""
    target_pairs: float
    """What the decoder's positions look at in the target, ΣT², what lies ahead included: it is
    computed and hidden, or skipped, as the kernel likes."""

    @classmethod
    def padded(cls, sentences: float, source: float, target: float) -> Work:
        """A batch [B, S] and [B, T]; also of mean numbers."""
        return cls(
            source=sentences * source,
            target=sentences * target,
            source_pairs=sentences * source * source,
            cross_pairs=sentences * source * target,
            target_pairs=sentences * target * target,
        )

    @classmethod
    def of(cls, lengths: Iterable[tuple[int, int]]) -> Work:
        """Sentences of these lengths (S, T), none of them padded."""
        return sum((cls.padded(1, s, t) for s, t in lengths), cls(0, 0, 0, 0, 0))

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: float) -> Work:
        return Work(*(getattr(self, f.name) * times for f in fields(self)))


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of one update, a multiplication and an addition being two.

    Matrix products only, 2mnk each: projections, attention scores and their sums over values,
    feed-forward, and the projection to the vocabulary. Look-ups, softmax, LayerNorm, dropout and
    the optimiser are not counted.
    """

    forward: float
    backward: float
    attention: float
    """The part of both that scores and their sums take."""

    @property
    def total(self) -> float:
        """Forward and backward."""
        return self.forward + self.backward


def flops(
    shape: Shape, vocabularies: Vocabularies, work: Work, *, recomputed: bool = True
) -> Flops:
    """What an update costs, exactly.

    The gradient of a product is two products of the same size, for each of its factors one. A fused
    kernel of attention does not keep its scores: it computes them once more going back, which is
    counted if ``recomputed``.
    """
    width, keys, values = shape.width, shape.heads * shape.head, shape.heads * shape.value
    encoder, decoder = shape.encoder_layers, shape.decoder_layers
    feed_forward = 2 * width * shape.inner
    half = width * (keys + values)
    """Queries and output, or keys and values."""
    at_source = encoder * (2 * half + feed_forward) + decoder * half
    at_target = decoder * (3 * half + feed_forward) + width * vocabularies.target
    products = 2 * (work.source * at_source + work.target * at_target)
    looks = encoder * work.source_pairs + decoder * (work.cross_pairs + work.target_pairs)
    scores, sums = 2 * looks * keys, 2 * looks * values
    again = scores if recomputed else 0
    return Flops(
        forward=products + scores + sums,
        backward=2 * (products + scores + sums) + again,
        attention=3 * (scores + sums) + again,
    )


def rule_of_thumb(shape: Shape, vocabularies: Vocabularies, work: Work) -> float:
    """6 · N · tokens: two FLOPs a weight and position forward, four backward.

    Each stack's weights meet its own side's positions, the softmax those of the target; embeddings
    are look-ups, and attention scores are not in it.
    """
    count = parameters(shape, vocabularies)
    softmax = vocabularies.target * shape.width
    return 6 * (work.source * count.encoder.total + work.target * (count.decoder.total + softmax))


@dataclass(frozen=True)
class Speed:
    """How fast a GPU is in one precision, by what is said of it."""

    flops: float
    """Operations a second: where the paper estimates what it sustains, that, else the peak of dense
    matrix products."""
    share: float
    """How much of ``flops`` a training of this kind is taken to reach: an assumption."""
    source: str


PAPER = "the paper's estimate of what it sustains"
PEAK = "its data sheet's peak of dense matrix products"


def newer(fp32: float, half: float, *halves: Precision) -> Mapping[Precision, Speed]:
    """A GPU by its peaks in TFLOPS: of its cores in fp32, and of its tensor cores."""
    speeds: dict[Precision, Speed] = {"fp32": Speed(fp32 * 1e12, 0.4, PEAK)}
    return speeds | {precision: Speed(half * 1e12, 0.25, PEAK) for precision in halves}


DEVICES: Mapping[str, Mapping[Precision, Speed]] = {
    "k80": {"fp32": Speed(2.8e12, 0.4, PAPER)},
    "k40": {"fp32": Speed(3.7e12, 0.4, PAPER)},
    "m40": {"fp32": Speed(6.0e12, 0.4, PAPER)},
    "p100": {"fp32": Speed(9.5e12, 0.4, PAPER)},
    "v100": newer(15.7, 125, "fp16"),
    "a100": newer(19.5, 312, "fp16", "bf16"),
    "h100": newer(67, 989, "fp16", "bf16"),
}
"""By the precisions that each has. Section 6.1, footnote 5, for the first four. That 0.4 fits them
is seen in the paper's own steps: see `PaperRun.share`. The others are NVIDIA's data sheets of the
SXM modules, without sparsity: in fp32 PyTorch leaves their tensor cores idle unless told
otherwise."""


def training_cost(hours: float, gpus: int, sustained: float) -> float:
    """FLOPs by the paper's rule (section 6.1): time × number of GPUs × what each sustains."""
    return hours * 3600 * gpus * sustained


PAPER_SPEED = DEVICES["p100"]["fp32"]
"""Of what the paper trained on."""


@dataclass(frozen=True)
class PaperRun:
    """One of the paper's two trainings (sections 5.1, 5.2; Table 2), on 8 P100."""

    hours: float
    steps: int
    step_seconds: float
    flops: float
    """As Table 2 has it."""
    gpus: int = 8
    vocabulary: int = 37_000
    tokens: int = 25_000
    """Of an update, on each side."""

    @property
    def cost(self) -> float:
        """By the rule."""
        return training_cost(self.hours, self.gpus, PAPER_SPEED.flops)

    def share(self, counted: float) -> float:
        """How much of the sustained FLOPS its steps used, if a step is ``counted`` FLOPs."""
        return counted / (self.step_seconds * self.gpus * PAPER_SPEED.flops)


PAPER_RUNS = {
    "base": PaperRun(hours=12, steps=100_000, step_seconds=0.4, flops=3.3e18),
    "big": PaperRun(hours=84, steps=300_000, step_seconds=1.0, flops=2.3e19),
}
"""By the name of the preset."""


@dataclass(frozen=True)
class Memory:
    """Bytes that an update takes on one device.

    Not counted: the framework itself, the batch's ids, workspaces, and what the allocator leaves
    unused.
    """

    weights: float
    moments: float
    """Adam's two."""
    buckets: float
    """The copies of the gradients that several processes exchange; 0 for one."""
    copies: float
    """The matrices as products in half precision read them, kept for the backward pass; 0 in
    fp32."""
    activations: float
    """What the forward pass keeps for the backward pass, the softmax apart."""
    logits: float
    """What the softmax takes: the logits that exist at a time and what is made of them, and the
    gradients of its input and its matrix, which come with the loss."""
    gradients: float
    tables: float
    """The gradients of one embedding by its several uses, before they are added up."""
    held: bool
    """Whether there are gradients of an earlier part of the update when a pass begins."""

    @property
    def peak(self) -> float:
        """The most that is held at once.

        That is when the loss is computed, with all activations, or when the backward pass ends,
        with all gradients; in between the ones go as the others come.
        """
        begin = self.copies + self.activations + self.logits + (self.gradients if self.held else 0)
        end = self.gradients + self.tables
        return self.weights + self.moments + self.buckets + max(begin, end)


def memory(
    shape: Shape,
    vocabularies: Vocabularies,
    work: Work,
    *,
    processes: int = 1,
    parts: int = 1,
    passes: int = 1,
    precision: Precision = "fp32",
    on_cpu: bool = False,
) -> Memory:
    """What a device needs to train on ``work``, what it computes at a time, in all ``passes``.

    Its share of an update takes so many ``parts``. On a CPU a mask of dropout is as large as what
    it is for, on a GPU it has a byte for each number.
    """
    weights = FLOAT * parameters(shape, vocabularies).total
    once = vocabularies.tie(shape) == "none"
    return Memory(
        weights=weights,
        moments=2 * weights,
        buckets=weights if processes > 1 else 0,
        copies=0 if precision == "fp32" else HALF * matrices(shape),
        activations=activations(shape, work, precision, on_cpu=on_cpu),
        logits=softmax(shape, vocabularies, work, passes, precision, on_cpu=on_cpu),
        gradients=weights,
        tables=0 if once else 2 * FLOAT * vocabularies.target * shape.width,
        held=parts > 1,
    )


def matrices(shape: Shape) -> int:
    """The weights of the layers that go into products; biases and LayerNorm apart."""
    encoder, decoder = shape.encoder_layers, shape.decoder_layers
    feed_forward = (encoder + decoder) * 2 * shape.width * shape.inner
    return (encoder + 2 * decoder) * heads_weights(shape) + feed_forward


def softmax(
    shape: Shape,
    vocabularies: Vocabularies,
    work: Work,
    passes: int = 1,
    precision: Precision = "fp32",
    *,
    on_cpu: bool = False,
) -> float:
    """Bytes that the softmax and the loss take, their input's gradient apart (see `activations`).

    In fp32 there is room for the logits of a chunk and for what becomes of them. In half precision
    products read and give copies of it and of the matrix. Of two passes the difference is computed
    beside it. What the chunk before has left is let go of only then.
    """
    symbols, size = vocabularies.target, bytes_of(precision)
    positions = work.target / passes
    rows = max(1, min(positions, (CPU_CHUNK if on_cpu else CHUNK) // (passes * symbols)))
    logits, matrix = passes * rows * symbols, symbols * shape.width
    before = rows < positions
    beside = copies = 0.0
    if size != FLOAT:
        beside = (1 + before) * size * logits
        copies = (size + FLOAT + (size if on_cpu else 0)) * matrix
    if passes > 1:
        beside = max(beside, (3 + before) * FLOAT * logits + before * beside / 2)
    forward = 2 * FLOAT * logits + beside + copies
    hidden = FLOAT * work.target * shape.width
    return hidden + FLOAT * matrix + max(forward, FLOAT * matrix)


def activations(
    shape: Shape, work: Work, precision: Precision = "fp32", *, on_cpu: bool = False
) -> float:
    """Bytes that the forward pass keeps for the backward pass, the softmax apart.

    Each sub-layer keeps its input, that of its LayerNorm, with mean and deviation, and the mask of
    its dropout; attention also queries, keys, values, their sums and one number for each query, and
    feed-forward what lies between its layers. What products read and give is in their precision,
    what is added up and goes into LayerNorm in fp32; in half precision each product keeps a copy of
    its own of what it reads. Attention is taken to be computed by a fused kernel, which keeps no
    scores; with ``model.pace`` they are kept, and a bias beside them.
    """
    width, keys, values = shape.width, shape.heads * shape.head, shape.heads * shape.value
    encoder, decoder = shape.encoder_layers, shape.decoder_layers
    size = bytes_of(precision)
    single = size == FLOAT
    """Whether those that read the same keep it once."""
    embedded = (FLOAT if on_cpu else 1) * width if shape.dropout else 0
    dropped = (size if on_cpu else 1) * width if shape.dropout else 0
    added = FLOAT * (width + 2) + dropped
    """What a sub-layer keeps of what comes out of it."""
    read = size * width
    reads = read if single else 3 * read
    """By queries, keys and values."""
    inner = size * shape.inner
    if shape.relu_dropout:
        inner += (size + (size if on_cpu else 1)) * shape.inner
    look = size * (keys + values) + FLOAT * shape.heads
    """Queries, sums, and a logarithm for each query."""
    memory = size * (keys + values)
    hidden = size
    """The mask of padding, once for each layer."""
    last = FLOAT * (width + 2) if shape.norm == "pre" else 0
    at_source = encoder * (2 * added + reads + read + look + memory + hidden + inner)
    at_source += decoder * (memory + hidden) + (read if single else 2 * decoder * read)
    at_source += last + embedded
    at_target = decoder * (3 * added + reads + 2 * read + 2 * look + memory + inner)
    at_target += FLOAT * width + last + embedded
    scores = 0 if shape.pace is None else 2 * decoder * shape.heads * size
    return work.source * at_source + work.target * at_target + work.cross_pairs * scores
