"""Training, from a configuration to a finished run directory."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlace._checks import checks
from torchlace._imports import import_all
from torchlace._reporter import Reporter
from torchlace._text import setting
from torchlace.runs import Lock, Run, RunError, TrainConfig
from torchlace.runs.files import LOCK
from torchlace.runs.load import load_weights
from torchlace.training.checkpoint import (
    Writer,
    checkpoint_state,
    load_checkpoint,
    save_weights,
    spread_model,
    write_checkpoint,
)
from torchlace.training.choices import beginning, choose_epochs, choose_network, left_open
from torchlace.training.distributed import (
    OneDevice,
    Together,
    check_shared,
    companion,
    launch,
    make_fabric,
    together,
)
from torchlace.training.inputs import Inputs
from torchlace.training.loggers import Loggers
from torchlace.training.model import Assembly, build_model, check_model, compiling
from torchlace.training.optim import make_scheduler
from torchlace.training.scoring import Scoring, accuracy, in_single_precision
from torchlace.training.step import EagerStep, GraphStep, copy_clocks
from torchlace.training.stopping import (
    InterruptedRun,
    Progress,
    check_loss,
    interruptible,
    is_finished,
    leaving_nothing,
    make_folder,
)


def train(
    config: TrainConfig,
    path: Path | str,
    *,
    reporter: Reporter | None = None,
    overwrite: bool = False,
    locked: bool = False,
    choose: Collection[str] = (),
) -> dict[str, Any]:
    """Train, or go on training, in a run directory; returns what result.json says.

    A finished run is left alone unless ``overwrite``; an unfinished one is resumed if its settings
    are the same. ``locked`` says that the caller holds the run's lock. ``choose`` names settings
    that follow from the images and the device instead: ``backbone``, ``pretrained``, ``batch_size``
    and ``epochs``; the run records what was chosen. Data sets with a name have the paper's.
    """
    reporter = reporter or Reporter()
    run = Run(path)
    import_all(config.imports)
    config, still_open = left_open(config, run, choose, overwrite)
    # Before others are started, or waited for in vain.
    if not companion() and is_finished(run, config, reporter, overwrite):
        return run.result()
    with leaving_nothing(run):
        check_model(config)
        fabric = make_fabric(config)
        launch(fabric)
    first = fabric.global_rank == 0
    if not first:
        reporter = Reporter()
    lock = Lock(run.path, LOCK)
    with together(fabric) as company:
        try:
            if first:
                make_folder(run)
            if not fabric.broadcast(locked or (first and lock.acquire())):
                raise RunError(
                    f"another process trains in {run.path} now: wait, or choose another "
                    f"{setting('path')}"
                )
            # Again: nobody else changes the folder from here on.
            config, still_open = left_open(config, run, still_open, overwrite)
            if fabric.broadcast(first and is_finished(run, config, reporter, overwrite)):
                return run.result() if first else {}
            check_shared(run, fabric)
            training = _Training(
                config,
                run,
                fabric,
                reporter,
                company,
                lock,
                resume=not overwrite,
                choose=still_open,
            )
            if first:
                run.sweep()
                if overwrite:
                    run.clear()
            fabric.barrier()
            return training.run_to_end()
        finally:
            lock.remove()  # and a folder in which nothing could begin


class _Training:
    def __init__(
        self,
        config: TrainConfig,
        run: Run,
        fabric: Any,
        reporter: Reporter,
        company: Together,
        lock: Lock,
        *,
        resume: bool,
        choose: Collection[str],
    ) -> None:
        self.run, self.fabric, self.reporter = run, fabric, reporter
        self.company, self.lock = company, lock
        self.device: torch.device = fabric.device
        self.first = fabric.global_rank == 0
        self.inputs = Inputs(config, fabric, reporter)
        config = fabric.broadcast(choose_network(config, choose, self.inputs))
        self.inputs.arrange(config, reporter)
        resumed = fabric.broadcast(resume and run.checkpoint_path.exists())
        # Before anything is begun: what can't be built, or can't take these images, leaves nothing.
        self.model = build_model(config, fabric, self.inputs, resumed=resumed)
        self.config, seconds = choose_epochs(config, choose, fabric, self.inputs, self.model)
        said = (self.config, fabric, self.inputs, self.model, choose, seconds)
        # A run that goes on has said it already.
        choices = dict if resumed else partial(beginning, *said)
        self.begin = partial(reporter.begin, self.config.epochs, choices)
        self.scoring = Scoring(self.inputs, fabric, compiled=config.compile)
        self.progress = Progress()
        # There an epoch may take hardly longer than writing its checkpoint.
        self.writer = Writer(
            background=self.device.type == "cuda" and isinstance(fabric, OneDevice)
        )

    def run_to_end(self) -> dict[str, Any]:
        config, progress = self.config, self.progress
        self.begin()
        made = self.made = Assembly(config, self.fabric, self.inputs, self.model)
        scheduler = make_scheduler(config, made.optimizer, self.inputs.steps)
        parts = {"model": made.model, "optimizer": made.optimizer, "scheduler": scheduler}
        parts |= {} if made.average is None else {"average": made.average}
        parts |= {} if self.scaler is None else {"scaler": self.scaler}
        if self.fabric.broadcast(self.run.checkpoint_path.exists()):
            self.progress = progress = load_checkpoint(self.run, parts)
            self.reporter.message(f"resuming {self.run.path} after epoch {progress.epoch}")
            if self.run.facts()["data_digest"] != self.inputs.data.digest:
                raise RunError(
                    f"{self.run.path} was trained on other images than {config.data} holds now; "
                    f"choose another {setting('path')}, or replace it with "
                    f"{setting('overwrite', True)}"
                )
            if progress.chosen(config) == progress.epoch:
                # A kill may have come between the checkpoint and the weights.
                save_weights(self.run, made.evaluated, write=self.first)
            if self.first:
                self.run.write_metrics(progress.history)
        elif self.first:
            self.run.path.mkdir(parents=True, exist_ok=True)
            # What its options came to, whatever the defaults of another version are.
            head = " ".join(repr(self.model.head).split())
            facts = {**self.inputs.facts(), "head": head}
            imports = import_all(config.imports)
            self.run.start(config, {**facts, "imports": imports} if imports else facts)
        step = made.step()
        loggers = Loggers(self.run, config, progress.history, self.reporter, enabled=self.first)
        self.company.last_words = lambda: loggers.close("failed")
        stopping = interruptible(self.reporter.message)
        with loggers, self.writer, compiling(config), stopping as interrupted:
            while not progress.stopped(config):
                row = self._epoch(step, scheduler)
                self._save(parts)
                loggers.log(row)
                self.fabric.barrier()
                self.reporter.epoch(row, config.epochs)
                stop = torch.tensor(float(interrupted()), device=self.device)
                stop = self.fabric.all_reduce(stop, reduce_op="sum")
                if stop.item() and not progress.stopped(config):
                    self.writer.wait()
                    raise InterruptedRun(
                        f"stopped after epoch {progress.epoch}; the same command goes on from there"
                    )
            self.writer.wait()
            result = self._conclude()
        return result if self.first else {}

    def _epoch(self, step: EagerStep | GraphStep, scheduler: Any) -> dict[str, Any]:
        config, progress, epoch = self.config, self.progress, self.progress.epoch + 1
        inputs, made = self.inputs, self.made
        start = time.perf_counter()
        torch.manual_seed(config.seed * 100_003 + epoch * 31 + self.fabric.global_rank)
        inputs.augment.start_epoch(config.seed, epoch)
        made.model.train()
        order = inputs.fit.order(config.seed, epoch, inputs.batch)
        step.total.zero_()
        # What diverges shows in the loss, read once an epoch; checking every step would cost more.
        with checks(False):
            for number, chosen in enumerate(self._positions(order, step), start=1):
                step(*chosen)
                if scheduler is not None:
                    scheduler.step()
                self.reporter.step(epoch, number, len(order))
        loss = self.fabric.all_reduce(step.total / len(order), reduce_op="mean").item()
        trained = time.perf_counter() - start
        images = len(order) * (inputs.batch - inputs.batch % self.fabric.world_size)
        check_loss("training", loss, epoch, config)
        with checks(False):  # the loss shows it here too, and on every device
            if config.norm_batches:
                self.scoring.settle(made.evaluated, order[: config.norm_batches])
            logits, labels = self.scoring.logits(made.evaluated, inputs.held, fast=True)
        validation = F.cross_entropy(logits, labels).item()
        # The last step may have spoilt what the training loss was still fine with.
        check_loss("validation", validation, epoch, config)
        progress.seconds += time.perf_counter() - start
        row = {
            "epoch": epoch,
            "train_loss": loss,
            "val_loss": validation,
            "val_accuracy": accuracy(logits, labels),
            "lr": float(made.optimizer.param_groups[0]["lr"]),
            "images_per_second": round(images / trained, 1),
            "seconds": round(progress.seconds, 3),
        }
        shared: dict[str, Any] = self.fabric.broadcast(row)
        progress.add(shared)
        return shared

    def _positions(
        self, order: Tensor, step: EagerStep | GraphStep
    ) -> Iterator[tuple[Tensor, ...]]:
        if isinstance(step, GraphStep):
            return ((chosen,) for chosen in order.to(self.device))
        return self.inputs.fit.training(order)

    def _save(self, parts: dict[str, Any]) -> None:
        progress, made = self.progress, self.made
        if made.average is not None:
            copy_clocks(made.model, made.average)
        background = self.writer.background
        chosen = progress.chosen(self.config) == progress.epoch
        state = checkpoint_state(parts, vars(progress), keep=self.first, copy=background)
        if not self.first:
            return
        self._check_ours()

        def write() -> None:
            # The checkpoint first: a run that goes on from it has the weights, if they are chosen.
            write_checkpoint(self.run, state)
            if chosen:
                self.run.write_weights(state["average" if "average" in parts else "model"])

        self.writer.write(write)
        self.run.write_metrics(progress.history)

    def _conclude(self) -> dict[str, Any]:
        if self.first:
            self._check_ours()
        self.fabric.barrier()
        evaluated = self.made.evaluated
        load_weights(self.run, evaluated, spread_model)
        with in_single_precision(evaluated):
            held = self.scoring.calibrate(evaluated)
            chosen = self.progress.chosen(self.config)
            result = self.scoring.result(evaluated, self.progress.history, chosen, held)
        save_weights(self.run, evaluated, write=self.first)
        result["graph"] = self.made.graphed
        if self.first:
            self.run.finish(result)
        return result

    def _check_ours(self) -> None:
        """Raise where somebody removed the run meanwhile, or put another one in its place."""
        self.run.check_there()
        if self.lock.taken and not self.lock.there:
            raise RunError(
                f"{self.run.path} was removed while the run trained there, and is another one now: "
                f"nothing was written into that. Start again with another {setting('path')}"
            )

    @property
    def scaler(self) -> Any:
        """What scales the loss in 16-mixed precision, or None."""
        strategy = getattr(self.fabric, "strategy", None)
        return getattr(getattr(strategy, "precision", None), "scaler", None)
