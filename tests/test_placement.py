"""Different attentions in encoder and decoder, and patterns over layers, as settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from benchmarks.commands import training_words
from seqtrans import assembly
from seqtrans.attention import Attention
from seqtrans.errors import SettingsError
from seqtrans.hooks import Component, hookimpl
from seqtrans.plugins import BUILTIN, Registry, registry
from seqtrans.resolving import Config, from_json, resolve
from seqtrans.settings import Settings, parse_words
from seqtrans.task import Vocabulary
from seqtrans_plugins.full import Full
from seqtrans_plugins.global_tokens import Global
from seqtrans_plugins.linear import Linear
from seqtrans_plugins.restricted import Restricted

WORDS = ("task=parsing", "task.train=a", "task.dev=b", "model=tiny", "model.pace=none")


def config(*words: str, names: Registry | None = None) -> Config:
    return resolve(parse_words([*WORDS, *words]), names or registry())


def problem(*words: str, names: Registry | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        config(*words, names=names)
    return str(caught.value)


class Opened:
    """As much of a task as a model needs."""

    shares_vocabulary = True
    source_vocabulary = target_vocabulary = Vocabulary(12)


def kinds(*words: str) -> list[list[type[Attention]]]:
    """What looks where, in each stack; the decoder's look at the source is plain."""
    task: Any = Opened()
    model = assembly.build_model(
        config("model.encoder_layers=4", "model.decoder_layers=3", "model.width=8", *words),
        registry(),
        task,
    )
    for layer in model.decoder.layers:
        assert layer.cross is not None
        assert type(layer.cross.attention) is Attention
    return [
        [type(layer.attention.attention) for layer in stack.layers]
        for stack in (model.encoder, model.decoder)
    ]


def test_one_attention_is_everywhere() -> None:
    assert kinds() == [[Full] * 4, [Full] * 3]
    assert kinds("attention=restricted") == [[Restricted] * 4, [Restricted] * 3]


def test_stacks_may_differ() -> None:
    assert kinds("attention=restricted", "attention.decoder=full") == [[Restricted] * 4, [Full] * 3]
    assert kinds("attention.encoder=linear", "attention.decoder=global") == [
        [Linear] * 4,
        [Global] * 3,
    ]


def test_patterns_are_repeated_over_the_layers() -> None:
    assert kinds("attention.encoder=restricted,restricted,full", "attention=linear") == [
        [Restricted, Restricted, Full, Restricted],
        [Linear] * 3,
    ]


def test_settings_go_to_all_that_have_them() -> None:
    words = ("attention.encoder=global,restricted", "attention.reach=7", "attention.first=2")
    found = config(*words).settings["attention"]
    assert (found.reach, found.first, found.encoder) == (7, 2, ("global", "restricted"))
    task: Any = Opened()
    model = assembly.build_model(config(*words), registry(), task)
    assert [layer.attention.attention.reach for layer in model.encoder.layers] == [7, 7]
    assert [layer.attention.attention.first for layer in model.encoder.layers] == [2, 0]


def test_they_survive_a_run_folder_and_a_row() -> None:
    found = config("attention.encoder=restricted,full", "attention.reach=7")
    content = json.loads(json.dumps(found.as_json(registry())))
    assert from_json(content, registry(), Path("config.json")) == found
    words = training_words(found.flat(), registry())
    assert "attention.encoder=restricted,full" in words
    assert "attention.reach=7" in words
    assert resolve(parse_words(words), registry()) == found


def test_a_run_from_before_has_one_attention() -> None:
    content = config("attention=restricted").as_json(registry())
    for stack in ("encoder", "decoder"):
        del content["settings"][f"attention.{stack}"]
    found = from_json(content, registry(), Path("config.json"))
    assert found.settings["attention"].encoder is None


def test_what_is_wrong_is_told() -> None:
    assert problem("attention.encoder=full,restrictd") == (
        "attention.encoder: no attention is called 'restrictd'; did you mean 'restricted'? there "
        "are: full, restricted, global, grouped, linear"
    )
    assert problem("attention.decoder=full,linear,full") == (
        "attention.decoder: names 3 attentions for model.decoder_layers=2"
    )
    assert problem("attention.encoder=") == (
        "attention.encoder: must be of length 1 or more, or none, not ''"
    )
    assert problem("attention.reach=3") == (
        "attention.reach: no such setting; attention has encoder, decoder"
    )
    words = ("attention=restricted", "attention.encoder=full", "attention.decoder=full")
    nowhere = (
        "attention: no layer gets restricted, since attention.encoder and attention.decoder name "
        "others; leave it out, or name it there"
    )
    assert problem(*words) == nowhere
    assert problem(*words, "attention.reach=3") == (
        f"{nowhere}\nattention.reach: no such setting; attention has encoder, decoder"
    )
    assert problem("attention=full", "attention.encoder=linear", "attention.decoder=linear") == (
        nowhere.replace("restricted", "full")
    )
    assert problem(*words[:2], "attention.decoder=ful") == (
        "attention.decoder: no attention is called 'ful'; did you mean 'full'? there are: full, "
        "restricted, global, grouped, linear"
    )


def test_a_file_that_names_one_for_no_layer_is_told_the_line(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    text = "attention:\n  name: restricted\n  encoder: full\n  decoder: full, linear\n"
    file.write_text(text, encoding="utf-8")
    assert problem(f"config={file}").startswith(
        f"attention.name ({file}, line 2): no layer gets restricted, since "
    )


@pytest.mark.parametrize(
    "words",
    [
        ("attention.encoder=linear", "attention.decoder=global"),
        ("attention=linear", "attention.encoder=linear", "attention.decoder=full"),
        ("attention=linear", "attention.encoder=full,linear", "attention.decoder=full"),
        ("attention=linear", "attention.encoder=full"),
    ],
)
def test_what_nobody_chose_may_be_nowhere_and_one_layer_is_enough(words: tuple[str, ...]) -> None:
    found = config(*words)
    content = json.loads(json.dumps(found.as_json(registry())))
    assert from_json(content, registry(), Path("config.json")) == found
    assert resolve(parse_words(training_words(found.flat(), registry())), registry()) == found


def test_a_run_from_before_may_name_one_that_no_layer_gets() -> None:
    words = ("attention.encoder=full", "attention.decoder=full")
    content = config(*words).as_json(registry())
    content["settings"]["attention"] = "restricted"
    found = from_json(content, registry(), Path("config.json"))
    assert found.settings == config(*words).settings


class LongReach(Settings):
    """Another one's idea of a reach."""

    reach: float = Field(0.5, description="a share of the input")


@hookimpl
def seqtrans_attentions() -> list[Component]:
    """This module as a plug-in."""
    return [Component(name="shares", build=Attention, settings=LongReach)]


def test_a_setting_that_means_two_things_is_refused() -> None:
    names = Registry([*BUILTIN, __name__])
    assert problem("attention.encoder=restricted,shares", names=names) == (
        "attention.reach: is one thing to shares and another to restricted; they can't be used "
        "together"
    )
