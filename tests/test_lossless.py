"""What is read several symbols at a time gives what is read one by one, in fewer calls."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_decoders import TableConstraint, chain
from torch import Tensor

from seqtrans import decoding
from seqtrans.constraint import asked
from seqtrans.data import pad
from seqtrans.decoding import Decoder, Hypothesis, Request, forced
from seqtrans.plugins import registry
from seqtrans.task import Constraint, Vocabulary
from seqtrans.testing import TINY, TableScorer, random_table, tiny_model
from seqtrans.testing.parts import disturbed
from seqtrans_plugins import BeamSettings, DecoderSettings, SpeculativeSettings
from seqtrans_plugins.beam import Beam
from seqtrans_plugins.greedy import Greedy
from seqtrans_plugins.speculative import Followers, Speculative
from seqtrans_tasks.parsing.constraint import TreeConstraint
from seqtrans_tasks.parsing.linear import Linearisation


class Counted:
    """A scorer that counts its calls and remembers how many tokens each read."""

    def __init__(self, scorer: Any) -> None:
        self.scorer, self.widths = scorer, []
        self.vocabulary, self.device = scorer.vocabulary, scorer.device
        self.longest = scorer.longest

    def start(self, source: Tensor, mask: Tensor) -> Any:
        return self.scorer.start(source, mask)

    def advance(self, tokens: Tensor, state: Any) -> Tensor:
        self.widths.append(tokens.shape[1])
        logits: Tensor = self.scorer.advance(tokens, state)
        return logits


def alike(found: list[list[Hypothesis]], wanted: list[list[Hypothesis]]) -> None:
    assert [[h.ids for h in some] for some in found] == [[h.ids for h in some] for some in wanted]
    for some, others in zip(found, wanted, strict=True):
        for one, other in zip(some, others, strict=True):
            assert one.truncated == other.truncated
            assert math.isclose(one.log_probability, other.log_probability, abs_tol=1e-4)
            assert math.isclose(one.score, other.score, abs_tol=1e-4)


def one_by_one(decoder: Decoder, scorer: Any, request: Request) -> list[list[Hypothesis]]:
    """What a decoder gives that reads nothing together because it is forced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "FORCED", 0)
        return decoder.decode(scorer, request)


SEARCHES = [
    Greedy(DecoderSettings()),
    Beam(BeamSettings(width=1)),
    Beam(BeamSettings(width=3, alpha=0.7)),
    Beam(BeamSettings(width=4, groups=2, diversity=0.5)),
]


@settings(max_examples=80, deadline=None)
@given(
    size=st.integers(4, 5),
    limits=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    prefixes=st.lists(st.lists(st.integers(3, 4), max_size=6), min_size=3, max_size=3),
    constrained=st.booleans(),
    count=st.integers(1, 3),
    search=st.sampled_from(SEARCHES),
    most=st.sampled_from([4, 1024]),
    seed=st.integers(0, 10**6),
)
def test_what_is_forced_is_read_together_with_the_same_outputs(
    size: int,
    limits: list[int],
    prefixes: list[list[int]],
    constrained: bool,
    count: int,
    search: Decoder,
    most: int,
    seed: int,
) -> None:
    """By prefixes, by a constraint whose every third step leaves one symbol, and by the limit."""
    scorer = Counted(TableScorer(Vocabulary(size), random_table(size, seed)))
    source, mask = pad([torch.tensor([3 + i]) for i in range(len(limits))])
    tensor = torch.tensor(limits)
    given = [p[: n - 1] if size > 4 else [] for p, n in zip(prefixes, limits, strict=False)]

    def request() -> Request:
        own: Constraint | None = None
        if constrained:
            own = TableConstraint(size, seed, limits, [(i, ()) for i in range(len(limits))])
        constraint = asked(scorer.vocabulary, tensor, own, None if constrained else given)
        return Request(source, mask, tensor, constraint, min(count, search.most or 1))

    wanted = one_by_one(search, scorer, request())
    assert set(scorer.widths) == {1}
    plain = len(scorer.widths)
    scorer.widths.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "FORCED", most)
        alike(search.decode(scorer, request()), wanted)
    assert len(scorer.widths) <= plain
    assert max(scorer.widths) <= 1 + most


@pytest.mark.parametrize("name", [offer.component.name for offer in registry().all("attention")])
def test_a_prefix_is_one_call(name: str) -> None:
    """With any attention, in a batch, as far as all sentences have a prefix."""
    component = registry().get("attention", name)
    torch.manual_seed(5)
    model = tiny_model(attention=lambda shape: component.make(component.settings(), shape))
    scorer = Counted(disturbed(model).eval())
    source, mask = pad([torch.randint(3, 12, (length,)) for length in (1, 9, 4)])
    limits = mask.sum(1) + 12
    prefixes = [[3, 7, 7, 4], [5] * 9, [6, 3, 11, 11, 8, 9]]

    def request() -> Request:
        constraint = asked(scorer.vocabulary, limits, None, prefixes)
        return Request(source, mask, limits, constraint)

    with torch.inference_mode():
        for search in SEARCHES:
            wanted = one_by_one(search, scorer, request())
            plain = len(scorer.widths)
            scorer.widths.clear()
            alike(search.decode(scorer, request()), wanted)
            assert scorer.widths[0] == 5, "bos and the shortest prefix"
            assert len(scorer.widths) <= plain - 4
            scorer.widths.clear()


@pytest.mark.parametrize("search", SEARCHES[:2])
def test_the_end_of_a_tree_is_one_call(search: Decoder) -> None:
    """Once all words are there, brackets can only be closed, each by its own label."""
    labels = Linearisation("brackets", "labelled", "tags", ("NP", "S", "VP"), ("N",), 3)

    def logits(source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        opening = dict.fromkeys(labels.opening_ids, 9.0)  # as many as may be
        return [opening.get(id, 0.1 * id) for id in range(labels.vocabulary().size)]

    scorer = Counted(TableScorer(labels.vocabulary(), logits))
    source, mask = pad([torch.tensor([3])])
    limits = torch.tensor([30])

    def request() -> Request:
        return Request(source, mask, limits, TreeConstraint(labels, [2], limits))

    wanted = one_by_one(search, scorer, request())
    symbols = len(wanted[0][0].ids) + 1
    assert len(scorer.widths) == symbols == 15  # 2 words in 6 constituents, and eos
    scorer.widths.clear()
    alike(search.decode(scorer, request()), wanted)
    assert scorer.widths == [1, 1, 1, 2, 1, 1, 8]  # each word is forced, and at last all closings


def test_what_is_forced() -> None:
    """Nothing without a constraint, and never eos; no more than may be held of all rows."""
    vocabulary, left = Vocabulary(6), torch.tensor([9, 9])
    nothing, allowed = forced(vocabulary, left, None)
    assert nothing.shape == (2, 0)
    assert allowed.int().tolist() == [[0, 0, 1, 1, 1, 1]] * 2
    constraint = asked(vocabulary, left, None, [[3, 4, 5], [5, 5]])
    found, allowed = forced(vocabulary, left, constraint)
    assert found.tolist() == [[3, 4], [5, 5]]
    assert allowed.int().tolist() == [[0, 0, 0, 0, 0, 1], [0, 0, 1, 1, 1, 1]]
    _, allowed = forced(vocabulary, left - 8, constraint)
    assert allowed.int().tolist() == [[0] * 6, [0, 0, 1, 0, 0, 0]], "at the limit only eos"
    many = torch.full((600,), 9)
    found, _ = forced(vocabulary, many, asked(vocabulary, many, None, [[3, 4, 5]] * 600))
    assert found.shape == (600, 1), "1024 symbols at most"


@settings(max_examples=80, deadline=None)
@given(
    size=st.integers(4, 6),
    limits=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    ahead=st.integers(1, 6),
    rows=st.sampled_from([1, 8]),
    share=st.sampled_from([0.0, 0.6]),
    copies=st.booleans(),
    constrained=st.booleans(),
    least=st.integers(0, 5),
    seed=st.integers(0, 10**6),
)
def test_outputs_are_those_of_greedy_search(
    size: int,
    limits: list[int],
    ahead: int,
    rows: int,
    share: float,
    copies: bool,
    constrained: bool,
    least: int,
    seed: int,
) -> None:
    """Twice in a row, since the second time the decoder has seen everything."""
    scorer = TableScorer(Vocabulary(size), random_table(size, seed))
    source, mask = pad([torch.tensor([3 + i, 3, 3, 3][: i + 1]) for i in range(len(limits))])
    tensor = torch.tensor(limits)

    def request() -> Request:
        own: Constraint | None = None
        if constrained:
            own = TableConstraint(size, seed, limits, [(i, ()) for i in range(len(limits))])
        return Request(source, mask, tensor, asked(scorer.vocabulary, tensor, own, least=least))

    search = Speculative(
        SpeculativeSettings(ahead=ahead, rows=rows, share=share, copy_source=copies)
    )
    wanted = Greedy(DecoderSettings()).decode(scorer, request())
    for _ in range(2):
        alike(search.decode(scorer, request()), wanted)


class Short(TableScorer):
    """One that knows few positions."""

    longest = 4


@settings(max_examples=80, deadline=None)
@given(
    limits=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    ahead=st.integers(1, 6),
    rows=st.sampled_from([1, 8]),
    share=st.sampled_from([0.0, 0.6]),
    copies=st.booleans(),
    constrained=st.booleans(),
    kind=st.sampled_from([TableScorer, Short]),
    seed=st.integers(0, 10**6),
    other=st.integers(0, 2),
)
def test_a_smaller_model_changes_no_output(
    limits: list[int],
    ahead: int,
    rows: int,
    share: float,
    copies: bool,
    constrained: bool,
    kind: type[TableScorer],
    seed: int,
    other: int,
) -> None:
    """Neither one that is always right nor one that hardly ever is."""
    scorer = TableScorer(Vocabulary(5), random_table(5, seed))
    source, mask = pad([torch.tensor([3 + i, 3, 3, 3][: i + 1]) for i in range(len(limits))])
    tensor = torch.tensor(limits)

    def request() -> Request:
        own: Constraint | None = None
        if constrained:
            own = TableConstraint(5, seed, limits, [(i, ()) for i in range(len(limits))])
        return Request(source, mask, tensor, own)

    search = Speculative(
        SpeculativeSettings(ahead=ahead, rows=rows, share=share, copy_source=copies)
    )
    search.models = (kind(Vocabulary(5), random_table(5, seed + other)),)
    alike(search.decode(scorer, request()), Greedy(DecoderSettings()).decode(scorer, request()))


@pytest.mark.parametrize("ahead", [1, 4, 7])
def test_a_model_that_is_always_right_saves_all_calls_but_one_in_so_many(ahead: int) -> None:
    table = chain(*[0.9] * 20).table
    scorer, smaller = (Counted(TableScorer(Vocabulary(4), table)) for _ in range(2))
    source, mask = pad([torch.tensor([3])])
    search = Speculative(SpeculativeSettings(ahead=ahead, share=0.3))
    search.models = (smaller,)
    ((found,),) = search.decode(scorer, Request(source, mask, torch.tensor([60])))
    assert found.ids == (3,) * 20
    assert len(scorer.widths) == math.ceil(21 / ahead)
    assert set(scorer.widths[:-1]) == {ahead}
    assert len(smaller.widths) <= 21


def test_a_model_guesses_no_further_than_it_is_sure() -> None:
    table = chain(*[0.9] * 20).table  # 0.9^4 is above 0.6, 0.9^5 below
    scorer, smaller = (Counted(TableScorer(Vocabulary(4), table)) for _ in range(2))
    source, mask = pad([torch.tensor([3])])
    search = Speculative(SpeculativeSettings(ahead=9, share=0.6))
    search.models = (smaller,)
    search.decode(scorer, Request(source, mask, torch.tensor([60])))
    assert max(scorer.widths) == 5  # one that is certain, and four


@pytest.mark.parametrize("name", [offer.component.name for offer in registry().all("attention")])
def test_a_smaller_model_with_any_attention(name: str) -> None:
    """Its own state need not be taken back, so this may be any."""
    component = registry().get("attention", name)
    torch.manual_seed(2)
    paces = (False,) * 6 + (True,) * 6
    with torch.inference_mode():
        model = disturbed(tiny_model()).eval()
        smaller = tiny_model(
            attention=lambda shape: component.make(component.settings(), shape),
            decoder_layers=1,
            pace=2,
            vocabulary=Vocabulary(12, paces=paces),
        )
        search = Speculative(SpeculativeSettings(share=0.0, ahead=4, rows=8))
        search.models = (disturbed(smaller).eval(),)
        compare(model, search)
        search.models = (model,)
        compare(model, search)


def test_no_guess_lies_beyond_the_last_position() -> None:
    """Neither the model's own nor the smaller one's; and sources may be too long for that."""
    component = registry().get("position", "learned")

    def knowing(limit: int) -> Any:
        settings = component.settings(limit=limit)
        return disturbed(tiny_model(position=lambda shape: component.make(settings, shape))).eval()

    torch.manual_seed(8)
    model = knowing(12)
    source, mask = pad([torch.randint(3, 12, (length,)) for length in (9, 6)])
    request = Request(source, mask, torch.tensor([12, 11]))
    with torch.inference_mode():
        wanted = Greedy(DecoderSettings()).decode(model, request)
        assert wanted[0][0].truncated
        for models in ((), (model,), (knowing(10),), (knowing(7),)):
            search = Speculative(SpeculativeSettings(share=0.0, ahead=8, rows=2))
            search.models = models
            for _ in range(2):
                alike(search.decode(model, request), wanted)


def test_what_was_seen_before_takes_few_calls() -> None:
    limits = torch.tensor([30, 20])
    source, mask = pad([torch.tensor([3]), torch.tensor([4])])

    def logits(source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        return [0.0, 0.0, 0.0, 9.0 * (len(prefix) % 2), 8.0]

    scorer = Counted(TableScorer(Vocabulary(5), logits))
    search = Speculative(SpeculativeSettings(ahead=8, share=0.2, rows=2))
    wanted = Greedy(DecoderSettings()).decode(scorer, Request(source, mask, limits))
    plain = len(scorer.widths)
    for times in (4, 5):
        scorer.widths.clear()
        alike(search.decode(scorer, Request(source, mask, limits)), wanted)
        assert times * len(scorer.widths) <= plain + times
        assert max(scorer.widths) <= 8
    alone = Speculative(SpeculativeSettings(ahead=1, rows=2))
    scorer.widths.clear()
    alike(alone.decode(scorer, Request(source, mask, limits)), wanted)
    # Nothing is guessed; the last symbol of the shorter one is forced by its limit.
    assert len(scorer.widths) <= plain


def test_what_is_forced_is_read_at_once() -> None:
    scorer = Counted(TableScorer(Vocabulary(6), random_table(6)))
    prefix = [3, 4, 5, 5, 4, 3, 3]
    limits = torch.tensor([12])
    source, mask = pad([torch.tensor([3])])

    def request() -> Request:
        return Request(source, mask, limits, asked(scorer.vocabulary, limits, None, [prefix]))

    wanted = Greedy(DecoderSettings()).decode(scorer, request())
    assert list(wanted[0][0].ids[:7]) == prefix
    scorer.widths.clear()
    alike(Speculative(SpeculativeSettings(ahead=1, rows=2)).decode(scorer, request()), wanted)
    assert scorer.widths[0] == 8  # bos and the prefix
    assert set(scorer.widths[1:]) <= {1, 2}  # two where the limit forces eos


@pytest.mark.parametrize("name", [offer.component.name for offer in registry().all("attention")])
def test_with_any_attention(name: str) -> None:
    """One whose state can't be taken back only reads what is forced."""
    component = registry().get("attention", name)
    torch.manual_seed(2)
    with torch.inference_mode():
        model = tiny_model(attention=lambda shape: component.make(component.settings(), shape))
        search = Speculative(SpeculativeSettings(share=0.0, ahead=4, rows=8))
        compare(disturbed(model).eval(), search)


@pytest.mark.parametrize("reach", [1, 2, 5])
def test_with_a_cache_that_forgets(reach: int) -> None:
    from seqtrans.testing.parts import Nearby

    class Near(Nearby):
        pass

    Near.reach = reach
    torch.manual_seed(3)
    with torch.inference_mode():
        model = disturbed(tiny_model(attention=Near)).eval()
        compare(model, Speculative(SpeculativeSettings(share=0.0, ahead=6, rows=8)))


def test_with_pace() -> None:
    torch.manual_seed(4)
    paces = (False,) * 6 + (True,) * 6
    with torch.inference_mode():
        model = tiny_model(pace=2, vocabulary=Vocabulary(12, paces=paces))
        compare(
            disturbed(model).eval(), Speculative(SpeculativeSettings(share=0.0, ahead=4, rows=8))
        )


def compare(model: Any, search: Speculative) -> None:
    """Both give the same, in batches and alone, and what was guessed was sometimes right."""
    assert TINY.width == 16
    sources = [torch.randint(3, 12, (length,)) for length in (1, 9, 4, 7)]
    for some in (sources, sources[1:2]):
        source, mask = pad(some)
        request = Request(source, mask, mask.sum(1) + 12)
        scorer = Counted(model)
        wanted = Greedy(DecoderSettings()).decode(scorer, request)
        plain = len(scorer.widths)
        for _ in range(3):
            scorer.widths.clear()
            alike(search.decode(scorer, request), wanted)
            assert len(scorer.widths) <= plain


def test_the_most_frequent_follower_is_guessed() -> None:
    followers = Followers(1, 2)
    assert followers.guess([7]) is None
    followers.learn([3, 4, 5, 4, 6, 4, 6])
    assert followers.guess([9, 4]) == (6, 2 / 4), "what follows it may yet be something new"
    assert followers.guess([3, 4]) == (5, 1 / 2), "after the longer context"
    assert followers.guess([5]) == (4, 1 / 2)
