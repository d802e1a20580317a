"""The training loop (section 5), and the only place that knows of Accelerate.

An update is a set of examples that depends on the seed, the epoch and its place there alone. It is cut into parts, one
for each process and accumulation step; the loss is summed over them and divided by the update's number of target
tokens. So neither the number of processes nor accumulation changes what is learnt, and resuming is going on
with the next update. Random numbers are seeded anew for every part, so nothing of them has to be saved.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from seqtrans import assembly, checkpoint
from seqtrans.checkpoint import Progress
from seqtrans.config import Config
from seqtrans.data import Array, Batch, Corpus, collate, cut, decoding_batches, epoch_updates
from seqtrans.decoding import Hypothesis
from seqtrans.engine import TOKENS, decode, evaluating, specials
from seqtrans.errors import DataError, SeqtransError
from seqtrans.loss import smoothed_loss
from seqtrans.model import Transducer
from seqtrans.plugins import Registry
from seqtrans.reporting import Reporter
from seqtrans.schedule import learning_rate
from seqtrans.task import Score, Task

SHOWN = 3
"""Hypotheses shown beside their references in each validation."""


class Interrupt:
    """Remembers SIGTERM and Ctrl-C, so that an update can be finished and saved; the second one is obeyed at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen inside this block."""
        before = {number: signal.signal(number, self) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def start_processes(config: Config) -> Accelerator:
    """Join the processes that the launcher started, and give each its share of the cores.

    Raises ``SeqtransError`` if a launcher started several that would all train the same on their own.
    """
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    announced = int(os.environ.get("WORLD_SIZE", "1"))
    if announced > 1 and accelerator.num_processes == 1:
        raise SeqtransError(
            f"the launcher started {announced} processes, but they can't see each other and would all train the same; "
            "start one, or use accelerate launch --multi_gpu --num_processes N or torchrun."
        )
    if accelerator.device.type == "cpu":
        # The launcher sets one thread, which leaves the other cores idle.
        local = int(os.environ.get("LOCAL_WORLD_SIZE", accelerator.num_processes))
        cores = len(os.sched_getaffinity(0))
        torch.set_num_threads(config.run.threads or max(1, cores // local))
    return accelerator


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a run folder against a second training. Raises ``SeqtransError`` if another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SeqtransError(
                f"another process is training in {folder}; choose another run=FOLDER."
            ) from None
        yield


class Training:
    """One training: its parts, and how far it has come."""

    def __init__(
        self,
        config: Config,
        registry: Registry,
        task: Task,
        accelerator: Accelerator,
        reporter: Reporter,
    ) -> None:
        self.config, self.settings, self.task = config, config.training, task
        self.accelerator, self.reporter = accelerator, reporter
        self.folder, self.seed = config.folder, config.run.seed
        self.world, self.rank = accelerator.num_processes, accelerator.process_index
        self.model: Transducer = assembly.build_model(config, registry, task)
        self.specials = specials(self.model)
        self.decoder = assembly.build_decoder(config, registry, self.settings.validation_decoder)
        self.dev = task.examples("dev")
        self.inputs = [task.input(example) for example in self.dev]
        self.dev_corpus = self.writable()
        kind = torch.optim.AdamW if self.settings.optimizer == "adamw" else torch.optim.Adam
        options = {"weight_decay": self.settings.weight_decay} if kind is torch.optim.AdamW else {}
        self.optimizer: Any = kind(
            self.model.parameters(),
            lr=0.0,
            betas=(self.settings.beta1, self.settings.beta2),
            eps=self.settings.epsilon,
            fused=True,
            **options,
        )
        self.wrapped, self.optimizer = accelerator.prepare(self.model, self.optimizer)
        self.progress = Progress(processes=self.world, threads=torch.get_num_threads())
        self.validations: dict[int, float] = {}
        self.interrupt = Interrupt()
        self.began = time.monotonic()
        self.saved = time.monotonic()
        self.speed = 0.0

    def run(self) -> int:
        """Train to the last update, or until patience or a signal ends it; the exit status."""
        self.resume()
        if self.progress.step >= self.settings.steps:
            self.reporter.say(
                f"{self.folder} is already at update {self.progress.step} of {self.settings.steps}; "
                "nothing to do. Raise training.steps to go on."
            )
            return 0
        if self.settings.dry_run:
            self.try_everything()
        with self.interrupt.listening():
            self.reporter.begin(self.progress.step, self.settings.steps)
            return self.loop()

    def loop(self) -> int:
        """Update, log, save and validate, over and over."""
        if self.progress.step and self.due(self.settings.validate_every) and self.unvalidated():
            self.validate()
        while True:
            step = self.progress.step
            interrupted = self.agree(self.interrupt.signal)
            last = step >= self.settings.steps
            validation = bool(step) and (last or self.due(self.settings.validate_every))
            if (validation or self.due(self.settings.save_every) or interrupted) and step:
                if step not in checkpoint.steps(self.folder):
                    self.save()
            elif self.overdue():
                self.save()
            if interrupted:
                name = signal.Signals(interrupted).name
                self.reporter.say(
                    f"stopped by {name} after update {step} of {self.settings.steps}, which is saved; "
                    "the same command goes on from there."
                )
                return 128 + interrupted
            if validation and self.unvalidated():
                self.validate()
                if self.out_of_patience():
                    self.reporter.say(
                        f"no better score in {self.settings.patience} validations: stopped after update {step}."
                    )
                    return 0
            if last:
                return 0
            self.update(self.next_update())

    def writable(self) -> Corpus:
        """The dev examples whose targets the vocabulary can write; the others have no loss, but are scored."""
        pairs, without = [], []
        for input, example in zip(self.inputs, self.dev, strict=True):
            try:
                pairs.append((self.task.encode_source(input), self.task.encode_target(example)))
            except DataError as error:
                without.append(str(error))
        if without:
            self.reporter.say(
                f"{len(without)} of {len(self.dev)} dev examples can't be written and count in the score, "
                f"but not in the loss; the first: {without[0]}"
            )
        return Corpus.of(pairs)

    # --- the data ---------------------------------------------------------------------------------

    def epoch(self, number: int) -> tuple[Corpus, list[Array]]:
        """The corpus and the updates of an epoch."""
        corpus = self.task.training(number, self.seed)
        data = self.config.data
        updates = epoch_updates(
            corpus, data.tokens, self.seed, number, data.longest_source, data.longest_target
        )
        if not updates:
            raise DataError(
                "no training example is left: there are none, or all are longer than "
                "data.longest_source or data.longest_target."
            )
        return corpus, updates

    def next_update(self) -> Array:
        """The examples of the next update, from the next epoch if this one is over."""
        if not hasattr(self, "corpus"):
            self.corpus, self.updates = self.epoch(self.progress.epoch)
        if self.progress.position >= len(self.updates):
            self.progress = replace(self.progress, epoch=self.progress.epoch + 1, position=0)
            self.corpus, self.updates = self.epoch(self.progress.epoch)
        return self.updates[self.progress.position]

    # --- one update -------------------------------------------------------------------------------

    def update(self, numbers: Array) -> None:
        """Forward, backward and one step of the optimiser over the examples ``numbers``, on all processes together."""
        began = time.monotonic()
        step = self.progress.step + 1
        accumulation = self.settings.accumulation
        parts = cut(numbers, self.world * accumulation)
        tokens = int(self.corpus.targets.lengths[numbers].sum()) + len(numbers)
        loss = torch.zeros((), dtype=torch.float64, device=self.accelerator.device)
        for turn in range(accumulation):
            part = self.rank * accumulation + turn
            seed = np.random.SeedSequence((self.seed, step, part)).generate_state(1)[0]
            torch.manual_seed(int(seed))
            batch = collate(self.corpus, parts[part], self.specials).to(self.accelerator.device)
            together = turn == accumulation - 1
            with nullcontext() if together else self.accelerator.no_sync(self.wrapped):
                summed = self.loss(batch)
                # The processes' gradients are averaged, hence the number of processes.
                self.accelerator.backward(summed * (self.world / tokens))
            loss += summed.detach().double()
        logging = step % self.settings.log_every == 0
        norm = self.clip(logging)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.world > 1:
            loss = self.accelerator.reduce(loss, "sum")
        self.progress = replace(
            self.progress,
            step=step,
            position=self.progress.position + 1,
            window_loss=self.progress.window_loss + float(loss),
            window_tokens=self.progress.window_tokens + tokens,
        )
        now = tokens / max(1e-9, time.monotonic() - began)
        self.speed = now if not self.speed else 0.95 * self.speed + 0.05 * now
        self.reporter.tick(step, f"{self.speed:,.0f} tok/s")
        if logging:
            self.log(norm)

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss of a part."""
        logits = self.wrapped(batch.source, batch.mask, batch.target_in)
        return smoothed_loss(
            logits,
            batch.target_out,
            self.specials[0],
            self.settings.smoothing,
            self.settings.smoothing_over,
        )

    def clip(self, logging: bool) -> float | None:
        """Clip the gradients if wanted; their norm, if it had to be computed."""
        if self.settings.clip is None and not logging:
            return None
        return float(
            self.accelerator.clip_grad_norm_(
                self.wrapped.parameters(), self.settings.clip or float("inf")
            )
        )

    def rate(self, step: int) -> float:
        """The learning rate of an update."""
        return learning_rate(
            step,
            schedule=self.settings.schedule,
            lr=self.settings.lr,
            warmup=self.settings.warmup,
            steps=self.settings.steps,
            width=self.config.shape.width,
        )

    def log(self, norm: float | None) -> None:
        """A line for people and figures for the files."""
        progress, settings = self.progress, self.settings
        loss = progress.window_loss / max(1, progress.window_tokens)
        epoch = progress.epoch + progress.position / len(self.updates)
        self.progress = replace(progress, window_loss=0.0, window_tokens=0)
        rate = self.rate(progress.step)
        figures = {"loss": loss, "lr": rate, "epoch": epoch, "tokens_per_second": self.speed}
        if norm is not None:
            figures["gradient_norm"] = norm
        self.reporter.record(progress.step, "training", figures)
        self.reporter.say(
            f"update {progress.step:>6,} of {settings.steps:,}  epoch {epoch:.2f}  loss {loss:.4f}  "
            f"lr {rate:.2e}  norm {norm if norm is not None else float('nan'):.2f}  {self.speed:,.0f} tok/s"
        )
        if not np.isfinite(loss):
            raise SeqtransError(
                f"the loss is {loss} after update {progress.step}: the training has diverged; "
                "try a lower training.lr, more training.warmup or training.clip=1."
            )

    # --- checkpoints ------------------------------------------------------------------------------

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        folder = checkpoint.newest(self.folder, self.reporter.warn)
        if self.accelerator.is_main_process:
            checkpoint.sweep(self.folder)
        if folder is None:
            return
        checkpoint.load_weights(folder, self.model)
        progress = checkpoint.load_state(folder, self.inner_optimizer())
        scaler = self.accelerator.scaler
        if scaler is not None and progress.loss_scale is not None:
            scaler.load_state_dict(dict(progress.loss_scale))
        now = (self.world, torch.get_num_threads())
        if (progress.processes, progress.threads) != now:
            self.reporter.warn(
                f"this run had {progress.processes} processes of {progress.threads} threads and now has "
                f"{now[0]} of {now[1]}: it goes on with the next update, each example once, "
                "but sums are rounded differently."
            )
        self.progress = replace(progress, processes=self.world, threads=torch.get_num_threads())
        scores = checkpoint.read_validations(self.folder)
        self.validations = {s: v for s, v in scores.items() if s <= progress.step}
        self.began = time.monotonic() - progress.seconds
        self.reporter.say(
            f"going on from {folder}, update {progress.step} of {self.settings.steps}."
        )

    def inner_optimizer(self) -> torch.optim.Optimizer:
        """The optimiser inside Accelerate's wrapper."""
        return getattr(self.optimizer, "optimizer", self.optimizer)  # type: ignore[no-any-return]

    def save(self) -> None:
        """Write a checkpoint on the main process."""
        scaler = self.accelerator.scaler
        self.progress = replace(
            self.progress,
            seconds=time.monotonic() - self.began,
            loss_scale=None if scaler is None else scaler.state_dict(),
        )
        self.saved = time.monotonic()
        if self.accelerator.is_main_process:
            checkpoint.save(self.folder, self.model, self.inner_optimizer(), self.progress)
            best = checkpoint.best_step(self.validations, self.task.maximise)
            checkpoint.discard(self.folder, self.settings.keep, best)
        self.accelerator.wait_for_everyone()

    def due(self, every: int) -> bool:
        """Whether something that happens every so many updates happens after this one."""
        return self.progress.step % every == 0

    def overdue(self) -> bool:
        """Whether it is time for a checkpoint by the clock; the main process decides."""
        minutes = self.settings.save_minutes
        if minutes is None:
            return False
        late = time.monotonic() - self.saved >= 60 * minutes
        return bool(self.agree(int(late and self.accelerator.is_main_process)))

    def agree(self, value: int | None) -> int:
        """The largest value that any process has."""
        if self.world == 1:
            return value or 0
        mine = torch.tensor([value or 0], device=self.accelerator.device)
        return int(self.accelerator.gather(mine).max())

    # --- validation -------------------------------------------------------------------------------

    def unvalidated(self) -> bool:
        """Whether the present step has no score yet."""
        return self.progress.step not in self.validations

    def validate(self) -> None:
        """Decode and score all of dev on all processes, show some, and note the score."""
        began = time.monotonic()
        found = self.decode_dev()
        loss = self.dev_loss()
        score = self.score_dev(found)
        step = self.progress.step
        self.validations[step] = score.value
        if self.accelerator.is_main_process:
            checkpoint.write_validations(self.folder, self.validations, self.task.maximise)
        best = checkpoint.best_step(self.validations, self.task.maximise)
        seconds = time.monotonic() - began
        self.reporter.record(
            step, "validation", {score.metric: score.value, "loss": loss, "seconds": seconds}
        )
        self.reporter.say(
            f"validation after update {step:,}: {score.metric} {score.value:.2f}  loss {loss:.4f}"
            f"{'  (best so far)' if best == step else f'  (best {self.validations[best or step]:.2f} at {best:,})'}"
            f"  {seconds:.1f} s"
        )
        for number in range(min(SHOWN, len(self.dev))):
            output = self.task.decode(found[number].ids, self.inputs[number])
            self.reporter.say(f"  output     {self.task.write(output)}")
            self.reporter.say(
                f"  reference  {self.task.write(self.task.reference(self.dev[number]))}"
            )

    def decode_dev(self) -> dict[int, Hypothesis]:
        """The best hypothesis for each dev example, by its number; each process decodes its share."""
        with self.accelerator.autocast():
            mine = decode(
                self.model,
                self.task,
                self.decoder,
                self.inputs,
                range(len(self.inputs)),
                rank=self.rank,
                world=self.world,
            )
        pairs = [(number, hypotheses[0]) for number, hypotheses in mine.items()]
        if self.world > 1:
            pairs = gather_object(pairs)
        found = dict(pairs)
        assert len(pairs) == len(found) == len(self.inputs)
        return found

    def score_dev(self, found: dict[int, Hypothesis]) -> Score:
        """The task's score over all of dev."""
        outputs = [self.task.decode(found[i].ids, input) for i, input in enumerate(self.inputs)]
        return self.task.score(outputs, self.dev)

    def dev_loss(self) -> float:
        """Cross-entropy per target token of dev, in nats, without smoothing."""
        lengths = self.dev_corpus.sources.lengths + self.dev_corpus.targets.lengths
        total = torch.zeros(2, dtype=torch.float64, device=self.accelerator.device)
        with torch.inference_mode(), evaluating(self.model), self.accelerator.autocast():
            for numbers in decoding_batches(lengths.tolist(), TOKENS)[self.rank :: self.world]:
                batch = collate(self.dev_corpus, numbers, self.specials).to(total.device)
                logits = self.model(batch.source, batch.mask, batch.target_in)
                total[0] += smoothed_loss(logits, batch.target_out, self.specials[0]).double()
                total[1] += (batch.target_out != self.specials[0]).sum()
        if self.world > 1:
            total = self.accelerator.reduce(total, "sum")
        return float(total[0] / total[1])

    def out_of_patience(self) -> bool:
        """Whether too many validations have passed since the best one; an equal score is no better."""
        best = checkpoint.best_step(self.validations, self.task.maximise)
        since = sum(1 for step in self.validations if best is not None and step > best)
        return self.settings.patience is not None and since >= self.settings.patience

    # --- the dry run ------------------------------------------------------------------------------

    def try_everything(self) -> None:
        """Every phase once, with the largest batch of each, so that nothing fails for the first time after hours.

        Leaves no trace: gradients are dropped, and what is saved is read back and deleted.
        """
        began = time.monotonic()
        self.corpus, self.updates = self.epoch(self.progress.epoch)
        largest = max(self.updates, key=self.positions)
        part = cut(largest, self.world * self.settings.accumulation)[0]
        batch = collate(self.corpus, part, self.specials).to(self.accelerator.device)
        self.accelerator.backward(self.loss(batch) * 0.0)
        self.optimizer.zero_grad()
        sources = [len(self.task.encode_source(input)) for input in self.inputs]
        longest = sources.index(max(sources))
        with self.accelerator.autocast():
            found = decode(self.model, self.task, self.decoder, [self.inputs[longest]], [longest])
        output = self.task.decode(found[longest][0].ids, self.inputs[longest])
        self.task.score([output], [self.dev[longest]])
        if self.accelerator.is_main_process:
            trial = self.folder / ".trial.tmp"
            try:
                path = checkpoint.save(trial, self.model, self.inner_optimizer(), self.progress)
                checkpoint.load_weights(path, self.model)
                checkpoint.load_state(path, self.inner_optimizer())
            finally:
                checkpoint.sweep(self.folder)
        self.accelerator.wait_for_everyone()
        self.reporter.say(
            f"dry run: trained on {len(part)} examples of {batch.source.shape[1]} + {batch.target_in.shape[1]} "
            f"positions, decoded, scored, saved and read back in {time.monotonic() - began:.1f} s."
        )

    def positions(self, numbers: Array) -> int:
        """The padded positions of an update."""
        source = int(self.corpus.sources.lengths[numbers].max())
        target = int(self.corpus.targets.lengths[numbers].max()) + 1
        return len(numbers) * (source + target)


def run(config: Config, registry: Registry) -> int:
    """Prepare what must be prepared and train; the exit status."""
    from seqtrans.prepare import prepare

    accelerator = start_processes(config)
    main = accelerator.is_main_process
    with ExitStack() as stack:
        if main:
            stack.enter_context(alone(config.folder))
            prepare(config, registry)
        accelerator.wait_for_everyone()
        reporter = stack.enter_context(Reporter(config.folder, main))
        task = assembly.build_task(config, registry)
        task.open(config.folder / "task")
        for line in task.describe():
            reporter.say(line)
        training = Training(config, registry, task, accelerator, reporter)
        parameters = sum(p.numel() for p in training.model.parameters())
        reporter.say(
            f"{parameters:,} parameters; {accelerator.num_processes} "
            f"{'process' if accelerator.num_processes == 1 else 'processes'} on {accelerator.device}, "
            f"{torch.get_num_threads()} threads each, precision {accelerator.mixed_precision}; "
            f"run folder {config.folder}"
        )
        try:
            return training.run()
        finally:
            accelerator.end_training()
            if accelerator.num_processes > 1 and torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
