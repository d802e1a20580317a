"""The front door: ``seqtrans COMMAND key=value …``, and ``python -m seqtrans`` as well."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from seqtrans import __version__
from seqtrans.commands import COMMANDS, run
from seqtrans.errors import SettingsError
from seqtrans.words import did_you_mean, there_are


def main(argv: Sequence[str] | None = None) -> int:
    """Call the command that the first word names, and give its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in COMMANDS:
        return run(importlib.import_module(f"seqtrans.{words[0]}").main, words[1:])
    return run(front, words or ["--help"])


def front(words: list[str]) -> int:
    """Train and use models that turn one sequence into another.

    usage: seqtrans COMMAND [key=value …]

      fetch      list the data sets that can be fetched, or fetch one
      doctor     say what a task's raw data is like, before any training
      plan       say what a training will take: parameters, FLOPs, memory, time
      prepare    read a task's raw data and write what training needs
      train      train a model, or go on where its training stopped
      evaluate   decode a split of the data and score it
      compare    say whether runs or files of outputs differ by more than chance
      transduce  turn each line of standard input into one of standard output
      attend     show what each head of a model looks at, as a page in a browser
      export     write a run in the format of another engine
      average    average the newest checkpoints of a run
      plugins    list what can be chosen by name, and where it comes from
      settings   list what can be set

    seqtrans COMMAND --help tells more of a command; seqtrans --version tells the version.

    example: seqtrans settings task=parsing
    """
    if words == ["--version"]:
        print(f"seqtrans {__version__}")
        return 0
    hint = f"{did_you_mean(words[0], COMMANDS)}; {there_are(COMMANDS)}"
    raise SettingsError(f"no command is called {words[0]!r}{hint}")


if __name__ == "__main__":
    sys.exit(main())
