"""Which moment of a run a post-mortem is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steadyrun.errors import UsageError
from steadyrun.questions.dynamics.run_spikes import find_spikes
from steadyrun.questions.form import NOTE, Limits
from steadyrun.report.report import Report
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.spikes import Spike
from steadyrun.store import incident_files
from steadyrun.store.incident_files import IncidentFiles, text
from steadyrun.trees.walker import Asked

NON_FINITE, SPIKE, FAULT, CHOSEN = "non-finite", "spike", "fault", "chosen"
_NEAR = 10  # steps around a spike that still belong to it
_NOISE = frozenset({"noise", "not-applicable", "missing"})


@dataclass(frozen=True)
class Moment:
    """`step` names the document; trouble `began` there or before, and was worst at `peak`."""

    step: int
    kind: str
    why: str
    began: int
    peak: int
    spike: Spike | None = None
    code: str = ""  # the question whose fault it is, where it was taken from the walk

    @property
    def non_finite(self) -> bool:
        return self.kind == NON_FINITE

    @property
    def raised(self) -> bool:
        """Whether the step ended with an exception, so that it has no loss."""
        return self.kind in {"exception", "out-of-memory"}


def choose(run: Path, signals: Signals, report: Report, step: int | None) -> tuple[Moment, IncidentFiles]:
    """The moment at `step`; without one the gravest incident, or else what the walk found. An error where nothing is.

    A spike within the noise of a healthy run is not worth a post-mortem unless it is asked for.
    """
    if step is not None:
        return _at(run, signals, report, step)
    gravest = incident_files.gravest(run)
    if gravest is not None and not _only_noise(gravest, report):
        return _of_incident(gravest, signals, report), gravest
    moment = _of_walk(signals, report)
    if moment is None:
        raise UsageError(
            f"nothing to write a post-mortem about: {run} has no incident, no fault and no spike beyond its noise "
            f"(verdict: {report.verdict}); choose a moment with --step N"
        )
    folder = incident_files.captured(run).get(moment.step)
    return moment, IncidentFiles() if folder is None else incident_files.read(folder)


def _at(run: Path, signals: Signals, report: Report, step: int) -> tuple[Moment, IncidentFiles]:
    folder = incident_files.captured(run).get(step)
    if folder is not None and (captured := incident_files.read(folder)).incident:
        return _of_incident(captured, signals, report), captured
    if report.last_step is None or not 0 <= step <= report.last_step:
        raise UsageError(f"{run} has no step {step}; its last step is {report.last_step}")
    return _named(step, CHOSEN, f"step {step} was asked for", signals, report), IncidentFiles()


def _only_noise(files: IncidentFiles, report: Report) -> bool:
    """Whether an incident is a mere spike of a run in which spikes are noise."""
    cause = next((asked for asked in report.walk.path if asked.question.code == "D2.3"), None)
    noise = cause is not None and cause.answer.outcome in _NOISE
    return report.leaf is None and noise and text(files.incident, "kind") == SPIKE


def _of_incident(files: IncidentFiles, signals: Signals, report: Report) -> Moment:
    step = incident_files.to_step(files.incident.get("step"))
    assert files.folder is not None
    at = int(files.folder.name.partition("-")[2]) if step is None else step
    return _named(at, text(files.incident, "kind") or CHOSEN, text(files.incident, "why"), signals, report)


def _of_walk(signals: Signals, report: Report) -> Moment | None:
    if signals.first_nonfinite is not None:
        step, name = signals.first_nonfinite
        return _named(step, NON_FINITE, f"{name} is not finite at step {step}", signals, report)
    if (leaf := report.leaf) is not None:
        return _named(leaf.answer.step or 0, FAULT, leaf.answer.message, signals, report, leaf)
    cause = next((asked for asked in report.walk.path if asked.question.code == "D2.3"), None)
    if cause is None or cause.answer.kind != NOTE or cause.answer.outcome in _NOISE or cause.answer.step is None:
        return None
    return _named(cause.answer.step, SPIKE, cause.answer.message, signals, report)


def _named(step: int, kind: str, why: str, signals: Signals, report: Report, of: Asked | None = None) -> Moment:
    first_bad = signals.first_nonfinite
    if first_bad is not None and (kind == NON_FINITE or step >= first_bad[0]):
        began = min(first_bad[0], step)
        return Moment(step, NON_FINITE if kind in {CHOSEN, FAULT, SPIKE} else kind, why, began, step)
    spike = _spike_at(signals, step, report.walk.limits)
    code = of.question.code if of is not None else _code_of(why, report)
    if spike is None:
        return Moment(step, kind, why, step, step, code=code)
    kind = SPIKE if kind == CHOSEN else kind
    return Moment(step, kind, why, min(step, spike.start_step), spike.peak_step, spike, code)


def _code_of(why: str, report: Report) -> str:
    """The question that an incident of the monitor names, where the walk found the same fault."""
    codes = [asked.question.code for asked in report.walk.path if asked.answer.kind == FAULT]
    return next((code for code in codes if why.startswith(code)), "")


def _spike_at(signals: Signals, step: int, limit: Limits) -> Spike | None:
    """The spike that a step belongs to; of several the highest."""
    try:
        spikes = find_spikes(signals, limit)
    except MissingSignal:
        return None
    near = [spike for spike in spikes if spike.start_step - _NEAR <= step <= spike.peak_step + _NEAR]
    return max(near, key=lambda spike: spike.sigmas, default=None)
