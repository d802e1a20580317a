"""Sequence transduction beyond translation: an encoder-decoder attention engine with pluggable
parts.

``load`` gives a trained run for use; ``Component`` and ``hookimpl`` are what a plug-in offers its
parts with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqtrans.engine import load
    from seqtrans.hooks import Component, hookimpl

__version__ = "0.1.0"
__all__ = ["Component", "__version__", "hookimpl", "load"]

_HOMES = {"load": "engine", "Component": "hooks", "hookimpl": "hooks"}


def __getattr__(name: str) -> Any:
    """Import what is asked for only now, so that ``import seqtrans`` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'seqtrans' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"seqtrans.{_HOMES[name]}"), name)
