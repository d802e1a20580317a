"""Scores of text, of words of phones and of word forms, as a task's ``score`` returns them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Literal

from seqtrans.task import Score
from seqtrans_tasks.metrics import guards
from seqtrans_tasks.metrics.bleu import Bleu, Preparation, Value, bleu, chrf, ter, tokenised_bleu
from seqtrans_tasks.metrics.edits import Edits, Symbols, count_edits


def text_score(
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    sources: Sequence[str] | None = None,
    tokenised: Sequence[Preparation] = (),
    lowercase: bool = False,
    with_ter: bool = True,
    by: Literal["bleu", "chrf"] = "bleu",
    plain: bool = True,
) -> Score:
    """BLEU by sacreBLEU's defaults, with chrF, TER and tokenised BLEU beside it, each by its name.

    What is likely to be a mistake is a warning in the figures and in the report. It is no error: a
    model may learn to write what only looks like a sub-word mark, or the right text may have it.

    Args:
        outputs: lines of text.
        references: sets of lines, each as many as there are outputs.
        sources: the inputs, if what is given may have been confused.
        tokenised: for each of them tokenised BLEU after that preparation.
        lowercase: take BLEU and tokenised BLEU without regard to case.
        with_ter: TER takes some seconds for a thousand lines, several times the rest.
        by: which of them is the score.
        plain: whether the text is plain; else tokenised BLEU alone is taken.

    Raises:
        DataError: unequal numbers of lines.
    """
    guards.check_lines(outputs, references)
    values: list[Value] = []
    if plain:
        values = [bleu(outputs, references, lowercase=lowercase), chrf(outputs, references)]
        if by == "chrf":
            values.reverse()
        if with_ter:
            values.append(ter(outputs, references))
    values += [
        tokenised_bleu(outputs, references, preparation, lowercase=lowercase)
        for preparation in tokenised
    ]
    main = values[0]
    warnings = guards.doubts(outputs, references, sources)
    figures: dict[str, Any] = {value.name: described(value) for value in values}
    figures["lines"] = len(outputs)
    figures["blank outputs"] = sum(not line.strip() for line in outputs)
    figures["warnings"] = warnings
    report = [value.line for value in values] + [f"warning: {text}" for text in warnings]
    return Score(main.name, main.value, main.signature, figures, "\n".join(report))


def described(value: Value) -> dict[str, Any]:
    """A value for JSON, with all it is made of."""
    parts: dict[str, Any] = {"value": value.value, "signature": value.signature}
    if isinstance(value, Bleu):
        parts |= {
            "precisions": list(value.precisions),
            "brevity penalty": value.brevity_penalty,
            "output length": value.output_length,
            "reference length": value.reference_length,
        }
    return parts


def phone_score(
    outputs: Sequence[Symbols],
    references: Sequence[Sequence[Symbols]],
    groups: Sequence[str] | None = None,
) -> Score:
    """WER, with PER beside it: ``references[i]`` is every pronunciation that output ``i`` may be.

    A word is a sequence of phones. Less is better. With ``groups``, the language of each word, the
    rates of every language stand beside those of all words, and their means over the languages; a
    word whose language is blank counts among all words alone. Raises ``DataError`` for unequal
    numbers.
    """
    edits = count_edits(outputs, references)
    figures = figures_of(edits) | {"WER": edits.word_error_rate, "PER": edits.phone_error_rate}
    report = (
        f"WER = {edits.word_error_rate:.2f}  ({edits.wrong:,} of {edits.words:,} words)\n"
        f"PER = {edits.phone_error_rate:.2f}  ({edits.edits:,} edits, {edits.symbols:,} phones)"
    )
    if groups is not None:
        names = sorted({*groups} - {""})
        rates = {group: rates_of(outputs, references, groups, group) for group in names}
        means = {name: fmean(rate[name] for rate in rates.values()) for name in ("WER", "PER")}
        figures |= {"groups": rates, "means": means}
        report += "".join(
            f"\n  {group:<12}  WER = {rate['WER']:.2f}  PER = {rate['PER']:.2f}"
            for group, rate in {**rates, "mean": means}.items()
        )
    return Score("WER", edits.word_error_rate, NEAREST, figures, report)


def rates_of(
    outputs: Sequence[Symbols],
    references: Sequence[Sequence[Symbols]],
    groups: Sequence[str],
    group: str,
) -> dict[str, float]:
    """WER and PER of the words of one group."""
    places = [place for place, other in enumerate(groups) if other == group]
    edits = count_edits([outputs[p] for p in places], [references[p] for p in places])
    return {"WER": edits.word_error_rate, "PER": edits.phone_error_rate}


def form_score(outputs: Sequence[Symbols], references: Sequence[Sequence[Symbols]]) -> Score:
    """Exact match, with the mean edit distance beside it: ``references[i]`` is every right form.

    Raises ``DataError`` for unequal numbers.
    """
    edits = count_edits(outputs, references)
    figures = figures_of(edits) | {
        "exact match": edits.exact_match,
        "edit distance": edits.mean_edit_distance,
    }
    report = (
        f"exact match = {edits.exact_match:.2f}  "
        f"({edits.words - edits.wrong:,} of {edits.words:,} forms)\n"
        f"edit distance = {edits.mean_edit_distance:.3f}  ({edits.edits:,} edits)"
    )
    return Score("exact match", edits.exact_match, NEAREST, figures, report)


NEAREST = "corpus counts|nearest of the references"


def figures_of(edits: Edits) -> dict[str, Any]:
    """The counts, for JSON."""
    return {
        "words": edits.words,
        "wrong": edits.wrong,
        "edits": edits.edits,
        "symbols": edits.symbols,
    }
