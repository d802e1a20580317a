"""What this plug-in offers: a task, a source for its features, and a position scheme.

Only the settings stand here, so that ``seqtrans plugins`` and mistakes in settings need not wait
for torch; the modules that ``build`` names are imported when something is built.
"""

from __future__ import annotations

from pydantic import Field

from seqtrans.hooks import Component, hookimpl
from seqtrans.settings import Settings


class DisplaySettings(Settings):
    """Reading displays."""

    longest: int = Field(6, ge=1, description="digits of the longest number")
    count: int = Field(300, ge=1, description="numbers of each split")
    noise: float = Field(0.1, ge=0, description="standard deviation of what is added to a segment")


class SlopeSettings(Settings):
    """A penalty for distance."""

    slope: float = Field(0.5, gt=0, description="what each position of distance takes off a logit")


@hookimpl
def seqtrans_tasks() -> list[Component]:
    return [
        Component(
            name="displays",
            build="seqtrans_displays.task:Displays",
            settings=DisplaySettings,
            summary="seven-segment displays to digits",
            defaults={"source": {"name": "segments"}, "decoder": {"name": "greedy"}},
        )
    ]


@hookimpl
def seqtrans_sources() -> list[Component]:
    return [
        Component(
            name="segments",
            build="seqtrans_displays.source:Segments",
            summary="the seven segments of each digit, projected to the width",
        )
    ]


@hookimpl
def seqtrans_positions() -> list[Component]:
    return [
        Component(
            name="slope",
            build="seqtrans_displays.position:Slope",
            settings=SlopeSettings,
            summary="one penalty in proportion to distance, for all heads",
        )
    ]
