"""The tagger knows words, guesses the others by their looks, and keeps punctuation what it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from seqtrans.errors import DataError
from seqtrans_tasks.parsing.linear import Linearisation
from seqtrans_tasks.parsing.tags import DELETED_TAGS, SIGNS, Tagger
from seqtrans_tasks.parsing.tree import Leaf, Node, Tree, leaves, read_trees


def tree(*tagged: str) -> Tree:
    """A flat tree over words written as word_TAG."""
    pairs = [item.rsplit("_", 1) for item in tagged]
    return Tree("TOP", [Leaf(tag, word) for word, tag in pairs])


TREES: list[Node] = [
    tree("The_DT", "walking_NN", ",_,", "walking_VBG", "walking_VBG"),
    tree(*(f"{verb}ing_VBG" for verb in ("jump", "sleep", "wad", "fly", "div", "feed", "nest"))),
    tree(*(f"{bird}s_NNS" for bird in ("owl", "heron", "crane", "rook", "gull", "tern", "stork"))),
    tree(*(f"{name}_NNP" for name in ("Lund", "Oslo", "Bonn", "Rome", "Bath"))),
    tree(*(f"{year}_CD" for year in range(1984, 1990)), "--_:", "--_:", "Wa_,", "Wa_NNP", "Wa_NNP"),
    tree(*(f"well-{how}_JJ" for how in ("known", "meant", "kept", "read", "fed")), "$_$", "~_:"),
    tree(*["owls_NNS", "'_POS", "nest_NN"] * 5, "it_PRP", "the_DT", "._."),
    tree(*["heron_NN", "'_''", "nest_NN"] * 6),
    tree(*["comma_NN"] * 300, "comma_,", "comma_,"),
]


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Tagger.learn(TREES)


@pytest.mark.parametrize(
    ("words", "tags"),
    [
        ("The walking owls", "DT VBG NNS"),
        ("the swimming eagles", "DT VBG NNS"),
        ("The Herons", "DT NNP"),
        ("Herons sleeping", "NNS VBG"),  # first in its sentence, it may be known in small letters
        ("it Berlin", "PRP NNP"),
        ("2001 ill-bred", "CD JJ"),
        ("-- ; ? -LRB-", ": : . -LRB-"),
        ("Wa $ comma", "NNP $ NN"),
        ("owls ' nest", "NNS POS NN"),
        ("rooks ' comma", "NNS POS NN"),
        ("nest ' comma", "NN '' NN"),
        ("$ ' $", "$ '' $"),  # between neighbours never seen, the most frequent tag
        ("", ""),
    ],
)
def test_tags_words(tagger: Tagger, words: str, tags: str) -> None:
    assert tagger.tag(words.split()) == tags.split()


def test_endings_never_suggest_punctuation(tagger: Tagger) -> None:
    unknown = ["x~", "~~", "Wa-", "$5", "a,", ".x", "--x"]
    assert not {",", ":", "``", "''", ".", "-LRB-", "-RRB-", "$", "#"} & set(tagger.tag(unknown))


def allowed_tags(tagger: Tagger, word: str, form: Linearisation) -> set[str]:
    row = tagger.choices(["owls", word], form)[1]
    assert not row[: form.leaf_ids.start].any()
    assert not row[form.leaf_ids.stop :].any()
    return {tag for tag, at in zip(form.tags, form.leaf_ids, strict=True) if row[at]}


def test_punctuation_may_only_have_its_own_tags(tagger: Tagger) -> None:
    form = Linearisation.learn(TREES, leaves="tags")
    others = set(form.tags) - DELETED_TAGS
    expected = {
        ",": {","},
        "--": {":"},
        "~": {":"},  # seen once only, but never as anything else
        "'": {"POS", "''"},
        ";": {":"},  # never seen, but a sign
        "Wa": others,  # seen once as a comma, which is taken as a mistake
        "comma": others,  # seen more than once as a comma, but hardly ever
        "$": others,
        "owls": others,
        "unheard-of": others,
    }
    assert {word: allowed_tags(tagger, word, form) for word in expected} == expected


def test_a_word_always_has_a_choice(tagger: Tagger) -> None:
    form = Linearisation.learn([tree("owls_NNS", "sleep_VBP")], leaves="tags")
    assert allowed_tags(tagger, ",", form) == {"NNS", "VBP"}
    only_signs = Linearisation.learn([tree(",_,")], leaves="tags")
    assert allowed_tags(tagger, "owls", only_signs) == {","}


def test_leaves_that_are_words_are_all_allowed(tagger: Tagger) -> None:
    form = Linearisation.learn(TREES, leaves="words")
    choices = tagger.choices([",", "owls"], form)
    assert choices.dtype == torch.bool
    assert choices.shape == (2, form.vocabulary().size)
    assert choices[:, form.leaf_ids[0]].all()
    assert tagger.choices([], form).shape == (0, form.vocabulary().size)


def test_the_constraint_gives_words_only_their_tags(tagger: Tagger) -> None:
    form = Linearisation.learn(TREES, leaves="tags")
    sentences = [["owls", ",", "'", "--"], [".", "it"]]
    choices = [tagger.choices(words, form) for words in sentences]
    constraint = form.constraint([4, 2], torch.tensor([40, 40]), choices)
    constraint = constraint.select(torch.tensor([0] * 20 + [1] * 20))
    generator = torch.Generator().manual_seed(0)
    written = []
    for _ in range(40):
        tokens = torch.multinomial(constraint.allowed().double(), 1, generator=generator)[:, 0]
        constraint.advance(tokens)
        written.append(tokens)
    for row, ids in enumerate(torch.stack(written, dim=1).tolist()):
        words = sentences[row // 20]
        decoded, repairs = form.decode(ids, words)
        assert not repairs
        for leaf in leaves(decoded):
            assert (leaf.tag in DELETED_TAGS) == (leaf.word in SIGNS) or leaf.tag == "POS"


def test_json_gives_the_same_tagger(tagger: Tagger) -> None:
    assert Tagger.from_json(json.loads(json.dumps(tagger.as_json()))) == tagger


def test_json_of_something_else_is_refused(tagger: Tagger) -> None:
    with pytest.raises(DataError) as error:
        Tagger.from_json({**tagger.as_json(), "endings": [1]})
    assert str(error.value) == "the tagger's 'endings' is [1], but it must be an object."


def test_trees_in_another_order_give_the_same_tagger(tagger: Tagger) -> None:
    again = Tagger.learn(list(reversed(TREES)))
    assert json.dumps(again.as_json()) == json.dumps(tagger.as_json())


def test_no_trees_at_all_are_refused() -> None:
    with pytest.raises(DataError) as error:
        Tagger.learn([])
    assert str(error.value) == (
        "there are no training trees, but tags are learned from their leaves."
    )


def test_importing_it_leaves_torch_alone() -> None:
    code = "import sys, seqtrans_tasks.parsing.tags; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture(scope="module")
def wsj(shared: Path) -> dict[str, list[Any]]:
    """Training and development trees, with their traces: those are no words for this."""
    folder = shared / "data" / "wsj-sample"
    splits: dict[str, list[Any]] = {}
    for split in ("train", "dev"):
        splits[split] = []
        for name in (folder / f"split-{split}.txt").read_text().split():
            for found in read_trees((folder / name).read_text(encoding="utf-8"), name):
                words = [leaf for leaf in leaves(found) if leaf.tag != "-NONE-"]
                splits[split].append(Tree("TOP", list(words)))
    return splits


def test_real_punctuation_is_told_by_the_word(wsj: dict[str, list[Any]]) -> None:
    learned = Tagger.learn(wsj["train"])
    words = right = differing = 0
    for sentence in wsj["dev"]:
        gold = [leaf.tag for leaf in sentence.children]
        found = learned.tag([leaf.word for leaf in sentence.children])
        for one, other in zip(gold, found, strict=True):
            words += 1
            right += one == other
            differing += (one in DELETED_TAGS) != (other in DELETED_TAGS)
    assert words > 6000
    assert differing / words < 0.0005
    assert right / words > 0.92


def test_choices_leave_room_for_gold_punctuation(wsj: dict[str, list[Any]]) -> None:
    learned = Tagger.learn(wsj["train"])
    form = Linearisation.learn(wsj["train"], leaves="tags")
    for sentence in wsj["dev"]:
        choices = learned.choices([leaf.word for leaf in sentence.children], form)
        for at, leaf in enumerate(sentence.children):
            row = choices[at, form.leaf_ids.start : form.leaf_ids.stop]
            kinds = {form.tags[tag] in DELETED_TAGS for tag in row.nonzero()[:, 0].tolist()}
            assert (leaf.tag in DELETED_TAGS) in kinds
