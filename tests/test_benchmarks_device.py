"""The script for a GPU, tried on a CPU, and the kit in another type."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import device, speed
from benchmarks.results import measurements, read_measurement
from seqtrans.commands import run
from seqtrans.data import Unpadded
from seqtrans.loss import Objective
from seqtrans.plugins import registry
from seqtrans.testing import check_attention, tiny_model
from seqtrans.testing.parts import same

Captured = pytest.CaptureFixture[str]
SMALL = [
    "device=cpu",
    "components=full,none,greedy",
    "presets=tiny",
    "vocabulary=10000",
    "precisions=fp32",
    "tokens=60",
    "updates=1",
    "compile=false",
    "batches=2",
    "length=3",
    "lengths=64,128",
    "reach=8",
    "width=16",
    "rounds=1",
    "matrix=32",
]


def test_without_a_gpu_it_says_so(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run(device.main, []) == 2
    assert capsys.readouterr().err == (
        "seqtrans: device=cuda: PyTorch finds no GPU here; run this on a machine with one, or with "
        "device=cpu to try it.\n"
    )


def test_everything_is_measured_written_and_shown(tmp_path: Path, capsys: Captured) -> None:
    words = [*SMALL, "parts=training,decoding,long_inputs"]
    assert device.main([*words, f"report={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "| training | tflops | tokens per second |" in shown
    assert "decoding: 2 of 2 jobs done" in shown
    assert "failed" not in shown
    assert "skipped" not in shown
    found = {one.metric: one for one in map(read_measurement, measurements(tmp_path))}
    assert found.keys() == {"tokens_per_second", "sentences_per_second", "times_full"}
    for one in found.values():
        assert one.command == f"python -m benchmarks.device {' '.join(sorted_as_fields(words))}"
        assert one.settings["device"] == "cpu"
        assert one.value > 0
    jobs = found["times_full"].figures["jobs"]
    assert found["times_full"].value == jobs["128"]["times_full"]
    assert jobs.keys() == {"64", "128"}
    assert "tiny, beam4, batches of 2, fp32" in found["sentences_per_second"].figures["jobs"]
    assert 0 < found["tokens_per_second"].figures["jobs"]["tiny, fp32"]["share"] < 10


def sorted_as_fields(words: list[str]) -> list[str]:
    """In the order of the settings."""
    order = list(device.DeviceSettings.model_fields)
    return sorted(words, key=lambda word: order.index(word.partition("=")[0]))


def test_properties_are_checked_in_each_type() -> None:
    settings = speed.read(SMALL, device.DeviceSettings)
    names = [job.name for job in device.properties(settings)]
    assert names == [
        "full, fp32",
        "full, bf16",
        "full at its usual size, fp32",
        "full at its usual size, bf16",
        "greedy",
        "none, fp32",
        "none, bf16",
        "none with full, fp32",
        "none with full, bf16",
        "none with full, autocast",
    ]
    everything = speed.read(["device=cpu"], device.DeviceSettings)
    names = [job.name for job in device.properties(everything)]
    for offer in registry().all("attention"):
        for kind in ("fp32", "bf16", "autocast"):
            assert f"rotary with {offer.component.name}, {kind}" in names
    assert len(set(names)) == len(names)


def test_names_that_there_are_not(capsys: Captured) -> None:
    assert run(device.main, ["device=cpu", "parts=properties", "components=greddy"]) == 2
    assert capsys.readouterr().err.startswith(
        "seqtrans: components: no component is called 'greddy'; did you mean greedy?; there are: "
    )
    assert run(device.main, ["device=gpu"]) == 2
    assert "cuda" in capsys.readouterr().err


def test_products_of_the_backward_pass_are_in_the_same_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    class Told(torch.optim.Adam):
        def step(self, *given: Any) -> None:  # type: ignore[override]
            seen.append(torch.get_float32_matmul_precision())

    monkeypatch.setattr(torch.optim, "Adam", Told)
    settings = speed.read(SMALL, device.DeviceSettings)
    before = torch.get_float32_matmul_precision()
    for precision, wanted in (("tf32", "high"), ("fp32", "highest")):
        seen.clear()
        device.train("tiny", precision, False, settings)  # type: ignore[arg-type]
        assert set(seen) == {wanted}
    assert torch.get_float32_matmul_precision() == before


def test_every_preset_trains_and_decodes() -> None:
    """All of them in the first batches and precision, before the next."""
    words = ["device=cpu", "presets=base,big", "precisions=bf16,tf32", "batches=64,1"]
    settings = speed.read(words, device.DeviceSettings)
    assert [job.name for job in device.decoding(settings)] == [
        f"{preset}, {decoder}, batches of {batch}, bf16"
        for batch in (64, 1)
        for preset in ("base", "big")
        for decoder in ("greedy", "beam4")
    ]
    names = [job.name for job in device.training(settings)]
    for preset in ("base", "big"):
        for way in ("bf16", "tf32", "bf16, compiled", "tf32, compiled"):
            assert f"{preset}, {way}" in names


def test_a_search_is_of_the_preset_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def note(work: Any) -> Any:
        built.append(work.width)
        return model(work)

    model = speed.model
    monkeypatch.setattr(speed, "model", note)
    words = [word for word in SMALL if not word.startswith("presets")]
    settings = speed.read([*words, "presets=tiny,small"], device.DeviceSettings)
    first, _, third, _ = device.decoding(settings)
    for job in (first, third):
        assert job.measure()["sentences_per_second"] > 0
    assert built == [device.SHAPES[preset]["width"] for preset in ("tiny", "small")]


@pytest.mark.slow
def test_the_compiled_objective_is_the_plain_one_in_one_graph() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    model = tiny_model(encoder_layers=1, decoder_layers=1).train()
    torch.compiler.reset()
    compiled, plain = device.compiled_loss(model, 0.1, backend), Objective(model, 0.1)
    for lengths, steps in (((4, 4), 6), ((5, 3), 4), ((7, 7, 7), 5)):
        source = torch.randint(3, 12, (len(lengths), lengths[0]))
        mask = torch.arange(lengths[0]) < torch.tensor(lengths)[:, None]
        if bool(mask.all()):
            mask = mask.as_subclass(Unpadded)
        target = torch.randint(3, 12, (len(lengths), steps))
        found, wanted = (
            (loss, *torch.autograd.grad(loss, list(model.parameters())))
            for loss in (way(source, mask, target, target) for way in (compiled, plain))
        )
        for one, other in zip(found, wanted, strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)
    assert len(graphs) == 1


@pytest.mark.slow
def test_training_is_measured_with_a_compiled_model(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without dropout, which on a CPU breaks the graph."""
    shape = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "dropout": 0.0}
    monkeypatch.setattr(device, "SHAPES", {"tiny": shape})
    words = [word for word in SMALL if not word.startswith("compile")]
    words += ["parts=training", "compile=yes", "backend=eager", f"report={tmp_path}"]
    assert device.main(words) == 0
    assert "training: 3 of 3 jobs done" in capsys.readouterr().out
    (path,) = measurements(tmp_path)
    figures = read_measurement(path).figures["jobs"]["tiny, fp32, compiled"]
    assert figures["tokens_per_second"] > 0
    assert 0 < figures["share"] < 10


@pytest.mark.parametrize("name", [o.component.name for o in registry().all("attention")])
def test_attentions_at_their_usual_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "SIZES", (65, 210))
    component = registry().get("attention", name)
    device.check_size(component, device=torch.device("cpu"), dtype=torch.float32)


def test_what_fails_or_takes_too_long_costs_the_others_nothing(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def jobs(settings: Any) -> Iterator[device.Job]:
        def fail(error: BaseException) -> device.Figures:
            raise error

        def sleep() -> device.Figures:
            time.sleep(60)
            return {}

        yield device.Job("training", "wrong", lambda: fail(AssertionError("This must hold.")))
        yield device.Job("training", "broken", lambda: fail(MemoryError("all is full\nof it")))
        yield device.Job("training", "fine", lambda: {"tokens_per_second": 1234.5})
        yield device.Job("training", "slow", sleep)
        yield device.Job("training", "late", lambda: {"tokens_per_second": 1.0})

    monkeypatch.setattr(device, "JOBS", {"training": jobs})
    monkeypatch.setattr(device, "LEAST", 0.1)
    words = ["device=cpu", "parts=training", "seconds=2", f"report={tmp_path}"]
    assert device.main(words) == 1
    shown = capsys.readouterr().out
    assert shown.partition("\n")[2] == (
        "\n"
        "training: 1 of 5 jobs done\n"
        "\n"
        "| training | tokens per second |\n"
        "| --- | ---: |\n"
        "| fine | 1,234 |\n"
        "\n"
        "failed:\n"
        "\n"
        "- wrong: This must hold.\n"
        "- broken: MemoryError: all is full\n"
        "\n"
        "skipped:\n"
        "\n"
        "- slow: the time was up before it was done\n"
        "- late: no time was left\n"
    )
    (path,) = measurements(tmp_path)
    found = read_measurement(path)
    assert found.value == 1234.5
    assert found.figures["jobs"] == {"fine": {"tokens_per_second": 1234.5}}
    assert list(found.figures["failed"]) == ["wrong", "broken"]
    assert list(found.figures["skipped"]) == ["slow", "late"]


def test_the_kit_in_another_type() -> None:
    check_attention(registry().get("attention", "grouped"), dtype=torch.bfloat16)


def test_tolerances_by_type() -> None:
    """A lower type may differ by its rounding, in proportion to the largest number."""

    def differ(kind: torch.dtype, by: float, largest: float, tolerance: float = 1e-5) -> bool:
        wanted = torch.tensor([0.0, largest], dtype=kind)
        found = wanted + torch.tensor([by, 0.0], dtype=kind)
        try:
            same(found, wanted, "They must be the same", tolerance)
        except AssertionError:
            return True
        return False

    assert differ(torch.float32, 2e-5, 100.0)
    assert not differ(torch.bfloat16, 0.05, 1.0)
    assert differ(torch.bfloat16, 0.1, 1.0)
    assert not differ(torch.bfloat16, 0.4, 8.0)
    assert differ(torch.bfloat16, 0.01, 8.0, 0.0)
    assert differ(torch.float16, 0.02, 1.0)


class Far(Tensor):
    """Says that it is on a GPU."""

    device = torch.device("cuda")


def test_another_device_sums_in_another_order() -> None:
    """So in fp32 a little more is allowed there, in proportion to the largest number."""
    wanted = torch.tensor([0.0, 10.0])
    found = wanted + torch.tensor([2e-4, 0.0])
    same(found.as_subclass(Far), wanted, "They must be the same")
    with pytest.raises(AssertionError, match=r"differ by up to 0\.0002; 1e-05 is allowed"):
        same(found, wanted, "They must be the same")
