"""The words of a command that uses a finished run: its own settings, and what they change of the
run's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from seqtrans.errors import Problem, SettingsError
from seqtrans.settings import AnySettings, Settings, Words, fill, parse_words
from seqtrans.words import split_bare

if TYPE_CHECKING:
    from seqtrans.engine import Engine

Mean = Literal["probabilities", "logarithms"]
"""What is averaged where several decode together."""
Precision = Literal["fp32", "bf16", "int8"]
"""Of the weights and products of a model in use."""
CHANGEABLE = ("decoder", "task")
"""The groups of a run that may be changed when it is used; of the task, what its settings call
``late``.
"""


class DecodingSettings(Settings):
    """What every command that decodes can be told."""

    step: str = Field(
        "best", description="the checkpoint: best, last, average, or an update's number"
    )
    device: str | None = Field(
        None, description="where to compute: cpu, cuda, cuda:1, ...; none: on a GPU if there is one"
    )
    tokens: int = Field(
        4096, ge=1, description="padded positions × hypotheses that are decoded together"
    )


class UseSettings(DecodingSettings):
    """What every command that uses one run can be told."""

    run: Path = Field(description="the run folder")


class EnsembleSettings(DecodingSettings):
    """What every command can be told that uses one run or several together."""

    run: tuple[Path, ...] = Field(
        min_length=1, description="the run folder, or several that decode together"
    )
    step: tuple[str, ...] = Field(  # type: ignore[assignment]
        ("best",),
        min_length=1,
        description="the checkpoint: best, last, average, or an update's number; or several that "
        "decode together",
    )
    mean: Mean = Field(
        "probabilities", description="what is averaged where several decode together"
    )
    precision: Precision = Field(
        "fp32",
        description="of weights and products; bf16 is faster on GPUs that have it, int8 on CPUs, "
        "and both are less exact",
    )

    @model_validator(mode="after")
    def _several(self) -> EnsembleSettings:
        for name in ("run", "step"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}: the same is given twice")
        if self.mean != "probabilities" and len(self.run) * len(self.step) == 1:
            raise ValueError("mean has no effect without several runs or steps")
        return self

    def load(self, changes: Words) -> Engine:
        """What `seqtrans.engine.load` gives for them."""
        from seqtrans.engine import load

        several = self.run, self.step
        return load(*several, self.device, changes, self.tokens, self.mean, self.precision)


def read_command(argv: list[str], schema: type[AnySettings]) -> tuple[AnySettings, Words]:
    """The command's own settings, and the words that change the run's.

    Words that are no settings are the value of the one that ``schema.bare`` names. Raises
    ``SettingsError`` with a line for everything that is none of these.
    """
    own: dict[str, object] = {}
    if schema.bare is not None:
        bare, argv = split_bare(argv)
        if bare:
            own[schema.bare] = bare
    words = parse_words(argv)
    changes = Words(typed=dict(words.typed))
    problems: list[Problem | str] = []
    for group, values in words.tree.items():
        for key, value in values.items():
            place = f"{group}.{key}"
            if group in CHANGEABLE and place != "task.name":
                changes.tree.setdefault(group, {})[key] = value
            elif key == "name":
                own[group] = value
            else:
                problems.append(
                    Problem(
                        words.typed.get(place, place),
                        "belongs to the run and can't be changed here",
                    )
                )
    try:
        settings = fill(schema, own, "", owner="this command")
    except SettingsError as error:
        raise SettingsError(*error.problems, *problems) from None
    if problems:
        raise SettingsError(*problems)
    return settings, changes
