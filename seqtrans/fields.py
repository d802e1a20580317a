"""The types that a setting may have: how each is read from text, written, and said in words.

Pydantic checks values; it neither reads ``0.9,0.98`` and ``none`` nor says what it wants in plain
language.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

SINGULAR: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    types.NoneType: "none",
}
PLURAL: dict[Any, str] = {int: "whole numbers", float: "numbers", str: "words", Path: "paths"}
LIMITS: tuple[tuple[Any, str, str], ...] = (
    (annotated_types.Gt, "gt", "above {}"),
    (annotated_types.Ge, "ge", "at least {}"),
    (annotated_types.Lt, "lt", "below {}"),
    (annotated_types.Le, "le", "at most {}"),
    (annotated_types.MultipleOf, "multiple_of", "a multiple of {}"),
    (annotated_types.MinLen, "min_length", "of length {} or more"),
    (annotated_types.MaxLen, "max_length", "of length {} or less"),
)


@dataclass(frozen=True)
class Arm:
    """One alternative of a type, with the constraints that stand at it."""

    type: Any
    constraints: tuple[Any, ...] = ()

    @property
    def items(self) -> tuple[Any, ...]:
        """The types of a sequence's items: one if there may be any number, none if no sequence."""
        if get_origin(self.type) not in (tuple, list):
            return ()
        return tuple(item for item in get_args(self.type) if item is not ...)

    @property
    def fixed(self) -> bool:
        """Whether it is a sequence of one length only."""
        return get_origin(self.type) is tuple and ... not in get_args(self.type)


def arms(annotation: Any) -> list[Arm]:
    """The alternatives of a type, in order, with ``Annotated`` taken off."""
    found: list[Arm] = []
    pending: list[Arm] = [Arm(annotation)]
    while pending:
        arm = pending.pop(0)
        if get_origin(arm.type) is Annotated:
            inner, *metadata = get_args(arm.type)
            for entry in metadata:
                added = entry.metadata if isinstance(entry, FieldInfo) else [entry]
                arm = Arm(inner, (*arm.constraints, *added))
            pending.insert(0, arm)
        elif get_origin(arm.type) in (Union, types.UnionType):
            pending[:0] = [Arm(inner, arm.constraints) for inner in get_args(arm.type)]
        else:
            found.append(arm)
    return found


def in_words(annotation: Any) -> str:
    """A type in plain language, such as ``a whole number or none``.

    Raises:
        TypeError: it is none that a setting may have.
    """
    return " or ".join(arm_in_words(arm) for arm in arms(annotation))


def arm_in_words(arm: Arm) -> str:
    """One alternative in plain language."""
    if arm.type in SINGULAR:
        return SINGULAR[arm.type]
    if get_origin(arm.type) is Literal:
        return choice(arm, "one of")
    if arm.items:
        kinds = {plural(item) for item in arm.items}
        count = f"{len(arm.items)} " if arm.fixed else ""
        return f"{count}{kinds.pop() if len(kinds) == 1 else 'values'} separated by commas"
    raise TypeError(
        f"a setting cannot be of type {getattr(arm.type, '__name__', arm.type)}; it may be bool, "
        "int, float, str, Path, Literal, a tuple or list of these, or None, all of them known when "
        "the class is made"
    )


def plural(annotation: Any) -> str:
    """The items of a sequence in plain language."""
    kinds = arms(annotation)
    if len(kinds) == 1 and kinds[0].type in PLURAL:
        return PLURAL[kinds[0].type]
    if len(kinds) == 1 and get_origin(kinds[0].type) is Literal:
        return choice(kinds[0], "any of")
    raise TypeError("the items of a tuple or list may be int, float, str, Path or Literal")


def choice(arm: Arm, lead: str) -> str:
    """The values of a Literal."""
    values = [written(value) for value in get_args(arm.type)]
    return f"{lead} {', '.join(values)}" if len(values) > 1 else values[0]


def limits(info: FieldInfo) -> str:
    """The bounds of a field, such as ``at least 0 and below 1``; empty if it has none."""
    kinds = arms(info.annotation)
    own = [*info.metadata, *(constraint for arm in kinds for constraint in arm.constraints)]
    each = [
        constraint
        for arm in kinds
        for item in arm.items
        for inner in arms(item)
        for constraint in inner.constraints
    ]
    said = dict.fromkeys([*map(limit, own), *(f"{limit(c)} each" for c in each if limit(c))])
    return " and ".join(phrase for phrase in said if phrase)


def limit(constraint: Any) -> str:
    """One bound in plain language; empty for what is not a bound."""
    for kind, attribute, phrase in LIMITS:
        if isinstance(constraint, kind):
            return phrase.format(written(getattr(constraint, attribute)))
    pattern = getattr(constraint, "pattern", None)
    return f"of the form {pattern}" if pattern else ""


def read(value: object, annotation: Any) -> object:
    """Turn text, or a sequence of texts, into what ``annotation`` asks for.

    What cannot be read is left as it is, for pydantic to refuse. ``None`` is tried first and text
    last.
    """
    order = (types.NoneType, bool, int, float)
    kinds = sorted(
        arms(annotation), key=lambda arm: (arm.type not in order, arm.type in (str, Path))
    )
    for arm in kinds:
        if isinstance(value, list | tuple) and arm.items:
            kinds_of_items = arm.items if arm.fixed else arm.items * len(value)
            if len(kinds_of_items) == len(value):
                return [read(item, kind) for item, kind in zip(value, kinds_of_items, strict=True)]
        elif isinstance(value, str):
            try:
                return read_text(value, arm)
            except ValueError:
                continue
    return value


def read_text(text: str, arm: Arm) -> object:
    """Turn text into the one type, or raise a ValueError."""
    if arm.items:
        return read(separate(text), arm.type)
    if get_origin(arm.type) is Literal:
        return {written(value): value for value in get_args(arm.type)}.get(text, text)
    return READERS[arm.type](text)


def separate(text: str) -> list[str]:
    """``a, b`` with or without brackets round it."""
    bare = text.strip()
    if bare[:1] + bare[-1:] in ("[]", "()"):
        bare = bare[1:-1].strip()
    return [item.strip() for item in bare.split(",")] if bare else []


def none(text: str) -> None:
    """``none``, or YAML's ``null``."""
    if text.lower() not in ("none", "null"):
        raise ValueError


def switch(text: str) -> bool:
    """true, yes, on or false, no, off."""
    if text.lower() in ("true", "yes", "on"):
        return True
    if text.lower() in ("false", "no", "off"):
        return False
    raise ValueError


def whole(text: str) -> int:
    """A whole number; ``1e5`` is one."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if number.is_integer():
            return int(number)
        raise


READERS: dict[Any, Callable[[str], object]] = {
    types.NoneType: none,
    bool: switch,
    int: whole,
    float: float,
    str: str,
    Path: Path,
}


def written(value: object) -> str:
    """A value as it is typed."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(written(item) for item in value)
    return str(value)
