"""The front door: ``python -m benchmarks COMMAND key=value …``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from seqtrans.commands import run
from seqtrans.errors import SettingsError
from seqtrans.words import did_you_mean, there_are

COMMANDS = ("record", "verify", "board", "generate", "preparing", "variants", "decoders")
"""Each is a module of this package whose ``main`` is the command, and its docstring the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Call the command that the first word names, and give its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in COMMANDS:
        return run(importlib.import_module(f"benchmarks.{words[0]}").main, words[1:])
    return run(front, words or ["--help"])


def front(words: list[str]) -> int:
    """Record results of finished runs, score them again, and show them; measure speed.

    usage: python -m benchmarks COMMAND [key=value …]

      record     decode a split with a finished run, score it, and write the result as a row
      verify     check every row, and score it again from its hypotheses where the data is at hand
      board      show all rows as tables, and write them into the README of the results
      generate   write a corpus of pairs of any size, as long as real ones
      preparing  time the preparation of a corpus, beside what users do today
      variants   train with each of several settings and several seeds, and compare the scores
      decoders   decode a split in several ways, and compare scores, outputs and time

    python -m benchmarks COMMAND --help tells more of a command.

    example: python -m benchmarks verify
    """
    hint = f"{did_you_mean(words[0], COMMANDS)}; {there_are(COMMANDS)}"
    raise SettingsError(f"no command is called {words[0]!r}{hint}")


if __name__ == "__main__":
    sys.exit(main())
