"""Run an incident again, prove that it is the same, and measure every step of what recording sampled."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from steadyrun.capture.step_boundary import Boundary
from steadyrun.errors import RunDirectoryError, SteadyrunError
from steadyrun.probes.batch_hashes import input_hash
from steadyrun.program import snapshot as training
from steadyrun.program.model_parts import clean
from steadyrun.program.packing import Packed
from steadyrun.program.torch_compat import foreach_norm, foreach_sub
from steadyrun.replay import compare as proving
from steadyrun.replay.difference_search import prove
from steadyrun.replay.recorded_digests import RecordedDigests
from steadyrun.replay.repetitions import OnStep, execute_again, first_execution, is_finite, judge_repetitions
from steadyrun.replay.result import Replay
from steadyrun.replay.session import Session

# The first violent change of a parameter in a replayed window.


VIOLENT = 10.0  # times the median change of the previous steps
_ENOUGH = 5  # previous steps that a median needs


@dataclass(frozen=True)
class ParameterUpdate:
    """The relative change of a parameter in one step."""

    step: int
    parameter: str
    ratio: float
    typical: float

    @property
    def times(self) -> float:
        return self.ratio / self.typical if self.typical > 0 else float("inf")


class Changes:
    """Collects the change of every parameter at every step."""

    def __init__(self) -> None:
        self._moves: dict[str, list[tuple[int, float, float]]] = {}  # step, norm of the change, norm before

    def add(self, step: int, model: nn.Module, before: Packed) -> None:
        named = {clean(name): parameter for name, parameter in model.named_parameters()}
        for name, (moved, size) in _moves(named, before.tensors).items():
            self._moves.setdefault(name, []).append((step, moved, size))

    def first_violent(self) -> ParameterUpdate | None:
        """The earliest step at which a parameter changes ten times as much as usual, or becomes non-finite.

        Of several parameters at that step, the one with the largest change relative to its own past.
        """
        updates = [change for name, moves in self._moves.items() if (change := _first(name, moves)) is not None]
        return min(updates, key=lambda change: (change.step, -change.times), default=None)


def _moves(named: Mapping[str, nn.Parameter], before: Mapping[str, Tensor]) -> dict[str, tuple[float, float]]:
    names = [name for name in named if f"parameters.{name}" in before and named[name].numel()]
    now = [named[name].detach().float().cpu() for name in names]
    then = [before[f"parameters.{name}"].float() for name in names]
    if not names:
        return {}
    moved = foreach_norm(foreach_sub(now, then), 2, torch.float64)
    size = foreach_norm(then, 2, torch.float64)
    return {name: (float(m), float(s)) for name, m, s in zip(names, moved, size, strict=True)}


def _first(name: str, moves: list[tuple[int, float, float]]) -> ParameterUpdate | None:
    ratios = np.array([_ratio(moves, index) for index in range(len(moves))])
    for index, (step, _, _) in enumerate(moves):
        ratio = ratios[index]
        typical = float(np.median(ratios[:index])) if index >= _ENOUGH else float("nan")
        if not np.isfinite(ratio) or (typical > 0 and ratio > VIOLENT * typical):
            return ParameterUpdate(step, name, float(ratio), typical)
    return None


def _ratio(moves: list[tuple[int, float, float]], index: int) -> float:
    """The change of a step relative to the usual norm, so that a bias crossing zero does not count as small."""
    size = max(moves[index][2], float(np.median([size for _, _, size in moves[: index + 1]])))
    return moves[index][1] / size if size else moves[index][1]


# Losses per token, from a loss function that returns their mean: its torch loss is called again without reduction.


_MOST = 65_536
_LOSSES = frozenset(
    {
        functional.cross_entropy,
        functional.nll_loss,
        functional.mse_loss,
        functional.l1_loss,
        functional.smooth_l1_loss,
        functional.huber_loss,
        functional.binary_cross_entropy,
        functional.binary_cross_entropy_with_logits,
        functional.kl_div,
    }
)


class TokenLosses(TorchFunctionMode):
    """While active, records the loss of every element passed to torch's loss functions."""

    def __init__(self) -> None:
        super().__init__()
        self._losses: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _LOSSES:
            self._note(func, args, kwargs)
        return func(*args, **kwargs)

    def losses(self) -> list[float] | None:
        """The recorded losses in order; None if no loss function of torch was called."""
        flat = [losses.reshape(-1).float().cpu() for losses in self._losses]
        return torch.cat(flat)[:_MOST].tolist() if flat else None

    def _note(self, func: Callable[..., Tensor], args: Any, kwargs: dict[str, Any]) -> None:
        try:
            with torch.no_grad():
                plain = {name: value for name, value in kwargs.items() if name not in {"size_average", "reduce"}}
                self._losses.append(func(*args[: _positional(func)], **{**plain, "reduction": "none"}).detach())
        except Exception:  # an unusual call is not recorded: the step itself must continue
            return


def _positional(func: Callable[..., Tensor]) -> int:
    """The number of leading arguments before reduction and deprecated flags."""
    return 3 if func in (functional.cross_entropy, functional.nll_loss) else 2


_EVERY = {"activations": 1, "blocks": 1, "moments": 1, "spectral": 0, "system": 0, "attention": 1, "dead_units": 1}


def execute_window(
    session: Session, *, until: int | None = None, on_step: OnStep | None = None, times: int = 1
) -> Replay:
    """Run the window from the checkpoint to the last captured step, and compare it with the recording.

    `times` is how often it runs in all: the first time under the recorder, then bare.
    """
    incident = session.incident
    steps = _window(session, until)
    if not os.access(incident.folder, os.W_OK):
        raise RunDirectoryError(
            f"cannot write to {incident.folder}, which a replay needs for its measurements: copy the run directory to "
            "a "
            "writable folder, and replay the copy"
        )
    if incident.replay_folder.exists():
        shutil.rmtree(incident.replay_folder)
    result = Replay(incident, session, proving.compare({}, {}, ""), {}, incident.replay_folder)
    before = _execute_all(session, steps, result, _among(on_step, 0, len(steps) * times))
    result.other_losses = session.other_losses()
    repetitions = [first_execution(session, result)] if times > 1 else []
    repetitions += [
        execute_again(session, steps, _among(on_step, len(steps) * done, len(steps) * times))
        for done in range(1, times)
    ]
    result.proof = prove(session, result, before)
    if repetitions:
        result.hardware = judge_repetitions(session, result, repetitions)
    return result


def _among(on_step: OnStep | None, done: int, total: int) -> OnStep | None:
    """`on_step` for one of several executions, which counts the steps of all."""
    return None if on_step is None else lambda step, _, loss: on_step(done + step, total, loss)


def _window(session: Session, until: int | None) -> list[int]:
    incident = session.incident
    if until is None:
        until = max([incident.step, *incident.steps]) if incident.kind in {"spike", "fault", "asked"} else incident.step
    until = min([until, *(max(part.steps) for part in session.ranks)])  # all ranks must have its batch
    wanted = [step for step in incident.steps if incident.first_step <= step <= until]
    if not wanted:
        raise RunDirectoryError(f"{incident.folder} contains no step to replay")
    if wanted != list(range(incident.first_step, incident.first_step + len(wanted))):
        raise RunDirectoryError(f"{incident.folder} lacks some batches after step {incident.first_step}")
    return wanted


def _execute_all(session: Session, steps: list[int], result: Replay, on_step: OnStep | None) -> Packed | None:
    """Run the window under the recorder; return the state before the first step whose loss differs."""
    recorded, changes, pool = result.incident.recorded("loss"), Changes(), training.Pool()
    different: Packed | None = None
    run = session.record(
        result.folder, config=result.incident.view.manifest.get("config"), every=_EVERY, first_step=steps[0], rank=0
    )
    digests = result.digests = RecordedDigests(
        session.objects.model, [session.incident, *session.ranks] if session.ranks else []
    )
    with run, _Inputs(session, result.inputs) as inputs:
        task = session.task
        run.watch(task.model, task.optimizer, scheduler=task.scheduler, scaler=task.scaler, monitor=False)
        for done, step in enumerate(steps):
            before = training.remember(session.objects, pool)
            inputs.expect(step)
            tokens = TokenLosses() if step == result.incident.step else nullcontext()
            try:
                with tokens:
                    loss = session.execute(step)
            except SteadyrunError:
                raise
            except Exception as problem:
                result.raised = f"{type(problem).__name__}: {problem}".splitlines()[0]
                result.first_bad, result.before_bad = step, before
                break
            if isinstance(tokens, TokenLosses):
                result.token_losses = tokens.losses()
            result.losses[step] = value = float(loss)
            digests.compare(step)
            run.step(loss, batch=session.incident.batch(step, session.device), step=step)
            if different is None and step in recorded and not _same(value, recorded[step]):
                different, pool = before, training.Pool()
            changes.add(step, session.objects.model, before)
            if on_step is not None:
                on_step(done + 1, len(steps), value)
            if result.first_bad is None and not (math.isfinite(value) and is_finite(session)):
                result.first_bad, result.before_bad, pool = step, before, training.Pool()
                if step >= result.incident.step:
                    break
    result.violent = changes.first_violent()
    return different


class _Inputs:
    """Records a hash of the model's inputs at each step."""

    def __init__(self, session: Session, hashes: dict[int, int | None]) -> None:
        self._hashes, self._step = hashes, 0
        self._boundary = Boundary(session.objects.model, self._crossed)

    def expect(self, step: int) -> None:
        self._step = step
        self._boundary.arm()

    def _crossed(self, args: Any) -> None:
        own_hash = input_hash(args)
        self._hashes[self._step] = None if own_hash is None else int(own_hash)

    def __enter__(self) -> _Inputs:
        return self

    def __exit__(self, *_: object) -> None:
        self._boundary.disarm()


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
