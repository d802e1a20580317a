"""``accelerate launch -m seqtrans.train task=…``: settings, then training."""

from __future__ import annotations

import sys


def main(argv: list[str]) -> int:
    """Train a model, or go on where its training stopped.

    usage: accelerate launch -m seqtrans.train task=NAME [run=FOLDER] [config=FILE] [key=value …]
           seqtrans train task=NAME …  (one process)

    The same command goes on from the newest whole checkpoint in the run folder. What can be set is
    listed by seqtrans settings task=NAME; the number of processes and the precision are the
    launcher's.

    example: accelerate launch -m seqtrans.train task=parsing model=tiny training=tiny
    """
    from seqtrans.plugins import registry
    from seqtrans.resolving import packaged, resolve
    from seqtrans.settings import parse_words

    names = registry()
    config = resolve(parse_words(argv, packaged()), names)
    # Everything that the user typed is checked; only now is torch imported.
    from seqtrans.training import run

    return run(config, names)


if __name__ == "__main__":
    from seqtrans.commands import run as command

    sys.exit(command(main, sys.argv[1:]))
