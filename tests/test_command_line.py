"""The front door: help, mistakes, exit statuses, and starting without anything heavy."""

from __future__ import annotations

import errno
import inspect
import re
import subprocess
import sys

import pytest

from seqtrans import __version__
from seqtrans.__main__ import front, main
from seqtrans.commands import COMMANDS, run
from seqtrans.errors import DataError, Problem, SettingsError

HEAVY = {"torch", "accelerate", "nltk", "evaluate", "datasets", "tokenizers", "numpy"}

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help(argv: list[str], capsys: Captured) -> None:
    assert main(argv) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{inspect.getdoc(front)}\n"
    assert shown.err == ""


def test_help_names_every_command() -> None:
    text = inspect.getdoc(front) or ""
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command: str, capsys: Captured) -> None:
    for flag in ("--help", "-h"):
        assert main([command, flag]) == 0
        shown = capsys.readouterr().out
        summary, blank, *_ = shown.splitlines()
        assert summary.endswith(".")
        assert blank == ""
        for part in ("usage", "example"):
            assert re.search(rf"^{part}: .*seqtrans[ .]{command}\b", shown, re.MULTILINE)
        assert max(map(len, shown.splitlines())) <= 100


def test_version(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"seqtrans {__version__}\n"


@pytest.mark.parametrize(
    ("word", "hint"), [("trian", "; did you mean train?"), ("zzz", ""), ("--versoin", "")]
)
def test_unknown_command(word: str, hint: str, capsys: Captured) -> None:
    assert main([word]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        f"seqtrans: no command is called '{word}'{hint}; there are: {', '.join(COMMANDS)}\n"
    )


def raising(error: BaseException) -> int:
    def main(argv: list[str]) -> int:
        raise error

    return run(main, [])


def test_every_line_of_a_mistake_is_marked(capsys: Captured) -> None:
    assert raising(SettingsError(Problem("a.b", "wrong"), "also wrong")) == 2
    assert capsys.readouterr().err == "seqtrans: a.b: wrong\nseqtrans: also wrong\n"


def test_a_mistake_in_data(capsys: Captured) -> None:
    assert raising(DataError("line 3 is empty")) == 2
    assert capsys.readouterr().err == "seqtrans: line 3 is empty\n"


def test_a_path_that_may_not_be_used_is_told(capsys: Captured) -> None:
    assert raising(PermissionError(errno.EACCES, "Permission denied", "runs/theirs")) == 2
    assert capsys.readouterr().err == "seqtrans: runs/theirs: Permission denied.\n"


def test_interruption_is_quiet(capsys: Captured) -> None:
    assert raising(KeyboardInterrupt()) == 130
    assert capsys.readouterr() == ("", "")


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        raising(ZeroDivisionError())


def test_status_and_words_are_passed_on() -> None:
    assert run(lambda words: len(words), ["a", "b", "c"]) == 3


def test_a_closed_pipe_is_quiet() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "seqtrans", "plugins"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=30) == 141


def test_unknown_kind(capsys: Captured) -> None:
    assert main(["plugins", "positions"]) == 2
    assert capsys.readouterr().err == (
        "seqtrans: no kind of component is called 'positions'; did you mean position?; "
        "there are: task, source, position, attention, decoder\n"
    )


def test_plugins_lists_one_kind(capsys: Captured) -> None:
    assert main(["plugins", "attention"]) == 0
    assert all(line.startswith("attention") for line in capsys.readouterr().out.splitlines())


def test_settings_lists_those_of_the_chosen(capsys: Captured) -> None:
    assert main(["settings", "task=parsing", "decoder=beam", "decoder.width=21"]) == 0
    assert "\ndecoder.width=21  (a whole number, at least 1)\n    " in capsys.readouterr().out


def test_settings_tells_mistakes(capsys: Captured) -> None:
    assert main(["settings", "task=parsing", "decoder=beam", "decoder.widht=0"]) == 2
    assert capsys.readouterr().err == (
        "seqtrans: decoder.widht: no such setting; did you mean decoder.width?\n"
    )


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--help", 0),
        ("plugins", 0),
        ("plugins --help", 0),
        ("settings task=parsing", 0),
        ("settings task=parsing training.steps=x", 2),
        ("train task=parsing training.steps=x", 2),
        ("train --help", 0),
    ],
)
def test_nothing_heavy_is_imported_for_what_must_be_quick(words: str, status: int) -> None:
    code = f"""
import sys
from seqtrans.__main__ import main
status = main({words.split()!r})
print(status, sorted({HEAVY!r} & set(sys.modules)))
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout.splitlines()[-1] == f"{status} []"


@pytest.mark.parametrize("module", ["seqtrans", "seqtrans.hooks", "seqtrans.resolving"])
def test_importing_is_light(module: str) -> None:
    code = f"import sys, {module}; print(sorted({HEAVY!r} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
