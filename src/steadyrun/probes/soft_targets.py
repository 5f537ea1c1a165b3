"""What a divergence from a teacher compares: the student's scores, the teacher's, and the temperature of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from steadyrun.program.torch_compat import saved

_TINY = 1e-12
NAMES = ("rows", "student_fit", "student_temperature", "teacher_fit", "teacher_temperature", "squashed_fit")


def soft_targets(nodes: Iterable[Any]) -> tuple[Tensor, Tensor, Any] | None:
    """The student's log-probabilities, the targets and the node of a KL divergence, t log t - t x; None without."""
    for node in nodes:
        if not node.name().startswith("SubBackward0"):
            continue
        weighted = [below for below, _ in node.next_functions if below is not None]
        for product in weighted:
            if not product.name().startswith("MulBackward0"):
                continue
            sides = [below for below, _ in product.next_functions]
            logarithms = [saved(each, "result") for each in sides if each is not None and "LogSoftmax" in each.name()]
            targets = [saved(product, name) for name in ("self", "other")]
            known = [
                each for each in targets if isinstance(each, Tensor) and each.dim() == 2 and bool((each >= 0).all())
            ]
            if logarithms and isinstance(logarithms[0], Tensor) and known and known[0].shape == logarithms[0].shape:
                return logarithms[0].detach(), known[0].detach(), node
    return None


def compared_with(
    logarithms: Tensor, targets: Tensor, students: Sequence[Tensor], teachers: Sequence[Tensor]
) -> Tensor | None:
    """The numbers of `NAMES`: whether rows add up to 1, how well scores explain each side, at which temperature."""
    student = next((each for each in students if each.shape == targets.shape), None)
    teacher = next((each for each in teachers if each.shape == targets.shape), None)
    if student is None or teacher is None:
        return None
    with torch.no_grad():
        of_targets = targets.float().clamp(min=_TINY).log()
        rows = (targets.float().sum(1) - 1).abs().mean()
        own = _explained(logarithms.float(), student.float())
        told = _explained(of_targets, teacher.float())
        squashed = _explained(of_targets, teacher.float().softmax(1))[0]
        return torch.stack([rows, *own, *told, squashed])


def _explained(logarithms: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The squared correlation of log-probabilities with scores within rows, and the temperature between them."""
    given, made = logarithms - logarithms.mean(1, keepdim=True), scores - scores.mean(1, keepdim=True)
    both, spread = (given * made).sum(), made.square().sum().clamp(min=_TINY)
    slope = both / spread
    return both.square() / (spread * given.square().sum().clamp(min=_TINY)), 1 / slope
