"""The registry: built-ins, installed plug-ins, and what may be wrong with these."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seqtrans import __version__
from seqtrans.errors import PluginError
from seqtrans.plugins import KINDS, Registry

ROOT = Path(__file__).resolve().parent.parent

OFFER = """
from seqtrans.hooks import Component, hookimpl

@hookimpl
def seqtrans_tasks():
    return [Component(name={!r}, build=print)]
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution of one module, named after it, on the path for the length of a test."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("SEQTRANS_DISABLE_PLUGINS", raising=False)

    def install(distribution: str, version: str, code: str, module: str | None = None) -> None:
        name = distribution.replace("-", "_")
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n", encoding="utf-8"
        )
        (info / "entry_points.txt").write_text(
            f"[seqtrans]\n{name} = {module or name}\n", encoding="utf-8"
        )
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)

    return install


def error_of(registry: Registry, kind: str, name: str) -> str:
    with pytest.raises(PluginError) as error:
        registry.get(kind, name)
    return str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_built_ins_come_from_this_distribution(kind: str) -> None:
    registry = Registry()
    built_in = [offer for offer in registry.all(kind) if offer.distribution == "seqtrans"]
    assert built_in
    for component, _, version in built_in:
        assert registry.get(kind, component.name) is component
        assert registry.provider(kind, component.name) == ("seqtrans", __version__)
        assert version == __version__
        assert component.summary


def test_a_plug_in_is_found_with_its_distribution(install: Install) -> None:
    install("seqtrans-good", "1.2", OFFER.format("good"))
    registry = Registry([])
    assert [offer[1:] for offer in registry.all("task")] == [("seqtrans-good", "1.2")]
    assert str(registry.provider("task", "good")) == "seqtrans-good 1.2"
    assert registry.failures == []


def test_unknown_name(install: Install) -> None:
    install("seqtrans-good", "1.2", OFFER.format("parsing"))
    registry = Registry([])
    assert error_of(registry, "task", "parsin") == (
        "no task is called 'parsin'; did you mean 'parsing'? there are: parsing"
    )
    assert error_of(registry, "task", "x") == "no task is called 'x'; there are: parsing"
    assert error_of(registry, "decoder", "x") == "no decoder is called 'x'; there are none"


BROKEN = [
    (
        "import torchaudio_absent",
        "could not be loaded: ModuleNotFoundError: No module named 'torchaudio_absent'",
    ),
    (
        "raise RuntimeError('two\\n  lines')",
        "could not be loaded: RuntimeError: two lines",
    ),
    (
        "import sys\nsys.exit('no GPU')",
        "could not be loaded: SystemExit: no GPU",
    ),
    (
        OFFER.format("x").replace("seqtrans_tasks", "seqtrans_task"),
        "implements seqtrans_task, which is no hook; did you mean seqtrans_tasks?",
    ),
    (
        OFFER.format("x").replace("seqtrans_tasks()", "seqtrans_tasks(model)"),
        "could not be loaded: PluginValidationError: Plugin 'seqtrans-broken:seqtrans_broken' for "
        "hook 'seqtrans_tasks' hookimpl definition: seqtrans_tasks(model) Argument(s) {'model'} "
        "are declared in the hookimpl but can not be found in the hookspec",
    ),
    (
        OFFER.format("x").replace("@hookimpl", ""),
        "implements no hook: mark its functions with seqtrans.hookimpl",
    ),
]


@pytest.mark.parametrize(("code", "reason"), BROKEN)
def test_a_broken_plug_in_is_told_and_the_others_go_on(
    install: Install, capsys: pytest.CaptureFixture[str], code: str, reason: str
) -> None:
    install("seqtrans-broken", "0.3", code)
    install("seqtrans-good", "1.2", OFFER.format("good"))
    registry = Registry([])
    sentence = f"plug-in seqtrans-broken 0.3 {reason}"
    assert capsys.readouterr().err == f"seqtrans: warning: {sentence}\n"
    assert [str(failure) for failure in registry.failures] == [sentence]
    assert registry.get("task", "good").name == "good"
    assert error_of(registry, "task", "x") == (
        f"no task is called 'x'; there are: good; {sentence}"
    )


NONSENSE = [
    ("return 'parsing'", "TypeError: it must give a list of seqtrans.Component, not 'parsing'"),
    ("return None", "TypeError: it must give a list of seqtrans.Component, not None"),
    ("return ['x']", "TypeError: it must give a list of seqtrans.Component, not ['x']"),
    ("return {}['x']", "KeyError: 'x'"),
    (
        "return [Component(name='Bad', build=print)]",
        "ValueError: a component's name is lower-case letters and digits, joined by '-', '_' or "
        "'.', not 'Bad'",
    ),
]


@pytest.mark.parametrize(("body", "reason"), NONSENSE)
def test_a_hook_that_goes_wrong_is_told_and_the_others_go_on(
    install: Install, capsys: pytest.CaptureFixture[str], body: str, reason: str
) -> None:
    code = f"{OFFER.format('x').rpartition('    return')[0]}    {body}\n"
    install("seqtrans-broken", "0.3", code)
    install("seqtrans-good", "1.2", OFFER.format("good"))
    registry = Registry([])
    assert capsys.readouterr().err == ""
    sentence = f"plug-in seqtrans-broken 0.3 went wrong in its hook seqtrans_tasks: {reason}"
    assert registry.get("task", "good").name == "good"
    assert capsys.readouterr().err == f"seqtrans: warning: {sentence}\n"
    assert error_of(registry, "task", "x") == (
        f"no task is called 'x'; there are: good; {sentence}"
    )
    assert capsys.readouterr().err == ""


def test_one_name_from_two_distributions(install: Install) -> None:
    install("seqtrans-one", "1.0", OFFER.format("same"))
    install("seqtrans-two", "2.0", OFFER.format("same"))
    registry = Registry([])
    sentence = (
        "the task 'same' is offered more than once, by seqtrans-one 1.0 and seqtrans-two 2.0; "
        "uninstall one of them, or name it in SEQTRANS_DISABLE_PLUGINS"
    )
    assert error_of(registry, "task", "same") == sentence
    with pytest.raises(PluginError) as error:
        registry.all("task")
    assert str(error.value) == sentence
    assert registry.all("decoder") == []


def test_one_module_from_two_entry_points_is_one(install: Install) -> None:
    install("seqtrans-one", "1.0", OFFER.format("same"))
    install("seqtrans-two", "2.0", "", module="seqtrans_one")
    registry = Registry([])
    assert [offer.distribution for offer in registry.all("task")] == ["seqtrans-one"]
    assert registry.failures == []


def test_one_component_from_two_modules_is_one(install: Install) -> None:
    shared = OFFER.format("same").replace("    return ", "    return SAME\n\nSAME = ")
    install("seqtrans-one", "1.0", shared)
    install("seqtrans-two", "2.0", shared.replace("SAME = ", "from seqtrans_one import SAME #"))
    assert len(Registry([]).all("task")) == 1


@pytest.mark.parametrize("name", ["seqtrans-off", "Seqtrans_Off", "other, seqtrans.off"])
def test_a_plug_in_that_is_kept_out_is_not_imported(
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    install("seqtrans-off", "0.3", "raise AssertionError")
    monkeypatch.setenv("SEQTRANS_DISABLE_PLUGINS", name)
    registry = Registry([])
    assert capsys.readouterr().err == ""
    assert registry.failures == []
    assert error_of(registry, "task", "x") == (
        "no task is called 'x'; there are none; "
        "plug-in seqtrans-off 0.3 is kept out by SEQTRANS_DISABLE_PLUGINS"
    )


def test_the_example_when_installed(tmp_path: Path) -> None:
    """A true second distribution: installed by pip, found by its entry point, and built."""
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-compile"),
            *("--no-deps", "--no-build-isolation", "--disable-pip-version-check"),
            *("--target", tmp_path, ROOT / "tests" / "plugin_example"),
        ],
        check=True,
        timeout=60,
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    shown = subprocess.run(
        [sys.executable, "-m", "seqtrans", "plugins", "task", "source", "position"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.stderr == ""
    found = [line.split() for line in shown.stdout.splitlines()]
    mine = [row[:2] for row in found if row[-2:] == ["seqtrans-displays", "0.3"]]
    assert mine == [["task", "displays"], ["source", "segments"], ["position", "slope"]]


def test_the_example_keeps_its_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from seqtrans.testing import check_position, check_source, check_task

    monkeypatch.syspath_prepend(ROOT / "tests" / "plugin_example")
    registry = Registry(["seqtrans_displays"])
    task, slope = registry.get("task", "displays"), registry.get("position", "slope")
    settings = task.settings.model_validate({"longest": 4, "count": 20})
    check_task(task, settings, splits=("train", "dev", "test"))
    displays = [torch.randn(length, 7) for length in (4, 1, 3)]
    check_source(registry.get("source", "segments"), inputs=displays)
    check_position(slope, slope.settings.model_validate({"slope": 2}))
