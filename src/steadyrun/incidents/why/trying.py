"""Executes the window with one change."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from steadyrun.incidents import state as training
from steadyrun.incidents.hunt.precision import as_float32
from steadyrun.incidents.outcome import Replay
from steadyrun.incidents.packing import Packed
from steadyrun.incidents.session import Session
from steadyrun.incidents.why.factors import Factor
from steadyrun.incidents.why.judging import Judge, Trial
from steadyrun.incidents.why.table import Row
from steadyrun.records import Series
from steadyrun.store.reader import open_run

_BEFORE = 10  # steps before the bad loss in which the change that made it is looked for
_AFTER = 15  # steps after it that are executed
_LONG = {"D2.4": 55}  # a loss that stays up needs more of them
_EARLIER = 15  # steps by which the batch is moved for "the same batch at another step"
_EVERY = {"activations": 0, "blocks": 0, "moments": 1, "spectral": 0, "dead_units": 0, "attention": 0, "system": 0}


@dataclass(frozen=True)
class Plan:
    """Which steps: the first bad loss, the first that is changed, the last, and an earlier one (None: not kept)."""

    moment: int
    start: int
    until: int
    earlier: int | None


def plan(result: Replay, judge: Judge) -> Plan:
    """Changes begin at the first violent change shortly before the bad loss, else at the step before it."""
    incident, violent = result.incident, result.violent
    moment = result.first_bad if result.first_bad is not None else judge.moment
    close = violent is not None and moment - _BEFORE <= violent.step <= moment
    start = violent.step if close and violent is not None else max(incident.first_step, moment - 1)
    until = min(incident.steps[-1], moment + _LONG.get(judge.code, _AFTER))
    earlier = max(start - _EARLIER, incident.first_step) if start > incident.first_step else None
    return Plan(moment, start, until, earlier)


class Experiments:
    """A session with the states it needs in memory: before the first changed step, the bad loss, an earlier step."""

    def __init__(self, session: Session, judge: Judge, steps: Plan) -> None:
        self.session, self._judge = session, judge
        self.moment, self.start, self.until, self.earlier = steps.moment, steps.start, steps.until, steps.earlier
        self._states = self._remembered()

    def run(self, factor: Factor) -> Row:
        """One row of the table."""
        if factor.place == "elsewhere":
            return self._batch_elsewhere(factor)
        batches = {} if factor.change is not None or not factor.place else self._other_batches(factor)
        start = min(batches, default=self.start)
        trial = self.execute(factor, start, batches)
        note = trial.raised
        return Row(
            factor.name,
            factor.group,
            factor.words,
            trial.peak_loss,
            trial.peak_grad_norm,
            None if not trial.losses else self._judge.gone(trial, start),
            note,
        )

    def execute(self, factor: Factor | None, start: int, batches: dict[int, Any]) -> Trial:
        """The steps from `start` on, recorded in a folder of their own."""
        import steadyrun

        session = self.session
        self._restore(start)
        folder = Path(tempfile.mkdtemp(prefix="steadyrun-why-"))
        losses: dict[int, float] = {}
        raised = ""
        try:
            with ExitStack() as stack:
                change = None if factor is None else factor.change
                stack.enter_context(nullcontext() if change is None else change(session, start))
                run = stack.enter_context(steadyrun.record(folder / "run", every=_EVERY, first_step=start))
                task = session.task
                run.watch(task.model, task.optimizer, scheduler=task.scheduler, scaler=task.scaler, monitor=False)
                wide = factor is not None and factor.name == "fp32"
                for step in range(start, self.until + 1):
                    batch = batches.get(step, session.incident.batch(step, session.device))
                    loss = session.execute(step, as_float32(batch) if wide else batch)
                    losses[step] = float(loss)
                    run.step(loss, step=step)
                finite = _finite(session)
        except Exception as problem:
            raised, finite = f"{type(problem).__name__}: {problem}".splitlines()[0], False
        series = _all_series(folder / "run")
        shutil.rmtree(folder, ignore_errors=True)
        return Trial(losses, finite, raised, series)

    # -- batches -----------------------------------------------------------------------------------

    def _other_batches(self, factor: Factor) -> dict[int, Any]:
        """Another batch at the step of the bad loss, or (place "before") at the first changed step."""
        at = self.start if factor.place == "before" else self.moment
        incident = self.session.incident
        donors = [step for step in (at + 1, at - 2, at - 1, at + 2) if step in incident.steps]
        return {at: incident.batch(donors[0], self.session.device)} if donors else {}

    def _batch_elsewhere(self, factor: Factor) -> Row:
        """Whether the batch does it from another state, too: `gone` is False where it does."""
        if self.earlier is None:
            return Row(
                factor.name, factor.group, factor.words, float("nan"), float("nan"), None, "no earlier step is kept"
            )
        self._restore(self.earlier)
        session = self.session
        batch = session.incident.batch(self.moment, session.device)
        try:
            loss = float(session.execute(self.earlier, batch))
        except Exception as problem:
            return Row(factor.name, factor.group, factor.words, float("nan"), float("nan"), False, str(problem))
        shows = self._judge.shows(loss) or not _finite(session)
        return Row(factor.name, factor.group, factor.words, loss, float("nan"), not shows, f"at step {self.earlier}")

    # -- states ------------------------------------------------------------------------------------

    def _remembered(self) -> dict[int, Packed]:
        session = self.session
        wanted = {self.start, self.moment, self.earlier} - {None}
        states: dict[int, Packed] = {}
        session.rewind()
        for step in range(session.incident.first_step, self.moment + 1):
            if step in wanted:
                states[step] = training.remember(session.objects)
            if step < self.moment:
                session.execute(step)
        return states

    def _restore(self, step: int) -> None:
        state = self._states[step]
        training.restore(self.session.objects, state.tree, state.tensors)


def _finite(session: Session) -> bool:
    norms = torch._foreach_norm([parameter.detach() for parameter in session.task.model.parameters()])
    return all(bool(torch.isfinite(norm)) for norm in norms)


def _all_series(path: Path) -> dict[str, Series]:
    view = open_run(path).as_of_now()
    return {name: view.series(name) for name in view.names()}
