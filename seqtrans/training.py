"""The training loop (section 5).

An update is a set of examples that depends on the seed, the epoch and its place there alone. It is
cut into parts, one for each process and accumulation step; the loss is summed over them and divided
by the update's number of target tokens. So neither the number of processes nor accumulation changes
what is learnt, and resuming is going on with the next update. Random numbers are seeded anew for
every part, so nothing of them has to be saved.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqtrans import assembly, checkpoint
from seqtrans.checkpoint import Progress
from seqtrans.corpus import Array
from seqtrans.data import NONE_LEFT, Batch, Epoch, collate, cut, left_out
from seqtrans.engine import specials
from seqtrans.errors import DataError, SeqtransError
from seqtrans.files import alone, sweep
from seqtrans.loss import OBJECTIVES
from seqtrans.model import Transducer
from seqtrans.plugins import Registry
from seqtrans.processes import SIGNALS, Accelerator, Interrupt, count, leave, once, start_processes
from seqtrans.rehearsal import check_positions, rehearse, within_positions
from seqtrans.reporting import Reporter, pace
from seqtrans.resolving import Config
from seqtrans.runs import check_alike, check_same_model, join_runs, open_run
from seqtrans.schedule import learning_rate
from seqtrans.task import Task
from seqtrans.validation import Validation


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
        self.registry = registry
        self.accelerator, self.reporter = accelerator, reporter
        self.folder, self.seed = config.folder, config.run.seed
        self.world, self.rank = accelerator.num_processes, accelerator.process_index
        self.model: Transducer = assembly.build_model(config, registry, task)
        self.model.recompute = self.settings.recompute
        self.specials = specials(self.model)
        decoder = assembly.build_decoder(config, registry, self.settings.validation_decoder)
        join_runs(decoder, config.folder, config, task, registry, accelerator.device, {})
        objective = OBJECTIVES[self.settings.objective]
        self.validation = Validation(
            task, objective(self.model), decoder, accelerator, reporter, config.folder
        )
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
        minimised = objective(
            self.model,
            self.settings.smoothing,
            self.settings.smoothing_over,
            self.settings.consistency,
        )
        self.wrapped, self.optimizer = accelerator.prepare(minimised, self.optimizer)
        self.progress = Progress(
            precision=accelerator.mixed_precision,
            processes=self.world,
            threads=torch.get_num_threads(),
        )
        self.window = torch.zeros((), dtype=torch.float64, device=accelerator.device)
        """The loss since the last line of the log, where it need not be waited for."""
        self.told = torch.zeros(1 + len(SIGNALS), device=accelerator.device)
        """What the processes told each other with the last update: is a save due, what signals."""
        self.interrupt = Interrupt()
        self.kept = 0
        """The update of the last checkpoint."""
        self.began = self.saved = self.last = time.monotonic()
        self.speed = 0.0
        """Target tokens a second, eos included, of all processes together."""

    def run(self) -> int:
        """Train to the last update, or until patience or a signal ends it; the exit status."""
        self.resume()
        step, steps = self.progress.step, self.settings.steps
        if step > steps or (step == steps and step in self.validation.scores):
            self.reporter.say(
                f"{self.folder} is already at update {step} of {steps}; nothing to do. "
                "Raise training.steps to go on."
            )
            return 0
        if self.validation.out_of_patience(self.settings.patience):
            self.reporter.say(
                f"{self.folder} has stopped at update {step}, out of patience; nothing to do. "
                "Raise training.patience to go on."
            )
            return 0
        self.enter_epoch()
        check_positions(self, "dev", self.validation.corpus)
        if self.settings.dry_run:
            rehearse(self)
        with self.interrupt.listening():
            self.reporter.begin(step, steps, self.validation.scores)
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
            if validation and step not in self.validation.scores:
                self.validation.validate(step)
                self.last = time.monotonic()
                if self.validation.out_of_patience(self.settings.patience):
                    self.reporter.say(
                        f"no better score in {self.settings.patience} validations: "
                        f"stopped after update {step}."
                    )
                    return 0
            if last:
                return 0
            self.update(self.next_update())

    def enter_epoch(self) -> None:
        """Open the corpus of the epoch, and the updates of the window that is next in it."""
        number, window = self.progress.epoch, self.progress.window
        corpus, data = self.task.training(number, self.seed), self.config.data
        longest = data.longest_source, data.longest_target
        check_positions(self, "train", corpus, *longest)
        if corpus.draw is not None:
            longest = within_positions(self.model, longest)
        self.epoch = Epoch(corpus, data.tokens, self.seed, number, *longest)
        self.corpus, self.updates = self.epoch.open(window)
        there, used = len(self.epoch.numbers(window)), sum(map(len, self.updates))
        if not used and window == 0:
            raise DataError(NONE_LEFT)
        if used < there and self.progress.position == 0:
            self.reporter.say(left_out(there - used, there))

    def next_update(self) -> Array:
        """The examples of the next update, from the next epoch if this one is over."""
        while self.progress.position >= len(self.updates):
            self.progress = replace(self.progress, window=self.progress.window + 1, position=0)
            if self.progress.window < len(self.epoch):
                self.corpus, self.updates = self.epoch.open(self.progress.window)
            else:
                self.progress = replace(self.progress, epoch=self.progress.epoch + 1, window=0)
                self.enter_epoch()
        return self.updates[self.progress.position]

    def update(self, numbers: Array) -> None:
        """One step of the optimiser over the examples ``numbers``, on all processes together."""
        step = self.progress.step + 1
        accumulation = self.settings.accumulation
        parts = cut(numbers, self.world * accumulation)
        tokens = int(self.corpus.targets.lengths(numbers).sum()) + len(numbers)
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
        self.reporter.tick(step, pace(self.speed, self.world))
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
        loss: Tensor = self.wrapped(batch.source, batch.mask, batch.target_in, batch.target_out)
        return loss

    def clip(self, logging: bool) -> float | None:
        """Clip the gradients if wanted; their norm, if it is to be logged."""
        if self.settings.clip is None and not logging:
            return None
        norm = self.accelerator.clip_grad_norm_(
            self.wrapped.parameters(), self.settings.clip or float("inf")
        )
        return float(norm) if logging else None  # on a GPU, asking for it is waiting for it

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
        windows = progress.window + progress.position / max(1, len(self.updates))
        epoch = progress.epoch + windows / len(self.epoch)
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
            f"  {pace(self.speed, self.world)}"
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

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one; the main process says which."""

        def newest() -> int | None:
            sweep(self.folder)
            return checkpoint.newest(self.folder, self.reporter.warn)

        step = once(self.accelerator, newest)
        if step is None:
            if self.settings.start is not None:
                self.start(self.settings.start)
            return
        folder = checkpoint.step_folder(self.folder, step)
        checkpoint.load_weights(folder, self.model)
        progress = checkpoint.load_state(folder, self.inner_optimizer())
        scaler = self.accelerator.scaler
        if scaler is not None and progress.loss_scale is not None:
            scaler.load_state_dict(dict(progress.loss_scale))
        threads, precision = torch.get_num_threads(), self.accelerator.mixed_precision
        if progress.precision != precision:
            self.reporter.warn(
                f"this run had precision {progress.precision} and now has {precision}."
            )
        on_cpu = self.accelerator.device.type == "cpu"
        if progress.processes != self.world or (on_cpu and progress.threads != threads):
            self.reporter.warn(
                f"this run had {count(progress.processes, 'process')} of "
                f"{count(progress.threads, 'thread')} and now has {count(self.world, 'process')} "
                f"of {count(threads, 'thread')}: it goes on with the next update, each example "
                "once, but sums are rounded differently."
            )
        self.progress = replace(
            progress, precision=precision, processes=self.world, threads=threads
        )
        self.kept = progress.step
        self.window.fill_(progress.window_loss)
        self.validation.resume(progress.step)
        self.began = time.monotonic() - progress.seconds
        self.reporter.say(
            f"going on from {folder}, update {progress.step} of {self.settings.steps}."
        )

    def start(self, run: Path) -> None:
        """Take the weights of another run over. Raises ``CheckpointError`` if they don't fit."""
        folder = checkpoint.choose(run, self.settings.start_step, self.reporter.warn)
        own, task = open_run(run, self.registry)
        check_alike(run, task, self.folder, self.task, "can't have the same weights")
        check_same_model(run, own, self.config)
        checkpoint.load_weights(folder, self.model)
        self.reporter.say(f"begins with the weights of {folder}.")

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
            checkpoint.thin(self.folder, self.settings.keep, self.validation.best)

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
