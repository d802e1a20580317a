"""The training loop (section 5), and the only place that knows of Accelerate.

An update is a set of examples that depends on the seed, the epoch and its place there alone. It is
cut into parts, one for each process and accumulation step; the loss is summed over them and divided
by the update's number of target tokens. So neither the number of processes nor accumulation changes
what is learnt, and resuming is going on with the next update. Random numbers are seeded anew for
every part, so nothing of them has to be saved.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor

from seqtrans import assembly, checkpoint
from seqtrans.checkpoint import Progress
from seqtrans.config import Config
from seqtrans.data import Array, Batch, Corpus, collate, cut, decoding_batches, epoch_updates
from seqtrans.decoding import Hypothesis
from seqtrans.engine import TOKENS, decode, evaluating, specials
from seqtrans.errors import DataError, SeqtransError
from seqtrans.files import alone, delete, sweep, temporary_for
from seqtrans.loss import smoothed_loss
from seqtrans.model import Transducer
from seqtrans.plugins import Registry
from seqtrans.reporting import Reporter
from seqtrans.schedule import learning_rate
from seqtrans.task import Score, Task

T = TypeVar("T")
SHOWN = 3
"""Hypotheses shown beside their references in each validation."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
ECHO = 1.0
"""Seconds in which a second signal is the first one's echo: launchers pass Ctrl-C on once more."""
PATIENCE = timedelta(hours=2)
"""How long processes wait for one another: the first may have much to prepare."""


class Interrupt:
    """Remembers SIGTERM and Ctrl-C, so that an update can be finished and saved.

    The second one is obeyed at once.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.at = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal, self.at = number, time.monotonic()
        elif time.monotonic() - self.at > ECHO:
            raise SystemExit(128 + number)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen inside this block."""
        before = {number: signal.signal(number, self) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def start_processes(config: Config) -> Accelerator:
    """Join the processes that the launcher started, and give each its share of the cores.

    Raises ``SeqtransError`` if a launcher started several that would all train the same alone.
    """
    announced = int(os.environ.get("WORLD_SIZE", "1"))
    strangers = announced > 1 and "MASTER_ADDR" not in os.environ
    if not strangers:
        accelerator = Accelerator(
            cpu=not torch.cuda.is_available(),
            kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE)],
        )
    if strangers or (announced > 1 and accelerator.num_processes == 1):
        raise SeqtransError(
            f"the launcher started {announced} processes (WORLD_SIZE), but they can't see each "
            "other and would all train the same; start one, or use "
            "accelerate launch --multi_gpu --num_processes N or torchrun."
        )
    if accelerator.device.type == "cpu":
        # The launcher sets one thread, which leaves the other cores idle.
        local = int(os.environ.get("LOCAL_WORLD_SIZE", accelerator.num_processes))
        cores = len(os.sched_getaffinity(0))
        torch.set_num_threads(config.run.threads or max(1, cores // local))
    return accelerator


def once(accelerator: Accelerator, action: Callable[[], T]) -> T:
    """What ``action`` gives, done on the main process alone while the others wait.

    Where it fails there, the others end without a word instead of waiting for ever.
    """
    outcome: list[Any] = [False, None]
    if accelerator.is_main_process:
        try:
            outcome = [True, action()]
        except Exception:
            broadcast_object_list(outcome)
            raise
    done, value = broadcast_object_list(outcome)
    if not done:
        raise SystemExit(2)
    return value  # type: ignore[no-any-return]


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
        if not self.dev:
            raise DataError("the dev split is empty; validation needs an example at least.")
        self.inputs = [task.input(example) for example in self.dev]
        self.dev_corpus = self.writable()
        options: dict[str, Any] = {
            "lr": 0.0,
            "betas": (self.settings.beta1, self.settings.beta2),
            "eps": self.settings.epsilon,
            "fused": True,
        }
        parameters = self.model.parameters()
        self.optimizer: Any = (
            torch.optim.AdamW(parameters, weight_decay=self.settings.weight_decay, **options)
            if self.settings.optimizer == "adamw"
            else torch.optim.Adam(parameters, **options)
        )
        self.wrapped, self.optimizer = accelerator.prepare(self.model, self.optimizer)
        self.progress = Progress(processes=self.world, threads=torch.get_num_threads())
        self.window = torch.zeros((), dtype=torch.float64, device=accelerator.device)
        """The loss since the last line of the log, where it need not be waited for."""
        self.told = torch.zeros(1 + len(SIGNALS), device=accelerator.device)
        """What the processes told each other with the last update: is a save due, what signals."""
        self.validations: dict[int, float] = {}
        self.interrupt = Interrupt()
        self.kept = 0
        """The update of the last checkpoint."""
        self.began = self.saved = self.last = time.monotonic()
        self.speed = 0.0

    def run(self) -> int:
        """Train to the last update, or until patience or a signal ends it; the exit status."""
        self.resume()
        step, steps = self.progress.step, self.settings.steps
        if step > steps or (step == steps and step in self.validations):
            self.reporter.say(
                f"{self.folder} is already at update {step} of {steps}; nothing to do. "
                "Raise training.steps to go on."
            )
            return 0
        if self.out_of_patience():
            self.reporter.say(
                f"{self.folder} has stopped at update {step}, out of patience; nothing to do. "
                "Raise training.patience to go on."
            )
            return 0
        self.corpus, self.updates = self.epoch(self.progress.epoch)
        if self.settings.dry_run:
            self.try_everything()
        with self.interrupt.listening():
            self.reporter.begin(step, steps, self.validations)
            self.saved = self.last = time.monotonic()
            return self.loop()

    def loop(self) -> int:
        """Update, log, save and validate, over and over."""
        while True:
            step, interrupted = self.progress.step, self.interrupted()
            last = step >= self.settings.steps
            validation = bool(step) and (last or self.due(self.settings.validate_every))
            saving = validation or self.due(self.settings.save_every) or self.overdue()
            if (saving or interrupted) and step != self.kept:
                self.save()
            if interrupted:
                saved = ", which is saved; the same command goes on from there" if step else ""
                self.reporter.say(
                    f"stopped by {signal.Signals(interrupted).name} after update {step} of "
                    f"{self.settings.steps}{saved}."
                )
                return 128 + interrupted
            if validation and step not in self.validations:
                self.validate()
                if self.out_of_patience():
                    self.reporter.say(
                        f"no better score in {self.settings.patience} validations: "
                        f"stopped after update {step}."
                    )
                    return 0
            if last:
                return 0
            self.update(self.next_update())

    def writable(self) -> Corpus:
        """The dev examples whose targets the vocabulary can write.

        The others have no loss, but are scored.
        """
        pairs, without = [], []
        for input, example in zip(self.inputs, self.dev, strict=True):
            try:
                pairs.append((self.task.encode_source(input), self.task.encode_target(example)))
            except DataError as error:
                without.append(str(error))
        if without:
            self.reporter.say(
                f"{len(without)} of {len(self.dev)} dev examples can't be written and count in the "
                f"score, but not in the loss; the first: {without[0]}"
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
        if self.progress.position >= len(self.updates):
            self.progress = replace(self.progress, epoch=self.progress.epoch + 1, position=0)
            self.corpus, self.updates = self.epoch(self.progress.epoch)
        return self.updates[self.progress.position]

    # --- one update -------------------------------------------------------------------------------

    def update(self, numbers: Array) -> None:
        """One step of the optimiser over the examples ``numbers``, on all processes together."""
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
            loss += summed.detach()
        logging = step % self.settings.log_every == 0
        norm = self.clip(logging)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.window += self.tell(loss)
        self.progress = replace(
            self.progress,
            step=step,
            position=self.progress.position + 1,
            window_tokens=self.progress.window_tokens + tokens,
        )
        elapsed, self.last = time.monotonic() - self.last, time.monotonic()
        now = tokens / max(1e-9, elapsed)
        self.speed = now if not self.speed else 0.95 * self.speed + 0.05 * now
        self.reporter.tick(step, f"{self.speed:,.0f} tok/s")
        if logging:
            self.log(norm)

    def tell(self, loss: Tensor) -> Tensor:
        """The loss of all processes; on the way they tell each other what ``told`` holds."""
        if self.world == 1:
            return loss
        late = self.accelerator.is_main_process and self.late()
        mine = [late, *(self.interrupt.signal == number for number in SIGNALS)]
        ours = torch.cat([loss[None], torch.tensor(mine, device=loss.device)])
        figures: Tensor = self.accelerator.reduce(ours, "sum")
        self.told = figures[1:]
        return figures[0]

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
        self.check_finite(self.window)
        loss = float(self.window) / max(1, progress.window_tokens)
        epoch = progress.epoch + progress.position / len(self.updates)
        self.window.zero_()
        self.progress = replace(progress, window_tokens=0)
        rate = self.rate(progress.step)
        figures = {"loss": loss, "lr": rate, "epoch": epoch, "tokens_per_second": self.speed}
        if norm is not None:
            figures["gradient_norm"] = norm
        self.reporter.record(progress.step, "training", figures)
        self.reporter.say(
            f"update {progress.step:>6,} of {settings.steps:,}  epoch {epoch:.2f}  loss {loss:.4f}"
            f"  lr {rate:.2e}  norm {norm if norm is not None else float('nan'):.2f}"
            f"  {self.speed:,.0f} tok/s"
        )

    def check_finite(self, *values: Tensor) -> None:
        """Stop, in the same words for all processes, where something became infinite or NaN."""
        if all(bool(value.isfinite().all()) for value in values):
            return
        if not self.accelerator.is_main_process:
            raise SystemExit(2)
        raise SeqtransError(
            f"the loss or a weight is not finite after update {self.progress.step}: the training "
            "has diverged; try a lower training.lr, more training.warmup or training.clip=1."
        )

    # --- checkpoints ------------------------------------------------------------------------------

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one; the main process says which."""

        def newest() -> int | None:
            sweep(self.folder)
            return checkpoint.newest(self.folder, self.reporter.warn)

        step = once(self.accelerator, newest)
        if step is None:
            return
        folder = checkpoint.step_folder(self.folder, step)
        checkpoint.load_weights(folder, self.model)
        progress = checkpoint.load_state(folder, self.inner_optimizer())
        scaler = self.accelerator.scaler
        if scaler is not None and progress.loss_scale is not None:
            scaler.load_state_dict(dict(progress.loss_scale))
        threads = torch.get_num_threads()
        if (progress.processes, progress.threads) != (self.world, threads):
            self.reporter.warn(
                f"this run had {count(progress.processes, 'process')} of "
                f"{count(progress.threads, 'thread')} and now has {count(self.world, 'process')} "
                f"of {count(threads, 'thread')}: it goes on with the next update, each example "
                "once, but sums are rounded differently."
            )
        self.progress = replace(progress, processes=self.world, threads=threads)
        self.kept = progress.step
        self.window.fill_(progress.window_loss)
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
        """Write a checkpoint on the main process, unless there is nothing worth keeping."""
        self.check_finite(self.window, *self.model.parameters())
        scaler = self.accelerator.scaler
        self.progress = replace(
            self.progress,
            seconds=time.monotonic() - self.began,
            window_loss=float(self.window),
            loss_scale=None if scaler is None else scaler.state_dict(),
        )

        def write() -> None:
            self.reporter.sync()
            checkpoint.save(self.folder, self.model, self.inner_optimizer(), self.progress)
            best = checkpoint.best_step(self.validations, self.task.maximise)
            checkpoint.thin(self.folder, self.settings.keep, best)

        once(self.accelerator, write)
        self.kept = self.progress.step
        self.saved = self.last = time.monotonic()

    def due(self, every: int) -> bool:
        """Whether something that happens every so many updates happens after this one."""
        return self.progress.step % every == 0

    def late(self) -> bool:
        """Whether it is time for a checkpoint by this process's clock."""
        minutes = self.settings.save_minutes
        return minutes is not None and time.monotonic() - self.saved >= 60 * minutes

    def overdue(self) -> bool:
        """Whether it is time for a checkpoint by the main process's clock."""
        if self.world == 1 or self.settings.save_minutes is None:
            return self.late()
        return bool(self.told[0])

    def interrupted(self) -> int | None:
        """The signal that any process got, as told with the last update."""
        if self.world == 1:
            return self.interrupt.signal
        heard = self.told[1:].tolist()
        return next((int(number) for number, n in zip(SIGNALS, heard, strict=True) if n), None)

    # --- validation -------------------------------------------------------------------------------

    def validate(self) -> None:
        """Decode and score all of dev on all processes, show some, and note the score."""
        began = time.monotonic()
        found = self.decode_dev()
        loss = self.dev_loss()
        score = self.score_dev(found)
        step = self.progress.step
        self.validations[step] = score.value
        best = checkpoint.best_step(self.validations, self.task.maximise)
        seconds = time.monotonic() - began
        self.reporter.record(
            step, "validation", {score.metric: score.value, "loss": loss, "seconds": seconds}
        )
        # Only now: a validation that is noted here is not made again, nor recorded, after a kill.
        if self.accelerator.is_main_process:
            checkpoint.write_validations(self.folder, self.validations, self.task.maximise)
        assert best is not None
        standing = (
            f"best {self.validations[best]:.2f} at {best:,}" if best != step else "best so far"
        )
        self.reporter.say(
            f"validation after update {step:,}: {score.metric} {score.value:.2f}  loss {loss:.4f}"
            f"  ({standing})  {seconds:.1f} s"
        )
        for number in range(min(SHOWN, len(self.dev))):
            output = self.task.decode(found[number].ids, self.inputs[number])
            self.reporter.say(f"  output     {self.task.write(output)}")
            self.reporter.say(
                f"  reference  {self.task.write(self.task.reference(self.dev[number]))}"
            )
        self.last = time.monotonic()

    def decode_dev(self) -> dict[int, Hypothesis]:
        """The best hypothesis for each dev example, by its number.

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
        """Whether too many validations have passed since the best; an equal score is no better."""
        best = checkpoint.best_step(self.validations, self.task.maximise)
        since = sum(1 for step in self.validations if best is not None and step > best)
        return self.settings.patience is not None and since >= self.settings.patience

    # --- the dry run ------------------------------------------------------------------------------

    def try_everything(self) -> None:
        """Every phase once, with the largest and longest, so that none fails only after hours.

        Leaves no trace: gradients are dropped, random numbers and buffers are put back, and what is
        saved is read back and deleted.
        """
        began = time.monotonic()
        device, corpus = self.accelerator.device, self.corpus
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        largest = max(self.updates, key=self.positions)
        part = cut(largest, self.world * self.settings.accumulation)[0]
        used = np.concatenate(self.updates)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            for numbers in (
                used[[corpus.sources.lengths[used].argmax()]],
                used[[corpus.targets.lengths[used].argmax()]],
                part,
            ):
                batch = collate(corpus, numbers, self.specials).to(device)
                self.accelerator.backward(self.loss(batch) * 0.0)
            self.optimizer.zero_grad()
            self.try_validation()
        for name, buffer in self.model.named_buffers():
            buffer.copy_(buffers[name])
        once(self.accelerator, self.try_saving)
        self.reporter.say(
            f"dry run: trained on {count(len(part), 'example')} of {batch.source.shape[1]} + "
            f"{batch.target_in.shape[1]} positions, decoded, scored, saved and read back in "
            f"{time.monotonic() - began:.1f} s."
        )

    def try_validation(self) -> None:
        """Decode and score the dev example with the longest source; the loss of the longest."""
        sources = [len(self.task.encode_source(input)) for input in self.inputs]
        longest = sources.index(max(sources))
        with self.accelerator.autocast():
            found = decode(self.model, self.task, self.decoder, [self.inputs[longest]], [longest])
        output = self.task.decode(found[longest][0].ids, self.inputs[longest])
        self.task.score([output], [self.dev[longest]])
        if len(self.dev_corpus):
            number = int(self.dev_corpus.targets.lengths.argmax())
            batch = collate(self.dev_corpus, [number], self.specials).to(self.accelerator.device)
            with torch.inference_mode(), evaluating(self.model), self.accelerator.autocast():
                self.model(batch.source, batch.mask, batch.target_in)

    def try_saving(self) -> None:
        """Write a checkpoint, read it back, delete it."""
        trial = temporary_for(self.folder / "trial")
        try:
            path = checkpoint.save(trial, self.model, self.inner_optimizer(), self.progress)
            checkpoint.load_weights(path, self.model)
            checkpoint.load_state(path, self.inner_optimizer())
        finally:
            delete(trial)

    def positions(self, numbers: Array) -> int:
        """The padded positions of an update."""
        source = int(self.corpus.sources.lengths[numbers].max())
        target = int(self.corpus.targets.lengths[numbers].max()) + 1
        return len(numbers) * (source + target)


def count(number: int, thing: str) -> str:
    """``1 process``, ``2 processes``."""
    ending = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number:,} {thing}{ending}"


def run(config: Config, registry: Registry) -> int:
    """Prepare what must be prepared and train; the exit status."""
    from seqtrans.prepare import prepare

    accelerator = start_processes(config)
    with ExitStack() as stack:

        def begin() -> None:
            stack.enter_context(alone(config.folder))
            prepare(config, registry)

        stack.callback(leave, accelerator)
        once(accelerator, begin)
        reporter = stack.enter_context(Reporter(config.folder, accelerator.is_main_process))
        task = assembly.build_task(config, registry)
        task.open(config.folder / "task")
        for line in task.describe():
            reporter.say(line)
        training = Training(config, registry, task, accelerator, reporter)
        parameters = sum(p.numel() for p in training.model.parameters())
        reporter.say(
            f"{parameters:,} parameters; {count(training.world, 'process')} on "
            f"{accelerator.device}, {count(torch.get_num_threads(), 'thread')} each, precision "
            f"{accelerator.mixed_precision}; run folder {config.folder}"
        )
        try:
            return training.run()
        finally:
            training.wrapped = training.model


def leave(accelerator: Accelerator) -> None:
    """Leave the group of processes, so that ending is no error.

    The wrapped model has to go first. If it is the last to let go of the group, it waits for Gloo's
    threads while it holds the interpreter; they may need that to let go of their last tensor, and
    then the process never ends. The nap lets them finish where an error keeps the model alive.
    """
    if accelerator.num_processes > 1:
        accelerator.free_memory()
        time.sleep(0.1)
    accelerator.end_training()
