"""From a finished run to a row: decode a split, score it, and write down what and how."""

from __future__ import annotations

import time
from collections.abc import Mapping
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
from seqtrans.resolving import Config, from_json
from seqtrans.reuse import UseSettings, read_command


class RecordSettings(Folder, UseSettings):
    """What ``python -m benchmarks record`` can be told."""

    split: str = Field("test", description="which split of the run's data: test or dev")
    recipe: str | None = Field(
        None, min_length=1, description="what the row is called; none: as the run folder"
    )
    replace: bool = Field(False, description="whether a row of that name may be overwritten")


def main(argv: list[str]) -> int:
    """Decode a split with a finished run, score it, and write the result as a row.

    usage: python -m benchmarks record run=FOLDER [split=test] [step=best] [recipe=NAME]
                                       [replace=true] [results=FOLDER]
                                       [decoder=NAME] [decoder.KEY=value …] [task.KEY=value …]

    The row is RESULTS/DATA-RECIPE-SEED.json, the hypotheses are beside it in a .txt.gz. Record on
    the machine that trained: the row says which one it was. Paths in it begin with $SEQTRANS_DATA,
    the data folder, or are relative to the repository.

    example: python -m benchmarks record run=runs/brackets split=test decoder.width=8
    """
    settings, changes = read_command(argv, RecordSettings)
    if settings.split == "train":
        raise SettingsError("split=train: results are recorded for data that was not trained on.")
    from seqtrans import checkpoint
    from seqtrans.engine import load
    from seqtrans.files import read_json
    from seqtrans.reporting import counting

    folder = settings.run.resolve()
    engine = load(folder, settings.step, settings.device, changes, settings.tokens)
    task, config = engine.task, engine.config
    data, fingerprint = task.data(settings.split)
    recipe = settings.recipe or folder.name
    name = file_name(data, recipe, config.run.seed, settings.split)
    path = settings.results / name
    if path.exists() and not settings.replace:
        raise SettingsError(
            f"{path} is there already; give replace=true to overwrite it, or another recipe=NAME."
        )
    # What was typed for the training is in the run's config as it is, without the changes.
    trained = from_json(read_json(folder / "config.json"), engine.registry, folder / "config.json")
    row_settings = portable_settings(config, folder)
    training, updates, seconds = cost(folder, engine.weights, settings.step)

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
        parameters=sum(parameter.numel() for parameter in engine.model.parameters()),
        step=settings.step,
        updates=updates,
        training=training,
        seconds=Seconds(training=seconds, decoding=round(decoding, 2)),
        command=Command(
            training=training_command(
                portable_settings(trained, folder),
                engine.registry,
                training.processes,
                training.precision,
            ),
            evaluation=evaluation_command(
                portable_run(folder),
                settings.split,
                settings.step,
                portable_changes(changes.tree, row_settings),
                checkpoint.averaged(folder) if settings.step == "average" else (),
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
