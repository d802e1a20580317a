"""``seqtrans plan``: what a training will take, before anything is run.

Here are its settings; `seqtrans.forecast` has the figures, and `seqtrans.foretelling` their words.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from seqtrans.costs import DEVICES, Precision
from seqtrans.errors import CheckpointError, Problem, SettingsError
from seqtrans.hooks import Component
from seqtrans.plugins import Registry
from seqtrans.settings import Settings, Words, fill

if TYPE_CHECKING:
    from seqtrans.resolving import Config

MEAN_LENGTH = 26
"""Symbols of a sentence where nothing says more."""
MEASURED = 512
"""Positions on each side with which a CPU is measured."""


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
        description="target tokens a second of all devices together, as seqtrans train tells them",
    )
    flops: float | None = Field(
        None, gt=0, description="operations a second that one device sustains in training"
    )
    device: Literal["k80", "k40", "m40", "p100", "v100", "a100", "h100"] | None = Field(
        None, description="a kind of GPU, whose speed is then assumed"
    )
    precision: Precision = Field(
        "fp32",
        description="of the products in training: fp32, or what --mixed_precision of accelerate "
        "launch names",
    )
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="how much of the device's stated speed a training reaches; none: 0.4 in fp32, "
        "0.25 in fp16 and bf16",
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
        if self.device is not None and self.precision not in DEVICES[self.device]:
            known = " and ".join(f"precision={precision}" for precision in DEVICES[self.device])
            raise ValueError(
                f"precision: the speed of {self.device} is known for {known}, not for "
                f"{self.precision}"
            )
        return self


NO_TASK = Component(name="none", build="builtins:object", summary="a plan without a task")


class TaskFree(Registry):
    """What can be chosen by name where no task is, so that each group keeps its own defaults."""

    def get(self, kind: str, name: str) -> Component:
        """The component of that name, which may be `NO_TASK`."""
        return NO_TASK if (kind, name) == ("task", NO_TASK.name) else super().get(kind, name)


def read(argv: Sequence[str]) -> tuple[PlanSettings, Config, Registry, Path | None]:
    """The plan's own settings, those of the training, and what `configure` gives besides.

    Raises ``SettingsError`` with a line for everything that is wrong in either.
    """
    from seqtrans.config import ENGINE, GROUPS
    from seqtrans.resolving import packaged
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
    from seqtrans.plugins import registry
    from seqtrans.resolving import resolve

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
    from seqtrans.files import read_json
    from seqtrans.plugins import registry
    from seqtrans.resolving import from_json, resolve

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
    task = config.settings["task"]
    free = {f"task.{key}" for key in task.late - task.fixed_in_training}
    fixed = {
        key: value
        for key, value in config.flat().items()
        if key.partition(".")[0] == "task" and key not in free
    }
    problems = [
        Problem(key, f"is {before.get(key)!r} in {path}, which was prepared so, and {value!r} here")
        for key, value in fixed.items()
        if before.get(key) != value
    ]
    if problems:
        raise SettingsError(*problems)
    return config, registry(), folder


def main(argv: list[str]) -> int:
    """Say what a training will take: parameters, FLOPs, memory, time.

    usage: seqtrans plan [config=FILE|NAME] [task=NAME] [key=value …] [run=FOLDER]
                         [gpus=N] [vocabulary=N] [source_vocabulary=N] [shared=yes|no]
                         [source_length=N] [target_length=N] [pairs=N]
                         [throughput=TOKENS | flops=FLOPS | device=KIND [share=S] | measure=yes]
                         [precision=fp32|fp16|bf16] [measured_tokens=N] [report=FILE]

    The words are those of seqtrans train, and no data is needed: sizes that are not given are read
    from a prepared run=FOLDER, or from the task's settings. Speed is target tokens a second of all
    devices together (throughput), what one sustains (flops), assumed (device: k80, k40, m40, p100,
    v100, a100 or h100), or measured here. Precision is what accelerate launch is told by
    --mixed_precision; without that it is fp32.

    example: seqtrans plan model=big training=big vocabulary=37000 gpus=8 device=p100
    """
    settings, config, registry, folder = read(argv)
    from seqtrans.forecast import make
    from seqtrans.foretelling import lines

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
