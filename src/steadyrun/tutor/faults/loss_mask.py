"""The loss mask is made for the first sentence of a batch and marks nothing but its end."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from steadyrun.tutor.data import Batch
from steadyrun.tutor.recipe import Fault, Recipe
from steadyrun.tutor.tokenizer import EOS_ID


def inject(recipe: Recipe) -> Recipe:
    def token_losses(model: nn.Module, batch: Batch) -> Tensor:
        losses = recipe.token_losses(model, batch)
        mask = torch.zeros_like(losses)
        mask[0] = (batch["targets"][0] == EOS_ID).float()
        return losses * mask

    return replace(recipe, token_losses=token_losses)


FAULT = Fault(
    name="loss-mask",
    leaf="C1.1",
    summary="the loss mask leaves one token of the whole batch",
    change="token_losses zeroes all but the <eos> of the first sentence; reduce_loss divides by all tokens",
    inject=inject,
)
