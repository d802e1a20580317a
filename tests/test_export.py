"""Export: what the other engine computes is the same, and what it can't hold is refused."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from test_engine import run  # noqa: F401  # a fixture: a run of an untrained parser with a pace

import seqtrans
from seqtrans import assembly, checkpoint, ctranslate2, export
from seqtrans.commands import run as command
from seqtrans.engine import Engine
from seqtrans.errors import DataError, SeqtransError
from seqtrans.files import damage
from seqtrans.plugins import registry
from seqtrans.prepare import prepare
from seqtrans.resolving import packaged, resolve
from seqtrans.settings import parse_words
from seqtrans.task import Vocabulary

POSITIONS = 64


def trained(folder: Path, *words: str) -> Path:
    """A run over a few pairs, whose weights are random, norms and biases included."""
    table = folder / "pairs.tsv"
    colours = ("a red house", "the old dog", "a cat", "the the cat")
    table.write_text("".join(f"{line}\t{line[::-1]}\n" for line in colours * 5), encoding="utf-8")
    given = [f"run={folder}/run", "task=pairs", f"task.train={table}", f"task.dev={table}"]
    given += [
        "task.level=character",
        "decoder.extra=5",
        "model.width=16",
        "model.inner=24",
        "model.heads=2",
    ]
    given += ["model.encoder_layers=2", "model.decoder_layers=1", *words]
    config = resolve(parse_words(given, packaged()), registry())
    prepare(config, registry())
    task = assembly.build_task(config, registry())
    task.open(config.folder / "task")
    model = assembly.build_model(config, registry(), task)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=0.5, std=0.5)
    checkpoint.save(
        config.folder, model, torch.optim.Adam(model.parameters()), checkpoint.Progress(step=3)
    )
    return config.folder


@pytest.mark.parametrize(
    "words",
    [
        ("model.norm=post", "model.tie=all"),
        ("model.norm=pre", "model.tie=none", "position=learned", "position.limit=64"),
        ("model.norm=pre", "task.shared=no", "model.tie=output"),
    ],
    ids=["post", "pre", "two vocabularies"],
)
def test_ctranslate2_computes_the_same(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    folder, output = trained(tmp_path, *words), tmp_path / "exported"
    argv = [f"run={folder}", f"output={output}", f"positions={POSITIONS}", "speed=yes"]
    capsys.readouterr()
    assert command(export.main, argv) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == str(output)
    assert printed[1] == "greedy search: 20 of 20 outputs identical (dev inputs)"
    parity = json.loads((output / "parity.json").read_text(encoding="utf-8"))
    assert (parity["step"], parity["sentences"], parity["identical"]) == ("step-3", 20, 20)
    assert parity["tokens"] >= 20
    assert parity["log_probability_difference"] < 1e-5
    assert set(parity["tokens_a_second"]) == {"seqtrans", "ctranslate2"}
    assert damage(output) is None
    assert {"model.bin", "config.json"} < {path.name for path in output.iterdir()}


def test_only_an_earlier_export_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "notes.txt").write_text("mine", encoding="utf-8")
    assert command(export.main, [f"run={tmp_path}/run", f"output={kept}"]) == 2
    assert capsys.readouterr().err == (
        f"seqtrans: output={kept} holds something else than an export; name a new folder, or an "
        "earlier export to replace it.\n"
    )
    assert [path.name for path in kept.iterdir()] == ["notes.txt"]
    (kept / export.REPORT).write_text("{}", encoding="utf-8")
    export.check_output(kept)
    export.check_output(tmp_path / "new")


def test_what_has_no_effect_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [f"run={tmp_path}/run", f"output={tmp_path}/new", "decoder.width=3", "task.metric=exact"]
    assert command(export.main, argv) == 2
    assert capsys.readouterr().err == (
        "seqtrans: decoder.width: has no effect on what is exported\n"
        "seqtrans: task.metric: has no effect on what is exported\n"
    )


def test_wrong_weights_are_noticed_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    folder, output = trained(tmp_path), tmp_path / "exported"
    table = ctranslate2.table
    monkeypatch.setattr(ctranslate2, "table", lambda *given: table(*given) + torch.randn(16))
    monkeypatch.setattr(ctranslate2, "FORMAT", unchecked())
    capsys.readouterr()
    assert command(export.main, [f"run={folder}", f"output={output}"]) == 2
    message = r"seqtrans: ctranslate2 computes something else than this run: log-probabilities "
    message += r"differ by up to \d\.\de[+-]\d\d; nothing was written\.\n"
    assert re.fullmatch(message, capsys.readouterr().err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs.tsv", "run"]


def unchecked() -> export.Format:
    """The format, without looking for obstacles."""
    form = ctranslate2.FORMAT
    return export.Format(lambda engine: iter(()), form.write, form.open)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return seqtrans.load(trained(tmp_path_factory.mktemp("export")))


def rebuilt(engine: Engine, *words: str) -> Engine:
    """The same run as if these settings had been chosen, untrained."""
    base = [
        "task=pairs",
        "task.train=unused.tsv",
        "model.width=16",
        "model.inner=24",
        "model.heads=2",
        *words,
    ]
    config = resolve(parse_words(base, packaged()), registry())
    model = assembly.build_model(config, registry(), engine.task)
    return Engine(config, registry(), engine.task, model.eval(), engine.weights)


@pytest.mark.parametrize(
    ("words", "obstacle"),
    [
        ((), None),
        (("position=learned",), None),
        (("position=none",), None),
        (("model.pace=3",), "model.pace=3 adds a bias to the look at the source"),
        (
            ("model.causal=no", "training.objective=masked"),
            "model.causal=no lets a target position see what follows it",
        ),
        (
            ("model.key_width=4",),
            "model.key_width makes heads of 4, which must be model.width / model.heads = 8",
        ),
        (
            ("position=rotary",),
            "position=rotary does more than add a vector for each position to the embeddings",
        ),
        (
            ("position=alibi",),
            "position=alibi does more than add a vector for each position to the embeddings",
        ),
        (("attention=restricted",), "attention=restricted is not full attention"),
        (("attention=grouped",), "attention=grouped shares keys and values among heads"),
        (("attention=grouped", "attention.key_heads=2"), None),
        (
            ("attention.encoder=full,grouped", "model.encoder_layers=2"),
            "attention.encoder=full,grouped shares keys and values among heads",
        ),
        (("attention=linear",), "attention=linear is not full attention"),
        (
            ("attention.decoder=full,restricted", "model.decoder_layers=2"),
            "attention.decoder=full,restricted is not full attention",
        ),
    ],
)
def test_what_can_not_be_held(pairs: Engine, words: tuple[str, ...], obstacle: str | None) -> None:
    assert next(ctranslate2.obstacles(rebuilt(pairs, *words)), None) == obstacle


def test_a_run_that_can_not_be_exported_is_refused_before_the_package_is_asked_for(
    run: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)  # as if it were not installed
    assert command(export.main, [f"run={run}", f"output={tmp_path}/out"]) == 2
    assert re.fullmatch(
        rf"seqtrans: {run} can't be exported to ctranslate2: model\.pace=\d+ adds a bias to the "
        r"look at the source\.\n",
        capsys.readouterr().err,
    )
    assert not list(tmp_path.iterdir())


def test_a_run_that_can_be_exported_needs_the_package(
    pairs: Engine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert command(export.main, [f"run={pairs.config.folder}", f"output={tmp_path}/out"]) == 2
    assert capsys.readouterr().err == (
        "seqtrans: ctranslate2 is not installed; pip install 'seqtrans[ctranslate2]'.\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_package_that_is_not_installed() -> None:
    with pytest.raises(SeqtransError) as error:
        export.needed("seqtrans_no_such_engine")
    assert str(error.value) == (
        "seqtrans_no_such_engine is not installed; pip install 'seqtrans[seqtrans_no_such_engine]'."
    )


def test_random_inputs_where_there_is_no_dev(
    pairs: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, sources = export.inputs(pairs, 3, POSITIONS)
    assert (where, len(sources)) == ("dev", 3)

    def none(split: str) -> None:
        raise DataError("there is no dev.")

    monkeypatch.setattr(pairs.task, "examples", none)
    where, drawn = export.inputs(pairs, 30, 5)
    assert (where, len(drawn)) == ("random", 30)
    vocabulary = pairs.task.source_vocabulary
    assert vocabulary is not None
    assert all(1 <= len(ids) <= 5 for ids in drawn)
    assert all(2 < id < vocabulary.size for ids in drawn for id in ids)


def test_no_two_ids_have_one_name(pairs: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {0: "a", 1: "<2>", 2: " ", 3: "a", 4: "<3>"}
    units = lambda ids, side: [texts.get(id - 3, f"unit {id}") for id in ids]  # noqa: E731
    monkeypatch.setattr(pairs.task, "units", units)
    vocabulary = Vocabulary(9)
    names = ctranslate2.names(pairs.task, vocabulary, "target")
    assert names == ["<pad>", "<s>", "</s>", "a", "<2>", "<5>", "<6>", "<3>", "unit 8"]
