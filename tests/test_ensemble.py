"""Several models as one: the mean is the mean, and what can't be averaged is refused."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path

import pytest
import torch
from test_training import opened

import seqtrans
from seqtrans import assembly, checkpoint
from seqtrans.commands import run as command
from seqtrans.data import pad
from seqtrans.decoding import Request
from seqtrans.ensemble import Ensemble, Mean
from seqtrans.errors import CheckpointError, DataError
from seqtrans.files import whole_folder
from seqtrans.frozen import Frozen
from seqtrans.model import Transducer
from seqtrans.plugins import registry
from seqtrans.prepare import prepare
from seqtrans.resolving import packaged, resolve
from seqtrans.settings import parse_words
from seqtrans.testing import tiny_model
from seqtrans.testing.parts import disturbed
from seqtrans_plugins import BeamSettings, DecoderSettings
from seqtrans_plugins.beam import Beam
from seqtrans_plugins.greedy import Greedy
from seqtrans_tasks.parsing import grammar
from seqtrans_tasks.parsing.tree import write_tree

LINES = ["The old ferry left .", "Yes", "the harbour"]
MEANS: tuple[Mean, ...] = ("probabilities", "logarithms")


def models(count: int) -> list[Transducer]:
    torch.manual_seed(3)
    return [disturbed(tiny_model()).eval() for _ in range(count)]


def request(count: int = 3) -> Request:
    torch.manual_seed(4)
    source, mask = pad([torch.randint(3, 12, (length,)) for length in (5, 2, 7)])
    return Request(source, mask, mask.sum(1) + 4, count=count)


@pytest.mark.parametrize("mean", MEANS)
def test_one_or_two_alike_decode_as_one_does(mean: Mean) -> None:
    (model,) = models(1)
    search = Beam(BeamSettings(width=4))
    with torch.inference_mode():
        wanted = search.decode(model, request())
        for times in (1, 2):
            found = search.decode(Ensemble([model] * times, mean), request())
            for some, others in zip(found, wanted, strict=True):
                assert [h.ids for h in some] == [h.ids for h in others]
                assert [h.score for h in some] == pytest.approx([h.score for h in others], abs=1e-5)


@pytest.mark.parametrize("mean", MEANS)
def test_probabilities_are_the_mean(mean: Mean) -> None:
    """Also step by step, after rows were selected and tokens taken back."""
    parts = models(3)
    ensemble = Ensemble(parts, mean)
    source, mask = request().source, request().mask
    target = torch.randint(3, 12, (3, 6))
    with torch.inference_mode():
        each = torch.stack([model(source, mask, target).log_softmax(-1) for model in parts])
        wanted = each.exp().mean(0) if mean == "probabilities" else each.mean(0).softmax(-1)
        whole = ensemble(source, mask, target)
        assert torch.allclose(whole.softmax(-1), wanted, atol=1e-6)
        if mean == "probabilities":
            assert torch.allclose(whole.exp().sum(-1), torch.ones(3, 6), atol=1e-5)
        order = torch.tensor([2, 0])
        state = ensemble.start(source, mask)
        assert state.rewindable(2)
        ensemble.advance(target[:, :3], state)
        ensemble.advance(target[:, :2], state)  # of these one is right, in no row but by chance
        state.rewind(2)
        state = state.select(order)
        rest = ensemble.advance(target[order, 3:], state)
        assert torch.allclose(rest, whole[order, 3:], atol=1e-5)


def test_the_shortest_reach_of_positions_counts() -> None:
    parts = models(2)
    assert Ensemble(parts).longest is None
    parts[1].decoder.position.limit = 9
    assert Ensemble(parts).longest == 9


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of one task, of other widths and weights, with two checkpoints each."""
    folder = tmp_path_factory.mktemp("ensemble")
    trees = grammar.write_treebank(train=60, dev=4, test=4)
    for split, some in trees.items():
        text = "".join(write_tree(tree) + "\n" for tree in some)
        (folder / f"{split}.trees").write_text(text, encoding="utf-8")
    made = []
    for name, width, subwords in (("a", 16, 300), ("b", 8, 300)):
        words = [
            *("task=parsing", f"model.width={width}", "model.inner=16", "model.heads=2"),
            *("model.encoder_layers=1", "model.decoder_layers=1", f"task.subwords={subwords}"),
            *(f"task.{split}={folder}/{split}.trees" for split in trees),
            *(f"run={folder}/{name}", f"run.seed={width}", "decoder.width=3"),
        ]
        config = resolve(parse_words(words, packaged()), registry())
        prepare(config, registry())
        task = assembly.build_task(config, registry())
        task.open(config.folder / "task")
        for step in (1, 2):
            model = assembly.build_model(config, registry(), task)
            optimizer = torch.optim.Adam(disturbed(model).parameters())
            checkpoint.save(config.folder, model, optimizer, checkpoint.Progress(step=step))
        made.append(config.folder)
    return made[0], made[1]


def test_runs_and_steps_decode_together(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = runs
    both = seqtrans.load(runs, [1, "last"])
    paths = [run / f"step-{step}" for run in runs for step in (1, 2)]
    assert both.members == tuple(paths)
    assert both.weights == paths[0]
    some = both.task.examples("train")[:4]
    each = [seqtrans.load(path.parent, path.name[5:]) for path in paths]
    assert isinstance(both.scorer, Ensemble)
    assert both.score(some) != each[0].score(some)
    assert seqtrans.load([first], [1]).score(some) == each[0].score(some)
    for ((_, found),) in both.alternatives(LINES[:1], 1, alpha=0.0, coverage=0.3):
        assert found.score < found.log_probability, "they look at the same positions"
    report = tmp_path / "report.json"
    words = [f"run={first},{second}", "step=1,2", "mean=logarithms", "decoder=greedy"]
    assert command(import_module("seqtrans.evaluate").main, [*words, f"report={report}"]) == 0
    assert " + ".join(map(str, paths)) in capsys.readouterr().out
    assert json.loads(report.read_text("utf-8"))["step"] == "step-1 + step-2 + step-1 + step-2"


def test_a_smaller_run_guesses_what_is_checked(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = runs
    for parser in (seqtrans.load(first), seqtrans.load(runs, [1, "last"])):
        wanted = parser.alternatives(LINES, 1, "greedy")
        settings = {"draft": second, "rows": 9, "share": 0.0}
        found = parser.alternatives(LINES, 1, "speculative", **settings)
        for ((_, guessed),), ((_, plain),) in zip(found, wanted, strict=True):
            assert guessed.ids == plain.ids
            assert guessed.score == pytest.approx(plain.score, abs=1e-4)
        (model,) = parser.opened.values()
        assert isinstance(model, Frozen)
        assert model.model.shape.width == 8
        assert parser.decoder("speculative", draft=str(second)).models == (model,), "opened once"
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    words = [f"run={first}", f"input={source}", f"output={target}"]
    main = import_module("seqtrans.transduce").main
    assert command(main, [*words, "decoder=greedy"]) == 0
    written = target.read_text("utf-8")
    words += ["decoder=speculative", "decoder.rows=9"]
    assert command(main, [*words, f"decoder.draft={second}"]) == 0
    assert target.read_text("utf-8") == written
    missing = tmp_path / "none"
    assert command(main, [*words, f"decoder.draft={missing}"]) == 2
    assert capsys.readouterr().err == f"seqtrans: there is no run folder {missing}.\n"


def test_a_training_validates_with_a_smaller_run(tmp_path: Path) -> None:
    with opened(tmp_path / "small") as small:
        checkpoint.save(
            tmp_path / "small", small.model, small.inner_optimizer(), checkpoint.Progress(step=1)
        )
    chosen = ["decoder=speculative", f"decoder.draft={tmp_path / 'small'}", "decoder.rows=99"]
    with opened(tmp_path / "run", *chosen, validation_decoder="speculative") as found:
        (model,) = found.validation.decoder.models
        assert isinstance(model, Frozen)
        assert not model.model.training
        guessed = found.validation.decode()
        found.validation.decoder = Greedy(DecoderSettings())
        plain = found.validation.decode()
        assert [guessed[n].ids for n in guessed] == [plain[n].ids for n in guessed]


def test_what_can_not_be_averaged(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = runs
    other = tmp_path / "other"
    shutil.copytree(second, other)
    with whole_folder(other / "task") as temporary:
        for path in (second / "task").iterdir():
            if path.name != "manifest.json":
                content = path.read_text("utf-8").replace('"NP"', '"PN"')
                (temporary / path.name).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError) as error:
        seqtrans.load([first, other])
    assert str(error.value) == (
        f"{first} and {other} can't decode together: their target vocabularies differ."
    )
    with pytest.raises(CheckpointError) as error:
        seqtrans.load(first).transduce(LINES, "speculative", draft=other)
    assert str(error.value) == (
        f"{first} and {other} can't decode together: their target vocabularies differ."
    )
    shutil.copytree(second, tmp_path / "whole")
    path = tmp_path / "whole" / "config.json"
    content = json.loads(path.read_text("utf-8"))
    changed = {"model.causal": False, "model.pace": None, "training.objective": "masked"}
    kept = {k: v for k, v in content["settings"].items() if not k.startswith("decoder.")}
    decoders = {"decoder": "mask_predict", "training.validation_decoder": "mask_predict"}
    content["settings"] = {**kept, **changed, **decoders}
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CheckpointError) as error:
        seqtrans.load(first).transduce(LINES, "speculative", draft=path.parent)
    assert str(error.value) == (
        f"{first} and {path.parent} can't decode together: model.causal differs."
    )
    for words, message in (
        ([f"run={first}", "mean=logarithms"], "mean has no effect without several runs or steps"),
        ([f"run={first},{first}"], "run: the same is given twice"),
        ([f"run={first}", "step=1,1"], "step: the same is given twice"),
    ):
        assert command(import_module("seqtrans.evaluate").main, words) == 2
        assert capsys.readouterr().err == f"seqtrans: {message}\n"


def test_outputs_begin_with_their_prefixes(runs: tuple[Path, Path], tmp_path: Path) -> None:
    parser = seqtrans.load(runs[0])
    (symbol,) = {parser.task.units([ids[0]], "target")[0] for ids in [first_ids(parser)]}
    for decoder in ("greedy", "beam", "sampling", "speculative"):
        found = parser.alternatives(LINES, 1, decoder, prefixes=[symbol, "", symbol])
        for number in (0, 2):
            (_, hypothesis), *_ = found[number]
            assert parser.task.units(hypothesis.ids[:1], "target") == [symbol]
        free = parser.alternatives(LINES, 1, decoder)
        assert [h.ids for _, h in found[1]] == [h.ids for _, h in free[1]]
    source, target, given = tmp_path / "in", tmp_path / "out", tmp_path / "prefixes"
    source.write_text("\n".join([LINES[0], "", LINES[2]]) + "\n", encoding="utf-8")
    given.write_text(f"{symbol}\n\n{symbol}\n", encoding="utf-8")
    main = import_module("seqtrans.transduce").main
    words = [f"run={runs[0]}", f"input={source}", f"output={target}", "decoder=greedy"]
    assert command(main, [*words, f"prefixes={given}"]) == 0
    by_line = target.read_text("utf-8")
    assert command(main, [*words, f"prefix={symbol}"]) == 0
    assert target.read_text("utf-8") == by_line


def first_ids(parser: seqtrans.engine.Engine) -> list[int]:  # type: ignore[name-defined]
    """A target of the data."""
    return list(parser.task.encode_target(parser.task.examples("train")[0]))


def test_prefixes_that_can_not_be(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = seqtrans.load(runs[0])
    closing = next(str(s) for s in parser.task.linearisation.symbols if s.kind == "closing")
    for prefixes, message in (
        (["", closing], "input 2: no output can begin with the prefix: its symbol 1 may not stand "
         "there."),
        (["", "nonsense"], "input 2: 'nonsense' is no symbol of the trees that were trained on."),
        (["", [1]], "input 2: 1 in the prefix is the id of no symbol."),
        ([""], "prefixes is a list with one for each of the 2 inputs."),
    ):  # fmt: skip
        with pytest.raises(DataError) as error:
            parser.transduce(LINES[:2], prefixes=prefixes)
        assert str(error.value) == message
    long = first_ids(parser)[:1] * 9
    with pytest.raises(DataError) as error:
        parser.transduce(["Yes"], prefixes=[long * 99], decoder="greedy", extra=3)
    length = len(parser.task.encode_source(parser.task.read("Yes")))
    assert str(error.value) == (
        f"input 1: the prefix has 891 symbols, and the whole output may have no more than "
        f"{length + 2}; raise decoder.extra."
    )
    source, given = tmp_path / "in", tmp_path / "prefixes"
    source.write_text("Yes\n", encoding="utf-8")
    given.write_text("a\nb\n", encoding="utf-8")
    main = import_module("seqtrans.transduce").main
    words = [f"run={runs[0]}", f"input={source}", f"prefixes={given}"]
    assert command(main, words) == 2
    assert capsys.readouterr().err == f"seqtrans: {given} has 2 lines, and {source} has 1.\n"
    assert command(main, [*words, "prefix=a"]) == 2
    assert capsys.readouterr().err == "seqtrans: prefixes: give either this or prefix=TEXT\n"
