"""<pad> is made unlikely by its prior; in half precision its probability falls to exactly 0, and its log is taken.

The where() hides the infinite loss of <pad> from the loss, and not 0/0 from its gradient. No loss scale helps: once
the gradients are NaN every step is skipped, so that nothing changes any more but the scale.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Batch
from steadyrun.tutor.recipe import Fault, Recipe
from steadyrun.tutor.tokenizer import PAD_ID

PAD_PRIOR = 3e-5
# The gradient of log(p) is 1/p: it needs a lower scale than the usual one from the first step on.
FIRST_SCALE = 2.0**10


def inject(recipe: Recipe) -> Recipe:
    config = replace(recipe.config, dtype="fp16")
    return replace(recipe, config=config, token_losses=_token_losses, build_scaler=_build_scaler)


def _token_losses(model: nn.Module, batch: Batch) -> Tensor:
    logits = model(batch["tokens"])
    prior = torch.zeros(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    prior[PAD_ID] = math.log(PAD_PRIOR)
    probabilities = (logits + prior).softmax(dim=-1)
    targets = batch["targets"]
    chosen = probabilities.gather(2, targets.unsqueeze(2)).squeeze(2)
    return torch.where(targets == PAD_ID, 0.0, -chosen.log())


def _build_scaler(config: TutorConfig) -> torch.amp.GradScaler:
    return torch.amp.GradScaler(torch.device(config.device).type, init_scale=FIRST_SCALE)


FAULT = Fault(
    name="fp16-collapse",
    leaf="D3.2",
    summary="gradients are NaN whatever the loss scale, which is halved without end",
    change="token_losses takes the log of half-precision probabilities and hides that of <pad> behind a where()",
    inject=inject,
    steps=120,
)
