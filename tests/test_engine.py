"""What ``seqtrans.load`` gives, over an untrained parser, which the constraint lets write trees."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import seqtrans
from seqtrans import assembly, checkpoint
from seqtrans.decoding import Hypothesis, Request, Scorer
from seqtrans.engine import Engine
from seqtrans.errors import CheckpointError, DataError, PluginError, SettingsError
from seqtrans.frozen import Frozen
from seqtrans.int8 import Int8Product
from seqtrans.model import Transducer
from seqtrans.plugins import registry
from seqtrans.prepare import prepare
from seqtrans.resolving import packaged, resolve
from seqtrans.settings import parse_words
from seqtrans_plugins.speculative import Speculative
from seqtrans_tasks.parsing import grammar
from seqtrans_tasks.parsing.task import Parse, Sentence
from seqtrans_tasks.parsing.tree import leaves, read_tree, write_tree

LINES = ["The old ferry left .", "Yes", "the harbour", "A cat , which slept , left the quay ."]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with one checkpoint of random weights."""
    folder = tmp_path_factory.mktemp("engine")
    trees = grammar.write_treebank(train=80, dev=6, test=7)
    for split, some in trees.items():
        text = "".join(write_tree(tree) + "\n" for tree in some)
        (folder / f"{split}.trees").write_text(text, encoding="utf-8")
    words = [
        *("task=parsing", "model.width=16", "model.inner=16", "model.heads=2", "task.subwords=300"),
        *("model.encoder_layers=1", "model.decoder_layers=1", "decoder.width=3"),
        *(f"task.{split}={folder}/{split}.trees" for split in trees),
        f"run={folder}/run",
    ]
    config = resolve(parse_words(words, packaged()), registry())
    prepare(config, registry())
    for split in trees:
        (folder / f"{split}.trees").unlink()  # a run folder is enough
    task = assembly.build_task(config, registry())
    task.open(config.folder / "task")
    model = assembly.build_model(config, registry(), task)
    optimizer = torch.optim.Adam(model.parameters())
    checkpoint.save(config.folder, model, optimizer, checkpoint.Progress(step=3))
    return config.folder


@pytest.fixture(scope="module")
def parser(run: Path) -> Engine:
    return seqtrans.load(run)


def written(parser: Engine, found: list[Any]) -> list[str]:
    return [parser.task.write(output) for output in found]


def test_every_line_gives_a_tree_over_its_words_in_order(parser: Engine) -> None:
    found = parser.transduce(LINES)
    assert [[leaf.word for leaf in leaves(parse.tree)] for parse in found] == [
        line.split() for line in LINES
    ]


def test_an_empty_list_gives_an_empty_list(parser: Engine) -> None:
    assert parser.transduce([]) == []
    assert parser.score([]) == []


@pytest.mark.parametrize("decoder", ["greedy", "beam", "sampling"])
def test_the_company_of_a_line_changes_nothing(parser: Engine, decoder: str) -> None:
    together = written(parser, parser.transduce(LINES, decoder=decoder))
    alone = [written(parser, parser.transduce([line], decoder=decoder))[0] for line in LINES]
    backwards = written(parser, parser.transduce(LINES[::-1], decoder=decoder))[::-1]
    assert together == alone == backwards


def test_settings_of_the_decoder_go_over_the_runs_own(parser: Engine) -> None:
    assert parser.decoder().most == 3
    assert parser.decoder(width=5).most == 5
    assert parser.decoder("greedy").most == 1
    assert parser.decoder("greedy").extra == parser.decoder().extra == 300


def test_alternatives_differ_and_are_sorted(parser: Engine) -> None:
    for found in parser.alternatives(LINES, 3):
        outputs = [parser.task.write(output) for output, _ in found]
        scores = [hypothesis.score for _, hypothesis in found]
        assert 1 <= len(outputs) == len(set(outputs)) <= 3
        assert scores == sorted(scores, reverse=True)


def test_the_score_of_an_output_is_what_the_decoder_gave_it(parser: Engine) -> None:
    found = parser.alternatives(LINES, 3, alpha=0.0)
    hypotheses = [pair for some in found for pair in some]
    scores = parser.score([parse.tree for parse, _ in hypotheses])
    for score, (_, hypothesis) in zip(scores, hypotheses, strict=True):
        assert score == pytest.approx(hypothesis.log_probability, abs=1e-4)


def test_inputs_may_be_what_the_task_reads(parser: Engine) -> None:
    sentence = Sentence(("Yes", "."))
    assert written(parser, parser.transduce([sentence])) == written(
        parser, parser.transduce(["Yes ."])
    )


def test_evaluation_is_over_every_example(parser: Engine) -> None:
    evaluation = parser.evaluate("test", decoder="greedy")
    examples = parser.task.examples("test")
    assert (
        len(evaluation.outputs) == len(examples) == evaluation.score.figures["overall"]["sentences"]
    )
    assert parser.task.score(evaluation.outputs, examples) == evaluation.score
    perfect = [parser.task.reference(example) for example in examples]
    assert parser.task.score(perfect, examples).value == 100


def test_reloading_decodes_the_same(run: Path, parser: Engine) -> None:
    again = seqtrans.load(str(run), "last")
    assert written(again, again.transduce(LINES)) == written(parser, parser.transduce(LINES))
    assert again.score(again.task.examples("dev")) == parser.score(parser.task.examples("dev"))


def test_half_the_precision(run: Path, parser: Engine) -> None:
    """Weights in bf16, here and in the models that a decoder asks: much the same probabilities."""
    half = seqtrans.load(run, precision="bf16")
    assert {weight.dtype for weight in half.model.parameters()} == {torch.bfloat16}
    examples = half.task.examples("dev")
    assert half.score(examples) == pytest.approx(parser.score(examples), rel=0.02)
    assert half.score(examples) != parser.score(examples)
    for line, tree in zip(LINES, written(half, half.transduce(LINES)), strict=True):
        assert [leaf.word for leaf in leaves(read_tree(tree))] == line.split()
    (draft,) = half.decoder("speculative", draft=str(run)).models
    assert isinstance(draft, Transducer)
    assert draft.output_weight.dtype == torch.bfloat16


def test_eight_bits(run: Path, parser: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear layers in 8 bits: much the same probabilities."""
    monkeypatch.setattr("seqtrans.int8.WORTH", 1)
    monkeypatch.setattr("seqtrans.frozen.WORTH", 1)
    small = seqtrans.load(run, precision="int8")
    examples = small.task.examples("dev")
    assert small.score(examples) == pytest.approx(parser.score(examples), rel=0.1)
    assert small.score(examples) != parser.score(examples)
    assert len(small.transduce(LINES)) == len(LINES)
    (draft,) = small.decoder("speculative", draft=str(run)).models
    assert isinstance(draft, Frozen) == isinstance(small.scorer, Frozen)
    if isinstance(draft, Frozen):
        assert isinstance(draft.project, Int8Product)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"precision": "fp16"}, "precision is one of fp32, bf16, int8, not 'fp16'."),
        ({"mean": "log"}, "mean is one of probabilities, logarithms, not 'log'."),
        ({"device": "gpu"}, "device=gpu can't be used here: "),
    ],
)
def test_what_there_is_not(run: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        seqtrans.load(run, **given)
    assert str(caught.value).startswith(message)


def test_scores_do_not_depend_on_the_batch(parser: Engine) -> None:
    examples = parser.task.examples("dev")
    together = parser.score(examples)
    alone = [parser.score([example])[0] for example in examples]
    assert together == pytest.approx(alone, abs=1e-4)
    assert all(score < 0 and math.isfinite(score) for score in together)


def test_the_score_of_lines_is_that_of_the_example_they_make(parser: Engine) -> None:
    examples = parser.task.examples("dev")
    inputs = [" ".join(leaf.word for leaf in leaves(example)) for example in examples]
    trees = [write_tree(example) for example in examples]
    ids = [parser.task.encode_target(example) for example in examples]
    wanted = parser.score(examples)
    done: list[int] = []
    for targets in (trees, ids):
        assert parser.score(inputs, targets, done.append) == pytest.approx(wanted, abs=1e-4)
    assert sum(done) == 2 * len(examples)
    for symbols, example, total in zip(
        parser.log_probabilities(inputs, trees), examples, wanted, strict=True
    ):
        assert len(symbols) == len(parser.task.encode_target(example)) + 1
        assert math.fsum(symbols) == pytest.approx(total, abs=1e-4)


def test_a_batch_to_be_scored_is_no_larger_than_one_to_be_decoded(
    parser: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever side is the longer."""
    sizes: list[int] = []
    plain = Transducer.forward

    def forward(self: Transducer, *given: torch.Tensor) -> torch.Tensor:
        sizes.append(max(given[0].numel(), given[2].numel()))
        return plain(self, *given)

    monkeypatch.setattr(parser, "scorer", parser.model)
    monkeypatch.setattr(Transducer, "forward", forward)
    monkeypatch.setattr(parser, "tokens", 200)
    parser.score(["Yes"] * 40, [[3] * 49] * 40)
    assert sizes == [200] * 10


def test_what_can_not_be_scored_is_named(parser: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = write_tree(parser.task.examples("dev")[0])
    size = parser.model.vocabulary.size
    cases: list[tuple[Any, str]] = [
        (lambda: parser.score("Yes", ["x"]), "inputs is a list of lines, not one string."),
        (
            lambda: parser.score(["Yes"], tree),
            "targets is a list with one for each of the 1 inputs.",
        ),
        (
            lambda: parser.score(["Yes", "No"], [tree]),
            "targets is a list with one for each of the 2 inputs.",
        ),
        (lambda: parser.score(["Yes", " "], [tree, tree]), "input 2: there are no words."),
        (
            lambda: parser.score(["Yes", "No"], [[3], [3, size]]),
            f"input 2: {size} in the target is the id of no symbol.",
        ),
        (
            lambda: parser.score(["Yes"], [[3, parser.model.vocabulary.eos]]),
            f"input 1: {parser.model.vocabulary.eos} in the target is the id of no symbol.",
        ),
        (
            lambda: parser.score(["Yes", "Yes"], [[3], [3] * 30], names="line {}".format),
            "line 2: a target of 31 positions is longer than the 30 that this model's position "
            "scheme was built for.",
        ),
    ]
    monkeypatch.setattr(parser.model.decoder.position, "limit", 30)
    for action, message in cases:
        assert refusal(DataError, action) == message
    assert refusal(DataError, lambda: parser.score(["Yes"], ["(S"])).startswith("input 1: ")
    monkeypatch.setattr(parser.model.decoder.position, "limit", None)
    monkeypatch.setattr(parser.model.encoder.position, "limit", 30)
    assert refusal(
        DataError, lambda: parser.score(["Yes", "cat " * 40], [[3] * 90, [3]])
    ).startswith("input 2: a source of ")
    strange = read_tree("(TOP (ODD (NN cat)))")
    assert refusal(
        DataError, lambda: parser.score([parser.task.examples("dev")[0], strange])
    ).startswith("example 2: the label 'ODD' is in no training tree")


def test_a_decoder_is_given_no_more_sentences_than_it_wants(
    parser: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    plain = Speculative.decode

    def decode(self: Speculative, scorer: Scorer, request: Request) -> list[list[Hypothesis]]:
        sizes.append(len(request.limits))
        return plain(self, scorer, request)

    monkeypatch.setattr(Speculative, "decode", decode)
    lines = [*LINES, *LINES]
    wanted = written(parser, parser.transduce(lines, "greedy"))
    for rows in (1, 2, 99):
        sizes.clear()
        assert written(parser, parser.transduce(lines, "speculative", rows=rows)) == wanted
        assert sum(sizes) == len(lines)
        assert max(sizes) == min(rows, len(lines))


def refusal(kind: type[Exception], action: Any) -> str:
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value)


def test_refusals(run: Path, parser: Engine, tmp_path: Path) -> None:
    cases: list[tuple[type[Exception], Any, str]] = [
        (DataError, lambda: parser.transduce(["Yes", "  "]), "input 2: there are no words."),
        (DataError, lambda: parser.transduce("Yes"), "inputs is a list of lines, not one string."),
        (
            PluginError,
            lambda: parser.transduce(["Yes"], decoder="beem"),
            "no decoder is called 'beem'; did you mean 'beam'? there are: greedy, beam, "
            "speculative, sampling, mask_predict",
        ),
        (
            SettingsError,
            lambda: parser.transduce(["Yes"], widht=3),
            "decoder.widht: no such setting; did you mean decoder.width?",
        ),
        (
            SettingsError,
            lambda: parser.alternatives(["Yes"], 4),
            "4 outputs for each input were asked for, and this decoder gives 1 to 3.",
        ),
        (
            DataError,
            lambda: parser.evaluate("devv"),
            f"there is no split 'devv' in {run}/task; there are: dev, test, train.",
        ),
        (CheckpointError, lambda: seqtrans.load(tmp_path), f"{tmp_path} holds no checkpoint yet."),
        (
            CheckpointError,
            lambda: seqtrans.load(run, 7),
            f"{run} holds no checkpoint 7; step is best, last, average or one of 3.",
        ),
        (
            CheckpointError,
            lambda: seqtrans.load(tmp_path / "none"),
            f"there is no run folder {tmp_path}/none.",
        ),
    ]
    for kind, action, message in cases:
        assert refusal(kind, action) == message


def test_a_run_of_another_format_is_refused(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    path = copy / "config.json"
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**content, "format": 99}), "utf-8")
    assert refusal(CheckpointError, lambda: seqtrans.load(copy)) == (
        f"{path} is of format 99; this version of seqtrans reads format 1."
    )


def test_a_component_that_is_not_installed_is_named_with_its_provider(
    run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    path = copy / "config.json"
    content = json.loads(path.read_text("utf-8"))
    content["settings"]["position"] = "wavelets"
    content["providers"]["position"] = "seqtrans-wavelets 0.3"
    path.write_text(json.dumps(content), "utf-8")
    assert refusal(PluginError, lambda: seqtrans.load(copy)) == (
        f"{path} needs a position provided by seqtrans-wavelets 0.3: "
        "no position is called 'wavelets'; there are: "
        + ", ".join(offer.component.name for offer in registry().all("position"))
    )


def command(name: str, *words: str) -> int:
    import importlib

    from seqtrans.commands import run as call

    return call(importlib.import_module(f"seqtrans.{name}").main, words)


def test_transduce_gives_a_line_for_every_line(
    run: Path, parser: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = [LINES[0], "", LINES[1] + "\r", "   ", "left\u2028right \u0085"]
    source.write_bytes("\ufeff".encode() + "\n".join(lines).encode())
    assert command("transduce", f"run={run}", f"input={source}", f"output={target}") == 0
    found = target.read_bytes().decode().split("\n")
    assert found[-1] == ""
    expected = written(parser, parser.transduce([LINES[0], LINES[1]]))
    assert found[:4] == [expected[0], "", expected[1], ""]
    assert command("transduce", f"run={run}", f"input={source}") == 0
    assert capsys.readouterr().out == target.read_bytes().decode()


def test_transduce_draws_and_lists(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("The cat left .\n\n", "utf-8")
    words = [f"run={run}", f"input={source}"]
    assert command("transduce", *words, "format=drawing", f"svg={tmp_path}/svg") == 0
    drawing = capsys.readouterr().out
    assert "TOP" in drawing
    assert "cat" in drawing.rstrip().split("\n")[-1]
    assert [p.name for p in (tmp_path / "svg").iterdir()] == ["1.svg"]
    assert command("transduce", *words, "format=json", "best=2") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["input"] == "The cat left ."
    assert len(first["outputs"]) == 2
    assert first["outputs"][0]["score"] >= first["outputs"][1]["score"]
    assert second == {"input": "", "outputs": []}


def test_a_line_that_is_no_input_is_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("The/DT cat/NN\nThe cat\n", "utf-8")
    words = [f"run={run}", f"input={source}", f"output={target}", "task.input=tagged"]
    assert command("transduce", *words) == 2
    assert capsys.readouterr().err == (
        f"seqtrans: {source}, line 2: 'The' isn't word/TAG; task.input=words reads words alone.\n"
    )
    assert not target.exists()
    source.write_bytes(b"caf\xe9\n")
    assert command("transduce", *words) == 2
    assert capsys.readouterr().err == (
        f"seqtrans: {source}, line 1: byte 4 of the line, 0xe9, is not UTF-8; save the file as "
        "UTF-8.\n"
    )


def test_an_input_of_the_model_is_named_by_its_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from seqtrans import transduce
    from seqtrans.position import PositionScheme

    monkeypatch.setattr(PositionScheme, "limit", 30)
    monkeypatch.setattr(transduce, "BLOCK", 2)
    source = tmp_path / "in.txt"
    source.write_text("Yes\n\nYes\n\n" + "cat " * 40 + "\n", "utf-8")
    assert command("transduce", f"run={run}", f"input={source}") == 2
    assert capsys.readouterr().err.startswith(f"seqtrans: {source}, line 5: a source of ")


@pytest.fixture
def pair(run: Path, parser: Engine, tmp_path: Path) -> list[str]:
    """The words of a command that scores three outputs, between blank lines."""
    outputs = iter(written(parser, parser.transduce(LINES[:3])))
    lines = [LINES[0], "", LINES[1], LINES[2], "  "]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    targets = [next(outputs) if line.strip() else "" for line in lines]
    (tmp_path / "trees.txt").write_text("".join(f"{line}\n" for line in targets), "utf-8")
    return [f"run={run}", f"input={tmp_path}/in.txt", f"target={tmp_path}/trees.txt"]


def test_transduce_scores_what_it_wrote(
    pair: list[str],
    parser: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from seqtrans import transduce

    monkeypatch.setattr(transduce, "BLOCK", 2)
    wanted = [
        found[0][1].log_probability
        for found in parser.alternatives(LINES[:3], 1)
        if not found[0][0].repairs
    ]
    assert len(wanted) == 3, "what is mended is written as something else"
    assert command("transduce", *pair) == 0
    first, blank, second, third, last = capsys.readouterr().out.split("\n")[:-1]
    assert blank == last == ""
    assert [float(first), float(second), float(third)] == pytest.approx(wanted, abs=1e-4)
    assert command("transduce", *pair, "format=json", f"output={tmp_path}/out") == 0
    found = [json.loads(line) for line in (tmp_path / "out").read_text("utf-8").splitlines()]
    targets = (tmp_path / "trees.txt").read_text("utf-8").splitlines()
    assert [entry["target"] for entry in found] == targets
    assert [entry["input"] for entry in found] == [*LINES[:1], "", *LINES[1:3], "  "]
    assert found[1] == {"input": "", "target": "", "log_probability": None, "symbols": []}
    for entry, line in zip([found[0], *found[2:4]], (first, second, third), strict=True):
        symbols = [symbol["log_probability"] for symbol in entry["symbols"]]
        assert f"{entry['log_probability']:.6f}" == line
        assert math.fsum(symbols) == entry["log_probability"]
        ids = parser.task.read_target(entry["target"])
        units = [parser.task.units([id], "target")[0] for id in ids]
        assert [symbol["symbol"] for symbol in entry["symbols"]] == [*units, "</s>"]


def test_what_can_not_be_scored_is_told_before_anything_is_written(
    pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, output = tmp_path / "in.txt", tmp_path / "trees.txt", tmp_path / "out.txt"
    right = target.read_text("utf-8").splitlines()
    for trees, said in (
        (
            right[:-1],
            f"{target} has 4 lines and {source} has 5; each line needs its target.",
        ),
        (
            [right[0], right[0], *right[2:]],
            f"{target}, line 2: there is a target, and this line of {source} is blank.",
        ),
        ([*right[:2], "(S", *right[3:]], f"{target}, line 3: "),
        ([*right[:3], "", ""], f"{target}, line 4: "),
    ):
        target.write_text("".join(f"{line}\n" for line in trees), "utf-8")
        for more in ([f"output={output}"], []):
            assert command("transduce", *pair, *more) == 2
            out, err = capsys.readouterr()
            assert out == ""
            assert err.startswith(f"seqtrans: {said}")
            assert err.count("\n") == 1
        assert not output.exists()


def test_a_target_beyond_the_models_positions_is_named_by_its_line(
    pair: list[str],
    parser: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from seqtrans import transduce
    from seqtrans.position import PositionScheme

    first = (tmp_path / "trees.txt").read_text("utf-8").splitlines()[0]
    limit = len(parser.task.read_target(first))
    monkeypatch.setattr(PositionScheme, "limit", limit)
    monkeypatch.setattr(transduce, "BLOCK", 1)
    assert command("transduce", *pair, f"output={tmp_path}/out.txt") == 2
    assert capsys.readouterr().err == (
        f"seqtrans: {tmp_path}/in.txt, line 1: a target of {limit + 1} positions is longer than "
        f"the {limit} that this model's position scheme was built for.\n"
    )
    assert not (tmp_path / "out.txt").exists()


def test_evaluate_writes_outputs_and_figures(
    run: Path, parser: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, report = tmp_path / "trees", tmp_path / "report.json"
    words = [f"run={run}", "split=test", "decoder=greedy", f"output={output}", f"report={report}"]
    assert command("evaluate", *words) == 0
    evaluation = parser.evaluate("test", decoder="greedy")
    assert output.read_text("utf-8").splitlines() == written(parser, evaluation.outputs)
    content = json.loads(report.read_text("utf-8"))
    assert (content["metric"], content["value"]) == ("F1", evaluation.score.value)
    assert evaluation.score.signature in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("evaluate", [], "run: must be given: the run folder, or several that decode together"),
        ("evaluate", ["splitt=dev"], "splitt: no such setting; did you mean split?"),
        ("transduce", ["best=2"], "best: more than one output for each input needs format=json"),
        ("transduce", ["best=0"], "best: must be at least 1, not '0'"),
        (
            "transduce",
            ["target=x", "prefix=y"],
            "target: prefix has no effect with it, since nothing is decoded",
        ),
        (
            "transduce",
            ["target=x", "format=drawing"],
            "target: format=drawing has no effect with it, since nothing is decoded",
        ),
        (
            "transduce",
            ["target=x", "decoder.width=2"],
            "decoder: has no effect with target=FILE, since nothing is decoded",
        ),
        (
            "transduce",
            ["model.width=3"],
            "model.width: belongs to the run and can't be changed here",
        ),
        (
            "transduce",
            ["task.leaves=words"],
            "task.leaves: was fixed when the run was prepared; what may change is "
            "task.constrained, task.input, task.parameters",
        ),
    ],
)
def test_wrong_words_of_a_command(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, words: list[str], message: str
) -> None:
    given = [] if "must be given" in message else [f"run={run}"]
    assert command(name, *given, *words) == 2
    assert f"seqtrans: {message}\n" in capsys.readouterr().err


def test_a_constraint_turned_off_is_mended(run: Path) -> None:
    from seqtrans.settings import Words

    changes = Words({"task": {"constrained": "no"}}, {})
    parser = seqtrans.load(run, changes=changes)
    found = parser.transduce(LINES)
    assert [[leaf.word for leaf in leaves(parse.tree)] for parse in found] == [
        line.split() for line in LINES
    ]
    assert any(parse.repairs for parse in found)
    score = parser.evaluate("test").score
    assert score.figures["repaired"]["any"] > 0
    assert "repaired: " in score.report


def test_an_input_beyond_the_models_positions_is_named(parser: Engine) -> None:
    encoder = parser.model.encoder
    before = encoder.position.limit
    encoder.position.limit = 30
    try:
        message = refusal(DataError, lambda: parser.transduce(["Yes", "cat " * 40, "No"]))
    finally:
        encoder.position.limit = before
    length = len(parser.task.encode_source(parser.task.read("cat " * 40)))
    assert message == (
        f"input 2: a source of {length} positions is longer than the 30 that this model's "
        "position scheme was built for."
    )


def test_outputs_that_are_no_tree_at_all_still_count(parser: Engine) -> None:
    example = read_tree("(TOP (S (NP (DT the) (NN cat)) (VP (VBD sat))))")
    flat = read_tree("(TOP (DT the) (NN cat) (VBD sat))")
    assert parser.task.score([Parse(flat)], [example]).value == 0
