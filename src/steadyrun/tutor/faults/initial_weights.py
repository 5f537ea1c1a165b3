"""Faults of the initial weights."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig, default_warmup
from steadyrun.tutor.model import init_weights
from steadyrun.tutor.recipe import Fault, Recipe
from steadyrun.tutor.train import train


def _inject_bad_init(recipe: Recipe) -> Recipe:
    """Draw weights 100 times too large, as if 0.02 were mistyped as 2."""
    return replace(recipe, init_weights=partial(init_weights, std=2.0))


BAD_INIT = Fault(
    name="bad-init",
    leaf="C5.1",
    summary="initial weights are 100 times too large",
    change="init_weights draws from N(0, 2) instead of N(0, 0.02)",
    inject=_inject_bad_init,
)


def _inject_uniform_init(recipe: Recipe) -> Recipe:
    """Draw weights between 0 and 1, as if rand were used instead of randn."""

    def init_weights(model: nn.Module) -> None:
        recipe.init_weights(model)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.Linear):
                    module.weight.uniform_(0, 1)

    return replace(recipe, init_weights=init_weights)


UNIFORM_INIT = Fault(
    name="uniform-init",
    leaf="C5.1",
    summary="linear layers start with weights between 0 and 1",
    change="init_weights uses uniform_(0, 1) instead of normal_(0, 0.02)",
    inject=_inject_uniform_init,
)


def _inject_head_bias(recipe: Recipe) -> Recipe:
    """Set the head bias from token frequencies, with the wrong sign."""

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
    """The log frequency of every token in the training sentences, with one added to each count."""
    tokens = torch.tensor([token for row in recipe.load_data(recipe.config).train for token in row])
    counts = torch.bincount(tokens, minlength=vocab_size) + 1.0
    return (counts / counts.sum()).log()


HEAD_BIAS = Fault(
    name="head-bias",
    leaf="C5.1",
    summary="the head has a bias that makes rare tokens likely",
    change="init_weights sets the head's bias to minus the log frequencies of the tokens",
    inject=_inject_head_bias,
)


EARLIER_STEPS = 300


def _inject_loaded_checkpoint(recipe: Recipe) -> Recipe:
    """Load the weights of an earlier run although a random start is declared."""

    def init_weights(model: nn.Module) -> None:
        warmup = default_warmup(EARLIER_STEPS)
        config = replace(recipe.config, steps=EARLIER_STEPS, warmup_steps=warmup, accumulation=1)
        model.load_state_dict(train(replace(recipe, config=config)).model.state_dict())

    return replace(recipe, init_weights=init_weights)


LOADED_CHECKPOINT = Fault(
    name="loaded-checkpoint",
    leaf="C1.1",
    summary="the run starts from trained weights although it declares random ones",
    change=f"init_weights loads the weights of {EARLIER_STEPS} healthy steps",
    inject=_inject_loaded_checkpoint,
)
