"""EVALB's parameters: which labels and words count, built in or from a ``.prm`` file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

from seqtrans.errors import DataError, SettingsError


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What counts: the contents of a ``.prm`` file.

    EVALB's limit on errors (``MAX_ERROR``) has no place here: every sentence is scored.
    Raises `SettingsError` for a label or word in two classes of equivalents.
    """

    name: str
    """Stands in reports and signatures."""
    labelled: bool = True
    """Whether brackets must agree in their labels, or in their words only."""
    delete_labels: frozenset[str] = frozenset()
    """A leaf with such a tag is left out; a constituent loses its bracket and keeps its words."""
    delete_labels_for_length: frozenset[str] = frozenset()
    """Tags of the leaves that do not count in a sentence's length."""
    equivalent_labels: tuple[frozenset[str], ...] = ()
    """Classes of labels, and of tags, that count as one."""
    equivalent_words: tuple[frozenset[str], ...] = ()
    """Classes of words that count as one."""
    quote_labels: frozenset[str] = frozenset()
    """Tags that parsers mix up on quotation marks; if one of the two deletes the mark, it stays."""
    cutoff: int = 40
    """The greatest length of a gold sentence in the totals of short sentences."""

    def __post_init__(self) -> None:
        for kind, classes in (("label", self.equivalent_labels), ("word", self.equivalent_words)):
            for one, other in combinations(classes, 2):
                if both := one & other:
                    raise SettingsError(
                        f"parameters {self.name}: the {kind} {min(both)!r} is in two classes of "
                        "equivalents; a class must hold all that count as one."
                    )

    @classmethod
    def read(cls, path: str | Path) -> Parameters:
        """The settings of a file in EVALB's format, called by the file's name.

        Raises `DataError`, with the line, for what EVALB would pass over with a warning: an unknown
        setting, a missing or wrong value; and where equivalences do not close (A = B, B = C but
        not A = C), since EVALB's result then hangs on the order of brackets.
        """
        path = Path(path)
        labels: dict[str, set[str]] = {name: set() for name in _LISTS}
        pairs: dict[str, list[frozenset[str]]] = {"EQ_LABEL": [], "EQ_WORD": []}
        numbers = {"DEBUG": 0, "MAX_ERROR": 10, "LABELED": 1, "CUTOFF_LEN": 40}
        for number, line in enumerate(lines_of(path), start=1):
            if line.startswith("#") or not line.strip():
                continue
            where = f"{path}, line {number}"
            setting, *values = line.split()
            if line[0].isspace() or not (setting in labels or setting in pairs | numbers):
                raise DataError(
                    f"{where}: {line.strip()!r} is not a setting; a line begins with one of "
                    f"{', '.join([*numbers, *labels, *pairs])}, or with # for a remark."
                )
            wanted = 2 if setting in pairs else 1
            if len(values) != wanted:
                raise DataError(
                    f"{where}: {setting} takes {('one value', 'two values')[wanted - 1]}, "
                    f"not {len(values)}."
                )
            if setting in labels:
                labels[setting].add(values[0])
            elif setting in pairs:
                pairs[setting].append(frozenset(values))
            else:
                numbers[setting] = _whole_number(values[0], setting, where)
        return cls(
            name=path.name,
            labelled=bool(numbers["LABELED"]),
            **{_LISTS[setting]: frozenset(found) for setting, found in labels.items()},
            equivalent_labels=_classes(pairs["EQ_LABEL"], "EQ_LABEL", path),
            equivalent_words=_classes(pairs["EQ_WORD"], "EQ_WORD", path),
            cutoff=numbers["CUTOFF_LEN"],
        )

    @cached_property
    def _label_representatives(self) -> dict[str, str]:
        return _representatives(self.equivalent_labels)

    @cached_property
    def _word_representatives(self) -> dict[str, str]:
        return _representatives(self.equivalent_words)

    @cached_property
    def _bracket_names(self) -> _BracketNames:
        return _BracketNames(self)


_LISTS = {
    "DELETE_LABEL": "delete_labels",
    "DELETE_LABEL_FOR_LENGTH": "delete_labels_for_length",
    "QUOTE_LABEL": "quote_labels",
}


def _whole_number(value: str, setting: str, where: str) -> int:
    if not re.fullmatch("[01]" if setting == "LABELED" else "[0-9]+", value):
        right = "0 or 1" if setting == "LABELED" else "a whole number"
        raise DataError(f"{where}: {setting} must be {right}, not {value!r}.")
    return int(value)


def _classes(pairs: list[frozenset[str]], setting: str, path: Path) -> tuple[frozenset[str], ...]:
    """The classes that pairs of equivalents make up."""
    classes: list[frozenset[str]] = []
    for pair in pairs:
        touched = [known for known in classes if known & pair]
        classes = [known for known in classes if not known & pair]
        classes.append(pair.union(*touched))
    for known in classes:
        for one, other in combinations(sorted(known), 2):
            if frozenset((one, other)) not in pairs:
                raise DataError(
                    f"{path}: {setting} joins {one} and {other} by way of others only, so the "
                    f"score would hang on the order of brackets; add the line {setting} {one} "
                    f"{other}."
                )
    return tuple(classes)


def _representatives(classes: tuple[frozenset[str], ...]) -> dict[str, str]:
    """The one member that stands for each member of a class."""
    return {member: min(known) for known in classes for member in known}


class _BracketNames(dict[str, str | None]):
    """What each label counts as, worked out when first asked; ``None`` where it does not count."""

    def __init__(self, parameters: Parameters) -> None:
        self.labelled = parameters.labelled
        # A trimmed label holds no "=", so that no other label has such a name.
        classes = parameters.equivalent_labels
        self.common = {label: "=".join(sorted(known)) for known in classes for label in known}
        self.deleted = {self.common.get(label, label) for label in parameters.delete_labels}

    def __missing__(self, label: str) -> str | None:
        # Trimmed before it is compared: a constituent -NONE- is trimmed to "" and so counts.
        trimmed = _FUNCTION_TAG.split(label, maxsplit=1)[0]
        name = self.common.get(trimmed, trimmed)
        found = None if name in self.deleted else name if self.labelled else UNLABELLED
        self[label] = found
        return found


_FUNCTION_TAG = re.compile("[-=]")
UNLABELLED = "*"
"""What every label counts as where labels are not compared."""

COLLINS = Parameters(
    name="COLLINS",
    delete_labels=frozenset(("TOP", "-NONE-", ",", ":", "``", "''", ".")),
    delete_labels_for_length=frozenset(("-NONE-",)),
    equivalent_labels=(frozenset(("ADVP", "PRT")),),
)
"""The parameters that papers on the Penn Treebank report (COLLINS.prm)."""

NEW = dataclasses.replace(
    COLLINS,
    name="NEW",
    delete_labels=COLLINS.delete_labels | {"S1", "?", "!"},
    quote_labels=frozenset(("``", "''", "POS", "NN", "CD", "VBZ", ":")),
)
"""As `COLLINS` for parsers with the root S1, and forgiving mixed-up quotation marks (new.prm)."""

_BUILT_IN = {"COLLINS": COLLINS, "NEW": NEW}


def parameters_named(name: str) -> Parameters:
    """``COLLINS``, ``NEW``, or what the ``.prm`` file at this path says (`Parameters.read`)."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if not Path(name).is_file():
        raise DataError(
            f"{name!r} is neither COLLINS nor NEW nor a parameter file; name one of them."
        )
    return Parameters.read(name)


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file, ended by line feeds alone: no other character ends a line of trees."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\r\n")
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: the file is not UTF-8 text: {error}.") from error
