"""Everything a post-mortem is written from, read once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from steadyrun.errors import SteadyrunError
from steadyrun.postmortem.incident_moment import Moment, choose
from steadyrun.questions.form import FAULT
from steadyrun.report import limits
from steadyrun.report.report import Report, examined
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals, signals_of
from steadyrun.store.incident_files import IncidentFiles, entries, part, text, to_step
from steadyrun.store.reader import open_run
from steadyrun.trees.walker import Asked

SPAN = 50  # steps of the moving average before the incident, and after its peak: the template's
WINDOW = 100  # steps of what is called recent
_NEAR = 10  # steps around the incident in which a finding is about it


@dataclass(frozen=True)
class Case:
    """One incident of one run: what was recorded, what the walk found, what a replay and experiments proved."""

    run: Path
    signals: Signals
    report: Report
    moment: Moment
    proofs: IncidentFiles
    replayed: Signals | None  # every step of the window measured, where it was executed again

    @property
    def name(self) -> str:
        return self.run.resolve().name

    @property
    def date(self) -> str:
        """The day of the incident, as its step was recorded; "" where that is not known."""
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
        """Whether the batch that was kept is the one with which trouble began, and not a later one."""
        return to_step(self.proofs.batch.get("step")) in {None, self.moment.began}

    @property
    def has_tokens(self) -> bool:
        """Whether the data are tokens: an embedding looks them up, or a tokenizer found them in the batch."""
        if "unusual_tokens" in self.proofs.batch or "token_losses" in self.proofs.batch:
            return True
        model = self.signals.about("model")
        modules = entries(model, "modules")
        embeds = any("Embed" in text(module, "class") for module in modules)
        return self.signals.has("tokens") and (embeds or not modules or bool(model.get("modules_left_out")))

    @property
    def trouble(self) -> int:
        """The step that broke, where a replay found it; else the incident's own."""
        first_bad = to_step(self.proofs.replay.get("first_bad")) if self.proofs.reproduced else None
        return self.moment.step if first_bad is None else first_bad

    @property
    def clean_until(self) -> int:
        """The step before which nothing had gone wrong: weights may be torn long before a loss is infinite."""
        violent = to_step(part(self.proofs.replay, "violent").get("step")) if self.proofs.reproduced else None
        return self.moment.began if violent is None else min(violent, self.moment.began)

    @property
    def faults(self) -> list[Asked]:
        return [asked for asked in self.report.walk.path if asked.answer.kind == FAULT]

    def answer(self, code: str) -> Asked | None:
        """What the walk answered to one question."""
        return next((asked for asked in self.report.walk.path if asked.question.code == code), None)

    def concerns(self, asked: Asked) -> bool:
        """Whether a finding is about this incident: named by it, or within ten steps of it."""
        step = asked.answer.step
        if asked.question.code == self.moment.code:
            return True
        return step is not None and self.moment.began - _NEAR <= step <= self.moment.peak + _NEAR


def open_case(run: str | os.PathLike[str], step: int | None = None) -> Case:
    """Read a run and choose the moment; an error where there is nothing to write about.

    Thresholds that the working directory's `steadyrun.toml` changes count, as for `steadyrun check`.
    """
    path = Path(run).expanduser()
    signals, report = examined(path, limits.changes({}, Path.cwd()), go_on=True)
    moment, proofs = choose(path, signals, report, step)
    return Case(path, signals, report, moment, proofs, _replayed(proofs))


def _replayed(proofs: IncidentFiles) -> Signals | None:
    if proofs.measurements is None or not proofs.reproduced:
        return None
    try:
        return signals_of(open_run(proofs.measurements).as_of_now())
    except (SteadyrunError, OSError):
        return None
