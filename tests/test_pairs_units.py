"""Units: any text to ids and back, the same units from the same texts, and no control tokens."""

from __future__ import annotations

import json
import pickle
import random
import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtrans.errors import DataError
from seqtrans.task import Vocabulary
from seqtrans_tasks.pairs import Level
from seqtrans_tasks.pairs.units import (
    PACKED,
    REPLACEMENT,
    UNKNOWN,
    Caseless,
    Inventory,
    Pieces,
    from_json,
    learn,
    normaliser,
    splitter,
    word_pattern,
)
from seqtrans_tasks.subwords import FIRST, Kind

TEXTS = [
    "The cat sat on the mat, and the dog sat there too.",
    "Der Hund saß dort; die Katze auch!",
    "  two  blanks and three   and one at the end ",
    "tab\there, NUL\x00there, lone\rCR",
    "snow \u2603, grin \U0001f600, e\u0301 decomposed, \u00e9 composed",
    "\ufeffmark at the start and \ufeff inside, line\u2028separator, next\u0085line",
    "\u65e5\u672c\u8a9e\u306e\u6587 \ud55c\uad6d\uc5b4",
] * 3
KINDS: tuple[Kind, ...] = ("bpe", "unigram", "wordpiece")
LEVELS: tuple[Level, ...] = ("character", "word", "symbols")
PIECES = {kind: Pieces.learn(TEXTS, 330, kind) for kind in KINDS}
WORDS = re.compile(word_pattern()).findall

# What breaks others: blanks of all kinds, ends of lines, marks, control tokens, two planes.
odd = st.sampled_from(
    [*" \t\x00\r\v\f\x1c\x85\xa0\u2028\u3000\ufeff\u0301", "  ", "<s>", "</s>", "é", "😀", "Ġ", "▁"]
)
text = st.lists(odd | st.sampled_from(["the", "cat", ",", "7"]) | st.text(max_size=4)).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@given(line=text)
def test_sub_words_write_any_text(kind: Kind, line: str) -> None:
    units = PIECES[kind]
    ids = units.encode(line)
    assert units.decode(ids) == line
    assert all(FIRST <= id < units.vocabulary().size for id in ids)


@pytest.mark.parametrize("kind", KINDS)
@given(line=text)
def test_runs_between_blanks_are_encoded_as_the_words_of_the_whole_are(
    kind: Kind, line: str
) -> None:
    units = PIECES[kind]
    words = WORDS(f" {line}") if line else []
    assert "".join(words) == (f" {line}" if line else "")
    assert units.encode(line) == units.subwords.encode(words)


@given(line=text)
def test_packed_ids_are_the_ids(line: str) -> None:
    for units in (*PIECES.values(), *(Inventory.learn(TEXTS, 50, level) for level in LEVELS)):
        assert list(memoryview(units.packed(line)).cast(PACKED)) == units.encode(line)


def test_more_words_than_are_kept_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqtrans_tasks.pairs.units.REMEMBERED", 3)
    units = from_json(PIECES["bpe"].as_json())
    for line in TEXTS:
        assert units.encode(line) == PIECES["bpe"].encode(line)


@given(line=text)
def test_characters_and_words_write_what_they_know(line: str) -> None:
    for level in ("character", "word"):
        if line:
            units = learn([line], level, 1000, "bpe")  # type: ignore[arg-type]
            assert units.decode(units.encode(line)) == line


def test_what_is_long_is_not_kept_at_hand() -> None:
    units = from_json(PIECES["bpe"].as_json())
    assert isinstance(units, Pieces)
    long = "cat" * 40
    assert units.encode(f"the {long} sat") == PIECES["bpe"].encode(f"the {long} sat")
    assert set(units.known) == {"the", "sat"}


@given(line=text)
def test_symbols_write_what_stands_between_blanks_and_tabs(line: str) -> None:
    """No other white space is lost: it is part of a symbol."""
    symbols = [symbol for symbol in line.replace("\t", " ").split(" ") if symbol]
    if symbols:
        units = learn([line], "symbols", 1000, "bpe")
        assert units.decode(units.encode(line)) == " ".join(symbols)
        assert set(units.as_json()["units"]) == set(symbols)


@pytest.mark.parametrize("level", LEVELS)
def test_what_was_never_seen_has_one_id(level: Level) -> None:
    units = learn(["a b"], level, 1000, "bpe")
    ids = units.encode("a z")
    assert ids[0] != UNKNOWN
    assert ids[-1] == UNKNOWN == units.unknown
    blank = " " if level == "symbols" else ""
    assert units.decode(ids).startswith("a")
    assert units.decode([ids[0], UNKNOWN]) == f"a{blank}{REPLACEMENT}"


@pytest.mark.parametrize("level", LEVELS)
@given(numbers=st.lists(st.integers(0, 8)))
def test_any_ids_give_a_text(level: Level, numbers: list[int]) -> None:
    units = Inventory(level, ["a", " b", "c", "+", "é"])
    assert isinstance(units.decode(numbers), str)
    assert units.decode(numbers) == units.decode([id for id in numbers if id >= FIRST])


@given(numbers=st.lists(st.integers(0, FIRST + 255)))
def test_any_bytes_give_a_text(numbers: list[int]) -> None:
    assert isinstance(PIECES["bpe"].decode(numbers), str)


@pytest.mark.parametrize("name", ["<s>", "</s>", "<pad>", "<unk>", "[UNK]", "<|endoftext|>"])
def test_typed_control_tokens_stay_text(name: str) -> None:
    line = f"{name} hello {name}{name}"
    for kind in KINDS:
        for units in (PIECES[kind], Pieces.learn([line] * 5, 400, kind)):
            ids = units.encode(line)
            assert min(ids) >= FIRST
            assert units.decode(ids) == line
    for level in LEVELS:
        listed = learn([line], level, 1000, "bpe")
        assert UNKNOWN not in listed.encode(line)
        assert listed.decode(listed.encode(line)) == line


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_in_another_order_give_the_same_units(kind: Kind) -> None:
    shuffled = random.Random(3).sample(TEXTS, len(TEXTS))
    assert Pieces.learn(shuffled, 330, kind).as_json() == PIECES[kind].as_json()


@pytest.mark.parametrize("level", LEVELS)
def test_so_do_lists_of_units(level: Level) -> None:
    shuffled = random.Random(3).sample(TEXTS, len(TEXTS))
    once = Inventory.learn(TEXTS, 20, level)
    assert once.units == Inventory.learn(shuffled, 20, level).units
    counts = {unit: sum(splitter(level)(t).count(unit) for t in TEXTS) for unit in once.units}
    assert once.units == sorted(once.units, key=lambda unit: (-counts[unit], unit))


@pytest.mark.parametrize("size", [256, 257, 300, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_is_no_larger_than_said(kind: Kind, size: int) -> None:
    units = Pieces.learn(TEXTS, size, kind)
    assert 256 <= len(units.subwords.pieces) <= size
    assert replace(units.vocabulary(), fingerprint="") == Vocabulary(
        FIRST + len(units.subwords.pieces),
        paces=(False,) * FIRST + (True,) * len(units.subwords.pieces),
    )
    for line in TEXTS:
        assert units.decode(units.encode(line)) == line


@pytest.mark.parametrize("level", LEVELS)
def test_a_list_of_units_is_no_longer_than_said(level: Level) -> None:
    units = learn(TEXTS, level, 7, "bpe")
    wanted = Vocabulary(11, paces=(False,) * FIRST + (True,) * 8)
    assert replace(units.vocabulary(), fingerprint="") == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_sub_words_through_a_file(kind: Kind) -> None:
    read = from_json(json.loads(json.dumps(PIECES[kind].as_json())))
    assert read.as_json() == PIECES[kind].as_json()
    assert [read.encode(line) for line in TEXTS] == [PIECES[kind].encode(line) for line in TEXTS]


@pytest.mark.parametrize("level", LEVELS)
def test_lists_through_a_file(level: Level) -> None:
    units = learn(TEXTS, level, 1000, "bpe")
    read = from_json(json.loads(json.dumps(units.as_json())))
    assert [read.encode(line) for line in TEXTS] == [units.encode(line) for line in TEXTS]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"units": ["a"]}, "this holds no units: KeyError('level')."),
        ({"level": "symbols"}, "this holds no units: KeyError('units')."),
        ({"level": "syllable", "units": ["a"]}, "this holds no units: KeyError('syllable')."),
        (None, "this holds no units: TypeError(\"'NoneType' object is not subscriptable\")."),
    ],
)  # fmt: skip
def test_what_is_no_file_of_units(content: object, said: str) -> None:
    with pytest.raises(DataError) as caught:
        from_json(content)
    assert str(caught.value) == said


@pytest.mark.parametrize("level", ["subword", *LEVELS])
def test_nothing_to_learn_from(level: Level) -> None:
    for kind in KINDS:
        with pytest.raises(DataError) as caught:
            learn(["", ""], level, 300, kind)
        assert str(caught.value) == (f"there are no {level} units to learn: all texts are blank.")


@given(line=text, seed=st.integers(0, 99))
def test_dropped_merges_write_the_same(line: str, seed: int) -> None:
    encode = PIECES["bpe"].varied(0.5, random.Random(seed))
    assert PIECES["bpe"].decode(encode(line)) == line
    assert PIECES["bpe"].varied(0.0, random.Random(seed))(line) == PIECES["bpe"].encode(line)


def test_lists_have_no_merges_to_drop() -> None:
    with pytest.raises(NotImplementedError):
        learn(["a"], "character", 9, "bpe").varied(0.5, random.Random(0))


@pytest.mark.parametrize("form", ["nfc", "nfd", "nfkc"])
def test_unicode_forms(form: str) -> None:
    line = "\u00e9 e\u0301 \ufb01 \uac00"
    assert normaliser(form)(line) == unicodedata.normalize(form.upper(), line)  # type: ignore[arg-type]
    assert normaliser("none")(line) == line


def test_what_a_word_is() -> None:
    assert WORDS(" The cat,  (no) \t x\u2028y_z 😀") == [
        " The", " cat", ",", " ", " (", "no", ")", " ", "\t", " x", "\u2028", "y", "_", "z", " 😀",
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["none", "nfc", "nfd", "nfkc"])
def test_forms_can_be_handed_over(form: str) -> None:
    plain = normaliser(form)
    for made in (plain, Caseless(plain), Caseless(plain, frozenset({"A"}))):
        there = pickle.loads(pickle.dumps(made))
        for text in ("\u00c9", "A\tE\u0301x", "B\tX", ""):
            assert there(text) == made(text)


def test_case_goes_after_some_tags() -> None:
    some = Caseless(str, frozenset({"A"}))
    assert [some(text) for text in ("A\tXY", "B\tXY", "A", "")] == ["A\txy", "B\tXY", "A", ""]
    assert Caseless(normaliser("nfd"))("A\t\u00c9") == "a\te\u0301"
