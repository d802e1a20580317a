"""From a resolved config to its parts: the only place where names become objects."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from seqtrans.attention import Attention
from seqtrans.decoding import Decoder
from seqtrans.errors import DataError, PluginError, SettingsError
from seqtrans.model import Transducer
from seqtrans.plugins import Registry
from seqtrans.resolving import Config
from seqtrans.settings import fill
from seqtrans.task import Task
from seqtrans.words import there_are


def build_task(config: Config, registry: Registry) -> Task:
    """The task, not yet opened."""
    task = registry.get("task", config.names["task"]).make(config.settings["task"])
    assert isinstance(task, Task)
    return task


def build_model(config: Config, registry: Registry, task: Task) -> Transducer:
    """The model of an opened task, its weights drawn from the run's seed."""
    shape = config.shape
    if shape.tie == "auto":
        shape = shape.model_copy(update={"tie": "all" if task.shares_vocabulary else "output"})
    if shape.tie == "all" and not task.shares_vocabulary:
        raise DataError(
            "model.tie=all needs a task with one vocabulary for both sides; use model.tie=output."
        )
    torch.manual_seed(config.run.seed)

    def part(kind: str, *arguments: Any) -> Any:
        component = registry.get(kind, config.names[kind])
        return component.make(config.settings[kind], *arguments)

    def attentions(stack: str, layers: int) -> list[Attention]:
        settings = config.settings["attention"]
        names = getattr(settings, stack) or (config.names["attention"],)
        components = [registry.get("attention", name) for name in names]
        return [components[i % len(names)].make(settings, shape) for i in range(layers)]

    return Transducer(
        shape,
        task.target_vocabulary,
        part("source", shape, task.source_vocabulary),
        (part("position", shape), part("position", shape)),
        attentions("encoder", shape.encoder_layers),
        attentions("decoder", shape.decoder_layers),
        task.source_vocabulary,
    )


def build_decoder(
    config: Config, registry: Registry, name: str | None = None, **settings: Any
) -> Decoder:
    """The run's decoder, or another one; ``settings`` go over the run's own if it is the same, else
    over defaults.

    Raises ``PluginError`` for an unknown name and ``SettingsError`` for wrong settings and for a
    decoder that is not for this kind of model.
    """
    name = name or config.names["decoder"]
    component = registry.get("decoder", name)
    under = config.settings["decoder"].model_dump() if name == config.names["decoder"] else {}
    if name != config.names["decoder"] and "extra" in component.settings.model_fields:
        under = {"extra": getattr(config.settings["decoder"], "extra", 50)}
    filled = fill(component.settings, {**under, **settings}, "decoder", owner=name)
    decoder = component.make(filled)
    assert isinstance(decoder, Decoder)
    if decoder.causal != config.shape.causal:
        wanted, there = ("yes", "no") if decoder.causal else ("no", "yes")
        raise SettingsError(
            f"decoder {name} is for models with model.causal={wanted}, and this one has "
            f"model.causal={there}; for it {there_are(decoders(registry, config.shape.causal))}."
        )
    return decoder


def decoders(registry: Registry, causal: bool) -> list[str]:
    """The names of the decoders for models that are causal, or that aren't."""
    names = []
    for offer in registry.all("decoder"):
        with suppress(PluginError):  # one that can't be imported is none to name
            if getattr(offer.component.load(), "causal", True) == causal:
                names.append(offer.component.name)
    return names
