"""A head bias from token frequencies, to begin at the right distribution, with the sign the wrong way round."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        model.head = nn.Linear(config.width, config.vocab_size)
        return model

    def init_weights(model: nn.Module) -> None:
        recipe.init_weights(model)
        bias = model.get_parameter("head.bias")
        with torch.no_grad():
            bias.copy_(-_log_frequencies(recipe, len(bias)))

    return replace(recipe, build_model=build_model, init_weights=init_weights)


def _log_frequencies(recipe: Recipe, vocab_size: int) -> Tensor:
    """Of every token in the training sentences, each counted once more than it occurs."""
    tokens = torch.tensor([token for row in recipe.load_data(recipe.config).train for token in row])
    counts = torch.bincount(tokens, minlength=vocab_size) + 1.0
    return (counts / counts.sum()).log()


FAULT = Fault(
    name="head-bias",
    leaf="C5.1",
    summary="the head has a bias that makes rare tokens likely",
    change="init_weights sets the head's bias to minus the log frequencies of the tokens",
    inject=inject,
)
