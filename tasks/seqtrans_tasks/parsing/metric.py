"""Labelled F1 of constituency parses as a metric of the package ``evaluate``: local, no network.

``LabelledF1()`` here, or ``evaluate.load`` with the path of this file.
"""

from __future__ import annotations

# evaluate.load reads the imports line by line; `import datasets, evaluate` would not be understood.
from typing import Any

import datasets
import evaluate

from seqtrans_tasks.parsing.evalb import read_line, score
from seqtrans_tasks.parsing.parameters import parameters_named

_DESCRIPTION = """\
Labelled recall, precision and F1 of constituency trees, equal to EVALB's on the sentences that it
scores. Sentences without a tree, or with other words than the gold tree, count as wrong; the same
without them, as EVALB has it, stands under names that begin with evalb_.
"""

_INPUTS = """\
predictions: the parser's trees as bracketed strings, blank where it gave none.
references: the gold trees as bracketed strings.
parameters: COLLINS (the default), NEW, or the path of a .prm file.
"""


class LabelledF1(evaluate.Metric):  # type: ignore[misc]  # evaluate has no types
    """``compute(predictions=…, references=…, parameters="COLLINS")`` over bracketed strings.

    Gives the fields of `seqtrans_tasks.parsing.evalb.Totals` over all sentences, those of EVALB's
    own totals with ``evalb_`` before their names, and the ``signature``. Shares are in percent, nan
    where there is nothing to share. Raises `DataError` for malformed brackets.
    """

    def _info(self) -> Any:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features(
                {
                    "predictions": datasets.Value("string"),
                    "references": datasets.Value("string"),
                }
            ),
        )

    def _compute(
        self, *, predictions: list[str], references: list[str], parameters: str = "COLLINS"
    ) -> dict[str, float | str]:
        report = score(
            [read_line(text, f"reference {n}") for n, text in enumerate(references, start=1)],
            [read_line(text, f"prediction {n}") for n, text in enumerate(predictions, start=1)],
            parameters_named(parameters),
        )
        return {
            **vars(report.overall),
            **{f"evalb_{name}": value for name, value in vars(report.evalb).items()},
            "signature": report.signature,
        }
