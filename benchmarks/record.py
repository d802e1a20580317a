"""From a finished run to a row: decode a split, score it, and write down what and how."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks import machine
from benchmarks.commands import evaluation_command, training_command
from benchmarks.places import SIGN, local_path, path_keys, portable, portable_run, texts
from benchmarks.results import (
    FORMAT,
    Command,
    Data,
    Folder,
    Hypotheses,
    Row,
    Seconds,
    Training,
    file_name,
    hypotheses_name,
    packed,
    sha256,
    write_row,
)
from seqtrans.errors import SettingsError
from seqtrans.plugins import Registry
from seqtrans.resolving import Config, from_json
from seqtrans.reuse import DecodingSettings, read_command


class RecordSettings(Folder, DecodingSettings):
    """What ``python -m benchmarks record`` can be told."""

    run: tuple[Path, ...] = Field(
        min_length=1, description="the run folder, or several that decode together"
    )
    split: str = Field("test", description="which split of the run's data: test or dev")
    recipe: str | None = Field(
        None, min_length=1, description="what the row is called; none: as the run folder"
    )
    replace: bool = Field(False, description="whether a row of that name may be overwritten")


def main(argv: list[str]) -> int:
    """Decode a split with a finished run, score it, and write the result as a row.

    usage: python -m benchmarks record run=FOLDER[,FOLDER …] [split=test] [step=best] [recipe=NAME]
                                       [replace=true] [results=FOLDER]
                                       [decoder=NAME] [decoder.KEY=value …] [task.KEY=value …]

    Several runs decode as one; the row has the first one's settings and the cost of all. It is
    RESULTS/DATA-RECIPE-SEED.json, the hypotheses are beside it in a .txt.gz. Record on the machine
    that trained: the row says which one it was. Paths in it begin with $SEQTRANS_DATA, the data
    folder, or are relative to the repository.

    example: python -m benchmarks record run=runs/brackets split=test decoder.width=8
    """
    settings, changes = read_command(argv, RecordSettings)
    if settings.split == "train":
        raise SettingsError("split=train: results are recorded for data that was not trained on.")
    from seqtrans import checkpoint
    from seqtrans.engine import load
    from seqtrans.reporting import counting

    folders = [run.resolve() for run in settings.run]
    folder = folders[0]
    engine = load(folders, settings.step, settings.device, changes, settings.tokens)
    task, config = engine.task, engine.config
    data, fingerprint = task.data(settings.split)
    recipe = settings.recipe or folder.name
    name = file_name(data, recipe, config.run.seed, settings.split)
    path = settings.results / name
    if path.exists() and not settings.replace:
        raise SettingsError(
            f"{path} is there already; give replace=true to overwrite it, or another recipe=NAME."
        )
    row_settings = portable_settings(config, folder)
    costs = [
        cost(run, weights, settings.step)
        for run, weights in zip(folders, engine.members, strict=True)
    ]
    training, updates, seconds = total(costs)

    examples = task.examples(settings.split)
    began = time.monotonic()
    with counting(f"decoding {settings.split}", len(examples)) as bar:
        evaluation = engine.evaluate(
            settings.split, progress=lambda n: bar.advance(bar.task_ids[0], n)
        )
    decoding = time.monotonic() - began
    score = evaluation.score
    lines = [task.publish(output) for output in evaluation.outputs]
    row = Row(
        format=FORMAT,
        task=config.names["task"],
        data=Data(name=data, fingerprint=fingerprint),
        split=settings.split,
        recipe=recipe,
        seed=config.run.seed,
        metric=score.metric,
        better="higher" if task.maximise else "lower",
        value=score.value,
        signature=score.signature,
        figures=dict(score.figures),
        parameters=engine.parameters,
        step=settings.step,
        updates=updates,
        training=training,
        seconds=Seconds(training=seconds, decoding=round(decoding, 2)),
        command=Command(
            training=" && ".join(
                trained(run, made, engine.registry)
                for run, (made, _, _) in zip(folders, costs, strict=True)
            ),
            evaluation=evaluation_command(
                {
                    portable_run(run): checkpoint.averaged(run)
                    if settings.step == "average"
                    else ()
                    for run in folders
                },
                settings.split,
                settings.step,
                portable_changes(changes.tree, row_settings),
            ),
        ),
        settings=row_settings,
        versions=machine.versions(config.as_json(engine.registry)["providers"]),
        hardware=machine.hardware(),
        hypotheses=Hypotheses(
            file=hypotheses_name(name), sha256=sha256(packed(lines)), lines=len(lines)
        ),
    )
    write_row(row, settings.results, lines)
    print(f"{path}: {row.split} {row.metric} {row.value:.2f}  [{row.signature}]")
    print(f"{path.with_name(row.hypotheses.file)}: {len(lines)} outputs, {decoding:.1f} s")
    for key, value in row.settings.items():
        for text in texts(value):
            if text.startswith(SIGN) and not Path(local_path(text)).exists():
                print(
                    f"{key} is recorded as {text}: put the data, or a link to it, there to verify."
                )
    print("python -m benchmarks board puts it in the tables.")
    return 0


def trained(run: Path, made: Training, registry: Registry) -> str:
    """What was typed for a training: it is in the run's config as it is, without changes."""
    from seqtrans.files import read_json

    config = from_json(read_json(run / "config.json"), registry, run / "config.json")
    settings = portable_settings(config, run)
    return training_command(settings, registry, made.processes, made.precision)


def total(costs: Sequence[tuple[Training, int, float]]) -> tuple[Training, int, float]:
    """The cost of several trainings, on processes like the first one's."""
    whole, updates, seconds = zip(*costs, strict=True)
    everything = whole[0].model_copy(
        update={
            "updates": sum(training.updates for training in whole),
            "seconds": round(sum(training.seconds for training in whole), 2),
        }
    )
    return everything, sum(updates), round(sum(seconds), 2)


def cost(run: Path, weights: Path, step: str) -> tuple[Training, int, float]:
    """What the whole training took, and the update and the seconds up to the checkpoint.

    An average counts as the newest checkpoint in it.
    """
    from seqtrans import checkpoint

    made = checkpoint.read_progress(checkpoint.choose(run, "last"))
    if step == "average":
        weights = checkpoint.step_folder(run, checkpoint.averaged(run)[-1])
    used = checkpoint.read_progress(weights)
    whole = Training(
        updates=made.step,
        seconds=round(made.seconds, 2),
        processes=made.processes,
        threads=made.threads,
        precision=made.precision,
    )
    return whole, used.step, round(used.seconds, 2)


def portable_settings(config: Config, run: Path) -> dict[str, Any]:
    """Every setting, with paths that mean the same on another machine."""
    flat = config.flat()
    for group, schema in config.settings.items():
        if group == "run":
            continue
        values = {key: flat[f"{group}.{key}"] for key in type(schema).model_fields}
        keys = path_keys(type(schema), values)
        there = portable(values, keys, group)
        flat.update({f"{group}.{key}": there[key] for key in keys})
    if flat["run.folder"] is not None:
        flat["run.folder"] = portable_run(run)
    return flat


def portable_changes(
    changes: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """What was changed of the run's settings, with the values of the row where these are paths."""
    return {
        group: {
            key: settings[f"{group}.{key}"] if "/" in str(settings.get(f"{group}.{key}")) else value
            for key, value in values.items()
        }
        for group, values in changes.items()
    }
