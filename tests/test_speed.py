"""The measurement of speed: its sentences and batches, its protocol, and our own contestant."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import board, peers, speed
from benchmarks.results import write_measurement
from seqtrans import costs
from seqtrans.config import Shape
from seqtrans.errors import SeqtransError, SettingsError

FAKE = """
import sys
from pathlib import Path
from benchmarks import peers

def build(work):
    print("words of a toolkit")
    return None, lambda batch: [[5] * work.length for _ in batch.sources]

peers.serve(peers.Work.read(sys.argv[1]), build, "fake 1")
"""


@pytest.fixture(scope="module")
def work() -> peers.Work:
    """A model of nothing, and two rounds of two batches."""
    pairs = [speed.sentences(3, seed) for seed in range(4)]
    return peers.Work(
        training=False,
        layers=1,
        width=8,
        inner=16,
        heads=2,
        vocabulary=speed.VOCABULARY,
        dropout=0.1,
        smoothing=0.1,
        beam=1,
        length=6,
        threads=1,
        model="",
        rounds=speed.in_rounds(pairs, 2, 2),
    )


def test_sentences_are_as_long_and_as_common_as_in_wmt() -> None:
    pairs = speed.sentences(2000, 1)
    source = np.array([len(source) for source, _ in pairs])
    ratio = np.array([len(target) / len(source) for source, target in pairs])
    assert abs(source.mean() - 26) < 2
    assert abs(source.std() - 17) < 2
    assert source.min() >= 1
    assert source.max() <= 150
    assert abs(np.median(ratio) - 1) < 0.05
    ids = np.bincount([id for source, _ in pairs for id in source], minlength=speed.VOCABULARY)
    assert len(ids) == speed.VOCABULARY
    assert not ids[: peers.UNKNOWN + 1].any()
    assert ids.argmax() < 10
    assert pairs == speed.sentences(2000, 1)
    assert pairs != speed.sentences(2000, 2)


def test_batches_hold_every_pair_once_and_no_more_positions_than_told() -> None:
    pairs = speed.sentences(3000, 1)
    batches = speed.training_batches(pairs, 1)
    assert sorted(pair for batch in batches for pair in batch) == sorted(pairs)
    for batch in batches:
        width = max(len(s) for s, _ in batch) + max(len(t) for _, t in batch) + 1
        assert len(batch) * width <= speed.POSITIONS
    assert speed.padding(batches) < 0.2
    assert speed.padding([[([5], [6]), ([5, 6], [7])]]) == pytest.approx(1 / 8)
    assert 0 < speed.own_padding(1, 20_000) < speed.own_padding(1, 2000)


def test_decoding_batches_are_of_one_size() -> None:
    batches = speed.decoding_batches(speed.sentences(130, 1), 64, 1)
    assert [len(batch) for batch in batches] == [64, 64]
    assert speed.padding(speed.decoding_batches(speed.sentences(130, 1), 1, 1)) == 0


def test_rounds_begin_again_when_the_batches_end() -> None:
    pairs: list[speed.Pairs] = [[([i], [i, i])] for i in range(3)]
    assert speed.in_rounds(pairs, 2, 2) == [
        [([[0]], [[0, 0]]), ([[1]], [[1, 1]])],
        [([[2]], [[2, 2]]), ([[0]], [[0, 0]])],
    ]


def test_operations_are_six_for_each_weight_and_real_position(work: peers.Work) -> None:
    shape = Shape(encoder_layers=1, decoder_layers=1, width=8, inner=16, heads=2)
    symbols = costs.Vocabularies(work.vocabulary, work.vocabulary, shared=True)
    count = costs.parameters(shape, symbols)
    pairs: speed.Pairs = [([5] * 7, [6] * 4)]
    softmax = work.vocabulary * 8
    trained = 6 * (7 * count.encoder.total + 5 * (count.decoder.total + softmax))
    assert speed.gigaflop(replace(work, training=True), pairs) * 1e9 == pytest.approx(trained)
    decoded = 2 * (7 * count.encoder.total + 24 * (count.decoder.total + softmax))
    assert speed.gigaflop(replace(work, beam=4), pairs) * 1e9 == pytest.approx(decoded)


def test_contestants_take_turns_and_say_what_it_took(work: peers.Work, tmp_path: Path) -> None:
    work.write(tmp_path / "work.json")
    assert peers.Work.read(str(tmp_path / "work.json")) == replace(
        work, rounds=json.loads(json.dumps(work.rounds))
    )
    command: list[str | Path] = [sys.executable, "-c", FAKE, tmp_path / "work.json"]
    contestant = speed.Contestant.start("fake", command, 1)
    try:
        contestant.round(1)
        contestant.round(0)
    finally:
        contestant.stop()
    assert (contestant.version, contestant.parameters) == ("fake 1", None)
    assert len(contestant.seconds) == 2
    assert contestant.peak > 1
    assert contestant.outputs == [[[5] * 6] * 3] * 2
    speed.check(contestant, 6)
    speed.check(contestant, 7)
    wrong = "fake made an output of 6 symbols, not 5: its times can't be compared."
    with pytest.raises(SeqtransError, match=f"^{re.escape(wrong)}$"):
        speed.check(contestant, 5)


def test_a_contestant_that_dies_is_quoted() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model\\n')"]
    message = "fake failed; the last that it said is: no such model"
    with pytest.raises(SeqtransError, match=f"^{re.escape(message)}$"):
        speed.Contestant.start("fake", command, 1)


def test_the_table_has_the_fastest_first_and_ratios_within_rounds(
    work: peers.Work, tmp_path: Path
) -> None:
    def contestant(name: str, seconds: list[float], outputs: Any) -> speed.Contestant:
        any_process: Any = None
        return speed.Contestant(
            name, any_process, any_process, f"{name} 1", None, seconds, 100, outputs
        )

    settings = speed.DecodeSettings(preset="tiny", rounds=2)
    outputs = [[[5] * 6] * 3] * 2
    others = [[[5] * 5 + [2]] * 3, [[5] * 6, [6] * 6, [5] * 6]]
    contestants = [
        contestant("seqtrans", [1.0, 2.0], outputs),
        contestant("ctranslate2", [3.0, 4.0], others),
    ]
    result = speed.describe("decode", settings, work, contestants, {})
    assert json.loads(json.dumps(result)) == result
    assert [row["ratio"] for row in result["contestants"]] == [[1, 1, 1], [2.5, 2, 3]]
    assert [row["rate"] for row in result["contestants"]] == [4.5, 1.75]
    lines = speed.table(result).splitlines()
    assert lines[0].startswith("decode, tiny, greedy, batches of 64: 2 rounds of 2, fp32, 1 thread")
    assert [line.split(" | ")[0] for line in lines[4:6]] == ["| seqtrans 1", "| ctranslate2 1"]
    assert lines[5].endswith("| 2.50 (2.00, 3.00) |")
    assert lines[7] == "CTranslate2 has our weights: 83% of outputs are alike."
    row = speed.row(result, settings)
    assert (row.recipe, row.value) == ("decode-tiny-greedy-64", 2.5)
    assert row.command == "python -m benchmarks.speed decode preset=tiny rounds=2"
    written = write_measurement(row, tmp_path)
    assert board.tables_of(tmp_path).splitlines()[-3:] == [
        "|  | sentences/s | × ctranslate2 |",
        "| --- | --- | --- |",
        f"| [decode-tiny-greedy-64](results/{written.name}) | 4.5, 100 MB | "
        "2.50 (2.00–3.00), 100 MB |",
    ]


@pytest.mark.parametrize("beam", [1, 4])
def test_our_own_contestant_decodes_as_many_steps_as_told(work: peers.Work, beam: int) -> None:
    _, step = speed.ours(replace(work, beam=beam, vocabulary=50))
    outputs = step(peers.Batch([[5, 6, 7], [8]], [[5], [6]]))
    assert outputs is not None
    assert [len(output) for output in outputs] == [5, 5]


def test_our_own_contestant_learns(work: peers.Work) -> None:
    import torch

    torch.manual_seed(1)
    model, step = speed.ours(replace(work, training=True, vocabulary=50))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step(peers.Batch([[5, 6, 7], [8]], [[5], [6, 7]]))
    assert not any(map(torch.equal, before, model.parameters()))


def test_batches_are_what_a_model_reads() -> None:
    batch = peers.Batch([[5, 6], [7]], [[8], [9, 10]])
    assert batch.tokens == 5
    assert batch.source.tolist() == [[5, 6], [7, 0]]
    assert batch.mask.tolist() == [[True, True], [True, False]]
    assert batch.lengths.tolist() == [2, 1]
    assert batch.target_in.tolist() == [[1, 8, 0], [1, 9, 10]]
    assert batch.target_out.tolist() == [[8, 2, 0], [9, 10, 2]]
    assert batch.target.tolist() == [[1, 8, 2, 0], [1, 9, 10, 2]]


def test_mistakes_are_told(tmp_path: Path) -> None:
    for words, message in (
        (
            ["trian"],
            "no measurement is called 'trian'; did you mean train?; there are: train, decode",
        ),
        (
            ["train", "peers=joye"],
            "no peer is called 'joye' here; there are marian, torch, xtransformers, fairseq, "
            "onmt, joey",
        ),
        (["decode", "decoder=beam8"], "decoder: must be one of greedy, beam4, not 'beam8'"),
        (
            ["train", "peers=joey", f"peers_folder={tmp_path}", "preset=tiny", "batches=1"],
            f"peers=joey: there is no {tmp_path}/joey/bin/python; make an environment there with "
            "joeynmt in it, or set peers_folder.",
        ),
    ):
        with pytest.raises(SettingsError) as caught:
            speed.main(words)
        assert str(caught.value) == message


def test_who_counts() -> None:
    """Products in 8 bits are other work, unless ours are in 8 bits as well."""
    plain, small = speed.DecodeSettings(), speed.DecodeSettings(precision="int8")
    for name, by_plain, by_small in (
        (speed.OURS, False, False),
        ("ctranslate2", True, True),
        ("ctranslate2_int8", False, True),
    ):
        assert speed.counts(name, plain) == by_plain
        assert speed.counts(name, small) == by_small
    assert speed.counts("marian", speed.TrainSettings())


def test_a_row_needs_someone_who_counts(tmp_path: Path) -> None:
    settings = speed.DecodeSettings(report=tmp_path)
    work, commands = speed.decode_work(settings), {"ctranslate2_int8": tmp_path / "python"}
    with pytest.raises(SettingsError) as caught:
        speed.measure("decode", settings, work, commands, {})
    assert str(caught.value) == (
        "report: there is no other toolkit to compare with; name a folder of their environments by "
        "peers_folder"
    )
