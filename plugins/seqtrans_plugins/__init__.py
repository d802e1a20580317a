"""The catalogue of what is built in: sources, position schemes, attentions and decoders.

Only what can be set stands here; each component has a file of its own, which needs torch and is
imported when it is built.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from seqtrans.hooks import Component, hookimpl
from seqtrans.settings import Settings


class LearnedSettings(Settings):
    """Learned positions."""

    limit: int = Field(1024, ge=1, description="how many positions there are")


class RotarySettings(Settings):
    """Rotary positions."""

    base: float = Field(
        10000.0, gt=1, description="the longest wave is 2π times this; larger for longer inputs"
    )


class RelativeSettings(Settings):
    """Relative positions of keys."""

    reach: int = Field(
        16, ge=1, description="the distance beyond which keys are all alike, on either side"
    )


class T5Settings(Settings):
    """The buckets of T5."""

    buckets: int = Field(
        32, ge=4, multiple_of=4, description="numbers that each head learns, for all distances"
    )
    farthest: int = Field(
        128, ge=2, description="the distance beyond which keys are all in the last bucket"
    )

    @model_validator(mode="after")
    def _apart(self) -> T5Settings:
        if 2 * self.farthest <= self.buckets:
            raise ValueError(
                f"position.farthest={self.farthest} must be more than half of "
                f"position.buckets={self.buckets}"
            )
        return self


class RestrictedSettings(Settings):
    """A neighbourhood."""

    reach: int = Field(
        64, ge=1, description="how many positions a query sees, back and, where it may, ahead"
    )
    block: int | None = Field(
        None,
        ge=1,
        description="queries that are computed together: speed and memory, never results; none: "
        "as many as reach, and at least 64",
    )


class GlobalSettings(RestrictedSettings):
    """A neighbourhood, and a beginning that everyone sees."""

    first: int = Field(
        1, ge=1, description="how many positions at the beginning are seen by all and see all"
    )


class GroupedSettings(Settings):
    """Shared keys and values."""

    key_heads: int = Field(
        1, ge=1, description="heads of keys and values, which the queries' share in equal groups"
    )


class DecoderSettings(Settings):
    """What holds for every decoder here."""

    extra: int = Field(
        50, ge=3, description="an output has at most as many symbols as its input and so many more"
    )
    least: int = Field(
        0,
        ge=0,
        description="an output has at least so many symbols, unless the task lets nothing else "
        "follow or it may have no more",
    )
    no_repeat: int = Field(
        0,
        ge=0,
        description="no run of so many symbols comes twice in an output, unless the task lets "
        "nothing else follow; 0: any may",
    )


class BeamSettings(DecoderSettings):
    """Beam search (section 6.1)."""

    width: int = Field(4, ge=1, description="live hypotheses of a sentence, over all groups")
    alpha: float = Field(
        0.6, description="exponent of the length penalty ((5 + length) / 6)^α; 0: none"
    )
    coverage: float = Field(
        0.0,
        ge=0,
        description="how strongly an output ranks lower that leaves positions of the source "
        "unlooked at (β of Wu et al., 2016); 0: none",
    )
    groups: int = Field(
        1, ge=1, description="beams of a sentence that are kept different from each other"
    )
    diversity: float = Field(
        0.0,
        ge=0,
        description="how much lower a symbol ranks, in nats, for each group before that has just "
        "taken it",
    )

    @model_validator(mode="after")
    def _diverse(self) -> BeamSettings:
        if self.width % self.groups:
            raise ValueError(
                f"decoder.width={self.width} can't be divided into decoder.groups={self.groups}"
            )
        if self.diversity and self.groups == 1:
            raise ValueError("decoder.diversity has no effect without decoder.groups above 1")
        if self.groups > 1 and not self.diversity:
            raise ValueError(
                "decoder.groups above 1 needs decoder.diversity above 0: all groups would be alike"
            )
        return self


class SpeculativeSettings(DecoderSettings):
    """Greedy search by forced and guessed symbols."""

    ahead: int = Field(
        8, ge=1, description="symbols that are read at a time, at most; 1: none is guessed"
    )
    draft: Path | None = Field(
        None,
        description="the run of a smaller model with the same vocabularies, which guesses; none: "
        "what outputs so far had is guessed",
    )
    context: int = Field(4, ge=1, description="symbols that a guess looks back at, at most")
    share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="guess on as long as all guesses together are right in this share of cases",
    )
    copy_source: bool = Field(
        False,
        description="also guess what follows in the source; for tasks of which both sides have "
        "one vocabulary",
    )
    rows: int = Field(
        1, ge=1, description="sentences that are decoded together, at most; more gain less"
    )


class SamplingSettings(DecoderSettings):
    """Sampling."""

    temperature: float = Field(1.0, gt=0, description="below 1 sharper, above 1 flatter")
    top_k: int = Field(0, ge=0, description="draw from the k most likely symbols only; 0: from all")
    top_p: float = Field(
        1.0, gt=0, le=1, description="draw from the smallest set of symbols with this probability"
    )
    seed: int = Field(1, ge=0, description="another seed draws other outputs")


class MaskPredictSettings(DecoderSettings):
    """All symbols at once, over and over."""

    iterations: int = Field(
        10, ge=1, description="how often the symbols are predicted, those that are least sure again"
    )
    lengths: int = Field(
        5, ge=1, description="the most likely lengths of an output are tried, so many of them"
    )


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
        Component(
            name="rotary",
            build="seqtrans_plugins.rotary:Rotary",
            settings=RotarySettings,
            summary="queries and keys turned by angles; any length (Su et al., 2021)",
        ),
        Component(
            name="alibi",
            build="seqtrans_plugins.alibi:Alibi",
            summary="a penalty for distance, fixed for each head; any length (Press et al., 2022)",
        ),
        Component(
            name="relative",
            build="seqtrans_plugins.relative:Relative",
            settings=RelativeSettings,
            summary="a vector for each distance in the keys; any length (Shaw et al., 2018)",
        ),
        Component(
            name="t5",
            build="seqtrans_plugins.t5:Buckets",
            settings=T5Settings,
            summary="a number for each head and bucket of distances; any length (Raffel et al., "
            "2020)",
        ),
        Component(
            name="none",
            build="seqtrans_plugins.none:Nothing",
            summary="no positions at all",
        ),
    ]


@hookimpl
def seqtrans_attentions() -> list[Component]:
    return [
        Component(
            name="full",
            build="seqtrans_plugins.full:Full",
            summary="every query looks at every key (section 3.2)",
        ),
        Component(
            name="restricted",
            build="seqtrans_plugins.restricted:Restricted",
            settings=RestrictedSettings,
            summary="a neighbourhood of each query, at its true cost (section 4)",
        ),
        Component(
            name="global",
            build="seqtrans_plugins.global_tokens:Global",
            settings=GlobalSettings,
            summary="a neighbourhood, and a beginning that sees and is seen by all (Beltagy et "
            "al., 2020)",
        ),
        Component(
            name="grouped",
            build="seqtrans_plugins.grouped:Grouped",
            settings=GroupedSettings,
            summary="heads share keys and values: a smaller cache (Ainslie et al., 2023)",
        ),
        Component(
            name="linear",
            build="seqtrans_plugins.linear:Linear",
            summary="sums in place of a softmax: a constant state, unless positions are a bias "
            "(Katharopoulos et al., 2020)",
        ),
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
            name="speculative",
            build="seqtrans_plugins.speculative:Speculative",
            settings=SpeculativeSettings,
            summary="greedy's outputs in fewer steps, by forced and guessed symbols",
        ),
        Component(
            name="sampling",
            build="seqtrans_plugins.sampling:Sampling",
            settings=SamplingSettings,
            summary="draws from the distribution: temperature, top-k, top-p",
        ),
        Component(
            name="mask_predict",
            build="seqtrans_plugins.mask_predict:MaskPredict",
            settings=MaskPredictSettings,
            summary="all symbols at once, in a few rounds, with model.causal=no (Ghazvininejad et "
            "al., 2019)",
        ),
    ]
