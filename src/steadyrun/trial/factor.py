"""One change of a trial, identified by its name, from which a worker finds it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steadyrun.trial.twin import Twin

RATE, WARMUP, DECAY, DROPOUT, SMOOTHING = "rate", "warmup", "decay", "dropout", "smoothing"
CLIP, OPTIMIZER, START, PRECISION, BATCH = "clip", "optimizer-settings", "start", "precision", "batch"
LEARNS, TARGETS, INPUTS, PREPARATION = "can-learn", "targets", "inputs", "preparation"
PART, TERM, BLOCK, FUNCTION, OWN, USER = "part", "term", "block", "function", "own", "user"

USER_PREFIX = "vary "  # of the user's own factors
Apply = Callable[["Twin"], AbstractContextManager[Any]]
Batches = Callable[["Twin"], list[Any]]


def _unchanged(_twin: Twin) -> AbstractContextManager[Any]:
    return nullcontext()


def _training(twin: Twin) -> list[Any]:
    return list(twin.data.training)


@dataclass(frozen=True)
class Factor:
    """One change. If `removes`, it removes a choice of the program and so names a cause if it helps; otherwise it is a
    remedy, which may help against several causes."""

    name: str
    group: str
    words: str
    apply: Apply = _unchanged
    rate: Callable[[int, int], float] = lambda _step, _steps: 1.0
    batches: Batches = _training
    removes: bool = False
    near_best: float = 0.8  # fraction of the best gain from which a removing change is preferred
    invasive: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the config


OWN_TWIN = Factor("own", OWN, "nothing changed")


@dataclass(frozen=True)
class NotVaried:
    """A change that this program does not allow, and why."""

    name: str
    group: str
    words: str  # what is not varied
    why: str


def rate_factor(times: float) -> Factor:
    """The learning rate times a factor."""
    how = f"divided by {1 / times:.6g}" if times < 1 else f"times {times:.6g}"
    return Factor(f"rate*{times:.4g}", RATE, f"the learning rate {how}", rate=lambda _step, _steps: times)


def user_factor(name: str, value: Any) -> Factor:
    """A config value to try; the factory builds the program with it."""
    text = f"{name} = {value}"
    return replace(OWN_TWIN, name=f"{USER_PREFIX}{text}", group=USER, words=text, changes={name: value})
