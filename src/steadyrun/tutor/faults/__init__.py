"""The engineered faults, by name. Adding one: a file beside this one, and a line in the table."""

from dataclasses import fields
from typing import Any

from steadyrun.tutor.config import TutorConfig, default_warmup
from steadyrun.tutor.faults import bad_init, broken_mask, healthy, no_warmup
from steadyrun.tutor.recipe import Fault, Recipe

FAULTS: dict[str, Fault] = {
    "healthy": healthy.FAULT,
    "bad-init": bad_init.FAULT,
    "no-warmup": no_warmup.FAULT,
    "broken-mask": broken_mask.FAULT,
}


def load_recipe(fault: str = "healthy", **overrides: Any) -> Recipe:
    """The training program with one fault in it, for example `load_recipe("no-warmup", steps=200, seed=1)`.

    Overrides are fields of TutorConfig. When `steps` is given and `warmup_steps` is not, the warmup is
    shortened to fit a short run.
    """
    if fault not in FAULTS:
        raise ValueError(f"unknown fault {fault!r}; known: {', '.join(FAULTS)}")
    known = [field.name for field in fields(TutorConfig)]
    if unknown := sorted(set(overrides) - set(known)):
        raise ValueError(f"unknown setting {', '.join(unknown)}; known: {', '.join(known)}")
    if "steps" in overrides and "warmup_steps" not in overrides:
        overrides["warmup_steps"] = default_warmup(overrides["steps"])
    return FAULTS[fault].inject(Recipe(TutorConfig(**overrides)))
