"""Average the newest checkpoints of a run (section 6.1)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import Field, model_validator

from seqtrans.settings import Settings


class AverageSettings(Settings):
    """What ``seqtrans average`` can be told."""

    run: Path = Field(description="the run folder")
    last: int | None = Field(None, ge=1, description="average so many of the newest checkpoints")
    minutes: float | None = Field(
        None,
        gt=0,
        description="average the checkpoints written in the last so many minutes of training",
    )
    until: int | None = Field(
        None,
        ge=1,
        description="leave out checkpoints after this update; none: the newest is the last",
    )

    @model_validator(mode="after")
    def _one(self) -> AverageSettings:
        if (self.last is None) == (self.minutes is None):
            raise ValueError("give either last=N checkpoints or minutes=M")
        return self


def main(argv: list[str]) -> int:
    """Average the newest checkpoints of a run, into run=FOLDER/average.

    usage: seqtrans average run=FOLDER last=N|minutes=M [until=STEP]

    The paper averages the last 5 checkpoints (base) or 20 (big), written every 10 minutes. The
    average is used as step=average.

    example: seqtrans average run=runs/parsing last=5
    """
    from seqtrans.reuse import read_command

    settings, _ = read_command(argv, AverageSettings)
    from seqtrans import checkpoint
    from seqtrans.errors import CheckpointError
    from seqtrans.files import whole_folder

    steps = checkpoint.steps(settings.run)
    kept = checkpoint.kept(settings.run) if steps else 0
    # The best, which may be much older, is kept besides the newest.
    steps = [s for s in steps[-kept:] if settings.until is None or s <= settings.until]
    if not steps:
        raise CheckpointError(f"{settings.run} holds no checkpoint to average.")
    if settings.last is not None:
        if len(steps) < settings.last:
            few = f"{len(steps)} checkpoint{'' if len(steps) == 1 else 's'}"
            until = "" if settings.until is None else f" up to update {settings.until}"
            raise CheckpointError(
                f"{settings.run} holds {few}{until}, not {settings.last}; "
                "train with a larger training.keep, or average fewer."
            )
        chosen = steps[-settings.last :]
    else:
        assert settings.minutes is not None
        seconds = {
            step: checkpoint.read_progress(checkpoint.step_folder(settings.run, step)).seconds
            for step in steps
        }
        chosen = [s for s in steps if seconds[steps[-1]] - seconds[s] <= 60 * settings.minutes]
        if chosen == steps and len(steps) == kept:
            print(
                f"seqtrans: warning: the {kept} checkpoints that are kept (training.keep) reach "
                f"back {(seconds[steps[-1]] - seconds[steps[0]]) / 60:.1f} minutes only.",
                file=sys.stderr,
            )
    folders = [checkpoint.choose(settings.run, step) for step in chosen]
    weights = checkpoint.mean(folders)
    with whole_folder(settings.run / "average") as temporary:
        checkpoint.save_weights(temporary, weights)
        (temporary / checkpoint.AVERAGED).write_text(json.dumps(chosen), encoding="utf-8")
    print(f"averaged the checkpoints of updates {', '.join(map(str, chosen))}: step=average")
    return 0


if __name__ == "__main__":
    from seqtrans.commands import run

    sys.exit(run(main, sys.argv[1:]))
