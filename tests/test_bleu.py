"""BLEU in both kinds against the programs that define it, and published scores of real systems."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtrans.errors import DataError
from seqtrans.lines import read_lines
from seqtrans_tasks.metrics import moses
from seqtrans_tasks.metrics.bleu import (
    AS_GIVEN,
    PAPER_EN_DE,
    Bleu,
    Preparation,
    bleu,
    chrf,
    ter,
    tokenised_bleu,
)
from seqtrans_tasks.metrics.compounds import split_compounds

REFUSED = {
    "hypothesis_file_shorter": (
        "there is 1 output, and 2 lines in the references: each output needs its reference."
    ),
    "hypothesis_file_longer": (
        "there are 2 outputs, and 1 line in the references: each output needs its reference."
    ),
}
"""Where the program says nothing of unequal files, and its value means nothing."""

DIES = {"all_empty_hypotheses", "all_empty_references"}
"""Where it divides by zero, or prints a line of zeros."""

S = "the old ferry left the harbour before the storm arrived ."


@pytest.fixture
def oracle(shared: Path) -> Callable[[str], Any]:
    """Reads a file of what public programs gave."""

    def read(name: str) -> Any:
        return json.loads((shared / "oracles" / "bleu" / name).read_text(encoding="utf-8"))

    return read


def sets(references: list[Any]) -> list[list[str]]:
    """Sets of references; some files have a single one bare."""
    return [references] if isinstance(references[0], str) else references


def printed(found: Bleu) -> str:
    """What ``multi-bleu.perl`` would print."""
    return "BLEU" + str(found).removeprefix(found.name)


def test_every_corpus_scored_by_the_program(oracle: Callable[[str], Any]) -> None:
    for case in oracle("multi_bleu.json"):
        name, outputs = case["name"], case["hypotheses"]
        references = sets(case["references"])
        if name in REFUSED:
            with pytest.raises(DataError) as caught:
                tokenised_bleu(outputs, references)
            assert str(caught.value) == REFUSED[name]
            continue
        found = tokenised_bleu(outputs, references, lowercase=case["lowercase"])
        if name in DIES:
            assert found.value == case["sacrebleu_tok_none_smooth_none"]["bleu"] == 0
        else:
            assert printed(found) == case["multi_bleu"]["line"], name


def test_random_corpora(oracle: Callable[[str], Any]) -> None:
    for case in oracle("random_corpora.json"):
        outputs, references = case["hypotheses"], sets(case["references"])
        found = tokenised_bleu(outputs, references)
        assert printed(found) == case["multi_bleu"]["line"]
        assert found.value == pytest.approx(case["sacrebleu_tok_none_smooth_none"], abs=1e-10)
        assert list(found.matches) == case["counts"]
        assert list(found.totals) == case["totals"]
        split = tokenised_bleu(outputs, references, Preparation(compounds=True))
        assert printed(split) == case["multi_bleu_after_compound_split"]["line"]
        assert bleu(outputs, references).value == pytest.approx(case["sacrebleu_13a"], abs=1e-10)


def test_compounds(oracle: Callable[[str], Any]) -> None:
    cases = oracle("compound_split.json")
    assert split_compounds(case["input"] for case in cases) == [case["output"] for case in cases]


def test_compounds_over_bytes() -> None:
    # perl -pe 's/(\S)-(\S)/$1 ##AT##-##AT## $2/g' with no layer for UTF-8
    assert split_compounds(["a-é-b", "a-e-b"]) == [
        "a ##AT##-##AT## é ##AT##-##AT## b",
        "a ##AT##-##AT## e-b",
    ]


def test_the_tokenizer(oracle: Callable[[str], Any]) -> None:
    for case in oracle("moses_tokenizer.json"):
        for last_stop in (False, True):
            for escape, name in ((True, "tokenised"), (False, "tokenised_no_escape")):
                found = moses.tokenise(
                    [case["input"]], case["lang"], escape=escape, last_stop=last_stop
                )
                assert found == [case[name]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Herr Meier II.", "Herr Meier II ."),
        ("von 83 auf 26.", "von 83 auf 26 ."),
        ("bei Amazon.com.", "bei Amazon.com ."),
        ("und so weiter...", "und so weiter ..."),
        ("Das ist gut.", "Das ist gut ."),
        (".", "."),
        ("", ""),
    ],
)
def test_the_stop_of_the_last_word(before: str, after: str) -> None:
    assert moses.tokenise([before], "de", last_stop=True) == [after]


def test_control_characters_are_deleted() -> None:
    assert moses.tokenise(["a\x1cb\x01c d"], "de") == ["abc d"]


def test_an_unknown_language() -> None:
    with pytest.raises(DataError, match=r"^Moses has no rules for the language 'xx'; there are: "):
        moses.tokenise(["x"], "xx")


def test_the_length_of_the_papers_reference(shared: Path) -> None:
    """As fairseq published it for newstest2014 (reflen=64496), and as Moses of today has it."""
    lines = read(shared / "data" / "wmt-newstest" / "newstest2014.en-de.de")
    assert count(PAPER_EN_DE.references(lines)) == 64_496
    unsplit = Preparation("de", last_stop=True).references(lines)
    assert count(unsplit) == 63_086
    assert count(split_compounds(unsplit)) == 64_504


def count(lines: list[str]) -> int:
    """Their tokens."""
    return sum(len(line.split()) for line in lines)


def test_punctuation(oracle: Callable[[str], Any]) -> None:
    cases = oracle("unicode_punctuation.json")
    assert moses.replace_punctuation(case["input"] for case in cases) == [
        case["output"] for case in cases
    ]


def test_the_tokens_of_sacrebleu(oracle: Callable[[str], Any]) -> None:
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    separate = Tokenizer13a()
    for case in oracle("tokenizer_13a.json"):
        assert separate(case["input"]) == case["output"]


def test_the_whole_pipeline(oracle: Callable[[str], Any]) -> None:
    case = oracle("ende_pipeline.json")
    outputs, references, values = case["hypotheses"], case["references"], case["values"]
    as_script = Preparation("de", compounds=True, punctuation="outputs")
    both = Preparation("de", compounds=True, punctuation="both")
    unsplit = Preparation("de", punctuation="outputs")
    assert moses.replace_punctuation(outputs) == case["hypotheses_normalised"]
    assert unsplit.outputs(outputs) == case["hypotheses_tokenised"]
    assert as_script.outputs(outputs) == case["hypotheses_split"]
    assert unsplit.references(references) == case["references_tokenised"]
    assert as_script.references(references) == case["references_split"]
    assert both.references(references) == case["references_normalised_split"]
    normalised = Preparation("de", punctuation="both").references(references)
    assert normalised == case["references_normalised_tokenised"]
    for name, preparation in (
        ("as_script_reference_not_normalised", as_script),
        ("reference_normalised_too", both),
        ("tokenised_without_compound_split", unsplit),
    ):
        found = tokenised_bleu(outputs, [references], preparation)
        assert printed(found) == values[name]["line"]
    plain = bleu(outputs, [references])
    assert printed(plain) == values["multi_bleu_detok_13a"]["line"]
    assert plain.signature == of_this_version(values["sacrebleu_13a_detokenised"]["signature"])


def test_sacrebleu(oracle: Callable[[str], Any]) -> None:
    for case in oracle("sacrebleu_default.json"):
        references = sets(case["references"])
        found = bleu(case["hypotheses"], references, lowercase=case["lowercase"])
        assert found.value == pytest.approx(case["bleu"], abs=5e-5), case["name"]
        assert found.precisions == pytest.approx(case["precisions"], abs=5e-5)
        assert found.brevity_penalty == pytest.approx(case["bp"], abs=5e-5)
        assert (found.output_length, found.reference_length) == (case["hyp_len"], case["ref_len"])
        assert found.signature == of_this_version(case["signature"])


def of_this_version(signature: str) -> str:
    """A signature as the sacreBLEU that is installed would write it."""
    return signature.rpartition(":")[0] + f":{sacrebleu.__version__}"


def read(path: Path) -> list[str]:
    return read_lines(path)


SYSTEMS = ("ICL", "Online-A", "Online-W", "UF", "WeChat-AI")


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_published_scores_of_wmt21(shared: Path, system: str) -> None:
    folder = shared / "data" / "wmt21-outputs"
    outputs = read(folder / f"newstest2021.en-de.hyp.{system}.de")
    references = {name: read(folder / f"newstest2021.en-de.ref.{name}.de") for name in "ACD"}
    with (folder / "published-scores.tsv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["system"] == system]
    assert len(rows) == 8
    for row in rows:
        measure, _, against = row["metric"].partition("-")
        chosen = list(references.values()) if against == "all" else [references[against]]
        score = {"bleu": bleu, "chrf": chrf}[measure](outputs, chosen)
        assert score.value == pytest.approx(float(row["score"]), abs=1e-9), row["metric"]


@pytest.mark.parametrize(
    ("outputs", "references", "line"),
    [
        (
            "ted.sys1.eng",
            "ted.ref.eng",
            "BLEU = 22.44, 59.7/30.3/17.2/10.1 (BP=0.947, ratio=0.948, hyp_len=45672, "
            "ref_len=48183)",
        ),
        (
            "ted.sys2.eng",
            "ted.ref.eng",
            "BLEU = 24.04, 58.7/31.9/19.3/12.0 (BP=0.936, ratio=0.938, hyp_len=45207, "
            "ref_len=48183)",
        ),
        (
            "multeval.hyp.en",
            "multeval.ref.en",
            "BLEU = 18.54, 55.4/25.1/12.7/6.7 (BP=1.000, ratio=1.075, hyp_len=67461, "
            "ref_len=62774)",
        ),
    ],
)
def test_published_tokenised_bleu(shared: Path, outputs: str, references: str, line: str) -> None:
    folder = shared / "data" / "bleu-checks"
    found = tokenised_bleu(read(folder / outputs), [read(folder / references)])
    assert printed(found) == line


def test_worked_values() -> None:
    wrong = S.replace("harbour", "station")
    assert printed(tokenised_bleu([S], [[S]])) == (
        "BLEU = 100.00, 100.0/100.0/100.0/100.0 (BP=1.000, ratio=1.000, hyp_len=11, ref_len=11)"
    )
    assert tokenised_bleu([wrong], [[S]]).value == pytest.approx(70.17, abs=5e-3)
    assert tokenised_bleu(["yes .", "no way"], [["yes .", "no way"]]).value == 0
    longer_and_shorter = [["a b c d e f g h"], ["a b c d"]]
    assert tokenised_bleu(["a b c d e f"], longer_and_shorter).reference_length == 4


def test_all_right_is_exactly_100() -> None:
    assert tokenised_bleu([S], [[S]]).value == 100
    assert bleu([S], [[S]]).value == 100


def test_no_break_spaces_join() -> None:
    joined = S.replace("old ferry", "old\u00a0ferry")
    assert tokenised_bleu([joined], [[S]]).output_length == 10
    assert tokenised_bleu([joined], [[joined]]).value == 100


def test_names_and_signatures() -> None:
    version = f"version:{sacrebleu.__version__}"
    found = tokenised_bleu([S], [[S]], PAPER_EN_DE)
    assert found.name == "tokenised BLEU (Moses, compounds split)"
    assert found.signature == (
        f"nrefs:1|case:mixed|eff:no|tok:moses-de+compounds|smooth:none|{version}"
    )
    found = tokenised_bleu([S], [[S], [S]], lowercase=True)
    assert found.name == "tokenised BLEU (lines as given)"
    assert found.signature == f"nrefs:2|case:lc-ascii|eff:no|tok:none|smooth:none|{version}"
    late = Preparation("fr", punctuation="both", last_stop=True)
    assert late.name == "tokenised BLEU (Moses, punctuation replaced)"
    assert late.signature == "moses-fr+last-stop+punctuation-both"
    assert AS_GIVEN.outputs(["a-b"]) == ["a-b"]
    assert bleu([S], [[S]]).line == (
        "BLEU = 100.00, 100.0/100.0/100.0/100.0 (BP=1.000, ratio=1.000, hyp_len=11, ref_len=11)"
        f"  [nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}]"
    )
    assert chrf([S], [[S]]).line == (
        f"chrF2 = 100.00  [nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}]"
    )
    assert ter([S], [[S]]).line == (
        f"TER = 0.00  [nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|{version}]"
    )


words = st.lists(st.sampled_from(["a", "b", "c-d", "É", "x\u00a0y"]), max_size=9).map(" ".join)


@settings(max_examples=30)
@given(st.lists(st.tuples(words, words, words), min_size=1, max_size=5), st.randoms())
def test_bleu_is_of_the_corpus(rows: list[tuple[str, str, str]], draw: Any) -> None:
    """The order of the lines and of the sets of references doesn't matter."""
    outputs, first, second = map(list, zip(*rows, strict=True))
    expected = tokenised_bleu(outputs, [first, second])
    draw.shuffle(rows)
    outputs, first, second = map(list, zip(*rows, strict=True))
    assert tokenised_bleu(outputs, [second, first]) == expected
