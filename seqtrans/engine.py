"""What ``seqtrans.load`` gives: a trained model with everything that turns inputs into outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from seqtrans import assembly, checkpoint
from seqtrans.constraint import asked, refused
from seqtrans.corpus import Array, Corpus
from seqtrans.data import collate, decoding_batches, pad
from seqtrans.decoding import Decoder, Hypothesis, Request, Scorer
from seqtrans.ensemble import Ensemble
from seqtrans.errors import CheckpointError, DataError, SeqtransError, SettingsError
from seqtrans.frozen import Frozen, frozen
from seqtrans.model import Transducer
from seqtrans.plugins import Registry, registry
from seqtrans.resolving import Config
from seqtrans.reuse import Mean, Precision
from seqtrans.runs import (
    check_alike,
    check_causal,
    join_runs,
    open_model,
    open_run,
    usable,
    warn,
)
from seqtrans.settings import Words
from seqtrans.task import Constraint, Score, Task, Vocabulary

TOKENS = 4096
"""Padded source positions × hypotheses of a batch in decoding."""
NOT_FINITE = "the model's probabilities are not finite; it can't be used."


@dataclass(frozen=True)
class Evaluation:
    """The outputs for a whole split, in its order, and how good they are."""

    score: Score
    outputs: list[Any]
    hypotheses: list[Hypothesis]


def load(
    run: str | Path | Sequence[str | Path],
    step: str | int | Sequence[str | int] = "best",
    device: str | None = None,
    changes: Words | None = None,
    tokens: int = TOKENS,
    mean: Mean = "probabilities",
    precision: Precision = "fp32",
) -> Engine:
    """Load a run folder for use: nothing else is needed, neither the command line nor the raw data.

    Args:
        run: the run folder, or several that decode together, each at every step: an ensemble, whose
            task, decoder and settings are the first one's.
        step: ``"best"`` by validation (the newest if there was none), ``"last"``, ``"average"``,
            or a step's number; or several.
        device: where to compute; by default on a GPU if there is one.
        changes: settings of the decoder, and ``late`` ones of the task, that go over the run's.
        tokens: padded source positions × hypotheses that are decoded together.
        mean: what of an ensemble's models is averaged, ``"probabilities"`` or ``"logarithms"``.
        precision: that of weights and products, ``"fp32"``, ``"bf16"``, or on a CPU ``"int8"``
            (see `seqtrans.int8`); probabilities are computed in fp32 from any.

    Raises:
        CheckpointError: there is no such run or step, it is damaged, or the vocabularies of several
            differ, or their ``model.causal``.
        PluginError: a component of the run is not installed here.
        SettingsError: there is no such mean, device, or precision on that device.
    """
    folders = [Path(run)] if isinstance(run, (str, Path)) else [Path(one) for one in run]
    steps = [step] if isinstance(step, (str, int)) else list(step)
    if not folders or not steps:
        raise CheckpointError("there is no run or no step to load.")
    if mean not in get_args(Mean):
        raise SettingsError(f"mean is one of {', '.join(get_args(Mean))}, not {mean!r}.")
    names, where = registry(), usable(device, precision)
    weights = [checkpoint.choose(folder, wanted, warn) for folder in folders for wanted in steps]
    config, task = open_run(folders[0], names, changes)
    models: list[Transducer] = []
    for number, path in enumerate(weights):
        folder = folders[number // len(steps)]
        own, opened = (config, task) if folder == folders[0] else open_run(folder, names)
        check_alike(folders[0], task, folder, opened, "can't decode together")
        check_causal(folders[0], config, folder, own)
        models.append(open_model(path, own, names, opened, where, precision))
    members = [frozen(model, precision == "int8") for model in models]
    scorer = members[0] if len(members) == 1 else Ensemble(members, mean)
    engine = Engine(config, names, task, models[0], weights[0], scorer, tuple(weights), precision)
    engine.tokens = tokens
    return engine


class Engine:
    """A loaded run. Made by :func:`load`."""

    def __init__(
        self,
        config: Config,
        registry: Registry,
        task: Task,
        model: Transducer,
        weights: Path,
        scorer: Transducer | Frozen | Ensemble | None = None,
        members: tuple[Path, ...] = (),
        precision: Precision = "fp32",
    ) -> None:
        self.config, self.registry, self.task, self.model = config, registry, task, model
        self.weights, self.precision = weights, precision
        self.scorer = model if scorer is None else scorer
        """What decodes and scores: the model, frozen, or an ensemble of which it is the first."""
        self.members = members or (weights,)
        """The checkpoints: of an ensemble each, ``weights`` the first of them."""
        self.tokens = TOKENS
        """Padded source positions × hypotheses that are decoded together; memory grows with it."""
        self.opened: dict[Path, Scorer] = {}
        """The models of other runs that decoders have asked for."""

    @property
    def parameters(self) -> int:
        """How many numbers were learnt; of an ensemble, in all its models."""
        return sum(p.numel() for model in models(self.scorer) for p in model.parameters())

    def decoder(self, name: str | None = None, **settings: Any) -> Decoder:
        """The run's decoder, or another one, with these settings over its own."""
        decoder = assembly.build_decoder(self.config, self.registry, name, **settings)
        beside = self.weights.parent, self.config, self.task, self.registry
        join_runs(decoder, *beside, self.scorer.device, self.opened, self.precision)
        return decoder

    def transduce(
        self,
        inputs: Sequence[Any],
        decoder: str | None = None,
        prefixes: Sequence[str | Sequence[int]] | None = None,
        **settings: Any,
    ) -> list[Any]:
        """The best output for each input, in the order of the inputs; an empty list for an empty
        one.

        Args:
            inputs: lines of text as the command line takes them, or what the task's ``input``
                gives.
            decoder: the name of a decoder; by default the run's own.
            prefixes: what each output begins with, as the task reads it, or as ids.
            settings: of the decoder, such as ``width=8``.

        Raises:
            DataError: something can't be an input; the message has its number, counted from 1.
            PluginError, SettingsError: there is no such decoder or setting.
        """
        found = self.alternatives(inputs, 1, decoder, prefixes=prefixes, **settings)
        return [best[0][0] for best in found]

    def alternatives(
        self,
        inputs: Sequence[Any],
        count: int,
        decoder: str | None = None,
        progress: Callable[[int], None] | None = None,
        names: Callable[[int], str] = "input {}".format,
        prefixes: Sequence[str | Sequence[int]] | None = None,
        **settings: Any,
    ) -> list[list[tuple[Any, Hypothesis]]]:
        """For each input up to ``count`` different outputs with their hypotheses, best first.

        Hypotheses that are written alike count as one; where that leaves too few, more are asked
        for.

        ``progress`` is told after each batch how many inputs it had; ``names`` says what messages
        call an input, by its number counted from 1. Raises as :meth:`transduce` does.
        """
        if isinstance(inputs, str):
            raise DataError("inputs is a list of lines, not one string.")
        search = self.decoder(decoder, **settings)
        check_count(search, count)
        readable = self.read(inputs, names)
        beginnings = self.read_prefixes(readable, prefixes, names)
        results: list[list[tuple[Any, Hypothesis]]] = [[] for _ in readable]
        pending, wanted, most = list(range(len(readable))), count, search.most or 8 * count
        while pending:
            found = decode(
                self.scorer,
                self.task,
                search,
                [readable[number] for number in pending],
                pending,
                wanted,
                tokens=self.tokens,
                progress=progress if wanted == count else None,
                names=names,
                prefixes=beginnings and [beginnings[number] for number in pending],
            )
            for number in pending:
                outputs: dict[str, tuple[Any, Hypothesis]] = {}
                for hypothesis in found[number]:
                    output = self.task.decode(hypothesis.ids, readable[number])
                    outputs.setdefault(self.task.write(output), (output, hypothesis))
                results[number] = list(outputs.values())[:count]
            pending = [
                number
                for number in pending
                if len(results[number]) < count and len(found[number]) == wanted < most
            ]
            wanted = min(2 * wanted, most)
        return results

    def read_prefixes(
        self,
        inputs: Sequence[Any],
        prefixes: Sequence[str | Sequence[int]] | None,
        names: Callable[[int], str],
    ) -> list[Sequence[int]] | None:
        """The ids of prefixes, one for each input."""
        if prefixes is None:
            return None
        if isinstance(prefixes, str) or len(prefixes) != len(inputs):
            raise DataError(f"prefixes is a list with one for each of the {len(inputs)} inputs.")
        found: list[Sequence[int]] = []
        for number, (prefix, input) in enumerate(zip(prefixes, inputs, strict=True), 1):
            try:
                text = isinstance(prefix, str)
                found.append(self.task.encode_prefix(prefix, input) if text else prefix)  # type: ignore[arg-type]
            except SeqtransError as error:
                raise type(error)(f"{names(number)}: {error}") from None
        return found

    def read(
        self, inputs: Sequence[Any], names: Callable[[int], str] = "input {}".format
    ) -> list[Any]:
        """What the task reads from lines; what is no line is left as it is.

        Raises ``DataError`` for a line that can't be an input.
        """
        readable = []
        for number, input in enumerate(inputs, 1):
            try:
                readable.append(self.task.read(input) if isinstance(input, str) else input)
            except SeqtransError as error:
                raise type(error)(f"{names(number)}: {error}") from None
        return readable

    def evaluate(
        self,
        split: str = "dev",
        decoder: str | None = None,
        progress: Callable[[int], None] | None = None,
        **settings: Any,
    ) -> Evaluation:
        """Decode every example of a split and score the outputs.

        Raises ``DataError`` if there is no such split.
        """
        examples = self.task.examples(split)
        search = self.decoder(decoder, **settings)
        inputs = [self.task.input(example) for example in examples]
        found = decode(
            self.scorer,
            self.task,
            search,
            inputs,
            range(len(inputs)),
            tokens=self.tokens,
            progress=progress,
            names=f"{split} example {{}}".format,
        )
        best = [found[number][0] for number in range(len(inputs))]
        outputs = [self.task.decode(h.ids, i) for h, i in zip(best, inputs, strict=True)]
        return Evaluation(self.task.score(outputs, examples), outputs, best)

    def score(
        self,
        examples: Sequence[Any],
        targets: Sequence[str | Sequence[int]] | None = None,
        progress: Callable[[int], None] | None = None,
        names: Callable[[int], str] | None = None,
    ) -> list[float]:
        """The log-probability that the model gives to each target, eos included.

        Args:
            examples: of the task; or, with ``targets``, inputs as :meth:`transduce` takes them.
            targets: one for each input, a line as the task writes outputs, or ids.
            progress: is told after each batch how many targets it had.
            names: what messages call an example or input, by its number counted from 1.

        Raises:
            DataError: the model has no such thing, or something can't be an input or a target, or
                is longer than the model has positions for; the message has its number.
        """
        found = self.log_probabilities(examples, targets, progress, names)
        return [math.fsum(symbols) for symbols in found]

    def log_probabilities(
        self,
        examples: Sequence[Any],
        targets: Sequence[str | Sequence[int]] | None = None,
        progress: Callable[[int], None] | None = None,
        names: Callable[[int], str] | None = None,
    ) -> list[list[float]]:
        """As :meth:`score`, but of each symbol of each target, after those before it; eos last."""
        if not self.config.shape.causal:
            raise DataError(
                "a model with model.causal=no tells each symbol from all others, which gives no "
                "probability of a whole output; score with a model that writes from left to right."
            )
        called = names or ("example {}" if targets is None else "input {}").format
        corpus = Corpus.of(self.encoded(examples, targets, called))
        sources, lengths = corpus.sources.lengths(), corpus.targets.lengths() + 1
        check_lengths(self.scorer, sources, lengths, called)
        results: list[list[float]] = [[] for _ in range(len(examples))]
        longer = np.maximum(sources, lengths).tolist()
        with torch.inference_mode(), evaluating(self.scorer):
            for numbers in decoding_batches(longer, self.tokens):
                batch = collate(corpus, numbers, specials(self.scorer)).to(self.scorer.device)
                try:
                    logits = self.scorer(batch.source, batch.mask, batch.target_in)
                except DataError as error:
                    longest = numbers[int(sources[numbers].argmax())]
                    raise DataError(f"{called(longest + 1)}: {error}") from None
                found = logits.float().log_softmax(-1).gather(2, batch.target_out[:, :, None])
                for number, symbols in zip(numbers, found[:, :, 0].tolist(), strict=True):
                    results[number] = symbols[: lengths[number]]
                if progress is not None:
                    progress(len(numbers))
        if any(math.isnan(symbol) for symbols in results for symbol in symbols):
            raise SeqtransError(NOT_FINITE)
        return results

    def encoded(
        self,
        examples: Sequence[Any],
        targets: Sequence[str | Sequence[int]] | None,
        names: Callable[[int], str],
    ) -> Iterator[tuple[Tensor, Sequence[int]]]:
        """The ids, or features, of what :meth:`score` is given."""
        inputs, ids = examples, None
        if targets is not None:
            if isinstance(examples, str):
                raise DataError("inputs is a list of lines, not one string.")
            if isinstance(targets, str) or len(targets) != len(examples):
                raise DataError(
                    f"targets is a list with one for each of the {len(examples)} inputs."
                )
            inputs, ids = self.read(examples, names), self.read_targets(targets, names)
        for number, input in enumerate(inputs):
            try:
                if ids is None:
                    source = self.task.encode_source(self.task.input(input))
                    target = self.task.encode_target(input)
                else:
                    source, target = self.task.encode_source(input), ids[number]
            except SeqtransError as error:
                raise type(error)(f"{names(number + 1)}: {error}") from None
            yield source, target

    def read_targets(
        self,
        targets: Sequence[str | Sequence[int]],
        names: Callable[[int], str] = "target {}".format,
    ) -> list[Sequence[int]]:
        """The ids of targets, from lines as the task writes outputs; ids are checked alone.

        Raises ``DataError`` for what can't be a target.
        """
        vocabulary, found = self.scorer.vocabulary, []
        for number, target in enumerate(targets, 1):
            try:
                ids = self.task.read_target(target) if isinstance(target, str) else target
            except SeqtransError as error:
                raise type(error)(f"{names(number)}: {error}") from None
            wrong = no_symbols(vocabulary, ids)
            if wrong:
                raise DataError(
                    f"{names(number)}: {wrong[0]} in the target is the id of no symbol."
                )
            found.append(ids)
        return found


def decode(
    scorer: Scorer,
    task: Task,
    decoder: Decoder,
    inputs: Sequence[Any],
    numbers: Sequence[int],
    count: int = 1,
    *,
    rank: int = 0,
    world: int = 1,
    tokens: int = TOKENS,
    progress: Callable[[int], None] | None = None,
    names: Callable[[int], str] = "input {}".format,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> dict[int, list[Hypothesis]]:
    """Hypotheses for ``inputs``, by their ``numbers``: all of them, or every ``world``-th batch
    from ``rank`` on.

    Each begins with its prefix, and keeps to what the decoder's settings and the task ask of it.
    ``progress`` is told after each batch how many inputs it had. Raises ``DataError`` naming the
    input that is longer than the model has positions for, or whose prefix can't be.
    """
    sources = [task.encode_source(input) for input in inputs]
    for number, source in zip(numbers, sources, strict=True):
        if not len(source):
            raise DataError(f"{names(number + 1)} is empty.")
    device = scorer.device
    width = decoder.most or count
    found: dict[int, list[Hypothesis]] = {}
    lengths = [len(source) for source in sources]
    batches = decoding_batches(lengths, max(1, tokens // width), decoder.together)
    with torch.inference_mode(), evaluating(scorer):
        for batch in batches[rank::world]:
            source, mask = pad([sources[i] for i in batch])
            limits = mask.sum(1) + decoder.extra
            if scorer.longest is not None:
                limits = limits.clamp(max=scorer.longest)
            limits = limits.to(device)
            constraint = task.constraint([inputs[i] for i in batch], limits)
            beginnings = None if prefixes is None else [prefixes[i] for i in batch]
            if beginnings is not None:
                called = [names(numbers[i] + 1) for i in batch]
                check_prefixes(scorer.vocabulary, beginnings, limits, constraint, called)
            constraint = asked(
                scorer.vocabulary,
                limits,
                constraint,
                beginnings,
                decoder.least,
                decoder.no_repeat,
            )
            there = mask.to(device).as_subclass(type(mask))
            request = Request(source.to(device), there, limits, constraint, count)
            try:
                hypotheses = decoder.decode(scorer, request)
            except DataError as error:  # a batch begins with its longest input
                raise DataError(f"{names(numbers[batch[0]] + 1)}: {error}") from None
            if not all(hypotheses):
                raise SeqtransError(NOT_FINITE)
            assert len(hypotheses) == len(batch)
            found.update((numbers[i], h) for i, h in zip(batch, hypotheses, strict=True))
            if progress is not None:
                progress(len(batch))
    return found


def check_prefixes(
    vocabulary: Vocabulary,
    prefixes: Sequence[Sequence[int]],
    limits: Tensor,
    constraint: Constraint | None,
    names: Sequence[str],
) -> None:
    """Refuse prefixes that no output can begin with."""
    for prefix, limit, name in zip(prefixes, limits.tolist(), names, strict=True):
        wrong = no_symbols(vocabulary, prefix)
        if wrong:
            raise DataError(f"{name}: {wrong[0]} in the prefix is the id of no symbol.")
        if len(prefix) >= limit:
            raise DataError(
                f"{name}: the prefix has {len(prefix)} symbols, and the whole output may have no "
                f"more than {limit - 1}; raise decoder.extra."
            )
    if constraint is not None:
        found = refused(constraint, prefixes, limits.device)
        if found is not None:
            raise DataError(
                f"{names[found[0]]}: no output can begin with the prefix: its symbol "
                f"{found[1] + 1} may not stand there."
            )


def check_lengths(
    scorer: Scorer, sources: Array, targets: Array, names: Callable[[int], str]
) -> None:
    """Refuse empty sources, and targets that, eos included, are too long for a model."""
    longest = scorer.longest
    for number, (source, target) in enumerate(
        zip(sources.tolist(), targets.tolist(), strict=True), 1
    ):
        if not source:
            raise DataError(f"{names(number)} is empty.")
        if longest is not None and target > longest:
            raise DataError(
                f"{names(number)}: a target of {target} positions is longer than the {longest} "
                "that this model's position scheme was built for."
            )


def no_symbols(vocabulary: Vocabulary, ids: Sequence[int]) -> list[int]:
    """Those of ``ids`` that stand for nothing in an output."""
    special = {vocabulary.pad, vocabulary.bos, vocabulary.eos}
    return [id for id in ids if id in special or not 0 <= id < vocabulary.size]


def check_count(decoder: Decoder, count: int) -> None:
    """Refuse more hypotheses than a decoder can give."""
    if count < 1 or (decoder.most is not None and count > decoder.most):
        raise SettingsError(
            f"{count} outputs for each input were asked for, and this decoder gives 1 to "
            f"{decoder.most}."
        )


def specials(scorer: Scorer) -> tuple[int, int, int]:
    """The target's pad, bos and eos."""
    return scorer.vocabulary.pad, scorer.vocabulary.bos, scorer.vocabulary.eos


def models(scorer: Scorer) -> list[torch.nn.Module]:
    """The models behind a scorer."""
    members = scorer.models if isinstance(scorer, Ensemble) else [scorer]
    found = (member.model if isinstance(member, Frozen) else member for member in members)
    return [model for model in found if isinstance(model, torch.nn.Module)]


@contextmanager
def evaluating(scorer: Scorer) -> Iterator[None]:
    """No dropout inside this block, whatever the models behind the scorer do otherwise."""
    modules = models(scorer)
    training = [module.training for module in modules]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for module, before in zip(modules, training, strict=True):
            module.train(before)
