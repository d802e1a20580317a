"""The groups of settings that belong to the engine itself, their presets, and how everything is
resolved.

What the paper says is the default, and is quoted with its section.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, create_model, model_validator

from seqtrans.errors import CheckpointError, PluginError, Problem, SettingsError
from seqtrans.fields import read
from seqtrans.hooks import Component
from seqtrans.plugins import KINDS, Registry
from seqtrans.settings import NoSettings, Settings, Words, fill, unknown_groups
from seqtrans.words import did_you_mean, there_are


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
FORMAT = 1


@dataclass(frozen=True)
class Group:
    """One group with everything that was said of it, not yet checked."""

    name: str | None
    """Of the component or preset; ``None`` where there is nothing to choose."""
    schema: type[Settings]
    under: Mapping[str, Any]
    """Defaults over the schema's own: the preset's, then the task's."""
    given: Mapping[str, Any]
    """What the user gave."""

    @property
    def values(self) -> dict[str, Any]:
        """All that was said."""
        return {**self.under, **self.given}


@dataclass(frozen=True)
class Config:
    """Everything that is set, checked: for each group its settings, and the chosen names."""

    names: Mapping[str, str]
    settings: Mapping[str, Any]

    @property
    def shape(self) -> Shape:
        """``model.*``."""
        return self.settings["model"]  # type: ignore[no-any-return]

    @property
    def data(self) -> DataSettings:
        """``data.*``."""
        return self.settings["data"]  # type: ignore[no-any-return]

    @property
    def training(self) -> TrainingSettings:
        """``training.*``."""
        return self.settings["training"]  # type: ignore[no-any-return]

    @property
    def run(self) -> RunSettings:
        """``run.*``."""
        return self.settings["run"]  # type: ignore[no-any-return]

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.run.folder or Path("runs") / self.names["task"]

    def flat(self) -> dict[str, Any]:
        """Every value under its full name, as JSON has it."""
        values: dict[str, Any] = {}
        for group in GROUPS:
            if group in self.names:
                values[group] = self.names[group]
            for key, value in self.settings[group].model_dump(mode="json").items():
                values[f"{group}.{key}"] = value
        return values

    def as_json(self, registry: Registry) -> dict[str, Any]:
        """What a run folder holds of it: every value, and who provided each component."""
        return {
            "format": FORMAT,
            "settings": self.flat(),
            "providers": {
                kind: "{} {}".format(*registry.provider(kind, self.names[kind])) for kind in KINDS
            },
        }


def from_json(
    content: object, registry: Registry, where: Path, changes: Words | None = None
) -> Config:
    """The config that ``as_json`` gave, with some settings changed.

    Raises ``CheckpointError`` for another format, ``PluginError`` for a component that is not
    installed here, ``SettingsError`` for a setting that has since gone and for a change that comes
    too late.
    """
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise CheckpointError(
            f"{where} is of format {found}; this version of seqtrans reads format {FORMAT}."
        )
    words = Words()
    for key, value in content["settings"].items():
        group, _, field = key.partition(".")
        words.tree.setdefault(group, {})[field or "name"] = value
    for kind in KINDS:
        try:
            registry.get(kind, str(words.tree[kind]["name"]))
        except PluginError as error:
            provider = content.get("providers", {}).get(kind, "an unknown distribution")
            raise PluginError(f"{where} needs a {kind} provided by {provider}: {error}") from None
    if changes is not None:
        words = change(words, changes, registry)
    return resolve(words, registry)


def change(words: Words, changes: Words, registry: Registry) -> Words:
    """The words of a run with some that may be changed when it is used: any of the decoder, late
    ones of the task.
    """
    tree = {group: dict(values) for group, values in words.tree.items()}
    late = registry.get("task", str(tree["task"]["name"])).settings.late
    problems: list[Problem | str] = []
    for group, values in changes.tree.items():
        if values.get("name", tree[group].get("name")) != tree[group].get("name"):
            tree[group] = {}
        for key, value in values.items():
            place = f"{group}.{key}"
            if group == "task" and key not in late and key in tree[group]:
                may = ", ".join(f"task.{name}" for name in sorted(late))
                problems.append(
                    Problem(
                        changes.typed.get(place, place),
                        "was fixed when the run was prepared; what may change is "
                        f"{may or 'nothing'}",
                    )
                )
            tree[group][key] = value
    if problems:
        raise SettingsError(*problems)
    return Words(tree, dict(changes.typed))


def arrange(words: Words, registry: Registry) -> tuple[dict[str, Group], list[Problem | str]]:
    """Each group with its schema, which depends on the names chosen, and its values from all
    origins.

    Groups whose name is unknown are left out, and there is a problem for each, and for each unknown
    group.
    """
    tree = {group: dict(values) for group, values in words.tree.items()}
    if "name" in tree.get("run", {}):
        tree["run"].setdefault("folder", tree["run"].pop("name"))
    problems: list[Problem | str] = []
    wanted: Mapping[str, Mapping[str, Any]] = {}
    groups: dict[str, Group] = {}
    for group in GROUPS:
        given = dict(tree.get(group, {}))
        usual = dict(wanted.get(group, {}))
        name = given.pop("name", None)
        if group in NAMES or group == "task":
            usual_name = usual.pop("name", NAMES.get(group))
            if name is not None and name != usual_name:
                usual = {}
            name = name if name is not None else usual_name
        try:
            if group in KINDS:
                if name is None:
                    offers = ", ".join(offer.component.name for offer in registry.all(group))
                    raise PluginError(f"must be given, as in task=parsing; there are: {offers}")
                component = registry.get(group, str(name))
                schema: type[Settings] = component.settings
                if group == "task":
                    wanted = component.defaults
                elif group == "attention":
                    schema, wrong = placed(component, {**usual, **given}, words, registry)
                    problems.extend(wrong)
            elif group in PRESETS:
                presets = PRESETS[group]
                if name not in presets:
                    raise PluginError(
                        f"no preset is called {name!r}{did_you_mean(str(name), presets)}; "
                        f"{there_are(presets)}"
                    )
                usual, schema = {**presets[str(name)], **usual}, ENGINE[group]
            else:
                if name is not None:
                    given["name"] = name
                schema = ENGINE[group]
        except PluginError as error:
            problems.append(Problem(words.typed.get(f"{group}.name", group), str(error)))
            if group == "task":
                return groups, problems
            continue
        groups[group] = Group(None if name is None else str(name), schema, usual, given)
    schemas = {group: groups[group].schema if group in groups else NoSettings for group in GROUPS}
    problems.extend(unknown_groups(words, schemas))
    return groups, problems


def placed(
    chosen: Component, values: Mapping[str, Any], words: Words, registry: Registry
) -> tuple[type[Settings], list[Problem]]:
    """The settings of all attentions that some layer has, and `Placement`; what is wrong with them.

    A setting that two of them have is given to both.
    """
    problems: list[Problem] = []
    used: dict[str, Component] = {}
    for stack, info in Placement.model_fields.items():
        pattern = read(values.get(stack), info.annotation)
        if not (isinstance(pattern, list | tuple) and pattern):
            used[chosen.name] = chosen
            continue
        for name in pattern:
            try:
                used[str(name)] = registry.get("attention", str(name))
            except PluginError as error:
                place = f"attention.{stack}"
                problems.append(Problem(words.typed.get(place, place), str(error)))
    owners: dict[str, str] = dict.fromkeys(Placement.model_fields, "every attention")
    schemas: list[type[Settings]] = [Placement]
    for name, component in used.items():
        schema = component.settings
        if any(issubclass(known, schema) for known in schemas):
            continue
        schemas = [known for known in schemas if not issubclass(schema, known)]
        for key, info in schema.model_fields.items():
            known = [other.model_fields[key] for other in schemas if key in other.model_fields]
            if any(repr(info) != repr(other) for other in known):
                problems.append(
                    Problem(
                        f"attention.{key}",
                        f"is one thing to {name} and another to {owners[key]}; they can't be used "
                        "together",
                    )
                )
            owners.setdefault(key, name)
        schemas.insert(0, schema)
    return together(*schemas), problems


@functools.cache
def together(*schemas: type[Settings]) -> type[Settings]:
    """One class of settings that has those of all, the same for the same ones."""
    return create_model("".join(schema.__name__ for schema in schemas), __base__=schemas)


def resolve(words: Words, registry: Registry) -> Config:
    """Everything set and checked.

    Raises ``SettingsError`` with a line for every mistake at once.
    """
    groups, problems = arrange(words, registry)
    schemas = {name: group.schema for name, group in groups.items()}
    settings: dict[str, Settings] = {}
    for name, group in groups.items():
        try:
            settings[name] = fill(
                group.schema,
                group.values,
                name,
                typed=words.typed,
                # Settings of attentions may be those of several.
                owner=group.name if name in KINDS and name != "attention" else None,
                schemas=schemas,
            )
        except SettingsError as error:
            problems.extend(error.problems)
    if isinstance(shape := settings.get("model"), Shape):
        for stack, layers in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
            pattern = getattr(settings.get("attention"), stack, None) or ()
            if len(pattern) > layers:
                place = f"attention.{stack}"
                problems.append(
                    Problem(
                        words.typed.get(place, place),
                        f"names {len(pattern)} attentions for model.{stack}_layers={layers}",
                    )
                )
    if isinstance(training := settings.get("training"), TrainingSettings):
        place = "training.objective"
        if isinstance(shape, Shape) and shape.causal == (training.objective == "masked"):
            problems.append(
                Problem(
                    words.typed.get(place, place),
                    "masked needs model.causal=no: what is masked is told from both sides"
                    if shape.causal
                    else "left-to-right needs model.causal=yes: without it each target position "
                    "would see the very symbol that it is to predict; masked goes with "
                    "model.causal=no",
                )
            )
        try:
            registry.get("decoder", training.validation_decoder)
        except PluginError as error:
            problems.append(Problem("training.validation_decoder", str(error)))
    if problems:
        raise SettingsError(*problems)
    names = {name: group.name for name, group in groups.items() if group.name is not None}
    return Config(names, settings)


def groups(words: Words, registry: Registry) -> dict[str, Group]:
    """What can be set after these words, group by group.

    Raises ``SettingsError`` for names and groups that there are not.
    """
    found, problems = arrange(words, registry)
    if problems:
        raise SettingsError(*problems)
    return found


def packaged() -> dict[str, Path]:
    """The configs that ``config=NAME`` finds: those beside the built-in tasks."""
    import seqtrans_tasks

    root = Path(seqtrans_tasks.__path__[0])
    return {path.stem: path for path in sorted(root.glob("**/recipes/*.yaml"))}
