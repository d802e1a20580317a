"""The plan of a training: told without data or torch, and right where it can be checked."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from pydantic import Field

from seqtrans import plan
from seqtrans.commands import run
from seqtrans.costs import Vocabularies, Work, flops, memory, parameters
from seqtrans.hooks import Component
from seqtrans.plugins import BUILTIN, Registry
from seqtrans.prepare import prepare
from seqtrans.resolving import packaged, resolve
from seqtrans.settings import Settings, parse_words

Captured = pytest.CaptureFixture[str]

BIG = ["model=big", "training=big", "vocabulary=37000", "gpus=8", "device=p100"]
TINY = [
    *("model=tiny", "model.width=8", "model.inner=16", "model.heads=2", "training=tiny"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "data.tokens=50", "run.threads=1"),
]


def planned(folder: Path, *words: str) -> dict[str, Any]:
    """The report of a plan."""
    report = folder / "report.json"
    assert run(plan.main, [*words, f"report={report}"]) == 0
    content = json.loads(report.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def refused(capsys: Captured, *words: str) -> str:
    """What is said to words that are wrong."""
    assert run(plan.main, list(words)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


def test_the_big_model_of_the_paper(tmp_path: Path, capsys: Captured) -> None:
    found = planned(tmp_path, *BIG, "pairs=4500000")
    assert found["parameters"]["total"] == 214_171_648
    update, training = found["update"], found["training"]
    assert update["sentences"] == 25_000 // 27
    assert training["steps"] == 300_000
    assert training["flops"] == 300_000 * update["flops"]["total"]
    assert training["epochs"] == 300_000 * update["sentences"] / 4_500_000
    seconds = update["flops"]["total"] / (8 * 0.4 * 9.5e12)
    assert found["time"]["update_seconds"] == pytest.approx(seconds)
    assert training["paper_rule"] == pytest.approx(300_000 * seconds * 8 * 9.5e12)
    shown = capsys.readouterr().out
    for line in (
        "plan: model=big training=big, a vocabulary of 37,000, 8 p100",
        "parameters: 214,171,648",
        "time: 3.6 days, 1.04 s an update on 8 p100 in fp32",
        "precision=fp32: all in fp32, as without --mixed_precision.",
        "  exact count; at 1 s each, as in the paper, they use 0.42 of those TFLOPS.",
        "  one vocabulary for both sides",
        "  sources of 26 symbols (source_length)",
    ):
        assert line in shown.splitlines()
    assert max(map(len, shown.splitlines())) <= 100


def test_the_report_holds_what_costs_say(tmp_path: Path) -> None:
    words = ["model=tiny", "vocabulary=900", "source_vocabulary=700", "source_length=11"]
    found = planned(tmp_path, *words, "target_length=8", "gpus=2", "training.accumulation=2")
    config = resolve(parse_words(["task=none", *words[:1]]), plan.TaskFree())
    sizes = Vocabularies(900, 700, shared=False)
    work = Work.padded(25_000 // 11, 11, 9)
    assert found["parameters"]["total"] == parameters(config.shape, sizes).total
    assert found["update"]["flops"]["total"] == flops(config.shape, sizes, work).total
    own = next(entry for entry in found["memory"] if entry["tokens"] == 25_000 // 4)
    part = Work.padded(6250 // 11, 11, 9)
    assert own["peak"] == memory(config.shape, sizes, part, processes=2, parts=2).peak
    assert found["time"] is None
    assert found["training"]["epochs"] is None


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (["throughput=1000"], lambda update: update["target"] / 1000),
        (["flops=2e12"], lambda update: update["flops"]["total"] / 8e12),
        (["device=p100", "share=0.5"], lambda update: update["flops"]["total"] / (2 * 9.5e12)),
        (["device=a100"], lambda update: update["flops"]["total"] / (1.6 * 19.5e12)),
        (["device=a100", "precision=bf16"], lambda update: update["flops"]["total"] / 312e12),
        (["device=v100", "precision=fp16"], lambda update: update["flops"]["total"] / 125e12),
        (["device=h100", "throughput=1000"], lambda update: update["target"] / 1000),
    ],
)
def test_time(words: list[str], seconds: Any, tmp_path: Path) -> None:
    found = planned(tmp_path, "vocabulary=100", "gpus=4", "training.steps=10", *words)
    assert found["time"]["update_seconds"] == pytest.approx(seconds(found["update"]))
    assert found["time"]["hours"] == pytest.approx(seconds(found["update"]) / 360)


def test_two_passes_are_twice_the_work_on_the_same_text(tmp_path: Path) -> None:
    words = ["vocabulary=100", "training.steps=10", "flops=2e12"]
    once = planned(tmp_path, *words)
    twice = planned(tmp_path, *words, "training.consistency=5")
    assert twice["update"]["target"] == once["update"]["target"]
    assert twice["update"]["flops"]["total"] == 2 * once["update"]["flops"]["total"]
    assert twice["time"]["hours"] == pytest.approx(2 * once["time"]["hours"])
    for less, more in zip(once["memory"], twice["memory"], strict=True):
        assert less["peak"] < more["peak"] < 2 * less["peak"]


def test_what_training_tells_is_what_a_plan_is_told(tmp_path: Path, capsys: Captured) -> None:
    """`throughput` is of all devices together: their number changes neither time nor line."""
    words = ["vocabulary=100", "training.steps=10", "throughput=8000"]
    times = [planned(tmp_path, *words, f"gpus={gpus}")["time"] for gpus in (1, 8)]
    assert times[0]["update_seconds"] == times[1]["update_seconds"]
    shown = capsys.readouterr().out
    assert "  from 8,000 target tokens/s, as given. " in shown
    assert "  from 8,000 target tokens/s on all 8 devices together, as given. " in shown


def test_another_precision_is_told_beside_each(tmp_path: Path, capsys: Captured) -> None:
    words = ["config=wmt14-en-de-base", "gpus=8", "device=a100"]
    single, half = planned(tmp_path, *words), planned(tmp_path, *words, "precision=bf16")
    said = {}
    for one, other, name in ((single, half, "bf16"), (half, single, "fp32")):
        own = next(entry for entry in other["memory"] if entry["tokens"] == 25_000 // 8)
        assert one["other_precision"] == {
            "precision": name,
            "hours": other["time"]["hours"],
            "peak": own["peak"],
        }
        said[name] = f"{own['peak'] / 1e9:.2f} GB at the peak: "
    fast, slow = half["time"]["hours"], single["time"]["hours"]
    assert fast < slow / 8
    shown = " ".join(capsys.readouterr().out.split())
    for part in (
        "an update on 8 a100 in fp32 from 0.4 (assumed) of 19.5 TFLOPS, its data sheet's peak of "
        "dense matrix products (a100, fp32).",
        "an update on 8 a100 in bf16 from 0.25 (assumed) of 312 TFLOPS, its data sheet's peak of "
        "dense matrix products (a100, bf16).",
        "precision=fp32: all in fp32, as without --mixed_precision. precision=bf16 would be "
        f"{60 * fast:.1f} minutes and {said['bf16']}products in bf16 and the rest in fp32, as by "
        "accelerate launch --mixed_precision bf16.",
        "precision=bf16: products in bf16 and the rest in fp32, as by accelerate launch "
        f"--mixed_precision bf16. precision=fp32 would be {slow:.1f} hours and {said['fp32']}all "
        "in fp32, as without --mixed_precision.",
        "bytes), fp32 tokens",
        "bytes), bf16 (weights, Adam and gradients fp32) tokens",
        "8 × 19.5 TFLOPS (fp32): what",
        "8 × 312 TFLOPS (bf16): what",
    ):
        assert part in shown


def test_a_share_is_of_the_precision_that_it_is_given_for(tmp_path: Path) -> None:
    words = ["vocabulary=100", "device=h100"]
    given, assumed = planned(tmp_path, *words, "share=0.9"), planned(tmp_path, *words)
    assert given["other_precision"] == assumed["other_precision"]
    assert given["time"]["hours"] < assumed["time"]["hours"]


def test_where_there_is_no_other_precision(tmp_path: Path) -> None:
    words = ["vocabulary=100", "model=tiny"]
    assert planned(tmp_path, *words, "device=k80")["other_precision"] is None
    assert planned(tmp_path, *words, "device=v100")["other_precision"]["precision"] == "fp16"
    found = planned(tmp_path, *words, "device=h100", "flops=1e12")["other_precision"]
    assert (found["precision"], found["hours"]) == ("bf16", None)


@pytest.mark.parametrize("name", packaged())
def test_every_recipe_can_be_planned_without_its_data(name: str, tmp_path: Path) -> None:
    assert planned(tmp_path, f"config={name}", "vocabulary=512")["parameters"]["total"] > 0


@pytest.fixture
def threads() -> Iterator[None]:
    """As many as before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_measured(
    precision: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = set()
    product = torch.nn.functional.linear

    def linear(*given: torch.Tensor) -> torch.Tensor:
        found = product(*given)
        kinds.add(found.dtype)
        return found

    monkeypatch.setattr("torch.nn.functional.linear", linear)
    words = [*TINY, "model.pace=2", "vocabulary=50", "measure=yes", "gpus=3", "measured_tokens=40"]
    words += ["source_length=4", "target_length=4", f"precision={precision}"]
    found = planned(tmp_path, *words)
    assert kinds == {{"fp32": torch.float32, "bf16": torch.bfloat16}[precision]}
    speed = found["time"]["throughput"]
    assert speed > 0
    assert found["time"]["update_seconds"] == pytest.approx(found["update"]["target"] / speed)
    shown = capsys.readouterr().out
    assert f"as measured here on a CPU (1 thread, {precision}): 8" in " ".join(shown.split())
    assert f" s an update on 3 devices in {precision}\n" in shown


@pytest.mark.skipif(torch.cuda.is_available(), reason="measures on the GPU")
def test_a_cpu_has_no_fp16(capsys: Captured) -> None:
    assert refused(capsys, "vocabulary=9", "measure=yes", "precision=fp16") == (
        "seqtrans: precision: fp16 can't be measured on a CPU, which trains in bf16 or fp32\n"
    )


class PromisedSettings(Settings):
    """Of a task that states its vocabulary."""

    late: ClassVar[frozenset[str]] = frozenset()

    vocabulary: int = Field(60, ge=1, description="symbols")
    shared: bool = Field(False, description="one vocabulary")


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The built-ins, the toy task, and one that can't be built."""
    names = Registry([*BUILTIN, "toy"])
    promised = Component(name="promised", build="nowhere:Nothing", settings=PromisedSettings)
    get = names.get

    def find(kind: str, name: str) -> Component:
        return promised if name == "promised" else get(kind, name)

    monkeypatch.setattr(names, "get", find)
    monkeypatch.setattr("seqtrans.plugins.registry", lambda: names)
    return names


def test_letters_are_counted_in_the_data(tmp_path: Path, capsys: Captured) -> None:
    """`task.vocabulary` bounds what is learnt, and says nothing of characters and symbols."""
    for task in ("task=g2p", "task=inflection"):
        assert "vocabulary: must be given, as in vocabulary=37000" in refused(capsys, task)
    found = planned(tmp_path, "task=pairs", "task.vocabulary=900")
    assert found["vocabularies"]["target"] == 900


def test_a_vocabulary_from_the_settings_of_the_task(tasks: Registry, tmp_path: Path) -> None:
    found = planned(tmp_path, "task=promised", "task.vocabulary=80", "run=" + str(tmp_path / "new"))
    assert found["vocabularies"] == {"target": 80, "source": 80, "shared": False}
    assert "a vocabulary of 80 symbols: what task.vocabulary asks for" in found["assumptions"]
    shared = planned(tmp_path, "task=promised", "task.shared=yes")
    assert shared["vocabularies"] == {"target": 60, "source": 60, "shared": True}


@pytest.fixture
def folder(tasks: Registry, tmp_path: Path) -> Path:
    """A prepared run of the toy task: 13 symbols, shared, 60 numbers."""
    words = ["task=reversal", f"run={tmp_path / 'run'}", *TINY]
    prepare(resolve(parse_words(words), tasks), tasks)
    return tmp_path / "run"


def test_a_prepared_run(folder: Path, tmp_path: Path) -> None:
    numbers = json.loads((folder / "task" / "numbers.json").read_text(encoding="utf-8"))["train"]
    found = planned(tmp_path, f"run={folder}")
    assert found["vocabularies"] == {"target": 13, "source": 13, "shared": True}
    assert found["training"]["pairs"] == len(numbers) == 60
    mean = sum(map(len, numbers)) / 60
    assert found["lengths"] == {"source": mean, "target": mean}
    assert found["counted_parameters"] == found["parameters"]["total"]
    assert found["settings"]["model.width"] == 8
    assert found["assumptions"] == []


def test_a_prepared_run_with_another_model(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    """What is said goes over the run; learned positions are counted, as the model is there."""
    words = ["model=small", "position=learned", "position.limit=100", "task=reversal"]
    found = planned(tmp_path, f"run={folder}", *words)
    assert found["settings"]["model.width"] == 256
    assert found["settings"]["data.tokens"] == 50
    assert found["counted_parameters"] == found["parameters"]["total"] + 2 * 100 * 256
    assert found["assumptions"] == ["position=learned costs nothing of its own besides its weights"]
    assert re.search(r"^  of components +51,200$", capsys.readouterr().out, re.MULTILINE)


def test_a_prepared_run_of_another_task(folder: Path, capsys: Captured) -> None:
    assert refused(capsys, f"run={folder}", "task.longest=9") == (
        f"seqtrans: task.longest: is 6 in {folder / 'config.json'}, which was prepared so, "
        "and 9 here\n"
    )


HOW = "must be given, as in vocabulary=37000; or name a prepared run by run=FOLDER"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("model=big", f"vocabulary: {HOW}"),
        ("task=parsing run=/nowhere", f"vocabulary: {HOW}"),
        (
            "run=/nowhere",
            "/nowhere holds nothing prepared, and no task is named; run seqtrans prepare first, or "
            "add task=NAME.",
        ),
        ("vocabulary=9 throughput=1 flops=2", "give one of throughput, flops and measure=yes"),
        (
            "vocabulary=9 share=0.2",
            "share has no effect without device, nor with throughput, flops or measure=yes",
        ),
        ("vocabulary=9 measured_tokens=5", "measured_tokens has no effect without measure=yes"),
        (
            "vocabulary=9 device=tpu",
            "device: must be one of k80, k40, m40, p100, v100, a100, h100 or none, not 'tpu'",
        ),
        (
            "vocabulary=9 device=v100 precision=bf16",
            "precision: the speed of v100 is known for precision=fp32 and precision=fp16, not for "
            "bf16",
        ),
        (
            "vocabulary=9 precision=no",
            "precision: must be one of fp32, fp16, bf16, not 'no'",
        ),
        (
            "vocabulary=9 shared=yes source_vocabulary=8",
            "source_vocabulary: is 8, and the shared vocabulary has 9",
        ),
        (
            "vocabulary=9 source_vocabulary=8 model.tie=all",
            "model.tie=all needs one vocabulary for both sides; use model.tie=output.",
        ),
        ("gpsu=8", "gpsu: no such setting; did you mean gpus?"),
        ("modl=big", "modl: no such group; did you mean model?"),
        ("lr=3", "lr: no such setting; did you mean training.lr?"),
    ],
)
def test_mistakes(words: str, said: str, capsys: Captured) -> None:
    assert refused(capsys, *words.split()) == f"seqtrans: {said}\n"


def test_all_mistakes_at_once(capsys: Captured) -> None:
    assert refused(capsys, "gpus=0", "training.steps=x") == (
        "seqtrans: gpus: must be at least 1, not '0'\n"
        "seqtrans: training.steps: must be a whole number, not 'x'\n"
    )


def test_help() -> None:
    text = inspect.getdoc(plan.main) or ""
    for name in plan.PlanSettings.model_fields:
        assert f"{name}=" in text
    assert max(map(len, text.splitlines())) <= 100


def test_it_is_told_without_anything_heavy() -> None:
    code = f"""
import sys
from seqtrans.plan import main
main({BIG!r})
print(sorted({{"torch", "numpy", "accelerate", "tokenizers", "rich"}} & set(sys.modules)))
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout.splitlines()[-1] == "[]"
