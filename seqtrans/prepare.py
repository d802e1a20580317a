"""Read a task's raw data once, and write all that training and use will need into the run folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from seqtrans.errors import SettingsError

if TYPE_CHECKING:
    from seqtrans.config import Config
    from seqtrans.plugins import Registry

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
    "training.validation_decoder",
    "training.dry_run",
)
"""What may differ when a run is gone on with."""


def prepare(config: Config, registry: Registry) -> None:
    """Make the run folder with ``config.json`` and ``task/``, or check that the one there is of the same settings.

    Raises ``SettingsError`` naming each setting in which they differ.
    """
    from seqtrans import assembly
    from seqtrans.data import read_json
    from seqtrans.files import damage, whole_folder, write_whole

    folder = config.folder
    path = folder / "config.json"
    if path.is_file():
        content: Any = read_json(path)
        before, now = content.get("settings", {}), config.flat()
        different = [
            f"{key}: is {before.get(key)!r} in {path} and {now.get(key)!r} now"
            for key in sorted(before.keys() | now.keys())
            if before.get(key) != now.get(key) and not free(key, config.settings["task"].late)
        ]
        if different:
            raise SettingsError(
                *different,
                f"{folder} is a run of other settings; choose another folder by run=FOLDER.",
            )
    write_whole(path, json.dumps(config.as_json(registry), indent=1))
    if not (folder / "task").is_dir() or damage(folder / "task"):
        task = assembly.build_task(config, registry)
        with whole_folder(folder / "task") as temporary:
            task.prepare(temporary)


def free(key: str, late: frozenset[str]) -> bool:
    """Whether a setting may change when a run goes on; ``late`` are those of its task."""
    group, _, field = key.partition(".")
    return key in FREE or group in FREE_GROUPS or (group == "task" and field in late)


def main(argv: list[str]) -> int:
    """Read a task's raw data and write what training needs.

    usage: seqtrans prepare task=NAME [run=FOLDER] [key=value …]

    This is also the first thing that seqtrans train does; done alone, it shows what the data is like.

    example: seqtrans prepare task=parsing run=runs/demo
    """
    from seqtrans.config import packaged, resolve
    from seqtrans.plugins import registry
    from seqtrans.settings import parse_words

    names = registry()
    config = resolve(parse_words(argv, packaged()), names)
    from seqtrans import assembly

    prepare(config, names)
    task = assembly.build_task(config, names)
    task.open(config.folder / "task")
    for line in task.describe():
        print(line)
    print(f"prepared in {config.folder / 'task'}")
    return 0
