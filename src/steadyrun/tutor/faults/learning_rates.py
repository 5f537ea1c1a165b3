"""Faults of the learning rate: too high, too low, 0, or thrown off in the middle."""

from dataclasses import replace

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe, lr_factor


def _inject_lr_typo(recipe: Recipe) -> Recipe:
    """The optimizer is built with another learning rate than the configuration says."""

    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        return recipe.build_optimizer(model, replace(config, lr_max=10 * config.lr_max))

    return replace(recipe, build_optimizer=build_optimizer)


LR_TYPO = Fault(
    name="lr-typo",
    leaf="C2.1",
    summary="the learning rate has a zero too few",
    change="build_optimizer is given 3e-3 where 3e-4 is declared",
    inject=_inject_lr_typo,
)


# AdamW with layer norms and clipping forgives much: at 30 times the rate this model still learns, at 1000 times it
# stalls with small gradients. Only where the exponent is lost altogether do the gradients stay large.
_TIMES_TOO_HIGH = 10_000


def _inject_lr_too_high(recipe: Recipe) -> Recipe:
    """A learning rate of 3 where 3e-4 was meant: in the configuration, so the program does as it is told."""
    return replace(recipe, config=replace(recipe.config, lr_max=_TIMES_TOO_HIGH * recipe.config.lr_max))


LR_TOO_HIGH = Fault(
    name="lr-too-high",
    leaf="C3.1",
    summary="the declared learning rate lost its exponent: 3 for 3e-4",
    change=f"lr_max is {_TIMES_TOO_HIGH:,} times what it should be",
    inject=_inject_lr_too_high,
)


_TIMES_TOO_LOW = 1000


def _inject_lr_too_low(recipe: Recipe) -> Recipe:
    """A learning rate a thousand times too low: in the configuration, so the program does as it is told."""
    config = recipe.config
    return replace(
        recipe, config=replace(config, lr_max=config.lr_max / _TIMES_TOO_LOW, lr_min=config.lr_min / _TIMES_TOO_LOW)
    )


LR_TOO_LOW = Fault(
    name="lr-too-low",
    leaf="C4.1",
    summary=f"the declared learning rate is {_TIMES_TOO_LOW} times too low",
    change=f"lr_max and lr_min are {_TIMES_TOO_LOW} times smaller than they should be",
    inject=_inject_lr_too_low,
)


def _inject_zero_lr(recipe: Recipe) -> Recipe:
    """The optimizer is built with rate 0, to begin the warmup there; the scheduler can only multiply it."""

    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        return recipe.build_optimizer(model, replace(config, lr_max=0.0))

    return replace(recipe, build_optimizer=build_optimizer)


ZERO_LR = Fault(
    name="zero-lr",
    leaf="C2.1",
    summary="the learning rate is 0 in every step",
    change="build_optimizer gives the param groups lr=0, which the schedule multiplies",
    inject=_inject_zero_lr,
)


RESTART = 50


def _inject_lr_jump(recipe: Recipe) -> Recipe:
    """A restart at half of the top rate is written in percent, in a schedule whose other branches are shares."""

    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: _factor(step, config))

    return replace(recipe, build_scheduler=build_scheduler)


def _factor(step: int, config: TutorConfig) -> float:
    return RESTART if step == config.steps // 2 else lr_factor(step, config)


LR_JUMP = Fault(
    name="lr-jump",
    leaf="D2.3",
    summary="for one step in the middle of the run the learning rate is far too high",
    change=f"build_scheduler returns {RESTART} at half time, which means {RESTART} times lr_max and not percent",
    inject=_inject_lr_jump,
    steps=600,
)


LR = 1.0


def _inject_unclipped(recipe: Recipe) -> Recipe:
    """A learning rate that only clipping could tame, without clipping and without decay."""
    config = replace(recipe.config, lr_max=LR, lr_min=LR / 10, clip=None, schedule="constant")
    return replace(recipe, config=config)


UNCLIPPED = Fault(
    name="unclipped",
    leaf="C4.1",
    summary="a far too high learning rate without clipping or decay: the loss climbs away",
    change="the configuration says lr_max 1, clip none, schedule constant",
    inject=_inject_unclipped,
)
