"""Edits against a plain twin, what the guards say, scores side by side, and significance."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from seqtrans.errors import DataError
from seqtrans_tasks import metrics
from seqtrans_tasks.metrics import guards
from seqtrans_tasks.metrics.bleu import AS_GIVEN, PAPER_EN_DE
from seqtrans_tasks.metrics.edits import Edits, count_edits, levenshtein
from seqtrans_tasks.metrics.scores import form_score, phone_score, text_score
from seqtrans_tasks.metrics.significance import compare_text, compare_words

VERSION = sacrebleu.__version__

phones = st.lists(st.sampled_from("abcd"), max_size=12)


def plain_levenshtein(first: Sequence[Any], second: Sequence[Any]) -> int:
    """The table of Wagner and Fischer (1974), row by row."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, start=1):
        above, row = row, [i]
        for j, b in enumerate(second, start=1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (a != b)))
    return row[-1]


@given(phones, phones)
def test_distance(first: list[str], second: list[str]) -> None:
    expected = plain_levenshtein(first, second)
    assert levenshtein(first, second) == levenshtein(second, first) == expected
    assert levenshtein("".join(first), "".join(second)) == expected


def test_a_long_distance() -> None:
    first, second = "kitten" * 50, "sitting" * 40
    assert levenshtein(first, second) == plain_levenshtein(first, second)


@given(st.lists(st.tuples(phones, st.lists(phones, min_size=1, max_size=3)), max_size=6))
def test_rates(rows: list[tuple[list[str], list[list[str]]]]) -> None:
    found = count_edits([output for output, _ in rows], [allowed for _, allowed in rows])
    wrong = sum(output not in allowed for output, allowed in rows)
    nearest = [
        min((plain_levenshtein(output, r), n) for n, r in enumerate(allowed))
        for output, allowed in rows
    ]
    edits = sum(distance for distance, _ in nearest)
    symbols = sum(len(allowed[n]) for (_, n), (_, allowed) in zip(nearest, rows, strict=True))
    assert found == Edits(len(rows), wrong, edits, symbols)
    assert found.word_error_rate == (100 * wrong / len(rows) if rows else 0)
    assert found.word_error_rate + found.exact_match == (100 if rows else 0)
    assert found.phone_error_rate == (100 * edits / symbols if symbols else 0)
    assert found.mean_edit_distance == (edits / len(rows) if rows else 0)


@pytest.mark.parametrize(
    ("outputs", "references", "message"),
    [
        (["a"], [], "there is 1 output, and references for 0 words: each needs the other."),
        (["a"], [[]], "word 1 needs a list of one or more references, not []."),
        (["a"], ["a"], "word 1 needs a list of one or more references, not 'a'."),
    ],
)
def test_words_without_references(outputs: Any, references: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        count_edits(outputs, references)


def test_scores_of_words() -> None:
    outputs = [["h", "ə", "l", "oʊ"], ["w", "ɜ", "l", "d"]]
    references = [[["h", "ɛ", "l", "oʊ"], ["h", "ə", "l", "oʊ"]], [["w", "ɜ", "ɹ", "l", "d"]]]
    score = phone_score(outputs, references)
    assert (score.metric, score.value) == ("WER", 50)
    assert score.figures["PER"] == pytest.approx(100 / 9)
    assert score.report == "WER = 50.00  (1 of 2 words)\nPER = 11.11  (1 edits, 9 phones)"
    score = form_score(["ging", "gehte"], [["ging"], ["ging"]])
    assert (score.metric, score.value) == ("exact match", 50)
    assert score.figures == {
        "words": 2,
        "wrong": 1,
        "edits": 4,
        "symbols": 8,
        "exact match": 50,
        "edit distance": 2,
    }
    assert score.report == ("exact match = 50.00  (1 of 2 forms)\nedit distance = 2.000  (4 edits)")


@pytest.mark.parametrize(
    ("outputs", "references", "message"),
    [
        (
            ["a", "b"],
            ["a", "b"],
            "the references are a list of sets, each a list with one line for each output; "
            "here a set is a single string.",
        ),
        (
            ["a", "b"],
            "ab",
            "the references are a list of sets, each a list with one line for each output; "
            "here a set is a single string.",
        ),
        (
            ["a", "b", "c"],
            [["a"], ["b"], ["c"]],
            "there are 3 outputs and as many sets of references, of 1 line: give one list of "
            "lines for each set, not one list of references for each line.",
        ),
        (
            ["a"] * 1002,
            [["a"] * 1001],
            "there are 1,002 outputs, and 1,001 lines in the references: each output needs its "
            "reference.",
        ),
        (
            ["a"],
            [["a"], ["b", "c"]],
            "there is 1 output, and 2 lines in set 2 of the references: each output needs its "
            "reference.",
        ),
        (["a"], [], "there are no references to score against."),
        ([], [[]], "there are no outputs to score."),
    ],
)
def test_lines_that_do_not_pair(outputs: Any, references: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        text_score(outputs, references)


@pytest.mark.parametrize(
    ("mark", "line"),
    [
        ("@@", "new@@ er words"),
        ("@@", "a cut line@@"),
        ("▁", "▁new er ▁words"),
        ("##", "new ##er words"),
        ("Ġ", "newĠwords"),
    ],
)
def test_marks_left(mark: str, line: str) -> None:
    outputs = ["fine", line, "fine", line]
    references = ["fine"] * 4
    said = (
        f"sub-word marks '{mark}' are left in the outputs, lines 2 and 4: join the pieces to words "
        "before scoring."
    )
    assert guards.left_marks(outputs, [references]) == said
    assert guards.own_marks(outputs, [references]) == (said if mark in "@@▁" else None)
    assert guards.own_marks(outputs, [references, ["fine", line, "fine", "fine"]]) is None
    for kind in ({"plain": True, "with_ter": False}, {"plain": False, "tokenised": [AS_GIVEN]}):
        score = text_score(outputs, [references], **kind)  # type: ignore[arg-type]
        assert score.figures["warnings"] == [said]
        assert score.report.endswith(f"\nwarning: {said}")


@pytest.mark.parametrize(
    "line", ["an @@ alone", "## Title", "E ##AT##-##AT## Mail", "user@@host", "3 # 4", "#tag"]
)
def test_what_is_no_mark(line: str) -> None:
    assert guards.left_marks([line], [["fine"]]) is None
    assert guards.own_marks([line], [["fine"]]) is None


@pytest.mark.parametrize("line", ["Ġorġ u Ġanni", "##tag"])
def test_marks_that_the_references_have_are_text(line: str) -> None:
    assert guards.left_marks([line, "x"], [["y", line]]) is None


def test_marks_in_the_references() -> None:
    assert guards.left_marks(["a new line"], [["a n@@ ew line"]]) == (
        "sub-word marks '@@' are left in the references, line 1: join the pieces to words before "
        "scoring."
    )
    assert guards.own_marks(["a new line"], [["a n@@ ew line"]]) is None


def test_doubts() -> None:
    lines = [f"This is line {n}." for n in range(10)]
    assert guards.doubts(lines, [lines]) == []
    blank = ["", *lines[1:8], " ", ""]
    assert guards.doubts(lines, [blank]) == ["3 references are blank, lines 1, 9 and 10."]
    assert guards.doubts(lines, [blank, lines]) == []
    assert guards.doubts(["", *lines[1:]], [lines]) == ["1 output is blank, line 1."]
    assert guards.doubts([""] * 10, [lines]) == [
        "10 outputs are blank, lines 1, 2, 3, 4, 5 and 5 more."
    ]
    apart = [line.replace(".", " .") for line in lines]
    assert guards.doubts(apart, [lines]) == [
        "the outputs seem to be tokenised and the references not: 10 of 10 final stops in the "
        "outputs stand apart from their word, and 0 of 10 in the references; scores of such a "
        "pair mean little."
    ]
    assert guards.doubts(lines, [apart]) == [
        "the references seem to be tokenised and the outputs not: 10 of 10 final stops in the "
        "references stand apart from their word, and 0 of 10 in the outputs; scores of such a "
        "pair mean little."
    ]
    assert guards.doubts(apart, [apart]) == []


def test_lines_confused_with_their_sources() -> None:
    lines = ["one", "two", "three"]
    sources = ["eins", "zwei", "drei"]
    assert guards.doubts(lines, [lines], sources) == []
    assert guards.doubts(sources, [lines], sources) == [
        "3 of 3 outputs are their own sources: are these the right outputs?"
    ]
    assert guards.doubts(lines, [["eins", "zwei", "three"]], sources) == [
        "2 of 3 references are their own sources: are these the right references?"
    ]
    with pytest.raises(
        DataError, match=r"^there are 3 outputs, and 1 source: each output needs its source\.$"
    ):
        guards.doubts(lines, [lines], ["eins"])
    # Of a blank source nothing is known.
    assert guards.doubts(["", "", "x"], [lines], ["", " ", "x"])[1:] == [
        "1 of 1 outputs are their own sources: are these the right outputs?"
    ]
    assert len(guards.doubts(["", "", "x"], [lines], ["", "", ""])) == 1


REFERENCES = [
    "The E-Mail was sent to all of them yesterday.",
    "Nobody knows why the ferry left so early.",
    "It is raining, and the streets are empty again.",
]
OUTPUTS = [REFERENCES[0], "Nobody knows why the ship left so soon.", ""]


def test_all_scores_side_by_side() -> None:
    score = text_score(OUTPUTS, [REFERENCES], tokenised=[PAPER_EN_DE, AS_GIVEN])
    assert score.metric == "BLEU"
    assert score.value == score.figures["BLEU"]["value"]
    assert score.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{VERSION}"
    names = [
        "BLEU",
        "chrF2",
        "TER",
        "tokenised BLEU (Moses, compounds split)",
        "tokenised BLEU (lines as given)",
    ]
    assert list(score.figures) == [*names, "lines", "blank outputs", "warnings"]
    assert score.figures["blank outputs"] == 1
    *lines, warning = score.report.splitlines()
    for name, line in zip(names, lines, strict=True):
        value, signature = score.figures[name]["value"], score.figures[name]["signature"]
        assert line.startswith(f"{name} = {value:.2f}")
        assert line.endswith(f"  [{signature}]")
    assert warning == "warning: 1 output is blank, line 3."
    assert json.loads(json.dumps(score.figures)) == score.figures


def test_text_that_is_tokenised() -> None:
    score = text_score(OUTPUTS, [REFERENCES], tokenised=[AS_GIVEN], plain=False)
    name = "tokenised BLEU (lines as given)"
    assert list(score.figures) == [name, "lines", "blank outputs", "warnings"]
    assert (score.metric, score.value) == (name, score.figures[name]["value"])
    assert score.figures == {
        key: value
        for key, value in text_score(OUTPUTS, [REFERENCES], tokenised=[AS_GIVEN]).figures.items()
        if key in score.figures
    }


def test_a_system_is_as_good_as_itself() -> None:
    comparison = compare_text({"a": OUTPUTS, "b": list(OUTPUTS)}, [REFERENCES], trials=50)
    for measure in comparison.figures["measures"].values():
        first, second = measure["systems"]["a"], measure["systems"]["b"]
        assert first["value"] == second["value"]
        assert "p, bootstrap" not in first
        assert second["p, randomisation"] == second["p, bootstrap"] == 1


@pytest.mark.parametrize("better", [1, 3, 5])
def test_a_few_words_more_are_no_proof(better: int) -> None:
    """Randomisation agrees with the exact sign test, by which n of n have 2 · 2^-n: draws with the
    very difference that there is count as chance.
    """
    right = [[("a",)]] * 200
    outputs = {"base": [("b",)] * better + [("a",)] * (200 - better), "other": [("a",)] * 200}
    comparison = compare_words(outputs, right, ("exact match",), trials=4000)
    found = comparison.figures["measures"]["exact match"]["systems"]["other"]
    assert found["p, randomisation"] == pytest.approx(2.0 ** (1 - better), abs=0.02)


def test_a_comparison_of_text() -> None:
    outputs = {"base": ["nothing like it"] * 30, "big": REFERENCES * 10}
    comparison = compare_text(
        outputs, [REFERENCES * 10], tokenised=[PAPER_EN_DE], with_ter=False, trials=100
    )
    assert comparison.metric == "BLEU"
    assert comparison.figures["baseline"] == "base"
    assert comparison.figures["warnings"] == []
    name = "tokenised BLEU (Moses, compounds split)"
    assert list(comparison.figures["measures"]) == ["BLEU", "chrF2", name]
    big = comparison.figures["measures"][name]["systems"]["big"]
    assert big["value"] == pytest.approx(100)
    assert big["p, bootstrap"] == big["p, randomisation"] == pytest.approx(1 / 101)
    signatures = comparison.figures["measures"][name]["signatures"]
    assert signatures == {
        test: f"nrefs:1|{short}:100|seed:12345|case:mixed|eff:no|tok:moses-de+compounds|"
        f"smooth:none|version:{VERSION}"
        for test, short in (("bootstrap", "bs"), ("randomisation", "ar"))
    }
    assert comparison.report.split("\n\n")[0] == (
        "BLEU   value  difference  bootstrap, 95%  p, bootstrap  p, random.\n"
        "base    0.00    baseline     0.00 ± 0.00\n"
        "big   100.00     +100.00   100.00 ± 0.00        0.0099      0.0099\n"
        f"  bootstrap: nrefs:1|bs:100|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|"
        f"version:{VERSION}\n"
        f"  randomisation: nrefs:1|ar:100|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|"
        f"version:{VERSION}"
    )


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        ({"a": ["x"]}, "a comparison is between two systems or more, not 1."),
        (
            {"a": ["x"], "b": ["x", "y"]},
            "b: there are 2 outputs, and 1 line in the references: each output needs its "
            "reference.",
        ),
    ],
)
def test_what_can_not_be_compared(systems: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        compare_text(systems, [["x"]])


def test_a_comparison_of_words() -> None:
    references = [["abc", "abd"], ["xy"], ["pq", "p"]] * 10
    right, wrong = ["abd", "xy", "p"] * 10, ["abd", "x", "pqr"] * 10
    comparison = compare_words(
        {"wrong": wrong, "right": right},
        references,
        ("exact match", "edit distance", "WER", "PER"),
        trials=100,
    )
    measures = comparison.figures["measures"]
    expected = count_edits(wrong, references)
    for name, rate in (
        ("exact match", expected.exact_match),
        ("edit distance", expected.mean_edit_distance),
        ("WER", expected.word_error_rate),
        ("PER", expected.phone_error_rate),
    ):
        assert measures[name]["systems"]["wrong"]["value"] == pytest.approx(rate)
        assert measures[name]["systems"]["right"]["p, randomisation"] == pytest.approx(1 / 101)
    assert measures["WER"]["systems"]["right"]["value"] == 0
    assert measures["WER"]["signatures"]["bootstrap"] == (
        f"nrefs:var|bs:100|seed:12345|version:{VERSION}"
    )


@pytest.mark.parametrize(
    ("systems", "references", "message"),
    [
        (
            {"a": ["x"], "b": []},
            [["x"]],
            "b: there are 0 outputs, and references for 1 word: each needs the other.",
        ),
        (
            {"a": ["x"], "b": ["x"]},
            [[]],
            "a: word 1 needs a list of one or more references, not [].",
        ),
        ({"a": [], "b": []}, [], "there are no words to compare."),
    ],
)
def test_words_that_can_not_be_compared(systems: Any, references: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        compare_words(systems, references)


def test_metrics_of_evaluate(tmp_path: Path) -> None:
    pytest.importorskip("evaluate", reason="the extra 'evaluate' is not installed")
    from seqtrans_tasks.metrics.exact_match import ExactMatch
    from seqtrans_tasks.metrics.tokenised_bleu import TokenisedBleu
    from seqtrans_tasks.metrics.word_error_rate import WordErrorRate

    options: dict[str, Any] = {"keep_in_memory": True, "cache_dir": str(tmp_path)}
    found = WordErrorRate(**options).compute(
        predictions=["h ə l oʊ", "w ɜ l d"],
        references=[["h ɛ l oʊ", "h ə l oʊ"], ["w ɜ ɹ l d"]],
    )
    assert found == {
        "word_error_rate": 50,
        "phone_error_rate": pytest.approx(100 / 9),
        "words": 2,
        "wrong": 1,
        "edits": 1,
        "phones": 9,
    }
    found = ExactMatch(**options).compute(
        predictions=["ging", "gehte"], references=["ging", "ging"]
    )
    assert found == {"exact_match": 50, "edit_distance": 2, "words": 2, "wrong": 1, "edits": 4}
    metric = TokenisedBleu(**options)
    found = metric.compute(
        predictions=REFERENCES, references=REFERENCES, language="de", compounds=True
    )
    assert found["bleu"] == 100
    assert found["name"] == "tokenised BLEU (Moses, compounds split)"
    message = r"^each line needs as many references as all others; here lines have 1 to 2\.$"
    with pytest.raises(DataError, match=message):
        metric.compute(predictions=["a", "b"], references=[["a"], ["b", "c"]])


@pytest.mark.slow
def test_evaluate_loads_the_metrics_by_their_paths(tmp_path: Path) -> None:
    pytest.importorskip("evaluate", reason="the extra 'evaluate' is not installed")
    folder = Path(metrics.__path__[0])
    names = ("exact_match", "tokenised_bleu", "word_error_rate")
    program = (
        "import evaluate\n"
        f"for path in {[str(folder / f'{name}.py') for name in names]!r}:\n"
        "    metric = evaluate.load(path, keep_in_memory=True)\n"
        "    found = metric.compute(predictions=['a b c d'], references=['a b c d'])\n"
        "    print(next(iter(found.items())))\n"
    )
    offline = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines() == [
        "('exact_match', 100.0)",
        "('bleu', 100.0)",
        "('word_error_rate', 0.0)",
    ]


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    program = (
        "import sys\n"
        "from seqtrans_tasks.metrics import bleu, compounds, edits, guards, moses, scores\n"
        "heavy = ('torch', 'sacrebleu', 'sacremoses', 'evaluate', 'numpy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
