"""Sequence transduction beyond translation."""

__version__ = "0.1.0"
