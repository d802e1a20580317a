"""What ``seqtrans.load`` gives: a trained model with everything that turns inputs into outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqtrans import assembly, checkpoint
from seqtrans.config import Config, from_json
from seqtrans.corpus import Corpus
from seqtrans.data import collate, decoding_batches, pad, read_json
from seqtrans.decoding import Decoder, Hypothesis, Request, Scorer
from seqtrans.errors import CheckpointError, DataError, SeqtransError, SettingsError
from seqtrans.files import damage
from seqtrans.model import Transducer
from seqtrans.plugins import Registry, registry
from seqtrans.settings import Words
from seqtrans.task import Score, Task

TOKENS = 4096
"""Padded source positions × hypotheses of a batch in decoding."""


@dataclass(frozen=True)
class Evaluation:
    """The outputs for a whole split, in its order, and how good they are."""

    score: Score
    outputs: list[Any]
    hypotheses: list[Hypothesis]


def load(
    run: str | Path,
    step: str | int = "best",
    device: str | None = None,
    changes: Words | None = None,
    tokens: int = TOKENS,
) -> Engine:
    """Load a run folder for use: nothing else is needed, neither the command line nor the raw data.

    Args:
        run: the run folder.
        step: ``"best"`` by validation (the newest if there was none), ``"last"``, ``"average"``,
            or a step's number.
        device: where to compute; by default on a GPU if there is one.
        changes: settings of the decoder, and ``late`` ones of the task, that go over the run's.
        tokens: padded source positions × hypotheses that are decoded together.

    Raises:
        CheckpointError: there is no such run or step, or it is damaged.
        PluginError: a component of the run is not installed here.
    """
    folder = Path(run)
    weights = checkpoint.choose(folder, step, warn)
    wrong = damage(folder / "task")
    if wrong is not None:
        raise CheckpointError(f"{folder / 'task'} is damaged: {wrong}.")
    names = registry()
    config = from_json(read_json(folder / "config.json"), names, folder / "config.json", changes)
    task = assembly.build_task(config, names)
    task.open(folder / "task")
    model = assembly.build_model(config, names, task)
    checkpoint.load_weights(weights, model)
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    engine = Engine(config, names, task, model.to(where).eval(), weights)
    engine.tokens = tokens
    return engine


def warn(text: str) -> None:
    """Say something that a user should know, and go on."""
    print(f"seqtrans: warning: {text}", file=sys.stderr)


class Engine:
    """A loaded run. Made by :func:`load`."""

    def __init__(
        self, config: Config, registry: Registry, task: Task, model: Transducer, weights: Path
    ) -> None:
        self.config, self.registry, self.task, self.model = config, registry, task, model
        self.weights = weights
        self.tokens = TOKENS
        """Padded source positions × hypotheses that are decoded together; memory grows with it."""

    def decoder(self, name: str | None = None, **settings: Any) -> Decoder:
        """The run's decoder, or another one, with these settings over its own."""
        return assembly.build_decoder(self.config, self.registry, name, **settings)

    def transduce(
        self, inputs: Sequence[Any], decoder: str | None = None, **settings: Any
    ) -> list[Any]:
        """The best output for each input, in the order of the inputs; an empty list for an empty
        one.

        Args:
            inputs: lines of text as the command line takes them, or what the task's ``input``
                gives.
            decoder: the name of a decoder; by default the run's own.
            settings: of the decoder, such as ``width=8``.

        Raises:
            DataError: something can't be an input; the message has its number, counted from 1.
            PluginError, SettingsError: there is no such decoder or setting.
        """
        return [best[0][0] for best in self.alternatives(inputs, 1, decoder, **settings)]

    def alternatives(
        self,
        inputs: Sequence[Any],
        count: int,
        decoder: str | None = None,
        progress: Callable[[int], None] | None = None,
        names: Callable[[int], str] = "input {}".format,
        **settings: Any,
    ) -> list[list[tuple[Any, Hypothesis]]]:
        """For each input up to ``count`` different outputs with their hypotheses, best first.

        ``progress`` is told after each batch how many inputs it had; ``names`` says what messages
        call an input, by its number counted from 1. Raises as :meth:`transduce` does.
        """
        if isinstance(inputs, str):
            raise DataError("inputs is a list of lines, not one string.")
        search = self.decoder(decoder, **settings)
        check_count(search, count)
        readable = self.read(inputs, names)
        found = decode(
            self.model,
            self.task,
            search,
            readable,
            range(len(readable)),
            count,
            tokens=self.tokens,
            progress=progress,
            names=names,
        )
        results = []
        for number, input in enumerate(readable):
            outputs: dict[str, tuple[Any, Hypothesis]] = {}
            for hypothesis in found[number]:
                output = self.task.decode(hypothesis.ids, input)
                outputs.setdefault(self.task.write(output), (output, hypothesis))
            results.append(list(outputs.values()))
        return results

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
            self.model,
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

    def score(self, examples: Sequence[Any]) -> list[float]:
        """The log-probability that the model gives to the target of each example, eos included."""
        results = [0.0] * len(examples)
        corpus = Corpus.of(
            (self.task.encode_source(self.task.input(example)), self.task.encode_target(example))
            for example in examples
        )
        padding = self.model.vocabulary.pad
        with torch.inference_mode(), evaluating(self.model):
            for numbers in decoding_batches(corpus.sources.lengths().tolist(), self.tokens):
                batch = collate(corpus, numbers, specials(self.model)).to(self.model.device)
                logits = self.model(batch.source, batch.mask, batch.target_in)
                chosen = logits.float().log_softmax(-1).gather(2, batch.target_out[:, :, None])
                totals = chosen[:, :, 0].double().masked_fill(batch.target_out == padding, 0.0)
                for number, total in zip(numbers, totals.sum(1).tolist(), strict=True):
                    results[number] = total
        return results


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
) -> dict[int, list[Hypothesis]]:
    """Hypotheses for ``inputs``, by their ``numbers``: all of them, or every ``world``-th batch
    from ``rank`` on.

    ``progress`` is told after each batch how many inputs it had. Raises ``DataError`` naming the
    input that is longer than the model has positions for.
    """
    sources = [task.encode_source(input) for input in inputs]
    for number, source in zip(numbers, sources, strict=True):
        if not len(source):
            raise DataError(f"{names(number + 1)} is empty.")
    device = scorer.device
    width = decoder.most or count
    found: dict[int, list[Hypothesis]] = {}
    batches = decoding_batches([len(s) for s in sources], max(1, tokens // width))
    with torch.inference_mode(), evaluating(scorer):
        for batch in batches[rank::world]:
            source, mask = pad([sources[i] for i in batch])
            limits = mask.sum(1) + decoder.extra
            if scorer.longest is not None:
                limits = limits.clamp(max=scorer.longest)
            request = Request(
                source.to(device),
                mask.to(device),
                limits.to(device),
                task.constraint([inputs[i] for i in batch], limits.to(device)),
                count,
            )
            try:
                hypotheses = decoder.decode(scorer, request)
            except DataError as error:  # a batch begins with its longest input
                raise DataError(f"{names(numbers[batch[0]] + 1)}: {error}") from None
            if not all(hypotheses):
                raise SeqtransError("the model's probabilities are not finite; it can't be used.")
            assert len(hypotheses) == len(batch)
            found.update((numbers[i], h) for i, h in zip(batch, hypotheses, strict=True))
            if progress is not None:
                progress(len(batch))
    return found


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


@contextmanager
def evaluating(scorer: Scorer) -> Iterator[None]:
    """No dropout inside this block."""
    model = scorer if isinstance(scorer, torch.nn.Module) else None
    training = model is not None and model.training
    if model is not None:
        model.eval()
    try:
        yield
    finally:
        if model is not None:
            model.train(training)
