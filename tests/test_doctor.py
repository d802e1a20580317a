"""``seqtrans doctor``: what is said of data before any training, and what is left behind."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import toy

from seqtrans import plugins
from seqtrans.__main__ import main
from seqtrans.corpus import Corpus
from seqtrans.doctor import spread, training_sees
from seqtrans.errors import DataError
from seqtrans.plugins import BUILTIN, Registry
from seqtrans.resolving import Config, resolve
from seqtrans.settings import parse_words

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for temporary folders, and the toy task among the built-ins."""
    monkeypatch.setattr(plugins, "registry", lambda: Registry([*BUILTIN, "toy"]))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config_of(*words: str) -> Config:
    return resolve(parse_words(["task=reversal", *words]), plugins.registry())


def test_the_toy(place: Path, capsys: Captured) -> None:
    assert main(["doctor", "task=reversal", "task.count=60", "data.tokens=40"]) == 0
    shown = capsys.readouterr()
    assert re.fullmatch(
        r"vocabulary of the source: 13\n"
        r"vocabulary of the target: 13 \(one for both sides\)\n"
        r"symbols of a source: half have at most \d, 90 % \d, 99 % 6; the longest has 6\n"
        r"symbols of a target: half have at most \d, 90 % \d, 99 % 6; the longest has 6\n"
        r"60 examples in \d+ updates of data.tokens=40: \d+ in each, \d+\.\d % of the positions "
        r"are padding\n"
        r"usable\n",
        shown.out,
    )
    assert shown.err == ""
    assert not list(place.iterdir())


def test_warnings_are_counted(capsys: Captured) -> None:
    words = ["doctor", "task=reversal", "task.giant=50", "data.tokens=40", "task.longest=3"]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "warning: 1 update of a single example that is longer than data.tokens; leave such out by "
        "data.longest_source and data.longest_target.",
        "usable, with 1 warning",
    ]
    assert main([*words, "data.longest_source=49", "data.longest_target=49"]) == 0
    shown = capsys.readouterr().out
    assert (
        "warning: 1 of 61 training examples are longer than data.longest_source or "
        "data.longest_target, or than the model has positions for, and are left out.\n"
    ) in shown
    assert shown.endswith("\nusable, with 1 warning\n")


def test_data_that_fails(place: Path, capsys: Captured) -> None:
    assert main(["doctor", "task=reversal", "task.fails=true"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "seqtrans: the digits are not there.\n")
    assert not list(place.iterdir())


def test_all_that_is_wrong_at_once(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def examine(self: toy.Reversal, folder: Path) -> Iterator[str]:
        yield "warning: a line is blank"
        raise DataError("train is empty.\ntest is not UTF-8.")

    monkeypatch.setattr(toy.Reversal, "examine", examine)
    assert main(["doctor", "task=reversal"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "warning: a line is blank\n"
    assert shown.err == "seqtrans: train is empty.\nseqtrans: test is not UTF-8.\n"


@pytest.mark.parametrize("words", [[], ["task.giant=9", "data.longest_source=8"]])
def test_nothing_left(words: list[str], capsys: Captured) -> None:
    words = ["task.count=0", *words]
    assert main(["doctor", "task=reversal", *words]) == 2
    assert capsys.readouterr().err == (
        "seqtrans: no training example is left: there are none, or all are longer than "
        "data.longest_source or data.longest_target.\n"
    )


def test_a_wrong_setting(capsys: Captured) -> None:
    assert main(["doctor", "task=reversal", "task.cuont=3"]) == 2
    assert "task.cuont: no such setting; did you mean task.count?" in capsys.readouterr().err


def test_padding_is_what_batches_have() -> None:
    task = toy.Reversal(toy.ReversalSettings())
    pairs = [([5], [5, 5]), ([5, 5, 5], [5]), ([5, 5], [])]
    task.training = lambda epoch, seed: Corpus.of(pairs)  # type: ignore[method-assign]
    said = list(training_sees(task, config_of("data.tokens=1000")))
    # Of sources 6 in 3 rows of 3, of targets, eos included, 6 in 3 rows of 3.
    assert said[-1] == (
        "3 examples in 1 update of data.tokens=1000: 3 in each, 33.3 % of the positions are padding"
    )


def test_spread() -> None:
    assert spread("source", np.arange(1, 1001)) == (
        "symbols of a source: half have at most 500, 90 % 900, 99 % 990; the longest has 1,000"
    )


def test_a_treebank(place: Path, capsys: Captured) -> None:
    for split, number in (("train", 12), ("dev", 2)):
        trees = "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))\n" * number
        (place / f"{split}.trees").write_text(trees, encoding="utf-8")
    words = ["task.train=train.trees", "task.dev=dev.trees"]
    before = sorted(place.iterdir())
    assert main(["doctor", "task=parsing", *words]) == 0
    shown = capsys.readouterr().out
    assert "  train: 12 trees read = 12 kept; 36 words" in shown
    assert "12 examples in 1 update of" in shown
    assert shown.endswith("\nusable\n")
    assert sorted(place.iterdir()) == before
    assert main(["doctor", "task=parsing", "task.train=no.trees", "task.dev=dev.trees"]) == 2
    assert "no.trees" in capsys.readouterr().err
