"""The training loop of the tutor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig, declared
from steadyrun.tutor.data import Batch, Data, on_device
from steadyrun.tutor.recipe import Recipe, TrainState, save_checkpoint
from steadyrun.tutor.tokenizer import PAD_ID

if TYPE_CHECKING:
    from steadyrun import Run

FACTORY = "steadyrun.tutor.replaying:task"
"""The factory that `steadyrun replay` calls for a run of the tutor."""

MEASURE_EVERY = 5  # steps

OnStep = Callable[[int, Tensor, float, Tensor], None]
"""Called after each step with the step, its loss, its learning rate and its gradient norm before clipping.
Loss and norm are tensors: convert them to floats only for display."""


@dataclass(frozen=True)
class Step:
    """The results of one optimizer step: the mean loss of its micro-batches and the losses per token."""

    loss: Tensor
    by_token: list[Tensor]
    lr: float
    grad_norm: Tensor


@dataclass
class TrainResult:
    """The results of a run; `val_steps` are the steps of the validation losses."""

    model: nn.Module
    baseline_loss: float | None
    losses: list[float] = field(default_factory=list)
    val_steps: list[int] = field(default_factory=list)
    val_losses: list[float] = field(default_factory=list)
    seconds: float = 0.0


def train_recorded(recipe: Recipe, path: Path | str, on_step: OnStep | None = None) -> TrainResult:
    """Train and record a run directory at `path`; a resumed program records into it twice."""
    import steadyrun

    program = Program(recipe)
    config = declared(recipe.config, program.result.baseline_loss) | recipe.declares
    config |= {"program": recipe.name} | ({"remedied": True} if recipe.remedied else {})
    if recipe.resume_at is None:
        with steadyrun.record(path, config=config) as run:
            return program.go_on(recipe.config.steps, run, on_step)
    with steadyrun.record(path, config=config) as run:
        program.go_on(recipe.resume_at, run, on_step)
    program.restart()
    with steadyrun.record(path, config=config) as run:
        return program.go_on(recipe.config.steps, run, on_step)


def train(recipe: Recipe, run: Run | None = None, on_step: OnStep | None = None) -> TrainResult:
    """Train from scratch, deterministically for the seed in the recipe's config.

    `run` records and `on_step` observes; neither changes the result.
    """
    return Program(recipe).go_on(recipe.config.steps, run, on_step)


class Program:
    """A running training program."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        torch.manual_seed(recipe.config.seed)
        self.data = recipe.load_data(recipe.config)
        self.order = recipe.batch_order(self.data, recipe.config)
        self.state = start(recipe)
        baseline = None if "baseline_loss" in recipe.declares else self.data.baseline_loss()
        self.result = TrainResult(self.state.model, baseline)
        self._next = 0

    def restart(self) -> None:
        """Build everything again and load the last checkpoint, as a new process does."""
        saved = save_checkpoint(self.state)
        self.state = start(self.recipe)
        self.recipe.load_checkpoint(self.state, saved)
        self.result.model = self.state.model

    def go_on(self, until: int, run: Run | None = None, on_step: OnStep | None = None) -> TrainResult:
        """Continue training up to a step."""
        recipe, state, data, result = self.recipe, self.state, self.data, self.result
        config = recipe.config
        if run is not None:
            watch(run, recipe, state, data)
        losses: list[Tensor] = []
        began = time.perf_counter()
        for state.step in range(self._next, until):
            rows = [next(self.order) for _ in range(config.accumulation)]
            batches = [recipe.prepare(state.model, on_device(data.train_batch(indices), config)) for indices in rows]
            done = train_step(recipe, state, batches)
            losses.append(done.loss)
            if run is not None:
                run.step(
                    done.loss,
                    batch=batches[0] if len(batches) == 1 else batches,
                    class_losses=class_losses(done.by_token, batches),
                    token_losses=done.by_token,
                )
                if (state.step + 1) % MEASURE_EVERY == 0 and (measured := recipe.measure(state.model, batches[0])):
                    run.log(state.step, **measured)
            if on_step is not None:
                on_step(state.step, done.loss, done.lr, done.grad_norm)
            last = state.step + 1 == config.steps
            if recipe.validates and (last or (state.step + 1) % config.val_every == 0):
                self._validate(run)
        self._next = until
        result.losses += torch.stack(losses).tolist()
        result.seconds += time.perf_counter() - began
        return result

    def _validate(self, run: Run | None) -> None:
        val_loss, val_classes = validate(self.recipe, self.state.model, self.data)
        self.result.val_steps.append(self.state.step)
        self.result.val_losses.append(val_loss.item())
        if run is not None:
            run.val(val_loss, batches=[self.data.val_batch()], class_losses=val_classes)


def train_step(recipe: Recipe, state: TrainState, batches: Sequence[Batch]) -> Step:
    """One optimizer step over its micro-batches."""
    by_token = []
    by_batch = []
    for batch in batches:
        with autocast(state.config):
            by_token.append(recipe.token_losses(state.model, batch))
            by_batch.append(recipe.reduce_loss(by_token[-1], batch))
        recipe.backward(state, by_batch[-1])
    lr = state.optimizer.param_groups[0]["lr"]
    grad_norm = recipe.update(state)
    recipe.advance(state)
    return Step(torch.stack(by_batch).detach().mean(), by_token, lr, grad_norm)


def start(recipe: Recipe) -> TrainState:
    """Model, optimizer, scheduler and scaler of a new run."""
    config = recipe.config
    model = recipe.build_model(config)
    recipe.init_weights(model)
    model.to(config.device)
    optimizer = recipe.build_optimizer(model, config)
    scheduler = recipe.build_scheduler(optimizer, config)
    return TrainState(config, model, optimizer, scheduler, recipe.build_scaler(config))


def watch(run: Run, recipe: Recipe, state: TrainState, data: Data) -> None:
    """Register the program's objects with the recorder."""
    run.watch(
        state.model,
        state.optimizer,
        scheduler=state.scheduler,
        scaler=state.scaler if state.scaler.is_enabled() else None,
        loss_fn=recipe.loss,
        tokenizer=data.tokenizer,
        factory=FACTORY,
    )


def autocast(config: TutorConfig) -> torch.autocast:
    """The autocast context of the forward pass; disabled for fp32."""
    dtype = torch.float16 if config.dtype == "fp16" else torch.bfloat16
    return torch.autocast(torch.device(config.device).type, dtype=dtype, enabled=config.dtype != "fp32")


@torch.no_grad()
def validate(recipe: Recipe, model: nn.Module, data: Data) -> tuple[Tensor, dict[str, float]]:
    """The loss on all validation sentences, and by verb class."""
    batch = recipe.prepare(model, on_device(data.val_batch(), recipe.config))
    model.eval()
    with autocast(recipe.config):
        by_token = recipe.token_losses(model, batch)
    model.train()
    return recipe.reduce_loss(by_token, batch), class_losses([by_token], [batch])


def class_losses(by_token: Sequence[Tensor], batches: Sequence[Batch]) -> dict[str, float]:
    """Mean token loss of regular and irregular sentences; an absent class is left out, and so are other texts."""
    totals, counts = [0.0, 0.0], [0, 0]
    for losses, batch in zip(by_token, batches, strict=True):
        if "targets" not in batch:
            continue
        sums = losses.detach().sum(dim=1).tolist()
        tokens = (batch["targets"] != PAD_ID).sum(dim=1).tolist()
        for irregular, total, count in zip(batch["irregular"].tolist(), sums, tokens, strict=True):
            totals[irregular] += total
            counts[irregular] += count
    names = ("regular", "irregular")
    return {name: total / count for name, total, count in zip(names, totals, counts, strict=True) if count}
