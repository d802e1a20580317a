"""The account of pairs: it adds up, says what was dropped, and knows what was seen before."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from hashlib import blake2b
from operator import add
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtrans.errors import DataError
from seqtrans_tasks.pairs.account import REASONS, SHOWN, Account, Filters, Line, sift
from seqtrans_tasks.pairs.reading import Chunk, Files, Table
from seqtrans_tasks.pairs.repeats import Overlap, Repeats, hashes, pair_hashes

PART = Files(Path("train.en"), Path("train.de"))
TEXTS = st.text(st.sampled_from("ab \x00\u2028\u00a0"), max_size=4)
CORPORA = st.lists(st.tuples(TEXTS, TEXTS), max_size=30)
FILTERS = st.builds(
    Filters,
    max_length=st.none() | st.integers(1, 4),
    max_ratio=st.none() | st.floats(1.1, 3),
    duplicates=st.sampled_from(["keep", "drop"]),
    copies=st.sampled_from(["keep", "drop"]),
)

Pairs = Sequence[tuple[str, str]]


def cut(pairs: Pairs, size: int) -> list[Chunk]:
    return [
        Chunk(PART, at + 1, [a for a, _ in pairs[at:][:size]], [b for _, b in pairs[at:][:size]], 0)
        for at in range(0, len(pairs), size)
    ]


def sifted(
    pairs: Pairs, filters: Filters, training: bool = True, size: int = 1000
) -> tuple[list[int], Account]:
    """The lines that are kept, from 1, and the account; lengths are in characters."""
    repeats = Repeats()
    for chunk in cut(pairs, size):
        repeats.add(pair_hashes(chunk.source, chunk.target))
    repeated = repeats.found()
    lines, accounts = [], [Account()]
    for chunk in cut(pairs, size):
        kept, account = sift(
            chunk,
            filters,
            training=training,
            source_lengths=[len(line) for line in chunk.source],
            target_lengths=[len(line) for line in chunk.target],
            repeated=repeated[chunk.first - 1 :][: len(chunk)],
        )
        lines += [chunk.first + int(i) for i in kept]
        accounts.append(account)
    return lines, reduce(add, accounts)


def plain_reason(pairs: Pairs, number: int, filters: Filters) -> str | None:
    """Why a pair is dropped, said as simply as can be."""
    source, target = pairs[number]
    short, long = sorted((len(source), len(target)))
    if not source.strip():
        return "blank source"
    if not target.strip():
        return "blank target"
    if filters.max_length and long > filters.max_length:
        return "too long"
    if filters.max_ratio and short and long > filters.max_ratio * short:
        return "lengths too different"
    if filters.copies == "drop" and source == target:
        return "copy"
    if filters.duplicates == "drop" and pairs[number] in pairs[:number]:
        return "duplicate"
    return None


@given(CORPORA, FILTERS, st.integers(1, 31))
def test_the_account_adds_up(pairs: Pairs, filters: Filters, size: int) -> None:
    reasons = [plain_reason(pairs, number, filters) for number in range(len(pairs))]
    kept, account = sifted(pairs, filters, size=size)
    assert kept == [number for number, reason in enumerate(reasons, 1) if reason is None]
    assert (account.read, account.kept) == (len(pairs), len(kept))
    assert account.dropped == Counter(reason for reason in reasons if reason)
    for reason in REASONS:
        if account.dropped[reason]:
            numbers = [number for number, found in enumerate(reasons, 1) if found == reason]
            assert [line.number for line in account.first[reason]] == numbers[:SHOWN]


@given(CORPORA, FILTERS, st.integers(1, 31))
def test_nothing_held_out_is_dropped(pairs: Pairs, filters: Filters, size: int) -> None:
    kept, account = sifted(pairs, filters, training=False, size=size)
    assert kept == list(range(1, len(pairs) + 1))
    assert account.read == account.kept == len(pairs)
    assert not account.dropped
    for side, note in enumerate(("blank source", "blank target")):
        assert account.noted[note] == sum(not pair[side].strip() for pair in pairs)


@given(CORPORA, FILTERS, st.integers(1, 31))
def test_any_cut_and_json_give_the_same(pairs: Pairs, filters: Filters, size: int) -> None:
    whole = sifted(pairs, filters)[1]
    assert sifted(pairs, filters, size=size)[1] == whole
    assert Account.from_json(json.loads(json.dumps(whole.as_json()))) == whole


def test_what_is_said() -> None:
    pairs = [
        ("a", "b"),
        ("", "b"),
        ("a", "\u00a0"),
        ("aaaa", "bbbbb" * 20),
        ("a", "bbb"),
        ("aa", "aa"),
        ("a", "b"),
        ("<s> \x00", "b\u2028b "),
    ]
    filters = Filters(max_length=10, max_ratio=2.5, duplicates="drop", copies="drop")
    account = sifted(pairs, filters)[1]
    assert list(account.text("train")) == [
        "train: 8 pairs read = 2 kept + 1 blank source + 1 blank target + 1 too long + 1 lengths "
        "too different + 1 copy + 1 duplicate",
        "  dropped as blank source:",
        "    train.en, line 2: ''",
        "  dropped as blank target:",
        "    train.de, line 3: '\\xa0'",
        "  dropped as too long:",
        f"    train.de, line 4: '{60 * 'b'}…'",
        "  dropped as lengths too different:",
        "    train.en, line 5: 'a'",
        "  dropped as copy:",
        "    train.en, line 6: 'aa'",
        "  dropped as duplicate:",
        "    train.en, line 7: 'a'",
        "  kept, 1 with characters that other programs take for the end of a line, such as U+2028; "
        "they stay in the line:",
        "    train.de, line 8: 'b\\u2028b '",
        "  kept, 1 with control characters, such as NUL; they stay in the line:",
        "    train.en, line 8: '<s> \\x00'",
        "  kept, 1 with <s>, </s>, <pad> or <unk>; these are text like any other:",
        "    train.en, line 8: '<s> \\x00'",
        "  kept, 1 with blanks at the beginning or end of a line:",
        "    train.de, line 8: 'b\\u2028b '",
    ]
    assert list(account.warnings("train")) == [
        "train: 1 of 8 pairs (12.5 %) dropped as too long; is the limit meant, and are the lines "
        "single sentences?"
    ]


def test_one_percent_too_long_is_no_warning() -> None:
    account = sifted([*(99 * [("a", "b")]), ("aaa", "b")], Filters(max_length=2))[1]
    assert account.dropped == {"too long": 1}
    assert not list(account.warnings("train"))


def test_held_out_pairs_are_noted() -> None:
    account = sifted([("a", ""), ("aaa", "b")], Filters(max_length=2), training=False)[1]
    assert list(account.text("dev")) == [
        "dev: 2 pairs read = 2 kept",
        "  kept, 1 with a blank target:",
        "    train.de, line 1: ''",
        "  kept, 1 longer than the limit for training:",
        "    train.en, line 2: 'aaa'",
    ]
    assert list(account.warnings("dev")) == ["dev: 1 of 2 pairs kept with a blank target."]


def test_copies_that_are_kept() -> None:
    pairs = [("a", "a"), ("", ""), ("b", "b"), ("c", "d")]
    for training in (True, False):
        account = sifted(pairs, Filters(), training=training)[1]
        assert account.noted["equal sides"] == 2
        text = list(account.text("x"))
        place = text.index("  kept, 2 whose two sides are equal:")
        assert text[place + 1 : place + 3] == [
            "    train.en, line 1: 'a'",
            "    train.en, line 3: 'b'",
        ]
    assert list(sifted(pairs, Filters())[1].warnings("train")) == [
        "train: 2 of 3 pairs (66.7 %) have equal sides; if that is not meant, set task.copies=drop."
    ]
    # Nothing can be dropped from dev and test.
    noted = sifted(pairs[:1], Filters(), training=False)[1]
    assert not list(noted.warnings("dev"))
    # Half of them is no warning, and of copies that are dropped there is none.
    assert not list(sifted([*pairs, ("e", "f")], Filters())[1].warnings("train"))
    assert not list(sifted(pairs, Filters(copies="drop"))[1].warnings("train"))


def test_more_than_a_hundredth_in_train_is_a_warning() -> None:
    for kept, warnings in (
        (100, []),
        (
            99,
            [
                "test: 1 of 99 pairs (1.0 %) have a source that is in train as well; the model may "
                "have memorised them."
            ],
        ),
    ):
        account = Account(kept, kept) + Account(noted=Counter({"source in train": 1}))
        assert list(account.warnings("test")) == warnings


def test_lines_of_a_table() -> None:
    chunk = Chunk(Table(Path("a.tsv"), "en", "de"), 2, ["a"], [""], 0)
    account = sift(chunk, Filters(), training=True)[1]
    assert account.first == {"blank target": (Line("a.tsv", 2, "''"),)}


def test_nothing_left() -> None:
    with pytest.raises(DataError) as error:
        sifted([("", "b"), ("aaa", "b"), ("aaa", "b")], Filters(max_length=2))[1].check("train")
    assert str(error.value) == (
        "nothing is left of train: of 3 pairs all are dropped, 1 blank source + 2 too long."
    )
    with pytest.raises(DataError) as error:
        Account().check("train")
    assert str(error.value) == "train has no pairs."
    sifted([("a", "b")], Filters())[1].check("train")


@given(st.lists(st.text(max_size=2)), st.integers(1, 9))
def test_repeats_against_a_set(texts: list[str], size: int) -> None:
    repeats = Repeats()
    for at in range(0, len(texts), size):
        repeats.add(hashes(texts[at : at + size]))
    seen: set[str] = set()
    expected = []
    for text in texts:
        expected.append(text in seen)
        seen.add(text)
    assert repeats.found().tolist() == expected
    assert len(repeats) == len(texts)


def test_repeats_among_many() -> None:
    values = np.random.default_rng(1).integers(0, 150_000, 200_000).astype(np.uint64)
    spread = values * np.uint64(0x9E3779B97F4A7C15)
    repeats = Repeats()
    for part in np.array_split(spread, 7):
        repeats.add(part)
    expected = np.ones(len(values), bool)
    expected[np.unique(values, return_index=True)[1]] = False
    assert np.array_equal(repeats.found(), expected)


def test_hashes_are_the_same_everywhere() -> None:
    texts = ["", "abc", "ü"]
    assert hashes(texts).tolist() == [
        int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") for text in texts
    ]
    assert pair_hashes(["a"], ["b"]).tolist() == hashes(["a\nb"]).tolist()
    assert len(hashes([])) == 0


@given(CORPORA, CORPORA, st.integers(1, 5))
def test_overlap_against_sets(held_out: Pairs, train: Pairs, size: int) -> None:
    def prints(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        sources, targets = [a for a, _ in pairs], [b for _, b in pairs]
        return hashes(sources), pair_hashes(sources, targets)

    overlap, other = Overlap(*prints(held_out)), Overlap(*prints(held_out))
    for number, at in enumerate(range(0, len(train), size)):
        (overlap, other)[number % 2].look(*prints(train[at : at + size]))
    overlap += other
    sources = {source for source, _ in train}
    assert overlap.sources == sum(source in sources for source, _ in held_out)
    assert overlap.pairs == sum(pair in set(train) for pair in held_out)
