"""Decoders: all that are offered, and the searches against what a table says is best."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any, Self

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqtrans.attend import maps
from seqtrans.constraint import asked, refused
from seqtrans.data import pad
from seqtrans.decoding import Decoder, Hypothesis, Request, admissible, length_penalty
from seqtrans.ensemble import Ensemble
from seqtrans.errors import SettingsError
from seqtrans.model import Transducer
from seqtrans.plugins import registry
from seqtrans.settings import fill
from seqtrans.task import Constraint, Vocabulary
from seqtrans.testing import TableScorer, check_decoder, random_table, tiny_model
from seqtrans.testing.parts import disturbed
from seqtrans_plugins import BeamSettings, DecoderSettings, SamplingSettings
from seqtrans_plugins.beam import Beam
from seqtrans_plugins.greedy import Greedy
from seqtrans_plugins.sampling import Sampling

EOS = 2


def beam(width: int = 4, alpha: float = 0.0, groups: int = 1, diversity: float = 0.0) -> Beam:
    return Beam(BeamSettings(width=width, alpha=alpha, groups=groups, diversity=diversity))


def penalised(alpha: float) -> Any:
    return lambda log_probability, length: log_probability / ((5 + length) / 6) ** alpha


def search(
    decoder: Decoder,
    scorer: TableScorer,
    limits: Sequence[int],
    count: int = 1,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """Sentences are the sources [3], [4], ..., as many as there are limits."""
    source, mask = pad([torch.tensor([3 + i]) for i in range(len(limits))])
    return decoder.decode(scorer, Request(source, mask, torch.tensor(limits), constraint, count))


@pytest.mark.parametrize("name", [o.component.name for o in registry().all("decoder")])
def test_keeps_what_the_engine_relies_on(name: str) -> None:
    check_decoder(registry().get("decoder", name))


@pytest.mark.parametrize("alpha", [-0.7, 0.0, 0.6, 1.5])
def test_a_beam_that_is_wide_enough_is_exhaustive(alpha: float) -> None:
    check_decoder(lambda: beam(1000, alpha), score=penalised(alpha), exhaustive=True)


@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_the_best_of_a_beam_does_not_depend_on_how_many_are_wanted(width: int) -> None:
    check_decoder(lambda: beam(width, 0.6), score=penalised(0.6))


def test_greedy_scores_are_log_probabilities() -> None:
    check_decoder(lambda: Greedy(DecoderSettings()), score=penalised(0))


class TableConstraint(Constraint):
    """What may come next is drawn for each sentence and prefix; the last symbol can only be eos."""

    def __init__(
        self, size: int, seed: int, limits: Sequence[int], rows: list[tuple[int, tuple[int, ...]]]
    ) -> None:
        self.size, self.seed, self.limits, self.rows = size, seed, limits, rows

    def symbols(self, sentence: int, prefix: tuple[int, ...]) -> list[int]:
        if len(prefix) + 1 >= self.limits[sentence]:
            return [EOS]
        draw = random.Random(f"{self.seed} {sentence} {prefix}")
        symbols = [EOS, *range(3, self.size)]
        return draw.sample(symbols, draw.randint(1, len(symbols)))

    def allowed(self) -> Tensor:
        allowed = torch.zeros(len(self.rows), self.size, dtype=torch.bool)
        for row, (sentence, prefix) in enumerate(self.rows):
            allowed[row, self.symbols(sentence, prefix)] = True
        return allowed

    def advance(self, tokens: Tensor) -> None:
        assert len(tokens) == len(self.rows)
        for row, token in enumerate(tokens.tolist()):
            sentence, prefix = self.rows[row]
            assert token in self.symbols(sentence, prefix)
            self.rows[row] = sentence, (*prefix, token)

    def select(self, rows: Tensor) -> Self:
        chosen = [self.rows[row] for row in rows.tolist()]
        return type(self)(self.size, self.seed, self.limits, chosen)


def plain_beam(
    scorer: TableScorer,
    source: tuple[int, ...],
    limit: int,
    width: int,
    alpha: float,
    count: int,
    symbols: Any,
) -> list[tuple[int, ...]]:
    """The rule of the beam for one sentence, in lists, and without stopping early."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[tuple[tuple[int, ...], float]] = []
    for length in range(1, limit + 1):
        extended = []
        for prefix, total in live:
            scores = torch.tensor(scorer.table(source, prefix)).log_softmax(-1).tolist()
            for symbol in symbols(prefix) if length < limit else {EOS} & set(symbols(prefix)):
                extended.append(((*prefix, symbol), total + scores[symbol]))
        extended.sort(key=lambda pair: -pair[1])
        extended = extended[:width]
        live = [pair for pair in extended if pair[0][-1] != EOS]
        finished += [
            (ids[:-1], total / ((5 + length) / 6) ** alpha)
            for ids, total in extended
            if ids[-1] == EOS
        ]
    finished.sort(key=lambda pair: -pair[1])
    return [ids for ids, _ in finished[:count]]


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(4, 6),
    limits=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    width=st.integers(1, 12),
    count=st.integers(1, 4),
    alpha=st.sampled_from([-1.0, 0.0, 0.6, 1.0, 3.0]),
    spread=st.sampled_from([0.1, 1.0, 4.0]),
    constrained=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_the_beam_is_its_plain_twin(
    size: int,
    limits: list[int],
    width: int,
    count: int,
    alpha: float,
    spread: float,
    constrained: bool,
    seed: int,
) -> None:
    scorer = TableScorer(Vocabulary(size), random_table(size, seed, spread))
    rows: list[tuple[int, tuple[int, ...]]] = [(i, ()) for i in range(len(limits))]
    constraint = TableConstraint(size, seed, limits, rows)
    found = search(
        beam(width, alpha), scorer, limits, min(count, width), constraint if constrained else None
    )
    for sentence, (hypotheses, limit) in enumerate(zip(found, limits, strict=True)):

        def symbols(prefix: tuple[int, ...], sentence: int = sentence) -> list[int]:
            return constraint.symbols(sentence, prefix) if constrained else [EOS, *range(3, size)]

        wanted = plain_beam(
            scorer, (3 + sentence,), limit, width, alpha, min(count, width), symbols
        )
        assert [hypothesis.ids for hypothesis in hypotheses] == wanted
        for hypothesis in hypotheses:
            score = penalised(alpha)(hypothesis.log_probability, len(hypothesis.ids) + 1)
            assert math.isclose(hypothesis.score, score)
            assert hypothesis.truncated == (len(hypothesis.ids) + 1 == limit)


def plain_groups(
    scorer: TableScorer,
    source: tuple[int, ...],
    limit: int,
    width: int,
    groups: int,
    diversity: float,
    count: int,
) -> list[tuple[int, ...]]:
    """The rule of diverse groups for one sentence, in lists, and without stopping early."""
    live: list[list[tuple[tuple[int, ...], float]]] = [[((), 0.0)] for _ in range(groups)]
    finished: list[list[tuple[tuple[int, ...], float]]] = [[] for _ in range(groups)]
    for length in range(1, limit + 1):
        taken: list[int] = []
        for group in range(groups):
            extended = []
            for prefix, total in live[group]:
                scores = torch.tensor(scorer.table(source, prefix)).log_softmax(-1).tolist()
                for symbol in [EOS, *range(3, len(scores))] if length < limit else [EOS]:
                    extended.append(((*prefix, symbol), total + scores[symbol]))
            extended.sort(key=lambda pair: diversity * taken.count(pair[0][-1]) - pair[1])
            extended = extended[: width // groups]
            taken = taken + [ids[-1] for ids, _ in extended]
            live[group] = [pair for pair in extended if pair[0][-1] != EOS]
            finished[group] += [(ids[:-1], total) for ids, total in extended if ids[-1] == EOS]
    chosen: dict[tuple[int, ...], float] = {}
    for group in range(groups):
        finished[group].sort(key=lambda pair: -pair[1])
    for turn in range(count):
        firsts = [some[turn] for some in finished if len(some) > turn]
        for ids, total in sorted(firsts, key=lambda pair: -pair[1]):
            if len(chosen) < count:
                chosen.setdefault(ids, total)
    return sorted(chosen, key=lambda ids: -chosen[ids])


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(4, 6),
    limits=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    groups=st.integers(2, 3),
    each=st.integers(1, 3),
    diversity=st.sampled_from([0.3, 1.0, 20.0]),
    count=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_diverse_groups_are_their_plain_twin(
    size: int,
    limits: list[int],
    groups: int,
    each: int,
    diversity: float,
    count: int,
    seed: int,
) -> None:
    scorer = TableScorer(Vocabulary(size), random_table(size, seed))
    width, count = groups * each, min(count, groups * each)
    found = search(beam(width, 0.0, groups, diversity), scorer, limits, count)
    for sentence, (hypotheses, limit) in enumerate(zip(found, limits, strict=True)):
        wanted = plain_groups(scorer, (3 + sentence,), limit, width, groups, diversity, count)
        assert [hypothesis.ids for hypothesis in hypotheses] == wanted


def test_groups_keep_what_the_engine_relies_on() -> None:
    check_decoder(lambda: beam(4, 0.6, 2, 0.7), score=penalised(0.6))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"width": 4, "groups": 3}, "decoder.width=4 can't be divided into decoder.groups=3"),
        ({"diversity": 0.5}, "decoder.diversity has no effect without decoder.groups above 1"),
        (
            {"groups": 2},
            "decoder.groups above 1 needs decoder.diversity above 0: all groups would be alike",
        ),
    ],
)
def test_settings_of_the_beam_that_contradict(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as error:
        fill(BeamSettings, values, "decoder")
    assert str(error.value) == f"decoder: {sentence}"


def plain_score(
    models: Sequence[Transducer], source: Tensor, ids: Sequence[int], alpha: float, weight: float
) -> float:
    """Of one output, by the whole target and its whole attention maps (Wu et al., 2016, eq. 14)."""
    target = torch.tensor([[1, *ids, EOS]])
    whole = torch.ones(1, len(source), dtype=torch.bool)
    total = 0.0
    each = [model(source[None], whole, target[:, :-1])[0].softmax(-1) for model in models]
    for at, id in enumerate(target[0, 1:].tolist()):
        total += math.log(sum(float(some[at, id]) for some in each) / len(each))
    looks = [maps(model, source, ids).cross[-1].mean(0).tolist() for model in models]
    covered = 0.0
    for position in range(len(source)):
        rows = [row[position] for some in looks for row in some]
        covered += math.log(min(sum(rows) / len(models), 1.0))
    return penalised(alpha)(total, len(ids) + 1) + weight * covered


def looking(seed: int, count: int = 1, size: int = 12, **changes: Any) -> list[Transducer]:
    """Tiny models whose weights are so large that they look at some of the source only."""
    torch.manual_seed(seed)
    models = [tiny_model(vocabulary=Vocabulary(size), **changes) for _ in range(count)]
    return [disturbed(disturbed(model)).eval() for model in models]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("count", [1, 3])
def test_coverage_is_that_of_the_whole_attention_maps(groups: int, count: int) -> None:
    """Of a batch, with prefixes that are read at once, and of an ensemble."""
    models = looking(6, count)
    scorer = models[0] if count == 1 else Ensemble(models)
    sources = [torch.randint(3, 12, (length,)) for length in (1, 9, 4)]
    source, mask = pad(sources)
    settings = {"width": 4, "alpha": 0.6, "groups": groups, "diversity": 0.5 * (groups - 1)}
    search = Beam(BeamSettings(coverage=0.4, **settings))
    lowered = 0
    with torch.inference_mode():
        for prefixes in (None, [[3, 4], [5, 6, 7], [8, 9, 8]]):
            limits = mask.sum(1) + 5
            constraint = asked(scorer.vocabulary, limits, None, prefixes)
            found = search.decode(scorer, Request(source, mask, limits, constraint, 3))
            for one, hypotheses in zip(sources, found, strict=True):
                for hypothesis in hypotheses:
                    wanted = plain_score(models, one, hypothesis.ids, 0.6, 0.4)
                    assert math.isclose(hypothesis.score, wanted, rel_tol=1e-4)
                    length = len(hypothesis.ids) + 1
                    without = penalised(0.6)(hypothesis.log_probability, length)
                    assert hypothesis.score <= without
                    lowered += hypothesis.score < without
    assert lowered > 5


def test_a_wide_beam_with_coverage_is_exhaustive() -> None:
    """So a search that stops early misses none that what it looks at last would have put first."""
    changed = 0
    outputs = [ids for length in range(4) for ids in itertools.product((3, 4), repeat=length)]
    for seed, (alpha, weight) in itertools.product(range(4), ((-1.0, 3.0), (0.6, 0.3))):
        models = looking(seed, size=5)
        one = torch.randint(3, 5, (4,))
        request = Request(*pad([one]), torch.tensor([4]), count=2)
        with torch.inference_mode():
            search = Beam(BeamSettings(width=20, alpha=alpha, coverage=weight))
            (found,) = search.decode(models[0], request)
            scores = {ids: plain_score(models, one, ids, alpha, weight) for ids in outputs}
            (without,) = beam(20, alpha).decode(models[0], request)
        assert [h.ids for h in found] == sorted(outputs, key=lambda ids: -scores[ids])[:2]
        changed += found[0].ids != without[0].ids
    assert changed


def test_what_is_not_looked_at_at_all_still_has_a_score() -> None:
    (model,) = looking(1)
    cross = model.decoder.layers[-1].cross
    assert cross is not None
    with torch.no_grad():
        cross.key.weight.mul_(1e4)
    source, mask = pad([torch.arange(3, 12)])
    search = Beam(BeamSettings(coverage=0.2))
    with torch.inference_mode():
        ((hypothesis,),) = search.decode(model, Request(source, mask, torch.tensor([3])))
    assert -8 * 0.2 * 70 < hypothesis.score < -0.2 * 69


def test_coverage_is_refused_where_there_are_no_looks() -> None:
    class Halved(torch.nn.Module):
        def __init__(self, shape: Any, vocabulary: Any) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(vocabulary.size, shape.width)

        def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            return self.embedding(source[:, ::2]), mask[:, ::2]

    both = Ensemble([*looking(1), *looking(2, source=Halved)])
    for scorer in (both, TableScorer(Vocabulary(12), random_table(12))):
        request = Request(*pad([torch.tensor([3, 4, 5])]), torch.tensor([3]))
        with pytest.raises(SettingsError) as error, torch.inference_mode():
            Beam(BeamSettings(coverage=0.2)).decode(scorer, request)
        assert str(error.value) == (
            "decoder.coverage needs one map of what each output symbol looks at in the source, "
            "which this model, or these models together, can't give; set decoder.coverage=0."
        )


def fitting(
    scorer: TableScorer,
    limit: int,
    rule: Any,
    prefix: tuple[int, ...],
    least: int,
    no_repeat: int,
) -> list[tuple[int, ...]]:
    """Every output that may come of what is asked, each wish yielding to those before it."""

    def open_to(ids: tuple[int, ...]) -> set[int]:
        symbols = {EOS, *range(3, scorer.vocabulary.size)}
        allowed = rule(ids) if rule is not None else symbols
        asked_of = []
        if len(ids) < len(prefix):
            asked_of.append({prefix[len(ids)]})
        if len(ids) < min(least, limit - 1):
            asked_of.append(symbols - {EOS})
        if no_repeat:
            runs = {ids[i : i + no_repeat] for i in range(len(ids) - no_repeat + 1)}
            before = ids[len(ids) - no_repeat + 1 :] if no_repeat > 1 else ()
            asked_of.append({s for s in symbols if (*before, s) not in runs})
        for wish in asked_of:
            allowed = allowed & wish or allowed
        return allowed if len(ids) + 1 < limit else allowed & {EOS}

    done, going = [], [()]
    while going:
        ids = going.pop()
        for symbol in open_to(ids):
            if symbol == EOS:
                done.append(ids)
            else:
                going.append((*ids, symbol))
    return done


@settings(max_examples=40, deadline=None)
@given(
    limit=st.integers(1, 5),
    alpha=st.sampled_from([-1.0, 0.0, 0.6, 2.0]),
    prefix=st.lists(st.integers(3, 5), max_size=4),
    least=st.integers(0, 6),
    no_repeat=st.integers(0, 3),
    constrained=st.booleans(),
    count=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_a_wide_beam_is_exhaustive_whatever_is_asked(
    limit: int,
    alpha: float,
    prefix: list[int],
    least: int,
    no_repeat: int,
    constrained: bool,
    count: int,
    seed: int,
) -> None:
    """So the rule by which it stops early is safe; and greedy search and samples keep to it all."""
    scorer = TableScorer(Vocabulary(6), random_table(6, seed))
    prefix = prefix[: limit - 1]
    rule = TableConstraint(6, seed, [limit], [(0, ())])
    if constrained and any(
        symbol not in rule.symbols(0, tuple(prefix[:at])) for at, symbol in enumerate(prefix)
    ):
        prefix = []
    own = (lambda ids: set(rule.symbols(0, ids))) if constrained else None
    may_be = fitting(scorer, limit, own, tuple(prefix), least, no_repeat)

    def constraint() -> Constraint | None:
        own = TableConstraint(6, seed, [limit], [(0, ())]) if constrained else None
        limits = torch.tensor([limit])
        return asked(scorer.vocabulary, limits, own, [prefix], least, no_repeat)

    ranked = sorted(
        may_be,
        key=lambda ids: -penalised(alpha)(scorer.log_probability((3,), ids), len(ids) + 1),
    )
    (found,) = search(beam(150, alpha), scorer, [limit], count, constraint())
    assert [hypothesis.ids for hypothesis in found] == ranked[:count]
    for decoder in (Greedy(DecoderSettings()), Sampling(SamplingSettings(seed=seed))):
        (one,) = search(decoder, scorer, [limit], 1, constraint())
        assert one[0].ids in may_be


def test_which_prefix_is_refused() -> None:
    constraint = TableConstraint(6, 1, [5, 5, 5], [(i, ()) for i in range(3)])
    firsts = [constraint.symbols(i, ()) for i in range(3)]
    right = [[next(s for s in some if s != EOS)] if set(some) - {EOS} else [] for some in firsts]
    cpu = torch.device("cpu")
    assert refused(constraint, right, cpu) is None
    assert refused(constraint, [[], [], []], cpu) is None
    at, wrong = next((i, s) for i in range(3) for s in range(3, 6) if s not in firsts[i])
    prefixes = [*right[:at], [wrong], *right[at + 1 :]]
    assert refused(constraint, prefixes, cpu) == (at, 0)
    assert constraint.rows == [(0, ()), (1, ()), (2, ())], "it is left alone"


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(4, 6),
    limits=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    constrained=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_greedy_is_a_beam_of_one(
    size: int, limits: list[int], constrained: bool, seed: int
) -> None:
    scorer = TableScorer(Vocabulary(size), random_table(size, seed))

    def constraint() -> TableConstraint | None:
        if not constrained:
            return None
        return TableConstraint(size, seed, limits, [(i, ()) for i in range(len(limits))])

    greedy = search(Greedy(DecoderSettings()), scorer, limits, 1, constraint())
    one = search(beam(1), scorer, limits, 1, constraint())
    for (first,), (second,) in zip(greedy, one, strict=True):
        assert first.ids == second.ids
        assert math.isclose(first.log_probability, second.log_probability)
        assert first.truncated == second.truncated


def test_greedy_and_a_beam_of_one_agree_at_a_dead_end() -> None:
    class OneSymbol(TableConstraint):
        def symbols(self, sentence: int, prefix: tuple[int, ...]) -> list[int]:
            return [EOS] if sentence else [3]

    scorer = TableScorer(Vocabulary(5), random_table(5))
    for decoder in (Greedy(DecoderSettings()), beam(1), beam(3), Sampling(SamplingSettings())):
        constraint = OneSymbol(5, 0, [3, 3], [(0, ()), (1, ())])
        (dead,), (done,) = search(decoder, scorer, [3, 3], 1, constraint)
        assert dead == Hypothesis((3, 3), -math.inf, -math.inf, truncated=True)
        assert done.ids == ()
        assert not done.truncated


def chain(*probabilities: float) -> TableScorer:
    """Symbol 3 follows with each of these probabilities in turn, else eos; at last eos alone."""

    def logits(source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        more = probabilities[len(prefix)] if len(prefix) < len(probabilities) else 1e-9
        return [-1e9, -1e9, math.log(1 - more), math.log(more)]

    return TableScorer(Vocabulary(4), logits)


def test_a_longer_hypothesis_that_wins_by_its_length_is_found() -> None:
    """(eos: 0.5) is finished first, and the longer one has a smaller probability, 0.49."""
    scorer = chain(0.5, 0.999, 0.999, 0.999, 0.999, 0.999)
    (plain,), (long,) = (search(beam(2, alpha), scorer, [10])[0] for alpha in (0.0, 1.0))
    assert plain.ids == ()
    assert long.ids == (3,) * 6
    assert long.log_probability < plain.log_probability
    assert long.score == pytest.approx(long.log_probability / 2)  # 7 symbols: (5 + 7) / 6
    (four,) = (search(beam(4, 1.0), scorer, [10], 4)[0],)
    assert four[0] == long
    assert len({hypothesis.ids for hypothesis in four}) == len(four)


def test_the_search_goes_on_as_long_as_a_live_hypothesis_can_win() -> None:
    """By the penalty that is mildest: the last length's if alpha > 0, the next one's if below."""
    late = chain(0.4, *[0.999] * 20)  # the one symbol longer ones score worse than the first
    assert search(beam(2, 1.0), late, [25])[0][0].ids == (3,) * 21
    soon = chain(0.55, 1e-9)  # at the limit it would score far worse
    assert search(beam(2, -1.0), soon, [25])[0][0].ids == (3,)


def test_the_search_stops_when_none_can_win() -> None:
    steps: list[int] = []

    class Counted(TableScorer):
        def advance(self, tokens: Tensor, state: Any) -> Tensor:
            steps.append(len(tokens))
            return super().advance(tokens, state)

    scorer = Counted(Vocabulary(4), chain(0.1, *[0.5] * 100).table)
    assert search(beam(2, 0.6), scorer, [9])[0][0].ids == ()
    assert len(steps) == 1  # log 0.1 / ((5 + 9) / 6)^0.6 is less than log 0.9


def test_a_negative_alpha_favours_the_short_ones() -> None:
    scorer = chain(0.9, 0.1)
    assert search(beam(2, 0.0), scorer, [9])[0][0].ids == (3,)
    assert search(beam(2, -20.0), scorer, [9])[0][0].ids == ()


def test_a_beam_wider_than_the_vocabulary() -> None:
    scorer = TableScorer(Vocabulary(6), random_table(6))
    (hypotheses,) = search(beam(10), scorer, [3], 10)
    assert len(hypotheses) == 10
    (few,) = search(beam(10), TableScorer(Vocabulary(4), random_table(4)), [3], 10)
    assert [len(hypothesis.ids) for hypothesis in sorted(few, key=lambda h: h.ids)] == [0, 1, 2]


def test_length_penalty_numbers() -> None:
    """((5 + length) / 6)^alpha: neutral at length 1 and at alpha 0."""
    assert [round(float(length_penalty(n, 0.6)), 4) for n in (1, 7, 10, 20)] == [
        1.0,
        1.5157,
        1.7329,
        2.3544,
    ]
    assert float(length_penalty(19, 1.0)) == 4.0
    assert float(length_penalty(100, 0.0)) == 1.0
    lengths = torch.tensor([1, 7])
    assert length_penalty(lengths, 1.0).tolist() == [1.0, 2.0]


def test_what_is_admissible() -> None:
    scores = torch.zeros(3, 5)
    last = torch.tensor([False, True, False])
    open_to = admissible(scores, Vocabulary(5), last, None).isfinite()
    assert open_to.int().tolist() == [[0, 0, 1, 1, 1], [0, 0, 1, 0, 0], [0, 0, 1, 1, 1]]
    moved = admissible(scores, Vocabulary(5, pad=4, bos=3, eos=0), last, None).isfinite()
    assert moved.int().tolist() == [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 0, 0]]


def test_searches_with_a_model_do_not_depend_on_the_batch() -> None:
    """Also with pace, whose bias runs over a memory that several rows share."""
    torch.manual_seed(5)
    paces = (False,) * 6 + (True,) * 6
    for pace in (None, 2):
        model = tiny_model(pace=pace, vocabulary=Vocabulary(12, paces=paces)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        sources = [torch.randint(3, 12, (length,)) for length in (1, 9, 4, 4, 7, 2, 6)]
        with torch.inference_mode():
            for decoder in (Greedy(DecoderSettings()), beam(4, 0.6)):
                source, mask = pad(sources)
                limits = mask.sum(1) + 6
                together = decoder.decode(model, Request(source, mask, limits))
                for row in range(len(sources)):
                    own, own_mask = pad([sources[row]])
                    (alone,) = decoder.decode(model, Request(own, own_mask, limits[[row]]))
                    assert alone[0].ids == together[row][0].ids
                    assert math.isclose(alone[0].score, together[row][0].score, rel_tol=1e-5)


def test_samples_are_drawn_from_the_distribution() -> None:
    scorer = TableScorer(Vocabulary(5), lambda source, prefix: [0.0, 0.0, 1.0, 2.0, 0.0])
    probability = torch.tensor([1.0, 2.0, 0.0]).softmax(0)  # eos, 3, 4; pad and bos are barred
    drawn = [
        search(Sampling(SamplingSettings(seed=seed)), scorer, [2])[0][0].ids for seed in range(600)
    ]
    for ids, wanted in zip([(), (3,), (4,)], probability.tolist(), strict=True):
        assert abs(drawn.count(ids) / len(drawn) - wanted) < 0.06


def test_sampling_of_the_one_best_is_greedy() -> None:
    scorer = TableScorer(Vocabulary(6), random_table(6, 3))
    greedy = search(Greedy(DecoderSettings()), scorer, [5] * 6)
    for cut in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-6}):
        drawn = search(Sampling(SamplingSettings(**cut)), scorer, [5] * 6)
        assert [h[0].ids for h in drawn] == [h[0].ids for h in greedy]


def test_top_p_keeps_the_smallest_set_that_holds_it() -> None:
    scores = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    for top_p, kept in ((0.4, 1), (0.6, 2), (0.9, 3), (1.0, 4)):
        sharpened = Sampling(SamplingSettings(top_p=top_p)).sharpen(scores)
        assert int(sharpened.isfinite().sum()) == kept


class Careless(Greedy):
    """Right in nothing that the kit looks for."""

    wrong = ""

    def decode(self, scorer: Any, request: Request) -> list[list[Hypothesis]]:
        found = super().decode(scorer, request)
        if self.wrong == "long":
            return [[Hypothesis((3,) * 9, -1.0, -1.0)] for _ in found]
        if self.wrong == "none":
            return [[] for _ in found]
        if self.wrong == "probability":
            return [[Hypothesis(h.ids, h.score - 1, h.score, h.truncated)] for (h,) in found]
        return found[::-1]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            "long",
            "With a limit of 4 symbols, eos included, (3, 3, 3, 3, 3, 3, 3, 3, 3) is too long.",
        ),
        ("none", "A decoder must give 1 to 1 hypotheses, not 0."),
        ("probability", "log_probability of "),
        ("order", "log_probability of "),
    ],
)
def test_the_kit_finds_what_is_wrong(wrong: str, sentence: str) -> None:
    def build() -> Careless:
        decoder = Careless(DecoderSettings())
        decoder.wrong = wrong
        return decoder

    with pytest.raises(AssertionError) as error:
        check_decoder(build)
    assert str(error.value).startswith(sentence)


def test_the_kit_finds_a_beam_that_is_too_narrow() -> None:
    with pytest.raises(AssertionError, match="Of all outputs the best are "):
        check_decoder(lambda: beam(1), exhaustive=True)
    with pytest.raises(AssertionError, match="must be the same as the formula's"):
        check_decoder(lambda: beam(4, 0.6), score=penalised(0.5))
