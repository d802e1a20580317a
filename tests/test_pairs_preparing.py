"""Preparing pairs: the same files from the same text, accounts that add up, nothing half-done."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtrans.corpus import Corpus
from seqtrans.errors import DataError
from seqtrans_tasks.pairs import PairsSettings, preparing
from seqtrans_tasks.pairs.preparing import HeldOut, Sample, held_out_sources, prepare
from seqtrans_tasks.pairs.reading import Chunk, Files, Part, Table, chunks
from seqtrans_tasks.pairs.repeats import Hashes, hashes
from seqtrans_tasks.pairs.units import EOS, Pieces, from_json, learn, normaliser

Pair = tuple[str, str]
SIDES = ("source", "target")


def drawn(count: int, seed: int = 0) -> list[Pair]:
    """Pairs of different lengths, none of them there twice."""
    draw = random.Random(seed)
    words = [
        "the",
        "a",
        "cat",
        "dog",
        "sees",
        "hears,",
        "Bär",
        "日本",
        "don't",
        "x\u2028y",
        "e\u0301",
    ]
    pairs = []
    for number in range(count):
        line = " ".join(draw.choices(words, k=draw.randint(1, 8)))
        pairs.append((f"{seed} {number} {line}", f"{number} {line.upper()}"))
    return pairs


def files(folder: Path, name: str, pairs: list[Pair], *, dos: bool = False) -> Files:
    """The two sides of pairs in files, perhaps as an old editor saves them."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}.{side}" for side in SIDES]
    for path, lines in zip(paths, zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\r\n" if dos else f"{line}\n" for line in lines)
        path.write_bytes(("\ufeff" * dos + text).encode())
    return Files(*paths)


def made(
    folder: Path,
    train: list[Part],
    dev: list[Part] | None = None,
    test: list[Part] | None = None,
    read: preparing.Read = chunks,
    **given: Any,
) -> dict[str, Any]:
    """The summary of what is prepared in a folder, which is made."""
    folder.mkdir()
    settings = PairsSettings(**{"level": "character", **given})
    parts = {"train": train, "dev": dev or [], "test": test or []}
    return prepare(parts, read, normaliser(settings.normalise), settings, folder)


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def trained_on(folder: Path) -> list[Pair]:
    """The pairs of the training corpus, back from their ids."""
    corpus = Corpus.open(folder / "train")
    units = [from_json(json.loads((folder / "source.units.json").read_text("utf-8")))]
    target = folder / "target.units.json"
    units.append(from_json(json.loads(target.read_text("utf-8"))) if target.exists() else units[0])
    pairs = []
    for source, wanted in zip(corpus.sources, corpus.targets, strict=True):
        assert source[-1] == EOS
        assert EOS not in source[:-1]
        assert EOS not in wanted
        pairs.append((units[0].decode(source.tolist()), units[1].decode(wanted.tolist())))
    return pairs


def held(folder: Path, split: str) -> list[Pair]:
    """The pairs of dev or test."""
    sides = [(folder / f"{split}.{side}").read_bytes().decode().split("\n")[:-1] for side in SIDES]
    return list(zip(*sides, strict=True))


def failure(*arguments: Any, **given: Any) -> str:
    """What is said when preparing fails."""
    with pytest.raises(DataError) as caught:
        made(*arguments, **given)
    return str(caught.value)


# The same files from the same text

KINDS: list[dict[str, Any]] = [
    {"level": "character"},
    {"level": "word", "shared": False},
    {"level": "symbols"},
    {"level": "subword", "vocabulary": 300},
    {"level": "subword", "vocabulary": 300, "subwords": "wordpiece", "normalise": "nfd"},
    {"level": "subword", "vocabulary": 300, "subwords": "unigram", "shared": False},
    {"source_level": "character", "target_level": "subword", "shared": False, "vocabulary": 300},
]


@pytest.mark.parametrize("given", KINDS, ids=str)
def test_ends_of_lines_and_marks_make_no_difference(tmp_path: Path, given: dict[str, Any]) -> None:
    """And two runs give the same files, whatever the units are."""
    found = []
    for name, dos in (("clean", False), ("again", False), ("dos", True)):
        folder = tmp_path / name
        folder.mkdir()
        parts: list[list[Part]] = [
            [files(folder / "data", split, drawn(count, seed), dos=dos)]
            for seed, (split, count) in enumerate((("train", 40), ("dev", 5), ("test", 4)))
        ]
        summary = made(folder / "task", *parts, **given)
        said = json.dumps(summary).replace(str(folder), "")
        found.append((content(folder / "task"), said))
    assert found[0] == found[1] == found[2]
    assert set(found[0][0]) == {
        *("source.units.json", "dev.source", "dev.target", "test.source", "test.target"),
        *(f"train/{side}s{end}.npy" for side in SIDES for end in ("", ".bounds")),
        *(["target.units.json"] if given.get("shared") is False else []),
    }


def test_packed_files_and_tables_give_the_same(tmp_path: Path) -> None:
    pairs, dev = drawn(50), drawn(5, 1)
    plain = files(tmp_path, "train", pairs)
    dev_files = files(tmp_path, "dev", dev)
    packed = []
    for path in (plain.source, plain.target):
        packed.append(path.with_name(f"{path.name}.gz"))
        packed[-1].write_bytes(gzip.compress(path.read_bytes()))
    table = tmp_path / "train.tsv"
    lines = ["target\tother\tsource", *(f"{target}\t?\t{source}" for source, target in pairs)]
    table.write_text("\n".join(lines), encoding="utf-8")
    numbered = tmp_path / "numbered.tsv.gz"
    numbered.write_bytes(gzip.compress("\n".join(lines[1:]).encode()))
    ways: list[Part] = [
        plain,
        Files(packed[0], packed[1]),
        Table.of(table, "source", "target"),
        Table.of(numbered, "3", "1"),
    ]
    found = []
    for number, part in enumerate(ways):
        made(tmp_path / str(number), [part], [dev_files])
        found.append(content(tmp_path / str(number)))
    assert all(one == found[0] for one in found)
    assert trained_on(tmp_path / "0") == pairs


def test_several_processes_give_the_same_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = drawn(300)
    pairs[7] = pairs[3]
    pairs[8] = ("", "blank")
    dev = files(tmp_path, "dev", [*drawn(5, 1), pairs[3]])
    train: list[Part] = [files(tmp_path, "a", pairs[:200]), files(tmp_path, "b", pairs[200:])]
    given: dict[str, Any] = {"level": "subword", "vocabulary": 300, "duplicates": "drop"}

    def read(part: Part) -> Iterator[Chunk]:
        return chunks(part, 30)

    one = made(tmp_path / "one", train, [dev], read=read, **given)
    monkeypatch.setattr(preparing, "WORTH", 1)
    monkeypatch.setattr(preparing, "cores", lambda: 2)
    two = made(tmp_path / "two", train, [dev], read=read, **given)
    assert one == two
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert one["splits"]["train"]["account"]["dropped"] == {"blank source": 1, "duplicate": 1}
    assert one["overlap"] == {"dev": {"sources": 1, "pairs": 1}}
    assert one["parts"] == [198, 100]


def test_what_is_held_out_is_the_same_in_another_process() -> None:
    """It is told by the text alone, wherever a chunk stands."""
    lines = [f"{number % 70}" for number in range(300)]
    units = learn(lines, "character", 300, "bpe")
    form = normaliser("nfc")
    held_out = HeldOut(held_out_sources([hashes(lines)], 20), form)
    encoder = preparing.Encoder(units, units, form, preparing.Filters(), held_out=held_out)
    there = pickle.loads(pickle.dumps(encoder))  # as it is handed over
    for first in (0, 130):
        chunk = Chunk(Files(Path("a"), Path("b")), 1, lines[first:], lines[first:], 0)
        kept = np.flatnonzero(~held_out.flags(lines[first:]))
        assert np.array_equal(encoder(chunk).kept, kept)
        assert np.array_equal(there(chunk).kept, kept)
        assert 0 < len(kept) < len(chunk)


def test_processes_share_what_is_kept_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "_encoder", None, raising=False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(preparing, "Thread", lambda **_: type("", (), {"start": lambda _: None})())
    units = learn(["a b"], "subword", 300, "bpe")
    assert isinstance(units, Pieces)
    whole = units.known.size
    preparing._begin(preparing.Encoder(units, units, str, preparing.Filters()), 4)
    assert units.known.size == whole // 4


def test_what_fails_in_one_of_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "WORTH", 1)
    monkeypatch.setattr(preparing, "cores", lambda: 2)
    train: list[Part] = [files(tmp_path, "train", [("", "a"), ("b", " ")])]
    dev: list[Part] = [files(tmp_path, "dev", drawn(2))]
    assert failure(tmp_path / "task", train, dev) == (
        "nothing is left of the training text: of 2 pairs all are dropped, 1 blank source + "
        "1 blank target."
    )


def test_large_vocabularies_need_larger_numbers(tmp_path: Path) -> None:
    count = 70_000
    symbols = [chr(0x10000 + number) for number in range(count)]
    lines = [" ".join(symbols[first : first + 1000]) for first in range(0, count, 1000)]
    part = files(tmp_path, "train", [(line, line[:5]) for line in lines])
    dev = files(tmp_path, "dev", [("a", "b")])
    made(tmp_path / "task", [part], [dev], level="symbols", vocabulary=100_000, max_length=None)
    assert Corpus.open(tmp_path / "task" / "train").sources.values.dtype == np.int32
    assert [source for source, _ in trained_on(tmp_path / "task")] == lines


# The sample


@given(total=st.integers(0, 200), size=st.integers(1, 40), step=st.integers(1, 50))
def test_the_sample_is_spread_evenly(total: int, size: int, step: int) -> None:
    sample = Sample(size)
    lines = [str(number) for number in range(total)]
    for first in range(0, total, step):
        some = lines[first : first + step]
        sample.look(Chunk(Files(Path("a"), Path("b")), 1, some, [f"-{one}" for one in some], 0))
    every = 1
    while -(-total // every) > size:
        every *= 2
    assert (sample.every, sample.seen) == (every, total)
    assert sample.sources == lines[::every]
    assert sample.targets == [f"-{line}" for line in lines[::every]]


@given(lengths=st.lists(st.integers(0, 30), max_size=60), most=st.integers(1, 200),
       step=st.integers(1, 20))  # fmt: skip
def test_the_sample_of_long_lines_is_smaller(lengths: list[int], most: int, step: int) -> None:
    lines = ["x" * length for length in lengths]
    sample = Sample(40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "CHARACTERS", most)
        for first in range(0, len(lines), step):
            some = lines[first : first + step]
            sample.look(Chunk(Files(Path("a"), Path("b")), 1, some, some, 0))
    every = 1
    while len(lines) > every and (-(-len(lines) // every) > 40 or 2 * sum(lengths[::every]) > most):
        every *= 2
    assert sample.every == every
    assert sample.sources == sample.targets == lines[::every]


def test_units_come_from_the_sample_alone(tmp_path: Path) -> None:
    pairs = [(letter, letter) for letter in "abcdefghij"]
    dev = files(tmp_path, "dev", [("a", "b")])
    summary = made(tmp_path / "task", [files(tmp_path, "train", pairs)], [dev], sample=3)
    units = json.loads((tmp_path / "task" / "source.units.json").read_text())
    assert units["units"] == ["a", "e", "i"]
    assert summary["sample"] == {"every": 4, "pairs": 3}


# What is kept


def test_the_account(tmp_path: Path) -> None:
    train = [
        ("one", "eins"),
        ("", "blank"),
        ("blank", "  "),
        ("one", "eins"),
        ("copy", "copy"),
        ("x" * 11, "long"),
        ("short", "x" * 10),
        ("much longer", "x"),
        ("two", "zwei"),
        ("two", "deux"),
    ]
    dev = [("", "blank"), ("two", "zwei"), ("x" * 12, ""), ("one", "uno"), ("two", "zwei")]
    test = [("three", "drei"), ("one", "eins")]
    parts: list[list[Part]] = [
        [files(tmp_path, name, pairs)]
        for name, pairs in (("train", train), ("dev", dev), ("test", test))
    ]
    summary = made(
        tmp_path / "task",
        *parts,
        max_length=10,
        max_ratio=4.0,
        duplicates="drop",
        copies="drop",
    )
    account = summary["splits"]["train"]["account"]
    assert (account["read"], account["kept"]) == (10, 4)
    assert account["dropped"] == {
        "blank source": 1,
        "blank target": 1,
        "too long": 2,
        "copy": 1,
        "duplicate": 1,
    }
    assert trained_on(tmp_path / "task") == [train[0], train[6], train[8], train[9]]
    assert summary["splits"]["train"]["longest"] == [5, 10]
    assert summary["splits"]["train"]["units"] == [3 + 5 + 3 + 3, 4 + 10 + 4 + 4]
    account = summary["splits"]["dev"]["account"]
    assert (account["read"], account["kept"], account["dropped"]) == (5, 5, {})
    assert account["noted"] == {
        "blank source": 1,
        "blank target": 1,
        "too long": 1,
        "source in train": 3,
    }
    assert held(tmp_path / "task", "dev") == dev
    assert held(tmp_path / "task", "test") == test
    assert summary["overlap"] == {
        "dev": {"sources": 3, "pairs": 2},
        "test": {"sources": 1, "pairs": 1},
    }
    assert account["first"]["source in train"] == [
        {"file": str(tmp_path / "dev.source"), "number": number, "text": f"'{text}'"}
        for number, text in ((2, "two"), (4, "one"), (5, "two"))
    ]
    assert summary["repeats"] == 0
    assert summary["parts"] == [4]


def test_pairs_that_are_kept_twice_are_counted(tmp_path: Path) -> None:
    pairs = [*drawn(6), *drawn(2)]
    dev = files(tmp_path, "dev", drawn(2, 1))
    summary = made(tmp_path / "task", [files(tmp_path, "train", pairs)], [dev])
    assert summary["repeats"] == 2
    assert trained_on(tmp_path / "task") == pairs


@pytest.mark.parametrize(("total", "size", "held_out"), [(2, 9, 1), (19, 9, 1), (60, 9, 6),
                                                        (60, 3, 3), (61, 1, 1)])  # fmt: skip
def test_dev_is_held_out(tmp_path: Path, total: int, size: int, held_out: int) -> None:
    pairs = drawn(total)
    cut = total // 2
    parts: list[Part] = [files(tmp_path, "a", pairs[:cut]), files(tmp_path, "b", pairs[cut:])]
    summary = made(tmp_path / "task", parts, dev_size=size)
    dev, train = held(tmp_path / "task", "dev"), trained_on(tmp_path / "task")
    assert len(dev) == held_out
    assert not set(dev) & set(train)
    assert [pair for pair in pairs if pair not in dev] == train
    assert summary["splits"]["train"]["account"]["dropped"] == {"held out for dev": held_out}
    assert summary["splits"]["dev"]["account"]["read"] == held_out
    assert summary["overlap"] == {"dev": {"sources": 0, "pairs": 0}}


def test_all_pairs_of_a_source_are_held_out_together(tmp_path: Path) -> None:
    """Also those whose sources are written in another form of Unicode, and in any order."""
    forms = ("\u00e9 {}", "e\u0301 {}", "\u00e9 {}")
    pairs = [(forms[number % 3].format(number // 3), str(number)) for number in range(120)]
    random.Random(1).shuffle(pairs)
    found = []
    for order in (pairs, pairs[::-1]):
        folder = tmp_path / str(len(found))
        part = files(tmp_path, f"train{len(found)}", order)
        summary = made(folder, [part], normalise="nfc")
        dev, train = held(folder, "dev"), trained_on(folder)
        numbers = {int(source.split()[1]) for source, _ in dev}
        assert len(dev) == 3 * len(numbers) == 12
        assert not numbers & {int(source.split()[1]) for source, _ in train}
        assert summary["overlap"] == {"dev": {"sources": 0, "pairs": 0}}
        found.append(sorted(dev))
    assert found[0] == found[1]


@given(counts=st.lists(st.integers(1, 30), min_size=2), size=st.integers(1, 99),
       step=st.integers(1, 99), draw=st.randoms(use_true_random=False))  # fmt: skip
def test_which_sources_are_held_out(
    counts: list[int], size: int, step: int, draw: random.Random
) -> None:
    """Against the plain way: one source after another, in the order of their hashes."""
    lines = [str(source) for source, count in enumerate(counts) for _ in range(count)]
    draw.shuffle(lines)
    given = hashes(lines)
    found = held_out_sources([given[at : at + step] for at in range(0, len(given), step)], size)
    left = max(1, min(size, len(lines) // 10))
    plain: list[int] = []
    of_each = Counter(given.tolist())
    for value, count in sorted(of_each.items()):
        if count <= left:
            plain.append(value)
            left -= count
    if not plain:
        plain.append(min(of_each, key=lambda value: (of_each[value], value)))
    assert found.tolist() == plain
    assert sum(of_each[value] for value in plain) < len(lines)
    held_out = HeldOut(found, str)
    assert held_out.flags(lines).tolist() == [value in plain for value in given.tolist()]


def test_many_sources_are_held_out_exactly() -> None:
    values: Hashes = np.random.default_rng(1).integers(0, 1 << 64, 100_000, np.uint64)
    assert np.array_equal(held_out_sources([values], 1000), np.sort(values)[:1000])


# What can't be done


def test_one_pair_is_not_enough_for_both(tmp_path: Path) -> None:
    part = files(tmp_path, "train", drawn(1))
    assert failure(tmp_path / "task", [part]) == (
        "there is 1 pair to train on, and none can be held out for dev; name more files, or dev."
    )


def test_one_source_is_not_enough_for_both(tmp_path: Path) -> None:
    part = files(tmp_path, "train", [("one", "eins"), ("one", "uno"), ("one", "un")])
    assert failure(tmp_path / "task", [part]) == (
        "all 3 pairs to train on have the same source, and none can be held out for dev; name more "
        "files, or dev."
    )


def test_all_dropped(tmp_path: Path) -> None:
    part = files(tmp_path, "train", drawn(3))
    dev = files(tmp_path, "dev", drawn(1, 1))
    assert failure(tmp_path / "task", [part], [dev], max_length=1) == (
        "nothing is left of the training text: of 3 pairs all are dropped, 3 too long."
    )


def test_nothing_but_blanks(tmp_path: Path) -> None:
    part = files(tmp_path, "train", [("", "")] * 3)
    dev = files(tmp_path, "dev", drawn(1))
    for number, level in enumerate(("subword", "character")):
        assert failure(tmp_path / str(number), [part], [dev], level=level) == (
            f"there are no {level} units to learn: all texts are blank."
        )


def test_a_split_without_pairs(tmp_path: Path) -> None:
    part = files(tmp_path, "train", drawn(3))
    dev = files(tmp_path, "dev", drawn(1))

    def read(part: Part) -> Iterator[Chunk]:
        return iter(()) if part is dev else chunks(part)

    assert failure(tmp_path / "task", [part], [dev], read=read) == "dev has no pairs."


def test_unequal_sides(tmp_path: Path) -> None:
    part = files(tmp_path, "train", drawn(1000))
    part.target.write_text("".join(f"{number}\n" for number in range(999)))
    assert failure(tmp_path / "task", [part]).startswith(
        f"{part.source} has 1,000 lines and {part.target} 999; line by line they must belong "
        "together."
    )
    assert content(tmp_path / "task") == {}


@pytest.mark.parametrize("duplicates", ["keep", "drop"])
@pytest.mark.parametrize("change", ["more", "fewer", "none"])
def test_files_that_change_meanwhile(tmp_path: Path, change: str, duplicates: str) -> None:
    pairs = drawn(6)
    part, last = files(tmp_path, "train", pairs), files(tmp_path, "last", drawn(3, 1))
    dev = files(tmp_path, "dev", drawn(1, 2))
    changed = {"more": [*pairs, *drawn(1, 3)], "fewer": pairs[1:], "none": pairs}[change]
    readings = 0

    def read(one: Part) -> Iterator[Chunk]:
        nonlocal readings
        if one is part:
            readings += 1
            if readings == 2:
                files(tmp_path, "train", changed)
        return chunks(one)

    if change == "none":
        made(tmp_path / "task", [part, last], [dev], read=read, duplicates=duplicates)
    else:
        found = failure(tmp_path / "task", [part, last], [dev], read=read, duplicates=duplicates)
        assert found == (
            f"{part.source} or {part.target} has changed while it was prepared: its pairs are not "
            "as many as a moment ago; start again when nobody writes it."
        )


def test_killed_half_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from seqtrans.__main__ import main
    from seqtrans.files import damage

    part = files(tmp_path, "train", drawn(30))
    run = tmp_path / "run"
    words = [
        *("prepare", "task=pairs", "task.level=character", f"run={run}"),
        *(f"task.train_source={part.source}", f"task.train_target={part.target}"),
    ]
    script = (
        "import os, signal\n"
        "from seqtrans.corpus import Writer\n"
        "Writer.append = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from seqtrans.__main__ import main\n"
        "main()\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (run / "task").exists()
    assert main(words) == 0
    assert capsys.readouterr().err == (
        f"seqtrans: an earlier preparation in {run} was not finished; what it left is deleted.\n"
    )
    assert damage(run / "task") is None
    assert [path.name for path in run.iterdir() if path.suffix == ".tmp"] == []


def test_no_torch() -> None:
    """The processes that encode start in a moment."""
    script = "import sys, seqtrans_tasks.pairs.preparing; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_as_many_processes_as_cores() -> None:
    assert 1 <= preparing.cores() <= (os.cpu_count() or 1)
