"""From the settings of a run back to what was typed: the fewest words that give the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.places import SIGN, VARIABLE
from seqtrans.config import NAMES, Placement
from seqtrans.errors import SettingsError
from seqtrans.fields import written
from seqtrans.plugins import Registry
from seqtrans.resolving import Group, arrange
from seqtrans.settings import AnySettings, Settings, Words, fill

LAUNCH = "accelerate launch"


def training_words(flat: Mapping[str, Any], registry: Registry) -> list[str]:
    """``key=value`` for whatever differs from what the names give, and those of names likewise.

    ``flat`` is `seqtrans.resolving.Config.flat`; the words, resolved, give the same.
    """
    names = {"task": str(flat["task"])}
    usual = arranged(names, registry)
    for group in NAMES:
        if flat[group] != usual[group].name:
            names[group] = str(flat[group])
    words = [f"{group}={name}" for group, name in names.items()]
    # Which settings the attentions have depends on which of them are placed where.
    placement = {key: flat.get(f"attention.{key}") for key in Placement.model_fields}
    for group, chosen in arranged(names, registry, placement).items():
        for key, info in chosen.schema.model_fields.items():
            place = f"{group}.{key}"
            value = flat[place]
            if key in chosen.under:
                default = chosen.under[key]
            elif info.is_required():
                default = ...
            else:
                default = info.get_default(call_default_factory=True, validated_data={})
            if value != default and written(value) != written(default):
                words.append(f"{'run' if place == 'run.folder' else place}={written(value)}")
    return words


def arranged(
    names: Mapping[str, str], registry: Registry, placement: Mapping[str, Any] | None = None
) -> dict[str, Group]:
    """The groups with what they have by default when these names are chosen."""
    tree: dict[str, dict[str, Any]] = {group: {"name": name} for group, name in names.items()}
    tree.setdefault("attention", {}).update(placement or {})
    groups, problems = arrange(Words(tree), registry)
    if problems:
        raise SettingsError(*problems)
    return groups


def training_command(
    flat: Mapping[str, Any], registry: Registry, processes: int, precision: str
) -> str:
    """The command that trains a run with these settings."""
    launch = LAUNCH
    if processes > 1:
        launch += f" --multi_gpu --num_processes {processes}"
    if precision != "no":
        launch += f" --mixed_precision {precision}"
    return f"{launch} -m seqtrans.train {joined(training_words(flat, registry))}"


def evaluation_command(
    runs: Mapping[str, Sequence[int]],
    split: str,
    step: str,
    changes: Mapping[str, Mapping[str, Any]],
) -> str:
    """The command that decodes and scores the split as the row did.

    Of each of the ``runs`` there are the updates whose checkpoints are in its average, oldest
    first; none if it is not the average that decodes.
    """
    words = [f"run={','.join(runs)}", f"split={split}", f"step={step}"]
    before = ""
    for run, averaged in runs.items():
        if averaged:
            average = [f"run={run}", f"last={len(averaged)}", f"until={averaged[-1]}"]
            before += f"seqtrans average {joined(average)} && "
    for group, values in changes.items():
        for key, value in values.items():
            words.append(f"{group if key == 'name' else f'{group}.{key}'}={written(value)}")
    return f"{before}seqtrans evaluate {joined(words)}"


def measuring_command(program: str, settings: Settings, *without: str) -> str:
    """What was typed to measure something; not where it is written, and ``without`` some keys."""
    words = (
        f"{key}={written(value)}"
        for key, value in settings
        if key not in ("report", *without) and value != type(settings).model_fields[key].default
    )
    return f"python -m {program} {joined(words)}".rstrip()


def told_apart(
    argv: Sequence[str], schema: type[AnySettings], what: str
) -> tuple[AnySettings, list[str], list[tuple[str, ...]]]:
    """A command's own settings, the words that all trials get, and those that each gets alone:
    parts of the setting ``what`` with semicolons between. Raises ``SettingsError``.
    """
    mine: dict[str, object] = {}
    words = []
    for word in argv:
        key, _, value = word.partition("=")
        if key in schema.model_fields:
            mine[key] = value
        else:
            words.append(word)
    settings = fill(schema, mine, "", owner="this command")
    trials = [tuple(part.split()) for part in getattr(settings, what).split(";")]
    if not all(trials) or len(set(trials)) < len(trials):
        raise SettingsError(f"{what} must be words with semicolons between, no two alike.")
    return settings, words, trials


def joined(words: Iterable[str]) -> str:
    """The words as a shell reads them; the data folder's variable stays one."""
    return " ".join(quoted(word) for word in words)


def quoted(word: str) -> str:
    key, equals, value = word.partition("=")
    if SIGN not in value:
        return shlex.quote(word)
    paths = (
        f'"${VARIABLE}"/{shlex.quote(path.removeprefix(SIGN))}'
        if path.startswith(SIGN)
        else shlex.quote(path)
        for path in value.split(",")
    )
    return f"{key}{equals}{','.join(paths)}"
