"""The catalogue of what is built in: sources, position schemes, attentions and decoders.

Only what can be set stands here; each component has a file of its own, which needs torch and is
imported when it is built.
"""

from __future__ import annotations

from pydantic import Field

from seqtrans.hooks import Component, hookimpl
from seqtrans.settings import Settings


class LearnedSettings(Settings):
    """Learned positions."""

    limit: int = Field(1024, ge=1, description="how many positions there are")


class DecoderSettings(Settings):
    """What holds for every decoder here."""

    extra: int = Field(
        50, ge=3, description="an output has at most as many symbols as its input and so many more"
    )


class BeamSettings(DecoderSettings):
    """Beam search (section 6.1)."""

    width: int = Field(4, ge=1, description="live hypotheses of a sentence")
    alpha: float = Field(
        0.6, description="exponent of the length penalty ((5 + length) / 6)^α; 0: none"
    )


class SamplingSettings(DecoderSettings):
    """Sampling."""

    temperature: float = Field(1.0, gt=0, description="below 1 sharper, above 1 flatter")
    top_k: int = Field(0, ge=0, description="draw from the k most likely symbols only; 0: from all")
    top_p: float = Field(
        1.0, gt=0, le=1, description="draw from the smallest set of symbols with this probability"
    )
    seed: int = Field(1, ge=0, description="another seed draws other outputs")


@hookimpl
def seqtrans_sources() -> list[Component]:
    return [
        Component(
            name="tokens",
            build="seqtrans_plugins.tokens:Tokens",
            summary="ids, embedded and scaled by the root of the width (section 3.4)",
        )
    ]


@hookimpl
def seqtrans_positions() -> list[Component]:
    return [
        Component(
            name="sinusoidal",
            build="seqtrans_plugins.sinusoidal:Sinusoidal",
            summary="sines and cosines, added; any length (section 3.5)",
        ),
        Component(
            name="learned",
            build="seqtrans_plugins.learned:Learned",
            settings=LearnedSettings,
            summary="a vector for each position up to a limit, added (Table 3, row E)",
        ),
    ]


@hookimpl
def seqtrans_attentions() -> list[Component]:
    return [
        Component(
            name="full",
            build="seqtrans_plugins.full:Full",
            summary="every query looks at every key (section 3.2)",
        )
    ]


@hookimpl
def seqtrans_decoders() -> list[Component]:
    return [
        Component(
            name="greedy",
            build="seqtrans_plugins.greedy:Greedy",
            settings=DecoderSettings,
            summary="at each step the most likely symbol",
        ),
        Component(
            name="beam",
            build="seqtrans_plugins.beam:Beam",
            settings=BeamSettings,
            summary="beam search with a length penalty (section 6.1)",
        ),
        Component(
            name="sampling",
            build="seqtrans_plugins.sampling:Sampling",
            settings=SamplingSettings,
            summary="draws from the distribution: temperature, top-k, top-p",
        ),
    ]
