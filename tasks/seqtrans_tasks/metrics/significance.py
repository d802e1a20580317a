"""Whether one system is better than another, or a second draw of sentences would say otherwise.

Paired bootstrap (Koehn, 2004) and approximate randomisation (Riezler and Maxwell, 2005), both
through sacreBLEU's ``PairedTest``. The first of the systems is the baseline of all others. A draw
that differs by exactly as much as the systems do speaks for chance, as it must where scores are
counts of words: sacreBLEU leaves it out, by which equal systems differ significantly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sacrebleu import significance as library
from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.base import Score as LibraryScore
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from seqtrans.errors import DataError
from seqtrans.task import Comparison
from seqtrans_tasks.metrics import guards
from seqtrans_tasks.metrics.bleu import Preparation, multi_bleu, opaque
from seqtrans_tasks.metrics.edits import Edits, Symbols, check_words, count_word

TESTS: tuple[tuple[Literal["bs", "ar"], str], ...] = (
    ("bs", "bootstrap"),
    ("ar", "randomisation"),
)
"""sacreBLEU's names of the tests, and ours."""


def compare_text(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    sources: Sequence[str] | None = None,
    plain: bool = True,
    tokenised: Sequence[Preparation] = (),
    lowercase: bool = False,
    with_ter: bool = True,
    by: Literal["bleu", "chrf"] = "bleu",
    trials: int = 0,
) -> Comparison:
    """Systems by BLEU, chrF and TER, and by tokenised BLEU after each of the preparations.

    Args:
        systems: the lines of each system by its name, the baseline first.
        references: sets of lines, each as many as a system has.
        sources, plain, tokenised, lowercase, with_ter, by: as in `scores.text_score`.
        trials: of each test; 0 is 1,000 of the bootstrap and 10,000 randomisations.

    Raises:
        DataError: fewer than two systems; unequal numbers of lines.
    """
    check_names(systems)
    told = []
    for name, lines in systems.items():
        try:
            guards.check_lines(lines, references)
        except DataError as error:
            raise DataError(f"{name}: {error}") from None
        told += [f"{name}: {text}" for text in guards.doubts(lines, references, sources)]
    metrics: list[Metric] = []
    if plain:
        metrics = [BLEU(lowercase=lowercase, force=True), CHRF()]
        if by == "chrf":
            metrics.reverse()
        metrics += [TER()] if with_ter else []
    results = [paired(metric, systems, references, trials) for metric in metrics]
    for preparation in tokenised:
        prepared = {
            name: opaque(preparation.outputs(lines), lowercase) for name, lines in systems.items()
        }
        right = [opaque(preparation.references(lines), lowercase) for lines in references]
        result = paired(multi_bleu(preparation, lowercase), prepared, right, trials)
        results.append({**result, "name": preparation.name})
    return comparison(results, told)


def compare_words(
    systems: Mapping[str, Sequence[Symbols]],
    references: Sequence[Sequence[Symbols]],
    measures: Sequence[str] = ("WER", "PER"),
    *,
    trials: int = 0,
) -> Comparison:
    """Systems by what `MEASURES` has, over words of phones or letters.

    ``references[i]`` is all that output ``i`` may be. Raises ``DataError`` for fewer than two
    systems, unequal numbers, or a word without a reference.
    """
    check_names(systems)
    for name, outputs in systems.items():
        try:
            check_words(outputs, references)
        except DataError as error:
            raise DataError(f"{name}: {error}") from None
    if not references:
        raise DataError("there are no words to compare.")
    # sacreBLEU has sets of references: a word with fewer of them has None in the later ones.
    sets = list(itertools.zip_longest(*references))
    results = [paired(WordMetric(measure), systems, sets, trials) for measure in measures]
    return comparison(results, [])


MEASURES: Mapping[str, str] = {
    "WER": "word_error_rate",
    "PER": "phone_error_rate",
    "exact match": "exact_match",
    "edit distance": "mean_edit_distance",
}
"""What `WordMetric` can measure, and the rate of `Edits` that it is."""


class WordMetric(Metric):
    """One rate of `Edits` as sacreBLEU has metrics."""

    _SIGNATURE_TYPE = Signature

    def __init__(self, measure: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.measure = measure

    def _preprocess_segment(self, sent: Any) -> Any:
        return sent

    def _extract_reference_info(self, refs: Sequence[Any]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: Any, ref_kwargs: dict[str, Any]) -> list[int]:
        edits = count_word(hypothesis, ref_kwargs["references"])
        return [edits.words, edits.wrong, edits.edits, edits.symbols]

    def _compute_score_from_stats(self, stats: Any) -> LibraryScore:
        words, wrong, edits, symbols = (round(float(count)) for count in stats)
        rate = getattr(Edits(words, wrong, edits, symbols), MEASURES[self.measure])
        return LibraryScore(self.measure, rate)

    def _aggregate_and_compute(self, stats: Any) -> LibraryScore:
        return self._compute_score_from_stats(np.sum(stats, axis=0))


class Counted:
    """What ``PairedTest`` asks of a metric, with each system counted once for both tests: for TER
    that is most of the time.
    """

    def __init__(self, metric: Any) -> None:
        self.metric = metric
        self.counts: dict[int, Any] = {}

    def _extract_corpus_statistics(self, hypotheses: Any, references: Any) -> Any:
        if id(hypotheses) not in self.counts:
            self.counts[id(hypotheses)] = self.metric._extract_corpus_statistics(
                hypotheses, references
            )
        return self.counts[id(hypotheses)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.metric, name)


def paired(
    metric: Any, systems: Mapping[str, Sequence[Any]], references: Sequence[Any], trials: int
) -> dict[str, Any]:
    """Both tests of all systems against the first, by one metric."""
    counted = Counted(metric)
    listed = list(systems.items())
    name = ""
    signatures: dict[str, str] = {}
    rows: dict[str, dict[str, Any]] = {name: {} for name in systems}
    for kind, test in TESTS:
        run = PairedTest(listed, {"": counted}, references, kind, trials)  # type: ignore[dict-item]
        with counting_ties():
            found, scores = run()
        ((name, signature),) = found.items()
        signatures[test] = str(signature)
        for system, result in zip(systems, scores[name], strict=True):
            row = rows[system]
            row["value"] = float(result.score)  # type: ignore[union-attr]
            if kind == "bs":
                row["bootstrap mean"] = float(result.mean)  # type: ignore[union-attr, arg-type]
                row["bootstrap interval"] = float(result.ci)  # type: ignore[union-attr, arg-type]
            if result.p_value is not None:  # type: ignore[union-attr]
                row[f"p, {test}"] = float(result.p_value)  # type: ignore[union-attr]
    return {"name": name, "signatures": signatures, "systems": rows}


@contextmanager
def counting_ties() -> Iterator[None]:
    """Let sacreBLEU's tests count draws that are as far apart as the systems, or farther."""
    before = library._compute_p_value
    library._compute_p_value = share_as_far
    try:
        yield
    finally:
        library._compute_p_value = before


def share_as_far(stats: NDArray[Any], real_difference: float) -> float:
    """(c + 1) / (n + 1), where c of n ``stats`` of draws are ``real_difference`` or more."""
    return float((np.sum(stats >= real_difference - 1e-9) + 1) / (len(stats) + 1))


def check_names(systems: Mapping[str, Sequence[Any]]) -> None:
    if len(systems) < 2:
        raise DataError(f"a comparison is between two systems or more, not {len(systems)}.")


def comparison(results: Sequence[dict[str, Any]], told: Sequence[str]) -> Comparison:
    """All measures, the first of which decides."""
    figures = {
        "baseline": next(iter(results[0]["systems"])),
        "measures": {
            result["name"]: {"signatures": result["signatures"], "systems": result["systems"]}
            for result in results
        },
        "warnings": list(told),
    }
    tables = [table(result) for result in results]
    return Comparison(
        results[0]["name"], figures, "\n\n".join([*tables, *(f"warning: {text}" for text in told)])
    )


def table(result: Mapping[str, Any]) -> str:
    """One measure of all systems for people: the difference to the baseline, and the probability
    of one as large by chance.
    """
    head = (result["name"], "value", "difference", "bootstrap, 95%", "p, bootstrap", "p, random.")
    body = []
    base = None
    for system, row in result["systems"].items():
        interval = f"{row['bootstrap mean']:.2f} ± {row['bootstrap interval']:.2f}"
        if base is None:
            base = row["value"]
            body.append((system, f"{base:.2f}", "baseline", interval, "", ""))
        else:
            body.append(
                (
                    system,
                    f"{row['value']:.2f}",
                    f"{row['value'] - base:+.2f}",
                    interval,
                    *(f"{row[f'p, {test}']:.4f}" for _, test in TESTS),
                )
            )
    widths = [max(len(row[n]) for row in [head, *body]) for n in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [head, *body]
    ]
    lines += [f"  {test}: {signature}" for test, signature in result["signatures"].items()]
    return "\n".join(lines)
