"""Any number of pairs into mapped arrays: streamed, on all cores, the same files every time.

The training text is read twice. The first time it is counted, and units are learnt from a sample of
it: all pairs, or every second, fourth, … so that no more than the sample's size are held. The
second time it is encoded, sifted and written, in the order in which it was read. Where there is no
dev, it is read once more between the two, for the pairs that are held out: all pairs of some
sources. In the end `seqtrans.prepare` reads all files again, for their SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from seqtrans.corpus import Array, Writer
from seqtrans.errors import DataError
from seqtrans.files import read_json
from seqtrans.reporting import measuring
from seqtrans_tasks.pairs import PairsSettings
from seqtrans_tasks.pairs.account import IN_TRAIN, SHOWN, Account, Filters, Line, sift
from seqtrans_tasks.pairs.reading import Chunk, Part, bytes_of, files_of, shortened
from seqtrans_tasks.pairs.repeats import (
    BUCKETS,
    Hashes,
    Overlap,
    Repeats,
    hashes,
    pair_hashes,
)
from seqtrans_tasks.pairs.units import EOS, Form, Pieces, Units, from_json, learn

Read = Callable[[Part], Iterator[Chunk]]
"""How a part is read: `reading.chunks`, or what another task has instead."""

SPLITS = ("train", "dev", "test")
SIDES = ("source", "target")
SOURCE_UNITS, TARGET_UNITS = (f"{side}.units.json" for side in SIDES)
IDS = np.dtype(np.int32)
Ids = NDArray[np.int32]
END = np.array([EOS], IDS).tobytes()
"""What ends every source, packed."""
WORTH = 50_000
"""Pairs from which on it is worth the time to start more processes."""
CHARACTERS = 100_000_000
"""So many characters of both sides are learnt from at most, as the setting says."""


@dataclass
class Sample:
    """Pairs at even distances among all, at most ``size``, and ``CHARACTERS`` if they are long."""

    size: int
    every: int = 1
    seen: int = 0
    characters: int = 0
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)

    def look(self, chunk: Chunk) -> None:
        """Take what belongs to the sample of the next pairs."""
        first = -self.seen % self.every
        sources, targets = chunk.source[first :: self.every], chunk.target[first :: self.every]
        self.sources += sources
        self.targets += targets
        self.seen += len(chunk)
        self.characters += sum(map(len, chain(sources, targets)))
        while len(self.sources) > 1 and (
            len(self.sources) > self.size or self.characters > CHARACTERS
        ):
            self.sources, self.targets = self.sources[::2], self.targets[::2]
            self.every *= 2
            self.characters = sum(map(len, chain(self.sources, self.targets)))


@dataclass
class Survey:
    """What the first reading of the training text found."""

    sizes: list[int]
    """Pairs in each part."""
    sample: Sample
    repeated: NDArray[np.bool_] | None
    """Which pairs are equal to an earlier one, if those are to be dropped."""
    sources: list[Hashes]
    """Hashes of all sources, 8 bytes each, if some are to be held out."""


def survey(
    parts: Sequence[Part], read: Read, form: Form, settings: PairsSettings, *, hold_out: bool
) -> Survey:
    """Count the training text and take a sample of it."""
    sample, sizes = Sample(settings.sample), []
    repeats = Repeats() if settings.duplicates == "drop" else None
    sources: list[Hashes] = []
    with measuring("reading", sum(map(bytes_of, parts))) as done:
        for part in parts:
            before = sample.seen
            for chunk in read(part):
                sample.look(chunk)
                if repeats is not None:
                    repeats.add(pair_hashes(map(form, chunk.source), chunk.target))
                if hold_out:
                    sources.append(hashes(map(form, chunk.source)))
                done(chunk.done)
            sizes.append(sample.seen - before)
    return Survey(sizes, sample, repeats.found() if repeats is not None else None, sources)


def learn_units(sample: Sample, form: Form, settings: PairsSettings) -> tuple[Units, Units]:
    """The units of source and target, the same if they are shared."""
    sources = map(form, sample.sources)
    if settings.shared:
        texts = chain(sources, sample.targets)
        both = learn(texts, settings.levels[0], settings.vocabulary, settings.subwords)
        return both, both
    source, target = (
        learn(texts, level, settings.vocabulary, settings.subwords)
        for texts, level in zip((sources, sample.targets), settings.levels, strict=True)
    )
    return source, target


def read_units(folder: Path) -> tuple[Units, Units]:
    """The units that were written into a folder, source and target. Raises ``DataError``."""

    def read(name: str) -> Units:
        path = folder / name
        return from_json(read_json(path), str(path))

    source = read(SOURCE_UNITS)
    return source, read(TARGET_UNITS) if (folder / TARGET_UNITS).exists() else source


def units_of(run: Path, settings: PairsSettings) -> tuple[Units, Units]:
    """The units of another run. Raises ``DataError`` if it has none, or none such as are wanted."""
    if not (run / "task" / SOURCE_UNITS).is_file():
        raise DataError(f"task.units={run}: there is no run of pairs with units of its own.")
    source, target = read_units(run / "task")
    levels, shared = (source.level, target.level), source is target
    if (levels, shared) != (settings.levels, settings.shared):
        raise DataError(
            f"task.units={run}: its units are {described(levels, shared)}, and those that are "
            f"wanted here {described(settings.levels, settings.shared)}."
        )
    return source, target


def described(levels: tuple[str, str], shared: bool) -> str:
    """The levels of source and target in words."""
    return f"{levels[0]} for both sides together" if shared else f"{levels[0]} and {levels[1]}"


@dataclass(frozen=True)
class Encoded:
    """A chunk as ids, what is kept of it, and what became of the rest."""

    sides: tuple[tuple[Ids, Array], tuple[Ids, Array]]
    units: tuple[Array, Array]
    """The lengths of what is kept, without what ends a source."""
    unknown: tuple[int, int]
    """How many of these units have no id of their own."""
    account: Account
    kept: Array
    pairs: Hashes
    overlap: Overlap | None


@dataclass
class Encoder:
    """What encodes chunks, in this process or in others."""

    source: Units
    target: Units
    form: Form
    """Of sources; in it they are told apart as well."""
    filters: Filters
    scored: tuple[Hashes, Hashes] | None = None
    """Hashes of the sources and of the pairs of dev and test, to be looked for."""
    held_out: HeldOut | None = None
    """What is left out of train, for dev."""
    training: bool = True

    def __call__(self, chunk: Chunk, repeated: NDArray[np.bool_] | None = None) -> Encoded:
        """Encode a chunk; ``repeated`` says which pairs are left out as such."""
        formed = list(map(self.form, chunk.source))
        sources = list(map(self.source.packed, formed))
        targets = list(map(self.target.packed, chunk.target))
        lengths = [
            np.fromiter(map(len, side), np.int64, len(side)) // IDS.itemsize
            for side in (sources, targets)
        ]
        kept, account = sift(
            chunk,
            self.filters,
            training=self.training,
            source_lengths=lengths[0],
            target_lengths=lengths[1],
            repeated=repeated,
            held_out=None if self.held_out is None else self.held_out.flags(chunk.source),
        )
        pairs, overlap = pair_hashes(formed, chunk.target)[kept], None
        if self.scored is not None:
            overlap = Overlap(*self.scored)
            overlap.look(hashes(formed)[kept], pairs)
        source, target = joined(sources, kept, END), joined(targets, kept)
        return Encoded(
            (source, target),
            (lengths[0][kept], lengths[1][kept]),
            (unknown(source[0], self.source), unknown(target[0], self.target)),
            account,
            kept,
            pairs,
            overlap,
        )

    def __getstate__(self) -> dict[str, Any]:
        shared = self.source is self.target
        sides = {
            "source": self.source.as_json(),
            "target": None if shared else self.target.as_json(),
        }
        return {**vars(self), **sides}

    def __setstate__(self, state: dict[str, Any]) -> None:
        source = from_json(state["source"])
        target = source if state["target"] is None else from_json(state["target"])
        vars(self).update({**state, "source": source, "target": target})


def unknown(ids: Ids, units: Units) -> int:
    """How many of the ids stand for what has none of its own."""
    return 0 if units.unknown is None else int(np.count_nonzero(ids == units.unknown))


def joined(rows: list[bytes], kept: Array, end: bytes = b"") -> tuple[Ids, Array]:
    """The packed rows ``kept`` end to end, ``end`` after each of them, and their lengths."""
    chosen = [rows[i] + end for i in kept.tolist()]
    lengths = np.fromiter(map(len, chosen), np.int64, len(chosen)) // IDS.itemsize
    return np.frombuffer(b"".join(chosen), IDS), lengths


_encoder: Encoder
"""That of a worker process."""


def _begin(encoder: Encoder, processes: int) -> None:
    global _encoder
    _encoder = encoder
    for units in (encoder.source, encoder.target):
        if isinstance(units, Pieces):
            units.share_memory(processes)
    # Ctrl-C is the parent's matter; and if that is killed, nobody else would end this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode(job: Job) -> Encoded:
    return _encoder(job.chunk, job.repeated)


def encoded(
    jobs: Iterator[Job], encoder: Encoder, processes: int
) -> Iterator[tuple[int, Chunk, Encoded]]:
    """Each chunk with its part and what ``encoder`` makes of it, in order, by so many processes.

    No more than two chunks for each process are held at a time.
    """
    if processes == 1:
        for job in jobs:
            yield job.part, job.chunk, encoder(job.chunk, job.repeated)
        return
    with ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=_begin, initargs=(encoder, processes)
    ) as pool:
        waiting: deque[tuple[Job, Future[Encoded]]] = deque()
        for job in jobs:
            waiting.append((job, pool.submit(_encode, job)))
            if len(waiting) >= 2 * processes:
                first, future = waiting.popleft()
                yield first.part, first.chunk, future.result()
        for first, future in waiting:
            yield first.part, first.chunk, future.result()


class Split:
    """A split while it is written: its pairs are counted, and taken into its fingerprint."""

    def __init__(self) -> None:
        self.account = Account()
        self.digest = hashlib.sha256()
        self.units, self.longest, self.unknown = [0, 0], [0, 0], [0, 0]

    def note(self, chunk: Chunk, done: Encoded) -> None:
        """Count what is kept of a chunk."""
        self.account += done.account
        for i in done.kept.tolist():
            self.digest.update(f"{chunk.source[i]}\n{chunk.target[i]}\n".encode())
        for side, lengths in enumerate(done.units):
            self.units[side] += int(lengths.sum())
            self.longest[side] = max(self.longest[side], int(lengths.max(initial=0)))
            self.unknown[side] += done.unknown[side]

    def as_json(self) -> dict[str, Any]:
        """For the summary."""
        return {
            "account": self.account.as_json(),
            "fingerprint": self.digest.hexdigest(),
            "units": self.units,
            "longest": self.longest,
            "unknown": self.unknown,
        }


def prepare(
    parts: Mapping[str, Sequence[Part]],
    read: Read,
    form: Form,
    settings: PairsSettings,
    folder: Path,
) -> dict[str, Any]:
    """Write units, the training corpus, and the lines of dev and test; the summary of it all.

    Sources are encoded in ``form``, and two are the same if they are so in it. Raises ``DataError``
    for text that can't be read, and if nothing is left to train on.
    """
    known = None if settings.units is None else units_of(settings.units, settings)
    found = survey(parts["train"], read, form, settings, hold_out=not parts["dev"])
    source, target = known or learn_units(found.sample, form, settings)
    every = found.sample.every
    del found.sample
    write_json(folder / SOURCE_UNITS, source.as_json())
    if target is not source:
        write_json(folder / TARGET_UNITS, target.as_json())
    filters = Filters(settings.max_length, settings.max_ratio, settings.duplicates, settings.copies)
    # Everything is evaluated as it stands; what is too long or blank is noted.
    encoder = Encoder(source, target, form, filters, training=False)
    held: dict[str, Held] = {}
    held_out = None
    if not parts["dev"]:
        held_out = HeldOut(held_out_sources(found.sources, settings.dev_size), form)
    found.sources.clear()
    for name in ("dev", "test"):
        if parts[name]:
            chunks: Iterable[Chunk] = chain.from_iterable(map(read, parts[name]))
        elif name == "dev" and held_out is not None:
            chunks = held_out.chunks(chain.from_iterable(map(read, parts["train"])))
        else:
            continue
        held[name] = hold(chunks, encoder, folder, name)
    sources, pairs = (
        np.concatenate(side)
        for side in zip(*(split.hashes for split in held.values()), strict=True)
    )
    encoder = Encoder(source, target, form, filters, (sources, pairs), held_out)
    overlap = Overlap(sources, pairs)
    train, facts = write(parts["train"], read, encoder, found, overlap, folder / "train")
    train.account.check("the training text")
    facts["overlap"] = {
        name: note_overlap(split, overlap, folder / f"{name}.{SIDES[0]}")
        for name, split in held.items()
    }
    splits = {"train": train, **{name: split.split for name, split in held.items()}}
    return {
        "splits": {name: split.as_json() for name, split in splits.items()},
        "sample": {"every": every, "pairs": -(-sum(found.sizes) // every)},
        **facts,
    }


@dataclass(frozen=True)
class Held:
    """Dev or test, once its lines are written."""

    split: Split
    hashes: tuple[Hashes, Hashes]
    """Of the sources and of the pairs."""
    chunks: list[tuple[int, Part, int]]
    """Of each chunk the number of its first pair, from 0, its part, and its first line there."""


def hold(chunks: Iterable[Chunk], encoder: Encoder, folder: Path, name: str) -> Held:
    """Write the lines of dev or test. Raises ``DataError`` if there are none."""
    split, sources, pairs = Split(), [], []
    places: list[tuple[int, Part, int]] = []
    with ExitStack() as stack:
        files = [
            stack.enter_context((folder / f"{name}.{side}").open("w", encoding="utf-8", newline=""))
            for side in SIDES
        ]
        for chunk in chunks:
            places.append((split.account.read, chunk.part, chunk.first))
            split.note(chunk, encoder(chunk))
            for file, lines in zip(files, (chunk.source, chunk.target), strict=True):
                file.writelines(f"{line}\n" for line in lines)
            sources.append(hashes(map(encoder.form, chunk.source)))
            pairs.append(pair_hashes(map(encoder.form, chunk.source), chunk.target))
    if not pairs:
        raise DataError(f"{name} has no pairs.")
    return Held(split, (np.concatenate(sources), np.concatenate(pairs)), places)


def note_overlap(held: Held, overlap: Overlap, written: Path) -> dict[str, int]:
    """How many sources and pairs of dev or test are in train as well.

    The account of the split notes the sources, with the first of its lines, ``written``.
    """
    sources, pairs = (
        np.isin(mine, found[seen])
        for mine, (found, _), seen in zip(held.hashes, overlap.held_out, overlap.seen, strict=True)
    )
    numbers = np.flatnonzero(sources)
    if len(numbers):
        first = first_lines(held, numbers[:SHOWN].tolist(), written)
        noted = Counter({IN_TRAIN: len(numbers)})
        held.split.account += Account(noted=noted, first={IN_TRAIN: first})
    return {"sources": len(numbers), "pairs": int(pairs.sum())}


def first_lines(held: Held, numbers: Sequence[int], written: Path) -> tuple[Line, ...]:
    """Some sources of dev or test, by their numbers in rising order, and where they stand."""
    found = []
    with written.open(encoding="utf-8", newline="\n") as file:
        for number, text in enumerate(islice(file, numbers[-1] + 1)):
            if number in numbers:
                start, part, first = [chunk for chunk in held.chunks if chunk[0] <= number][-1]
                name = str(files_of(part)[0])
                found.append(Line(name, first + number - start, shortened(text[:-1])))
    return tuple(found)


@dataclass(frozen=True)
class HeldOut:
    """Which training pairs are held out for dev, where there is none: all those of some sources."""

    sources: Hashes
    """The hashes of the sources in their form."""
    form: Form

    def flags(self, sources: Sequence[str]) -> NDArray[np.bool_]:
        """For each of the sources: is it held out?"""
        return np.isin(hashes(map(self.form, sources)), self.sources)

    def chunks(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The held-out pairs of these chunks, one in each."""
        for chunk in chunks:
            for i in np.flatnonzero(self.flags(chunk.source)).tolist():
                number = chunk.first + i
                yield Chunk(chunk.part, number, [chunk.source[i]], [chunk.target[i]], chunk.done)


def held_out_sources(sources: Sequence[Hashes], size: int) -> Hashes:
    """The hashes of sources that ``size`` pairs have, at most a tenth of all, or nearly so many.

    They are the lowest hashes, so that nothing depends on the order of the text. Sources with too
    many pairs are passed over; if all have, the one with fewest is taken. Raises ``DataError`` if
    nothing would be left to train on.
    """
    total = sum(map(len, sources))
    if total < 2:
        raise DataError(
            f"there is {total} pair to train on, and none can be held out for dev; name more "
            "files, or dev."
        )
    left = max(1, min(size, total // 10))
    found: list[Hashes] = []
    fewest = total, np.uint64(0)
    for first in range(BUCKETS):  # so large a part of all hashes at a time, to save memory
        values, counts = np.unique(
            np.concatenate([some[some >> 60 == first] for some in sources]),
            return_counts=True,
        )
        if len(values):
            least = counts.argmin()
            fewest = min(fewest, (int(counts[least]), values[least]))
        while (fits := counts <= left).any():
            values, counts = values[fits], counts[fits]
            taken = int(np.searchsorted(np.cumsum(counts), left, side="right"))
            found.append(values[:taken])
            left -= int(counts[:taken].sum())
            values, counts = values[taken:], counts[taken:]
        if not left:
            break
    if not found and fewest[0] == total:
        raise DataError(
            f"all {total:,} pairs to train on have the same source, and none can be held out for "
            "dev; name more files, or dev."
        )
    return np.concatenate(found) if found else np.array([fewest[1]])


def write(
    parts: Sequence[Part],
    read: Read,
    encoder: Encoder,
    found: Survey,
    overlap: Overlap,
    folder: Path,
) -> tuple[Split, dict[str, Any]]:
    """Write the training corpus; what it is, with the sizes of its parts and what repeats.

    ``overlap`` is told what of dev and test is in it.
    """
    split, repeats, total = Split(), Repeats(), sum(found.sizes)
    largest = max(units.vocabulary().size for units in (encoder.source, encoder.target))
    processes = 1 if total < WORTH else cores()
    sizes = [0] * len(parts)
    with (
        Writer(folder, largest) as writer,
        measuring("encoding", sum(map(bytes_of, parts))) as done,
    ):
        jobs = numbered(parts, read, found)
        for part, chunk, result in encoded(jobs, encoder, processes):
            writer.append(*result.sides)
            split.note(chunk, result)
            repeats.add(result.pairs)
            if result.overlap is not None:
                overlap += result.overlap
            sizes[part] += len(result.kept)
            done(chunk.done)
    return split, {"parts": sizes, "repeats": int(repeats.found().sum())}


@dataclass(frozen=True)
class Job:
    """A chunk to be encoded, and which of its pairs were there before, if that matters."""

    part: int
    chunk: Chunk
    repeated: NDArray[np.bool_] | None


def numbered(parts: Sequence[Part], read: Read, found: Survey) -> Iterator[Job]:
    """The chunks of all parts, each with its place.

    Raises ``DataError`` if a part isn't what it was in the first reading.
    """
    first = end = 0
    for number, part in enumerate(parts):
        end += found.sizes[number]
        for chunk in read(part):
            if first + len(chunk) > end:
                refuse_changed(part)
            here = slice(first, first + len(chunk))
            yield Job(number, chunk, None if found.repeated is None else found.repeated[here])
            first += len(chunk)
        if first != end:
            refuse_changed(part)


def refuse_changed(part: Part) -> NoReturn:
    """Raises ``DataError`` for a part that has changed since it was first read."""
    names = " or ".join(map(str, files_of(part)))
    raise DataError(
        f"{names} has changed while it was prepared: its pairs are not as many as a moment ago; "
        "start again when nobody writes it."
    )


def cores() -> int:
    """How many processor cores there are for this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
