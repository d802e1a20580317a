"""Constituency scores equal to EVALB's (Sekine and Collins, the release with the F-measure).

EVALB leaves sentences out of its totals where the words of the two trees differ or the parser gave
none, so a parser can gain by failing. Here its totals stand beside totals over all sentences, in
which a failure counts as wrong. ``python -m seqtrans_tasks.parsing.evalb GOLD TEST`` scores files.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import seqtrans
from seqtrans.errors import DataError, SeqtransError
from seqtrans_tasks.parsing.parameters import COLLINS, Parameters, lines_of, parameters_named
from seqtrans_tasks.parsing.sentence import (
    Roots,
    SentenceScore,
    Status,
    counted,
    percent,
    score_sentence,
)
from seqtrans_tasks.parsing.tree import Leaf, Node, Tree


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over sentences, and the shares in percent that they give."""

    sentences: int
    errors: int
    skipped: int
    valid: int
    matched: int
    gold_brackets: int
    test_brackets: int
    crossing: int
    words: int
    correct_tags: int
    recall: float
    precision: float
    f1: float
    complete_match: float
    average_crossing: float
    """Test brackets in a valid sentence that cross a gold bracket."""
    no_crossing: float
    two_or_less_crossing: float
    tagging_accuracy: float


@dataclass(frozen=True, kw_only=True)
class LabelScore:
    """The brackets of one label over all sentences; shares in percent."""

    gold: int
    test: int
    matched: int

    @property
    def recall(self) -> float:
        return percent(self.matched, self.gold, empty=math.nan)

    @property
    def precision(self) -> float:
        return percent(self.matched, self.test, empty=math.nan)

    @property
    def f1(self) -> float:
        return percent(2 * self.matched, self.gold + self.test, empty=math.nan)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The scores of a corpus, over all sentences and as EVALB gives them, all and short ones."""

    parameters: Parameters
    sentences: tuple[SentenceScore, ...] = field(repr=False)
    overall: Totals
    """Over all sentences: of one in error or skipped, every gold bracket counts as missed, every
    test bracket and tag as wrong, and it is neither a complete match nor without crossing; the
    average crossing is still over valid sentences. A share of nothing is nan.
    """
    evalb: Totals
    """EVALB's own: sentences in error or skipped are left out. A share of nothing is 0, F1 is nan
    if recall and precision are 0, as EVALB prints them.
    """
    overall_short: Totals
    """As ``overall``, over sentences of no greater length than the cutoff."""
    evalb_short: Totals
    labels: Mapping[str, LabelScore] = field(repr=False)
    """By label as it counts (``ADVP=PRT`` for equivalents), most frequent in gold first."""

    @property
    def signature(self) -> str:
        """What was measured and how: to be quoted beside a score."""
        kind = "labelled" if self.parameters.labelled else "unlabelled"
        return (
            f"{kind}-F1|parameters:{self.parameters.name}|sentences:{self.overall.sentences}"
            f"|skipped:{self.overall.skipped}|errors:{self.overall.errors}"
            f"|seqtrans:{seqtrans.__version__}"
        )

    def as_dict(self) -> dict[str, Any]:
        """All numbers but those of single sentences, ready for JSON: nan is given as ``None``."""
        result: dict[str, Any] = {
            "signature": self.signature,
            "parameters": self.parameters.name,
            "labelled": self.parameters.labelled,
            "cutoff": self.parameters.cutoff,
        }
        for kind in ("overall", "evalb", "overall_short", "evalb_short"):
            totals = dataclasses.asdict(getattr(self, kind))
            result[kind] = {name: _or_none(value) for name, value in totals.items()}
        result["labels"] = {
            label: {
                "gold": found.gold,
                "test": found.test,
                "matched": found.matched,
                "recall": _or_none(found.recall),
                "precision": _or_none(found.precision),
                "f1": _or_none(found.f1),
            }
            for label, found in self.labels.items()
        }
        return result

    def text(self) -> str:
        """The totals side by side and the table of labels, to be read by people."""
        kinds = (self.overall, self.evalb, self.overall_short, self.evalb_short)
        short = f"<= {self.parameters.cutoff}"
        lines = [
            self.signature,
            "",
            f"{'':<24}{'all lengths':>14}{'':>14}{'length ' + short:>14}",
            f"{'':<24}" + f"{'overall':>14}{'EVALB':>14}" * 2,
        ]
        for name, caption in _CAPTIONS.items():
            values = (getattr(totals, name) for totals in kinds)
            lines.append(f"{caption:<24}" + "".join(f"{_shown(value):>14}" for value in values))
        failed = self.overall.errors + self.overall.skipped
        lines += [
            "",
            f"{self.overall.errors} in error and {self.overall.skipped} skipped: overall counts "
            "them as wrong, EVALB leaves them out."
            if failed
            else "No sentence is in error or skipped, so overall and EVALB rest on the same ones.",
            "",
            f"{'label':<24}{'gold':>9}{'test':>9}{'matched':>9}{'recall':>11}{'precision':>11}"
            f"{'F1':>9}",
        ]
        for label, found in self.labels.items():
            lines.append(
                f"{label or '(empty)':<24}{found.gold:>9}{found.test:>9}{found.matched:>9}"
                f"{_shown(found.recall):>11}{_shown(found.precision):>11}{_shown(found.f1):>9}"
            )
        return "\n".join(lines) + "\n"

    def sentence_rows(self) -> str:
        """One row for each sentence in EVALB's columns, with the reason where one is not scored."""
        lines = [
            "  Sent.                        Matched  Bracket   Cross        Correct Tag",
            " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
            "=" * 76,
        ]
        for number, sentence in enumerate(self.sentences, start=1):
            length, status, recall, precision, matched, gold, test, crossing, words, tags, share = (
                sentence.columns()
            )
            lines.append(
                f"{number:4}  {length:3}    {status}  {recall:6.2f} {precision:6.2f}   {matched:3}"
                f"    {gold:3}  {test:3}    {crossing:3}   {words:4}  {tags:4}   {share:6.2f}"
                + (f"  {sentence.reason}" if sentence.reason else "")
            )
        return "\n".join([*lines, "=" * 76]) + "\n"


_CAPTIONS = {
    "sentences": "Sentences",
    "errors": "In error",
    "skipped": "Skipped",
    "valid": "Valid",
    "recall": "Bracketing recall",
    "precision": "Bracketing precision",
    "f1": "Bracketing F1",
    "complete_match": "Complete match",
    "average_crossing": "Average crossing",
    "no_crossing": "No crossing",
    "two_or_less_crossing": "2 or less crossing",
    "tagging_accuracy": "Tagging accuracy",
}


def score(
    golds: Iterable[Roots], tests: Iterable[Roots], parameters: Parameters = COLLINS
) -> Report:
    """The scores of a corpus; ``None`` among ``tests`` where the parser gave no tree.

    Raises `DataError` where the numbers of trees differ.
    """
    golds, tests = list(golds), list(tests)
    if len(golds) != len(tests):
        raise DataError(
            f"there are {counted(len(golds), 'gold tree')} but "
            f"{counted(len(tests), 'test tree')}; there must be one test tree, or None, for each "
            "gold tree."
        )
    pairs = zip(golds, tests, strict=True)
    sentences = tuple(score_sentence(gold, test, parameters) for gold, test in pairs)
    short = [sentence for sentence in sentences if sentence.length <= parameters.cutoff]
    return Report(
        parameters=parameters,
        sentences=sentences,
        overall=_totals(sentences, leave_out=False),
        evalb=_totals(sentences, leave_out=True),
        overall_short=_totals(short, leave_out=False),
        evalb_short=_totals(short, leave_out=True),
        labels=_label_scores(sentences),
    )


def _totals(sentences: Sequence[SentenceScore], *, leave_out: bool) -> Totals:
    """The totals, EVALB's own if failures are left out."""
    valid = [sentence for sentence in sentences if sentence.status is Status.OK]
    base = valid if leave_out else sentences
    agreeing = [s for s in base if s.status is Status.OK or s.exact]
    matched = sum(s.matched for s in base)
    gold = sum(s.gold_brackets for s in base)
    test = sum(s.test_brackets for s in base)
    words = sum(s.words for s in base)
    correct_tags = sum(s.correct_tags for s in base)
    crossing = sum(s.crossing for s in base)
    empty = 0.0 if leave_out else math.nan
    f1 = percent(2 * matched, gold + test, empty=math.nan)
    return Totals(
        sentences=len(sentences),
        errors=sum(s.status is Status.ERROR for s in sentences),
        skipped=sum(s.status is Status.SKIPPED for s in sentences),
        valid=len(valid),
        matched=matched,
        gold_brackets=gold,
        test_brackets=test,
        crossing=crossing,
        words=words,
        correct_tags=correct_tags,
        recall=percent(matched, gold, empty=empty),
        precision=percent(matched, test, empty=empty),
        f1=math.nan if leave_out and not matched else f1,
        complete_match=percent(sum(s.exact for s in base), len(base), empty=empty),
        average_crossing=crossing / len(valid) if valid else empty,
        no_crossing=percent(sum(s.crossing == 0 for s in agreeing), len(base), empty=empty),
        two_or_less_crossing=percent(
            sum(s.crossing <= 2 for s in agreeing), len(base), empty=empty
        ),
        tagging_accuracy=percent(correct_tags, words, empty=empty),
    )


def _label_scores(sentences: Sequence[SentenceScore]) -> dict[str, LabelScore]:
    gold, test, matched = Counter[str](), Counter[str](), Counter[str]()
    for sentence in sentences:
        gold.update(sentence.gold_labels)
        test.update(sentence.test_labels)
        matched.update(sentence.matched_labels)
    return {
        label: LabelScore(gold=gold[label], test=test[label], matched=matched[label])
        for label in sorted(gold | test, key=lambda label: (-gold[label], label))
    }


def score_files(
    gold_path: str | Path, test_path: str | Path, parameters: Parameters = COLLINS
) -> Report:
    """The scores of a file of test trees against one of gold trees, a tree a line (`read_line`).

    A blank test line stands for no tree. Raises `DataError` for a missing or empty file, for
    malformed brackets (with line and column), and where the numbers of lines differ.
    """
    golds, tests = _read_file(Path(gold_path)), _read_file(Path(test_path))
    if not golds:
        raise DataError(f"{gold_path}: the file is empty, but it must hold one gold tree a line.")
    if len(golds) != len(tests):
        raise DataError(
            f"{gold_path} has {counted(len(golds), 'line')} but {test_path} has {len(tests)}; "
            "there must be one line, blank if the parser gave no tree, for each gold tree."
        )
    return score(golds, tests, parameters)


def _read_file(path: Path) -> list[list[Node]]:
    lines = enumerate(lines_of(path), start=1)
    return [read_line(line, f"{path}, line {number}") for number, line in lines]


_SPACE, _ATOM = r"[ \t\n\r\v\f]", r"[^() \t\n\r\v\f]"
_BRACKETS = re.compile(
    rf"\({_SPACE}*+({_ATOM}++){_SPACE}++({_ATOM}++){_SPACE}*+(?=\))"  # a leaf but for its close
    rf"|\({_SPACE}*+({_ATOM}*+)|(\))|({_ATOM}++)"  # an opening, a closing, a word out of place
)


def read_line(line: str, where: str = "the line") -> list[Node]:
    """The trees on one line as EVALB reads them: none, one, or several side by side.

    More lenient than `seqtrans_tasks.parsing.tree.read_tree`, as parsers' output needs it: a
    bracket may be empty, such as ``()`` and ``(TOP)``. Raises `DataError`, with ``where`` and the
    column, for unbalanced brackets and for words that do not stand alone beside their tag.
    """
    roots: list[Node] = []
    here, around = roots, list[list[Node]]()
    openings: list[int] = []
    in_leaf = False
    for match in _BRACKETS.finditer(line):
        kind, column = match.lastindex, match.start() + 1
        if kind == 2:
            here.append(Leaf(sys.intern(match[1]), match[2]))
            in_leaf = True
        elif kind == 3:
            opened = Tree(sys.intern(match[3]), [])
            here.append(opened)
            around.append(here)
            openings.append(column)
            here = opened.children
        elif kind == 5:
            raise DataError(
                f"{where}, column {column}: the word {match[5]!r} does not stand alone beside its "
                "tag; write every word as (TAG word)."
            )
        elif in_leaf:
            in_leaf = False
        elif around:
            here = around.pop()
            openings.pop()
        else:
            raise DataError(f"{where}, column {column}: this bracket closes none that is open.")
    if openings:
        raise DataError(f"{where}, column {openings[-1]}: this bracket is never closed.")
    return roots


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _shown(value: float) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: prints the report, or one sentence on standard error and gives 1."""
    parser = argparse.ArgumentParser(
        prog="python -m seqtrans_tasks.parsing.evalb",
        description="Score parses against gold trees as EVALB does, and over all sentences.",
    )
    parser.add_argument("gold", help="gold trees, one a line")
    parser.add_argument("test", help="the parser's trees, one a line; blank: it gave none")
    parser.add_argument(
        "--parameters", default="COLLINS", help="COLLINS (the default), NEW, or a .prm file"
    )
    parser.add_argument("--sentences", action="store_true", help="print a row for each sentence")
    chosen = parser.parse_args(arguments)
    try:
        report = score_files(chosen.gold, chosen.test, parameters_named(chosen.parameters))
    except SeqtransError as error:
        print(error, file=sys.stderr)
        return 1
    if chosen.sentences:
        print(report.sentence_rows())
    print(report.text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
