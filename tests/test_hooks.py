"""The five hooks and the records that they give."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

import pytest
from pydantic import Field

from seqtrans.errors import PluginError
from seqtrans.hooks import Component, Hooks, hookimpl
from seqtrans.plugins import KINDS, Registry
from seqtrans.settings import NoSettings, Settings

HOOKS = [name for name, member in vars(Hooks).items() if hasattr(member, "seqtrans_spec")]


def offered(monkeypatch: pytest.MonkeyPatch, kind: str, *arguments: Any) -> None:
    """What the hook of a kind gives is found under that kind, and is built from the arguments."""
    component = Component(name="mine", build=lambda *given: given)
    module = types.ModuleType("seqtrans_test_module")
    vars(module)[KINDS[kind]] = hookimpl(lambda: [component])
    monkeypatch.setitem(sys.modules, module.__name__, module)
    registry = Registry([module.__name__])
    assert registry.get(kind, "mine") is component
    assert registry.get(kind, "mine").make(*arguments) == arguments
    assert all("mine" not in str(registry.all(other)) for other in KINDS if other != kind)


def test_seqtrans_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "task", NoSettings())


def test_seqtrans_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "source", NoSettings(), "shape", "vocabulary")


def test_seqtrans_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "position", NoSettings(), "shape")


def test_seqtrans_attentions(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "attention", NoSettings(), "shape")


def test_seqtrans_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "decoder", NoSettings())


def test_there_is_one_hook_for_each_kind() -> None:
    assert list(KINDS.values()) == HOOKS


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_tested(hook: str) -> None:
    assert f"test_{hook}" in globals()


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_says_what_build_is_called_with(hook: str) -> None:
    assert "``build(settings" in (inspect.getdoc(getattr(Hooks, hook)) or "")


def test_build_may_be_written_as_text() -> None:
    component = Component(name="joined", build="os.path:join")
    assert component.make("a", "b") == "a/b"


def test_text_is_not_imported_before_it_is_called() -> None:
    Component(name="light", build="seqtrans_absent:Build")
    assert "seqtrans_absent" not in sys.modules


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            "seqtrans_absent:Build",
            "'mine' could not be imported from seqtrans_absent:Build: "
            "ModuleNotFoundError: No module named 'seqtrans_absent'",
        ),
        (
            "seqtrans.words:Build",
            "'mine' could not be imported from seqtrans.words:Build: "
            "AttributeError: module 'seqtrans.words' has no attribute 'Build'",
        ),
    ],
)
def test_text_that_names_nothing(build: str, message: str) -> None:
    with pytest.raises(PluginError) as error:
        Component(name="mine", build=build).make()
    assert str(error.value) == message


def test_what_build_raises_is_left_alone() -> None:
    def build() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Component(name="mine", build=build).make()


class Named(Settings):
    name: str = Field("x", description="a name")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "Mine", "build": print},
            "a component's name is lower-case letters and digits, joined by '-', '_' or '.', "
            "not 'Mine'",
        ),
        (
            {"name": "a=b", "build": print},
            "a component's name is lower-case letters and digits, joined by '-', '_' or '.', "
            "not 'a=b'",
        ),
        (
            {"name": "mine", "build": "module.attribute"},
            "mine: build is a callable or 'module:attribute', not 'module.attribute'",
        ),
        (
            {"name": "mine", "build": 3},
            "mine: build is a callable or 'module:attribute', not 3",
        ),
        (
            {"name": "mine", "build": print, "settings": dict},
            "mine: settings is a subclass of seqtrans.settings.Settings, not <class 'dict'>",
        ),
        (
            {"name": "mine", "build": print, "settings": Named},
            "mine: a setting cannot be called 'name', by which the component is chosen",
        ),
    ],
)
def test_a_component_that_could_not_be_chosen(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        Component(**arguments)
    assert str(error.value) == message
