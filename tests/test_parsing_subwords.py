from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtrans_tasks.parsing.subwords import BLANK, FIRST, Subwords, size_for

TEXT = ("the harbour the harbours a ferry the ferries left leaving harboured " * 20).split()
SUBWORDS = Subwords.learn(TEXT, 300)


def spelled(ids: list[int]) -> str:
    """The text that ids stand for, with a blank before each word."""
    return SUBWORDS.tokenizer.decode([id - FIRST for id in ids])


# A word holds no white space that separates words; everything else may be typed.
anything = st.lists(
    st.text(st.characters(exclude_characters=" ", exclude_categories=["Cs"]), min_size=1),
    min_size=1,
    max_size=5,
)


@settings(deadline=None)
@given(anything, st.floats(0, 1), st.integers(0, 99))
def test_every_word_can_be_written_and_read(words: list[str], dropout: float, seed: int) -> None:
    text = "".join(" " + word for word in words)
    for ids in (
        SUBWORDS.encode(words),
        SUBWORDS.encode_with_dropout(words, dropout, Random(seed)),
    ):
        assert spelled(ids) == text
        paces = SUBWORDS.vocabulary().paces
        assert paces is not None
        assert sum(paces[id] for id in ids) == len(words)
        assert paces[ids[0]]


@settings(deadline=None)
@given(anything)
def test_dropping_no_merge_is_encoding(words: list[str]) -> None:
    assert SUBWORDS.encode_with_dropout(words, 0.0, Random(1)) == SUBWORDS.encode(words)


def test_dropping_every_merge_leaves_bytes() -> None:
    ids = SUBWORDS.encode_with_dropout(["harbour"], 1.0, Random(1))
    assert [SUBWORDS.pieces[id - FIRST] for id in ids] == [BLANK, *"harbour"]


def test_dropout_is_a_function_of_its_random_numbers() -> None:
    draws = [SUBWORDS.encode_with_dropout(TEXT, 0.3, Random(seed)) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("typed", ["<pad>", "</s>", "<s>", "[CLS]", "<unk>", "\x00", "Ġ"])
def test_no_text_becomes_a_control_token(typed: str) -> None:
    ids = SUBWORDS.encode([typed])
    assert min(ids) >= FIRST
    assert spelled(ids) == " " + typed


def test_learning_is_deterministic_and_can_be_stored() -> None:
    again = Subwords.learn(TEXT, 300)
    assert again.content == SUBWORDS.content
    assert Subwords(again.content).encode(TEXT) == SUBWORDS.encode(TEXT)


def test_the_vocabulary_has_room_for_three_special_ids() -> None:
    vocabulary = SUBWORDS.vocabulary()
    assert vocabulary.size == FIRST + len(SUBWORDS.pieces) <= FIRST + 300
    assert (vocabulary.pad, vocabulary.bos, vocabulary.eos) == (0, 1, 2)


@pytest.mark.parametrize(("words", "size"), [(100, 500), (80_000, 2000), (10**9, 16_000)])
def test_the_size_follows_the_data(words: int, size: int) -> None:
    assert size_for(words) == size
