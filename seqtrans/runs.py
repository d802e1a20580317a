"""Runs opened for use beside each other, and why some can't be."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from seqtrans import assembly, checkpoint
from seqtrans.decoding import Decoder, Scorer
from seqtrans.errors import CheckpointError
from seqtrans.fields import written
from seqtrans.files import damage, read_json
from seqtrans.frozen import frozen
from seqtrans.plugins import Registry
from seqtrans.resolving import Config, from_json
from seqtrans.settings import Words
from seqtrans.task import Task


def open_run(folder: Path, names: Registry, changes: Words | None = None) -> tuple[Config, Task]:
    """The config of a run, with changes, and its opened task."""
    wrong = damage(folder / "task")
    if wrong is not None:
        raise CheckpointError(f"{folder / 'task'} is damaged: {wrong}.")
    config = from_json(read_json(folder / "config.json"), names, folder / "config.json", changes)
    task = assembly.build_task(config, names)
    task.open(folder / "task")
    return config, task


def check_alike(first: Path, task: Task, other: Path, its: Task, refused: str) -> None:
    """Refuse runs whose ids stand for different things: they are ``refused``, in a verb's words."""
    for side, vocabulary, another in (
        ("source", task.source_vocabulary, its.source_vocabulary),
        ("target", task.target_vocabulary, its.target_vocabulary),
    ):
        if vocabulary != another:
            raise CheckpointError(
                f"{first} and {other} {refused}: their {side} vocabularies differ."
            )


def check_same_model(run: Path, its: Config, config: Config) -> None:
    """Refuse a run of which the weights would mean something else; dropout doesn't count."""
    theirs = its.flat()
    for key, value in config.flat().items():
        group = key.partition(".")[0]
        if group not in ("model", "source", "position", "attention") or "dropout" in key:
            continue
        if theirs.get(key) != value:
            raise CheckpointError(
                f"the weights of {run} don't fit this model: {key} is {written(theirs.get(key))} "
                f"there and {written(value)} here."
            )


def check_causal(first: Path, config: Config, other: Path, its: Config) -> None:
    """Refuse runs of which only one writes from left to right."""
    if config.shape.causal != its.shape.causal:
        raise CheckpointError(f"{first} and {other} can't decode together: model.causal differs.")


def join_runs(
    decoder: Decoder,
    folder: Path,
    config: Config,
    task: Task,
    names: Registry,
    device: torch.device,
    opened: dict[Path, Scorer],
    dtype: torch.dtype = torch.float32,
) -> None:
    """Give a decoder the models of the ``runs`` that it asks besides the one in ``folder``, each at
    its best step, with weights of ``dtype``.

    ``opened`` has those that are open already, and takes in the others. Raises ``CheckpointError``
    and ``PluginError`` as `seqtrans.load` does.
    """
    for run in decoder.runs:
        if run not in opened:
            weights = checkpoint.choose(run, "best", warn)
            own, its = open_run(run, names)
            check_alike(folder, task, run, its, "can't decode together")
            check_causal(folder, config, run, own)
            model = assembly.build_model(own, names, its)
            checkpoint.load_weights(weights, model)
            opened[run] = frozen(model.to(device, dtype).eval())
    decoder.models = tuple(opened[run] for run in decoder.runs)


def warn(text: str) -> None:
    """Say something that a user should know, and go on."""
    print(f"seqtrans: warning: {text}", file=sys.stderr)
