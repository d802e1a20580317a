"""The run folder: ``config.json``, ``task/`` and ``step-N/``; a run is used and resumed from these.

``step-N/model.safetensors`` is all that using needs; ``step-N/state/`` is for resuming only. Only
JSON and safetensors are read, which can't run code.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from seqtrans.errors import CheckpointError
from seqtrans.files import damage, discard, read_json, whole_folder, write_whole

STEP = re.compile(r"step-(\d+)$")
WEIGHTS = "model.safetensors"
VALIDATIONS = "validations.json"
AVERAGED = "average.json"


@dataclass(frozen=True)
class Progress:
    """How far a training has come: what must come back so that it goes on as if never stopped."""

    step: int = 0
    epoch: int = 0
    window: int = 0
    """Windows of this epoch that are done: parts of a large corpus, see `seqtrans.data.Epoch`."""
    position: int = 0
    """Updates of this window that are done."""
    seconds: float = 0.0
    precision: str = "no"
    """As the launcher has it: ``no`` is fp32."""
    processes: int = 1
    threads: int = 1
    window_loss: float = 0.0
    """Sums since the last line of the log."""
    window_tokens: int = 0
    loss_scale: Mapping[str, float | int] | None = None
    """The state of fp16's gradient scaler."""


def step_folder(run: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return run / f"step-{step}"


def steps(run: Path) -> list[int]:
    """The steps with a checkpoint, oldest first, whole or not."""
    if not run.is_dir():
        return []
    matches = (STEP.match(p.name) for p in run.iterdir() if p.is_dir())
    return sorted(int(m.group(1)) for m in matches if m)


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and persistent buffer of a model, tied ones once, under their first names."""
    found: dict[str, Tensor] = dict(model.named_parameters())
    persistent = model.state_dict(keep_vars=True)
    found.update((name, b) for name, b in model.named_buffers() if name in persistent)
    return {name: t.detach() for name, t in found.items()}


def save(run: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> Path:
    """Write the checkpoint of ``progress.step``, whole or not at all."""
    folder = step_folder(run, progress.step)
    with whole_folder(folder) as temporary:
        save_weights(temporary, tensors(model))
        state = temporary / "state"
        state.mkdir()
        (state / "progress.json").write_text(
            json.dumps(asdict(progress), indent=1), encoding="utf-8"
        )
        moments = {
            f"{number}.{name}": value.detach().cpu().contiguous()
            for number, values in optimizer.state_dict()["state"].items()
            for name, value in values.items()
        }
        write_tensors(state / "optimizer.safetensors", moments)
    return folder


def save_weights(folder: Path, weights: dict[str, Tensor]) -> None:
    """Write the weights into an existing folder, as they are (fp32 in training)."""
    write_tensors(folder / WEIGHTS, {k: v.detach().cpu().contiguous() for k, v in weights.items()})


def write_tensors(path: Path, values: dict[str, Tensor]) -> None:
    """Like ``safetensors.torch.save_file``, with the operating system's own errors."""
    path.write_bytes(safetensors.torch.save(values))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file. Raises ``CheckpointError`` if it is missing or truncated."""
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path} can't be read: {error}.") from None


def load_weights(folder: Path, model: nn.Module) -> None:
    """Fill a model from a checkpoint. Raises ``CheckpointError`` unless every tensor fits."""
    wanted, found = tensors(model), read_tensors(folder / WEIGHTS)
    for name in sorted(wanted.keys() ^ found.keys()):
        where = "the checkpoint lacks" if name in wanted else "the model has no"
        raise CheckpointError(f"{folder} doesn't fit this model: {where} {name}.")
    for name, value in wanted.items():
        if value.shape != found[name].shape:
            raise CheckpointError(
                f"{folder} doesn't fit this model: {name} is {list(found[name].shape)} "
                f"there and {list(value.shape)} here."
            )
        value.copy_(found[name])


def read_progress(folder: Path) -> Progress:
    """How far a training had come at a checkpoint.

    Raises ``CheckpointError`` if that is missing or damaged.
    """
    try:
        return Progress(**json.loads((folder / "state/progress.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{folder} can't be resumed from: {error}.") from None


def load_state(folder: Path, optimizer: torch.optim.Optimizer) -> Progress:
    """Bring an optimiser and the progress back.

    Raises ``CheckpointError`` if the state is missing, damaged or another model's.
    """
    progress = read_progress(folder)
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in read_tensors(folder / "state/optimizer.safetensors").items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    if state and len(state) != sum(len(group["params"]) for group in groups):
        raise CheckpointError(
            f"{folder} can't be resumed from: its optimiser has other parameters."
        )
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    return progress


def kept(run: Path) -> int:
    """How many of the newest checkpoints a run keeps."""
    content: Any = read_json(run / "config.json")
    return int(content["settings"]["training.keep"])


def averaged(run: Path) -> list[int]:
    """The steps that are in the average of a run."""
    content: Any = read_json(run / "average" / AVERAGED)
    return [int(step) for step in content]


def mean(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The mean weights of several checkpoints, summed in fp64 and given in their own type."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for folder in folders:
        for name, value in read_tensors(folder / WEIGHTS).items():
            kinds[name] = value.dtype
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(folders)).to(kinds[name]) for name, value in total.items()}


def newest(run: Path, warn: Callable[[str], None]) -> int | None:
    """The step of the newest checkpoint that is whole; ``None`` if there is no checkpoint at all.

    Each damaged one that is newer is warned of and set aside as ``step-N.damaged``: the run will
    come to that step again, and until then it would be counted as one of those to keep.
    Raises ``CheckpointError`` if there are checkpoints and all are damaged; they are left there.
    """
    found = steps(run)
    damaged: list[tuple[Path, str]] = []
    for step in reversed(found):
        folder = step_folder(run, step)
        wrong = damage(folder)
        if wrong is None:
            for bad, reason in damaged:
                aside = bad.with_name(f"{bad.name}.damaged")
                discard(aside)
                bad.rename(aside)
                warn(
                    f"checkpoint {bad} is damaged ({reason}) and is not used; it is set aside as "
                    f"{aside.name}, and {folder.name} is taken."
                )
            return step
        damaged.append((folder, wrong))
    if damaged:
        folder, wrong = damaged[0]
        raise CheckpointError(
            f"every checkpoint in {run} is damaged; of the newest, {folder.name}, {wrong}."
        )
    return None


def thin(run: Path, keep: int, best: int | None) -> None:
    """Delete all checkpoints but the newest ``keep`` and the best."""
    for step in steps(run)[:-keep]:
        if step != best:
            discard(step_folder(run, step))


@dataclass(frozen=True)
class Validations:
    """What ``write_validations`` wrote; nothing if there has been none."""

    metric: str | None = None
    """What they were scored by, as far as it was noted."""
    best: int | None = None
    """The step with the best score."""
    scores: dict[int, float] = field(default_factory=dict)
    """The score of each by its step, oldest first."""


def read_validations(run: Path) -> Validations:
    """The validations of a run. Raises ``CheckpointError`` if they can't be read."""
    path = run / VALIDATIONS
    if not path.is_file():
        return Validations()
    try:
        content = json.loads(path.read_text("utf-8"))
        metric, best = content.get("metric"), content["best"]
        scores = {int(step): float(value) for step, value in content["scores"].items()}
        return Validations(
            None if metric is None else str(metric), None if best is None else int(best), scores
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(
            f"{path} can't be read; without it the best checkpoint and patience are not known."
        ) from None


def write_validations(
    run: Path, scores: Mapping[int, float], maximise: bool, metric: str | None = None
) -> None:
    """Note the validations so far; best and patience follow from them alone."""
    best = best_step(scores, maximise)
    content = {"metric": metric, "best": best, "scores": dict(scores)}
    write_whole(run / VALIDATIONS, json.dumps(content, indent=1))


def best_step(scores: Mapping[int, float], maximise: bool) -> int | None:
    """The step with the best score; of equal ones the first, and NaN is worse than any number."""

    def rank(step: int) -> tuple[bool, float, int]:
        score = scores[step]
        nan = math.isnan(score)
        return nan, 0.0 if nan else -score if maximise else score, step

    return min(scores, key=rank, default=None)


def choose(
    run: Path, step: str | int = "best", warn: Callable[[str], None] = lambda _: None
) -> Path:
    """The checkpoint called ``best``, ``last``, ``average``, or by its number; weights undamaged.

    ``best`` falls back to the newest where no validation has been made; where the best is gone,
    with a warning. Raises ``CheckpointError`` if there is none such, or it is damaged.
    """
    if not run.is_dir():
        raise CheckpointError(f"there is no run folder {run}.")
    found = steps(run)
    if step == "average":
        folder = run / "average"
        if not folder.is_dir():
            raise CheckpointError(
                f"{run} holds no average; seqtrans average run={run} last=N makes one."
            )
    elif not found:
        raise CheckpointError(f"{run} holds no checkpoint yet.")
    elif step == "last":
        folder = step_folder(run, found[-1])
    elif step == "best":
        best = read_validations(run).best
        if best is not None and best not in found:
            warn(f"the best checkpoint of {run}, step-{best}, is gone; using step-{found[-1]}.")
        folder = step_folder(run, best if best in found and best is not None else found[-1])
    elif str(step).isdecimal() and int(step) in found:
        folder = step_folder(run, int(step))
    else:
        raise CheckpointError(
            f"{run} holds no checkpoint {step!r}; step is best, last, average or one of "
            f"{', '.join(map(str, found))}."
        )
    wrong = damage(folder, only={WEIGHTS})
    if wrong is not None:
        raise CheckpointError(f"checkpoint {folder} is damaged: {wrong}.")
    return folder
