"""Corpora, the updates of an epoch, and batches."""

from __future__ import annotations

import copy
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqtrans.corpus import Array, Corpus, Ragged, Writer
from seqtrans.data import (
    Epoch,
    Unpadded,
    collate,
    cut,
    decoding_batches,
    pad,
    unpadded,
)
from seqtrans.errors import DataError

SPECIALS = (7, 8, 9)  # pad, bos, eos: no zero among them, which padding with 0 would hide

ids = st.lists(st.integers(10, 99), max_size=9)
pairs = st.lists(st.tuples(ids, ids), min_size=1, max_size=30)


def updates_of(epoch: Epoch) -> list[Array]:
    return [update for window in range(len(epoch)) for update in epoch.updates(window)]


@given(
    pairs, st.integers(1, 60), st.integers(0, 9), st.integers(0, 9), st.sampled_from([1, 256, 999])
)
def test_an_epoch_has_every_example_once_within_the_budget(
    examples: list[tuple[list[int], list[int]]], tokens: int, seed: int, epoch: int, window: int
) -> None:
    corpus = Corpus.of(examples * (1 if window == 999 else 20))
    updates = updates_of(Epoch(corpus, tokens, seed, epoch, window=max(256, window)))
    assert sorted(np.concatenate(updates).tolist()) == list(range(len(corpus)))
    for update in updates:
        batch = collate(corpus, update, SPECIALS)
        if len(update) > 1:
            assert batch.source.numel() <= tokens
            assert batch.target_out.numel() <= tokens
    again = updates_of(Epoch(corpus, tokens, seed, epoch, window=max(256, window)))
    assert [u.tolist() for u in again] == [u.tolist() for u in updates]


def test_each_epoch_and_seed_has_an_order_of_its_own() -> None:
    corpus = Corpus.of([([1] * (n % 5), [2] * (n % 7)) for n in range(200)])
    orders = {
        tuple(np.concatenate(Epoch(corpus, 30, seed, epoch).updates(0)).tolist())
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9


def test_the_budget_is_used() -> None:
    """No two updates of one length could have been one."""
    corpus = Corpus.of([([1, 2], [3, 4, 5])] * 23)
    assert sorted(map(len, Epoch(corpus, 20, 1, 1).updates(0))) == [3, 5, 5, 5, 5]


def test_longer_examples_are_left_out_at_the_limit_exactly() -> None:
    corpus = Corpus.of([([1] * s, [2] * t) for s in range(1, 6) for t in range(1, 6)])
    updates = Epoch(corpus, 100, 1, 0, longest_source=3, longest_target=2).updates(0)
    kept = np.concatenate(updates)
    assert len(kept) == 6
    assert corpus.sources.lengths(kept).max() == 3
    assert corpus.targets.lengths(kept).max() == 2
    assert Epoch(Corpus.of([]), 100, 1, 0).updates(0) == []


def test_a_large_corpus_is_shuffled_in_runs_that_differ_between_epochs() -> None:
    corpus = Corpus.of([([1], [2])] * 2000)
    epochs = [Epoch(corpus, 50, 1, number, window=512) for number in (0, 0, 1)]
    assert [len(epoch) for epoch in epochs] == [4, 4, 4]
    windows = [[sorted(epoch.numbers(w).tolist()) for w in range(4)] for epoch in epochs]
    assert windows[0] == windows[1] != windows[2]
    assert sorted(n for window in windows[0] for n in window) == list(range(2000))
    assert max(map(len, windows[0])) == 512


@pytest.mark.parametrize("window", [256, 1 << 20])
def test_parts_of_a_mixture_come_as_often_as_their_weights_say(window: int) -> None:
    sizes, weights = (3000, 1000, 6000), (1.0, 2.5, 0.25)
    corpus = Corpus(
        *(Ragged.of([np.array([7])] * sum(sizes)) for _ in range(2)),
        tuple(zip(sizes, weights, strict=True)),
    )
    seen = np.zeros(sum(sizes))
    for number in range(40):
        for update in updates_of(Epoch(corpus, 500, 3, number, window=window)):
            np.add.at(seen, update, 1)
    assert (seen[:3000] == 40).all()
    assert 2.3 < seen[3000:4000].mean() / 40 < 2.7
    assert 0.2 < seen[4000:].mean() / 40 < 0.3
    assert (seen > 0).all()


@given(st.integers(0, 20), st.integers(1, 9))
def test_a_cut_is_even_and_its_parts_are_the_whole(size: int, parts: int) -> None:
    update = np.arange(size)
    found = cut(update, parts)
    assert len(found) == parts
    assert np.concatenate(found).tolist() == update.tolist()
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True), "the first is the largest"


@given(pairs, st.data())
def test_a_batch_is_what_padding_one_by_one_gives(
    examples: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    numbers = data.draw(st.lists(st.integers(0, len(examples) - 1), min_size=1, max_size=9))
    batch = collate(Corpus.of(examples), numbers, SPECIALS)
    padding, bos, eos = SPECIALS
    sources = [torch.tensor(examples[i][0], dtype=torch.long) for i in numbers]
    source, mask = pad(sources)
    assert torch.equal(batch.source, source)
    assert torch.equal(batch.mask, mask)
    targets = [examples[i][1] for i in numbers]
    target_in, _ = pad([torch.tensor([bos, *t]) for t in targets], padding)
    target_out, _ = pad([torch.tensor([*t, eos]) for t in targets], padding)
    assert torch.equal(batch.target_in, target_in)
    assert torch.equal(batch.target_out, target_out)
    assert {t.dtype for t in (batch.source, batch.target_in, batch.target_out)} == {torch.int64}
    moved = batch.to(torch.device("cpu"))
    assert torch.equal(moved.target_in, batch.target_in)


def test_a_batch_knows_that_it_has_no_padding_wherever_it_is() -> None:
    """On the device meta nothing can be asked, which on a GPU would be waited for."""
    corpus = Corpus.of([([11] * n, [12]) for n in (4, 4, 3, 0)])
    meta = torch.device("meta")
    for numbers, whole in (([0, 1], True), ([2], True), ([0, 2], False), ([3], False), ([], True)):
        batch = collate(corpus, numbers, SPECIALS)
        assert unpadded(batch.mask) is whole
        assert isinstance(batch.mask, Unpadded) is whole
        moved = batch.to(meta)
        assert moved.mask.device == meta
        assert isinstance(moved.mask, Unpadded) is whole
        assert unpadded(moved.mask) is whole
        assert isinstance(copy.deepcopy(batch).mask, Unpadded) is whole


def test_only_what_is_known_has_no_padding() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert unpadded(mask)
    assert not unpadded(mask.to("meta"))
    assert not unpadded(mask[:, :0])
    known = mask.as_subclass(Unpadded)
    for made in (~known, known[:1], known & mask, torch.cat([known, ~known]), known.any(1)):
        assert type(made) is torch.Tensor


def test_features_stay_as_they_are() -> None:
    features = [torch.randn(n, 2, 3, dtype=torch.float32) for n in (4, 1, 0)]
    corpus = Corpus.of((f, [10]) for f in features)
    batch = collate(corpus, [0, 1, 2], SPECIALS)
    assert batch.source.shape == (3, 4, 2, 3)
    assert batch.source.dtype == torch.float32
    assert batch.mask.sum(1).tolist() == [4, 1, 0]
    assert torch.equal(batch.source[0], features[0])
    assert torch.equal(batch.source[1, :1], features[1])
    assert not batch.source[1, 1:].any()


def test_nothing_left_gives_a_batch_without_loss_of_the_shortest_source() -> None:
    corpus = Corpus.of([([11] * 5, [12]), ([], [14]), ([13] * 2, [14] * 9)])
    batch = collate(corpus, [], SPECIALS)
    assert batch.source.tolist() == [[13, 13]]
    assert batch.mask.all()
    assert batch.target_in.tolist() == [[SPECIALS[1]]]
    assert batch.target_out.tolist() == [[SPECIALS[0]]]


def test_a_corpus_comes_back_from_its_files(tmp_path: Path) -> None:
    corpus = Corpus.of([([1, 2], [3]), ([], [4, 5, 6]), ([7], [])])
    corpus.save(tmp_path / "corpus")
    back = Corpus.open(tmp_path / "corpus")
    assert isinstance(back.sources.values, np.memmap)
    for mine, its in ((corpus.sources, back.sources), (corpus.targets, back.targets)):
        assert [mine[i].tolist() for i in range(3)] == [its[i].tolist() for i in range(3)]
    assert len(back) == 3
    batches = [collate(c, [2, 0, 1], SPECIALS) for c in (corpus, back)]
    assert torch.equal(batches[0].source, batches[1].source)
    assert back.sources.values[0] == 1, "what is padded is a copy"


@given(st.lists(pairs, max_size=4), st.sampled_from([99, 1 << 20]))
def test_a_corpus_written_bit_by_bit_is_the_same(
    bits: list[list[tuple[list[int], list[int]]]], size: int
) -> None:
    with TemporaryDirectory() as folder:
        with Writer(Path(folder) / "corpus", size) as writer:
            for bit in bits:
                part = Corpus.of(bit)
                sides = (part.sources, part.targets)
                writer.append(*((side.values, side.lengths()) for side in sides))
        back = Corpus.open(Path(folder) / "corpus")
        whole = [pair for bit in bits for pair in bit]
        assert len(back) == len(whole)
        assert back.sources.values.dtype == (np.uint16 if size == 99 else np.int32)
        for number, (source, target) in enumerate(whole):
            assert back.sources[number].tolist() == source
            assert back.targets[number].tolist() == target


def test_a_corpus_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        Corpus.open(tmp_path)
    assert str(error.value) == (
        f"{tmp_path} holds no prepared corpus: [Errno 2] No such file or directory: "
        f"'{tmp_path / 'sources.npy'}'."
    )


def test_an_object_array_is_refused(tmp_path: Path) -> None:
    Corpus.of([([1], [2])]).save(tmp_path / "corpus")
    np.save(tmp_path / "corpus/sources.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="holds no prepared corpus: "):
        Corpus.open(tmp_path / "corpus")


def test_an_empty_ragged() -> None:
    empty = Ragged.of([])
    assert len(empty) == 0
    assert empty.lengths().tolist() == []


@given(
    st.lists(st.integers(0, 50), max_size=40),
    st.integers(1, 100),
    st.none() | st.integers(1, 9),
)
def test_decoding_batches(lengths: list[int], tokens: int, most: int | None) -> None:
    batches = decoding_batches(lengths, tokens, most)
    assert all(len(batch) <= (most or len(lengths)) for batch in batches)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(
        len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= tokens
        for batch in batches
    )
    flat = [lengths[i] for batch in batches for i in batch]
    assert flat == sorted(lengths, reverse=True)
