"""Run the window with one change."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from steadyrun.program import snapshot as training
from steadyrun.program.model_parts import clean
from steadyrun.program.packing import Packed
from steadyrun.program.torch_compat import foreach_norm
from steadyrun.records import Series
from steadyrun.replay.bad_examples import alone, rows_apart
from steadyrun.replay.experiments.factors import Factor
from steadyrun.replay.experiments.judge import IncidentJudge, Trial
from steadyrun.replay.experiments.verdict import DATA, NEAR, FactorRow
from steadyrun.replay.hunt.culprit import Example
from steadyrun.replay.hunt.float32_rerun import as_float32
from steadyrun.replay.result import Replay
from steadyrun.replay.session import Session
from steadyrun.store.reader import open_run

_AFTER = 15  # steps to run after the bad loss
_LONG = {"D2.4": 55}  # a loss that stays high needs more of them
_EARLIER = 15  # steps by which "the same batch at an earlier step" moves the batch
_FARTHEST = 400  # steps before a non-finite loss at which a change may begin: keeps the replay short
_EVERY = {"activations": 0, "blocks": 0, "moments": 1, "spectral": 0, "dead_units": 0, "attention": 0, "system": 0}


@dataclass(frozen=True)
class WindowPlan:
    """The steps of the experiments: first bad loss, first change, last, and an earlier one (None: not captured).

    `starts` are the steps from which a change of the updates is tested, the latest first. Such a change reaches the bad
    step only through its weights, if its loss is bad (`in_loss`) or its gradient (`in_weights` means both).
    """

    moment: int
    start: int
    until: int
    earlier: int | None
    starts: tuple[int, ...]
    in_loss: bool
    in_weights: bool

    def through_weights(self, factor: Factor) -> bool:
        """Whether a change reaches the bad step only through earlier updates."""
        return factor.by_updates and (self.in_loss or (self.in_weights and not factor.in_backward))


def plan(result: Replay, judge: IncidentJudge) -> WindowPlan:
    """Changes begin at the first violent update shortly before the bad loss, else at the previous step."""
    incident, violent = result.incident, result.violent
    moment = result.first_bad if result.first_bad is not None else judge.moment
    close = violent is not None and moment - NEAR <= violent.step <= moment
    start = violent.step if close and violent is not None else max(incident.first_step, moment - 1)
    until = min(incident.steps[-1], moment + _LONG.get(judge.code, _AFTER))
    earlier = max(start - _EARLIER, incident.first_step) if start > incident.first_step else None
    in_loss = judge.spike is not None
    if result.first_bad is not None:
        in_loss = not math.isfinite(result.losses.get(moment, math.nan))  # none: the step raised
    in_weights = in_loss or (result.culprit is not None and result.culprit.stage != "update")
    near = min(start, moment - in_weights)
    farthest = max(incident.first_step, moment - _FARTHEST)
    starts = _starts(near, near if earlier is None else earlier, farthest, moment)
    usable = [step for step in starts if step >= incident.first_step]
    tried = tuple(usable if result.first_bad is not None else usable[:1])
    return WindowPlan(moment, start, until, earlier, tried, in_loss, in_weights)


def _starts(near: int, earlier: int, farthest: int, moment: int) -> list[int]:
    """Start steps at growing distances, back to the checkpoint or the allowed limit."""
    between = moment - round(math.sqrt((moment - earlier) * (moment - farthest)))
    return sorted({min(near, start) for start in (near, earlier, between, farthest)}, reverse=True)


class ExperimentRunner:
    """A session with saved states: before the first changed steps, the bad loss and an earlier step."""

    def __init__(self, session: Session, judge: IncidentJudge, steps: WindowPlan) -> None:
        self.session, self._judge, self._steps = session, judge, steps
        self.moment, self.start, self.until, self.earlier = steps.moment, steps.start, steps.until, steps.earlier
        self.on_start: Callable[[Factor, int], None] = lambda *_: None  # called before a factor is tested from a step
        self._states = self._remembered()

    def run(self, factor: Factor) -> FactorRow:
        """One row of the table."""
        if factor.softens or self._steps.through_weights(factor):
            return self._change_of_updates(factor)
        if factor.batch_change == "elsewhere":
            return self._batch_elsewhere(factor)
        batches = self._other_batches(factor) if factor.batch_change else {}
        if factor.batch_change and not batches:
            return untested(factor, "no other batch was captured")
        start = min(batches, default=self.start)
        return self._row(factor, self.execute(factor, start, batches), (start,))

    def _change_of_updates(self, factor: Factor) -> FactorRow:
        """Test a change from the latest start that reaches the bad step; a softening change also from earlier starts.

        Stop at the first start that removes the incident.
        """
        row = untested(factor, f"it does not affect any update before step {self.moment}")
        tried: tuple[int, ...] = ()
        for start in self._steps.starts:
            self.on_start(factor, start)
            trial = self.execute(factor, start, {})
            if not trial.acted:
                continue
            new_row = self._row(factor, trial, (*tried, start))
            if new_row.gone is not None or not tried:
                row = new_row
            if new_row.gone is not None:
                tried = new_row.starts
            if new_row.gone or (tried and not factor.softens):
                break
        return row

    def _row(self, factor: Factor, trial: Trial, starts: tuple[int, ...]) -> FactorRow:
        gone = self._judge.gone(trial, starts[-1])
        note = f"not tested: it raised {trial.raised}" if gone is None else trial.raised
        before = tuple(self.moment - start for start in starts)
        peaks = trial.peak_loss, trial.peak_grad_norm
        return FactorRow(factor.name, factor.group, factor.words, *peaks, gone, note, starts, before)

    def execute(self, factor: Factor | None, start: int, batches: dict[int, Any]) -> Trial:
        """Run the steps from `start`, recorded in a separate folder."""
        session = self.session
        self._restore(start)
        folder = Path(tempfile.mkdtemp(prefix="steadyrun-why-"))
        losses: dict[int, float] = {}
        raised, acted = "", True
        try:
            with ExitStack() as stack:
                change = None if factor is None else factor.change
                stack.enter_context(nullcontext() if change is None else change(session, start))
                run = stack.enter_context(session.record(folder / "run", every=_EVERY, first_step=start, rank=0))
                task = session.task
                run.watch(task.model, task.optimizer, scheduler=task.scheduler, scaler=task.scaler, monitor=False)
                wide = factor is not None and factor.name == "fp32"
                for step in range(start, self.until + 1):
                    if step == self.moment and factor is not None and self._steps.through_weights(factor):
                        acted = not self._as_without_change()
                    if not acted:
                        break
                    batch = batches.get(step, session.incident.batch(step, session.device))
                    loss = session.execute(step, as_float32(batch) if wide else batch)
                    losses[step] = float(loss)
                    run.step(loss, step=step)
                    if not math.isfinite(losses[step]):
                        break
                finite = _finite(session)
        except Exception as problem:
            raised, finite = f"{type(problem).__name__}: {problem}".splitlines()[0], _finite(session)
        series = _all_series(folder / "run")
        shutil.rmtree(folder, ignore_errors=True)
        return Trial(losses, finite, raised, series, acted)

    # -- batches -----------------------------------------------------------------------------------

    def _other_batches(self, factor: Factor) -> dict[int, Any]:
        """Another batch at the step of the bad loss, or (`batch_change` "before") at the first changed step."""
        at = self.start if factor.batch_change == "before" else self.moment
        incident = self.session.incident
        near = (at + 1, at - 2, at - 1, at + 2)
        donors = [step for step in near if step in incident.steps and step != self.moment]
        return {at: incident.batch(donors[0], self.session.device)} if donors else {}

    def _batch_elsewhere(self, factor: Factor) -> FactorRow:
        """Whether the batch also causes the incident from another state: then `gone` is False."""
        if self.earlier is None:
            return untested(factor, "no earlier step was captured")
        self._restore(self.earlier)
        session, loss, raised = self.session, math.nan, ""
        batch = session.incident.batch(self.moment, session.device)
        try:
            loss = float(session.execute(self.earlier, batch))
        except Exception as problem:
            raised = f"{type(problem).__name__}: {problem}".splitlines()[0]
        shows = self._judge.raises(raised) if raised else self._judge.shows(loss) or not _finite(session)
        if shows is None:
            return untested(factor, f"at step {self.earlier} it raised {raised}")
        at = (self.earlier,), (self.moment - self.earlier,)
        note = f"at step {self.earlier}"
        return FactorRow(factor.name, factor.group, factor.words, loss, math.nan, not shows, note, *at)

    def examples_alone(self) -> tuple[Example, ...]:
        """The examples of the bad batch that cause the incident alone, more than any example of another batch."""
        incident, device = self.session.incident, self.session.device
        other = list(self._other_batches(Factor("", DATA, "", batch_change="other")).values())
        usual = [self._alone(part)[0] for batch in other for part in rows_apart(batch)]
        most = max(filter(math.isfinite, usual), default=-math.inf)

        def shows(part: Any) -> bool:
            loss, shown = self._alone(part)
            return shown and not loss <= most

        return alone(incident.batch(self.moment, device), shows)

    def _alone(self, part: Any) -> tuple[float, bool]:
        """The loss of the bad step with a part of a batch (NaN: not comparable), and whether it is bad."""
        self._restore(self.moment)
        try:
            loss = float(self.session.execute(self.moment, part))
        except Exception as problem:
            return math.nan, self._judge.raises(type(problem).__name__) is True
        return (loss, self._judge.shows(loss)) if _finite(self.session) else (math.nan, True)

    # -- states ------------------------------------------------------------------------------------

    def _remembered(self) -> dict[int, Packed]:
        session = self.session
        wanted = {self.start, self.moment, self.earlier, *self._steps.starts} - {None, session.incident.first_step}
        states: dict[int, Packed] = {}
        session.rewind()
        for step in range(session.incident.first_step, self.moment + 1):
            if step in wanted:
                states[step] = training.remember(session.objects)
            if step < self.moment:
                session.execute(step)
        return states

    def _restore(self, step: int) -> None:
        if step == self.session.incident.first_step:
            self.session.rewind()
            return
        state = self._states[step]
        training.restore(self.session.objects, state.tree, state.tensors)

    def _as_without_change(self) -> bool:
        """Whether the weights equal those of the bad step: then the change has not reached it."""
        tensors = self._states[self.moment].tensors if self.moment in self._states else self.session.incident.state[1]
        for name, parameter in self.session.task.model.named_parameters():
            before = tensors.get(f"parameters.{clean(name)}")
            if before is None or not torch.equal(parameter.detach().cpu(), before):
                return False
        return True


def untested(factor: Factor, why: str) -> FactorRow:
    """The row of a change that could not be tested."""
    return FactorRow(factor.name, factor.group, factor.words, math.nan, math.nan, None, f"not tested: {why}")


def _finite(session: Session) -> bool:
    norms = foreach_norm([parameter.detach() for parameter in session.task.model.parameters()])
    return all(bool(torch.isfinite(norm)) for norm in norms)


def _all_series(path: Path) -> dict[str, Series]:
    view = open_run(path).as_of_now()
    return {name: view.series(name) for name in view.names()}
