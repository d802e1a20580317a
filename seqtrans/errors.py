"""What goes wrong because of what a user gave us: shown as one sentence, without a traceback."""

from __future__ import annotations

from dataclasses import dataclass


class SeqtransError(Exception):
    """A mistake that the user can mend; ``str(error)`` says what, where and what would be right."""


@dataclass(frozen=True)
class Problem:
    """One wrong setting: the key in the words that the user typed, and what is wrong with it."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class SettingsError(SeqtransError):
    """One or more settings are wrong; the message has one line for each of ``problems``."""

    def __init__(self, *problems: Problem | str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class PluginError(SeqtransError):
    """A component is unknown, offered twice, or its plug-in could not be loaded."""


class DataError(SeqtransError):
    """A data file is missing, malformed, or does not fit the others."""


class CheckpointError(SeqtransError):
    """A run folder or checkpoint is missing, incomplete, damaged, or of an incompatible format."""
