"""Faults of half precision."""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Batch
from steadyrun.tutor.recipe import Fault, Recipe, TrainState
from steadyrun.tutor.tokenizer import PAD_ID

PAD_PRIOR = 3e-5
# The gradient of log(p) is 1/p, which needs a lower scale than usual from the first step on.
FIRST_SCALE = 2.0**10


def _inject_fp16_collapse(recipe: Recipe) -> Recipe:
    """A prior makes <pad> improbable; in half precision its probability becomes exactly 0, and the loss takes its log.

    The where() hides the infinite loss of <pad> from the loss, but not 0/0 from its gradient. No loss scale helps: once
    the gradients are NaN, every step is skipped and only the scale changes.
    """
    config = replace(recipe.config, dtype="fp16")
    return replace(recipe, config=config, token_losses=_token_losses, build_scaler=_fp16_collapse_build_scaler)


def _token_losses(model: nn.Module, batch: Batch) -> Tensor:
    logits = model(batch["tokens"])
    prior = torch.zeros(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    prior[PAD_ID] = math.log(PAD_PRIOR)
    probabilities = (logits + prior).softmax(dim=-1)
    targets = batch["targets"]
    chosen = probabilities.gather(2, targets.unsqueeze(2)).squeeze(2)
    return torch.where(targets == PAD_ID, 0.0, -chosen.log())


def _fp16_collapse_build_scaler(config: TutorConfig) -> torch.amp.GradScaler:
    return torch.amp.GradScaler(torch.device(config.device).type, init_scale=FIRST_SCALE)


FP16_COLLAPSE = Fault(
    name="fp16-collapse",
    leaf="D3.2",
    summary="gradients are NaN at any loss scale, which is halved endlessly",
    change="token_losses takes the log of half-precision probabilities and hides that of <pad> behind a where()",
    inject=_inject_fp16_collapse,
    steps=120,
)


SCALE = 2.0**18


def _inject_fp16_constant_scale(recipe: Recipe) -> Recipe:
    """Use half precision with a loss scale that is too high and reset after every step."""
    config = replace(recipe.config, dtype="fp16")
    return replace(recipe, config=config, build_scaler=_build_scaler, update=_update)


def _build_scaler(config: TutorConfig) -> torch.amp.GradScaler:
    return torch.amp.GradScaler(torch.device(config.device).type, init_scale=SCALE)


def _update(state: TrainState) -> Tensor:
    state.scaler.unscale_(state.optimizer)
    norm = clip_grad_norm_(state.model.parameters(), state.config.clip or math.inf)
    state.scaler.step(state.optimizer)
    state.scaler.update(SCALE)
    state.optimizer.zero_grad()
    return norm


FP16_CONSTANT_SCALE = Fault(
    name="fp16-overflow-constant-scale",
    leaf="D3.2",
    summary="gradients overflow in half precision, and the loss scale never falls",
    change="update calls scaler.update(2**18), which sets the scale, instead of scaler.update(), which lowers it",
    inject=_inject_fp16_constant_scale,
    steps=120,
)
