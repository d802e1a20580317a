"""From ``group.key=value`` words, and the file that ``config=`` names, to a tree of text.

Nothing is converted here: what a value may be is known only once its group's schema is. So files
are read without YAML's guesses (``no``, ``012`` and ``1e-3`` stay as they are written).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from seqtrans.errors import Problem, SettingsError

if TYPE_CHECKING:
    import yaml


@dataclass(frozen=True)
class Words:
    """What was typed."""

    tree: dict[str, dict[str, object]] = field(default_factory=dict)
    """``tree[group][key]`` is text, or a list of text where a file has a list."""

    typed: dict[str, str] = field(default_factory=dict)
    """How ``group.key`` was written: ``task`` for ``task.name``; in a file, with its line."""


@dataclass(frozen=True)
class Pair:
    """One setting as it was given; ``place`` is ``group.key``."""

    place: str
    value: object
    typed: str


def parse_words(words: Iterable[str], packaged: Mapping[str, Path] = MappingProxyType({})) -> Words:
    """Read ``key=value`` words, and under them the file that ``config=`` names.

    ``task=parsing`` is short for ``task.name=parsing``. A ``config`` without ``/`` that does not
    end in ``.yaml`` or ``.yml`` is looked up in ``packaged``.

    Raises:
        SettingsError: a word is not ``key=value``, a key is given twice, or the file cannot be
            read; with a line for each.
    """
    problems: list[Problem | str] = []
    given: dict[str, Pair] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            problems.append(f"{word!r} is not a setting: write key=value, such as training.lr=1e-3")
        elif key.startswith("-"):
            problems.append(f"{word!r}: settings begin without dashes: write {word.lstrip('-')}")
        elif not well_formed(key):
            problems.append(f"{word!r}: a setting is written group.key=value or group=name")
        elif place(key) in given:
            before = given[place(key)]
            problems.append(
                Problem(key, f"given twice, as {before.typed}={before.value} and {word}")
            )
        else:
            given[place(key)] = Pair(place(key), value, key)

    config = given.pop("config.name", None)
    try:
        under = read_file(find(str(config.value), packaged)) if config else {}
    except SettingsError as error:
        problems.extend(error.problems)
    if problems:
        raise SettingsError(*problems)

    result = Words()
    for pair in (under | given).values():
        group, _, key = pair.place.partition(".")
        result.tree.setdefault(group, {})[key] = pair.value
        result.typed[pair.place] = pair.typed
    return result


def split_bare(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """The words that are no settings, such as the names of files, and the words that are.

    A path may have ``=`` in it, but a slash stands before: no setting has one in its key.
    """
    bare: list[str] = []
    settings: list[str] = []
    for word in words:
        key, equals, _ = word.partition("=")
        is_setting = word.startswith("-") or (equals and "/" not in key)
        (settings if is_setting else bare).append(word)
    return bare, settings


def place(key: str) -> str:
    """``task`` is short for ``task.name``."""
    return key if "." in key else f"{key}.name"


def well_formed(key: str) -> bool:
    parts = key.split(".")
    return len(parts) <= 2 and all(part and not any(c.isspace() for c in part) for part in parts)


def find(name: str, packaged: Mapping[str, Path]) -> Path:
    """The file that ``config=name`` means."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    if name not in packaged:
        raise SettingsError(
            Problem(
                "config",
                f"no packaged configuration is called {name!r}{did_you_mean(name, packaged)}; "
                f"{there_are(packaged)}; a file of your own ends in .yaml, as in config=my.yaml",
            )
        )
    return packaged[name]


def read_file(path: Path) -> dict[str, Pair]:
    """The settings of a YAML file, values as text: groups of ``key: value``, or ``group: name``."""
    import yaml

    try:
        with path.open(encoding="utf-8-sig") as file:
            root = yaml.compose(file, Loader=yaml.BaseLoader)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SettingsError(Problem("config", f"{path} cannot be read: {reason}")) from error
    except UnicodeDecodeError as error:
        raise SettingsError(Problem("config", f"{path} is not UTF-8 text")) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise SettingsError(Problem("config", f"{where} is not YAML: {error.problem}")) from error
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise SettingsError(Problem("config", f"{path} is not YAML: {reason}")) from error
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise SettingsError(
            Problem("config", f"{path} must hold groups of settings, as in task: …")
        )

    problems: list[Problem] = []
    given: dict[str, Pair] = {}
    for key, node in entries(root):
        line = node.start_mark.line + 1
        where = f"{key} ({path}, line {line})"
        if key == "config":
            problems.append(Problem(where, "a file cannot name a further file"))
        elif not well_formed(key):
            problems.append(Problem(where, "a setting is written group.key or group"))
        elif place(key) in given:
            problems.append(Problem(where, f"given before, as {given[place(key)].typed}"))
        else:
            try:
                given[place(key)] = Pair(place(key), plain(node), where)
            except ValueError:
                problems.append(Problem(where, "must be one value, or a list of values"))
    if problems:
        raise SettingsError(*problems)
    return given


def entries(root: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node]]:
    """``group.key`` and value of each setting, groups opened."""
    import yaml

    for key, value in root.value:
        if isinstance(value, yaml.MappingNode):
            for inner, node in value.value:
                yield f"{key.value}.{inner.value}", node
        else:
            yield str(key.value), value


def plain(node: yaml.Node) -> object:
    """The text of a node, or the list of its items' texts; a ValueError for anything deeper."""
    import yaml

    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    if isinstance(node, yaml.SequenceNode) and all(
        isinstance(item, yaml.ScalarNode) for item in node.value
    ):
        return [str(item.value) for item in node.value]
    raise ValueError


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The one of ``words`` that ``word`` was most likely meant to be, if any is near."""
    spelt = {known.lower().replace("-", "_"): known for known in words}
    found = difflib.get_close_matches(word.lower().replace("-", "_"), spelt, n=1)
    return spelt[found[0]] if found else None


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """``; did you mean X?``, or nothing where nothing is near."""
    near = nearest(word, words)
    return f"; did you mean {near}?" if near else ""


def there_are(words: Collection[str]) -> str:
    """``there are: a, b``."""
    return f"there are: {', '.join(words)}" if words else "there are none"
