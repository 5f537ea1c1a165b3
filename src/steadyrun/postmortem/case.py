"""The case of a post-mortem: the incident it is about, and all data it is written from, read once."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from steadyrun.errors import SteadyrunError, UsageError
from steadyrun.questions.dynamics.run_spikes import find_spikes
from steadyrun.questions.form import FAULT, NOTE, SUSPECT, Limits
from steadyrun.report import limits
from steadyrun.report.report import Report, examined
from steadyrun.report.trial_answers import whole_trial
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals, signals_of
from steadyrun.signals.spikes import Spike
from steadyrun.store import incident_files, joint_incidents
from steadyrun.store.incident_files import IncidentFiles, entries, part, text, to_step
from steadyrun.store.reader import open_run
from steadyrun.store.trial_record import TrialRecord, trial_record
from steadyrun.trees.walker import Asked

# The incident that a post-mortem is about.


NON_FINITE, SPIKE, OF_A_FAULT, CHOSEN = "non-finite", "spike", "fault", "chosen"
_NEAR = 10  # steps around a spike that still belong to it
_NOISE = frozenset({"noise", "not-applicable", "missing"})


@dataclass(frozen=True)
class Moment:
    """`step` names the document; the incident `began` there or before, and was worst at `peak`."""

    step: int
    kind: str
    why: str
    began: int
    peak: int
    spike: Spike | None = None
    code: str = ""  # the question that found the fault, if it comes from the decision trees

    @property
    def non_finite(self) -> bool:
        return self.kind == NON_FINITE

    @property
    def raised(self) -> bool:
        """Whether the step raised an exception, so that it has no loss."""
        return self.kind in {"exception", "out-of-memory"}


def choose(
    run: Path, signals: Signals, report: Report, step: int | None, trial: TrialRecord | None = None
) -> tuple[Moment, IncidentFiles]:
    """The incident at `step`; without it the most severe incident, or a finding of the decision trees or of a trial.

    Raise a UsageError if there is none. A spike within the noise of a healthy run counts only if `step` names it.
    """
    if step is not None:
        return _at(run, signals, report, step)
    gravest = joint_incidents.gravest(run)
    if gravest is not None and not _only_noise(gravest, report):
        return _of_incident(gravest, signals, report), gravest
    moment = _of_walk(signals, report) or _of_trial(trial, signals, report)
    if moment is None:
        raise UsageError(
            f"there is nothing to write a post-mortem about: {run} has no incident, no fault and no spike beyond its "
            f"noise (verdict: {report.verdict}). Choose a step with --step N. If the run learns badly from the first "
            f"step, test one change at a time: steadyrun {whole_trial(str(run), report.factory)}"
        )
    folder = joint_incidents.captured(run).get(moment.step)
    return moment, IncidentFiles() if folder is None else incident_files.read(folder)


def _at(run: Path, signals: Signals, report: Report, step: int) -> tuple[Moment, IncidentFiles]:
    folder = joint_incidents.captured(run).get(step)
    if folder is not None and (captured := incident_files.read(folder)).incident:
        return _of_incident(captured, signals, report), captured
    if report.last_step is None or not 0 <= step <= report.last_step:
        raise UsageError(f"{run} has no step {step}; its last step is {report.last_step}")
    return _named(step, CHOSEN, f"step {step} was chosen with --step", signals, report), IncidentFiles()


def _only_noise(files: IncidentFiles, report: Report) -> bool:
    """Whether an incident is only a spike within the noise of the run."""
    cause = next((asked for asked in report.walk.path if asked.question.code == "D2.3"), None)
    noise = cause is not None and cause.answer.outcome in _NOISE
    return report.leaf is None and noise and text(files.incident, "kind") == SPIKE


def _of_incident(files: IncidentFiles, signals: Signals, report: Report) -> Moment:
    step = incident_files.to_step(files.incident.get("step"))
    assert files.folder is not None
    at = int(joint_incidents.step_folder(files.folder).name.partition("-")[2]) if step is None else step
    return _named(at, text(files.incident, "kind") or CHOSEN, text(files.incident, "why"), signals, report)


def _of_walk(signals: Signals, report: Report) -> Moment | None:
    if signals.first_nonfinite is not None:
        step, name = signals.first_nonfinite
        return _named(step, NON_FINITE, f"{name} is not finite at step {step}", signals, report)
    if (leaf := report.leaf) is not None:
        return _named(leaf.answer.step or 0, OF_A_FAULT, leaf.answer.message, signals, report, leaf)
    cause = next((asked for asked in report.walk.path if asked.question.code == "D2.3"), None)
    if cause is None or cause.answer.kind != NOTE or cause.answer.outcome in _NOISE or cause.answer.step is None:
        return None
    return _named(cause.answer.step, SPIKE, cause.answer.message, signals, report)


def _of_trial(trial: TrialRecord | None, signals: Signals, report: Report) -> Moment | None:
    """The step at which the twins start: a fault found by a trial exists from there."""
    if trial is None or not trial.found_fault:
        return None
    moment = _named(trial.first, OF_A_FAULT, trial.message, signals, report)
    return replace(moment, code=trial.code)


def _named(step: int, kind: str, why: str, signals: Signals, report: Report, of: Asked | None = None) -> Moment:
    first_bad = signals.first_nonfinite
    if first_bad is not None and (kind == NON_FINITE or step >= first_bad[0]):
        began = min(first_bad[0], step)
        return Moment(step, NON_FINITE if kind in {CHOSEN, OF_A_FAULT, SPIKE} else kind, why, began, step)
    spike = _spike_at(signals, step, report.walk.limits)
    code = of.question.code if of is not None else _code_of(why, report)
    if spike is None:
        return Moment(step, kind, why, step, step, code=code)
    kind = SPIKE if kind == CHOSEN else kind
    return Moment(step, kind, why, min(step, spike.start_step), spike.peak_step, spike, code)


def _code_of(why: str, report: Report) -> str:
    """The question that the monitor named in an incident, if the check found the same fault."""
    codes = [asked.question.code for asked in report.walk.path if asked.answer.kind == OF_A_FAULT]
    return next((code for code in codes if why.startswith(code)), "")


def _spike_at(signals: Signals, step: int, limit: Limits) -> Spike | None:
    """The spike that a step belongs to; the highest of several."""
    try:
        spikes = find_spikes(signals, limit)
    except MissingSignal:
        return None
    near = [spike for spike in spikes if spike.start_step - _NEAR <= step <= spike.peak_step + _NEAR]
    return max(near, key=lambda spike: spike.sigmas, default=None)


# All data that a post-mortem is written from, read once.


SPAN = 50  # steps of the EMA before the incident, and after its peak
WINDOW = 100  # steps that count as recent
_NEAR_FINDING = 10  # steps around the incident within which a finding belongs to it


@dataclass(frozen=True)
class Case:
    """One incident of a run: the recording, the findings of check, and the proofs of replay, experiments and trial."""

    run: Path
    signals: Signals
    report: Report
    moment: Moment
    proofs: IncidentFiles
    replayed: Signals | None  # measurements of every step of the window, if it was replayed
    trial: TrialRecord | None = None

    @property
    def name(self) -> str:
        return self.run.resolve().name

    @property
    def date(self) -> str:
        """The date at which the incident's step was recorded; "" if unknown."""
        try:
            series = self.signals.raw("loss")
        except MissingSignal:
            return ""
        times = series.times[series.steps <= self.moment.step]
        latest = float(times[-1]) if len(times) else 0.0
        known = np.isfinite(latest) and 0 < latest < 4e9
        return datetime.fromtimestamp(latest, UTC).date().isoformat() if known else ""

    @property
    def batch_is_of_the_beginning(self) -> bool:
        """Whether the captured batch is that of the step where the incident began, not a later one."""
        return to_step(self.proofs.batch.get("step")) in {None, self.moment.began}

    @property
    def has_tokens(self) -> bool:
        """Whether the data are tokens: the model has an embedding, or a tokenizer found tokens in the batch."""
        if "unusual_tokens" in self.proofs.batch or "token_losses" in self.proofs.batch:
            return True
        model = self.signals.about("model")
        modules = entries(model, "modules")
        embeds = any("Embed" in text(module, "class") for module in modules)
        return self.signals.has("tokens") and (embeds or not modules or bool(model.get("modules_left_out")))

    @property
    def trouble(self) -> int:
        """The step that broke according to a replay; else the incident's own step."""
        first_bad = to_step(self.proofs.replay.get("first_bad")) if self.proofs.reproduced else None
        return self.moment.step if first_bad is None else first_bad

    @property
    def clean_until(self) -> int:
        """The step before which all was well: weights may break long before a loss is infinite."""
        violent = to_step(part(self.proofs.replay, "violent").get("step")) if self.proofs.reproduced else None
        return self.moment.began if violent is None else min(violent, self.moment.began)

    @property
    def faults(self) -> list[Asked]:
        return [asked for asked in self.report.walk.path if asked.answer.kind == FAULT]

    @property
    def findings(self) -> list[Asked]:
        """Faults and suspects."""
        return [asked for asked in self.report.walk.path if asked.answer.kind in (FAULT, SUSPECT)]

    def answer(self, code: str) -> Asked | None:
        """The answer to one question."""
        return next((asked for asked in self.report.walk.path if asked.question.code == code), None)

    def concerns(self, asked: Asked) -> bool:
        """Whether a finding is about this incident: the incident names it, or it is within ten steps."""
        step = asked.answer.step
        if asked.question.code == self.moment.code:
            return True
        return step is not None and self.moment.began - _NEAR_FINDING <= step <= self.moment.peak + _NEAR_FINDING


def open_case(run: str | os.PathLike[str], step: int | None = None) -> Case:
    """Read a run and choose the incident; raise a UsageError if there is none.

    The working directory's `steadyrun.toml` applies, as for `steadyrun check`.
    """
    path = Path(run).expanduser()
    signals, report = examined(path, limits.changes({}, Path.cwd()), go_on=True)
    trial = trial_record(path)
    moment, proofs = choose(path, signals, report, step, trial)
    return Case(path, signals, report, moment, proofs, _replayed(proofs), trial)


def _replayed(proofs: IncidentFiles) -> Signals | None:
    if proofs.measurements is None or not proofs.reproduced:
        return None
    try:
        return signals_of(open_run(proofs.measurements).as_of_now())
    except (SteadyrunError, OSError):
        return None
