"""Models that write all symbols at once: what they learn, how they are decoded, what is refused."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from launching import finish, metrics, train, words
from test_training import opened, weights
from torch import Tensor

import seqtrans
from seqtrans import assembly
from seqtrans.commands import run as command
from seqtrans.constraint import Wish, asked
from seqtrans.costs import Vocabularies, parameters
from seqtrans.data import collate, pad
from seqtrans.decoding import Hypothesis, Request
from seqtrans.engine import Engine
from seqtrans.ensemble import Ensemble
from seqtrans.errors import CheckpointError, DataError, SettingsError
from seqtrans.loss import Masked, drawn, smoothed_loss
from seqtrans.model import Length, Transducer
from seqtrans.plugins import BUILTIN, Registry
from seqtrans.resolving import packaged, resolve
from seqtrans.settings import parse_words
from seqtrans.task import Constraint, Vocabulary
from seqtrans.testing import NoRepeats, check_decoder, check_model, random_table, tiny_model
from seqtrans.testing.parts import disturbed
from seqtrans.testing.tables import Whole, WholeTableScorer
from seqtrans_plugins import MaskPredictSettings
from seqtrans_plugins.mask_predict import MaskPredict

PAD, BOS, EOS = 0, 1, 2
AT_ONCE = (
    "model.causal=no",
    "training.objective=masked",
    "training.validation_decoder=mask_predict",
    "decoder=mask_predict",
)


def decoder(iterations: int = 10, lengths: int = 5) -> MaskPredict:
    return MaskPredict(MaskPredictSettings(iterations=iterations, lengths=lengths))


def model(**changes: Any) -> Transducer:
    torch.manual_seed(7)
    found: Transducer = disturbed(tiny_model(causal=False, **changes)).eval()
    return found


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Sources, their mask, and targets of 4, 0 and 2 symbols, with eos and padding."""
    source, mask = pad([torch.tensor(ids) for ids in ([3, 4, 5, 6], [7], [8, 9])])
    target, _ = pad([torch.tensor(ids) for ids in ([6, 5, 4, 3, EOS], [EOS], [9, 8, EOS])])
    return source, mask, target


# --- what is learnt -------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_learns_to_reverse(tmp_path: Path) -> None:
    argv = words(
        tmp_path,
        *AT_ONCE,
        *("model.width=32", "model.inner=64", "model.dropout=0", "data.tokens=500"),
        *("task.fresh=yes", "task.count=600", "task.longest=4", "task.dev=40", "decoder.extra=3"),
        steps=300,
        schedule="constant",
        lr=0.005,
        warmup=30,
        validate_every=300,
        log_every=50,
    )
    assert train(argv) == 0
    (record,) = metrics(tmp_path, "validation")
    assert record["digits"] > 95


@pytest.mark.parametrize("more", [(), ("position=t5", "attention=restricted", "attention.reach=2")])
def test_a_run_that_was_stopped_ends_like_one_that_was_not(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    """Masks, too, are a function of seed, update and part alone."""
    for folder, stops in (("whole", [6]), ("stopped", [2, 5, 6])):
        for steps in stops:
            argv = words(
                tmp_path / folder,
                *AT_ONCE,
                *more,
                steps=steps,
                accumulation=2,
                validate_every=6,
                save_every=1,
            )
            assert train(argv) == 0
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert weights(whole / "step-6") == weights(stopped / "step-6")
    assert metrics(whole, "training") == metrics(stopped, "training")
    assert metrics(whole, "validation")[-1] == metrics(stopped, "validation")[-1]


@pytest.mark.slow
def test_two_processes_train_it_together(tmp_path: Path) -> None:
    """Also where an update has an example for one of them alone."""
    argv = words(tmp_path, *AT_ONCE, "task.count=3", "data.tokens=8", steps=4, validate_every=4)
    finish(argv, tmp_path / "log", world=2)
    assert len(metrics(tmp_path, "validation")) == 1


def test_the_loss_is_of_what_is_hidden_and_of_the_length() -> None:
    learner, (source, mask, target) = model(), batch()
    torch.manual_seed(3)
    found = Masked(learner, 0.1, "others")(source, mask, torch.zeros(0), target)
    torch.manual_seed(3)
    hidden = drawn(target > EOS)
    read = torch.where(hidden, BOS, target)
    logits = learner(source, mask, read)
    counted = torch.where(hidden, target, PAD)
    wanted = smoothed_loss(logits, counted, PAD, 0.1, "others")
    lengths = learner.start(source, mask).lengths
    assert lengths is not None
    for row, length in enumerate((4, 0, 2)):
        wanted = wanted - lengths[row, length]
    assert torch.allclose(found, wanted)
    gradients = torch.autograd.grad(found, list(learner.parameters()), allow_unused=True)
    assert all(g is not None and bool(g.isfinite().all()) for g in gradients)


def test_an_empty_part_has_loss_0_and_finite_gradients(tmp_path: Path) -> None:
    with opened(tmp_path, *AT_ONCE) as found:
        loss = found.loss(collate(found.corpus, [], found.specials))
        torch.autograd.backward(loss)
        assert loss.item() == 0
        assert all(p.grad is not None and not p.grad.any() for p in found.model.parameters())


def test_the_loss_of_dev_is_the_same_each_time(tmp_path: Path) -> None:
    with opened(tmp_path, *AT_ONCE) as found:
        losses = set()
        for seed in range(3):
            torch.manual_seed(seed)
            losses.add(found.validation.loss())
        assert len(losses) == 1


@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5), seed=st.integers(0, 999))
@settings(max_examples=50, deadline=None)
def test_only_symbols_are_hidden_and_always_some(lengths: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    symbols = torch.arange(7) < torch.tensor(lengths)[:, None]
    hidden = drawn(symbols)
    assert not (hidden & ~symbols).any()
    for length, number in zip(lengths, hidden.sum(1).tolist(), strict=True):
        assert min(length, 1) <= number <= length


def test_each_number_and_each_place_is_as_likely() -> None:
    torch.manual_seed(1)
    hidden = drawn(torch.ones(20_000, 4, dtype=torch.bool))
    numbers = hidden.sum(1).bincount(minlength=5)[1:] / len(hidden)
    assert torch.allclose(numbers, torch.full((4,), 0.25), atol=0.02)
    assert torch.allclose(hidden.float().mean(0), torch.full((4,), 2.5 / 4), atol=0.02)


# --- the model ------------------------------------------------------------------------------------


def test_padding_of_targets_is_invisible_and_reading_leaves_the_state_alone() -> None:
    learner, (source, mask, target) = model(), batch()
    with torch.no_grad():
        state = learner.start(source, mask)
        together = learner.advance(target, state)
        assert torch.equal(learner.advance(target, state), together)
        for row, length in enumerate((5, 1, 3)):
            alone = learner.advance(
                target[row : row + 1, :length], learner.start(source[[row]], mask[[row]])
            )
            assert torch.allclose(together[row, :length], alone[0], atol=1e-5)


def test_recomputing_changes_nothing() -> None:
    learner = model(dropout=0.2).train()
    found = []
    for learner.recompute in (False, True):
        torch.manual_seed(5)
        source, mask, target = batch()
        loss = Masked(learner, 0.1)(source, mask, target, target)
        found.append((loss, *torch.autograd.grad(loss, list(learner.parameters()))))
    for plain, again in zip(*found, strict=True):
        assert torch.equal(plain, again)


def test_lengths_are_a_distribution_around_the_source() -> None:
    length = disturbed(Length(8, 128))
    memory = torch.randn(3, 300, 8)
    mask = torch.arange(300) < torch.tensor([300, 0, 20])[:, None]
    lengths = length(memory, mask)
    assert torch.allclose(lengths.exp().sum(1), torch.ones(3))
    told = [row.isfinite().nonzero()[:, 0].tolist() for row in lengths]
    assert told == [list(range(172, 429)), list(range(129)), list(range(149))]
    assert torch.allclose(length(memory[2:, :20], mask[2:, :20])[0], lengths[2, :149])


def test_a_length_out_of_reach_counts_as_the_utmost() -> None:
    learner = model()
    source, mask = torch.full((1, 2), 5), torch.ones(1, 2, dtype=torch.bool)
    lengths = learner.start(source, mask).lengths
    assert lengths is not None
    target = torch.tensor([[3] * 200 + [EOS]])
    torch.manual_seed(1)
    loss = Masked(learner)(source, mask, target, target)
    torch.manual_seed(1)
    hidden = drawn(target > EOS)
    logits = learner(source, mask, torch.where(hidden, BOS, target))
    wanted = smoothed_loss(logits, torch.where(hidden, target, PAD), PAD) - lengths[0, 2 + 128]
    assert torch.allclose(loss, wanted)


def test_left_to_right_models_have_no_length() -> None:
    learner = tiny_model()
    assert learner.length is None
    assert learner.start(*batch()[:2]).lengths is None


def test_the_model_keeps_what_the_engine_relies_on() -> None:
    check_model(lambda: tiny_model(causal=False))


def test_its_weights_are_counted() -> None:
    learner = tiny_model(causal=False, tie="all")
    count = parameters(learner.shape, Vocabularies(12, 12, shared=True))
    assert count.total == sum(parameter.numel() for parameter in learner.parameters())


# --- decoding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("iterations", [1, 2, 10])
@pytest.mark.parametrize("lengths", [1, 3, 20])
def test_keeps_what_the_engine_relies_on(iterations: int, lengths: int) -> None:
    check_decoder(lambda: decoder(iterations, lengths))


def plain(
    scorer: WholeTableScorer, source: tuple[int, ...], length: int, iterations: int
) -> tuple[list[int], float]:
    """The rule for one length of one sentence, in lists; the symbols and their log-probability."""
    ids, sure = [BOS] * length, [0.0] * length
    for round in range(iterations):
        number = length * (iterations - round) // iterations
        hidden = sorted(range(length), key=lambda place: (sure[place], place))[:number]
        for place in hidden:
            ids[place] = BOS
        read = list(ids)
        for place in hidden:
            logits = torch.tensor(scorer.table(source, (place, *read[:place], *read[place + 1 :])))
            scores = logits.log_softmax(0).tolist()
            ids[place] = max(range(EOS + 1, len(scores)), key=scores.__getitem__)
            sure[place] = scores[ids[place]]
    return ids, sum(sure)


@settings(max_examples=60, deadline=None)
@given(
    limits=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    iterations=st.integers(1, 8),
    lengths=st.integers(1, 8),
    count=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_it_is_its_plain_twin(
    limits: list[int], iterations: int, lengths: int, count: int, seed: int
) -> None:
    scorer = WholeTableScorer(Vocabulary(7), random_table(7, seed))
    source, mask = pad([torch.tensor([3 + row]) for row in range(len(limits))])
    request = Request(source, mask, torch.tensor(limits), count=count)
    found = decoder(iterations, lengths).decode(scorer, request)
    for row, (hypotheses, limit) in enumerate(zip(found, limits, strict=True)):
        table = torch.tensor(scorer.table((3 + row,), ())).log_softmax(0).tolist()
        tried = sorted(range(min(limit, 7)), key=lambda length: -table[length])[:lengths]
        outputs: list[tuple[tuple[int, ...], float]] = []
        for length in tried:
            symbols, total = plain(scorer, (3 + row,), length, iterations)
            outputs.append((tuple(symbols), total + table[length]))
        outputs.sort(key=lambda pair: -pair[1] / (len(pair[0]) + 1))
        assert [h.ids for h in hypotheses] == [ids for ids, _ in outputs[:count]]
        for hypothesis, (ids, total) in zip(hypotheses, outputs, strict=False):
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)
            assert hypothesis.score == pytest.approx(total / (len(ids) + 1), abs=1e-4)
            longer = max(range(7), key=table.__getitem__) >= limit
            assert hypothesis.truncated == (longer and len(ids) + 1 == limit)


class Counting(WholeTableScorer):
    """Keeps what it was asked, and tells one length alone."""

    length = 4

    def __init__(self) -> None:
        super().__init__(Vocabulary(7), random_table(7, 5))
        self.asked: list[list[int]] = []

    def start(self, source: Tensor, mask: Tensor) -> Whole:
        state = super().start(source, mask)
        state.lengths = torch.full((len(source), 9), -math.inf)
        state.lengths[:, self.length] = 0.0
        return state

    def advance(self, tokens: Tensor, state: Whole) -> Tensor:
        self.asked.append(tokens[0].tolist())
        return super().advance(tokens, state)


def one(limit: int = 9) -> Request:
    return Request(torch.tensor([[3]]), torch.ones(1, 1).bool(), torch.tensor([limit]), count=5)


def test_one_round_takes_the_most_likely_symbol_at_each_place() -> None:
    scorer = Counting()
    ((found,),) = decoder(1).decode(scorer, one())
    (asked,) = scorer.asked
    assert asked == [BOS] * 4 + [EOS]
    best = [
        max(range(EOS + 1, 7), key=scorer.table((3,), (place, BOS, BOS, BOS)).__getitem__)
        for place in range(4)
    ]
    assert list(found.ids) == best


def test_fewer_are_hidden_in_each_round_and_none_calls_for_no_round() -> None:
    for iterations in (1, 2, 4, 8, 100):
        scorer = Counting()
        decoder(iterations).decode(scorer, one())
        hidden = [ids[:4].count(BOS) for ids in scorer.asked]
        numbers = [4 * (iterations - round) // iterations for round in range(iterations)]
        assert hidden == [number for number in numbers if number]
        assert all(ids[4] == EOS for ids in scorer.asked)


def test_where_no_length_is_likely_the_limit_is_taken() -> None:
    ((found,),) = decoder().decode(Counting(), one(limit=3))
    assert len(found.ids) == 2
    assert found.truncated
    assert found.score == -math.inf


def test_what_is_not_finite_gives_nothing() -> None:
    learner = model()
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.fill_(math.nan)
        assert decoder().decode(learner, one()) == [[]]


def test_a_batch_changes_nothing_for_a_model() -> None:
    learner, (source, mask, _) = model(), batch()
    limits = torch.tensor([8, 6, 3])
    with torch.inference_mode():
        together = decoder(4, 3).decode(learner, Request(source, mask, limits, count=3))
        for row, size in enumerate((4, 1, 2)):
            request = Request(source[[row], :size], mask[[row], :size], limits[[row]], count=3)
            (alone,) = decoder(4, 3).decode(learner, request)
            assert [h.ids for h in alone] == [h.ids for h in together[row]]
            scores = [h.score for h in together[row]]
            assert [h.score for h in alone] == pytest.approx(scores, abs=1e-4)


def test_several_models_decode_as_one() -> None:
    learner, (source, mask, _) = model(), batch()
    request = Request(source, mask, torch.tensor([8, 6, 3]), count=2)
    with torch.inference_mode():
        wanted = decoder().decode(learner, request)
        found = decoder().decode(Ensemble([learner, learner]), request)
        other = disturbed(tiny_model(causal=False)).eval()
        each = [part.start(source, mask).lengths for part in (learner, other)]
        mean = Ensemble([learner, other]).start(source, mask).lengths
    for some, others in zip(found, wanted, strict=True):
        assert [h.ids for h in some] == [h.ids for h in others]
        assert [h.score for h in some] == pytest.approx([h.score for h in others], abs=1e-4)
    assert each[0] is not None
    assert each[1] is not None
    assert torch.allclose(mean.exp(), (each[0].exp() + each[1].exp()) / 2, atol=1e-6)


# --- what is refused ------------------------------------------------------------------------------


def config(*more: str) -> Any:
    return resolve(parse_words(words(Path("x"), *more), packaged()), toys())


def toys() -> Registry:
    return Registry([*BUILTIN, "toy"])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            ("training.objective=masked",),
            "training.objective: masked needs model.causal=no: what is masked is told from both "
            "sides",
        ),
        (
            ("model.causal=no",),
            "training.objective: left-to-right needs model.causal=yes: without it each target "
            "position would see the very symbol that it is to predict; masked goes with "
            "model.causal=no",
        ),
        (
            (*AT_ONCE, "model.pace=3"),
            "model: model.pace needs model.causal=yes: it follows an output from left to right",
        ),
        (
            (*AT_ONCE, "decoder.groups=3"),
            "decoder.groups: no such setting; mask_predict has extra, least, no_repeat, "
            "iterations, lengths",
        ),
    ],
)
def test_settings_that_do_not_go_together(given: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(SettingsError) as error:
        config(*given)
    assert str(error.value) == sentence


def test_each_decoder_is_for_its_kind_of_model(tmp_path: Path) -> None:
    kept, sys.stderr = sys.stderr, io.StringIO()
    try:
        given = (*AT_ONCE[:2], "decoder=mask_predict")
        assert command(train, words(tmp_path, *given, steps=2)) == 2
        said = sys.stderr.getvalue().splitlines()[-1]
    finally:
        sys.stderr = kept
    assert said == (
        "seqtrans: decoder greedy is for models with model.causal=yes, and this one has "
        "model.causal=no; for it there are: mask_predict."
    )
    with pytest.raises(SettingsError) as error:
        assembly.build_decoder(config(), toys(), "mask_predict")
    assert str(error.value) == (
        "decoder mask_predict is for models with model.causal=no, and this one has "
        "model.causal=yes; for it there are: greedy, beam, speculative, sampling."
    )


def constrained(
    scorer: Counting, own: Constraint | None = None, limit: int = 9, **wishes: Any
) -> list[Hypothesis]:
    """What is found under a task's constraint and with wishes."""
    limits = torch.tensor([limit])
    constraint = asked(scorer.vocabulary, limits, own, **wishes)
    source = torch.tensor([[3]])
    search = MaskPredict(MaskPredictSettings(least=wishes.get("least", 0)))
    request = Request(source, torch.ones(1, 1).bool(), limits, constraint, count=5)
    (found,) = search.decode(scorer, request)
    return found


def test_a_constraint_that_allows_everything_changes_nothing() -> None:
    for seed in range(9):
        scorer = WholeTableScorer(Vocabulary(7), random_table(7, seed))
        limits = torch.tensor([4, 6])
        source, mask = pad([torch.tensor([3]), torch.tensor([4, 5])])
        free, held = (
            decoder().decode(scorer, Request(source, mask, limits, constraint, count=5))
            for constraint in (None, Free(scorer.vocabulary, torch.zeros(2)))
        )
        for one, other in zip(free, held, strict=True):
            assert [h.ids for h in one] == [h.ids for h in other]
            assert [h.score for h in one] == pytest.approx([h.score for h in other])


class Free(Wish):
    """Anything may come next."""

    def allowed(self) -> Tensor:
        return self.anything()

    def advance(self, tokens: Tensor) -> None:
        pass


def test_a_prefix_stands_there_in_every_round() -> None:
    scorer = Counting()
    (found,) = constrained(scorer, prefixes=[[5, 5, 3]])
    assert found.ids[:3] == (5, 5, 3)
    assert len(found.ids) == 4
    # What was hidden is known again from the second round on, but for the least sure.
    visible = [[i for i in ids[:3] if i != BOS] for ids in scorer.asked[1:]]
    assert any(visible)


def test_a_prefix_and_a_least_length_decide_what_lengths_are_tried() -> None:
    for wishes, length in (({"prefixes": [[3, 4, 5, 6, 3, 4]]}, 6), ({"least": 7}, 7)):
        lengths = torch.full((9,), -9.0)
        lengths[[4, length]] = torch.tensor([0.0, -1.0])

        class Likely(Counting):
            def start(self, source: Tensor, mask: Tensor) -> Whole:
                state = super().start(source, mask)
                state.lengths = lengths.expand(len(source), -1)  # noqa: B023
                return state

        found = constrained(Likely(), **wishes)
        assert min(len(h.ids) for h in found) == length
        assert found[0].score > -math.inf
    # As far as the limit goes.
    (found_short,) = constrained(Counting(), limit=3, least=7)
    assert len(found_short.ids) == 2


def test_an_output_ends_where_nothing_else_may_follow() -> None:
    """And is counted at the probability of the length that it then has."""
    scorer = Counting()
    source = torch.tensor([[3]])
    own = NoRepeats(scorer.vocabulary, [[3, 4]])  # leaves two symbols, each once
    request = Request(source, torch.ones(1, 1).bool(), torch.tensor([9]), own)
    ((found,),) = decoder().decode(scorer, request)
    assert sorted(found.ids) == [5, 6]
    assert found.log_probability == -math.inf  # this scorer holds 4 the only length
    assert own.used == [{3, 4}]


class Pairs(Wish):
    """Ends only after an even number of symbols."""

    def __init__(self, vocabulary: Vocabulary, rows: int) -> None:
        super().__init__(vocabulary, torch.zeros(rows))
        self.at = 0

    def allowed(self) -> Tensor:
        allowed = self.anything()
        allowed[:, EOS] = self.at % 2 == 0
        return allowed

    def advance(self, tokens: Tensor) -> None:
        self.at += 1


def test_what_may_not_end_at_its_length_is_given_only_where_nothing_else_is() -> None:
    scorer = WholeTableScorer(Vocabulary(7), random_table(7, 3))
    source = torch.tensor([[3]])
    for lengths in (2, 9):
        request = Request(
            source,
            torch.ones(1, 1).bool(),
            torch.tensor([7]),
            Pairs(scorer.vocabulary, 1),
            count=9,
        )
        (found,) = decoder(3, lengths).decode(scorer, request)
        even = [h for h in found if len(h.ids) % 2 == 0]
        assert found
        assert even == found or (lengths == 2 and len(found) == 1)
        assert all(h.score > -math.inf and not h.truncated for h in even)
    ((odd,),) = decoder(3).decode(
        Odd(),
        Request(source, torch.ones(1, 1).bool(), torch.tensor([7]), Pairs(Vocabulary(7), 1)),
    )
    assert len(odd.ids) == 3
    assert odd.score == -math.inf
    assert odd.truncated


def test_a_length_beyond_what_the_model_tells() -> None:
    """Where so many symbols are asked for that none of its lengths will do."""
    for wishes in ({"least": 40}, {"prefixes": [[3, 4] * 20]}):
        (found,) = constrained(Counting(), limit=50, **wishes)
        assert len(found.ids) == 49
        assert found.score == -math.inf
    own = NoRepeats(Vocabulary(7), [[]])  # four symbols, and then the end
    (short,) = constrained(Counting(), own, limit=50, least=40)
    assert sorted(short.ids) == [3, 4, 5, 6]
    assert short.log_probability > -math.inf


class Odd(Counting):
    """Holds three the only length."""

    length = 3


def test_a_finished_run_transduces_but_does_not_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    assert train(words(one, *AT_ONCE, steps=2, validate_every=2)) == 0
    assert train(words(other, steps=2, validate_every=2)) == 0
    monkeypatch.setattr("seqtrans.engine.registry", toys)
    engine: Engine = seqtrans.load(one)
    assert len(engine.alternatives(["123", "4"], 3)) == 2
    assert len(engine.evaluate("dev", iterations=2).outputs) == 9
    with pytest.raises(DataError) as error:
        engine.score(["12"])
    assert str(error.value) == (
        "a model with model.causal=no tells each symbol from all others, which gives no "
        "probability of a whole output; score with a model that writes from left to right."
    )
    assert len(seqtrans.load([one, one]).transduce(["123"])) == 1
    with pytest.raises(CheckpointError) as refused:
        seqtrans.load([one, other])
    assert str(refused.value) == (f"{one} and {other} can't decode together: model.causal differs.")
