"""A schedule that counts steps is stepped once per epoch."""

from dataclasses import replace

from steadyrun.tutor.config import TRAIN_SENTENCES
from steadyrun.tutor.recipe import Fault, Recipe, TrainState


def inject(recipe: Recipe) -> Recipe:
    config = recipe.config
    steps_per_epoch = max(1, TRAIN_SENTENCES // (config.batch_size * config.accumulation))

    def advance(state: TrainState) -> None:
        if (state.step + 1) % steps_per_epoch == 0:
            recipe.advance(state)

    return replace(recipe, advance=advance)


FAULT = Fault(
    name="scheduler-per-epoch",
    leaf="C2.1",
    summary="the schedule moves once per epoch and is still warming up when the run ends",
    change="the loop calls scheduler.step() at the end of each epoch",
    inject=inject,
)
