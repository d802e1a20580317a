"""The documents say what is so: their examples run, and what they name exists."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import shlex
import string
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from seqtrans import __version__, plan
from seqtrans.commands import COMMANDS
from seqtrans.config import ENGINE, GROUPS, PRESETS, Placement
from seqtrans.errors import Problem, SettingsError
from seqtrans.hooks import Hooks
from seqtrans.plugins import BUILTIN, KINDS, Registry
from seqtrans.resolving import packaged, resolve
from seqtrans.reuse import read_command
from seqtrans.settings import Settings, fill, parse_words

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "CONTRIBUTING.md")
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in (*DOCUMENTS, "CHANGELOG.md")}
CONTRIBUTING = TEXTS["CONTRIBUTING.md"]
EXAMPLE = ROOT / "tests" / "plugin_example"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^()\s]+)\)")
NAMED = re.compile(r"# ([\w/]+\.py)\n")
SETTING = re.compile(r"([a-z_]+(?:\.[a-z_]+)?)=([^\s=\"'`(]*)")
DOTTED = re.compile(rf"({'|'.join(GROUPS)})\.([a-z_]+)")


class Block(NamedTuple):
    """A fenced block of a document."""

    document: str
    language: str
    content: str

    @property
    def file(self) -> str | None:
        """The file that it is, if its first line says so."""
        found = NAMED.match(self.content)
        return found[1] if found else None


BLOCKS = [
    Block(name, language, content)
    for name in DOCUMENTS
    for language, content in FENCE.findall(TEXTS[name])
]
PYTHON = [block for block in BLOCKS if block.language == "python"]
EXAMPLES = {block.file: block.content for block in PYTHON if block.file and "/" not in block.file}
PLUGINS = [name.removesuffix(".py") for name in EXAMPLES if not name.startswith("test_")]
TESTS = [name.removesuffix(".py") for name in EXAMPLES if name.startswith("test_")]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The examples of the documents as files in a folder from which they can be imported."""
    folder = tmp_path_factory.mktemp("examples")
    for name, content in EXAMPLES.items():
        (folder / name).write_text(content, encoding="utf-8")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    for name in (*PLUGINS, *TESTS):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def names(examples: Path) -> Registry:
    """What can be chosen by name, the examples included."""
    return Registry([*BUILTIN, *PLUGINS])


def section(title: str) -> str:
    """The text of CONTRIBUTING.md below a heading of the second level."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def spans(document: str) -> list[str]:
    """What stands between single backticks."""
    return SPAN.findall(FENCE.sub("", TEXTS[document]))


def lines(document: str) -> list[str]:
    """What could be typed: the lines of all blocks that are no code, and the spans."""
    blocks = [block for block in BLOCKS if block.document == document and not block.language]
    typed = [line for block in blocks for line in block.content.splitlines()]
    return [line.partition("  #")[0].strip() for line in typed] + spans(document)


# Examples.


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.file or block.document)
def test_python_compiles(block: Block) -> None:
    compile(block.content, block.file or block.document, "exec")


@pytest.mark.parametrize("test", TESTS)
def test_examples_pass_their_own_tests(examples: Path, test: str) -> None:
    module = importlib.import_module(test)
    functions = [member for name, member in vars(module).items() if name.startswith("test_")]
    assert functions
    for function in functions:
        function()


def test_every_example_has_a_test() -> None:
    assert [f"test_{name.removeprefix('seqtrans_')}" for name in PLUGINS] == TESTS


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_an_example_of_every_kind(names: Registry, kind: str) -> None:
    builds = [offer.component.build for offer in names.all(kind)]
    assert any(getattr(build, "__module__", None) in PLUGINS for build in builds)
    assert f"check_{kind}(" in section("Writing plug-ins")


def test_examples_are_as_clean_as_the_rest(examples: Path) -> None:
    options = ("--config", ROOT / "pyproject.toml", "--no-cache")
    outside = ("--config", "lint.isort.known-third-party=['seqtrans']")
    for command in (("check", "--quiet", *outside), ("format", "--check", "--quiet")):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *options, "."],
            cwd=examples,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_excerpts_of_the_packaged_example_are_true() -> None:
    excerpts = [block for block in PYTHON if block.file and "/" in block.file]
    assert excerpts
    for block in excerpts:
        content = (EXAMPLE / str(block.file)).read_text(encoding="utf-8")
        assert block.content.partition("\n")[2] in content
    [project] = [block.content for block in BLOCKS if block.language == "toml"]
    assert project in (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    modules = tomllib.loads(project)["project"]["entry-points"]["seqtrans"].values()
    assert all((EXAMPLE / module / "__init__.py").is_file() for module in modules)


# Hooks.


@pytest.mark.parametrize("hook", KINDS.values())
def test_every_hook_has_a_heading_and_says_what_build_is_given(hook: str) -> None:
    function = getattr(Hooks, hook)
    gives = inspect.signature(function).return_annotation
    heading = rf"^### [^\n]*: `{hook}\(\) -> {re.escape(gives)}`\n(.*?)(?=^##)"
    assert list(inspect.signature(function).parameters) == ["self"]
    found = re.search(heading, CONTRIBUTING, re.MULTILINE | re.DOTALL)
    assert found, f"CONTRIBUTING.md has no heading with {hook}() -> {gives}"
    said = " ".join((inspect.getdoc(function) or "").split())
    build = re.search(r"``(build\(.*?\))`` gives", said)
    assert build
    assert f"`{build[1]}` gives" in found[1]
    assert f"def {hook}() -> {gives}:" in found[1]


# What is typed.


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_target_of_make_exists(document: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    named = {word for line in lines(document) for word in re.findall(r"^make (\w+)", line)}
    assert named
    assert named <= targets


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_exists(document: str) -> None:
    for line in lines(document):
        for command in re.findall(r"(?:^|\| )seqtrans ([a-z-]+)", line):
            assert command in COMMANDS, line
        for module in re.findall(r"(?:^|\s)-m ([\w.]+)", line):
            assert importlib.util.find_spec(module), line
        for command in re.findall(r"python -m benchmarks ([a-z]+)", line):
            assert importlib.util.find_spec(f"benchmarks.{command}"), line


def commands(document: str) -> Iterator[tuple[str, list[str]]]:
    """Each whole command with its words, written without places to fill in."""
    for line in lines(document):
        for part in line.split(" | "):
            found = re.search(r"(?:^seqtrans |-m seqtrans\.)([a-z]+) (.*=.*)$", part)
            if found and "..." not in part and "…" not in part and not placeholders(found[2]):
                yield found[1], shlex.split(found[2])


def placeholders(text: str) -> list[str]:
    """Values that stand for others, such as FOLDER or FILE.yaml."""
    return [value for _, value in SETTING.findall(text) if re.match(r"[A-Z]+\b", value)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_whole_command_is_understood(document: str, names: Registry) -> None:
    found = list(commands(document))
    assert found
    for command, words in found:
        if command in ("train", "prepare", "settings", "doctor"):
            resolve(parse_words(words, packaged()), names)
        elif command == "plan":
            plan.read(words)
        else:
            _, changes = read_command(words, own_settings(command))
            for group, values in changes.tree.items():
                for key, value in values.items():
                    assert settable(names, f"{group}.{key}", str(value))


def own_settings(command: str) -> type[Settings]:
    """The settings of a command that uses a finished run."""
    module = importlib.import_module(f"seqtrans.{command}")
    schema: type[Settings] = getattr(module, f"{command.title()}Settings")
    return schema


def schemas(names: Registry, group: str) -> list[type[Settings]]:
    """Every class of settings that a group may have, by what is chosen."""
    if group in KINDS:
        placed = [Placement] if group == "attention" else []
        return [*placed, *(offer.component.settings for offer in names.all(group))]
    return [ENGINE[group]] if group in ENGINE else []


def takes(schema: type[Settings], key: str, value: str | None) -> bool:
    """Whether there is such a setting, and it may have this value."""
    if key not in schema.model_fields or value is None:
        return key in schema.model_fields
    try:
        fill(schema, {key: value}, "")
    except SettingsError as error:
        # What else must be given, or does not go together with this, is another matter.
        return not any(isinstance(p, Problem) and p.key == key for p in error.problems)
    return True


OWN = ("evaluate", "transduce", "average", "attend", "compare", "export", "fetch", "plan")
"""Commands with settings of their own."""


def settable(names: Registry, key: str, value: str | None) -> bool:
    """Whether something may be set so, in a run or in a command that uses one."""
    group, dot, field = key.removesuffix(".name").partition(".")
    if dot:
        return any(takes(schema, field, value) for schema in schemas(names, group))
    if group == "config":
        return value is None or value.endswith(".yaml") or value in packaged()
    if group in PRESETS:
        return value is None or value in PRESETS[group]
    if group in KINDS:
        return value is None or any(value == offer.component.name for offer in names.all(group))
    own = [own_settings(command) for command in OWN]
    return group == "run" or any(takes(schema, group, value) for schema in own)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_setting_exists(document: str, names: Registry) -> None:
    count = 0
    for line in lines(document):
        if re.match(r"\w+ = |\w+=\"", line):
            continue  # Python
        for key, value in SETTING.findall(line):
            given = None if not value or placeholders(f"{key}={value}") else value.rstrip(".,;")
            assert key in ("key", "group.key") or settable(names, key, given), line
            count += 1
        found = DOTTED.fullmatch(line)
        if found and found[2] not in ("py", "safetensors"):
            assert settable(names, line, None), line
            count += 1
    assert count > 5


def test_a_setting_that_does_not_exist_would_be_found(names: Registry) -> None:
    for key, value in {
        "model.widht": None,
        "model.width": "wide",
        "model": "huge",
        "decoder.width": "0",
        "decoder": "beams",
        "position": "absolute",
        "config": "parsing-wjs",
        "runs": "x",
        "training.smoothing_over": "some",
    }.items():
        assert not settable(names, key, value), key
    assert settable(names, "decoder.width", "21")
    assert settable(names, "config", "parsing-wsj")


# What is pointed at.


@pytest.mark.parametrize("document", TEXTS)
def test_every_link_leads_somewhere(document: str) -> None:
    for link in LINK.findall(TEXTS[document]):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        assert not path or (ROOT / path).exists(), link
        if anchor:
            assert anchor in anchors(TEXTS[path or document]), link


def anchors(text: str) -> list[str]:
    """The headings of a document as links name them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    kept = string.ascii_lowercase + string.digits + "-_ "
    return [
        "".join(letter for letter in heading.lower() if letter in kept).replace(" ", "-")
        for heading in headings
    ]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_in_the_text_exists(document: str) -> None:
    for span in spans(document):
        if re.fullmatch(r"(seqtrans|plugins|tasks|tests|benchmarks)/[\w./-]*", span):
            assert (ROOT / span).exists(), span


def test_the_map_shows_every_module_once() -> None:
    shown = re.findall(r"^\| `([^`]+)` \|", section("Map"), re.MULTILINE)
    assert sorted(set(shown)) == sorted(shown)
    assert [path for path in shown if not (ROOT / path).exists()] == []
    there = {
        str(path.relative_to(ROOT))
        for folder in ("seqtrans", "plugins", "tasks", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert sorted(there - set(shown)) == []


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [re.split(r"[><=\[]", text)[0] for text in project["dependencies"]]
    reasons = re.findall(r"^\| `([^`]+)` \|", section("Dependencies"), re.MULTILINE)
    assert sorted(reasons) == sorted(needed)
    for extra, packages in project["optional-dependencies"].items():
        assert f"`{extra}`" in section("Dependencies")
        for package in packages:
            name = re.split(r"[><=\[]", package)[0]
            assert name == "seqtrans" or f"`{name}`" in section("Dependencies"), name


def test_the_changelog_has_this_version_and_speaks_of_checkpoints() -> None:
    entries = re.split(r"^## ", TEXTS["CHANGELOG.md"], flags=re.MULTILINE)[1:]
    assert entries[0].startswith(f"[{__version__}] - ")
    assert all("Checkpoints: " in entry for entry in entries)
