"""The scheduler is built and never stepped."""

from dataclasses import replace

from steadyrun.tutor.recipe import Fault, Recipe, TrainState


def inject(recipe: Recipe) -> Recipe:
    def advance(_state: TrainState) -> None:
        pass

    return replace(recipe, advance=advance)


FAULT = Fault(
    name="scheduler-never-stepped",
    leaf="C2.1",
    summary="the learning rate stays where the warmup begins",
    change="the loop leaves out scheduler.step()",
    inject=inject,
)
