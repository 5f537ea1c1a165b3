"""No fault: the program does what its configuration says."""

from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    return recipe


FAULT = Fault(
    name="healthy",
    leaf="",
    summary="the reference run: nothing is wrong",
    change="none",
    inject=inject,
)
