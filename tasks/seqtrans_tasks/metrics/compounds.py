"""Compounds split at their hyphens, as tensor2tensor's ``get_ende_bleu.sh`` does for En-De.

It raises BLEU by 0.7 to 1, and the paper's 27.3 and 28.4 have it: `BLEU` without it can't be
compared with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Over bytes: white space is ASCII's alone, and what the pattern eats on the right is one byte, so
# that the hyphen after a letter beyond ASCII is still split, and that after a single ASCII one not.
HYPHEN = re.compile(rb"(\S)-(\S)")


def split_compounds(lines: Iterable[str]) -> list[str]:
    """Each line with `` ##AT##-##AT## `` for every hyphen between two characters that are no space.

    One pass from the left: ``a-b-c`` becomes ``a ##AT##-##AT## b-c``, whereas ``ab-cd-ef`` is split
    twice.
    """
    return [HYPHEN.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode() for line in lines]
