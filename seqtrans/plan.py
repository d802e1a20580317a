"""What a training will take: weights, FLOPs, memory and time, before anything is run.

The cost rule, the devices and the step times that it is held against are those of "Attention Is All
You Need" (Vaswani et al., 2017), sections 5.2 and 6.1 and Table 2.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from seqtrans.costs import (
    DEVICES,
    PAPER_RUNS,
    Flops,
    Memory,
    Parameters,
    Vocabularies,
    Work,
    flops,
    memory,
    parameters,
    rule_of_thumb,
    training_cost,
)
from seqtrans.errors import CheckpointError, Problem, SettingsError
from seqtrans.hooks import Component
from seqtrans.plugins import Registry
from seqtrans.settings import Settings, Words, fill

if TYPE_CHECKING:
    from seqtrans.config import Config

MEAN_LENGTH = 26
"""Symbols of a sentence where nothing says more."""
TOKENS = (1024, 2048, 4096, 8192, 16_384)
"""Positions on each side for which memory is told, besides those of the plan."""
MEASURED = 512
"""Positions on each side with which a CPU is measured."""
UPDATES = 3
"""Updates that are timed, after one that is not."""


class PlanSettings(Settings):
    """What ``seqtrans plan`` can be told besides the words of ``seqtrans train``."""

    gpus: int = Field(1, ge=1, description="devices that share each update")
    vocabulary: int | None = Field(
        None,
        ge=4,
        description="symbols of the target's vocabulary; none: that of run=FOLDER, or "
        "task.vocabulary",
    )
    source_vocabulary: int | None = Field(
        None, ge=4, description="symbols of the source's vocabulary; none: as many"
    )
    shared: bool | None = Field(
        None,
        description="whether one vocabulary serves both sides; none: what run=FOLDER or "
        "task.shared says, and yes where no task is named",
    )
    source_length: float | None = Field(
        None, gt=0, description=f"mean length of sources; none: run=FOLDER's, or {MEAN_LENGTH}"
    )
    target_length: float | None = Field(
        None, ge=0, description=f"mean length of targets; none: run=FOLDER's, or {MEAN_LENGTH}"
    )
    pairs: int | None = Field(
        None, ge=1, description="examples to train on, to tell the epochs; none: run=FOLDER's"
    )
    throughput: float | None = Field(
        None,
        gt=0,
        description="target tokens a second of one device, as seqtrans train tells them",
    )
    flops: float | None = Field(
        None, gt=0, description="operations a second that one device sustains in training"
    )
    device: Literal["k80", "k40", "m40", "p100", "v100", "a100", "h100"] | None = Field(
        None, description="a kind of GPU, whose speed is then assumed"
    )
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="how much of the device's stated speed a training reaches; none: 0.4 of what "
        "the paper says of the older ones, 0.25 of the peak of the newer",
    )
    measure: bool = Field(
        False, description="time a few real updates with random ids on this machine"
    )
    measured_tokens: int | None = Field(
        None,
        ge=1,
        description="positions on each side with which to measure; none: a device's share of an "
        f"update, on a CPU at most {MEASURED}",
    )
    report: Path | None = Field(None, description="write all figures here, as JSON")

    @model_validator(mode="after")
    def _effective(self) -> PlanSettings:
        rates = [self.throughput is not None, self.flops is not None, self.measure]
        if sum(rates) > 1:
            raise ValueError("give one of throughput, flops and measure=yes")
        if self.share is not None and (self.device is None or any(rates)):
            raise ValueError(
                "share has no effect without device, nor with throughput, flops or measure=yes"
            )
        if self.measured_tokens is not None and not self.measure:
            raise ValueError("measured_tokens has no effect without measure=yes")
        return self


NO_TASK = Component(name="none", build="builtins:object", summary="a plan without a task")


class TaskFree(Registry):
    """What can be chosen by name where no task is, so that each group keeps its own defaults."""

    def get(self, kind: str, name: str) -> Component:
        """The component of that name, which may be `NO_TASK`."""
        return NO_TASK if (kind, name) == ("task", NO_TASK.name) else super().get(kind, name)


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
    """How fast one device goes, and how that is known."""

    seconds: float
    """Of one update on all devices."""
    said: str
    figures: dict[str, float]


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

    @property
    def steps(self) -> int:
        """``training.steps``."""
        return self.config.training.steps

    @property
    def hours(self) -> float | None:
        """The whole training, if something is known of the speed."""
        return None if self.rate is None else self.rate.seconds * self.steps / 3600

    @property
    def rule(self) -> float | None:
        """The cost by the paper's rule, if time and device are known."""
        device = self.settings.device
        if self.hours is None or device is None:
            return None
        return training_cost(self.hours, self.settings.gpus, DEVICES[device].flops)

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
            "assumptions": list(self.facts.notes),
        }


def read(argv: Sequence[str]) -> tuple[PlanSettings, Config, Registry, Path | None]:
    """The plan's own settings, those of the training, and what `configure` gives besides.

    Raises ``SettingsError`` with a line for everything that is wrong in either.
    """
    from seqtrans.config import ENGINE, GROUPS, packaged
    from seqtrans.words import nearest, parse_words

    words = parse_words(argv, packaged())
    own: dict[str, object] = {}
    rest = Words(typed=words.typed)
    for group, values in words.tree.items():
        if group in PlanSettings.model_fields or not (group in GROUPS or nearest(group, GROUPS)):
            own[group] = values["name"]
        else:
            rest.tree[group] = values
    typed = {name: words.typed[f"{name}.name"] for name in own}
    problems: list[Problem | str] = []
    try:
        settings = fill(PlanSettings, own, "", typed=typed, owner="plan", schemas=ENGINE)
    except SettingsError as error:
        problems += error.problems
    try:
        config, registry, folder = configure(rest)
    except SettingsError as error:
        problems += error.problems
    if problems:
        raise SettingsError(*problems)
    return settings, config, registry, folder


def configure(words: Words) -> tuple[Config, Registry, Path | None]:
    """The settings of the training, the registry, and the run folder if one is prepared there.

    The words go over the settings of a run that exists; its task stays as it was prepared. Raises
    ``SettingsError`` for wrong settings, and ``CheckpointError`` for a folder that is no run.
    """
    from seqtrans.config import resolve
    from seqtrans.plugins import registry

    run = words.tree.get("run", {})
    named = run.get("folder", run.get("name"))
    folder = None if named is None else Path(str(named))
    if folder is not None and (folder / "config.json").is_file() and (folder / "task").is_dir():
        return continued(words, folder)
    if "task" in words.tree:
        return resolve(words, registry()), registry(), None
    if folder is not None:
        raise CheckpointError(
            f"{folder} holds nothing prepared, and no task is named; run seqtrans prepare first, "
            "or add task=NAME."
        )
    tree: dict[str, dict[str, object]] = {**words.tree, "task": {"name": NO_TASK.name}}
    names = TaskFree()
    return resolve(Words(tree, words.typed), names), names, None


def continued(words: Words, folder: Path) -> tuple[Config, Registry, Path]:
    """The settings of a prepared run with those of ``words`` over them.

    A group for which another name is chosen begins anew.
    """
    from seqtrans.config import from_json, resolve
    from seqtrans.data import read_json
    from seqtrans.plugins import registry

    path = folder / "config.json"
    before = from_json(read_json(path), registry(), path).flat()
    tree: dict[str, dict[str, object]] = {}
    for key, value in before.items():
        group, _, field = key.partition(".")
        tree.setdefault(group, {})[field or "name"] = value
    for group, values in words.tree.items():
        under = tree.get(group, {})
        kept = group == "run" or values.get("name", under.get("name")) == under.get("name")
        tree[group] = {**under, **values} if kept else dict(values)
    tree["run"].pop("name", None)
    tree["run"]["folder"] = str(folder)
    config = resolve(Words(tree, words.typed), registry())
    fixed = {
        key: value
        for key, value in config.flat().items()
        if key.partition(".")[0] == "task"
        and key.partition(".")[2] not in config.settings["task"].late
    }
    problems = [
        Problem(key, f"is {before.get(key)!r} in {path}, which was prepared so, and {value!r} here")
        for key, value in fixed.items()
        if before.get(key) != value
    ]
    if problems:
        raise SettingsError(*problems)
    return config, registry(), folder


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
        target = getattr(task, "vocabulary", None)
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
    """Train for a few updates on random ids, with this model and these lengths.

    Raises ``SettingsError`` if the source is not written in ids.
    """
    import time
    from statistics import median
    from types import SimpleNamespace
    from typing import cast

    import torch

    from seqtrans import assembly
    from seqtrans.loss import smoothed_loss
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
    smoothing, seconds = config.training.smoothing, []
    for _ in range(1 + UPDATES):
        began = time.perf_counter()
        logits = model(source, mask, target[:, :-1])
        loss = smoothed_loss(logits, target[:, 1:], 0, smoothing, config.training.smoothing_over)
        del logits  # as in training, where it is gone before the way back
        torch.autograd.backward(loss / target[:, 1:].numel())
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    threads = torch.get_num_threads()
    return Measurement(
        f"a CPU ({threads} thread{'' if threads == 1 else 's'}, fp32)"
        if device.type == "cpu"
        else f"{torch.cuda.get_device_name()} (fp32)",
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
    cost = flops(config.shape, facts.vocabularies, work).total
    gpus = settings.gpus
    if settings.throughput is not None:
        said = f"{settings.throughput:,.0f} target tokens/s on each device, as given"
        return Rate(work.target / (settings.throughput * gpus), said, {})
    if settings.flops is not None:
        said = f"{settings.flops:.3g} FLOPS on each device, as given"
        return Rate(cost / (settings.flops * gpus), said, {})
    if settings.measure:
        found = measure(config, registry, settings, facts)
        speed = found.work.target / found.seconds
        reached = flops(config.shape, facts.vocabularies, found.work).total / found.seconds
        said = (
            f"{speed:,.0f} target tokens/s on each device, as measured here on {found.where}: "
            f"{found.sentences} sentences in {found.seconds:.3g} s, {reached:.3g} FLOPS"
        )
        figures = {"throughput": speed, "flops": reached}
        if found.bytes is not None:
            figures["bytes"] = found.bytes
            said += f", {found.bytes / 1e9:.2f} GB allocated"
        return Rate(work.target / (speed * gpus), said, figures)
    if settings.device is None:
        return None
    device = DEVICES[settings.device]
    share = settings.share or device.share
    said = (
        f"{share:g} ({'assumed' if settings.share is None else 'given'}) of "
        f"{device.flops / 1e12:g} TFLOPS, {device.source} ({settings.device}, {device.precision})"
    )
    return Rate(cost / (share * device.flops * gpus), said, {"flops": share * device.flops})


def make(config: Config, registry: Registry, settings: PlanSettings, folder: Path | None) -> Plan:
    """Put a plan together; raises what `find_vocabularies` and `measure` raise."""
    facts = gather(config, registry, settings, folder)
    source, target = facts.source_length, facts.target_length + 1
    sentences = fitting(config.data.tokens, source, target)
    work = Work.padded(sentences, source, target)
    shape, sizes = config.shape, facts.vocabularies
    memories = []
    for tokens in sorted({*TOKENS, share_of(config, settings.gpus)}):
        rows = fitting(tokens, source, target)
        held = memory(
            shape,
            sizes,
            Work.padded(rows, source, target),
            processes=settings.gpus,
            passes=config.training.accumulation,
        )
        memories.append((tokens, rows, held))
    return Plan(
        config=config,
        settings=settings,
        facts=facts,
        sentences=sentences,
        work=work,
        weights=parameters(shape, sizes),
        update=flops(shape, sizes, work),
        thumb=rule_of_thumb(shape, sizes, work),
        memories=tuple(memories),
        rate=find_rate(config, registry, settings, facts, work),
    )


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        indent
        + "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def wrapped(text: str, indent: str = "  ") -> list[str]:
    """A paragraph in lines of at most 100 columns."""
    return textwrap.wrap(text, 100, initial_indent=indent, subsequent_indent=indent)


def devices(settings: PlanSettings) -> str:
    """``8 devices``, or ``8 p100``."""
    several = "" if settings.gpus == 1 else "s"
    return f"{settings.gpus} {settings.device or f'device{several}'}"


def duration(hours: float) -> str:
    """In the unit that one would say."""
    if hours < 2:
        return f"{60 * hours:.1f} minutes"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def weights_lines(plan: Plan) -> list[str]:
    """The parameters by part."""
    weights, sizes, shape = plan.weights, plan.facts.vocabularies, plan.config.shape
    tie = sizes.tie(shape)
    uses = {
        "all": "embeddings and softmax, one matrix",
        "output": "embeddings, the target's also the softmax",
        "none": "embeddings",
    }
    rows = [(uses[tie], weights.embeddings)]
    if weights.projection:
        rows.append(("softmax", weights.projection))
    for name, layers, stack in (
        ("encoder", shape.encoder_layers, weights.encoder),
        ("decoder", shape.decoder_layers, weights.decoder),
    ):
        rows.append((f"{name}, {layers} layers", stack.total))
        parts = {
            "self-attention": stack.attention,
            "attention to the source": stack.cross,
            "pace": stack.pace,
            "feed-forward": stack.feed_forward,
            "LayerNorm": stack.norms,
        }
        rows += [(f"  {part}", count) for part, count in parts.items() if count]
    total = weights.total
    if plan.facts.weights is not None and plan.facts.weights != total:
        rows.append(("of components", plan.facts.weights - total))
        total = plan.facts.weights
    return [f"parameters: {total:,}", *table([(name, f"{count:,}") for name, count in rows])]


def cost_lines(plan: Plan) -> list[str]:
    """The FLOPs of an update and of all, and what the paper says beside them."""
    work, update, steps = plan.work, plan.update, plan.steps
    epochs = "" if plan.epochs is None else f", {plan.epochs:.1f} epochs of {plan.facts.pairs:,}"
    rows = [
        ("", "an update", f"{steps:,} updates"),
        ("exact count", f"{update.total:.3e}", f"{update.total * steps:.3e}"),
        ("  forward", f"{update.forward:.3e}", f"{update.forward * steps:.3e}"),
        ("  backward", f"{update.backward:.3e}", f"{update.backward * steps:.3e}"),
        ("6 · N · tokens", f"{plan.thumb:.3e}", f"{plan.thumb * steps:.3e}"),
    ]
    if plan.rule is not None:
        rows.append(("paper's rule", f"{plan.rule / steps:.3e}", f"{plan.rule:.3e}"))
    lines = [
        *wrapped(
            f"an update: {plan.sentences:,} sentences of {plan.facts.source_length:.4g} + "
            f"{plan.facts.target_length + 1:.4g} positions, {work.source:,.0f} + "
            f"{work.target:,.0f} in all{epochs}",
            indent="",
        ),
        "FLOPs of matrix products (2mnk each); attention scores take "
        f"{update.attention / update.total:.1%} of them",
        *table(rows),
    ]
    if plan.rule is not None:
        assert plan.settings.device is not None
        lines += wrapped(
            f"The paper's rule is time × {plan.settings.gpus} × "
            f"{DEVICES[plan.settings.device].flops / 1e12:g} TFLOPS: what the devices could have "
            "done meanwhile."
        )
    return [*lines, *paper_lines(plan)]


def paper_lines(plan: Plan) -> list[str]:
    """Table 2 beside this plan, where it is the paper's model and update."""
    from seqtrans.config import MODELS, Shape

    name, sizes = plan.config.names["model"], plan.facts.vocabularies
    paper = PAPER_RUNS.get(name)
    if paper is None or plan.config.data.tokens != paper.tokens:
        return []
    if parameters(Shape(**MODELS[name]), sizes) != plan.weights:
        return []
    total = plan.update.total
    return wrapped(
        f"Table 2, {name}: {paper.flops:.1e} is {paper.hours:g} hours × {paper.gpus} × "
        f"{DEVICES['p100'].flops / 1e12:g} TFLOPS. {paper.steps:,} updates like these are "
        f"{total * paper.steps:.1e} by the exact count; at {paper.step_seconds:g} s each, as in "
        f"the paper, they use {paper.share(total):.2f} of those TFLOPS."
    )


def time_lines(plan: Plan) -> list[str]:
    """How long, and from what."""
    if plan.rate is None or plan.hours is None:
        return ["time: give throughput=, flops= or device=, or measure=yes"]
    return [
        f"time: {duration(plan.hours)}, {plan.rate.seconds:.3g} s an update on "
        f"{devices(plan.settings)}",
        *wrapped(
            f"from {plan.rate.said}. Validation and waiting, for data or for one another, come on "
            "top."
        ),
    ]


def memory_lines(plan: Plan) -> list[str]:
    """What a GPU holds, for several sizes of what it computes at a time."""
    own = share_of(plan.config, plan.settings.gpus)
    large = any(held.peak >= 1e9 for tokens, _, held in plan.memories if tokens == own)

    def size(amount: float) -> str:
        return f"{amount / 1e9:.2f}" if large else f"{amount / 1e6:.0f}"

    heads = "tokens a side,sentences,weights,Adam,exchange,activations,logits,gradients,peak"
    rows = [heads.split(",")]
    for tokens, sentences, held in plan.memories:
        parts = (
            held.weights,
            held.moments,
            held.buckets,
            held.activations,
            held.logits,
            held.gradients,
            held.peak,
        )
        mark = " *" if tokens == own else ""
        rows.append([f"{tokens:,}{mark}", f"{sentences:,}", *map(size, parts)])
    data, accumulation = plan.config.data, plan.config.training.accumulation
    factors = [str(n) for n in (plan.settings.gpus, accumulation) if n > 1]
    cut = f" cut into {' × '.join(factors)} parts" if factors else ""
    return [
        f"memory of a GPU in training, {'GB (10^9' if large else 'MB (10^6'} bytes), fp32",
        *table(rows),
        *wrapped(
            f"* data.tokens={data.tokens}{cut}. Activations go as gradients come, so the peak is "
            "no sum; what the framework itself takes, workspaces and what the allocator leaves "
            "unused come on top."
        ),
    ]


def lines(plan: Plan) -> list[str]:
    """The plan for people."""
    names, sizes = plan.config.names, plan.facts.vocabularies
    task = "" if names["task"] == NO_TASK.name else f"task={names['task']} "
    source = "" if sizes.source in (None, sizes.target) else f" and {sizes.source:,}"
    told = [
        f"plan: {task}model={names['model']} training={names['training']}, a vocabulary of "
        f"{sizes.target:,}{source}, {devices(plan.settings)}",
        "",
    ]
    for part in (weights_lines, cost_lines, memory_lines, time_lines):
        told += [*part(plan), ""]
    if plan.facts.notes:
        told.append("assumed:")
        told += [f"  {note}" for note in plan.facts.notes]
    return told if told[-1] else told[:-1]


def main(argv: list[str]) -> int:
    """Say what a training will take: parameters, FLOPs, memory, time.

    usage: seqtrans plan [config=FILE|NAME] [task=NAME] [key=value …] [run=FOLDER]
                         [gpus=N] [vocabulary=N] [source_vocabulary=N] [shared=yes|no]
                         [source_length=N] [target_length=N] [pairs=N]
                         [throughput=TOKENS | flops=FLOPS | device=KIND [share=S] | measure=yes]
                         [measured_tokens=N] [report=FILE]

    The words are those of seqtrans train, and no data is needed: sizes that are not given are read
    from a prepared run=FOLDER, or from the task's settings. Speed is target tokens a second of one
    device (throughput), what it sustains (flops), assumed (device: k80, k40, m40, p100, v100, a100
    or h100), or measured here.

    example: seqtrans plan model=big training=big vocabulary=37000 gpus=8 device=p100
    """
    settings, config, registry, folder = read(argv)
    plan = make(config, registry, settings, folder)
    if settings.report is not None:
        import json

        from seqtrans.files import write_whole

        write_whole(settings.report, json.dumps(plan.as_json(), indent=1))
    print("\n".join(lines(plan)))
    return 0


if __name__ == "__main__":
    from seqtrans.commands import run

    sys.exit(run(main, sys.argv[1:]))
