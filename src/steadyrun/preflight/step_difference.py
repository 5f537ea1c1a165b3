"""Two steps compared: what differs first, and how far."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from steadyrun.preflight.bench import Bench
from steadyrun.preflight.input_edits import moved
from steadyrun.preflight.step_trace import StepSeen, dense
from steadyrun.program.attributes import same


@dataclass(frozen=True)
class StepDifference:
    """What differs first, in words, and how far against its own size."""

    words: str
    relative: float


def first_difference(bench: Bench, one: StepSeen, other: StepSeen) -> StepDifference | None:
    """The first difference in the order of a step: loss, gradient, parameter; None where there is none."""
    if one.loss != other.loss and not (one.loss != one.loss and other.loss != other.loss):
        size = max(abs(one.loss), abs(other.loss), 1e-12)
        return StepDifference(f"the loss ({one.loss:.9g} and {other.loss:.9g})", abs(one.loss - other.loss) / size)
    names = {id(each): name for name, each in bench.parameters.items()}
    for kind, mine, theirs in (
        ("gradient", one.gradients, other.gradients),
        ("parameter", _moved_by(one, other), other.after),
    ):
        worst = _worst(kind, mine, theirs, names, one)
        if worst is not None:
            return worst
    return None


def _moved_by(one: StepSeen, other: StepSeen) -> dict[int, Tensor]:
    """The tensors after the first of two steps, of those that one of the two moved."""
    steps = (one, other)
    return {key: held for key, held in one.after.items() if any(bool(each.change(key).ne(0).any()) for each in steps)}


def _worst(
    kind: str, mine: dict[int, Tensor], theirs: dict[int, Tensor], names: dict[int, str], one: StepSeen
) -> StepDifference | None:
    """The tensor that differs most; a parameter's difference is measured against its move."""
    found = []
    for key, held in mine.items():
        other = theirs.get(key)
        if other is None:
            found.append(
                StepDifference(f"the {kind} of {names.get(key, 'another tensor')}, which is missing once", 1.0)
            )
            continue
        held, other = dense(held), dense(other)
        if held.shape == other.shape and same(held, other):
            continue
        size = float((one.change(key) if kind == "parameter" else held).float().norm()) or float(held.float().norm())
        far = float(moved(held, other).norm()) if held.shape == other.shape else float("inf")
        found.append(StepDifference(f"the {kind} of {names.get(key, 'another tensor')}", far / max(size, 1e-30)))
    return max(found, key=lambda each: each.relative, default=None)
