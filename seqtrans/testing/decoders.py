"""What users rely on in a decoder, tried on tables of known probabilities."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from seqtrans.data import pad
from seqtrans.decoding import Decoder, Hypothesis, Request
from seqtrans.hooks import Component
from seqtrans.settings import Settings
from seqtrans.task import Constraint, Vocabulary
from seqtrans.testing.parts import expect, made, same
from seqtrans.testing.tables import (
    Endless,
    NoRepeats,
    TableScorer,
    WholeTableScorer,
    random_table,
)


def check_decoder(
    decoder: Component | Callable[[], Decoder],
    settings: Settings | None = None,
    *,
    score: Callable[[float, int], float] | None = None,
    exhaustive: bool = False,
    device: str | torch.device = "cpu",
) -> None:
    """Check a decoder against scorers whose every probability is known.

    What one for models that are not causal holds an output's log-probability to be is its own
    affair.

    Args:
        decoder: what is checked.
        settings: of a component.
        score: what a search ranks by, from a log-probability and the number of symbols, eos
            included; then its best may not depend on how many are asked for.
        exhaustive: whether it is set so wide that it must find the very best by ``score``.
        device: where the scorers' tensors are.
    """
    search: Decoder = made(decoder, settings)
    counts = range(1, min(search.most or 4, 4) + 1)
    for seed in range(4):
        table = random_table(7, seed)
        kind = TableScorer if search.causal else WholeTableScorer
        scorer = kind(Vocabulary(7), table, device)
        sources = [torch.tensor(ids) for ids in ([3, 4], [5], [6, 6, 3], [4, 5], [3], [5, 6])]
        limits = [4, 5, 3, 1, 5, 4]
        for constrained, count in itertools.product((False, True), counts):
            check_outputs(search, scorer, sources, limits, constrained, count)
            if isinstance(scorer, WholeTableScorer):
                continue
            if score is not None:
                ranking_is_right(search, scorer, sources, limits, constrained, count, score)
            if exhaustive:
                nothing_better_exists(
                    search, scorer, sources, limits, constrained, count, score or by_probability
                )
        if isinstance(scorer, TableScorer):
            a_dead_end_is_truncated(search, scorer)


def by_probability(log_probability: float, length: int) -> float:
    """What a search without a length penalty ranks by."""
    return log_probability


def banned(sources: Sequence[Tensor]) -> list[list[int]]:
    """For each source the one symbol that its output may not have: its own first."""
    return [[int(source[0])] for source in sources]


def decoded(
    search: Decoder,
    scorer: TableScorer | WholeTableScorer,
    sources: Sequence[Tensor],
    limits: Sequence[int],
    constrained: bool,
    count: int,
) -> list[list[Hypothesis]]:
    """What a decoder gives, with or without a constraint."""
    constraint = None
    if constrained:
        constraint = NoRepeats(scorer.vocabulary, banned(sources), scorer.device)
    return search.decode(scorer, asked(scorer, sources, limits, constraint, count))


def asked(
    scorer: TableScorer | WholeTableScorer,
    sources: Sequence[Tensor],
    limits: Sequence[int],
    constraint: Constraint | None,
    count: int = 1,
) -> Request:
    """A request where the scorer is."""
    source, mask = pad(sources)
    where = scorer.device
    limit = torch.tensor(limits, device=where)
    return Request(source.to(where), mask.to(where), limit, constraint, count)


def check_outputs(
    search: Decoder,
    scorer: TableScorer | WholeTableScorer,
    sources: Sequence[Tensor],
    limits: Sequence[int],
    constrained: bool,
    count: int,
) -> None:
    """Outputs are what the request asks for, and the same in any batch."""
    found = decoded(search, scorer, sources, limits, constrained, count)
    expect(
        len(found) == len(sources),
        f"A decoder must give a list for each of {len(sources)} sentences, not {len(found)}.",
    )
    special = {scorer.vocabulary.pad, scorer.vocabulary.bos, scorer.vocabulary.eos}
    rule = NoRepeats(scorer.vocabulary, banned(sources))
    for row, (hypotheses, source, limit) in enumerate(zip(found, sources, limits, strict=True)):
        expect(
            1 <= len(hypotheses) <= count,
            f"A decoder must give 1 to {count} hypotheses, not {len(hypotheses)}.",
        )
        scores = [hypothesis.score for hypothesis in hypotheses]
        expect(
            scores == sorted(scores, reverse=True), f"The best must come first, not as in {scores}."
        )
        expect(
            len({hypothesis.ids for hypothesis in hypotheses}) == len(hypotheses),
            f"No two hypotheses may be alike, as in {[h.ids for h in hypotheses]}.",
        )
        for hypothesis in hypotheses:
            ids = hypothesis.ids
            expect(not special & set(ids), f"ids must be without pad, bos and eos, not {ids}.")
            expect(
                len(ids) + 1 <= limit,
                f"With a limit of {limit} symbols, eos included, {ids} is too long.",
            )
            expect(
                len(ids) + 1 == limit or not hypothesis.truncated,
                f"{ids} is shorter than its limit of {limit}, so it is not truncated.",
            )
            expect(
                not constrained or rule.allows(ids, row), f"The constraint does not allow {ids}."
            )
            if isinstance(scorer, TableScorer):
                same(
                    torch.tensor(hypothesis.log_probability),
                    torch.tensor(scorer.log_probability(source.tolist(), ids)),
                    f"log_probability of {ids} must be the same as the scorer's",
                    1e-4,
                )
    backwards = decoded(search, scorer, sources[::-1], list(limits)[::-1], constrained, count)[::-1]
    for row, hypotheses in enumerate(found):
        one = slice(row, row + 1)
        for how, others in (
            ("alone", decoded(search, scorer, sources[one], limits[one], constrained, count)[0]),
            ("in another order of sentences", backwards[row]),
        ):
            expect(
                [h.ids for h in hypotheses] == [h.ids for h in others],
                f"A sentence must have the same outputs in any batch, but {how} it has "
                f"{[h.ids for h in others]}, not {[h.ids for h in hypotheses]}.",
            )


def ranking_is_right(
    search: Decoder,
    scorer: TableScorer,
    sources: Sequence[Tensor],
    limits: Sequence[int],
    constrained: bool,
    count: int,
    score: Callable[[float, int], float],
) -> None:
    """Scores are by the formula, and the best is the same however many are wanted."""
    found = decoded(search, scorer, sources, limits, constrained, count)
    one = decoded(search, scorer, sources, limits, constrained, 1)
    for hypotheses, (best,) in zip(found, one, strict=True):
        expect(
            hypotheses[0].ids == best.ids,
            f"The best must not depend on how many are asked for: it is {best.ids} of 1, but "
            f"{hypotheses[0].ids} of {count}.",
        )
        for hypothesis in hypotheses:
            wanted = score(hypothesis.log_probability, len(hypothesis.ids) + 1)
            same(
                torch.tensor(hypothesis.score),
                torch.tensor(wanted),
                f"The score of {hypothesis.ids} must be the same as the formula's",
            )


def nothing_better_exists(
    search: Decoder,
    scorer: TableScorer,
    sources: Sequence[Tensor],
    limits: Sequence[int],
    constrained: bool,
    count: int,
    score: Callable[[float, int], float],
) -> None:
    """The outputs are the best of all that exist."""
    found = decoded(search, scorer, sources, limits, constrained, count)
    rule = NoRepeats(scorer.vocabulary, banned(sources))
    for row, (hypotheses, source, limit) in enumerate(zip(found, sources, limits, strict=True)):
        ranked = sorted(
            (ids for ids in scorer.outputs(limit) if not constrained or rule.allows(ids, row)),
            key=lambda ids: -score(scorer.log_probability(source.tolist(), ids), len(ids) + 1),
        )[:count]
        expect(
            [hypothesis.ids for hypothesis in hypotheses] == ranked,
            f"Of all outputs the best are {ranked}, but the search gave "
            f"{[hypothesis.ids for hypothesis in hypotheses]}.",
        )


def a_dead_end_is_truncated(search: Decoder, scorer: TableScorer) -> None:
    """Where the limit leaves a constraint no way to its end there still is an output."""
    endless = Endless(scorer.vocabulary.size, 1, scorer.device)
    (hypotheses,) = search.decode(scorer, asked(scorer, [torch.tensor([3])], [3], endless))
    expect(
        bool(hypotheses) and hypotheses[0].truncated,
        "Where a constraint does not come to its end within the limit, a decoder must give a "
        f"truncated hypothesis, not {hypotheses}.",
    )
