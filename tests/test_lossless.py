"""The accelerated decoder gives what greedy search gives, in fewer calls."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_decoders import TableConstraint
from torch import Tensor

from seqtrans.constraint import asked
from seqtrans.data import pad
from seqtrans.decoding import Hypothesis, Request
from seqtrans.plugins import registry
from seqtrans.task import Constraint, Vocabulary
from seqtrans.testing import TINY, TableScorer, random_table, tiny_model
from seqtrans.testing.parts import disturbed
from seqtrans_plugins import DecoderSettings, SpeculativeSettings
from seqtrans_plugins.greedy import Greedy
from seqtrans_plugins.speculative import Followers, Speculative


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
    assert [h.ids for (h,) in found] == [h.ids for (h,) in wanted]
    assert [h.truncated for (h,) in found] == [h.truncated for (h,) in wanted]
    for (one,), (other,) in zip(found, wanted, strict=True):
        assert math.isclose(one.log_probability, other.log_probability, abs_tol=1e-4)


@settings(max_examples=80, deadline=None)
@given(
    size=st.integers(4, 6),
    limits=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    draft=st.integers(1, 6),
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
    draft: int,
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
        SpeculativeSettings(draft=draft, rows=rows, share=share, copy_source=copies)
    )
    wanted = Greedy(DecoderSettings()).decode(scorer, request())
    for _ in range(2):
        alike(search.decode(scorer, request()), wanted)


def test_what_was_seen_before_takes_few_calls() -> None:
    limits = torch.tensor([30, 20])
    source, mask = pad([torch.tensor([3]), torch.tensor([4])])

    def logits(source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        return [0.0, 0.0, 0.0, 9.0 * (len(prefix) % 2), 8.0]

    scorer = Counted(TableScorer(Vocabulary(5), logits))
    search = Speculative(SpeculativeSettings(draft=8, share=0.2, rows=2))
    wanted = Greedy(DecoderSettings()).decode(scorer, Request(source, mask, limits))
    plain = len(scorer.widths)
    for times in (4, 5):
        scorer.widths.clear()
        alike(search.decode(scorer, Request(source, mask, limits)), wanted)
        assert times * len(scorer.widths) <= plain + times
        assert max(scorer.widths) <= 8
    alone = Speculative(SpeculativeSettings(draft=1, rows=2))
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
    alike(Speculative(SpeculativeSettings(draft=1, rows=2)).decode(scorer, request()), wanted)
    assert scorer.widths[0] == 8  # bos and the prefix
    assert set(scorer.widths[1:]) <= {1, 2}  # two where the limit forces eos


@pytest.mark.parametrize("name", [offer.component.name for offer in registry().all("attention")])
def test_with_any_attention(name: str) -> None:
    """One whose state can't be taken back only reads what is forced."""
    component = registry().get("attention", name)
    torch.manual_seed(2)
    with torch.inference_mode():
        model = tiny_model(attention=lambda shape: component.make(component.settings(), shape))
        search = Speculative(SpeculativeSettings(share=0.0, draft=4, rows=8))
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
        compare(model, Speculative(SpeculativeSettings(share=0.0, draft=6, rows=8)))


def test_with_pace() -> None:
    torch.manual_seed(4)
    paces = (False,) * 6 + (True,) * 6
    with torch.inference_mode():
        model = tiny_model(pace=2, vocabulary=Vocabulary(12, paces=paces))
        compare(
            disturbed(model).eval(), Speculative(SpeculativeSettings(share=0.0, draft=4, rows=8))
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
