"""The dashboard of a run as data: the verdict, the answers, the findings and the seven panels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from steadyrun.panels import (
    charts,
    p1_loss,
    p2_rate,
    p3_gradient,
    p4_activations,
    p5_spectral,
    p6_capacity,
    p7_classes,
    trial_plots,
)
from steadyrun.panels.panel import Answered, Board, Glance, Happened, PanelFinding
from steadyrun.panels.rank_lines import step_time_chart
from steadyrun.panels.rank_table import rank_section
from steadyrun.questions.form import GRADES
from steadyrun.renamed_arguments import renamed
from steadyrun.report import phrases
from steadyrun.report.incidents import IncidentCard
from steadyrun.report.report import Report, examined
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.verb_classes import are_named
from steadyrun.store.reader import RunReader, run_folder
from steadyrun.store.trial_record import TrialRecord, trial_record
from steadyrun.trees.walker import Asked, Changes

if TYPE_CHECKING:
    from steadyrun.panels.notebook import Dashboard

BUILDERS = (p1_loss, p2_rate, p3_gradient, p4_activations, p5_spectral, p6_capacity, p7_classes)

READING = (
    Glance((1,), "Does the loss fall? If not, look at panels 2 and 3."),
    Glance((3,), "Do the gradients explode or vanish? Then check initialisation and numerics."),
    Glance((2,), "Does the learning rate follow its schedule? If not, check warmup and scheduler.step()."),
    Glance((1,), "Does validation follow training? If not, check for overfitting, a broken mask or a leak."),
    Glance((4, 5, 6), "Are the layers balanced and alive? If not, check their initialisation."),
)
"""The reading order of the panels for a failed run."""
_CLASSES = Glance((7,), "Does the loss of every class fall? If not, the class is rare, hard or mislabelled.")
_FORMS = Glance((7,), "Does it learn the pattern? Irregular forms that fall faster than regular ones suggest a leak.")


def board_of(run: str | os.PathLike[str], changes: Changes | None = None) -> Board:
    """The dashboard of a run directory. All questions are asked, also after the first fault, for every panel."""
    signals, report = examined(run, changes or {}, go_on=True)
    return build(signals, report, trial_record(run_folder(run)))


def build(signals: Signals, report: Report, trial: TrialRecord | None = None) -> Board:
    """The dashboard from signals and report; live views call this repeatedly."""
    return Board(
        phrases.one_line(report.run),
        phrases.standing(report),
        report.verdict,
        phrases.verdict(report),
        tuple(_findings(report)),
        tuple(_walk(report)),
        tuple(phrases.remedies(report)),
        tuple(phrases.one_line(line) for line in phrases.bounded(list(report.damage))),
        tuple(panel.build(signals, report) for panel in BUILDERS),
        (*READING, _FORMS if are_named(signals) else _CLASSES),
        tuple(_happened(incident, report) for incident in report.incidents),
        tuple(phrases.announced(report)),
        tuple(phrases.signs(report, codes=False)),
        None if trial is None else trial_plots.section(trial, signals),
        (*step_time_chart(signals, report), *charts.charts(signals)),
        charts.left_out(signals),
        charts.x_axes(signals),
        rank_section(signals, report),
        report.learned_text,
    )


def _happened(incident: IncidentCard, report: Report) -> Happened:
    return Happened(
        incident.step,
        phrases.one_line(incident.kind),
        phrases.one_line(incident.why),
        "Not replayed yet:" if incident.command(report.run) else phrases.one_line(incident.found(report.run)),
        incident.proved,
        phrases.one_line(incident.command(report.run)),
        incident.postmortem,
    )


def _findings(report: Report) -> list[PanelFinding]:
    """The headline, then other faults, suspects and notes, each in the order of the questions."""
    first = [] if report.headline is None else [report.headline]
    rest = [asked for asked in report.walk.path if asked is not report.headline]
    ordered = [*first, *(asked for kind in GRADES for asked in rest if asked.answer.kind == kind)]
    return [_finding(asked, report) for asked in ordered]


def _finding(asked: Asked, report: Report) -> PanelFinding:
    return PanelFinding(
        phrases.one_line(asked.question.code),
        phrases.one_line(asked.question.name),
        asked.answer.kind,
        phrases.message(asked),
        phrases.meaning(asked),
        phrases.one_line(asked.answer.fix),
        phrases.figures(asked.answer.measured),
        tuple(phrases.limits(asked)),
        asked.panel,
        asked.answer.step,
        asked is report.headline,
        phrases.one_line(asked.answer.experiment),
    )


def _walk(report: Report) -> list[Answered]:
    depths: dict[str, int] = {}
    answered, over = [], False
    for asked in filter(phrases.arises, report.walk.path):
        code = asked.question.code
        depths[code] = depths.get(asked.because_of, -1) + 1
        answered.append(_answered(asked, depths, over and not asked.question.always))
        over = over or asked is report.leaf
    return answered


def _answered(asked: Asked, depths: Mapping[str, int], over: bool) -> Answered:
    code, name = phrases.one_line(asked.question.code), phrases.one_line(asked.question.name)
    return Answered(code, name, asked.answer.kind, phrases.message(asked), depths[asked.question.code], over)


# `steadyrun.open_run`: a run directory for users, with its panels.


@renamed(path="run")
def open_run(run: str | os.PathLike[str]) -> RunView:
    """Open a run directory for reading: its series, events, manifest and dashboard."""
    return RunView(run_folder(run))


class RunView(RunReader):
    """The contents of a run directory. Every call reads the files as they are now.

    `series(name)` returns a `steadyrun.Series`, `names()` the recorded names, `events(kind)` a list of
    `steadyrun.Event`, `manifest` the config and the environment, `state` such as "running" or "finished".
    """

    def dashboard(self) -> Dashboard:
        """Build the seven panels and the verdict, as `steadyrun.dashboard` does."""
        from steadyrun.panels.notebook import dashboard

        return dashboard(self.root)
