"""The pieces of the training program, each replaceable, so that a fault is a real change of one of them."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Batch, Data, batch_order, load_data
from steadyrun.tutor.model import MiniGPT, ModelConfig, init_weights
from steadyrun.tutor.tokenizer import PAD_ID

Checkpoint = dict[str, dict[str, Any]]


@dataclass
class TrainState:
    """Everything that lives through a run. A fault may replace any of it in the middle."""

    config: TutorConfig
    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler
    scaler: torch.amp.GradScaler
    step: int = 0


def model_config(config: TutorConfig) -> ModelConfig:
    """The part of the configuration that shapes the model."""
    return ModelConfig(config.vocab_size, config.context, config.layers, config.width, config.heads, config.dropout)


def build_model(config: TutorConfig) -> nn.Module:
    """The mini-GPT; `Recipe.init_weights` comes after."""
    return MiniGPT(model_config(config))


def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
    """AdamW in two groups: matrices and embeddings decay, biases and norm scales do not."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    decay = [p for p in parameters if p.ndim >= 2]
    no_decay = [p for p in parameters if p.ndim < 2]
    groups = [
        {"params": decay, "weight_decay": config.weight_decay},
        {"params": no_decay, "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=config.lr_max)


def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
    """Linear warmup to `lr_max`, then a cosine that reaches `lr_min` when the steps are over."""
    return LambdaLR(optimizer, lambda step: lr_factor(step, config))


def lr_factor(step: int, config: TutorConfig) -> float:
    """The learning rate of a step (counted from 0) as a share of `lr_max`."""
    warmup = config.warmup_steps
    if step < warmup:
        return (step + 1) / warmup
    if config.schedule == "constant":
        return 1.0
    progress = min(1.0, (step - warmup) / max(1, config.steps - warmup))
    floor = config.lr_min / config.lr_max
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def build_scaler(config: TutorConfig) -> torch.amp.GradScaler:
    """Dynamic loss scaling for fp16. A disabled scaler hands everything through: one loop serves every dtype."""
    return torch.amp.GradScaler(torch.device(config.device).type, enabled=config.dtype == "fp16")


def token_losses(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy of every position, shape (sentences, length); zero where the target is <pad>."""
    logits = model(batch["tokens"])
    losses = nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), batch["targets"].flatten(), ignore_index=PAD_ID, reduction="none"
    )
    return losses.view_as(batch["targets"])


def reduce_loss(losses: Tensor, batch: Batch) -> Tensor:
    """The mean over the tokens that count."""
    return losses.sum() / (batch["targets"] != PAD_ID).sum()


def backward(state: TrainState, loss: Tensor) -> None:
    """Gradients of one micro-batch; the division makes the accumulated gradient a mean, not a sum."""
    state.scaler.scale(loss / state.config.accumulation).backward()  # type: ignore[no-untyped-call]


def update(state: TrainState) -> Tensor:
    """One optimizer step from the accumulated gradients; returns their norm before clipping."""
    state.scaler.unscale_(state.optimizer)
    norm = torch.nn.utils.clip_grad_norm_(state.model.parameters(), state.config.clip or math.inf)
    state.scaler.step(state.optimizer)
    state.scaler.update()
    state.optimizer.zero_grad()
    return norm


def advance(state: TrainState) -> None:
    """Move the learning rate on, once per optimizer step."""
    state.scheduler.step()


def save_checkpoint(state: TrainState) -> Checkpoint:
    """All that a run needs to go on from here."""
    parts: dict[str, Any] = {
        "model": state.model,
        "optimizer": state.optimizer,
        "scheduler": state.scheduler,
        "scaler": state.scaler,
    }
    return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}


def load_checkpoint(state: TrainState, saved: Checkpoint) -> None:
    """Make a new program go on where a checkpoint was saved."""
    state.model.load_state_dict(saved["model"])
    state.optimizer.load_state_dict(saved["optimizer"])
    state.scheduler.load_state_dict(saved["scheduler"])
    state.scaler.load_state_dict(saved["scaler"])


@dataclass(frozen=True)
class Recipe:
    """A training program. The defaults are the healthy one; faults use `dataclasses.replace`.

    With `resume_at` the program is stopped before that step and started again from a checkpoint.
    """

    config: TutorConfig
    load_data: Callable[[TutorConfig], Data] = load_data
    build_model: Callable[[TutorConfig], nn.Module] = build_model
    init_weights: Callable[[nn.Module], None] = init_weights
    build_optimizer: Callable[[nn.Module, TutorConfig], Optimizer] = build_optimizer
    build_scheduler: Callable[[Optimizer, TutorConfig], LRScheduler] = build_scheduler
    build_scaler: Callable[[TutorConfig], torch.amp.GradScaler] = build_scaler
    batch_order: Callable[[Data, TutorConfig], Iterator[list[int]]] = batch_order
    token_losses: Callable[[nn.Module, Batch], Tensor] = token_losses
    reduce_loss: Callable[[Tensor, Batch], Tensor] = reduce_loss
    backward: Callable[[TrainState, Tensor], None] = backward
    update: Callable[[TrainState], Tensor] = update
    advance: Callable[[TrainState], None] = advance
    load_checkpoint: Callable[[TrainState, Checkpoint], None] = load_checkpoint
    resume_at: int | None = None
    name: str = "healthy"
    remedied: bool = False  # the fault is repaired, and the rest of its program as it was

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of one micro-batch, as the program computes it."""
        return self.reduce_loss(self.token_losses(model, batch), batch)


@dataclass(frozen=True)
class Fault:
    """An engineered mistake: `inject` turns a program into one that contains it.

    `leaf` is the question of a decision tree at which a run with this mistake is meant to end; empty where
    nothing is wrong, or nothing that the trees could prove. `note` is the question that only mentions it: where an
    honest run shows too little for more. `steps` is how long a run must be for that. `remedy` turns a program into the
    repaired one, where the tutor has the repair: what else the fault changes stays, so that the two can be compared.
    """

    name: str
    leaf: str
    summary: str
    change: str
    inject: Callable[[Recipe], Recipe]
    note: str = ""
    steps: int = 300
    remedy: Callable[[Recipe], Recipe] | None = None
