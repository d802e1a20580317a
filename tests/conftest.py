"""Fixtures that every test file may use."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent

# A busy machine is no failure, and a failure is to be the same for everyone.
hypothesis.settings.register_profile("seqtrans", deadline=None, derandomize=True)
hypothesis.settings.load_profile("seqtrans")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and oracles; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("SEQTRANS_DATA") or ROOT / ".." / "shared").resolve()
    if not (folder / "data").is_dir():
        pytest.skip(
            f"no data folder at {folder}; set SEQTRANS_DATA to one that holds data/ and oracles/"
        )
    return folder
