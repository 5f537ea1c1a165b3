"""The order of incidents: which of several matters most."""

from __future__ import annotations

import math
from typing import Any

from steadyrun.store.jsonio import number

_KINDS = ("non-finite", "exception", "out-of-memory", "fault", "rollback", "asked", "spike")


def gravity(kind: Any, severity: Any, step: int) -> tuple[int, float, int]:
    """The key that sorts the gravest incident first: by its kind, then by its severity, then by its step.

    A severity that is missing or not a number counts as the largest, a kind that is not known as the least.
    """
    rank = _KINDS.index(kind) if kind in _KINDS else len(_KINDS)
    return rank, -_size(severity), step


def _size(severity: Any) -> float:
    try:
        size = number(severity)
    except (TypeError, ValueError, OverflowError):
        return math.inf
    return math.inf if math.isnan(size) else size
