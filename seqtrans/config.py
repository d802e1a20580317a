"""The groups of settings that belong to the engine itself, and their presets.

What the paper says is the default, and is quoted with its section.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from seqtrans.settings import Settings


class Shape(Settings):
    """The model (section 3; the columns of Table 3)."""

    length_reach: ClassVar[int] = 128
    """Without ``causal``: how far the length of an output may be from the source's, to be told."""

    encoder_layers: int = Field(6, ge=1, description="layers of the encoder (N)")
    decoder_layers: int = Field(6, ge=1, description="layers of the decoder (N)")
    width: int = Field(512, ge=2, description="width of every layer's output (d_model); even")
    inner: int = Field(2048, ge=1, description="width inside the feed-forward layers (d_ff)")
    heads: int = Field(8, ge=1, description="attention heads (h)")
    head_width: int | None = Field(
        None, ge=1, description="width of one head (d_v, and d_k); none: width / heads"
    )
    key_width: int | None = Field(
        None,
        ge=1,
        description="width of one head's queries and keys (d_k; Table 3, rows B); none: that of "
        "the head",
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="residual and embedding dropout (P_drop)")
    attention_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="dropout of attention weights; the paper's for parsing only (section 6.3)",
    )
    relu_dropout: float = Field(
        0.0, ge=0, lt=1, description="dropout inside the feed-forward layers; not in the paper"
    )
    norm: Literal["post", "pre"] = Field(
        "post", description="LayerNorm after each sub-layer, as in the paper, or before"
    )
    tie: Literal["auto", "all", "output", "none"] = Field(
        "auto",
        description="one matrix for both embeddings and the softmax (all), for the target's "
        "embedding and "
        "the softmax (output), or none; auto: all if the task shares its vocabulary, else output",
    )
    causal: bool = Field(
        True,
        description="whether a target position sees only what precedes it; no: for models that "
        "write all symbols at once, which also learn how many there are",
    )
    pace: int | None = Field(
        None,
        ge=1,
        description="bias the decoder's look at the source by how many units (words) a position "
        "lies from the "
        "next one to be consumed, told apart up to so many; not in the paper; needs a task "
        "whose vocabularies "
        "say what a unit is",
    )

    @model_validator(mode="after")
    def _fits(self) -> Shape:
        if self.width % 2:
            raise ValueError(f"model.width must be even, not {self.width}")
        if self.pace is not None and not self.causal:
            raise ValueError(
                "model.pace needs model.causal=yes: it follows an output from left to right"
            )
        if self.head_width is None and self.width % self.heads:
            raise ValueError(
                f"model.width={self.width} can't be divided into model.heads={self.heads}; set "
                f"model.head_width"
            )
        return self

    @property
    def value(self) -> int:
        """The width of the values of one head (d_v)."""
        return self.head_width or self.width // self.heads

    @property
    def head(self) -> int:
        """The width of the queries and keys of one head (d_k): what a position scheme sees."""
        return self.key_width or self.value


class DataSettings(Settings):
    """How examples become updates (section 5.1)."""

    tokens: int = Field(
        25_000,
        ge=1,
        description="padded positions of an update, on the source side and on the target side "
        "each, over all "
        "processes and accumulation steps",
    )
    longest_source: int | None = Field(
        None, ge=1, description="leave training examples with longer sources out"
    )
    longest_target: int | None = Field(
        None, ge=1, description="leave training examples with longer targets out"
    )


class TrainingSettings(Settings):
    """The optimisation (section 5)."""

    objective: Literal["left-to-right", "masked"] = Field(
        "left-to-right",
        description="tell each target symbol from those before it, or, with model.causal=no, any "
        "that are masked from the others (Ghazvininejad et al., 2019); the loss is then over the "
        "masked ones and the length, still divided by all",
    )
    start: Path | None = Field(
        None,
        description="a run whose weights this one begins with, instead of random ones; model and "
        "vocabularies must be the same",
    )
    start_step: str = Field(
        "best", description="which of its checkpoints: best, last, average, or an update's number"
    )
    steps: int = Field(100_000, ge=1, description="updates in all")
    accumulation: int = Field(
        1,
        ge=1,
        description="parts that each process cuts its share of an update into, to save memory",
    )
    recompute: bool = Field(
        False,
        description="compute activations again in the backward pass: less memory, a third more "
        "work",
    )
    schedule: Literal["paper", "constant", "linear"] = Field(
        "paper", description="the paper's (section 5.3), constant, or falling linearly to 0"
    )
    lr: float = Field(
        1.0, gt=0, description="a factor on the paper's schedule, or the peak rate of the others"
    )
    warmup: int = Field(4000, ge=0, description="updates of linear warm-up")
    optimizer: Literal["adam", "adamw"] = Field(
        "adam", description="Adam, or with decoupled weight decay"
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's β₁")
    beta2: float = Field(0.98, ge=0, lt=1, description="Adam's β₂")
    epsilon: float = Field(1e-9, gt=0, description="Adam's ε")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of adamw")
    clip: float | None = Field(None, gt=0, description="clip gradients to this norm; none: don't")
    smoothing: float = Field(0.1, ge=0, lt=1, description="label smoothing ε_ls (section 5.4)")
    smoothing_over: Literal["all", "others"] = Field(
        "all", description="spread ε over all V symbols (ε/V each) or over the V-1 others"
    )
    consistency: float = Field(
        0.0,
        ge=0,
        description="make two passes over each batch, with a dropout of their own each, and weigh "
        "by so much what their predictions differ by: the α of R-Drop (Liang et al., 2021); "
        "twice the work, for few data; 0: one pass",
    )
    validate_every: int = Field(1000, ge=1, description="updates between two validations")
    save_every: int = Field(1000, ge=1, description="updates between two checkpoints")
    save_minutes: float | None = Field(
        None, gt=0, description="also save after so many minutes, as for averaging (section 6.1)"
    )
    keep: int = Field(
        5, ge=1, description="how many of the newest checkpoints are kept, besides the best"
    )
    patience: int | None = Field(
        None, ge=1, description="stop after so many validations without a better score; none: never"
    )
    validation_decoder: str = Field("greedy", description="the decoder used in validations")
    log_every: int = Field(50, ge=1, description="updates between two lines of the log")
    dry_run: bool = Field(
        True, description="try every phase with the largest batch before the first update"
    )

    @property
    def passes(self) -> int:
        """How often each batch is computed."""
        return 2 if self.consistency else 1

    @model_validator(mode="after")
    def _effective(self) -> TrainingSettings:
        if self.weight_decay and self.optimizer != "adamw":
            raise ValueError("training.weight_decay has no effect without training.optimizer=adamw")
        if self.start is None and self.start_step != "best":
            raise ValueError("training.start_step has no effect without training.start=RUN")
        return self


class RunSettings(Settings):
    """Where a run lives and what makes it repeatable."""

    folder: Path | None = Field(None, description="the run folder; none: runs/TASK")
    seed: int = Field(1, ge=0, description="the seed of everything random")
    threads: int | None = Field(
        None,
        ge=1,
        description="CPU threads of each process; none: all cores, shared among the processes",
    )


class Placement(Settings):
    """Which attention each layer has, where not all have the one that is chosen.

    These stand in the group ``attention`` beside the settings of all attentions that are used.
    """

    encoder: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None,
        description="the attentions of the encoder's layers, over and over until every layer has "
        "one, as in restricted,restricted,full; none: all have the one that is chosen",
    )
    decoder: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None,
        description="the same for the decoder's layers, where they look at the target; they look "
        "at the source with full attention",
    )


MODELS: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "big": {"width": 1024, "inner": 4096, "heads": 16, "dropout": 0.3},
    "small": {"encoder_layers": 4, "decoder_layers": 4, "width": 256, "inner": 1024, "heads": 4},
    "tiny": {"encoder_layers": 2, "decoder_layers": 2, "width": 128, "inner": 512, "heads": 4},
}
"""The paper's Table 3 (base, big), and two that train on a CPU."""

TRAININGS: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "big": {"steps": 300_000, "keep": 20},
    "small": {"steps": 10_000, "warmup": 1000, "validate_every": 500, "save_every": 500},
    "tiny": {
        "steps": 1500,
        "warmup": 300,
        "validate_every": 250,
        "save_every": 250,
        "log_every": 25,
    },
}
PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"model": MODELS, "training": TRAININGS}
ENGINE: Mapping[str, type[Settings]] = {
    "model": Shape,
    "data": DataSettings,
    "training": TrainingSettings,
    "run": RunSettings,
}
GROUPS = ("task", "model", "source", "position", "attention", "decoder", "data", "training", "run")
NAMES = {
    "model": "base",
    "training": "base",
    "source": "tokens",
    "position": "sinusoidal",
    "attention": "full",
    "decoder": "beam",
}
"""What is chosen where neither the user nor the task chooses; a task has to be named."""
