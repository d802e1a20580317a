"""The constituency scorer: against what EVALB prints, against plain twins, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seqtrans
from seqtrans.errors import DataError, SettingsError
from seqtrans_tasks.parsing.evalb import Report, Totals, main, read_line, score, score_files
from seqtrans_tasks.parsing.parameters import COLLINS, NEW, Parameters, parameters_named
from seqtrans_tasks.parsing.sentence import (
    SentenceScore,
    Status,
    _crossing,
    _Quote,
    _restored,
    _Side,
    score_sentence,
)
from seqtrans_tasks.parsing.tree import Leaf, Node, Tree, read_tree, same, write_tree

UNLABELLED = dataclasses.replace(COLLINS, labelled=False)
SETTINGS = {"collins": COLLINS, "unlabeled": UNLABELLED, "new": NEW}

COLUMNS = {
    "length": 0,
    "status": 1,
    "recall": 2,
    "precision": 3,
    "matched": 4,
    "gold_brackets": 5,
    "test_brackets": 6,
    "crossing": 7,
    "words": 8,
    "correct_tags": 9,
    "tag_accuracy": 10,
}
SUMMARY = {
    "sentences": "sentences",
    "error_sentences": "errors",
    "skipped_sentences": "skipped",
    "valid_sentences": "valid",
    "recall": "recall",
    "precision": "precision",
    "fmeasure": "f1",
    "complete_match": "complete_match",
    "average_crossing": "average_crossing",
    "no_crossing": "no_crossing",
    "two_or_less_crossing": "two_or_less_crossing",
    "tagging_accuracy": "tagging_accuracy",
}

# Where EVALB's reader or its way of stopping is no model: the reason, and what is done here.
REFUSED = {
    "raw_parenthesis_word": (
        "EVALB counts the line as an error; but a line that is no tree is a damaged file",
        "test, line 1, column 1: this bracket is never closed.",
    ),
    "unbalanced_open": (
        "EVALB counts the line as an error; but a line that is no tree is a damaged file",
        "test, line 1, column 1: this bracket is never closed.",
    ),
    "word_without_tag": (
        "EVALB stops without a summary; the place is named instead",
        "test, line 1, column 13: the word 'The' does not stand alone beside its tag; "
        "write every word as (TAG word).",
    ),
    "plain_words_prediction": (
        "EVALB stops without a summary; the place is named instead",
        "test, line 1, column 1: the word 'The' does not stand alone beside its tag; "
        "write every word as (TAG word).",
    ),
    "corpus_gold_longer": (
        "EVALB scores the lines that both files have; no total over a part is given here",
        "gold has 3 lines but test has 2; there must be one line, blank if the parser gave no "
        "tree, for each gold tree.",
    ),
    "corpus_test_longer": (
        "EVALB scores the lines that both files have; no total over a part is given here",
        "gold has 2 lines but test has 3; there must be one line, blank if the parser gave no "
        "tree, for each gold tree.",
    ),
}
SCORED = {
    "whitespace_before_close_in_preterminal": (
        "EVALB stops without a summary; (NN pond ) is plain enough to be read",
        [(7, 0, 100.0, 100.0, 4, 4, 4, 0, 6, 6, 100.0)],
    ),
    "empty_constituent_with_space": (
        "EVALB reads (NP ) as a word of no letters, but (NP) as an empty bracket; both are empty",
        [(1, 0, 100.0, 100.0, 2, 2, 2, 0, 1, 1, 100.0)],
    ),
    "corpus_twelve_errors": (
        "the twelfth error ends EVALB without a summary; here there is no limit",
        [(7, 1, 0.0, 0.0, 0, 0, 0, 0, 0, 0, 0.0)] * 12
        + [(7, 0, 100.0, 100.0, 4, 4, 4, 0, 6, 6, 100.0)],
    ),
}


@pytest.fixture(scope="module")
def cases(shared: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        (shared / "oracles/evalb/cases.json").read_text(encoding="utf-8")
    )
    return found


@pytest.fixture(scope="module")
def evalb_data(shared: Path) -> Path:
    return shared / "data/evalb"


def files(folder: Path, gold: list[str], test: list[str]) -> tuple[str, str]:
    for name, lines in (("gold", gold), ("test", test)):
        (folder / name).write_bytes("".join(line + "\n" for line in lines).encode())
    return "gold", "test"


def close(ours: float, theirs: float | None) -> bool:
    """Whether our number is what EVALB prints, rounded to two decimals; nan stands as None."""
    if theirs is None or math.isnan(theirs):
        return math.isnan(ours)
    return ours == theirs if isinstance(ours, int) else abs(ours - theirs) <= 0.005 + 1e-9


def check_sentence(ours: SentenceScore, theirs: dict[str, Any]) -> None:
    columns = ours.columns()
    for name, index in COLUMNS.items():
        assert close(columns[index], theirs[name]), (name, columns, theirs)


def check_totals(ours: Totals, theirs: dict[str, Any]) -> None:
    for name, field in SUMMARY.items():
        if name in theirs:
            assert close(getattr(ours, field), theirs[name]), (name, ours, theirs)


def check_report(ours: Report, theirs: dict[str, Any]) -> None:
    assert len(ours.sentences) == len(theirs["sentences"])
    for sentence, row in zip(ours.sentences, theirs["sentences"], strict=True):
        check_sentence(sentence, row)
    check_totals(ours.evalb, theirs["summary"])
    check_totals(ours.evalb_short, theirs["summary_len_cut"])
    reasons = {"length_mismatch": "the test tree has ", "word_mismatch": "word "}
    expected = {error["line"]: reasons[error["kind"]] for error in theirs["errors"]}
    in_error = {
        number: sentence.reason
        for number, sentence in enumerate(ours.sentences, start=1)
        if sentence.status is Status.ERROR
    }
    assert in_error.keys() == expected.keys()
    assert all(in_error[line].startswith(expected[line]) for line in expected)


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_case_is_as_evalb_scores_it(
    settings: str,
    cases: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    equal = 0
    for case in cases:
        if case["name"] in REFUSED or case["name"] in SCORED:
            assert case["reader_quirk"]
            continue
        gold, test = files(tmp_path, case["gold"], case["test"])
        check_report(score_files(gold, test, SETTINGS[settings]), case["evalb"][settings])
        equal += 1
    assert equal == len(cases) - len(REFUSED) - len(SCORED) == 97


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_tree_is_refused(
    name: str, cases: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (case,) = (case for case in cases if case["name"] == name)
    gold, test = files(tmp_path, case["gold"], case["test"])
    with pytest.raises(DataError) as refused:
        score_files(gold, test)
    assert str(refused.value) == REFUSED[name][1]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", SCORED)
def test_what_evalb_gives_up_on_is_scored(
    name: str,
    settings: str,
    cases: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (case,) = (case for case in cases if case["name"] == name)
    gold, test = files(tmp_path, case["gold"], case["test"])
    report = score_files(gold, test, SETTINGS[settings])
    assert [sentence.columns() for sentence in report.sentences] == SCORED[name][1]
    if name == "corpus_twelve_errors":
        # Up to the sentence at which EVALB stopped, both say the same.
        before_the_stop = case["evalb"][settings]["sentences"]
        for sentence, row in zip(report.sentences, before_the_stop, strict=False):
            check_sentence(sentence, row)
        assert (len(before_the_stop), report.evalb.errors, report.evalb.f1) == (11, 12, 100.0)


@pytest.mark.parametrize("settings", ["collins", "unlabeled"])
def test_random_pairs_are_as_evalb_scores_them(settings: str, shared: Path) -> None:
    text = (shared / "oracles/evalb/random_pairs.json").read_text(encoding="utf-8")
    oracle = json.loads(text)
    golds = [read_line(pair["gold"]) for pair in oracle["pairs"]]
    tests = [read_line(pair["test"]) for pair in oracle["pairs"]]
    report = score(golds, tests, SETTINGS[settings])
    for ours, pair in zip(report.sentences, oracle["pairs"], strict=True):
        check_sentence(ours, pair[settings])
    check_totals(report.evalb, oracle["corpus_totals"][settings]["summary"])
    check_totals(report.evalb_short, oracle["corpus_totals"][settings]["summary_len_cut"])


def published(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, float]]]:
    """The rows and the two summaries of a file that EVALB wrote."""
    rows: list[dict[str, Any]] = []
    summaries: list[dict[str, float]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        numbers = line.split()
        if len(numbers) == 12:
            if all(re.fullmatch(r"\d+(\.\d+)?", number) for number in numbers):
                rows.append(dict(zip(COLUMNS, map(float, numbers[1:]), strict=True)))
        elif line.startswith("-- "):
            summaries.append({})
        elif summaries and "=" in line:
            name, value = line.split("=")
            summaries[-1][PRINTED[name.strip()]] = float(value)
    return rows, summaries


PRINTED = {
    "Number of sentence": "sentences",
    "Number of Error sentence": "error_sentences",
    "Number of Skip  sentence": "skipped_sentences",
    "Number of Valid sentence": "valid_sentences",
    "Bracketing Recall": "recall",
    "Bracketing Precision": "precision",
    "Bracketing FMeasure": "fmeasure",
    "Complete match": "complete_match",
    "Average crossing": "average_crossing",
    "No crossing": "no_crossing",
    "2 or less crossing": "two_or_less_crossing",
    "Tagging accuracy": "tagging_accuracy",
}


@pytest.mark.parametrize(
    ("pair", "result", "parameters"),
    [
        ("sample/sample", "sample/sample.rsl", "sample/sample.prm"),
        ("bug/bug", "bug/bug.rsl-new", "new.prm"),
        ("bug/bug", "bug/bug.rsl-old", "COLLINS.prm"),
    ],
)
def test_published_results(pair: str, result: str, parameters: str, evalb_data: Path) -> None:
    rows, (summary, short) = published(evalb_data / result)
    report = score_files(
        evalb_data / f"{pair}.gld",
        evalb_data / f"{pair}.tst",
        Parameters.read(evalb_data / parameters),
    )
    assert len(rows) == len(report.sentences) > 0
    for sentence, row in zip(report.sentences, rows, strict=True):
        if row["status"]:
            row["words"] = 0  # an older release shows the words of sentences that it leaves out
        check_sentence(sentence, row)
    check_totals(report.evalb, summary)
    check_totals(report.evalb_short, short)


def test_the_sample_pair_under_other_parameters(evalb_data: Path) -> None:
    pair = evalb_data / "sample/sample.gld", evalb_data / "sample/sample.tst"
    sample = score_files(*pair, Parameters.read(evalb_data / "sample/sample.prm"))
    assert close(sample.evalb.f1, 89.12)
    assert close(sample.evalb_short.f1, 83.20)
    assert sample.evalb.crossing == 1
    for parameters in (COLLINS, NEW):
        totals = score_files(*pair, parameters).evalb
        assert (totals.valid, totals.errors, totals.skipped) == (16, 6, 2)
        assert close(totals.recall, 87.23)
        assert close(totals.precision, 90.11)
        assert close(totals.f1, 88.65)
        assert close(totals.complete_match, 50.00)
        assert close(totals.tagging_accuracy, 97.12)


def test_built_in_parameters_are_those_of_the_files(evalb_data: Path) -> None:
    assert dataclasses.replace(COLLINS, name="COLLINS.prm") == Parameters.read(
        evalb_data / "COLLINS.prm"
    )
    for name in ("new.prm", "nk.prm"):
        assert dataclasses.replace(NEW, name=name) == Parameters.read(evalb_data / name)
    spmrl = Parameters.read(evalb_data / "spmrl/spmrl.prm")
    assert spmrl.cutoff == 70
    assert spmrl.delete_labels == {"TOP", "ROOT", "S1", "-NONE-", "VROOT"}


TAGS = ["NN", "VB", "POS", "ADVP", "PRT", ".", ",", "-NONE-", "``"]
LABELS = ["S", "NP", "VP", "ADVP", "PRT", "NP-SBJ", "S=2", "TOP", "-NONE-", ""]


@st.composite
def bracketings(draw: st.DrawFn, leaves: list[Leaf]) -> Tree:
    """A tree over copies of these leaves, made by setting brackets around neighbours."""
    nodes: list[Node] = [Leaf(leaf.tag, leaf.word) for leaf in leaves]
    for label in draw(st.lists(st.sampled_from(LABELS), max_size=12)):
        start = draw(st.integers(0, len(nodes) - 1))
        end = draw(st.integers(start + 1, len(nodes)))
        nodes[start:end] = [Tree(label, nodes[start:end])]
    return Tree(draw(st.sampled_from(["TOP", "S"])), nodes)


leaf_lists = st.lists(
    st.builds(Leaf, st.sampled_from(TAGS), st.sampled_from(["a", "b", "'"])), min_size=1, max_size=9
)
trees = leaf_lists.flatmap(bracketings)
pairs_of_trees = leaf_lists.flatmap(lambda found: st.tuples(*[bracketings(found)] * 2))
parameter_sets = st.sampled_from([COLLINS, NEW, UNLABELLED])


@given(st.lists(trees, min_size=1, max_size=4), parameter_sets)
def test_a_tree_against_itself_is_perfect(golds: list[Tree], parameters: Parameters) -> None:
    report = score(golds, golds, parameters)
    for totals in (report.overall, report.evalb):
        assert totals.errors == totals.crossing == 0
        assert totals.matched == totals.gold_brackets == totals.test_brackets
        assert totals.correct_tags == totals.words
        if totals.matched:
            assert totals.recall == totals.precision == totals.f1 == 100.0
    assert report.overall.complete_match == report.overall.no_crossing == 100.0
    assert {found.f1 for found in report.labels.values()} <= {100.0}


@given(st.lists(pairs_of_trees, min_size=1, max_size=4), parameter_sets)
def test_recall_and_precision_change_places(
    pairs: list[tuple[Tree, Tree]], parameters: Parameters
) -> None:
    golds, tests = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    there, back = score(golds, tests, parameters), score(tests, golds, parameters)
    for one, other in ((there.overall, back.overall), (there.evalb, back.evalb)):
        assert (str(one.recall), str(one.f1)) == (str(other.precision), str(other.f1))
        assert one.complete_match == other.complete_match


@given(pairs_of_trees, st.permutations(["NP", "VP", "NP", "PRT"]), parameter_sets)
def test_order_of_unaries_is_invisible(
    pair: tuple[Tree, Tree], order: list[str], parameters: Parameters
) -> None:
    def wrapped(labels: list[str]) -> Node:
        node: Node = pair[1]
        for label in labels:
            node = Tree(label, [node])
        return node

    plain = score_sentence(pair[0], wrapped(["NP", "VP", "NP", "PRT"]), parameters)
    assert plain == score_sentence(pair[0], wrapped(order), parameters)


def brackets_of(tree: Tree) -> list[tuple[int, int, str]]:
    """Brackets by the rules of COLLINS, in the plainest way."""

    def walk(node: Node, start: int) -> tuple[int, list[tuple[int, int, str]]]:
        if isinstance(node, Leaf):
            return start + (node.tag not in COLLINS.delete_labels), []
        end, inner = start, []
        for child in node.children:
            end, more = walk(child, end)
            inner += more
        label = re.split("[-=]", node.label)[0].replace("PRT", "ADVP")
        if end > start and label not in COLLINS.delete_labels:
            inner.append((start, end, label))
        return end, inner

    return walk(tree, 0)[1]


@given(pairs_of_trees)
def test_counts_are_those_of_a_plain_count(pair: tuple[Tree, Tree]) -> None:
    found = score_sentence(*pair)
    gold, test = brackets_of(pair[0]), brackets_of(pair[1])
    assert (found.gold_brackets, found.test_brackets) == (len(gold), len(test))
    assert sum(found.gold_labels.values()) == len(gold)
    assert sum(found.test_labels.values()) == len(test)
    if found.status is Status.OK:
        assert found.matched == (Counter(gold) & Counter(test)).total()
        assert found.matched == sum(found.matched_labels.values())
        assert found.crossing == sum(any(cross(a, b) for a in gold) for b in test)


def cross(gold: tuple[int, int, str], test: tuple[int, int, str]) -> bool:
    return gold[0] < test[0] < gold[1] < test[1] or test[0] < gold[0] < test[1] < gold[1]


@given(st.integers(2, 40).flatmap(lambda n: st.tuples(*[bracketings([Leaf("NN", "a")] * n)] * 2)))
def test_crossing_in_long_sentences(pair: tuple[Tree, Tree]) -> None:
    gold, test = brackets_of(pair[0]), brackets_of(pair[1])
    assert _crossing(gold, test) == sum(any(cross(a, b) for a in gold) for b in test)


@given(st.lists(pairs_of_trees, max_size=5), st.data(), parameter_sets)
def test_failures_count_overall_and_not_in_evalb(
    pairs: list[tuple[Tree, Tree]], data: st.DataObject, parameters: Parameters
) -> None:
    golds: list[Node] = [pair[0] for pair in pairs]
    tests: list[Node | None] = [pair[1] for pair in pairs]
    kept = [data.draw(st.booleans()) for _ in pairs]
    failed = [test if keep else None for test, keep in zip(tests, kept, strict=True)]
    all_there, with_failures = score(golds, tests, parameters), score(golds, failed, parameters)
    only_kept = score(
        [gold for gold, keep in zip(golds, kept, strict=True) if keep],
        [test for test, keep in zip(tests, kept, strict=True) if keep],
        parameters,
    )
    assert with_failures.overall.gold_brackets == all_there.overall.gold_brackets
    assert with_failures.overall.matched == only_kept.overall.matched
    ours, theirs = vars(with_failures.evalb), vars(only_kept.evalb)
    assert {name: str(ours[name]) for name in ours if name not in ("sentences", "skipped")} == {
        name: str(theirs[name]) for name in theirs if name not in ("sentences", "skipped")
    }
    assert sum(found.matched for found in with_failures.labels.values()) == (
        with_failures.overall.matched
    )
    assert sum(found.gold for found in with_failures.labels.values()) == (
        with_failures.overall.gold_brackets
    )


def restored_step_by_step(gold: _Side, test: _Side) -> tuple[dict[int, int], dict[int, int]]:
    """Every test mark against every gold mark, each return moving that mark and all after it."""
    returned = Counter[int](), Counter[int]()
    gold_at, test_at = [mark.at for mark in gold.quotes], [mark.at for mark in test.quotes]
    for i, test_mark in enumerate(test.quotes):
        place = test_at[i]
        for j, gold_mark in enumerate(gold.quotes):
            if gold_at[j] != place or gold_mark.kept == test_mark.kept:
                continue
            if test_mark.kept:
                returned[0][gold_mark.leaf] += 1
                gold_at[j:] = [at + 1 for at in gold_at[j:]]
            else:
                returned[1][test_mark.leaf] += 1
                test_at[i:] = [at + 1 for at in test_at[i:]]
    return returned


@st.composite
def marked(draw: st.DrawFn) -> _Side:
    """A sentence of quotation marks, scored and deleted ones, and other words."""
    marks, at = [], 0
    for leaf, kind in enumerate(draw(st.lists(st.sampled_from(["word", "kept", "deleted"])))):
        if kind != "word":
            marks.append(_Quote(leaf, at, kind == "kept"))
        at += kind != "deleted"
    return _Side(0, [], [], [], marks)


@given(marked(), marked())
def test_marks_return_as_step_by_step(gold: _Side, test: _Side) -> None:
    assert _restored(gold, test) == restored_step_by_step(gold, test)


def test_a_deleted_mark_returns_where_the_other_side_scores_it() -> None:
    gold = read_tree("(S (NP (NNS boys)) ('' ') (VP (VBP run)))")
    test = read_tree("(S (NP (NNS boys) (POS ')) (VP (VBP run)))")
    assert score_sentence(gold, test, COLLINS).reason == (
        "the test tree has 3 words to score, the gold tree 2"
    )
    for one, other in ((gold, test), (test, gold)):
        found = score_sentence(one, other, NEW)
        assert (found.status, found.matched, found.gold_brackets) == (Status.OK, 2, 3)
        assert (found.words, found.correct_tags) == (3, 2)


DEEP = 100_000


def right_branching(words: int) -> Node:
    node: Node = Leaf("NN", "w")
    for _ in range(words - 1):
        node = Tree("NP", [Leaf("NN", "w"), node])
    return node


def left_branching(words: int) -> Node:
    node: Node = Leaf("NN", "w")
    for _ in range(words - 1):
        node = Tree("NP", [node, Leaf("NN", "w")])
    return node


def test_depth_is_not_limited() -> None:
    right, left = right_branching(DEEP), left_branching(DEEP)
    assert score_sentence(right, right).columns()[2:4] == (100.0, 100.0)
    found = score_sentence(right, left)
    # Of the brackets over a prefix and those over a suffix, only the whole is common.
    assert (found.matched, found.crossing) == (1, DEEP - 2)
    chain: Node = Leaf("NN", "w")
    for _ in range(DEEP):
        chain = Tree("NP", [chain])
    assert score_sentence(chain, Tree("NP", [Leaf("NN", "w")])).matched == 1
    assert same(read_line(write_tree(chain))[0], chain)


def test_length_and_number_of_errors_are_not_limited() -> None:
    words: list[Node] = [Leaf("NN", "x" * 1000) for _ in range(1000)]
    long = Tree("A" * 1000, words)
    wrong = Tree("S", [Leaf("NN", "y")])
    report = score([long] * 50, [long] * 10 + [wrong] * 40)
    assert (report.evalb.errors, report.evalb.f1, report.overall.recall) == (40, 100.0, 20.0)


def test_overall_counts_what_evalb_leaves_out() -> None:
    gold = read_tree("(S (NP (DT The) (NN heron)) (VP (VBD slept)) (. .))")
    other = read_tree("(S (NP (DT The) (NN egret)) (VP (VBD slept)) (. .))")
    nothing = read_tree("(TOP (. .))")
    report = score([gold] * 4, [gold, other, None, nothing])
    assert [sentence.status for sentence in report.sentences] == [
        Status.OK,
        Status.ERROR,
        Status.SKIPPED,
        Status.SKIPPED,
    ]
    assert [sentence.reason for sentence in report.sentences] == [
        "",
        "word 2 is 'egret' in the test tree, 'heron' in the gold tree",
        "there is no test tree",
        "the test tree has no words to score",
    ]
    overall = report.overall
    assert (overall.matched, overall.gold_brackets, overall.test_brackets) == (3, 12, 6)
    assert (overall.recall, overall.precision) == (25.0, 50.0)
    assert overall.f1 == pytest.approx(100 / 3)
    assert (overall.complete_match, overall.no_crossing) == (25.0, 25.0)
    assert (overall.words, overall.tagging_accuracy) == (12, 25.0)
    assert (report.evalb.recall, report.evalb.precision, report.evalb.f1) == (100.0, 100.0, 100.0)
    assert report.signature == (
        f"labelled-F1|parameters:COLLINS|sentences:4|skipped:2|errors:1"
        f"|seqtrans:{seqtrans.__version__}"
    )
    assert list(report.labels) == ["NP", "S", "VP"]


def test_shares_of_nothing() -> None:
    gold, wrong = read_tree("(S (NP (NN tea)))"), read_tree("(X (Y (NN tea)))")
    no_match = score([gold], [wrong])
    assert no_match.overall.f1 == 0.0
    assert math.isnan(no_match.evalb.f1)
    empty = score([], [])
    assert math.isnan(empty.overall.recall)
    assert math.isnan(empty.overall.f1)
    assert empty.evalb.recall == 0.0
    assert math.isnan(empty.evalb.f1)
    for report in (no_match, empty):
        values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
        assert values["evalb"]["f1"] is None
        assert "nan" in report.text()
    assert no_match.as_dict()["labels"]["NP"] == {
        "gold": 1,
        "test": 0,
        "matched": 0,
        "recall": 0.0,
        "precision": None,
        "f1": 0.0,
    }


def test_the_report_as_text() -> None:
    gold = read_tree("(S (NP (DT The) (NN heron)) (VP (VBD slept) (PRT (RP in))) (. .))")
    test = read_tree("(S (NP (DT The)) (VP (NN heron) (VBD slept) (ADVP (RP in))) (. .))")
    assert score([gold, gold], [test, None]).text() == (
        f"labelled-F1|parameters:COLLINS|sentences:2|skipped:1|errors:0"
        f"|seqtrans:{seqtrans.__version__}\n"
        "\n"
        "                           all lengths                length <= 40\n"
        "                               overall         EVALB       overall         EVALB\n"
        "Sentences                            2             2             2             2\n"
        "In error                             0             0             0             0\n"
        "Skipped                              1             1             1             1\n"
        "Valid                                1             1             1             1\n"
        "Bracketing recall                25.00         50.00         25.00         50.00\n"
        "Bracketing precision             50.00         50.00         50.00         50.00\n"
        "Bracketing F1                    33.33         50.00         33.33         50.00\n"
        "Complete match                    0.00          0.00          0.00          0.00\n"
        "Average crossing                  1.00          1.00          1.00          1.00\n"
        "No crossing                       0.00          0.00          0.00          0.00\n"
        "2 or less crossing               50.00        100.00         50.00        100.00\n"
        "Tagging accuracy                 50.00        100.00         50.00        100.00\n"
        "\n"
        "0 in error and 1 skipped: overall counts them as wrong, EVALB leaves them out.\n"
        "\n"
        "label                        gold     test  matched     recall  precision       F1\n"
        "ADVP=PRT                        2        1        1      50.00     100.00    66.67\n"
        "NP                              2        1        0       0.00       0.00     0.00\n"
        "S                               2        1        1      50.00     100.00    66.67\n"
        "VP                              2        1        0       0.00       0.00     0.00\n"
    )
    assert (
        "No sentence is in error or skipped, so overall and EVALB rest on the same ones."
        in score([gold], [gold]).text()
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "DELETE_LABELS TOP",
            "'DELETE_LABELS TOP' is not a setting; a line begins with one of DEBUG, MAX_ERROR, "
            "LABELED, CUTOFF_LEN, DELETE_LABEL, DELETE_LABEL_FOR_LENGTH, QUOTE_LABEL, EQ_LABEL, "
            "EQ_WORD, or with # for a remark.",
        ),
        ("DELETE_LABEL", "DELETE_LABEL takes one value, not 0."),
        ("EQ_LABEL ADVP PRT RB", "EQ_LABEL takes two values, not 3."),
        ("LABELED 2", "LABELED must be 0 or 1, not '2'."),
        ("CUTOFF_LEN forty", "CUTOFF_LEN must be a whole number, not 'forty'."),
    ],
)
def test_a_wrong_line_of_parameters_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "my.prm"
    path.write_text(f"# remark\n\n{text}\n", encoding="utf-8")
    with pytest.raises(DataError) as refused:
        Parameters.read(path)
    assert str(refused.value) == f"{path}, line 3: {message}"


def test_equivalences_must_close(tmp_path: Path) -> None:
    path = tmp_path / "my.prm"
    path.write_text("EQ_LABEL A B\nEQ_LABEL C D\nEQ_LABEL B C\n", encoding="utf-8")
    with pytest.raises(DataError) as refused:
        Parameters.read(path)
    assert str(refused.value) == (
        f"{path}: EQ_LABEL joins A and C by way of others only, so the score would hang on the "
        "order of brackets; add the line EQ_LABEL A C."
    )
    path.write_text("EQ_LABEL A B\nEQ_LABEL C B\nEQ_LABEL C A\nEQ_WORD x y\n", encoding="utf-8")
    parameters = Parameters.read(path)
    assert parameters == Parameters(
        name="my.prm",
        equivalent_labels=(frozenset("ABC"),),
        equivalent_words=(frozenset("xy"),),
    )
    gold, test = read_tree("(A (B (C x)))"), read_tree("(C (C (A y)))")
    found = score_sentence(gold, test, parameters)
    assert (found.matched, found.correct_tags, found.gold_labels) == (2, 1, {"A=B=C": 2})


def test_a_deleted_label_deletes_brackets_of_its_equivalents_but_not_their_leaves() -> None:
    parameters = dataclasses.replace(COLLINS, delete_labels=frozenset(("PRT",)))
    tree = read_tree("(S (ADVP (PRT up) (ADVP on)) (PRT (RB in)))")
    found = score_sentence(tree, tree, parameters)
    assert (found.matched, found.gold_labels, found.words, found.length) == (1, {"S": 1}, 2, 3)


def test_classes_of_equivalents_must_be_apart() -> None:
    with pytest.raises(SettingsError) as refused:
        Parameters(name="mine", equivalent_labels=(frozenset("AB"), frozenset("BC")))
    assert str(refused.value) == (
        "parameters mine: the label 'B' is in two classes of equivalents; a class must hold all "
        "that count as one."
    )


def test_parameters_by_name(tmp_path: Path) -> None:
    assert parameters_named("COLLINS") is COLLINS
    assert parameters_named("NEW") is NEW
    with pytest.raises(DataError) as refused:
        parameters_named("collins")
    assert str(refused.value) == (
        "'collins' is neither COLLINS nor NEW nor a parameter file; name one of them."
    )


def test_unequal_numbers_of_trees() -> None:
    tree = read_tree("(S (NN tea))")
    with pytest.raises(DataError) as refused:
        score([tree], [tree, None])
    assert str(refused.value) == (
        "there are 1 gold tree but 2 test trees; there must be one test tree, or None, for each "
        "gold tree."
    )


def test_several_trees_and_empty_brackets_on_a_line() -> None:
    first, second = read_line("(NN tea)\t( S (NP)(VP ( VB cools ) ) )\r\n")
    assert isinstance(first, Leaf)
    assert isinstance(second, Tree)
    assert [getattr(child, "label", None) for child in second.children] == ["NP", "VP"]
    assert read_line(" \r\n") == []
    assert read_line("(NN a\u00a0b)")[0].word == "a\u00a0b"  # type: ignore[union-attr]


@given(trees)
def test_lines_are_read_as_trees_are(tree: Tree) -> None:
    (found,) = read_line(write_tree(tree))
    assert same(found, read_tree(write_tree(tree)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("(S (NN tea)", "column 1: this bracket is never closed."),
        ("(S (NN tea)))", "column 13: this bracket closes none that is open."),
        (
            "(S (NN hot tea))",
            "column 8: the word 'hot' does not stand alone beside its tag; write every word as "
            "(TAG word).",
        ),
    ],
)
def test_damaged_lines_are_refused(line: str, message: str) -> None:
    with pytest.raises(DataError) as refused:
        read_line(line, "test, line 7")
    assert str(refused.value) == f"test, line 7, {message}"


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = "(S (NP (NN tea)) (VP (VBZ cools)))"
    gold, test = files(tmp_path, [tree] * 3, [tree, "", tree.replace("tea", "milk")])
    assert main([gold, test, "--sentences", "--parameters", "NEW"]) == 0
    report = score_files(gold, test, NEW)
    assert capsys.readouterr().out == report.sentence_rows() + "\n" + report.text()
    assert report.sentence_rows() == (
        "  Sent.                        Matched  Bracket   Cross        Correct Tag\n"
        " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy\n"
        + "="
        * 76
        + "\n"
        "   1    2    0  100.00 100.00     3      3    3      0      2     2   100.00\n"
        "   2    2    2    0.00   0.00     0      0    0      0      0     0     0.00"
        "  there is no test tree\n"
        "   3    2    1    0.00   0.00     0      0    0      0      0     0     0.00"
        "  word 1 is 'milk' in the test tree, 'tea' in the gold tree\n" + "=" * 76 + "\n"
    )


@pytest.mark.parametrize(
    ("contents", "arguments", "message"),
    [
        (b"", [], "gold: the file is empty, but it must hold one gold tree a line."),
        (b"(S (NN tea)\n", [], "gold, line 1, column 1: this bracket is never closed."),
        (
            b"(NN \xff)\n",
            [],
            "gold: the file is not UTF-8 text: 'utf-8' codec can't decode byte 0xff in position 4: "
            "invalid start byte.",
        ),
        (None, [], "gold: the file cannot be read: No such file or directory."),
        (
            b"(NN tea)\n",
            ["--parameters", "none.prm"],
            "'none.prm' is neither COLLINS nor NEW nor a parameter file; name one of them.",
        ),
    ],
)
def test_the_command_refuses_in_one_sentence(
    contents: bytes | None,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if contents is not None:
        Path("gold").write_bytes(contents)
    Path("test").write_bytes(b"(NN tea)\n")
    assert main(["gold", "test", *arguments]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", message + "\n")


GOLDS = ["(S (NP (NN tea)) (VP (VBZ cools)))", "(S (NP (NN tea)) (VP (VBZ cools)))"]
TESTS = ["(S1 (S (NP (NN tea)) (VP (VBZ cools))))", ""]


def test_the_metric(tmp_path: Path) -> None:
    pytest.importorskip("evaluate", reason="the extra 'evaluate' is not installed")
    from seqtrans_tasks.parsing.metric import LabelledF1

    metric = LabelledF1(keep_in_memory=True, cache_dir=str(tmp_path))
    report = score(map(read_line, GOLDS), map(read_line, TESTS), NEW)
    found = metric.compute(predictions=TESTS, references=GOLDS, parameters="NEW")
    assert found["signature"] == report.signature
    assert (found["f1"], found["evalb_f1"]) == (report.overall.f1, 100.0)
    assert found["f1"] == pytest.approx(200 / 3)
    metric.add_batch(predictions=TESTS[:1], references=GOLDS[:1])
    assert metric.compute()["precision"] == 75.0
    with pytest.raises(DataError) as refused:
        metric.compute(predictions=["(S"], references=["(NN tea)"])
    assert str(refused.value) == "prediction 1, column 1: this bracket is never closed."


@pytest.mark.slow
def test_the_metric_is_loaded_from_its_path(tmp_path: Path) -> None:
    pytest.importorskip("evaluate", reason="the extra 'evaluate' is not installed")
    import seqtrans_tasks.parsing.evalb as module

    path = Path(module.__file__).with_name("metric.py")
    program = (
        "import evaluate, json\n"
        f"metric = evaluate.load({str(path)!r}, keep_in_memory=True)\n"
        f"found = metric.compute(predictions={TESTS!r}, references={GOLDS!r}, parameters='NEW')\n"
        "print(json.dumps(found))\n"
    )
    offline = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout)["f1"] == pytest.approx(200 / 3)


def test_scoring_needs_no_heavy_imports() -> None:
    program = (
        "import sys, seqtrans_tasks.parsing.evalb\n"
        "print([name for name in ('torch', 'nltk', 'evaluate', 'numpy') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
