"""The first difference between two steps."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from steadyrun.preflight.bench import Bench
from steadyrun.preflight.input_edits import moved
from steadyrun.preflight.step_trace import StepTrace, dense
from steadyrun.program.attributes import same


@dataclass(frozen=True)
class StepDifference:
    """The first quantity that differs, in words, and the relative difference."""

    words: str
    relative: float


def first_difference(bench: Bench, first: StepTrace, second: StepTrace) -> StepDifference | None:
    """The first difference in the order of a step: loss, gradient, parameter; None if both agree."""
    if first.loss != second.loss and not (first.loss != first.loss and second.loss != second.loss):
        size = max(abs(first.loss), abs(second.loss), 1e-12)
        return StepDifference(
            f"the loss ({first.loss:.9g} and {second.loss:.9g})", abs(first.loss - second.loss) / size
        )
    names = {id(parameter): name for name, parameter in bench.parameters.items()}
    for kind, mine, theirs in (
        ("gradient", first.gradients, second.gradients),
        ("parameter", _moved_by(first, second), second.after),
    ):
        worst = _worst(kind, mine, theirs, names, first)
        if worst is not None:
            return worst
    return None


def _moved_by(first: StepTrace, second: StepTrace) -> dict[int, Tensor]:
    """The tensors after the first step that either of the two steps changed."""
    steps = (first, second)
    return {
        key: tensor for key, tensor in first.after.items() if any(bool(step.change(key).ne(0).any()) for step in steps)
    }


def _worst(
    kind: str, mine: dict[int, Tensor], theirs: dict[int, Tensor], names: dict[int, str], first: StepTrace
) -> StepDifference | None:
    """The tensor that differs most, a parameter relative to its update."""
    differences = []
    for key, tensor in mine.items():
        twin = theirs.get(key)
        if twin is None:
            differences.append(
                StepDifference(f"the {kind} of {names.get(key, 'another tensor')}, missing in one of them", 1.0)
            )
            continue
        tensor, twin = dense(tensor), dense(twin)
        if tensor.shape == twin.shape and same(tensor, twin):
            continue
        scale = first.change(key) if kind == "parameter" else tensor
        size = float(scale.float().norm()) or float(tensor.float().norm())
        far = float(moved(tensor, twin).norm()) if tensor.shape == twin.shape else float("inf")
        differences.append(StepDifference(f"the {kind} of {names.get(key, 'another tensor')}", far / max(size, 1e-30)))
    return max(differences, key=lambda difference: difference.relative, default=None)
