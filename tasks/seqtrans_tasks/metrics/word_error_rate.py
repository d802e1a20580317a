"""WER and PER of pronunciations as a metric of the package ``evaluate``: local, no network.

``WordErrorRate()`` here, or ``evaluate.load`` with the path of this file.
"""

from __future__ import annotations

# evaluate.load reads the imports line by line; `import datasets, evaluate` would not be understood.
from typing import Any

import datasets
import evaluate

from seqtrans_tasks.metrics.edits import count_edits

_DESCRIPTION = """\
Word error rate of pronunciations, the share of words that are not exactly one of their references,
and phone error rate, edits over the phones of the nearest references; both in percent.
"""

_INPUTS = """\
predictions: pronunciations, phones separated by blanks.
references: for each word the list of all pronunciations that are right, written in the same way.
"""


class WordErrorRate(evaluate.Metric):  # type: ignore[misc]  # evaluate has no types
    """``compute(predictions=["h ə l oʊ"], references=[["h ə l oʊ", "h ɛ l oʊ"]])``.

    Gives ``word_error_rate``, ``phone_error_rate``, and the counts ``words``, ``wrong``, ``edits``
    and ``phones`` that they are made of.
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
        allowed = [[line] if isinstance(line, str) else line for line in references]
        edits = count_edits(
            [line.split() for line in predictions],
            [[line.split() for line in lines] for lines in allowed],
        )
        return {
            "word_error_rate": edits.word_error_rate,
            "phone_error_rate": edits.phone_error_rate,
            "words": edits.words,
            "wrong": edits.wrong,
            "edits": edits.edits,
            "phones": edits.symbols,
        }
