"""Settings: frozen pydantic models, filled from text, with every mistake told at once.

A group's words may come from the command line, a file, and a task's or preset's defaults; they are
merged as plain dictionaries and become one `Settings` object by `fill`, which says what is wrong in
the words that the user typed. `describe` lists what can be typed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import pydantic
from pydantic.fields import FieldInfo

from seqtrans.errors import Problem, SettingsError
from seqtrans.fields import in_words, limits, read, written
from seqtrans.words import Words, did_you_mean, nearest, parse_words, there_are

__all__ = [
    "NoSettings",
    "Setting",
    "Settings",
    "Words",
    "describe",
    "fill",
    "nearest",
    "parse_words",
    "unknown_groups",
]

NOTHING: Mapping[str, Any] = MappingProxyType({})

OUT_OF_LIMITS = {
    "greater_than",
    "greater_than_equal",
    "less_than",
    "less_than_equal",
    "multiple_of",
    "string_pattern_mismatch",
    "string_too_long",
    "string_too_short",
    "too_long",
    "too_short",
}


class Settings(pydantic.BaseModel):
    """The base of all settings: frozen, unknown keys forbidden, a description on every field.

    A field is a bool, int, float, str, Path or Literal, a tuple or list of one of these, or any of
    these or None; bounds are pydantic's: ``rate: float = Field(0.1, ge=0, lt=1, description="…")``.
    What must hold between fields is checked by a ``model_validator(mode="after")`` that raises a
    ValueError of one sentence.
    """

    late: ClassVar[frozenset[str]] = frozenset()
    """The settings that only matter in use: they may change after a run was prepared."""

    fixed_in_training: ClassVar[frozenset[str]] = frozenset()
    """Those of them that training keeps to, such as what it is validated on."""

    bare: ClassVar[str | None] = None
    """The setting that a command's words without ``=`` belong to, such as names of files."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Tell an author at once of a field that could not be typed or explained."""
        for name, info in cls.model_fields.items():
            if not info.description:
                raise TypeError(
                    f"{cls.__name__}.{name} has no description: write Field(…, description='…')"
                )
            try:
                in_words(info.annotation)
            except TypeError as error:
                raise TypeError(f"{cls.__name__}.{name}: {error}") from None


class NoSettings(Settings):
    """Nothing to set."""


AnySettings = TypeVar("AnySettings", bound=Settings)


def fill(
    schema: type[AnySettings],
    values: Mapping[str, object],
    prefix: str,
    *,
    typed: Mapping[str, str] = NOTHING,
    owner: str | None = None,
    schemas: Mapping[str, type[Settings]] = NOTHING,
) -> AnySettings:
    """Make ``schema`` from the text, or the ready values, of one group.

    Args:
        schema: what the group's settings are.
        values: text as typed, or values as JSON has them; what is missing takes its default.
        prefix: the group, such as ``training``; empty for settings that stand in none.
        typed: how each ``group.key`` was written, as in `Words`.
        owner: who has these settings, if that is a component, such as ``beam``.
        schemas: all groups, so that a setting in the wrong group is told the right one.

    Raises:
        SettingsError: with a `Problem` for each wrong setting.
    """
    fields = schema.model_fields
    ready = {
        key: read(value, fields[key].annotation) if key in fields else value
        for key, value in values.items()
    }
    try:
        return schema.model_validate(ready)
    except pydantic.ValidationError as error:
        wrong: dict[str, list[Any]] = {}
        for detail in error.errors(include_url=False):
            wrong.setdefault(str(detail["loc"][0]) if detail["loc"] else "", []).append(detail)

    problems: list[Problem] = []
    for key, details in wrong.items():
        place = full_name(prefix, key)
        found = {detail["type"] for detail in details}
        if found & {"value_error", "assertion_error"}:
            message = str(details[0]["ctx"]["error"])
        elif key not in fields:
            message = f"no such setting{meant(prefix, key, schema, owner, schemas)}"
        elif key not in values:
            message = f"must be given: {fields[key].description}"
        else:
            message = f"must be {required(fields[key], found)}, not {written(values[key])!r}"
        problems.append(Problem(typed.get(place, place), message))
    raise SettingsError(*problems)


def full_name(prefix: str, key: str) -> str:
    """``prefix.key``, or the one that is not empty."""
    return f"{prefix}.{key}" if prefix and key else prefix or key


def required(info: FieldInfo, found: set[str]) -> str:
    """What a field must be: its limits if ``found``, what pydantic says, is about these."""
    if found & OUT_OF_LIMITS and (bounds := limits(info)):
        return f"{bounds}, or none" if in_words(info.annotation).endswith("or none") else bounds
    return "a finite number" if "finite_number" in found else in_words(info.annotation)


def meant(
    prefix: str,
    key: str,
    schema: type[Settings],
    owner: str | None,
    schemas: Mapping[str, type[Settings]],
) -> str:
    """What ``prefix.key`` may stand for: the same name elsewhere, a near name, or all there is."""
    if elsewhere := having(key, schemas):
        return f"; did you mean {' or '.join(elsewhere)}?"
    if near := nearest(key, schema.model_fields):
        return f"; did you mean {full_name(prefix, near)}?"
    if schema.model_fields:
        return f"; {owner or prefix} has {', '.join(schema.model_fields)}"
    return f"; {owner or prefix} has no settings"


def having(key: str, schemas: Mapping[str, type[Settings]]) -> list[str]:
    """The settings of all groups that are called ``key``."""
    return [f"{group}.{key}" for group, schema in schemas.items() if key in schema.model_fields]


def unknown_groups(words: Words, schemas: Mapping[str, type[Settings]]) -> list[Problem]:
    """A problem for each setting that was typed with a group which is none of ``schemas``.

    ``lr=1`` is understood as a setting without its group, if there is one of that name.
    """
    problems: list[Problem] = []
    for group, values in words.tree.items():
        if group in schemas:
            continue
        if list(values) == ["name"] and (owners := having(group, schemas)):
            message = f"no such setting; did you mean {' or '.join(owners)}?"
        else:
            message = f"no such group{did_you_mean(group, schemas) or f'; {there_are(schemas)}'}"
        for key in values:
            place = f"{group}.{key}"
            problems.append(Problem(words.typed.get(place, place), message))
    return problems


@dataclass(frozen=True)
class Setting:
    """One line of help: what can be typed, and what it means."""

    key: str
    type: str
    default: str | None
    """As it would be typed; None if it must be given."""
    limits: str
    description: str

    def __str__(self) -> str:
        """``key=default  (type, limits)``, and the description below."""
        value = "" if self.default is None else self.default
        limits = f", {self.limits}" if self.limits else ""
        must = "; must be given" if self.default is None else ""
        return f"{self.key}={value}  ({self.type}{limits}{must})\n    {self.description}"


def describe(
    schema: type[Settings], prefix: str, defaults: Mapping[str, object] = NOTHING
) -> list[Setting]:
    """All settings of a group, with the ``defaults`` of a preset or task over the schema's own."""
    return [
        Setting(
            key=full_name(prefix, name),
            type=in_words(info.annotation),
            default=default(info, defaults.get(name, info)),
            limits=limits(info),
            description=info.description or "",
        )
        for name, info in schema.model_fields.items()
    ]


def default(info: FieldInfo, given: object) -> str | None:
    """A default as it would be typed; ``given`` is ``info`` itself where nothing stands over it."""
    if given is not info:
        return written(given)
    if info.is_required():
        return None
    return written(info.get_default(call_default_factory=True, validated_data={}))


def main(argv: list[str]) -> int:
    """List what can be set, given what is chosen.

    usage: seqtrans settings task=NAME [key=value …] [config=FILE]

    Each setting is shown with the value it would have, what it may be, and what it means. The words
    are those of seqtrans train; each component that they choose adds its own settings.

    example: seqtrans settings task=parsing decoder=beam
    """
    from seqtrans.plugins import registry
    from seqtrans.resolving import groups, packaged

    words = parse_words(argv, packaged())
    settable = groups(words, registry())
    problems: list[Problem | str] = []
    for name, group in settable.items():
        try:
            fill(group.schema, group.values, name, typed=words.typed)
        except SettingsError as error:
            # What must be given and is not is what the user came to read about.
            absent = {
                f"{name}.{key}" for key in group.schema.model_fields if key not in group.values
            }
            problems += [p for p in error.problems if getattr(p, "key", None) not in absent]
    if problems:
        raise SettingsError(*problems)
    for name, group in settable.items():
        print(name if group.name is None else f"{name}={group.name}")
        for setting in describe(group.schema, name, group.values):
            print(setting)
        print()
    return 0
