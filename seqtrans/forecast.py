"""A training in figures: weights, FLOPs, memory and time, and what they rest on.

The cost rule, the devices and the step times that it is held against are those of "Attention Is All
You Need" (Vaswani et al., 2017), sections 5.2 and 6.1 and Table 2.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrans.costs import (
    DEVICES,
    Flops,
    Memory,
    Parameters,
    Precision,
    Vocabularies,
    Work,
    flops,
    memory,
    parameters,
    rule_of_thumb,
    training_cost,
)
from seqtrans.errors import Problem, SettingsError
from seqtrans.plan import MEAN_LENGTH, MEASURED, NO_TASK, PlanSettings
from seqtrans.plugins import Registry

if TYPE_CHECKING:
    from seqtrans.resolving import Config

TOKENS = (1024, 2048, 4096, 8192, 16_384)
"""Positions on each side for which memory is told, besides those of the plan."""
UPDATES = 3
"""Updates that are timed, after one that is not."""


@dataclass(frozen=True)
class Facts:
    """What the plan rests on, and where each of it is from."""

    vocabularies: Vocabularies
    source_length: float
    target_length: float
    pairs: int | None
    notes: tuple[str, ...]
    weights: int | None = None
    """Counted on the model itself, where it could be built."""


@dataclass(frozen=True)
class Rate:
    """How fast an update is, and how that is known."""

    seconds: float
    """On all devices together."""
    said: str
    figures: dict[str, float]
    """By the names of the settings that would say the same: ``throughput`` of all devices together,
    ``flops`` of one."""
    precision: Precision | None = None
    """That which it holds for; ``None`` if it is as given."""


@dataclass(frozen=True)
class Other:
    """The same training in another precision."""

    precision: Precision
    peak: float
    """Bytes on one device."""
    rate: Rate | None


@dataclass(frozen=True)
class Plan:
    """All that is told."""

    config: Config
    settings: PlanSettings
    facts: Facts
    sentences: int
    """Of an update."""
    work: Work
    weights: Parameters
    update: Flops
    thumb: float
    memories: tuple[tuple[int, int, Memory], ...]
    """Positions on each side, sentences, and what they take on one device."""
    rate: Rate | None
    other: Other | None
    """``None`` where the device has no other."""

    @property
    def steps(self) -> int:
        """``training.steps``."""
        return self.config.training.steps

    @property
    def own(self) -> Memory:
        """What the update of this plan takes on one device."""
        tokens = share_of(self.config, self.settings.gpus)
        return next(held for size, _, held in self.memories if size == tokens)

    def lasts(self, rate: Rate | None) -> float | None:
        """The hours of the whole training, if something is known of the speed."""
        return None if rate is None else rate.seconds * self.steps / 3600

    @property
    def hours(self) -> float | None:
        """The whole training, if something is known of the speed."""
        return self.lasts(self.rate)

    @property
    def rule(self) -> float | None:
        """The cost by the paper's rule, if time and device are known."""
        device = self.settings.device
        if self.hours is None or device is None:
            return None
        speed = DEVICES[device][self.settings.precision]
        return training_cost(self.hours, self.settings.gpus, speed.flops)

    @property
    def epochs(self) -> float | None:
        """How often each example is seen."""
        pairs = self.facts.pairs
        return None if pairs is None else self.steps * self.sentences / pairs

    def as_json(self) -> dict[str, Any]:
        """Every figure; bytes, seconds, floating-point operations."""
        rate, total = self.rate, self.update.total
        return {
            "settings": self.config.flat(),
            "plan": self.settings.model_dump(mode="json"),
            "vocabularies": asdict(self.facts.vocabularies),
            "lengths": {"source": self.facts.source_length, "target": self.facts.target_length},
            "parameters": {**asdict(self.weights), "total": self.weights.total},
            "counted_parameters": self.facts.weights,
            "update": {
                "sentences": self.sentences,
                **asdict(self.work),
                "flops": {**asdict(self.update), "total": total, "rule_of_thumb": self.thumb},
            },
            "training": {
                "steps": self.steps,
                "pairs": self.facts.pairs,
                "epochs": self.epochs,
                "flops": total * self.steps,
                "rule_of_thumb": self.thumb * self.steps,
                "paper_rule": self.rule,
            },
            "time": None
            if rate is None
            else {
                "update_seconds": rate.seconds,
                "hours": self.hours,
                "from": rate.said,
                **rate.figures,
            },
            "memory": [
                {"tokens": tokens, "sentences": rows, **asdict(held), "peak": held.peak}
                for tokens, rows, held in self.memories
            ],
            "other_precision": None
            if self.other is None
            else {
                "precision": self.other.precision,
                "hours": self.lasts(self.other.rate),
                "peak": self.other.peak,
            },
            "assumptions": list(self.facts.notes),
        }


@dataclass(frozen=True)
class Prepared:
    """What a run folder tells."""

    vocabularies: Vocabularies
    pairs: int
    """Examples of an epoch."""
    source_length: float
    target_length: float
    weights: int


def look(config: Config, registry: Registry, folder: Path) -> Prepared:
    """Open the task as it was prepared, and build the model without memory for its weights."""
    import torch

    from seqtrans import assembly

    task = assembly.build_task(config, registry)
    task.open(folder / "task")
    with torch.device("meta"):
        model = assembly.build_model(config, registry, task)
    corpus = task.training(0, config.run.seed)
    source, count = task.source_vocabulary, max(1, len(corpus))
    return Prepared(
        Vocabularies(
            target=task.target_vocabulary.size,
            source=None if source is None else source.size,
            shared=task.shares_vocabulary,
        ),
        pairs=round(sum(size * weight for size, weight in corpus.mixture)) or len(corpus),
        source_length=len(corpus.sources.values) / count,
        target_length=len(corpus.targets.values) / count,
        weights=sum(parameter.numel() for parameter in model.parameters()),
    )


def find_vocabularies(
    config: Config, settings: PlanSettings, seen: Vocabularies | None
) -> tuple[Vocabularies, list[str]]:
    """As given, as prepared, as the task's settings have them, or assumed, in this order; with what
    is assumed.

    Raises ``SettingsError`` if nothing tells a size, or what is given doesn't fit together.
    """
    from seqtrans.config import NAMES

    task, notes = config.settings["task"], []
    target, source, shared = settings.vocabulary, settings.source_vocabulary, settings.shared
    if target is None and seen is not None:
        target, source = seen.target, source or seen.source
    elif target is None:
        # What was asked for is no size where units are found in the data, as letters are.
        target = getattr(task, "expected_vocabulary", getattr(task, "vocabulary", None))
        if not isinstance(target, int):
            raise SettingsError(
                Problem(
                    "vocabulary",
                    "must be given, as in vocabulary=37000; or name a prepared run by run=FOLDER",
                )
            )
        notes.append(f"a vocabulary of {target:,} symbols: what task.vocabulary asks for")
    if shared is None and source is not None and source != target:
        shared = False
    if shared is None and seen is not None:
        shared = seen.shared
    if shared is None:
        shared = getattr(task, "shared", None)
        if not isinstance(shared, bool):
            shared = config.names["task"] == NO_TASK.name
            notes.append(f"{'one vocabulary' if shared else 'two vocabularies'} for both sides")
    if shared and source not in (None, target):
        raise SettingsError(
            Problem("source_vocabulary", f"is {source}, and the shared vocabulary has {target}")
        )
    if config.shape.tie == "all" and not shared:
        raise SettingsError(
            "model.tie=all needs one vocabulary for both sides; use model.tie=output."
        )
    if source is None and config.names["source"] == NAMES["source"]:
        source = target
    return Vocabularies(target, source, shared), notes


def gather(
    config: Config, registry: Registry, settings: PlanSettings, folder: Path | None
) -> Facts:
    """What the plan rests on; raises what `find_vocabularies` raises."""
    from seqtrans.config import NAMES

    seen = None if folder is None else look(config, registry, folder)
    vocabularies, notes = find_vocabularies(
        config, settings, None if seen is None else seen.vocabularies
    )
    lengths: dict[str, float] = {}
    for side in ("source", "target"):
        length = getattr(settings, f"{side}_length")
        if length is None and seen is not None:
            length = getattr(seen, f"{side}_length")
        if length is None:
            length = MEAN_LENGTH
            notes.append(f"{side}s of {MEAN_LENGTH} symbols ({side}_length)")
        lengths[side] = length
    weights = seen.weights if seen is not None and seen.vocabularies == vocabularies else None
    notes += [
        f"{kind}={config.names[kind]} costs nothing of its own"
        + ("" if weights is None else " besides its weights")
        for kind in ("source", "position", "attention")
        if config.names[kind] != NAMES[kind]
    ]
    pairs = settings.pairs or (None if seen is None else seen.pairs)
    return Facts(vocabularies, lengths["source"], lengths["target"], pairs, tuple(notes), weights)


@dataclass(frozen=True)
class Measurement:
    """Updates on this machine."""

    where: str
    seconds: float
    """Of one update, the median."""
    sentences: int
    work: Work
    bytes: int | None
    """The most that was allocated; ``None`` on a CPU."""


def measure(
    config: Config, registry: Registry, settings: PlanSettings, facts: Facts
) -> Measurement:
    """Train for a few updates on random ids, with this model, these lengths and this precision.

    Raises ``SettingsError`` if the source is not written in ids, or a CPU has not this precision.
    """
    import time
    from statistics import median
    from types import SimpleNamespace
    from typing import cast

    import torch

    from seqtrans import assembly
    from seqtrans.loss import OBJECTIVES
    from seqtrans.task import Task, Vocabulary

    sizes = facts.vocabularies
    if sizes.source is None:
        raise SettingsError(
            Problem("measure", f"source={config.names['source']} can't be given random ids")
        )

    def vocabulary(size: int) -> Vocabulary:
        return Vocabulary(size, paces=tuple(number > 2 for number in range(size)))

    # All of a task that a model is built from.
    task = SimpleNamespace(
        shares_vocabulary=sizes.shared,
        target_vocabulary=vocabulary(sizes.target),
        source_vocabulary=vocabulary(sizes.source),
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and settings.precision == "fp16":
        raise SettingsError(
            Problem("precision", "fp16 can't be measured on a CPU, which trains in bf16 or fp32")
        )
    half = torch.float16 if settings.precision == "fp16" else torch.bfloat16
    if config.run.threads is not None:
        torch.set_num_threads(config.run.threads)
    model = assembly.build_model(config, registry, cast(Task, task)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    share = share_of(config, settings.gpus)
    tokens = settings.measured_tokens or (share if device.type == "cuda" else min(share, MEASURED))
    source_length, target_length = round(facts.source_length), round(facts.target_length) + 1
    rows = fitting(tokens, max(1, source_length), target_length)
    source = torch.randint(3, sizes.source, (rows, max(1, source_length)), device=device)
    target = torch.randint(3, sizes.target, (rows, target_length + 1), device=device)
    mask = torch.ones_like(source, dtype=torch.bool)
    training, seconds = config.training, []
    objective = OBJECTIVES[training.objective](
        model, training.smoothing, training.smoothing_over, training.consistency
    )
    for _ in range(1 + UPDATES):
        began = time.perf_counter()
        with torch.autocast(device.type, half, enabled=settings.precision != "fp32"):
            loss = objective(source, mask, target[:, :-1], target[:, 1:])
        torch.autograd.backward(loss / target[:, 1:].numel())
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    threads, precise = torch.get_num_threads(), settings.precision
    return Measurement(
        f"a CPU ({threads} thread{'' if threads == 1 else 's'}, {precise})"
        if device.type == "cpu"
        else f"{torch.cuda.get_device_name()} ({precise})",
        median(seconds[1:]),
        rows,
        Work.padded(rows, source.shape[1], target_length),
        torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
    )


def share_of(config: Config, gpus: int) -> int:
    """Positions on each side that a device computes at a time."""
    return -(-config.data.tokens // (gpus * config.training.accumulation))


def fitting(tokens: int, source: float, target: float) -> int:
    """How many sentences of these lengths fit into ``tokens`` positions on each side; one does."""
    return max(1, int(tokens / max(source, target)))


def find_rate(
    config: Config, registry: Registry, settings: PlanSettings, facts: Facts, work: Work
) -> Rate | None:
    """How long an update takes: as given, measured or assumed; ``None`` if nothing tells."""
    gpus, passes = settings.gpus, config.training.passes
    cost = flops(config.shape, facts.vocabularies, work * passes).total
    together = "" if gpus == 1 else f" on all {gpus} devices together"
    if settings.throughput is not None:
        said = f"{settings.throughput:,.0f} target tokens/s{together}, as given"
        return Rate(work.target / settings.throughput, said, {})
    if settings.flops is not None:
        said = f"{settings.flops:.3g} FLOPS on each device, as given"
        return Rate(cost / (settings.flops * gpus), said, {})
    if settings.measure:
        found = measure(config, registry, settings, facts)
        speed = found.work.target / found.seconds
        done = flops(config.shape, facts.vocabularies, found.work * passes).total
        reached = done / found.seconds
        said = (
            f"{speed:,.0f} target tokens/s on each device, as measured here on {found.where}: "
            f"{found.sentences} sentences in {found.seconds:.3g} s, {reached:.3g} FLOPS"
        )
        figures = {"throughput": speed * gpus, "flops": reached}
        if found.bytes is not None:
            figures["bytes"] = found.bytes
            said += f", {found.bytes / 1e9:.2f} GB allocated"
        return Rate(work.target / (speed * gpus), said, figures, settings.precision)
    if settings.device is None:
        return None
    return assumed(settings, settings.precision, cost, settings.share)


def assumed(
    settings: PlanSettings, precision: Precision, cost: float, share: float | None = None
) -> Rate:
    """How long an update of ``cost`` FLOPs takes on the device that is named."""
    assert settings.device is not None
    speed = DEVICES[settings.device][precision]
    known, share = share is not None, share or speed.share
    said = (
        f"{share:g} ({'given' if known else 'assumed'}) of "
        f"{speed.flops / 1e12:g} TFLOPS, {speed.source} ({settings.device}, {precision})"
    )
    reached = share * speed.flops
    return Rate(cost / (reached * settings.gpus), said, {"flops": reached}, precision)


def find_other(config: Config, settings: PlanSettings, facts: Facts, cost: float) -> Other | None:
    """The same in half precision, or if it is in half already, in fp32: memory, and time if it is
    assumed for this one.
    """
    device, here = settings.device, settings.precision
    there: Precision | None = "fp32" if here != "fp32" else "bf16"
    if device is not None and there not in DEVICES[device]:
        there = next((precision for precision in DEVICES[device] if precision != here), None)
    if there is None:
        return None
    known = settings.throughput is not None or settings.flops is not None or settings.measure
    rate = None if device is None or known else assumed(settings, there, cost)
    _, held = take(config, settings, facts, share_of(config, settings.gpus), there)
    return Other(there, held.peak, rate)


def take(
    config: Config, settings: PlanSettings, facts: Facts, tokens: int, precision: Precision
) -> tuple[int, Memory]:
    """How many sentences fit into ``tokens`` positions on each side, and what they take on one
    device.
    """
    source, target = facts.source_length, facts.target_length + 1
    rows, passes = fitting(tokens, source, target), config.training.passes
    return rows, memory(
        config.shape,
        facts.vocabularies,
        Work.padded(rows, source, target) * passes,
        processes=settings.gpus,
        parts=config.training.accumulation,
        passes=passes,
        precision=precision,
    )


def make(config: Config, registry: Registry, settings: PlanSettings, folder: Path | None) -> Plan:
    """Put a plan together; raises what `find_vocabularies` and `measure` raise."""
    facts = gather(config, registry, settings, folder)
    source, target = facts.source_length, facts.target_length + 1
    sentences = fitting(config.data.tokens, source, target)
    work = Work.padded(sentences, source, target)
    shape, sizes, passes = config.shape, facts.vocabularies, config.training.passes
    update = flops(shape, sizes, work * passes)
    return Plan(
        config=config,
        settings=settings,
        facts=facts,
        sentences=sentences,
        work=work,
        weights=parameters(shape, sizes),
        update=update,
        thumb=rule_of_thumb(shape, sizes, work * passes),
        memories=tuple(
            (tokens, *take(config, settings, facts, tokens, settings.precision))
            for tokens in sorted({*TOKENS, share_of(config, settings.gpus)})
        ),
        rate=find_rate(config, registry, settings, facts, work),
        other=find_other(config, settings, facts, update.total),
    )
