"""From words, or from a stored run, to all settings, checked, with every mistake at once."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import create_model

from seqtrans.config import (
    ENGINE,
    GROUPS,
    NAMES,
    PRESETS,
    DataSettings,
    Placement,
    RunSettings,
    Shape,
    TrainingSettings,
)
from seqtrans.errors import CheckpointError, PluginError, Problem, SettingsError
from seqtrans.fields import read
from seqtrans.hooks import Component
from seqtrans.plugins import KINDS, Registry
from seqtrans.settings import NoSettings, Settings, Words, fill, unknown_groups
from seqtrans.words import did_you_mean, there_are

FORMAT = 1


@dataclass(frozen=True)
class Group:
    """One group with everything that was said of it, not yet checked."""

    name: str | None
    """Of the component or preset; ``None`` where there is nothing to choose."""
    schema: type[Settings]
    under: Mapping[str, Any]
    """Defaults over the schema's own: the preset's, then the task's."""
    given: Mapping[str, Any]
    """What the user gave."""

    @property
    def values(self) -> dict[str, Any]:
        """All that was said."""
        return {**self.under, **self.given}


@dataclass(frozen=True)
class Config:
    """Everything that is set, checked: for each group its settings, and the chosen names."""

    names: Mapping[str, str]
    settings: Mapping[str, Any]

    @property
    def shape(self) -> Shape:
        """``model.*``."""
        return self.settings["model"]  # type: ignore[no-any-return]

    @property
    def data(self) -> DataSettings:
        """``data.*``."""
        return self.settings["data"]  # type: ignore[no-any-return]

    @property
    def training(self) -> TrainingSettings:
        """``training.*``."""
        return self.settings["training"]  # type: ignore[no-any-return]

    @property
    def run(self) -> RunSettings:
        """``run.*``."""
        return self.settings["run"]  # type: ignore[no-any-return]

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.run.folder or Path("runs") / self.names["task"]

    def flat(self) -> dict[str, Any]:
        """Every value under its full name, as JSON has it."""
        values: dict[str, Any] = {}
        for group in GROUPS:
            if group in self.names:
                values[group] = self.names[group]
            for key, value in self.settings[group].model_dump(mode="json").items():
                values[f"{group}.{key}"] = value
        return values

    def as_json(self, registry: Registry) -> dict[str, Any]:
        """What a run folder holds of it: every value, and who provided each component."""
        return {
            "format": FORMAT,
            "settings": self.flat(),
            "providers": {
                kind: "{} {}".format(*registry.provider(kind, self.names[kind])) for kind in KINDS
            },
        }


def from_json(
    content: object, registry: Registry, where: Path, changes: Words | None = None
) -> Config:
    """The config that ``as_json`` gave, with some settings changed.

    Raises ``CheckpointError`` for another format, ``PluginError`` for a component that is not
    installed here, ``SettingsError`` for a setting that has since gone and for a change that comes
    too late.
    """
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise CheckpointError(
            f"{where} is of format {found}; this version of seqtrans reads format {FORMAT}."
        )
    words = Words()
    settings = content.get("settings")
    if not isinstance(settings, dict) or not set(KINDS) <= settings.keys():
        raise CheckpointError(f"{where} is no config of a run.")
    for key, value in settings.items():
        group, _, field = key.partition(".")
        words.tree.setdefault(group, {})[field or "name"] = value
    for kind in KINDS:
        try:
            registry.get(kind, str(words.tree[kind]["name"]))
        except PluginError as error:
            provider = content.get("providers", {}).get(kind, "an unknown distribution")
            raise PluginError(f"{where} needs a {kind} provided by {provider}: {error}") from None
    if changes is not None:
        words = change(words, changes, registry)
    return resolve(words, registry)


def change(words: Words, changes: Words, registry: Registry) -> Words:
    """The words of a run with some that may be changed when it is used: any of the decoder, late
    ones of the task.
    """
    tree = {group: dict(values) for group, values in words.tree.items()}
    late = registry.get("task", str(tree["task"]["name"])).settings.late
    problems: list[Problem | str] = []
    for group, values in changes.tree.items():
        if values.get("name", tree[group].get("name")) != tree[group].get("name"):
            tree[group] = {}
        for key, value in values.items():
            place = f"{group}.{key}"
            if group == "task" and key not in late and key in tree[group]:
                may = ", ".join(f"task.{name}" for name in sorted(late))
                problems.append(
                    Problem(
                        changes.typed.get(place, place),
                        "was fixed when the run was prepared; what may change is "
                        f"{may or 'nothing'}",
                    )
                )
            tree[group][key] = value
    if problems:
        raise SettingsError(*problems)
    return Words(tree, dict(changes.typed))


def arrange(words: Words, registry: Registry) -> tuple[dict[str, Group], list[Problem | str]]:
    """Each group with its schema, which depends on the names chosen, and its values from all
    origins.

    Groups whose name is unknown are left out, and there is a problem for each, and for each unknown
    group.
    """
    tree = {group: dict(values) for group, values in words.tree.items()}
    problems: list[Problem | str] = []
    if "name" in tree.get("run", {}):
        name = tree["run"].pop("name")
        if tree["run"].setdefault("folder", name) != name:
            problems.append(Problem("run", "is run.folder, which is given as well; give one"))
    wanted: Mapping[str, Mapping[str, Any]] = {}
    groups: dict[str, Group] = {}
    for group in GROUPS:
        given = dict(tree.get(group, {}))
        usual = dict(wanted.get(group, {}))
        name = given.pop("name", None)
        if group in NAMES or group == "task":
            usual_name = usual.pop("name", NAMES.get(group))
            if name is not None and name != usual_name:
                usual = {}
            name = name if name is not None else usual_name
        try:
            if group in KINDS:
                if name is None:
                    offers = ", ".join(offer.component.name for offer in registry.all(group))
                    raise PluginError(f"must be given, as in task=parsing; there are: {offers}")
                component = registry.get(group, str(name))
                schema: type[Settings] = component.settings
                if group == "task":
                    wanted = component.defaults
                elif group == "attention":
                    schema, wrong = placed(component, {**usual, **given}, words, registry)
                    problems.extend(wrong)
            elif group in PRESETS:
                presets = PRESETS[group]
                if name not in presets:
                    raise PluginError(
                        f"no preset is called {name!r}{did_you_mean(str(name), presets)}; "
                        f"{there_are(presets)}"
                    )
                usual, schema = {**presets[str(name)], **usual}, ENGINE[group]
            else:
                if name is not None:
                    given["name"] = name
                schema = ENGINE[group]
        except PluginError as error:
            problems.append(Problem(words.typed.get(f"{group}.name", group), str(error)))
            if group == "task":
                return groups, problems
            continue
        groups[group] = Group(None if name is None else str(name), schema, usual, given)
    schemas = {group: groups[group].schema if group in groups else NoSettings for group in GROUPS}
    problems.extend(unknown_groups(words, schemas))
    return groups, problems


def placed(
    chosen: Component, values: Mapping[str, Any], words: Words, registry: Registry
) -> tuple[type[Settings], list[Problem]]:
    """The settings of all attentions that some layer has, and `Placement`; what is wrong with them.

    A setting that two of them have is given to both. It is wrong to choose one that no layer gets;
    a stored run names one always, and what nobody chose may be placed nowhere.
    """
    problems: list[Problem] = []
    used: dict[str, Component] = {}
    for stack, info in Placement.model_fields.items():
        pattern = read(values.get(stack), info.annotation)
        if not (isinstance(pattern, list | tuple) and pattern):
            used[chosen.name] = chosen
            continue
        for name in pattern:
            try:
                used[str(name)] = registry.get("attention", str(name))
            except PluginError as error:
                place = f"attention.{stack}"
                problems.append(Problem(words.typed.get(place, place), str(error)))
    if not problems and chosen.name not in used and "attention.name" in words.typed:
        problems.append(
            Problem(
                words.typed["attention.name"],
                f"no layer gets {chosen.name}, since attention.encoder and attention.decoder name "
                "others; leave it out, or name it there",
            )
        )
    owners: dict[str, str] = dict.fromkeys(Placement.model_fields, "every attention")
    schemas: list[type[Settings]] = [Placement]
    for name, component in used.items():
        schema = component.settings
        if any(issubclass(known, schema) for known in schemas):
            continue
        schemas = [known for known in schemas if not issubclass(schema, known)]
        for key, info in schema.model_fields.items():
            known = [other.model_fields[key] for other in schemas if key in other.model_fields]
            if any(repr(info) != repr(other) for other in known):
                problems.append(
                    Problem(
                        f"attention.{key}",
                        f"is one thing to {name} and another to {owners[key]}; they can't be used "
                        "together",
                    )
                )
            owners.setdefault(key, name)
        schemas.insert(0, schema)
    return together(*schemas), problems


@functools.cache
def together(*schemas: type[Settings]) -> type[Settings]:
    """One class of settings that has those of all, the same for the same ones."""
    return create_model("".join(schema.__name__ for schema in schemas), __base__=schemas)


def resolve(words: Words, registry: Registry) -> Config:
    """Everything set and checked.

    Raises ``SettingsError`` with a line for every mistake at once.
    """
    groups, problems = arrange(words, registry)
    schemas = {name: group.schema for name, group in groups.items()}
    settings: dict[str, Settings] = {}
    for name, group in groups.items():
        try:
            settings[name] = fill(
                group.schema,
                group.values,
                name,
                typed=words.typed,
                # Settings of attentions may be those of several.
                owner=group.name if name in KINDS and name != "attention" else None,
                schemas=schemas,
            )
        except SettingsError as error:
            problems.extend(error.problems)
    if isinstance(shape := settings.get("model"), Shape):
        for stack, layers in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
            pattern = getattr(settings.get("attention"), stack, None) or ()
            if len(pattern) > layers:
                place = f"attention.{stack}"
                problems.append(
                    Problem(
                        words.typed.get(place, place),
                        f"names {len(pattern)} attentions for model.{stack}_layers={layers}",
                    )
                )
    if isinstance(training := settings.get("training"), TrainingSettings):
        place = "training.objective"
        if isinstance(shape, Shape) and shape.causal == (training.objective == "masked"):
            problems.append(
                Problem(
                    words.typed.get(place, place),
                    "masked needs model.causal=no: what is masked is told from both sides"
                    if shape.causal
                    else "left-to-right needs model.causal=yes: without it each target position "
                    "would see the very symbol that it is to predict; masked goes with "
                    "model.causal=no",
                )
            )
        try:
            registry.get("decoder", training.validation_decoder)
        except PluginError as error:
            problems.append(Problem("training.validation_decoder", str(error)))
    if problems:
        raise SettingsError(*problems)
    names = {name: group.name for name, group in groups.items() if group.name is not None}
    return Config(names, settings)


def groups(words: Words, registry: Registry) -> dict[str, Group]:
    """What can be set after these words, group by group.

    Raises ``SettingsError`` for names and groups that there are not.
    """
    found, problems = arrange(words, registry)
    if problems:
        raise SettingsError(*problems)
    return found


def packaged() -> dict[str, Path]:
    """The configs that ``config=NAME`` finds: those beside the built-in tasks."""
    import seqtrans_tasks

    root = Path(seqtrans_tasks.__path__[0])
    return {path.stem: path for path in sorted(root.glob("**/recipes/*.yaml"))}
