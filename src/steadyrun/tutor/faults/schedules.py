"""Faults of the schedule: its length, its warmup, its shape, and its step count."""

import math
from dataclasses import replace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from steadyrun.tutor.config import TRAIN_SENTENCES, TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe, TrainState, lr_factor

# At the healthy program's rate the loss still falls; at this rate it rises in the second half.
LR = 0.04


def _inject_inverted_cosine(recipe: Recipe) -> Recipe:
    """Use a cosine with the wrong sign: after the warmup the rate drops to its minimum and then rises."""

    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: _inverted_cosine_factor(step, config))

    config = replace(recipe.config, lr_max=LR, lr_min=LR / 10)
    return replace(recipe, config=config, build_scheduler=build_scheduler)


def _inverted_cosine_factor(step: int, config: TutorConfig) -> float:
    if step < config.warmup_steps:
        return lr_factor(step, config)
    progress = min(1.0, (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps))
    floor = config.lr_min / config.lr_max
    return floor + (1 - floor) * 0.5 * (1 - math.cos(math.pi * progress))


INVERTED_COSINE = Fault(
    name="inverted-cosine",
    leaf="C2.1",
    summary="the learning rate rises over the run, and finally so does the loss",
    change=f"build_scheduler has 1 - cos instead of 1 + cos; lr_max is {LR}",
    inject=_inject_inverted_cosine,
    steps=600,
)


def _inject_long_horizon(recipe: Recipe) -> Recipe:
    """Build the cosine for ten times the steps, as if the run were shortened without the scheduler."""

    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return recipe.build_scheduler(optimizer, replace(config, steps=10 * config.steps))

    return replace(recipe, build_scheduler=build_scheduler)


LONG_HORIZON = Fault(
    name="long-horizon",
    leaf="C2.1",
    summary="the run ends long before the learning rate reaches its minimum",
    change="build_scheduler plans for ten times the steps",
    inject=_inject_long_horizon,
)


def _inject_short_horizon(recipe: Recipe) -> Recipe:
    """Build the cosine for half of the run, as if the run were doubled without the scheduler."""

    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        half = max(1, config.steps // 2)
        return recipe.build_scheduler(
            optimizer, replace(config, steps=half, warmup_steps=min(half, config.warmup_steps))
        )

    return replace(recipe, build_scheduler=build_scheduler)


SHORT_HORIZON = Fault(
    name="short-horizon",
    leaf="C2.1",
    summary="the learning rate reaches its minimum halfway through the run",
    change="build_scheduler plans for half of the steps",
    inject=_inject_short_horizon,
)


def _inject_no_warmup(recipe: Recipe) -> Recipe:
    """Build the scheduler without the declared warmup."""

    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return recipe.build_scheduler(optimizer, replace(config, warmup_steps=0))

    return replace(recipe, build_scheduler=build_scheduler)


NO_WARMUP = Fault(
    name="no-warmup",
    leaf="C2.1",
    summary="the learning rate starts at its maximum although a warmup is declared",
    change="build_scheduler ignores warmup_steps: cosine decay from step 0",
    inject=_inject_no_warmup,
)


WORKERS = 4


def _inject_slow_warmup(recipe: Recipe) -> Recipe:
    """Stretch the warmup for four workers that each step the scheduler, although only one does."""

    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: _factor(step, config))

    return replace(recipe, build_scheduler=build_scheduler)


def _factor(step: int, config: TutorConfig) -> float:
    warmup = min(1.0, step / max(1, WORKERS * config.warmup_steps))
    return warmup * lr_factor(max(step, config.warmup_steps), config)


SLOW_WARMUP = Fault(
    name="slow-warmup",
    leaf="C2.2",
    summary="at the end of the declared warmup the learning rate is at a quarter of its peak",
    change=f"build_scheduler warms up by t / ({WORKERS} * warmup_steps); the cosine has the right length",
    inject=_inject_slow_warmup,
)


def _inject_warmup_off_by_one(recipe: Recipe) -> Recipe:
    """Count a warmup of one step from 1 although the first step is 0."""

    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: _warmup_off_by_one_factor(step, config))

    return replace(recipe, config=replace(recipe.config, warmup_steps=1), build_scheduler=build_scheduler)


def _warmup_off_by_one_factor(step: int, config: TutorConfig) -> float:
    if step <= config.warmup_steps:
        return max(0, step - 1) / config.warmup_steps
    return lr_factor(step, config)


WARMUP_OFF_BY_ONE = Fault(
    name="warmup-off-by-one",
    leaf="C2.2",
    summary="the learning rate is still 0 after the warmup of one step",
    change="build_scheduler warms up by (t - 1) / warmup_steps with t from 0; warmup_steps is 1",
    inject=_inject_warmup_off_by_one,
)


def _inject_scheduler_never_stepped(recipe: Recipe) -> Recipe:
    """Build the scheduler but never step it."""

    def advance(_state: TrainState) -> None:
        pass

    return replace(recipe, advance=advance)


SCHEDULER_NEVER_STEPPED = Fault(
    name="scheduler-never-stepped",
    leaf="C2.1",
    summary="the learning rate stays at the start of the warmup",
    change="the loop does not call scheduler.step()",
    inject=_inject_scheduler_never_stepped,
)


def _inject_scheduler_per_epoch(recipe: Recipe) -> Recipe:
    """Step a schedule that counts steps only once per epoch."""
    config = recipe.config
    steps_per_epoch = max(1, TRAIN_SENTENCES // (config.batch_size * config.accumulation))

    def advance(state: TrainState) -> None:
        if (state.step + 1) % steps_per_epoch == 0:
            recipe.advance(state)

    return replace(recipe, advance=advance)


SCHEDULER_PER_EPOCH = Fault(
    name="scheduler-per-epoch",
    leaf="C2.1",
    summary="the schedule advances once per epoch and is still warming up at the end of the run",
    change="the loop calls scheduler.step() at the end of each epoch",
    inject=_inject_scheduler_per_epoch,
)


def _inject_scheduler_twice(recipe: Recipe) -> Recipe:
    """Step the scheduler twice per optimizer step: in the loop and in a helper function."""

    def advance(state: TrainState) -> None:
        recipe.advance(state)
        recipe.advance(state)

    return replace(recipe, advance=advance)


SCHEDULER_TWICE = Fault(
    name="scheduler-twice",
    leaf="C2.1",
    summary="the schedule runs at double speed",
    change="the loop calls scheduler.step() twice per step",
    inject=_inject_scheduler_twice,
)


STAIRS = 4
GAMMA = 0.5


def _inject_step_decay(recipe: Recipe) -> Recipe:
    """Lower the learning rate in four stairs although a cosine is declared."""

    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: _step_decay_factor(step, config))

    return replace(recipe, build_scheduler=build_scheduler)


def _step_decay_factor(step: int, config: TutorConfig) -> float:
    if step < config.warmup_steps:
        return lr_factor(step, config)
    return float(GAMMA ** (STAIRS * step // config.steps))


STEP_DECAY = Fault(
    name="step-decay",
    leaf="C2.1",
    summary="the learning rate falls in stairs although a cosine is declared",
    change=f"build_scheduler multiplies the rate by {GAMMA} after every quarter of the run",
    inject=_inject_step_decay,
)
