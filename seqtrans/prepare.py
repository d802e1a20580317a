"""Read a task's raw data once, and write all that training and use need into the run folder."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from seqtrans.errors import SettingsError
from seqtrans.files import read_json

if TYPE_CHECKING:
    from seqtrans.plugins import Registry
    from seqtrans.resolving import Config

FREE_GROUPS = ("decoder",)
FREE = (
    "run.folder",
    "run.threads",
    "training",
    "training.steps",
    "training.patience",
    "training.keep",
    "training.log_every",
    "training.validate_every",
    "training.save_every",
    "training.save_minutes",
    "training.accumulation",
    "training.recompute",
    "training.validation_decoder",
    "training.dry_run",
)
"""What may differ when a run is gone on with."""


def prepare(config: Config, registry: Registry) -> bool:
    """Make the run folder with ``config.json`` and ``task/``, or check that the one there fits;
    whether raw data was read.

    The task's settings are those of a run as soon as something was prepared by them, the others
    as soon as there is a checkpoint: what failed before can be repeated with others.

    Raises ``SettingsError`` naming each setting in which they differ, ``DataError`` naming each raw
    file that has changed, and ``CheckpointError`` if what was prepared is damaged and checkpoints
    depend on it.
    """
    from seqtrans import assembly, rawfiles
    from seqtrans.checkpoint import steps
    from seqtrans.errors import CheckpointError
    from seqtrans.files import damage, sweep, whole_folder, write_whole

    folder, prepared = config.folder, config.folder / "task"
    wrong = damage(prepared) if prepared.is_dir() else "it isn't there"
    if wrong and steps(folder):
        raise CheckpointError(
            f"{prepared} is damaged ({wrong}), and the checkpoints in {folder} depend on it; "
            "restore it, or choose another folder by run=FOLDER."
        )
    if not wrong:
        check(config, registry)
        rawfiles.check_unchanged(prepared)
    write_whole(folder / "config.json", json.dumps(config.as_json(registry), indent=1))
    if wrong:
        if any(folder.glob(f".{prepared.name}.*.tmp")):
            print(
                f"seqtrans: an earlier preparation in {folder} was not finished; what it left is "
                "deleted.",
                file=sys.stderr,
            )
            sweep(folder)
        try:
            task = assembly.build_task(config, registry)
            files = task.raw_files()
            if files is None:
                files = rawfiles.named(config.settings["task"], folder)
            before = rawfiles.states(files)
            with whole_folder(prepared) as temporary:
                task.prepare(temporary)
                rawfiles.write_states(temporary, before)
        except BaseException:
            (folder / "config.json").unlink(missing_ok=True)
            raise
    return bool(wrong)


def check(config: Config, registry: Registry) -> None:
    """Compare with the settings by which the folder was prepared.

    Raises ``SettingsError`` naming each one that differs and may not.
    """
    from seqtrans.checkpoint import steps
    from seqtrans.resolving import from_json

    path = config.folder / "config.json"
    before, now = from_json(read_json(path), registry, path).flat(), config.flat()

    def differs(key: str) -> bool:
        group = key.partition(".")[0]
        # The settings of another component are not worth a line each.
        same = key == group or before.get(group) == now.get(group) or group == "training"
        return same and before.get(key) != now.get(key)

    task = config.settings["task"]
    late = task.late - task.fixed_in_training
    trained = bool(steps(config.folder))
    different = [
        f"{key}: is {before.get(key)!r} in {path} and {now.get(key)!r} now"
        for key in sorted(before.keys() | now.keys())
        if differs(key) and not free(key, late) and (trained or key.partition(".")[0] == "task")
    ]
    if different:
        raise SettingsError(
            *different,
            f"{config.folder} is a run of other settings; choose another folder by run=FOLDER.",
        )
    if trained and config.training.schedule == "linear" and differs("training.steps"):
        print(
            "seqtrans: warning: training.steps has changed, and with training.schedule=linear so "
            "does the rate of every update to come.",
            file=sys.stderr,
        )


def free(key: str, late: frozenset[str]) -> bool:
    """Whether a setting may change when a run goes on; ``late`` are those of its task that may."""
    group, _, field = key.partition(".")
    return key in FREE or group in FREE_GROUPS or (group == "task" and field in late)


def main(argv: list[str]) -> int:
    """Read a task's raw data and write what training needs.

    usage: seqtrans prepare task=NAME [run=FOLDER] [key=value …]

    This is also the first thing that seqtrans train does; done alone, it shows what the data is
    like.

    example: seqtrans prepare task=parsing run=runs/demo
    """
    from seqtrans.plugins import registry
    from seqtrans.resolving import packaged, resolve
    from seqtrans.settings import parse_words

    names = registry()
    config = resolve(parse_words(argv, packaged()), names)
    from seqtrans import assembly
    from seqtrans.files import alone

    with alone(config.folder):
        read = prepare(config, names)
    task = assembly.build_task(config, names)
    task.open(config.folder / "task")
    for line in task.describe():
        print(line)
    print(f"{'prepared' if read else 'already prepared'} in {config.folder / 'task'}")
    return 0
