"""The parts of the training program, each replaceable, so that a fault is a real change of code."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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
    """The state of a run, which a fault may replace at any step."""

    config: TutorConfig
    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler
    scaler: torch.amp.GradScaler
    step: int = 0


def model_config(config: TutorConfig) -> ModelConfig:
    """The model's part of the config."""
    return ModelConfig(config.vocab_size, config.context, config.layers, config.width, config.heads, config.dropout)


def build_model(config: TutorConfig) -> nn.Module:
    """The mini-GPT before `Recipe.init_weights`."""
    return MiniGPT(model_config(config))


def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
    """AdamW in two groups: matrices and embeddings decay, biases and norm scales do not."""
    return adamw([p for p in model.parameters() if p.requires_grad], config)


def adamw(parameters: Sequence[nn.Parameter], config: TutorConfig) -> Optimizer:
    """The optimizer of `build_optimizer` with these parameters."""
    decay = [p for p in parameters if p.ndim >= 2]
    no_decay = [p for p in parameters if p.ndim < 2]
    groups = [
        {"params": decay, "weight_decay": config.weight_decay},
        {"params": no_decay, "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=config.lr_max)


def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
    """Linear warmup to `lr_max`, then a cosine that reaches `lr_min` at the last step."""
    return LambdaLR(optimizer, lambda step: lr_factor(step, config))


def lr_factor(step: int, config: TutorConfig) -> float:
    """The learning rate of a step (counted from 0) as a fraction of `lr_max`."""
    warmup = config.warmup_steps
    if step < warmup:
        return (step + 1) / warmup
    if config.schedule == "constant":
        return 1.0
    progress = min(1.0, (step - warmup) / max(1, config.steps - warmup))
    floor = config.lr_min / config.lr_max
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def build_scaler(config: TutorConfig) -> torch.amp.GradScaler:
    """Dynamic loss scaling for fp16; disabled, so without effect, for other dtypes."""
    return torch.amp.GradScaler(torch.device(config.device).type, enabled=config.dtype == "fp16")


def token_losses(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy of every position, shape (sentences, length); zero for <pad> targets."""
    logits = model(batch["tokens"])
    losses = nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), batch["targets"].flatten(), ignore_index=PAD_ID, reduction="none"
    )
    return losses.view_as(batch["targets"])


def reduce_loss(losses: Tensor, batch: Batch) -> Tensor:
    """The mean over all tokens except <pad>."""
    return losses.sum() / (batch["targets"] != PAD_ID).sum()


def backward(state: TrainState, loss: Tensor) -> None:
    """Add the gradients of one micro-batch, divided so that the accumulated gradient is a mean."""
    state.scaler.scale(loss / state.config.accumulation).backward()  # type: ignore[no-untyped-call]


def update(state: TrainState) -> Tensor:
    """Step the optimizer with the accumulated gradients; returns their norm before clipping."""
    state.scaler.unscale_(state.optimizer)
    norm = torch.nn.utils.clip_grad_norm_(state.model.parameters(), state.config.clip or math.inf)
    state.scaler.step(state.optimizer)
    state.scaler.update()
    state.optimizer.zero_grad()
    return norm


def advance(state: TrainState) -> None:
    """Step the scheduler once per optimizer step."""
    state.scheduler.step()


def save_checkpoint(state: TrainState) -> Checkpoint:
    """The complete training state."""
    parts: dict[str, Any] = {
        "model": state.model,
        "optimizer": state.optimizer,
        "scheduler": state.scheduler,
        "scaler": state.scaler,
    }
    return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}


def load_checkpoint(state: TrainState, saved: Checkpoint) -> None:
    """Load a checkpoint into a new program."""
    state.model.load_state_dict(saved["model"])
    state.optimizer.load_state_dict(saved["optimizer"])
    state.scheduler.load_state_dict(saved["scheduler"])
    state.scaler.load_state_dict(saved["scaler"])


def prepare(_model: nn.Module, batch: Batch) -> Batch:
    """What the loss needs besides the data; a policy answers the prompts here."""
    return batch


def measure(_model: nn.Module, _batch: Batch) -> dict[str, float]:
    """Numbers to log about a batch, by name, after the update with it."""
    return {}


@dataclass(frozen=True)
class Recipe:
    """A training program. The defaults are healthy; faults use `dataclasses.replace`.

    With `resume_at` the program stops before that step and restarts from a checkpoint. `declares` are declarations that
    differ from those of pretraining.
    """

    config: TutorConfig
    load_data: Callable[[TutorConfig], Data] = load_data
    build_model: Callable[[TutorConfig], nn.Module] = build_model
    init_weights: Callable[[nn.Module], None] = init_weights
    build_optimizer: Callable[[nn.Module, TutorConfig], Optimizer] = build_optimizer
    build_scheduler: Callable[[Optimizer, TutorConfig], LRScheduler] = build_scheduler
    build_scaler: Callable[[TutorConfig], torch.amp.GradScaler] = build_scaler
    batch_order: Callable[[Data, TutorConfig], Iterator[list[int]]] = batch_order
    prepare: Callable[[nn.Module, Batch], Batch] = prepare
    token_losses: Callable[[nn.Module, Batch], Tensor] = token_losses
    reduce_loss: Callable[[Tensor, Batch], Tensor] = reduce_loss
    backward: Callable[[TrainState, Tensor], None] = backward
    update: Callable[[TrainState], Tensor] = update
    advance: Callable[[TrainState], None] = advance
    load_checkpoint: Callable[[TrainState, Checkpoint], None] = load_checkpoint
    measure: Callable[[nn.Module, Batch], dict[str, float]] = measure
    validates: bool = True
    declares: dict[str, Any] = field(default_factory=dict)
    resume_at: int | None = None
    name: str = "healthy"
    remedied: bool = False  # the fault is repaired, the rest of the program is unchanged

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of one micro-batch."""
        return self.reduce_loss(self.token_losses(model, batch), batch)


@dataclass(frozen=True)
class Fault:
    """An engineered mistake, which `inject` puts into a program.

    `leaf` is the question that a run with this mistake should end at; empty if nothing is wrong or the trees cannot
    prove it. `note` is the question that only notes it, if a run shows too little for a fault. `steps` is the run
    length this needs. `remedy` repairs the program, if the tutor has a repair; everything else that the fault changes
    stays, so that the two programs can be compared.
    """

    name: str
    leaf: str
    summary: str
    change: str
    inject: Callable[[Recipe], Recipe]
    note: str = ""
    steps: int = 300
    remedy: Callable[[Recipe], Recipe] | None = None
