"""What others may rely on. A name that is missing here, or new, is a change for CHANGELOG.md."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import seqtrans

PUBLIC = {
    "seqtrans.attention": [
        "Attention",
        "Bias",
        "Cache",
        "KeyValueCache",
        "MultiHead",
        "Rewindable",
        "for_each_query_head",
        "view",
        "weights",
    ],
    "seqtrans.decoding": [
        "Decoder",
        "Hypothesis",
        "Request",
        "Scorer",
        "admissible",
        "forced",
        "length_penalty",
        "log_probability",
        "open_to",
        "top",
    ],
    "seqtrans.position": ["PositionScheme", "sinusoid"],
    "seqtrans.task": ["Comparison", "Constraint", "Score", "Task", "Vocabulary"],
    "seqtrans.testing": [
        "NoRepeats",
        "TINY",
        "TableScorer",
        "check_attention",
        "check_decoder",
        "check_model",
        "check_position",
        "check_source",
        "check_task",
        "random_table",
        "tiny_model",
    ],
}


def test_the_package() -> None:
    assert sorted(seqtrans.__all__) == ["Component", "__version__", "hookimpl", "load"]
    for name in seqtrans.__all__:
        assert getattr(seqtrans, name)
    with pytest.raises(AttributeError) as error:
        seqtrans.lode  # noqa: B018
    assert str(error.value) == "module 'seqtrans' has no attribute 'lode'"


@pytest.mark.parametrize("module", PUBLIC)
def test_modules(module: str) -> None:
    found = importlib.import_module(module)
    own = [
        name
        for name, value in vars(found).items()
        if not name.startswith("_")
        and (getattr(value, "__module__", None) == module or name == "Bias")
    ]
    assert sorted(getattr(found, "__all__", own)) == PUBLIC[module]


def test_what_reads_settings_needs_no_torch() -> None:
    code = (
        "import sys, seqtrans, seqtrans.hooks, seqtrans.task, seqtrans.resolving\n"
        "import seqtrans.plugins\n"
        "seqtrans.plugins.registry().all('decoder')\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
