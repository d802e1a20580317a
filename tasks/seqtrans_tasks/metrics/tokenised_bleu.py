"""BLEU over tokens, the Transformer paper's kind, as a metric of ``evaluate``: local, no network.

``TokenisedBleu()`` here, or ``evaluate.load`` with the path of this file.
"""

from __future__ import annotations

# evaluate.load reads the imports line by line; `import datasets, evaluate` would not be understood.
from typing import Any

import datasets
import evaluate

from seqtrans.errors import DataError
from seqtrans_tasks.metrics.bleu import Preparation, tokenised_bleu

_DESCRIPTION = """\
BLEU as multi-bleu.perl computes it, over tokens between ASCII white space and without smoothing,
after an optional Moses tokenizer and splitting of compounds. Not comparable with sacreBLEU's.
"""

_INPUTS = """\
predictions: lines, tokenised already unless language is given.
references: one line for each, or a list of lines for each, as many for all.
language: tokenise both sides with Moses's rules for it, as in "de".
compounds: split compounds at their hyphens, as for the paper's English-German figures.
lowercase: without regard to the case of ASCII letters.
"""


class TokenisedBleu(evaluate.Metric):  # type: ignore[misc]  # evaluate has no types
    """``compute(predictions=…, references=…, language="de", compounds=True)``.

    Gives ``bleu``, the ``name`` that says what was done to the text, ``precisions``,
    ``brevity_penalty``, ``output_length``, ``reference_length`` and the ``signature``.
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
        self,
        *,
        predictions: list[str],
        references: list[list[str]] | list[str],
        language: str | None = None,
        compounds: bool = False,
        lowercase: bool = False,
    ) -> dict[str, Any]:
        allowed = [[line] if isinstance(line, str) else line for line in references]
        if len(numbers := {len(lines) for lines in allowed}) > 1:
            raise DataError(
                f"each line needs as many references as all others; here lines have "
                f"{min(numbers)} to {max(numbers)}."
            )
        found = tokenised_bleu(
            predictions,
            [list(lines) for lines in zip(*allowed, strict=True)],
            Preparation(language, compounds),
            lowercase=lowercase,
        )
        return {
            "bleu": found.value,
            "name": found.name,
            "precisions": list(found.precisions),
            "brevity_penalty": found.brevity_penalty,
            "output_length": found.output_length,
            "reference_length": found.reference_length,
            "signature": found.signature,
        }
