"""Fetch what a component offers for download, into a folder, resumably, and checked.

What was fetched stands in the folder's ``fetched.json``; while it is under way it lies in
``.fetch``, where the same command finds it again. That a file gets its name only once its checksum
is right is pooch's work.
"""

from __future__ import annotations

import fcntl
import json
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from seqtrans.downloads import Download, File
from seqtrans.errors import DataError, PluginError, SeqtransError, SettingsError
from seqtrans.files import delete, digest, put, write_whole, writing
from seqtrans.settings import Settings, fill
from seqtrans.words import did_you_mean, parse_words, there_are

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from seqtrans.plugins import Registry
    from seqtrans.receiving import Progress

RECORD = "fetched.json"
WORK = ".fetch"

Say = Callable[[str], None]


class FetchSettings(Settings):
    """What ``seqtrans fetch`` can be told."""

    folder: Path | None = Field(None, description="where to; none: data/NAME")


@dataclass(frozen=True)
class Offered:
    """A download, which component offers it, and where that comes from."""

    download: Download
    component: str
    provider: str


@dataclass(frozen=True)
class Entry:
    """One file as it was fetched."""

    url: str
    bytes: int
    sha256: str
    checksum: str | None
    """What it was checked against, or ``None`` if nobody was known to give a checksum."""
    checksum_from: str
    fetched: str
    """When, in UTC."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of each file that the folder holds of it."""


def offers(registry: Registry) -> dict[str, Offered]:
    """Every download there is, by name.

    Raises ``PluginError`` if different ones are offered under one name, or one can't be imported.
    """
    from seqtrans.plugins import KINDS

    found: dict[str, Offered] = {}
    for kind in KINDS:
        for component, distribution, version in registry.all(kind):
            for name, given in component.downloads.items():
                offered = Offered(
                    imported(name, given), f"{kind}={component.name}", f"{distribution} {version}"
                )
                before = found.setdefault(name, offered)
                if before.download != offered.download:
                    raise PluginError(
                        f"the download {name!r} is offered more than once, for "
                        f"{before.component} by {before.provider} and for {offered.component} by "
                        f"{offered.provider}; uninstall one of them"
                    )
    return found


def imported(name: str, given: Download | str) -> Download:
    """A download, imported now if it is written as text.

    Raises ``PluginError`` if that names none.
    """
    if isinstance(given, Download):
        return given
    try:
        download = pkgutil.resolve_name(given)
    except Exception as error:
        raise PluginError(
            f"the download {name!r} could not be imported from {given}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(download, Download):
        raise PluginError(
            f"the download {name!r} is to be a seqtrans.downloads.Download, and {given} is not"
        )
    return download


def fetch(
    download: Download,
    folder: Path,
    say: Say = print,
    progress: Callable[[str], Progress] = lambda name: lambda have, total: None,
    pause: float = 1.0,
) -> None:
    """Get into ``folder`` what isn't there yet, and check what is.

    Args:
        download: what to get.
        folder: where to; made if it isn't there.
        say: told what is being done, a line at a time.
        progress: gives, for the name of a file, what is to be told of its bytes.
        pause: seconds to wait before a cut connection is taken up again.

    Raises:
        DataError: a file can't be had, is not what its checksum says, or lacks what is wanted of
            it; or the folder holds something else under the name of something wanted.
        SeqtransError: the folder can't be written to, or another process is fetching into it.
    """
    with only_one(folder) as work:
        tidy(work, download)
        for file in download.files:
            record = read_record(folder)
            entry = record.get(file.name)
            if entry is None or not of_this(entry, file):
                refuse_others(folder, file)
            elif intact(folder, entry):
                say(f"{file.name}: there already, as fetched on {entry.fetched[:10]}")
                continue
            get(file, folder, record, say, progress(file.name), pause)


def get(
    file: File,
    folder: Path,
    record: dict[str, Entry],
    say: Say,
    progress: Progress,
    pause: float,
) -> None:
    """Download a file, check it, and put into ``folder`` what is kept of it."""
    from seqtrans.unpacking import Unpacked, unpack

    work = folder / WORK
    before = record.get(file.name)
    known, by = file.checksum, file.checksum_from
    if known is None and before is not None:
        known, by = f"sha256:{before.sha256}", f"the fetch of {before.fetched[:10]}"
    url = obtain(file, known, by, work, say, progress, pause)
    archive = work / file.name
    sha256 = digest(archive)
    unpacked = work / "unpacked"
    try:
        if file.members:
            with writing(unpacked):
                unpacked.mkdir()
            try:
                kept = unpack(archive, file.members, unpacked)
            except DataError:
                if known is None:  # Nothing says that it is what was wanted.
                    delete(archive)
                raise
        else:
            kept = {file.name: Unpacked(archive, archive.stat().st_size, sha256)}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        record[file.name] = Entry(
            url=url,
            bytes=archive.stat().st_size,
            sha256=sha256,
            checksum=file.checksum,
            checksum_from=file.checksum_from,
            fetched=now,
            kept={name: one.sha256 for name, one in kept.items()},
        )
        # The record first: what it names and isn't there is missing, not somebody else's.
        write_record(folder, record)
        with writing(folder):
            for name, one in kept.items():
                put(one.path, folder / name)
        delete(archive)
    finally:
        delete(unpacked)
    if known is None:
        say(
            f"{file.name}: no checksum is known for it; what came has the sha256 {sha256}, "
            f"noted in {folder / RECORD}"
        )
    else:
        say(f"{file.name}: right by the {known.partition(':')[0]} of {by}")


def obtain(
    file: File,
    known: str | None,
    by: str,
    work: Path,
    say: Say,
    progress: Progress,
    pause: float,
) -> str:
    """Have ``file`` in ``work``, right by the checksum ``known``; gives the URL that had it.

    Raises ``DataError`` if none of its URLs has it, with the reason of each.
    """
    import pooch

    from seqtrans.receiving import UnavailableError, forget, length, receive

    pooch.get_logger().setLevel("WARNING")
    part = work / f"{file.name}.part"
    reasons: list[str] = []

    def download(url: str, output_file: str, _: object) -> None:
        receive(
            url,
            part,
            interchangeable=known is not None,
            size=file.size,
            progress=progress,
            pause=pause,
        )
        # A second name for the same bytes: a process that is killed while pooch reads them for
        # their checksum has not lost them.
        output = Path(output_file)
        output.unlink()
        try:
            output.hardlink_to(part)
        except OSError:
            part.rename(output)

    for url in file.urls:
        if not (work / file.name).exists():
            size = f", {in_words(file.size)}" if file.size else ""
            goes_on = f", from byte {length(part):,} on" if length(part) else ""
            say(f"{file.name}: {url}{size}{goes_on}")
        try:
            with writing(work):
                pooch.retrieve(url, known, fname=file.name, path=work, downloader=download)
        except UnavailableError as reason:
            reasons.append(f"{url}: {reason}")
        except ValueError:  # pooch's word for a wrong checksum
            assert known is not None
            reasons.append(f"{url}: its {wrong(known, part)} as {by} says; it was deleted")
            forget(part)
        else:
            forget(part)
            return url
    kept = f"; {length(part):,} bytes are kept, to be gone on with" if length(part) else ""
    raise DataError(f"{file.name} can't be fetched: {'; '.join(reasons)}{kept}.")


def wrong(known: str, path: Path) -> str:
    """How a file's checksum differs from the known one."""
    import pooch

    kind, _, value = known.partition(":")
    found = pooch.file_hash(str(path), alg=kind) if path.is_file() else "another"
    return f"{kind} is {found}, not {value}"


def of_this(entry: Entry, file: File) -> bool:
    """Whether what was fetched is what would be fetched now."""
    same = file.checksum in (None, entry.checksum, f"sha256:{entry.sha256}")
    return same and set(entry.kept) == set(file.kept)


def intact(folder: Path, entry: Entry) -> bool:
    """Whether all that was kept is there.

    Raises ``DataError`` for a file that is there but has changed.
    """
    there = {name: folder / name for name in entry.kept if (folder / name).exists()}
    for name, path in there.items():
        found = digest(path) if path.is_file() else "none"
        if found != entry.kept[name]:
            raise DataError(
                f"{path} is not what was fetched on {entry.fetched[:10]}: its sha256 is {found}, "
                f"not {entry.kept[name]}; delete it to have it fetched again, or give another "
                "folder=."
            )
    return len(there) == len(entry.kept)


def refuse_others(folder: Path, file: File) -> None:
    """Raises ``DataError`` if something stands where a file is to come."""
    for name in file.kept:
        if (folder / name).exists():
            raise DataError(
                f"{folder / name} is there already, and was not fetched from {file.urls[0]}; move "
                "it, or give another folder=."
            )


def read_record(folder: Path) -> dict[str, Entry]:
    """What was fetched into a folder, by the name of the file that came.

    Raises ``DataError`` if the record is damaged.
    """
    path = folder / RECORD
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {name: Entry(**entry) for name, entry in content.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError):
        raise DataError(
            f"{path} can't be read as a record of what was fetched; delete it and the files it was "
            "about, or give another folder=."
        ) from None


def write_record(folder: Path, record: Mapping[str, Entry]) -> None:
    """Write what :func:`read_record` reads."""
    content: dict[str, Any] = {name: asdict(entry) for name, entry in record.items()}
    write_whole(folder / RECORD, json.dumps(content, indent=1) + "\n")


@contextmanager
def only_one(folder: Path) -> Iterator[Path]:
    """The folder's place for what is under way, held against other processes.

    It goes with the block's end if nothing is left in it to go on with.
    """
    work = folder / WORK
    with writing(work):
        work.mkdir(parents=True, exist_ok=True)
        lock = (work / "lock").open("a")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SeqtransError(
                f"another process is fetching into {folder}; wait for it, or give another folder=."
            ) from None
        try:
            yield work
        finally:
            with suppress(OSError):
                (work / "lock").unlink()
                work.rmdir()
                folder.rmdir()


def tidy(work: Path, download: Download) -> None:
    """Delete what a killed process left that can't be gone on with."""
    useful = {
        f"{file.name}{ending}" for file in download.files for ending in ("", ".part", ".part.json")
    }
    for path in work.iterdir():
        if path.name not in useful | {"lock"}:
            delete(path)


def in_words(size: int) -> str:
    """A number of bytes for people."""
    from rich.filesize import decimal

    return decimal(size)


def transferring() -> Bar:
    """A bar on standard error for bytes that come; none where that is no terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, highlight=False, soft_wrap=True, emoji=False),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


def listing(found: Mapping[str, Offered]) -> list[str]:
    """What there is to fetch, for people."""
    lines: list[str] = []
    for name, offered in sorted(found.items()):
        download = offered.download
        count = f"{len(download.files)} file{'' if len(download.files) == 1 else 's'}"
        if all(file.size for file in download.files):
            size = f"{count}, {in_words(download.size)}"
        elif download.size:
            size = f"{count}, more than {in_words(download.size)}"
        else:
            size = f"{count}, of unknown size"
        lines += [
            f"{name}: {download.summary}",
            f"  {size}; for {offered.component} ({offered.provider})",
            f"  terms: {download.terms}",
        ]
    return lines or ["nothing that is installed offers anything to fetch"]


def main(argv: list[str]) -> int:
    """List what can be fetched, or fetch it.

    usage: seqtrans fetch [NAME] [folder=FOLDER]

    Without a NAME nothing is fetched, but listed. The FOLDER is data/NAME if none is given. The
    same command goes on with a fetch that was cut off or killed; what is there already is checked.

    example: seqtrans fetch wmt14-en-de
    """
    names = [word for word in argv if "=" not in word]
    words = parse_words(word for word in argv if "=" in word)
    given = {
        group if key == "name" else f"{group}.{key}": value
        for group, values in words.tree.items()
        for key, value in values.items()
    }
    settings = fill(FetchSettings, given, "", owner="seqtrans fetch")
    if len(names) > 1:
        raise SettingsError(f"one download at a time, not {' and '.join(names)}")
    if settings.folder is not None and not names:
        raise SettingsError(f"what is to be fetched into {settings.folder}? give its NAME first")
    from seqtrans.plugins import registry

    found = offers(registry())
    if not names:
        print("\n".join(listing(found)))
        return 0
    (name,) = names
    if name not in found:
        raise SettingsError(
            f"nothing to fetch is called {name!r}{did_you_mean(name, found)}; {there_are(found)}"
        )
    folder = settings.folder or Path("data") / name
    print(f"terms: {found[name].download.terms}")
    with transferring() as bar:

        def progress(file: str) -> Progress:
            task = bar.add_task(file, total=None)
            return lambda have, total: bar.update(task, completed=have, total=total)

        fetch(found[name].download, folder, partial(bar.console.print, markup=False), progress)
    print(f"fetched into {folder}")
    return 0


if __name__ == "__main__":
    from seqtrans.commands import run

    sys.exit(run(main, sys.argv[1:]))
