"""The options of a callback: those of `steadyrun.record` and those of `run.watch`, told apart by their names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from steadyrun.errors import UsageError
from steadyrun.probes.opening import record
from steadyrun.probes.recorder import Run

_OURS = {"path", "config", "first_step"}  # of `record`: known to the framework, or an argument of its own
_THEIRS = {"self", "model", "optimizer", "scheduler", "scaler", "loader", "preflight"}  # of `watch`


def sorted_out(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of `record` and those of `watch`; an error for any other."""
    of_record = set(inspect.signature(record).parameters) - _OURS
    of_watch = set(inspect.signature(Run.watch).parameters) - _THEIRS
    for name in options:
        if name not in of_record | of_watch:
            raise UsageError(f"SteadyrunCallback: no option {name!r}; there are {sorted(of_record | of_watch)}")
    recorded = {name: value for name, value in options.items() if name in of_record}
    return recorded, {name: value for name, value in options.items() if name in of_watch}
