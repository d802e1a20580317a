"""Sub-words: exact for any text, free of control tokens, and learnt the same way every time."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from seqtrans_tasks.subwords import BLANK, DRAWS, FIRST, Kind, Subwords

LINE = " the harbour the harbours a ferry the ferries left leaving harboured"
TEXT = [f" {word}" for word in LINE.split() * 20]
KINDS = {kind: Subwords.learn(TEXT, 300, kind) for kind in get_args(Kind)}
SUBWORDS = KINDS["bpe"]

every_kind = pytest.mark.parametrize("kind", KINDS)
anything = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=5)


@every_kind
@settings(deadline=None)
@given(words=anything)
def test_every_text_can_be_written_and_comes_back(kind: str, words: list[str]) -> None:
    subwords = KINDS[kind]
    ids = subwords.encode(words)
    assert subwords.decode(ids) == "".join(words)
    assert all(FIRST <= id < FIRST + len(subwords.pieces) for id in ids)


@settings(deadline=None)
@given(anything, st.floats(0, 1), st.integers(0, 99))
def test_whatever_is_dropped_writes_the_same(words: list[str], dropout: float, seed: int) -> None:
    for word in words:
        assert SUBWORDS.decode(SUBWORDS.drop(word, dropout, Random(seed))) == word


@settings(deadline=None)
@given(anything)
def test_dropping_no_merge_is_encoding(words: list[str]) -> None:
    for word in words:
        assert SUBWORDS.drop(word, 0.0, Random(1)) == SUBWORDS.word(word)


def test_dropping_every_merge_leaves_bytes() -> None:
    ids = SUBWORDS.drop(" harbour", 1.0, Random(1))
    assert [SUBWORDS.pieces[id - FIRST] for id in ids] == [BLANK, *"harbour"]


def test_an_epoch_of_dropout_is_a_function_of_its_random_numbers() -> None:
    draws = []
    for seed in (1, 1, 2):
        word = SUBWORDS.varied(0.3, Random(seed))
        draws.append([word(text) for text in TEXT])
    assert draws[0] == draws[1] != draws[2]


def test_frequent_words_are_segmented_as_often_as_if_each_was_drawn() -> None:
    """Over many epochs; within one a word has no more than a choice of some."""
    shared, alone, random = Counter[object](), Counter[object](), Random(1)
    for _ in range(200):
        word = SUBWORDS.varied(0.4, random)
        found = [word(" harbour") for _ in range(20)]
        assert len(set(found)) <= DRAWS
        shared.update(found)
        alone.update(SUBWORDS.drop(" harbour", 0.4, random) for _ in range(20))
    for segmentation, count in alone.most_common(3):
        assert abs(count - shared[segmentation]) < 0.15 * count + 30


@every_kind
@pytest.mark.parametrize("typed", ["<pad>", "</s>", "<s>", "[CLS]", "<unk>", "\x00", "Ġ", "▁a"])
def test_no_text_becomes_a_control_token(kind: str, typed: str) -> None:
    ids = KINDS[kind].encode([typed])
    assert min(ids) >= FIRST
    assert KINDS[kind].decode(ids) == typed


@every_kind
def test_learning_is_deterministic_and_can_be_stored(kind: Kind) -> None:
    again = Subwords.learn(TEXT, 300, kind)
    assert again.content == KINDS[kind].content
    assert Subwords(again.content).encode(TEXT) == KINDS[kind].encode(TEXT)


def test_half_a_letter_is_marked() -> None:
    half = SUBWORDS.encode(["é"])[:1]
    assert SUBWORDS.decode([*half, 0, 1, 2]) == "\N{REPLACEMENT CHARACTER}"


def test_the_letters_are_those_of_byte_level_pieces() -> None:
    assert sorted(SUBWORDS.alphabet) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert SUBWORDS.alphabet[32] == BLANK


def test_the_vocabulary_has_room_for_three_special_ids() -> None:
    vocabulary = SUBWORDS.vocabulary()
    assert vocabulary.size == FIRST + len(SUBWORDS.pieces) <= FIRST + 300
    assert (vocabulary.pad, vocabulary.bos, vocabulary.eos) == (0, 1, 2)
    assert vocabulary.paces is not None
    ids = SUBWORDS.encode(TEXT)
    assert sum(vocabulary.paces[id] for id in ids) == len(TEXT)


def test_merges_are_made_in_the_order_of_their_learning() -> None:
    """The plain twin: the library's own encoding."""
    for word in set(TEXT) | {" harbourmaster", " ferryman", "unsegmentable"}:
        found = SUBWORDS.tokenizer.encode(word, add_special_tokens=False).ids
        assert [FIRST + id for id in found] == list(SUBWORDS.drop(word, 0.0, Random(0)))
