"""A forecast in words and tables, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from seqtrans.costs import DEVICES, PAPER_RUNS, PAPER_SPEED, Precision, parameters
from seqtrans.forecast import Plan, share_of
from seqtrans.plan import NO_TASK, PlanSettings


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
    if weights.length:
        rows.append(("length", weights.length))
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
        precision = plan.settings.precision
        speed = DEVICES[plan.settings.device][precision]
        lines += wrapped(
            f"The paper's rule is time × {plan.settings.gpus} × {speed.flops / 1e12:g} TFLOPS "
            f"({precision}): what the devices could have done meanwhile."
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
        f"{PAPER_SPEED.flops / 1e12:g} TFLOPS. {paper.steps:,} updates like these are "
        f"{total * paper.steps:.1e} by the exact count; at {paper.step_seconds:g} s each, as in "
        f"the paper, they use {paper.share(total):.2f} of those TFLOPS."
    )


def time_lines(plan: Plan) -> list[str]:
    """How long, and from what."""
    if plan.rate is None or plan.hours is None:
        return ["time: give throughput=, flops= or device=, or measure=yes"]
    precision = plan.rate.precision
    return [
        f"time: {duration(plan.hours)}, {plan.rate.seconds:.3g} s an update on "
        f"{devices(plan.settings)}{'' if precision is None else f' in {precision}'}",
        *wrapped(
            f"from {plan.rate.said}. Validation and waiting, for data or for one another, come on "
            "top."
        ),
    ]


def precision_lines(plan: Plan) -> list[str]:
    """What the precision is, and what another would change."""
    precision, other = plan.settings.precision, plan.other
    said = f"precision={precision}: {launched(precision)}."
    if other is None:
        return wrapped(said, indent="")
    hours = plan.lasts(other.rate)
    time = "" if hours is None else f"{duration(hours)} and "
    return wrapped(
        f"{said} precision={other.precision} would be {time}{size(other.peak)} at the peak: "
        f"{launched(other.precision)}.",
        indent="",
    )


def launched(precision: Precision) -> str:
    """What a precision is, and how one trains in it."""
    if precision == "fp32":
        return "all in fp32, as without --mixed_precision"
    how = f"accelerate launch --mixed_precision {precision}"
    return f"products in {precision} and the rest in fp32, as by {how}"


def size(amount: float) -> str:
    """Bytes in the unit that one would say."""
    return f"{amount / 1e9:.2f} GB" if amount >= 1e9 else f"{amount / 1e6:.0f} MB"


def memory_lines(plan: Plan) -> list[str]:
    """What a GPU holds, for several sizes of what it computes at a time."""
    own, precision = share_of(plan.config, plan.settings.gpus), plan.settings.precision
    large = plan.own.peak >= 1e9

    def figure(amount: float) -> str:
        return f"{amount / 1e9:.2f}" if large else f"{amount / 1e6:.0f}"

    heads = "tokens a side,sentences,weights,Adam,exchange,activations,softmax,gradients,peak"
    rows = [heads.split(",")]
    for tokens, sentences, held in plan.memories:
        parts = (
            held.weights,
            held.moments,
            held.buckets,
            held.copies + held.activations,
            held.logits,
            held.gradients,
            held.peak,
        )
        mark = " *" if tokens == own else ""
        rows.append([f"{tokens:,}{mark}", f"{sentences:,}", *map(figure, parts)])
    data, accumulation = plan.config.data, plan.config.training.accumulation
    factors = [str(n) for n in (plan.settings.gpus, accumulation) if n > 1]
    cut = f" cut into {' × '.join(factors)} parts" if factors else ""
    return [
        f"memory of a GPU in training, {'GB (10^9' if large else 'MB (10^6'} bytes), "
        f"{precision}{'' if precision == 'fp32' else ' (weights, Adam and gradients fp32)'}",
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
    for part in (weights_lines, cost_lines, memory_lines, time_lines, precision_lines):
        told += [*part(plan), ""]
    if plan.facts.notes:
        told.append("assumed:")
        told += [f"  {note}" for note in plan.facts.notes]
    return told if told[-1] else told[:-1]
