"""What ``seqtrans fetch`` can be asked for: which files, from where, what pins them down.

These are records alone; nothing here reads, writes or connects. A component offers them by its
field ``downloads``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

SCHEMES = ("https", "http", "ftp", "file")
CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class File:
    """One file to fetch, and what of it is kept."""

    urls: tuple[str, ...]
    """Where it lies; those after the first are mirrors. All end in the same name, or the first
    one's is used."""

    checksum: str | None = None
    """``sha256:…`` or ``md5:…``, or ``None`` if nobody is known to give one: then the first fetch
    records what came, and later ones compare."""

    checksum_from: str = ""
    """Who gives the checksum, for people."""

    size: int | None = None
    """In bytes, if it is known."""

    members: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What is kept of an archive (tar of any compression, zip, or a lone .gz, whose one member is
    called as it is without ``.gz``), and under which name. Without any, the file is kept whole."""

    def __post_init__(self) -> None:
        if not self.urls:
            raise ValueError("a file to fetch needs a URL")
        for url in self.urls:
            if urlsplit(url).scheme not in SCHEMES:
                raise ValueError(f"a URL begins with one of {', '.join(SCHEMES)}, not as {url!r}")
        if self.checksum is not None and not CHECKSUM.fullmatch(self.checksum):
            raise ValueError(
                f"a checksum is sha256: or md5: and lower-case hexadecimal digits, "
                f"not {self.checksum!r}"
            )
        if (self.checksum is None) != (not self.checksum_from):
            raise ValueError("a checksum, and who gives it, belong together")
        for name in (self.name, *self.members.values()):
            if not is_plain(name):
                raise ValueError(
                    f"a file is kept under a plain name, without folders, not {name!r}"
                )

    @property
    def name(self) -> str:
        """What the file is called where it lies."""
        return PurePosixPath(unquote(urlsplit(self.urls[0]).path)).name

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of what the folder holds of it in the end."""
        return tuple(self.members.values()) or (self.name,)


@dataclass(frozen=True, kw_only=True)
class Download:
    """A data set that can be fetched into a folder."""

    summary: str
    """One line."""

    terms: str
    """Under which terms it may be used, and whose word that is."""

    files: tuple[File, ...]

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("a download needs a file")
        names = [file.name for file in self.files]
        kept = [name for file in self.files for name in file.kept]
        for each in (names, kept):
            for name in each:
                if each.count(name) > 1:
                    raise ValueError(f"two files of a download are called {name!r}")

    @property
    def size(self) -> int:
        """The bytes of all files whose size is known."""
        return sum(file.size or 0 for file in self.files)


def is_plain(name: str) -> bool:
    """Whether a name is that of a visible file in the folder itself."""
    return bool(name) and not name.startswith(".") and not set(name) & set("/\\\0")
