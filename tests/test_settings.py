"""From words to settings, and every mistake in plain language."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, field_validator, model_validator

from seqtrans.errors import Problem, SettingsError
from seqtrans.fields import in_words, read, written
from seqtrans.settings import (
    NoSettings,
    Setting,
    Settings,
    Words,
    describe,
    fill,
    nearest,
    parse_words,
    unknown_groups,
)


class Training(Settings):
    steps: int = Field(100, gt=0, description="updates in all")
    lr: float = Field(1e-3, gt=0, description="the rate")
    dropout: float = Field(0.1, ge=0, lt=1, description="the rate of dropout")
    schedule: Literal["paper", "constant"] = Field("paper", description="how the rate goes")
    betas: tuple[float, float] = Field((0.9, 0.98), description="Adam's betas")
    seeds: tuple[Annotated[int, Field(ge=1)], ...] = Field((), description="seeds")
    splits: list[Literal["dev", "test"]] = Field(["dev"], max_length=2, description="splits")
    clip: float | None = Field(None, gt=0, description="norm to clip to")
    step: int | Literal["best"] = Field("best", description="a checkpoint")
    amp: bool = Field(False, description="mixed precision")
    folder: Path | None = Field(None, description="where it is")
    note: str = Field("", max_length=10, pattern="^[a-z0-9]*$", description="a remark")
    eighths: int = Field(8, multiple_of=8, description="some eighths")

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("the seeds must differ")
        return seeds

    @model_validator(mode="after")
    def _possible(self) -> Training:
        if self.clip is not None and self.amp:
            raise ValueError("amp and clip exclude each other")
        return self


class Model(Settings):
    width: int = Field(512, ge=1, description="the width")
    heads: int = Field(8, ge=1, description="heads")


class Task(Settings):
    path: Path = Field(description="the folder of the treebank")


SCHEMAS: Mapping[str, type[Settings]] = {"training": Training, "model": Model, "task": Task}


def lines(error: SettingsError) -> list[str]:
    return str(error).splitlines()


def mistakes(*words: str, packaged: Mapping[str, Path] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as error:
        parse_words(words, packaged or {})
    return lines(error.value)


def filled(*words: str) -> Training:
    read = parse_words(words)
    return fill(Training, read.tree["training"], "training", typed=read.typed, schemas=SCHEMAS)


def refused(*words: str) -> list[str]:
    with pytest.raises(SettingsError) as error:
        filled(*words)
    return lines(error.value)


# Words


def test_words_make_a_tree() -> None:
    words = parse_words(["task=parsing", "training.lr=1e-3", "training.note=a=b", "data.x="])
    assert words.tree == {
        "task": {"name": "parsing"},
        "training": {"lr": "1e-3", "note": "a=b"},
        "data": {"x": ""},
    }
    assert words.typed["task.name"] == "task"
    assert words.typed["training.lr"] == "training.lr"


def test_no_words_make_nothing() -> None:
    assert parse_words([]) == Words()


def test_every_wrong_word_is_told() -> None:
    assert mistakes(
        "parsing", "--training.lr=1", "a.b.c=1", "=1", "a.=1", "a b=1", "x=1", "x.name=2", "x.y=1"
    ) == [
        "'parsing' is not a setting: write key=value, such as training.lr=1e-3",
        "'--training.lr=1': settings begin without dashes: write training.lr=1",
        "'a.b.c=1': a setting is written group.key=value or group=name",
        "'=1': a setting is written group.key=value or group=name",
        "'a.=1': a setting is written group.key=value or group=name",
        "'a b=1': a setting is written group.key=value or group=name",
        "x.name: given twice, as x=1 and x.name=2",
    ]


# Files


def test_a_file_stands_under_the_words(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(
        "task: parsing\ntraining:\n  lr: 1e-3\n  steps: 012\n  amp: no\n  betas: [0.9, 0.98]\n"
        "model.width: 64 # dots may be used as well\n",
        encoding="utf-8",
    )
    words = parse_words([f"config={file}", "training.lr=2", "task=pairs"])
    assert words.tree == {
        "task": {"name": "pairs"},
        "training": {"lr": "2", "steps": "012", "amp": "no", "betas": ["0.9", "0.98"]},
        "model": {"width": "64"},
    }
    assert words.typed["task.name"] == "task"
    assert words.typed["training.steps"] == f"training.steps ({file}, line 4)"
    settings = fill(Training, words.tree["training"], "training")
    assert (settings.lr, settings.steps, settings.amp) == (2, 12, False)


@pytest.mark.parametrize("content", ["", "# nothing\n", "\ufefftask: x\n", "task: x\r\n"])
def test_harmless_files(tmp_path: Path, content: str) -> None:
    (tmp_path / "my.yaml").write_text(content, encoding="utf-8", newline="")
    tree = parse_words([f"config={tmp_path}/my.yaml"]).tree
    assert tree == ({"task": {"name": "x"}} if "task" in content else {})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: [1", "config: FILE, line 1 is not YAML: expected ',' or ']', but got '<stream end>'"),
        (b"a: 1\n b: 2", "config: FILE, line 2 is not YAML: mapping values are not allowed here"),
        (b"a: \xff", "config: FILE is not UTF-8 text"),
        (
            b"a: \x00",
            "config: FILE is not YAML: unacceptable character #x0000: special characters are not "
            "allowed",
        ),
        (b"- a\n- b", "config: FILE must hold groups of settings, as in task: …"),
        (b"a: 1\n---\nb: 2", "config: FILE, line 2 is not YAML: but found another document"),
        (b"a:\n  b: {c: d}", "a.b (FILE, line 2): must be one value, or a list of values"),
        (b"a:\n  b: [[c]]", "a.b (FILE, line 2): must be one value, or a list of values"),
        (b"a:\n  b: 1\n  b: 2", "a.b (FILE, line 3): given before, as a.b (FILE, line 2)"),
        (b"config: x.yaml", "config (FILE, line 1): a file cannot name a further file"),
        (b"a.b.c: 1", "a.b.c (FILE, line 1): a setting is written group.key or group"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "my.yaml"
    file.write_bytes(content)
    assert mistakes(f"config={file}") == [expected.replace("FILE", str(file))]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert mistakes(f"config={tmp_path}/no.yaml", "x") == [
        "'x' is not a setting: write key=value, such as training.lr=1e-3",
        f"config: {tmp_path}/no.yaml cannot be read: no such file or directory",
    ]
    assert mistakes(f"config={tmp_path}/") == [f"config: {tmp_path} cannot be read: is a directory"]


def test_a_packaged_configuration(tmp_path: Path) -> None:
    file = tmp_path / "wmt-base.yaml"
    file.write_text("task: pairs", encoding="utf-8")
    packaged = {"wmt-base": file, "wsj": file}
    assert parse_words(["config=wmt-base"], packaged).tree == {"task": {"name": "pairs"}}
    assert mistakes("config=wmt-bas", packaged=packaged) == [
        "config: no packaged configuration is called 'wmt-bas'; did you mean wmt-base?; "
        "there are: wmt-base, wsj; a file of your own ends in .yaml, as in config=my.yaml"
    ]
    assert mistakes("config=x") == [
        "config: no packaged configuration is called 'x'; there are none; "
        "a file of your own ends in .yaml, as in config=my.yaml"
    ]


def test_a_problem_is_told_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("training:\n  lrr: 1\n", encoding="utf-8")
    assert refused(f"config={file}") == [
        f"training.lrr ({file}, line 2): no such setting; did you mean training.lr?"
    ]


# Values


def test_text_becomes_what_the_field_asks_for() -> None:
    settings = filled(
        "training.steps=1e5",
        "training.lr=1e-3",
        "training.betas=[0.8, 0.9]",
        "training.seeds=3,1",
        "training.splits=test",
        "training.clip=none",
        "training.step=12",
        "training.amp=on",
        "training.folder=a/b",
        "training.note=007",
    )
    assert settings.model_dump() == {
        **Training().model_dump(),
        "steps": 100_000,
        "lr": 1e-3,
        "betas": (0.8, 0.9),
        "seeds": (3, 1),
        "splits": ["test"],
        "clip": None,
        "step": 12,
        "amp": True,
        "folder": Path("a/b"),
        "note": "007",
    }


@pytest.mark.parametrize("text", ["true", "yes", "on", "True", "1", "false", "no", "off", "0"])
def test_switches(text: str) -> None:
    assert filled(f"training.amp={text}").amp is (text.lower() in ("true", "yes", "on", "1"))


def test_every_mistake_at_once() -> None:
    assert refused(
        "training.steps=1.5",
        "training.lr=inf",
        "training.dropout=1.5",
        "training.schedule=linear",
        "training.betas=0.9",
        "training.seeds=0,1",
        "training.splits=dev,train",
        "training.clip=-1",
        "training.step=newest",
        "training.amp=maybe",
        "training.note=A",
        "training.eighths=9",
        "training.lrr=1",
        "training.heads=4",
        "training.zzzz=1",
    ) == [
        "training.steps: must be a whole number, not '1.5'",
        "training.lr: must be a finite number, not 'inf'",
        "training.dropout: must be at least 0 and below 1, not '1.5'",
        "training.schedule: must be one of paper, constant, not 'linear'",
        "training.betas: must be 2 numbers separated by commas, not '0.9'",
        "training.seeds: must be at least 1 each, not '0,1'",
        "training.splits: must be any of dev, test separated by commas, not 'dev,train'",
        "training.clip: must be above 0, or none, not '-1'",
        "training.step: must be a whole number or best, not 'newest'",
        "training.amp: must be true or false, not 'maybe'",
        "training.note: must be of length 10 or less and of the form ^[a-z0-9]*$, not 'A'",
        "training.eighths: must be a multiple of 8, not '9'",
        "training.lrr: no such setting; did you mean training.lr?",
        "training.heads: no such setting; did you mean model.heads?",
        "training.zzzz: no such setting; training has steps, lr, dropout, schedule, betas, seeds, "
        "splits, clip, step, amp, folder, note, eighths",
    ]


def test_what_holds_between_values() -> None:
    assert refused("training.amp=yes", "training.clip=1") == [
        "training: amp and clip exclude each other"
    ]
    assert refused("training.seeds=1,1") == ["training.seeds: the seeds must differ"]


def test_what_must_be_given() -> None:
    with pytest.raises(SettingsError) as error:
        fill(Task, {}, "task")
    assert lines(error.value) == ["task.path: must be given: the folder of the treebank"]


def test_a_component_without_settings_is_named() -> None:
    with pytest.raises(SettingsError) as error:
        fill(NoSettings, {"reach": "3"}, "attention", owner="full")
    assert error.value.problems == (
        Problem("attention.reach", "no such setting; full has no settings"),
    )


def test_ready_values_are_checked_as_well() -> None:
    assert fill(Training, {"steps": 7, "clip": None, "seeds": [1, 2]}, "training").seeds == (1, 2)
    with pytest.raises(SettingsError) as error:
        fill(Training, {"steps": 0, "betas": [1, None], "amp": "x"}, "training")
    assert lines(error.value) == [
        "training.steps: must be above 0, not '0'",
        "training.betas: must be 2 numbers separated by commas, not '1,none'",
        "training.amp: must be true or false, not 'x'",
    ]


def test_unknown_groups() -> None:
    words = parse_words(["trainin.lr=1", "trainin.steps=1", "lr=3", "foo=1", "training.lr=1"])
    assert list(map(str, unknown_groups(words, SCHEMAS))) == [
        "trainin.lr: no such group; did you mean training?",
        "trainin.steps: no such group; did you mean training?",
        "lr: no such setting; did you mean training.lr?",
        "foo: no such group; there are: training, model, task",
    ]


def test_nearest() -> None:
    assert nearest("max-step", ["max_steps", "lr"]) == "max_steps"
    assert nearest("LR", ["max_steps", "lr"]) == "lr"
    assert nearest("x", ["max_steps", "lr"]) is None


# Schemas


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Training().steps = 3  # type: ignore[misc]


def test_a_setting_without_description_is_refused() -> None:
    with pytest.raises(TypeError) as error:
        type("Bare", (Settings,), {"__annotations__": {"x": int}, "x": 1})
    assert str(error.value) == ("Bare.x has no description: write Field(…, description='…')")


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (
            dict[str, int],
            "a setting cannot be of type dict; it may be bool, int, float, str, Path, Literal, "
            "a tuple or list of these, or None, all of them known when the class is made",
        ),
        (
            tuple[tuple[int, ...], ...],
            "the items of a tuple or list may be int, float, str, Path or Literal",
        ),
    ],
)
def test_a_setting_that_could_not_be_typed_is_refused(annotation: Any, message: str) -> None:
    with pytest.raises(TypeError) as error:
        type(
            "Bare",
            (Settings,),
            {"__annotations__": {"x": annotation}, "x": Field(None, description="x")},
        )
    assert str(error.value) == f"Bare.x: {message}"


def test_describe() -> None:
    shown = {setting.key: setting for setting in describe(Training, "training", {"steps": 7})}
    assert list(shown) == [f"training.{name}" for name in Training.model_fields]
    assert shown["training.steps"] == Setting(
        "training.steps", "a whole number", "7", "above 0", "updates in all"
    )
    assert [
        str(shown[f"training.{name}"]).splitlines()[0] for name in ("betas", "clip", "amp")
    ] == [
        "training.betas=0.9,0.98  (2 numbers separated by commas)",
        "training.clip=none  (a number or none, above 0)",
        "training.amp=false  (true or false)",
    ]
    assert str(describe(Task, "task")[0]) == (
        "task.path=  (a path; must be given)\n    the folder of the treebank"
    )


# Properties


WORDS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    str: st.text(),
    int | None: st.none() | st.integers(),
    bool | None: st.none() | st.booleans(),
    tuple[float, float]: st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 2),
    tuple[int, ...]: st.lists(st.integers()).map(tuple),
    list[str]: st.lists(WORDS),
    Literal["a", "b", 3]: st.sampled_from(["a", "b", 3]),
    int | Literal["best"]: st.just("best") | st.integers(),
    str | int: st.integers(),
}


@pytest.mark.parametrize("annotation", VALUES, ids=in_words)
@given(data=st.data())
def test_what_is_written_is_read_again(annotation: Any, data: st.DataObject) -> None:
    value = data.draw(VALUES[annotation])
    again = read(written(value), annotation)
    assert (tuple(again) if isinstance(value, tuple) else again) == value  # type: ignore[arg-type]


@given(st.dictionaries(st.sampled_from(list(Training.model_fields)), st.text(max_size=6)))
def test_any_text_is_taken_or_refused_in_our_words(values: dict[str, str]) -> None:
    try:
        fill(Training, values, "training")
    except SettingsError as error:
        told = lines(error)
    else:
        told = []
    for line in told:
        assert line.startswith("training")
        assert " must " in line or "exclude" in line


@given(st.lists(st.text(max_size=8)))
def test_any_words_are_taken_or_refused(words: list[str]) -> None:
    with contextlib.suppress(SettingsError):
        parse_words(words)
