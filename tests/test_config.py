from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from seqtrans.config import ENGINE, GROUPS, MODELS, TRAININGS
from seqtrans.errors import CheckpointError, SettingsError
from seqtrans.plugins import registry
from seqtrans.resolving import Config, from_json, groups, packaged, resolve
from seqtrans.runs import check_same_model
from seqtrans.settings import parse_words


def config(*words: str) -> Config:
    return resolve(parse_words(words, packaged()), registry())


def problems(*words: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        config(*words)
    return str(caught.value).splitlines()


def offered(kind: str) -> str:
    """The names of all components of a kind, as a message lists them."""
    return ", ".join(offer.component.name for offer in registry().all(kind))


def test_what_nobody_chose_is_the_papers() -> None:
    found = config("task=parsing", "model=base", "training=base")
    shape, training = found.shape, found.training
    assert (shape.width, shape.inner, shape.heads, shape.head) == (512, 2048, 8, 64)
    assert (shape.encoder_layers, shape.decoder_layers, shape.dropout) == (6, 6, 0.1)
    assert (shape.norm, shape.pace) == ("post", None)
    assert (training.beta1, training.beta2, training.epsilon) == (0.9, 0.98, 1e-9)
    assert (training.schedule, training.lr, training.warmup) == ("paper", 1.0, 4000)
    assert (training.steps, training.smoothing) == (100_000, 0.1)
    big = config("task=parsing", "model=big", "training=big")
    assert (big.shape.width, big.shape.inner, big.shape.heads, big.shape.head) == (
        1024,
        4096,
        16,
        64,
    )
    assert (big.shape.dropout, big.training.steps) == (0.3, 300_000)


def test_a_tasks_defaults_hold_until_another_name_is_chosen() -> None:
    own = config("task=parsing")
    assert own.names["model"] == "tiny"
    assert (own.shape.pace, own.settings["decoder"].extra) == (8, 300)
    assert own.settings["decoder"].alpha == 0.3
    assert config("task=parsing", "model=tiny").shape.pace == 8
    assert config("task=parsing", "model=small").shape.pace is None
    assert config("task=parsing", "decoder=greedy").settings["decoder"].extra == 50
    assert config("task=parsing", "decoder.width=7").settings["decoder"].alpha == 0.3


def test_words_go_over_a_file_over_the_task_over_the_preset(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("task: parsing\nmodel: {width: 64, dropout: 0.2}\n", encoding="utf-8")
    found = config(f"config={path}", "model.dropout=0.4")
    assert (found.shape.width, found.shape.dropout) == (64, 0.4)
    assert found.shape.pace == 8  # the task's
    assert found.shape.inner == MODELS["tiny"]["inner"]  # the preset's
    assert found.training.beta2 == 0.98  # the schema's


def test_run_is_short_for_its_folder() -> None:
    assert config("task=parsing", "run=here/there").folder == Path("here/there")
    assert config("task=parsing").folder == Path("runs/parsing")
    with pytest.raises(SettingsError) as caught:
        config("task=parsing", "run=here", "run.folder=there")
    assert str(caught.value) == "run: is run.folder, which is given as well; give one"


def test_all_mistakes_are_told_at_once() -> None:
    words = ["model=bsae", "decoder=beem", "training.lrr=1", "dat.tokens=3"]
    assert problems("task=parsing", *words) == [
        "model: no preset is called 'bsae'; did you mean base?; there are: base, big, small, tiny",
        "decoder: no decoder is called 'beem'; did you mean 'beam'? "
        f"there are: {offered('decoder')}",
        "dat.tokens: no such group; did you mean data?",
        "training.lrr: no such setting; did you mean training.lr?",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["training.steps=1.5"], "training.steps: must be a whole number, not '1.5'"),
        (["model.dropout=1.5"], "model.dropout: must be at least 0 and below 1, not '1.5'"),
        (["model.width=65"], "model: model.width must be even, not 65"),
        (["model.heads=5"],
         "model: model.width=128 can't be divided into model.heads=5; set model.head_width"),
        (["training.weight_decay=0.1"],
         "training: training.weight_decay has no effect without training.optimizer=adamw"),
        (["training.validation_decoder=gredy"],
         "training.validation_decoder: no decoder is called 'gredy'; did you mean 'greedy'? "
         f"there are: {offered('decoder')}"),
        (["lr=3"], "lr: no such setting; did you mean training.lr?"),
    ],
)  # fmt: skip
def test_one_sentence_for_a_mistake(words: list[str], message: str) -> None:
    assert problems("task=parsing", *words) == [message]


def test_a_task_must_be_named() -> None:
    there = f"there are: {offered('task')}"
    assert problems("model=base") == [f"task: must be given, as in task=parsing; {there}"]
    assert problems("task=pasing") == [
        f"task: no task is called 'pasing'; did you mean 'parsing'? {there}"
    ]


def test_a_config_survives_json() -> None:
    words = ["task=parsing", "model.head_width=16", "decoder.width=9", "run=x", "training.clip=1"]
    before = config(*words)
    content = json.loads(json.dumps(before.as_json(registry())))
    assert from_json(content, registry(), Path("config.json")) == before
    assert content["providers"]["task"].startswith("seqtrans ")


@pytest.mark.parametrize("name", sorted(packaged()))
def test_every_packaged_config_resolves(name: str) -> None:
    found = config(f"config={name}")
    text = packaged()[name].read_text(encoding="utf-8")
    assert re.search(rf"^(task|  name): {found.names['task']}$", text, re.MULTILINE)


def test_the_papers_parser() -> None:
    found = config("config=parsing-wsj")
    shape, decoder, task = found.shape, found.settings["decoder"], found.settings["task"]
    assert (shape.encoder_layers, shape.decoder_layers, shape.width) == (4, 4, 1024)
    assert (shape.norm, shape.pace, found.names["position"]) == ("post", None, "sinusoidal")
    assert (decoder.width, decoder.alpha, decoder.extra) == (21, 0.3, 300)
    assert (task.subwords, task.leaves, task.linearisation) == (16_000, "words", "brackets")
    assert config("config=parsing-wsj-silver").settings["task"].subwords == 32_000


def test_presets_name_settings_that_there_are() -> None:
    for presets, schema in ((MODELS, ENGINE["model"]), (TRAININGS, ENGINE["training"])):
        for values in presets.values():
            assert values.keys() <= schema.model_fields.keys()


def test_every_group_can_be_listed() -> None:
    found = groups(parse_words(["task=parsing"], packaged()), registry())
    assert tuple(found) == GROUPS
    assert found["decoder"].name == "beam"


def test_a_presets_name_says_nothing_of_the_weights() -> None:
    same = [f"model.{key}={value}" for key, value in MODELS["tiny"].items()] + ["model.norm=pre"]
    tiny = config("task=pairs", "model=tiny", "model.dropout=0.3")
    check_same_model(Path("run"), tiny, config("task=pairs", "model=base", *same))
    with pytest.raises(CheckpointError) as caught:
        check_same_model(Path("run"), tiny, config("task=pairs", "model=base"))
    assert str(caught.value).startswith("the weights of run don't fit this model: model.")
