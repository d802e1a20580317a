"""The commands, and what all of them do about help, mistakes and interruptions."""

from __future__ import annotations

import errno
import inspect
import os
import sys
from collections.abc import Callable, Sequence

from seqtrans.errors import SeqtransError

COMMANDS = (
    "fetch",
    "doctor",
    "plan",
    "prepare",
    "train",
    "evaluate",
    "compare",
    "transduce",
    "attend",
    "export",
    "average",
    "plugins",
    "settings",
)
"""Each is a module of this package whose ``main`` is the command, and its docstring the help."""
REFUSED = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)
"""What an operating system says of a path that was named wrongly or belongs to others."""


def run(main: Callable[[list[str]], int], argv: Sequence[str] | None = None) -> int:
    """Call a command's ``main`` with the words after its name, and give the exit status.

    ``--help`` or ``-h`` anywhere prints the docstring of ``main``. A `SeqtransError` is told on
    standard error and is 2, and so is a path that may not be used; Ctrl-C is 130 and a closed pipe
    141, both without a word.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if "--help" in words or "-h" in words:
            print(inspect.getdoc(main))
            status = 0
        else:
            status = main(words)
        sys.stdout.flush()
    except SeqtransError as error:
        for line in str(error).splitlines():
            print(f"seqtrans: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The interpreter flushes standard output once more at its end, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno in REFUSED and error.filename is not None:
            print(f"seqtrans: {error.filename}: {error.strerror}.", file=sys.stderr)
            return 2
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(
            "seqtrans: no space left on the device; nothing half-written is used.", file=sys.stderr
        )
        return 2
    return status
