"""Dealing with the program's own functions: what they raise, what they return, what they do inside."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from steadyrun.errors import SteadyrunError
from steadyrun.preflight.guarded_pass import OutOfRange
from steadyrun.program.torch_compat import GRAD
from steadyrun.signals.missing import MissingSignal, NotApplicable


@contextmanager
def their_code(name: str) -> Iterator[None]:
    """What the program's own functions raise is no mistake of a probe: the probe cannot tell."""
    try:
        yield
    except (SteadyrunError, MissingSignal, NotApplicable, OutOfRange):
        raise
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        why = f"{name} raised {type(problem).__name__}: {problem} ({Path(last.filename).name}:{last.lineno})"
        raise MissingSignal(name, why, f"{name} must run on the batches that preflight is given") from problem


@contextmanager
def noting_inner_gradients(memo: dict[Any, Any]) -> Iterator[None]:
    """A model or a loss may differentiate by itself (a penalty, a force): it cannot run without gradients."""

    def noted(call: Any, *args: Any, **options: Any) -> Any:
        memo["needs gradients"] = True
        return call(*args, **options)

    with GRAD.wrapped(noted):
        yield


def number_of(returned: Any) -> float:
    """The loss that a step returns: a number, a tensor, the first of several; NaN where it returns none."""
    if isinstance(returned, Mapping):
        returned = returned.get("loss", next(iter(returned.values()), None))
    elif isinstance(returned, list | tuple):
        returned = next(iter(returned), None)
    if isinstance(returned, Tensor):
        return float(returned.detach().float().mean()) if returned.numel() else float("nan")
    return float(returned) if isinstance(returned, int | float) else float("nan")
