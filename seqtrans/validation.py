"""Validation: all of dev is decoded and scored, on all processes, each example exactly once."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import Tensor

from seqtrans import checkpoint
from seqtrans.corpus import Corpus
from seqtrans.data import Batch, collate, decoding_batches
from seqtrans.decoding import Decoder, Hypothesis
from seqtrans.engine import TOKENS, decode, evaluating, specials
from seqtrans.errors import DataError
from seqtrans.loss import Objective
from seqtrans.processes import Accelerator, gathered
from seqtrans.reporting import Reporter
from seqtrans.task import Score, Task

SHOWN = 3
"""Hypotheses shown beside their references in each validation."""


class Validation:
    """The dev split of a task, and the scores on it so far."""

    def __init__(
        self,
        task: Task,
        objective: Objective,
        decoder: Decoder,
        accelerator: Accelerator,
        reporter: Reporter,
        run: Path,
    ) -> None:
        self.task, self.objective, self.decoder = task, objective, decoder
        self.model = objective.model
        self.accelerator, self.reporter, self.run = accelerator, reporter, run
        self.world, self.rank = accelerator.num_processes, accelerator.process_index
        self.scores: dict[int, float] = {}
        """By update."""
        self.metric: str | None = None
        """What they are, as far as it is known."""
        self.examples = task.examples("dev")
        if not self.examples:
            raise DataError("the dev split is empty; validation needs an example at least.")
        self.inputs = [task.input(example) for example in self.examples]
        self.corpus = self.writable()

    def writable(self) -> Corpus:
        """The examples whose targets the vocabulary can write.

        The others have no loss, but are scored.
        """
        pairs, without = [], []
        for input, example in zip(self.inputs, self.examples, strict=True):
            try:
                pairs.append((self.task.encode_source(input), self.task.encode_target(example)))
            except DataError as error:
                without.append(str(error))
        if without:
            self.reporter.say(
                f"{len(without)} of {len(self.examples)} dev examples can't be written and count "
                f"in the score, but not in the loss; the first: {without[0]}"
            )
        return Corpus.of(pairs)

    def resume(self, step: int) -> None:
        """Bring back the scores up to an update."""
        found = checkpoint.read_validations(self.run)
        self.scores = {at: score for at, score in found.scores.items() if at <= step}
        self.metric = found.metric

    @property
    def best(self) -> int | None:
        """The update with the best score."""
        return checkpoint.best_step(self.scores, self.task.maximise)

    def out_of_patience(self, patience: int | None) -> bool:
        """Whether too many validations have passed since the best; an equal score is no better."""
        best = self.best
        since = sum(1 for step in self.scores if best is not None and step > best)
        return patience is not None and since >= patience

    def validate(self, step: int) -> None:
        """Decode and score all of dev on all processes, show some, and note the score."""
        began = time.monotonic()
        found = self.decode()
        loss = self.loss()
        score = self.score(found)
        if self.scores and self.metric not in (None, score.metric):
            self.reporter.warn(
                f"the validations so far are of {self.metric}, and dev is now scored by "
                f"{score.metric}: best and patience begin anew."
            )
            self.scores.clear()
        self.metric = score.metric
        self.scores[step] = score.value
        seconds = time.monotonic() - began
        self.reporter.record(
            step, "validation", {score.metric: score.value, "loss": loss, "seconds": seconds}
        )
        # Only now: a validation that is noted here is not made again, nor recorded, after a kill.
        if self.accelerator.is_main_process:
            checkpoint.write_validations(self.run, self.scores, self.task.maximise, score.metric)
        best = self.best
        assert best is not None
        standing = f"best {self.scores[best]:.2f} at {best:,}" if best != step else "best so far"
        self.reporter.say(
            f"validation after update {step:,}: {score.metric} {score.value:.2f}  loss {loss:.4f}"
            f"  ({standing})  {seconds:.1f} s  [{score.signature}]"
        )
        for number in range(min(SHOWN, len(self.examples))):
            output = self.task.decode(found[number].ids, self.inputs[number])
            reference = self.task.reference(self.examples[number])
            self.reporter.say(f"  output     {self.task.write(output)}")
            self.reporter.say(f"  reference  {self.task.write(reference)}")

    def decode(self) -> dict[int, Hypothesis]:
        """The best hypothesis for each example, by its number.

        Each process decodes its share, and all get all.
        """
        with self.accelerator.autocast():
            mine = decode(
                self.model,
                self.task,
                self.decoder,
                self.inputs,
                range(len(self.inputs)),
                rank=self.rank,
                world=self.world,
                names="dev example {}".format,
            )
        pairs = gathered(self.accelerator, [(number, found[0]) for number, found in mine.items()])
        found = dict(pairs)
        assert len(pairs) == len(found) == len(self.inputs)
        return found

    def score(self, found: dict[int, Hypothesis]) -> Score:
        """The task's score over all of dev."""
        outputs = [self.task.decode(found[i].ids, input) for i, input in enumerate(self.inputs)]
        return self.task.score(outputs, self.examples)

    def loss(self) -> float:
        """What is minimised, per target token, in nats; what is random in it is so once for all."""
        lengths = self.corpus.sources.lengths() + self.corpus.targets.lengths()
        total = torch.zeros(2, dtype=torch.float64, device=self.accelerator.device)
        pad = specials(self.model)[0]
        with torch.inference_mode(), evaluating(self.model), self.accelerator.autocast():
            for numbers in decoding_batches(lengths.tolist(), TOKENS)[self.rank :: self.world]:
                batch = collate(self.corpus, numbers, specials(self.model)).to(total.device)
                torch.manual_seed(numbers[0])
                total[0] += self.loss_of(batch).double()
                total[1] += (batch.target_out != pad).sum()
        if self.world > 1:
            total = self.accelerator.reduce(total, "sum")
        return float(total[0] / total[1])

    def loss_of(self, batch: Batch) -> Tensor:
        """The summed loss of a batch."""
        loss: Tensor = self.objective(batch.source, batch.mask, batch.target_in, batch.target_out)
        return loss

    def rehearse(self) -> None:
        """Decode and score one batch, that with the longest inputs, and the loss of the longest."""
        lengths = [len(self.task.encode_source(input)) for input in self.inputs]
        width = self.decoder.most or 1
        numbers = decoding_batches(lengths, max(1, TOKENS // width), self.decoder.together)[0]
        inputs = [self.inputs[number] for number in numbers]
        with self.accelerator.autocast():
            found = decode(
                self.model,
                self.task,
                self.decoder,
                inputs,
                numbers,
                names="dev example {}".format,
            )
        outputs = [
            self.task.decode(found[number][0].ids, input)
            for number, input in zip(numbers, inputs, strict=True)
        ]
        self.task.score(outputs, [self.examples[number] for number in numbers])
        if len(self.corpus):
            longest = int(self.corpus.targets.lengths().argmax())
            batch = collate(self.corpus, [longest], specials(self.model)).to(self.model.device)
            with torch.inference_mode(), evaluating(self.model), self.accelerator.autocast():
                self.loss_of(batch)
