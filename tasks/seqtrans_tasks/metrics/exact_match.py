"""Exact match and edit distance of word forms as a metric of ``evaluate``: local, no network.

``ExactMatch()`` here, or ``evaluate.load`` with the path of this file.
"""

from __future__ import annotations

# evaluate.load reads the imports line by line; `import datasets, evaluate` would not be understood.
from typing import Any

import datasets
import evaluate

from seqtrans_tasks.metrics.edits import count_edits

_DESCRIPTION = """\
The share of word forms that are exactly right, in percent, and the mean number of letters to be
inserted, deleted or substituted.
"""

_INPUTS = """\
predictions: word forms.
references: the right forms; for each either one, or the list of all that are right.
"""


class ExactMatch(evaluate.Metric):  # type: ignore[misc]  # evaluate has no types
    """``compute(predictions=["ging"], references=["ging"])``.

    Gives ``exact_match`` and ``edit_distance``, and the counts ``words``, ``wrong`` and ``edits``
    that they are made of.
    """

    def _info(self) -> Any:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=[
                datasets.Features(
                    {
                        "predictions": datasets.Value("string"),
                        "references": datasets.Sequence(datasets.Value("string")),
                    }
                ),
                datasets.Features(
                    {
                        "predictions": datasets.Value("string"),
                        "references": datasets.Value("string"),
                    }
                ),
            ],
        )

    def _compute(
        self, *, predictions: list[str], references: list[list[str]] | list[str]
    ) -> dict[str, float]:
        allowed = [[form] if isinstance(form, str) else form for form in references]
        edits = count_edits(predictions, allowed)
        return {
            "exact_match": edits.exact_match,
            "edit_distance": edits.mean_edit_distance,
            "words": edits.words,
            "wrong": edits.wrong,
            "edits": edits.edits,
        }
