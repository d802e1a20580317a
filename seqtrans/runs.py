"""Runs opened for use beside each other, and why some can't be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import torch

from seqtrans import assembly, checkpoint
from seqtrans.decoding import Decoder, Scorer
from seqtrans.errors import CheckpointError, SettingsError
from seqtrans.fields import written
from seqtrans.files import damage, read_json
from seqtrans.frozen import frozen
from seqtrans.int8 import check_int8
from seqtrans.model import Transducer
from seqtrans.plugins import Registry
from seqtrans.resolving import Config, from_json
from seqtrans.reuse import Precision
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


def open_model(
    weights: Path,
    config: Config,
    names: Registry,
    task: Task,
    device: torch.device,
    precision: Precision,
) -> Transducer:
    """The model of a run with the weights of a checkpoint, for use."""
    model = assembly.build_model(config, names, task)
    checkpoint.load_weights(weights, model)
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    return model.to(device, kind).eval()


def usable(device: str | None, precision: Precision) -> torch.device:
    """The device to compute on, a GPU where there is one if none is named.

    Raises ``SettingsError`` if it can't be used, or not with that precision.
    """
    named = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if precision not in get_args(Precision):
        kinds = ", ".join(get_args(Precision))
        raise SettingsError(f"precision is one of {kinds}, not {precision!r}.")
    try:
        torch.empty(0, device=named)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise SettingsError(f"device={named} can't be used here: {why}.") from None
    found = torch.device(named)
    if precision == "int8":
        check_int8(found)
    return found


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
        group, dot, _ = key.partition(".")
        preset = group == "model" and not dot  # only a name; what it set is compared
        if group not in ("model", "source", "position", "attention") or "dropout" in key or preset:
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
    precision: Precision = "fp32",
) -> None:
    """Give a decoder the models of the ``runs`` that it asks besides the one in ``folder``, each at
    its best step.

    ``opened`` has those that are open already, and takes in the others. Raises ``CheckpointError``
    and ``PluginError`` as `seqtrans.load` does.
    """
    for run in decoder.runs:
        if run not in opened:
            weights = checkpoint.choose(run, "best", warn)
            own, its = open_run(run, names)
            check_alike(folder, task, run, its, "can't decode together")
            check_causal(folder, config, run, own)
            model = open_model(weights, own, names, its, device, precision)
            opened[run] = frozen(model, precision == "int8")
    decoder.models = tuple(opened[run] for run in decoder.runs)


def warn(text: str) -> None:
    """Say something that a user should know, and go on."""
    print(f"seqtrans: warning: {text}", file=sys.stderr)
