"""Decode a split of a run's data and score the outputs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pydantic import Field

from seqtrans.reuse import EnsembleSettings, read_command


class EvaluateSettings(EnsembleSettings):
    """What ``seqtrans evaluate`` can be told."""

    split: str = Field("dev", description="which split of the run's data: train, dev or test")
    output: Path | None = Field(
        None, description="write the outputs here, one a line, in the order of the data"
    )
    report: Path | None = Field(None, description="write the score and all figures here, as JSON")


def main(argv: list[str]) -> int:
    """Decode a split of a run's data and score it.

    usage: seqtrans evaluate run=FOLDER[,FOLDER …] [split=dev] [step=best[,STEP …]]
                             [mean=probabilities|logarithms] [output=FILE] [report=FILE]
                             [device=DEVICE] [precision=fp32|bf16|int8] [tokens=N]
                             [decoder=NAME] [decoder.KEY=value …] [task.KEY=value …]

    The decoder is the run's own unless another is named; its settings, and those of the task that
    do not change what was learnt from, such as the files to be scored on, go over the run's.
    Several runs, each at every step that is given, decode as one by their mean; all but the weights
    is then the first run's. Outputs in a file are scored by seqtrans compare.

    example: seqtrans evaluate run=runs/parsing split=test decoder=beam decoder.width=8
    example: seqtrans evaluate run=runs/mine split=test task.test_source=a.en task.test_target=a.de
    """
    settings, changes = read_command(argv, EvaluateSettings)
    import json

    from seqtrans.files import write_whole
    from seqtrans.reporting import counting

    engine = settings.load(changes)
    total = len(engine.task.examples(settings.split))
    began = time.monotonic()
    with counting(f"decoding {settings.split}", total) as bar:
        evaluation = engine.evaluate(
            settings.split, progress=lambda n: bar.advance(bar.task_ids[0], n)
        )
    seconds = time.monotonic() - began
    score = evaluation.score
    print(score.report, end="" if score.report.endswith("\n") else "\n")
    print(
        f"{settings.split}: {score.metric} {score.value:.2f}  [{score.signature}]  {total} "
        f"examples, "
        f"{' + '.join(map(str, engine.members))}, decoder {engine.config.names['decoder']}, "
        f"{'' if settings.precision == 'fp32' else f'precision {settings.precision}, '}"
        f"{seconds:.1f} s"
    )
    cut = sum(h.truncated for h in evaluation.hypotheses)
    if cut:
        print(f"{cut} outputs ran into the length limit.", file=sys.stderr)
    if settings.output is not None:
        lines = "".join(engine.task.write(output) + "\n" for output in evaluation.outputs)
        write_whole(settings.output, lines)
    if settings.report is not None:
        name, fingerprint = engine.task.data(settings.split)
        content = {
            "task": engine.config.names["task"],
            "data": name,
            "fingerprint": fingerprint,
            "split": settings.split,
            "step": " + ".join(path.name for path in engine.members),
            "decoder": engine.config.names["decoder"],
            "precision": settings.precision,
            "metric": score.metric,
            "value": score.value,
            "signature": score.signature,
            "figures": score.figures,
        }
        write_whole(settings.report, json.dumps(content, indent=1))
    return 0


if __name__ == "__main__":
    from seqtrans.commands import run

    sys.exit(run(main, sys.argv[1:]))
