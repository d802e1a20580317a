"""Attention maps: exact, for every attention and position scheme, and without any influence."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from components import Gathered, Seen
from test_engine import run  # noqa: F401  # a fixture: a run of an untrained parser with a pace
from test_export import trained
from torch import Tensor, nn

import seqtrans
from seqtrans import attend
from seqtrans.attend import Maps, maps, recording
from seqtrans.attention import Attention
from seqtrans.commands import run as command
from seqtrans.config import Shape
from seqtrans.errors import DataError
from seqtrans.model import Transducer
from seqtrans.plugins import registry
from seqtrans.settings import NoSettings
from seqtrans.task import Vocabulary
from seqtrans.testing import tiny_model
from seqtrans_plugins.tokens import Tokens

VOCABULARY = Vocabulary(11)
SOURCE, TARGET = torch.tensor([4, 9, 3, 7, 5, 8, 6]), [5, 3, 8, 8, 10]
"""Of the tiny models: S = 7, and T = 6 with bos."""


class Linear(Attention):
    """Attention without a softmax: its output is no sum by the weights of the base."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
        return torch.relu(q) @ (torch.relu(k).transpose(-2, -1) @ v)


class Saying(Linear):
    """The same, and it says so."""

    def weigh(self, q: Tensor, k: Tensor, **_: Any) -> Tensor:
        raise DataError("it sums up all keys before any query looks.")


class Blind(Attention):
    """The first query sees nothing."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def sees(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        return (query_at[:, None] > 0).expand(-1, len(key_at))


Look = str | type[Any]
"""The name of an attention, or a class of those above."""


def offered(kind: str) -> list[str]:
    """The names of all components of a kind that are built in."""
    return [offer.component.name for offer in registry().all(kind)]


def made(kind: str, name: str, shape: Shape) -> Any:
    """A component by its name, with its default settings."""
    component = registry().get(kind, name)
    return component.make(component.settings(), shape)


def tiny(
    position: str = "sinusoidal", attention: Look = "full", heads: int = 2, causal: bool = True
) -> Transducer:
    """A model of 2 + 2 layers, in fp64, of random weights."""
    torch.manual_seed(3)
    shape = Shape(
        width=16, inner=16, heads=heads, encoder_layers=2, decoder_layers=2, causal=causal
    )
    looks = [
        made("attention", attention, shape) if isinstance(attention, str) else attention(shape)
        for _ in range(4)
    ]
    model = Transducer(
        shape,
        VOCABULARY,
        Tokens(NoSettings(), shape, VOCABULARY),
        (made("position", position, shape), made("position", position, shape)),
        looks[:2],
        looks[2:],
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


def logits(model: Transducer) -> Tensor:
    read = torch.tensor([[VOCABULARY.bos, *TARGET]])
    with torch.inference_mode():
        return model.advance(read, model.start(SOURCE[None], torch.ones(1, 7, dtype=torch.bool)))


@pytest.mark.parametrize(
    ("position", "attention"),
    [
        *(("sinusoidal", attention) for attention in (*offered("attention"), Seen, Blind)),
        *((position, Gathered) for position in offered("position")),
    ],
)
def test_rows_sum_to_one_and_weights_times_values_are_the_heads(
    position: str, attention: Look
) -> None:
    found = maps(tiny(position, attention), SOURCE, TARGET)
    assert found.encoder.shape == (2, 2, 7, 7)
    assert found.decoder.shape == (2, 2, 6, 6)
    assert found.cross.shape == (2, 2, 6, 7)
    for kind in attend.KINDS:
        sums = getattr(found, kind).sum(-1)
        wanted = torch.ones_like(sums)
        if attention is Blind and kind != "cross":
            wanted[..., 0] = 0
        torch.testing.assert_close(sums, wanted, rtol=0, atol=1e-6, check_dtype=False)
    assert not found.decoder.triu(1).any()
    if attention in (Seen, Gathered):
        far = (torch.arange(7)[:, None] - torch.arange(7)).abs() > 3
        assert not found.encoder[..., far].any()
        assert bool((found.encoder[..., ~far] > 0).all())


@contextmanager
def hearing(model: Transducer) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """The values that each attention is given inside this block, and what it makes of them."""
    heard: list[tuple[Tensor, Tensor]] = []

    def hear(_: nn.Module, inputs: Any, named: Any, output: Tensor) -> None:
        heard.append((inputs[2], output))

    handles = [
        part.register_forward_hook(hear, with_kwargs=True)
        for part in model.modules()
        if isinstance(part, Attention)
    ]
    yield heard
    for handle in handles:
        handle.remove()


def equal_what_was_heard(found: Maps, heard: list[tuple[Tensor, Tensor]]) -> None:
    """Weights times values are the outputs, layer by layer."""
    decoder = [w for pair in zip(found.decoder, found.cross, strict=True) for w in pair]
    for weights, (values, output) in zip([*found.encoder, *decoder], heard, strict=True):
        torch.testing.assert_close(weights @ values[0], output[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("attention", ["full", "restricted", Seen, Gathered, Blind])
def test_weights_times_values_are_what_the_layer_computed(
    attention: Look,
) -> None:
    model = tiny("alibi", attention)
    with hearing(model) as heard:
        found = maps(model, SOURCE, TARGET)
    equal_what_was_heard(found, heard)


@pytest.mark.parametrize("position", ["sinusoidal", "alibi"])
@pytest.mark.parametrize("causal", [True, False])
def test_weights_are_those_of_the_models_own_forward(position: str, causal: bool) -> None:
    """Which begins with bos if the model is causal; else it is the whole target, eos included."""
    model = tiny(position, causal=causal)
    read = [VOCABULARY.bos, *TARGET] if causal else [*TARGET, VOCABULARY.eos]
    with torch.inference_mode(), hearing(model) as heard:
        model(SOURCE[None], torch.ones(1, 7, dtype=torch.bool), torch.tensor([read]))
    found = maps(model, SOURCE, TARGET)
    equal_what_was_heard(found, heard)
    assert bool(found.decoder.triu(1).any()) != causal, "both sides are seen, or one"


def test_what_is_too_far_for_a_number_is_not_hidden() -> None:
    """In fp32 a weight falls to 0 where alibi takes some hundred off its logit."""
    model = tiny("alibi", heads=8).float()
    source, target = torch.arange(300) % 8 + 3, [3 + place % 8 for place in range(299)]
    weights: list[Tensor] = []
    attention = model.encoder.layers[0].attention.attention
    handle = attention.register_forward_hook(
        lambda part, given, named, _: weights.append(part.weigh(*given[:2], **named)),
        with_kwargs=True,
    )
    found = maps(model, source, target)
    handle.remove()
    assert bool((weights[0] == 0).any()), "else nothing is tried here"
    torch.testing.assert_close(found.encoder[0], weights[0][0], rtol=0, atol=1e-37)
    ahead = torch.ones(300, 300, dtype=torch.bool).triu(1)
    for kind, hidden in (("encoder", ahead & False), ("decoder", ahead), ("cross", ahead & False)):
        packed = attend.packed(getattr(found, kind))
        numbers = torch.frombuffer(
            bytearray(base64.b64decode(packed["weights"])), dtype=torch.uint16
        )
        assert torch.equal(numbers.view(2, 8, 300, 300) == 0, hidden.expand(2, 8, -1, -1))


def test_maps_are_a_softmax_written_by_hand() -> None:
    model = tiny("rotary")
    found = maps(model, SOURCE, TARGET)
    layer, scheme, at = model.encoder.layers[0], model.encoder.position, torch.arange(7)
    with torch.inference_mode():
        x, _ = model.source(SOURCE[None], torch.ones(1, 7, dtype=torch.bool))
        q, k = (part(x).view(1, 7, 2, 8) for part in (layer.attention.query, layer.attention.key))
        q, k = (scheme.rotate(part.transpose(1, 2), at)[0] for part in (q, k))
    for head in range(2):
        for row in range(7):
            products = [math.exp(float(q[head, row] @ k[head, j]) / math.sqrt(8)) for j in range(7)]
            wanted = torch.tensor([p / sum(products) for p in products], dtype=torch.float64)
            torch.testing.assert_close(found.encoder[0, head, row], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", ["full", "restricted", Gathered, Blind])
def test_recording_changes_no_bit(attention: Look) -> None:
    model = tiny("alibi", attention).float()
    before = logits(model)
    with recording(model) as found:
        during = logits(model)
    assert torch.equal(before, during)
    assert torch.equal(before, logits(model))
    assert [len(found[kind]) for kind in attend.KINDS] == [2, 2, 2], "and then it stops"


@pytest.mark.parametrize("pace", [None, 2])
def test_a_state_that_is_watched_tells_the_same(pace: int | None) -> None:
    """Of what was read last, in pieces, for rows that were selected; else nothing is computed."""
    torch.manual_seed(3)
    paces = (False,) * 6 + (True,) * 5
    model = tiny_model(pace=pace, vocabulary=Vocabulary(11, paces=paces)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    read = torch.tensor([[VOCABULARY.bos, *TARGET]] * 2)
    sources = torch.stack([SOURCE, SOURCE.flip(0)])
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    wanted = torch.stack(
        [
            nn.functional.pad(maps(model, source[real], TARGET).cross[-1].mean(0), (0, pads))
            for source, real, pads in zip(sources, mask, (0, 3), strict=True)
        ]
    )
    with torch.inference_mode():
        state = model.start(sources, mask)
        model.advance(read[:, :1], state)
        assert state.looks is None
        state = model.start(sources, mask)
        assert state.watch()
        rows = torch.tensor([0, 1])
        for piece, chosen in (
            (slice(0, 3), [0, 1]),
            (slice(3, 4), [0, 0, 1, 1]),  # two rows share a memory
            (slice(4, 6), [3, 0, 1]),  # each has a copy
        ):
            state, rows = state.select(torch.tensor(chosen)), rows[chosen]
            model.advance(read[rows, piece], state)
            torch.testing.assert_close(
                state.looks, wanted[rows, piece].float(), rtol=0, atol=1e-6, check_dtype=False
            )
            assert torch.equal(state.memory, mask[rows])


def test_recording_is_over_when_something_fails() -> None:
    model = tiny()
    with pytest.raises(RuntimeError), recording(model):
        raise RuntimeError
    assert not any(part._forward_hooks for part in model.modules())


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        (
            Linear,
            "encoder layer 1 has no map: Linear computes something else than sums of values by the "
            "weights that it gives.",
        ),
        (Saying, "encoder layer 1 has no map: it sums up all keys before any query looks."),
    ],
)
def test_an_attention_without_weights_says_so(attention: type[Attention], message: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        maps(tiny(attention=attention), SOURCE, TARGET)


def given(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    stream = SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stream)


LINES = 'The old ferry left .\n\n</script><b>Yes & "no"\n'


def test_the_command(
    run: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page, weights = tmp_path / "page.html", tmp_path / "weights.json"
    given(monkeypatch, LINES)
    argv = [f"run={run}", f"output={page}", f"weights={weights}", "decoder=greedy"]
    assert command(attend.main, argv) == 0
    assert capsys.readouterr().out == f"{page}: 2 sentences\n{weights}: 2 sentences\n"
    content = json.loads(weights.read_text(encoding="utf-8"))
    assert (content["run"], content["step"], content["task"]) == (str(run), "step-3", "parsing")
    first, second = content["sentences"]
    assert [first["input"], second["input"]] == [LINES.split("\n")[0], LINES.split("\n")[2]]
    assert "".join(first["source"]) == " The old ferry left ."
    assert first["read"][0] == "<s>"
    assert first["written"][-1] == "</s>"
    assert first["read"][1:] == first["written"][:-1]
    parser = seqtrans.load(run)
    ids = parser.alternatives([first["input"]], 1, "greedy")[0][0][1].ids
    assert first["written"][:-1] == parser.task.units(ids, "target")
    exact = maps(parser.model, parser.task.encode_source(parser.read([first["input"]])[0]), ids)
    for kind in attend.KINDS:
        found = torch.tensor(first["maps"][kind])
        torch.testing.assert_close(found, getattr(exact, kind), rtol=0, atol=1e-5)

    text = page.read_text(encoding="utf-8")
    assert "{{" not in text
    assert "const CAUSAL = true;" in text
    assert not re.search(r"(https?:)?//\w+\.\w|\bsrc=|<link|@import|\burl\(", text)
    blocks = re.findall(r'<script type="application/json" class="sentence">(.*)</script>\n', text)
    assert len(blocks) == 2
    assert not any("<" in block for block in blocks)
    assert json.loads(blocks[1])["input"] == second["input"]
    assert text.count("</script>") == 3, "no text ends a script"


def test_a_given_target(
    run: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree = seqtrans.load(run).task.write(seqtrans.load(run).transduce(["Yes ."])[0])
    target, weights = tmp_path / "target", tmp_path / "weights.json"
    argv = [f"run={run}", f"weights={weights}", f"target={target}"]
    target.write_text(f"{tree}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    given(monkeypatch, "Yes .\n")
    assert command(attend.main, argv) == 0
    assert json.loads(weights.read_text(encoding="utf-8"))["sentences"][0]["output"] == tree
    assert not (tmp_path / "attention.html").exists()
    capsys.readouterr()
    for lines, trees, message in (
        (
            "Yes .\nNo .\n",
            f"{tree}\n",
            f"{target} has 1 lines and standard input has 2; each line needs its target.",
        ),
        ("\n", "\n", "standard input has no line with text."),
    ):
        target.write_text(trees, encoding="utf-8")
        given(monkeypatch, lines)
        assert command(attend.main, argv) == 2
        assert capsys.readouterr().err == f"seqtrans: {message}\n"
    target.write_text("(S\n", encoding="utf-8")
    given(monkeypatch, "Yes .\n")
    assert command(attend.main, argv) == 2
    assert capsys.readouterr().err.startswith(f"seqtrans: {target}, line 1: ")


def test_the_command_for_a_model_that_sees_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = trained(
        tmp_path, "model.causal=no", "training.objective=masked", "decoder=mask_predict"
    )
    page, weights = tmp_path / "page.html", tmp_path / "weights.json"
    target = tmp_path / "target"
    target.write_text("tac\n", encoding="utf-8")
    given(monkeypatch, "a cat\n")
    argv = [f"run={folder}", f"output={page}", f"weights={weights}"]
    assert command(attend.main, [*argv, f"target={target}"]) == 0
    content = json.loads(weights.read_text(encoding="utf-8"))
    assert content["causal"] is False
    [sentence] = content["sentences"]
    assert sentence["read"] == sentence["written"] == ["t", "a", "c", "</s>"]
    engine = seqtrans.load(folder)
    source = engine.task.encode_source(engine.read(["a cat"])[0])
    exact = maps(engine.model, source, engine.task.read_target("tac"))
    torch.testing.assert_close(
        torch.tensor(sentence["maps"]["decoder"]), exact.decoder, rtol=0, atol=1e-5
    )
    assert "const CAUSAL = false;" in page.read_text(encoding="utf-8")
    given(monkeypatch, "a cat\n")
    assert command(attend.main, argv) == 0  # with what the decoder writes


def test_the_page_tells_what_is_hidden_from_what_is_small() -> None:
    packed = attend.packed(torch.tensor([[[[0.0, 1e-9, 0.25, 1.0]]]]))
    numbers = torch.frombuffer(bytearray(base64.b64decode(packed["weights"])), dtype=torch.uint16)
    assert packed["shape"] == [1, 1, 1, 4]
    assert numbers.tolist() == [0, 1, 1 + round(attend.MOST / 4), 1 + attend.MOST]


def test_maps_have_names() -> None:
    assert tuple(Maps.__dataclass_fields__) == attend.KINDS
