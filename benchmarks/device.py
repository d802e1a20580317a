"""What one GPU makes of all this: whether it keeps the properties, and how fast it is.

One run within a given time, since a GPU may be lent for minutes. Each measurement is a job of its
own: one that fails or takes too long is told of and costs the others nothing, and what was measured
is written after every job. On a CPU the same jobs run, with smaller settings, to try the script.
"""

from __future__ import annotations

import gc
import math
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from benchmarks import machine, peers, speed
from benchmarks.commands import measuring_command
from benchmarks.results import FORMAT, Measurement, write_measurement
from seqtrans import costs
from seqtrans.commands import run
from seqtrans.config import MODELS, Shape
from seqtrans.errors import SettingsError
from seqtrans.settings import Settings
from seqtrans.words import did_you_mean, there_are

if TYPE_CHECKING:
    import torch

    from seqtrans.attention import Attention
    from seqtrans.data import Batch
    from seqtrans.hooks import Component
    from seqtrans.model import Transducer

Part = Literal["properties", "training", "decoding", "long_inputs"]
Precision = Literal["bf16", "tf32", "fp32"]
Figures = dict[str, float]
SHARES: Mapping[Part, float] = {
    "properties": 0.35,
    "training": 0.35,
    "decoding": 0.15,
    "long_inputs": 0.15,
}
"""Of the time; what a part leaves over goes to the next."""
SHAPES: Mapping[str, Mapping[str, Any]] = {**speed.SHAPES, "big": MODELS["big"]}
HEADLINES: Mapping[Part, tuple[str, Literal["higher", "lower"]]] = {
    "properties": ("failures", "lower"),
    "training": ("tokens_per_second", "higher"),
    "decoding": ("sentences_per_second", "higher"),
    "long_inputs": ("times_full", "higher"),
}
"""The figure of a part's measurement: of its first job that has it, of its last for long inputs."""
CHECKED = ("attention", "decoder", "source", "position")
"""The kinds of components that have properties."""
LEAST = 1.0
"""Seconds that must be left for a job to begin."""
FORWARD, BACK = 2, 3
"""Passes that are not counted: the first ones compile and choose kernels."""
MEGABYTE = 1e6


class DeviceSettings(Settings):
    """What is measured, and in which time."""

    device: Literal["cuda", "cpu"] = Field(
        "cuda", description="where to compute: cuda, or cpu to try the script"
    )
    seconds: float = Field(300.0, gt=0, description="time for all of it")
    parts: Annotated[tuple[Part, ...], Field(min_length=1)] = Field(
        ("properties", "training", "decoding", "long_inputs"), description="what is measured"
    )
    components: tuple[str, ...] | None = Field(
        None, description="check the properties of these alone; none: of all that are installed"
    )
    presets: Annotated[tuple[Literal["tiny", "small", "base", "big"], ...], Field(min_length=1)] = (
        Field(("base", "big"), description="the models that train and decode")
    )
    precisions: Annotated[tuple[Precision, ...], Field(min_length=1)] = Field(
        ("bf16", "tf32", "fp32"), description="bf16: autocast in training, weights in decoding"
    )
    vocabulary: int = Field(37_000, ge=speed.VOCABULARY, description="symbols, of both sides")
    tokens: int = Field(25_000, ge=1, description="padded positions of an update, on each side")
    updates: int = Field(10, ge=1, description="updates that are timed")
    compile: bool = Field(True, description="whether training is measured with torch.compile, too")
    backend: Literal["inductor", "aot_eager", "eager"] = Field(
        "inductor", description="that of torch.compile; eager only to try the script"
    )
    batches: Annotated[tuple[int, ...], Field(min_length=1)] = Field(
        (64, 1), description="sentences that are decoded together"
    )
    length: int = Field(speed.LENGTH, ge=2, description="symbols of each output")
    lengths: Annotated[tuple[int, ...], Field(min_length=1)] = Field(
        (1024, 2048, 4096, 8192, 16384), description="positions of long inputs"
    )
    reach: int = Field(128, ge=1, description="how far restricted attention sees to either side")
    width: int = Field(512, ge=8, multiple_of=8, description="width of a layer over long inputs")
    rounds: int = Field(5, ge=1, description="passes over each long input; medians count")
    matrix: int = Field(8192, ge=1, description="rows of the matrices that tell the peak")
    report: Path | None = Field(
        None, description="write measurements into this folder of results; none: only show them"
    )


@dataclass
class Job:
    """One measurement, and what came of it."""

    part: Part
    name: str
    measure: Callable[[], Figures]
    figures: Figures = field(default_factory=dict)
    wrong: str | None = None
    """Why there are no figures; ``None`` if all went well."""
    skipped: bool = False
    """Whether there was no time for it, or not enough."""


class TimeUpError(BaseException):
    """A job took longer than there was time; no ``except Exception`` of a compiler stops it."""


def main(argv: list[str]) -> int:
    """Check and time everything on one GPU, in five minutes at most.

    usage: python -m benchmarks.device [device=cuda] [seconds=300] [parts=NAME,…] [report=FOLDER]
                                       [key=value …]

      properties   the conformance kit of every component, in fp32 and bf16, and every position
                   scheme with every attention; components=NAME,… for some alone
      training     tokens/s, memory and the share of the peak of matrix products, of
                   presets=base,big in precisions=bf16,tf32,fp32, and with torch.compile
                   (compile=no: without)
      decoding     sentences/s of greedy and beam search, of the same presets, in batches=64,1
      long_inputs  restricted attention, by its block-sparse kernel and by windows, beside full
                   attention, of lengths=1024,…,16384, forward and back

    What there was no time for is told; the status is 1 if a property does not hold or a job failed.

    example: python -m benchmarks.device report=benchmarks/results
    """
    settings = speed.read(argv, DeviceSettings)
    import torch

    if settings.device == "cuda" and not torch.cuda.is_available():
        raise SettingsError(
            f"device={settings.device}: PyTorch finds no GPU here; run this on a machine with one, "
            "or with device=cpu to try it."
        )
    jobs: list[Job] = []
    began, share = time.monotonic(), 0.0
    total = sum(SHARES[part] for part in settings.parts)
    for part in settings.parts:
        share += SHARES[part] / total
        until = began + share * settings.seconds
        for job in JOBS[part](settings):
            jobs.append(job)
            attempt(job, until - time.monotonic())
            print(f"{time.monotonic() - began:5.0f} s  {told(job)}", file=sys.stderr, flush=True)
            if settings.report is not None:
                write(part, jobs, settings)
    print(table(jobs, settings), end="")
    return 1 if any(job.wrong and not job.skipped for job in jobs) else 0


def attempt(job: Job, seconds: float) -> None:
    """Do a job within so many seconds, and note what came of it."""
    if seconds < LEAST:
        job.skipped, job.wrong = True, "no time was left"
        return
    try:
        with within(seconds):
            job.figures = job.measure()
    except TimeUpError:
        job.skipped, job.wrong = True, "the time was up before it was done"
    except Exception as error:  # whatever it is, the other jobs are to be done
        first = str(error).strip().partition("\n")[0]
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        job.wrong = kind + first
    release()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise `TimeUpError` inside this block when it has taken so long."""

    def ring(*_: object) -> None:
        raise TimeUpError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def release() -> None:
    """Give back the memory that a job which is done has had on a GPU."""
    import torch

    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def wait(device: torch.device) -> None:
    """Until everything that was asked of it is done."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(step: Callable[[], object], device: torch.device) -> float:
    """How long a step takes."""
    wait(device)
    began = time.perf_counter()
    step()
    wait(device)
    return time.perf_counter() - began


@contextmanager
def peak_memory(device: torch.device, figures: Figures) -> Iterator[None]:
    """Note the most memory that tensors take inside this block, where that is known."""
    import torch

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    yield
    if device.type == "cuda":
        figures["megabytes"] = torch.cuda.max_memory_allocated(device) / MEGABYTE


@contextmanager
def products(precision: Precision) -> Iterator[None]:
    """Products of fp32 matrices as they are, or in TF32."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def autocast(wanted: bool, device: torch.device) -> AbstractContextManager[object]:
    """What is computed in this block in bf16, where that is ``wanted``."""
    import torch

    return torch.autocast(device.type, torch.bfloat16) if wanted else nullcontext()


# Properties


def small() -> Mapping[str, Settings]:
    """By a component's name: settings with which a few tokens meet all that it can do."""
    from seqtrans_plugins import GlobalSettings, RelativeSettings, RestrictedSettings, T5Settings

    return {
        "restricted": RestrictedSettings(reach=3, block=2),
        "global": GlobalSettings(reach=2, block=2, first=2),
        "relative": RelativeSettings(reach=3),
        "t5": T5Settings(buckets=8, farthest=6),
    }


def properties(settings: DeviceSettings) -> Iterator[Job]:
    """The conformance kit on the device, the most telling first."""
    import torch

    from seqtrans import testing
    from seqtrans.plugins import registry

    device, tiny = torch.device(settings.device), small()
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
    there = {o.component.name for kind in CHECKED for o in registry().all(kind)}
    for name in settings.components or ():
        if name not in there:
            hint = f"{did_you_mean(name, there)}; {there_are(sorted(there))}"
            raise SettingsError(f"components: no component is called {name!r}{hint}")

    def offered(kind: str) -> list[Component]:
        return [
            offer.component
            for offer in registry().all(kind)
            if settings.components is None or offer.component.name in settings.components
        ]

    def job(name: str, check: Callable[..., None], *arguments: Any, **options: Any) -> Job:
        def measure() -> Figures:
            check(*arguments, **options, device=device)
            return {}

        return Job("properties", name, measure)

    attentions, positions = offered("attention"), offered("position")
    for (name, dtype), one in product(kinds.items(), attentions):
        yield job(
            f"{one.name}, {name}", testing.check_attention, one, tiny.get(one.name), dtype=dtype
        )
    for (name, dtype), one in product(kinds.items(), attentions):
        yield job(f"{one.name} at its usual size, {name}", check_size, one, dtype=dtype)
    for one in offered("decoder"):
        yield job(one.name, testing.check_decoder, one)
    for (name, dtype), kind in product(kinds.items(), ("source", "position")):
        check = testing.check_source if kind == "source" else testing.check_position
        for one in offered(kind):
            yield job(f"{one.name}, {name}", check, one, tiny.get(one.name), dtype=dtype)
    for name, position, attention in product((*kinds, "autocast"), positions, attentions):
        both = f"{position.name} with {attention.name}, {name}"
        yield job(both, check_both, position, attention, name)


def check_both(
    position: Component, attention: Component, kind: str, *, device: torch.device
) -> None:
    """A position scheme with an attention in a model, in fp32, bf16 or fp32 under autocast."""
    import torch

    from seqtrans.testing import check_model, tiny_model

    def build(component: Component) -> Callable[[Shape], Any]:
        chosen = small().get(component.name, component.settings())
        return lambda shape: component.make(chosen, shape)

    with autocast(kind == "autocast", device):
        check_model(
            lambda: tiny_model(position=build(position), attention=build(attention)),
            device=device,
            dtype=torch.bfloat16 if kind == "bf16" else torch.float32,
        )


SIZES = (64, 192, 200, 513, 900)
"""Fewer positions than a kernel's block, some that are no multiples of one, and several blocks."""
REACH = 100


def check_size(attention: Component, *, device: torch.device, dtype: torch.dtype) -> None:
    """Values and gradients at a usual size are those of the weights that it says it has, for which
    kernels are chosen that tiny heads don't meet. One row in three sees nothing.
    """
    import torch

    from seqtrans.attention import for_each_query_head
    from seqtrans.testing.parts import same, seeded

    settings = attention.settings()
    if "reach" in type(settings).model_fields:
        settings = settings.model_copy(update={"reach": REACH})
    variant: Attention = attention.make(settings, Shape(width=128, heads=2)).to(device).eval()
    with seeded(device=device):
        for length, causal, masked in product(SIZES, (False, True), (False, True)):
            at = torch.arange(length, device=device)
            heads = variant.key_heads or 2
            q, k, v = (
                torch.randn(3, count, length, 64).to(device, dtype).requires_grad_()
                for count in (2, heads, heads)
            )
            lengths = torch.tensor([0, length // 2, length], device=device)
            options: dict[str, Any] = {
                "query_at": at,
                "key_at": at,
                "key_mask": at < lengths[:, None] if masked else None,
                "causal": causal,
            }
            found = variant(q, k, v, **options)
            plain = variant.weigh(q.float(), k.float(), **options)
            wanted = plain @ for_each_query_head(v.float(), q)
            case = (
                f"of {length} positions, causal={causal}, {'a' if masked else 'no'} mask, must be "
                "the same as the plain twin's"
            )
            same(found, wanted, f"Values {case}")
            blind = plain.sum(-1) == 0
            same(found[blind], torch.zeros_like(found[blind]), "What sees nothing must be 0", 0.0)
            towards = torch.randn(found.shape).to(found)
            mine = torch.autograd.grad((found * towards).sum(), (q, k, v))
            twin = torch.autograd.grad((wanted * towards).sum(), (q, k, v))
            for name, a, b in zip("qkv", mine, twin, strict=True):
                same(a, b, f"Gradients of {name} {case}")


# Training


def training(settings: DeviceSettings) -> Iterator[Job]:
    """The peaks first, then what comes nearest to a real training, then the rest."""
    import torch

    device = torch.device(settings.device)
    peaks: dict[Precision, float] = {}

    def peak(precision: Precision) -> Figures:
        peaks[precision] = matrix_product(precision, settings.matrix, device)
        return {"tflops": peaks[precision]}

    def update(preset: str, precision: Precision, compiled: bool) -> Figures:
        figures = train(preset, precision, compiled, settings)
        if precision in peaks:
            figures["share"] = figures["tflops"] / peaks[precision]
        return figures

    for precision in settings.precisions:
        yield Job("training", f"matrix product, {precision}", lambda p=precision: peak(p))  # type: ignore[misc]
    ways = [(precision, False) for precision in settings.precisions]
    ways += [(precision, True) for precision in settings.precisions if settings.compile]
    for (precision, compiled), preset in product(ways, settings.presets):
        name = f"{preset}, {precision}{', compiled' if compiled else ''}"
        yield Job(
            "training",
            name,
            lambda m=preset, p=precision, c=compiled: update(m, p, c),  # type: ignore[misc]
        )


def matrix_product(precision: Precision, size: int, device: torch.device) -> float:
    """TFLOPS of the product of two square matrices: the best of ten."""
    import torch

    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = torch.randn(2, size, size, device=device, dtype=kind)
    with products(precision):
        best = min(seconds_of(lambda: a @ b, device) for _ in range(10))
    return 2 * size**3 / best / 1e12


def work_of(preset: str, settings: DeviceSettings, beam: int = 1) -> peers.Work:
    """A model as `benchmarks.speed` builds it."""
    shape = Shape(**SHAPES[preset])
    return peers.Work(
        training=False,
        layers=shape.encoder_layers,
        width=shape.width,
        inner=shape.inner,
        heads=shape.heads,
        vocabulary=settings.vocabulary,
        dropout=shape.dropout,
        smoothing=0.1,
        beam=beam,
        length=settings.length,
        threads=1,
        model="",
        rounds=[],
    )


def model_of(work: peers.Work, device: torch.device) -> Transducer:
    """A model whose weights are drawn on the device itself; a CPU takes seconds for large ones."""
    with device:
        model, _ = speed.model(work)
    return model


def train(preset: str, precision: Precision, compiled: bool, settings: DeviceSettings) -> Figures:
    """Updates as ``seqtrans train`` makes them, batches made and sent included."""
    import torch

    from seqtrans.loss import Objective

    device = torch.device(settings.device)
    work = work_of(preset, settings)
    model = model_of(work, device).train()
    loss_of: Callable[..., torch.Tensor] = Objective(model, work.smoothing)
    if compiled:
        torch.compiler.reset()
        loss_of = compiled_loss(model, work.smoothing, settings.backend)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=peers.RATE, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    batches = updates(settings)
    figures: Figures = {}

    def update() -> costs.Work:
        batch, done = next(batches)
        placed = batch.to(device)
        with autocast(precision == "bf16", device):
            loss = loss_of(placed.source, placed.mask, placed.target_in, placed.target_out)
        (loss / done.target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return done

    done: list[costs.Work] = []
    with products(precision):  # of the backward pass, too
        first = [seconds_of(update, device) for _ in range(FORWARD + BACK)]
        with peak_memory(device, figures):
            taken = seconds_of(
                lambda: done.extend(update() for _ in range(settings.updates)), device
            )
    amount = sum(done, costs.Work(0, 0, 0, 0, 0))
    vocabularies = costs.Vocabularies(work.vocabulary, work.vocabulary, shared=True)
    operations = costs.rule_of_thumb(Shape(**SHAPES[preset]), vocabularies, amount)
    figures |= {
        "tokens_per_second": (amount.source + amount.target) / taken,
        "seconds_per_update": taken / settings.updates,
        "tflops": operations / taken / 1e12,
        "first_seconds": sum(first),
    }
    return figures


def compiled_loss(
    model: Transducer, smoothing: float, backend: str | Callable[..., Any]
) -> Callable[..., torch.Tensor]:
    """The objective with a compiled model: one graph for batches of all shapes, padded or not.

    The loss is left out: its chunks are as many as there are tokens, and it would be compiled anew
    for each number of them.
    """
    import torch

    from seqtrans.loss import projected_loss

    def read(source: torch.Tensor, mask: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return model.read(target, model.start(source, mask))

    compiled: Any = torch.compile(read, dynamic=True, backend=backend)

    def loss_of(
        source: torch.Tensor, mask: torch.Tensor, target_in: torch.Tensor, target_out: torch.Tensor
    ) -> torch.Tensor:
        plain = mask.as_subclass(torch.Tensor)  # `Unpadded` would make a second graph
        hidden = compiled(source, plain, target_in)
        pad = model.vocabulary.pad
        return projected_loss(hidden, model.output_weight, target_out, pad, smoothing)

    return loss_of


def updates(settings: DeviceSettings) -> Iterator[tuple[Batch, costs.Work]]:
    """Batches as training makes them, over and over, and what is in each, padding left off."""
    import torch

    from seqtrans.corpus import Corpus
    from seqtrans.data import Epoch, collate

    pairs = speed.sentences(max(100, settings.tokens), 1)
    corpus = Corpus.of((torch.tensor(source), target) for source, target in pairs)
    opened, chosen = Epoch(corpus, settings.tokens, 1, 0).open(0)
    while True:
        for numbers in chosen:
            lengths = ((len(pairs[n][0]), len(pairs[n][1]) + 1) for n in numbers.tolist())
            special = (peers.PAD, peers.BOS, peers.EOS)
            yield collate(opened, numbers, special), costs.Work.of(lengths)


# Decoding


def decoding(settings: DeviceSettings) -> Iterator[Job]:
    """All presets in the first batches and precision, then in the others."""
    precisions = [one for one in settings.precisions if one != "tf32"]
    for batch, precision, preset, (decoder, beam) in product(
        settings.batches, precisions, settings.presets, speed.DECODERS.items()
    ):
        yield Job(
            "decoding",
            f"{preset}, {decoder}, batches of {batch}, {precision}",
            lambda m=preset, b=batch, p=precision, w=beam: search(  # type: ignore[misc]
                m, b, p, w, settings
            ),
        )


def search(
    preset: str, size: int, precision: Precision, beam: int, settings: DeviceSettings
) -> Figures:
    """A search of a given number of steps, through the decoders that everyone gets."""
    import torch

    from seqtrans.constraint import asked
    from seqtrans.decoding import Decoder, Request
    from seqtrans.frozen import frozen
    from seqtrans.plugins import registry

    device = torch.device(settings.device)
    built = model_of(work_of(preset, settings, beam), device)
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    scorer = frozen(built.to(kind).eval())
    component = registry().get("decoder", "greedy" if beam == 1 else "beam")
    options: dict[str, float] = {"least": settings.length - 1}
    if beam > 1:
        options |= {"width": beam, "alpha": peers.PENALTY}
    decoder = component.make(component.settings.model_validate(options))
    assert isinstance(decoder, Decoder)
    batches = iter(speed.decoding_batches(speed.sentences(50 * size, 1), size, 1) * 2)
    figures: Figures = {}

    def once() -> None:
        sources = peers.Batch([source for source, _ in next(batches)], [])
        limits = torch.full((size,), settings.length, device=device)
        constraint = asked(scorer.vocabulary, limits, least=decoder.least)
        request = Request(sources.source.to(device), sources.mask.to(device), limits, constraint)
        for best, *_ in decoder.decode(scorer, request):
            assert len(best.ids) >= settings.length - 1

    with torch.inference_mode(), peak_memory(device, figures):
        once()
        taken = statistics.median(seconds_of(once, device) for _ in range(3))
    figures |= {
        "sentences_per_second": size / taken,
        "milliseconds_per_step": 1000 * taken / settings.length,
    }
    return figures


# Long inputs


def long_inputs(settings: DeviceSettings) -> Iterator[Job]:
    """A layer of attention, forward and back: the shortest inputs first."""
    for length in settings.lengths:
        yield Job("long_inputs", f"{length:,}", lambda n=length: layers(n, settings))  # type: ignore[misc]


def layers(length: int, settings: DeviceSettings) -> Figures:
    """Seconds and memory by block-sparse kernel, by windows and in full; bf16 on a GPU."""
    import torch

    from seqtrans.attention import Attention, MultiHead
    from seqtrans.position import PositionScheme
    from seqtrans_plugins import RestrictedSettings, block_sparse
    from seqtrans_plugins.restricted import Restricted

    device = torch.device(settings.device)
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    heads = 8
    head = settings.width // heads
    shape = Shape(width=settings.width, heads=heads)
    sparse, windows = (Restricted(RestrictedSettings(reach=settings.reach), shape) for _ in "12")
    windows.sparse = False
    named: dict[str, Attention] = {"sparse": sparse, "windows": windows, "full": Attention()}
    probe = torch.empty(1, heads, length, head, device=device, dtype=kind)
    if not block_sparse.suits(probe, probe, settings.reach, False):
        del named["sparse"]
    figures: Figures = {}
    at, scheme = torch.arange(length, device=device), PositionScheme()
    for name, attention in named.items():
        layer = MultiHead(settings.width, heads, head, head, attention, 0.0).to(device, kind)
        x = torch.randn(1, length, settings.width).to(device, kind).requires_grad_()

        def once(layer: MultiHead = layer, x: torch.Tensor = x) -> None:
            layer.zero_grad()
            x.grad = None
            layer.look(x, at, scheme).sum().backward()  # type: ignore[no-untyped-call]

        first = sum(seconds_of(once, device) for _ in range(FORWARD))
        memory: Figures = {}
        with peak_memory(device, memory):
            taken = [seconds_of(once, device) for _ in range(settings.rounds)]
        figures |= {f"{name}_{key}": value for key, value in memory.items()}
        figures |= {f"{name}_seconds": statistics.median(taken), f"{name}_first_seconds": first}
    ours = figures.get("sparse_seconds", figures["windows_seconds"])
    figures["times_full"] = figures["full_seconds"] / ours
    return figures


JOBS: Mapping[Part, Callable[[DeviceSettings], Iterator[Job]]] = {
    "properties": properties,
    "training": training,
    "decoding": decoding,
    "long_inputs": long_inputs,
}


# What came of it


def told(job: Job) -> str:
    """A line about a job."""
    if job.wrong is not None:
        return f"{job.part}: {job.name}: {job.wrong}"
    figures = ", ".join(f"{key} {shown(value)}" for key, value in job.figures.items())
    return f"{job.part}: {job.name}: {figures or 'holds'}"


def shown(value: float) -> str:
    """A figure, with as many digits as can be told apart."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(jobs: Sequence[Job], settings: DeviceSettings) -> str:
    """All of it for people, in Markdown."""
    import torch

    where = machine.processor()
    if settings.device == "cuda":
        where = torch.cuda.get_device_name(torch.device(settings.device))
    lines = [f"{where}, torch {torch.__version__}"]
    for part in settings.parts:
        mine = [job for job in jobs if job.part == part]
        done = [job for job in mine if job.figures]
        held = sum(1 for job in mine if job.wrong is None)
        lines += ["", f"{part}: {held} of {len(mine)} jobs done"]
        columns = list(dict.fromkeys(key for job in done for key in job.figures))
        if columns:
            heads = (part, *(column.replace("_", " ") for column in columns))
            lines += ["", f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * len(columns)}"]
        for job in done:
            cells = (shown(job.figures[key]) if key in job.figures else "" for key in columns)
            lines.append(f"| {' | '.join((job.name, *cells))} |")
        for heading, skipped in (("failed", False), ("skipped", True)):
            wrong = [job for job in mine if job.wrong is not None and job.skipped == skipped]
            lines += ["", f"{heading}:", ""] if wrong else []
            lines += [f"- {job.name}: {job.wrong}" for job in wrong]
    return "\n".join(lines) + "\n"


def write(part: Part, jobs: Sequence[Job], settings: DeviceSettings) -> None:
    """What was measured of a part so far, if that is anything."""
    assert settings.report is not None
    mine = [job for job in jobs if job.part == part]
    metric, better = HEADLINES[part]
    values = [job.figures[metric] for job in mine if metric in job.figures]
    if part == "properties":
        values = [sum(1.0 for job in mine if job.wrong is not None and not job.skipped)]
    if not values:
        return
    figures: dict[str, Any] = {
        job.name: {key: value for key, value in job.figures.items() if math.isfinite(value)}
        for job in mine
        if job.wrong is None
    }
    found = Measurement(
        format=FORMAT,
        recipe=f"device-{part.replace('_', '-')}",
        metric=metric,
        better=better,
        value=values[-1] if part == "long_inputs" else values[0],
        figures={
            "jobs": figures,
            "failed": {j.name: j.wrong for j in mine if j.wrong is not None and not j.skipped},
            "skipped": {j.name: j.wrong for j in mine if j.wrong is not None and j.skipped},
        },
        command=measuring_command("benchmarks.device", settings),
        settings={
            "device": settings.device,
            "model": settings.presets[0],
            "data.tokens": settings.tokens,
            "attention.reach": settings.reach,
        },
        versions=machine.versions({}),
        hardware=machine.hardware(),
    )
    write_measurement(found, settings.report)


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
