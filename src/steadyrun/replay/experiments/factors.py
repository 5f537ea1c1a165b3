"""The changes, ordered from fast to invasive. Each is a context manager on the task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from steadyrun.program.packing import unpack
from steadyrun.program.training_changes import clipped, drops, groups_of, no_dropout, with_rates
from steadyrun.replay.experiments.verdict import DATA, MODEL, OPTIMIZER, PRECISION, RATE
from steadyrun.replay.hunt import fp32
from steadyrun.replay.session import Session

_WARMUP = 50  # steps of the additional warmup
_CLIP = 0.5
_EPSILON = 1e3  # factor on the optimizer's own epsilon

Change = Callable[[Session, int], AbstractContextManager[None]]
"""Applied to a session at the first changed step, and undone at the end."""


@dataclass(frozen=True)
class Factor:
    """One change. Without `change` it replaces a batch: `batch_change` says which.

    `by_updates`: it affects only losses after the next update, and gradients only if `in_backward`. `softens`: it makes
    training milder, the more the longer it lasts, so it is tested from several start steps.
    """

    name: str
    group: str
    words: str
    change: Change | None = None
    batch_change: str = ""
    usable: Callable[[Session], bool] = lambda _session: True
    by_updates: bool = False
    in_backward: bool = False
    softens: bool = False


REPEAT = Factor("repeat", "none", "nothing changed")


def factors_for(session: Session, before: bool) -> tuple[list[Factor], list[Factor]]:
    """The changes that apply to this program and incident, and the others; `before` adds the batch before."""
    factors = [factor for factor in _factors() if before or factor.batch_change != "before"]
    usable = [factor for factor in factors if factor.usable(session)]
    return usable, [factor for factor in factors if factor not in usable]


def _factors() -> tuple[Factor, ...]:
    """All changes, from fast to invasive."""
    milder = partial(Factor, by_updates=True, softens=True)
    update = partial(Factor, by_updates=True)
    return (
        milder(
            "lr-held", RATE, "the previous step's learning rate, held constant", _constant_rates, usable=_rate_moves
        ),
        milder("lr/3", RATE, "the learning rate divided by 3", _rate(lambda _done: 1 / 3)),
        milder("lr/10", RATE, "the learning rate divided by 10", _rate(lambda _done: 1 / 10)),
        milder("warmup", RATE, f"a warmup of {_WARMUP} more steps", _rate(lambda done: (done + 1) / _WARMUP)),
        Factor("fp32", PRECISION, "float32 instead of the narrower format", _float32, usable=_is_narrow),
        update(
            "loss-scale",
            PRECISION,
            "the loss scale divided by 1,024",
            _loss_scale,
            usable=_is_scaled,
            in_backward=True,
        ),
        milder("clip-0.5", "clip", f"gradients clipped to a norm of {_CLIP}", _clip),
        Factor("other-batch", DATA, "another batch at the bad step", batch_change="other"),
        Factor("other-batch-before", DATA, "another batch at the step that changed the weights", batch_change="before"),
        Factor("batch-elsewhere", DATA, "the same batch at an earlier step", batch_change="elsewhere"),
        update(
            "earlier-moments",
            OPTIMIZER,
            "the optimizer moments of the checkpoint",
            _earlier_moments,
            usable=_has_moments,
        ),
        update(
            "moments-before-seam",
            OPTIMIZER,
            "the optimizer moments from before the resume",
            _seam_moments,
            usable=_has_seam,
        ),
        update("fresh-moments", OPTIMIZER, "fresh optimizer moments", _fresh_moments, usable=_has_moments),
        update("epsilon", "epsilon", "an optimizer epsilon 1,000 times larger", _epsilon, usable=_has_epsilon),
        Factor("no-dropout", MODEL, "dropout turned off", _no_dropout, usable=_has_dropout),
    )


# -- the learning rate -----------------------------------------------------------------------------


def _rate(share: Callable[[int], float]) -> Change:
    def change(session: Session, _start: int) -> AbstractContextManager[None]:
        return with_rates(session.task, lambda rate, done: rate * min(1.0, share(done)))

    return change


def _constant_rates(session: Session, start: int) -> AbstractContextManager[None]:
    before = [session.incident.recorded(f"lr/{index}").get(start - 1) for index in range(len(groups_of(session.task)))]
    return with_rates(session.task, lambda rate, _done: rate, before)


def _rate_moves(session: Session) -> bool:
    """Whether a learning rate changed by half or more from one step of the window to the next."""
    return any(
        before and now and (now / before > 1.5 or now / before < 1 / 1.5)
        for index in range(len(groups_of(session.task)))
        for before, now in _neighbours(session.incident.recorded(f"lr/{index}"))
    )


def _neighbours(rates: dict[int, float]) -> Iterator[tuple[float, float]]:
    for step in sorted(rates):
        if step - 1 in rates:
            yield rates[step - 1], rates[step]


# -- precision, gradients ---------------------------------------------------------------------------


def _float32(session: Session, _start: int) -> AbstractContextManager[None]:
    return fp32(session.task)


def _is_narrow(session: Session) -> bool:
    halves = (torch.float16, torch.bfloat16)
    return bool(session.incident.checkpoint.get("autocast")) or any(
        parameter.dtype in halves for parameter in session.task.model.parameters()
    )


@contextmanager
def _loss_scale(session: Session, _start: int) -> Iterator[None]:
    scaler: Any = session.task.scaler
    if isinstance(scaler._scale, Tensor):
        scaler._scale.div_(1024)
    else:
        scaler._init_scale /= 1024
    yield


def _is_scaled(session: Session) -> bool:
    return session.task.scaler is not None


def _clip(session: Session, _start: int) -> AbstractContextManager[None]:
    return clipped(session.task, _CLIP)


# -- the optimizer's state --------------------------------------------------------------------------


def _earlier_moments(session: Session, _start: int) -> AbstractContextManager[None]:
    tree, tensors = session.incident.state
    return _with_moments(session, unpack(tree, tensors, session.device)["optimizers"])


def _seam_moments(session: Session, _start: int) -> AbstractContextManager[None]:
    assert session.incident.before_seam is not None
    tree, tensors = session.incident.before_seam
    return _with_moments(session, unpack(tree, tensors, session.device)["optimizers"])


def _with_moments(session: Session, saved: list[dict[str, Any]]) -> AbstractContextManager[None]:
    """Load the moments of another step; learning rates and other settings stay."""
    for optimizer, state in zip(session.task.optimizers, saved, strict=True):
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state["state"], "param_groups": groups})
    return nullcontext()


def _fresh_moments(session: Session, _start: int) -> AbstractContextManager[None]:
    for optimizer in session.task.optimizers:
        optimizer.state.clear()
    return nullcontext()


def _has_moments(session: Session) -> bool:
    content = session.incident.checkpoint
    return any(name.startswith("optimizers.") for name in session.incident.state[1]) and bool(content)


def _has_seam(session: Session) -> bool:
    return session.incident.before_seam is not None


def _epsilon(session: Session, _start: int) -> AbstractContextManager[None]:
    for group in groups_of(session.task):
        if "eps" in group:
            group["eps"] = max(group["eps"], 1e-12) * _EPSILON
    return nullcontext()


def _has_epsilon(session: Session) -> bool:
    return any(isinstance(group.get("eps"), float) for group in groups_of(session.task))


# -- the model --------------------------------------------------------------------------------------


def _no_dropout(session: Session, _start: int) -> AbstractContextManager[None]:
    return no_dropout(session.task)


def _has_dropout(session: Session) -> bool:
    return any(drops(module) for module in session.task.model.modules())
