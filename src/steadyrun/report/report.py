"""`steadyrun.check`: walk the trees over a run and say what was found."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from steadyrun.program.supervision import Example
from steadyrun.questions.form import CANNOT_TELL, FAULT, NOTE, SUSPECT, Threshold
from steadyrun.renamed_arguments import renamed
from steadyrun.report import limits as chosen
from steadyrun.report.announced_faults import Announced, announced
from steadyrun.report.config_answers import noted_config
from steadyrun.report.incidents import IncidentCard, incidents
from steadyrun.report.kept_answers import preflighted, replayed
from steadyrun.report.learned_text import learned_text
from steadyrun.report.phrases import likelihood, one_line
from steadyrun.report.ranking import Ranking, proof, ranked
from steadyrun.report.trial_answers import trial_command, with_trial
from steadyrun.report.two_sources import joined, source
from steadyrun.report.vital_signs import AMBER, GREEN, VitalSign, vital_signs
from steadyrun.signals.ranks import in_words
from steadyrun.signals.run_signals import Signals, signals_of
from steadyrun.store.layout import ENDED
from steadyrun.store.reader import RunReader, open_run
from steadyrun.trees import QUESTIONS, questions_of
from steadyrun.trees.walker import FAILED, Asked, Changes, Walk, walk

SCHEMA = 2
HEALTHY, CANNOT = "healthy", "cannot-tell"
NEEDED_FOR_HEALTHY = ("C4.1", "D1.1", "D2.1", "D4.1")
NEEDED_OF_RANKS = ("R1.1", "R1.2")
SHOW_LEARNING = ("V1.1", "V1.2", "V1.3", "V1.8")
EXIT_CODES = {HEALTHY: 0, FAULT: 1, CANNOT: 3, SUSPECT: 4}


@dataclass(frozen=True)
class RankCount:
    """How many processes a job has, and which of them have files."""

    world: int
    present: tuple[int, ...]
    missing: tuple[int, ...]

    def __str__(self) -> str:
        if not self.missing:
            return f"{self.world:,} ranks"
        verb = "has" if len(self.missing) == 1 else "have"
        return f"{self.world:,} ranks, {in_words(self.missing)} {verb} no files"

    def to_dict(self) -> dict[str, Any]:
        return {"world": self.world, "present": list(self.present), "missing": list(self.missing)}


@dataclass(frozen=True, repr=False)
class Report:
    """Verdict on a run with its evidence: print it, or let a notebook show it.

    `verdict` is "healthy", "suspect", "fault" or "cannot-tell"; `headline` the finding to begin with; `notes` and
    `vital_signs` the rest; `exit_code` that of the command line.
    """

    run: str
    walk: Walk
    state: str = ""
    last_step: int | None = None
    damage: tuple[str, ...] = field(default_factory=tuple)
    needed: tuple[str, ...] = NEEDED_FOR_HEALTHY
    command: str = "check"  # what made it: `preflight` has no run and no steps
    again: str = ""  # what to type when the fault is mended; a run is compared with a new one instead
    announced: tuple[Announced, ...] = ()  # faults that the monitor announced during the run
    incidents: tuple[IncidentCard, ...] = ()
    whole: bool = False  # whether the text has a row for each question that does not apply: `--all`
    verbose: bool = False  # whether the text has the walk, and everything about a finding
    factory: str = ""  # that builds the program, as the run suggests it
    ranks: RankCount | None = None  # of a run of several processes
    learned_text: tuple[Example, ...] = ()  # examples of a language model: what is learned of them

    @property
    def leaf(self) -> Asked | None:
        """The first fault of the walk; None where there is none."""
        return self.walk.leaf

    @cached_property
    def ranking(self) -> Ranking:
        """The fault that explains the others, what follows from it, and what stands beside it."""
        return ranked(self.walk.path)

    @property
    def headline(self) -> Asked | None:
        """The cause to begin with: the leaf or a proof that explains it, else the first suspect, else None."""
        return self.ranking.headline

    @property
    def verdict(self) -> str:
        """`fault` or `suspect` if there is one; `healthy` if the vital signs show it; else `cannot-tell`."""
        if self.leaf is not None:
            return FAULT
        if self.suspects:
            return SUSPECT
        return CANNOT if self.unanswered or self.amber or self.unproved else HEALTHY

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The questions without whose answer no run is called healthy, as far as they were not answered.

        One that failed is among them, whichever it is: what it would have found is not known.
        """
        answered = {asked.question.code for asked in self.walk.path if asked.answer.kind != CANNOT_TELL}
        failed = [asked.question.code for asked in self.walk.path if asked.answer.outcome == FAILED]
        return tuple(dict.fromkeys([*(code for code in self.needed if code not in answered), *failed]))

    @property
    def vital_signs(self) -> tuple[VitalSign, ...]:
        """The signs of life, each with its colour."""
        return vital_signs(self.walk.path)

    @property
    def amber(self) -> tuple[VitalSign, ...]:
        """The signs that withhold `healthy`."""
        return tuple(sign for sign in self.vital_signs if sign.colour == AMBER)

    @property
    def unproved(self) -> bool:
        """Whether nothing that was recorded shows that the run learns anything."""
        learning = [sign for sign in self.vital_signs if sign.code in SHOW_LEARNING]
        return bool(learning) and not any(sign.colour == GREEN for sign in learning)

    @property
    def suspects(self) -> tuple[Asked, ...]:
        """Likely causes, each with the experiment that decides."""
        return tuple(asked for asked in self.walk.path if asked.answer.kind == SUSPECT)

    @property
    def trial(self) -> str:
        """The trial that decides the first suspect, as arguments of `steadyrun`; "" if there is none to decide."""
        return trial_command(self.headline, self.run, self.factory) if self.command == "check" else ""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def notes(self) -> tuple[Asked, ...]:
        return tuple(asked for asked in self.walk.path if asked.answer.kind == NOTE)

    def to_dict(self) -> dict[str, Any]:
        """Convert to the documented JSON form (docs/report.md); non-finite numbers are floats here."""
        return {
            "schema": SCHEMA,
            "run": self.run,
            "state": self.state,
            "last_step": self.last_step,
            "verdict": self.verdict,
            "leaf": None if self.leaf is None else _leaf(self.leaf),
            "headline": None if self.headline is None else _headline(self.headline),
            "vital_signs": [sign.to_dict() for sign in self.vital_signs],
            "consequences": [brief(asked) for asked in self.ranking.consequences],
            "walk": [_entry(asked) for asked in self.walk.path],
            "suspects": [brief(asked) | {"experiment": asked.answer.experiment} for asked in self.suspects],
            "notes": [brief(asked) for asked in self.notes],
            "not_asked": self._not_asked(),
            "damage": list(self.damage),
            "announced": [fault.to_dict() for fault in self.announced],
            "incidents": [incident.to_dict() for incident in self.incidents],
            "trial": self.trial or None,
            **({} if self.ranks is None else {"ranks": self.ranks.to_dict()}),
        }

    def __str__(self) -> str:
        from steadyrun.report.terminal import plain

        return plain(self).rstrip("\n")

    def __repr__(self) -> str:
        return f"<steadyrun report of {self.run!r}, {self.verdict}>"

    def _repr_html_(self) -> str:
        from steadyrun.report.file_formats import html

        return html(self)

    def _not_asked(self) -> list[dict[str, Any]]:
        unanswerable = [
            {"code": a.question.code, "missing": list(a.answer.missing), "how_to_record": a.answer.how_to_record}
            for a in self.walk.path
            if a.answer.kind == CANNOT_TELL
        ]
        not_reached = [
            {"code": question.code, "missing": [], "how_to_record": "the walk ended before it; --all goes on"}
            for question in self.walk.not_reached
        ]
        return unanswerable + not_reached


@renamed(all="everything")
def check(
    run: str | os.PathLike[str],
    *,
    everything: bool = False,
    thresholds: Mapping[str, float] | None = None,
) -> Report:
    """Find out what is wrong with a run: the same answer as `steadyrun check`.

    `run` is a run directory, also of a run that is still training. `everything=True` continues after the first fault
    and lists every check. `thresholds` changes limits by their full name, for example `{"C3.1.high": 10}`; limits in
    `steadyrun.toml` or `[tool.steadyrun]` of this folder also apply.
    """
    changes = chosen.changes(thresholds or {}, Path.cwd())
    return replace(check_with(run, changes, go_on=everything), whole=everything)


def check_with(
    run: str | os.PathLike[str], changes: Changes, *, go_on: bool = False, flight_recorder: Path | None = None
) -> Report:
    """Walk with these thresholds and no others; `flight_recorder` is a folder with traces of collectives."""
    return examined(run, changes, go_on=go_on, flight_recorder=flight_recorder)[1]


def examined(
    run: str | os.PathLike[str], changes: Changes, *, go_on: bool = False, flight_recorder: Path | None = None
) -> tuple[Signals, Report]:
    """The signals that were read on the walk, and the report: for those who show both."""
    opened = open_run(run)
    opened.flight_recorder = flight_recorder
    view = opened.as_of_now()
    signals = signals_of(view)
    report = reported(str(run), view, signals, changes, go_on=go_on)
    lost = [str(event.fields.get("why", event.kind)) for event in view.events("rows-lost")]
    damage = (*(str(dropped) for dropped in view.dropped), *lost)
    return signals, replace(report, last_step=_last_step(view, signals), damage=damage)


def reported(name: str, view: RunReader, signals: Signals, changes: Changes, *, go_on: bool) -> Report:
    """The walk over a run, with what is kept beside its series: of preflight, monitor, incidents and replays."""
    walked = with_recorded(walk(questions_of(signals), signals, changes, go_on=go_on), signals.manifest, view.root)
    walked = replace(walked, path=(*walked.path, *noted_config(view)))
    announced_faults = announced(QUESTIONS, signals, walked)
    kept = incidents(view.root)
    factory = str(signals.manifest.get("factory") or "")
    joined = signals.ranks
    ranks = None if joined is None else RankCount(joined.world, joined.present, joined.missing)
    return Report(
        *(name, walked, view.state),
        announced=announced_faults,
        incidents=kept,
        factory=factory,
        ranks=ranks,
        needed=NEEDED_FOR_HEALTHY if joined is None else (*NEEDED_FOR_HEALTHY, *NEEDED_OF_RANKS),
        learned_text=learned_text(signals.manifest),
    )


def with_recorded(walked: Walk, manifest: Mapping[str, Any], root: Path) -> Walk:
    """A walk with what preflight, replays and a trial of the run have found; one cause is one answer."""
    path = (*joined(walked.path, preflighted(manifest)), *replayed(root))
    return Walk(with_trial(path, root), walked.not_reached, walked.changes)


def _last_step(view: RunReader, signals: Signals) -> int | None:
    """The last step; where the walk has read every step's loss, the files need not be read again for it."""
    return view.last_step() if signals.whole_until is None else signals.whole_until


def brief(asked: Asked) -> dict[str, Any]:
    answer = asked.answer
    return {
        "code": asked.question.code,
        "aliases": list(asked.question.aliases),
        "outcome": answer.outcome,
        "step": answer.step,
        **_ranks(asked),
        "message": answer.message,
    }


def _ranks(asked: Asked) -> dict[str, list[int]]:
    """The ranks that an answer names, of a job of several processes."""
    return {"ranks": list(asked.answer.ranks)} if asked.answer.ranks else {}


def _leaf(asked: Asked) -> dict[str, Any]:
    answer = asked.answer
    evidence = {"measured": dict(answer.measured), "thresholds": _thresholds(asked), "panel": asked.panel}
    return brief(asked) | {"fix": answer.fix, "evidence": evidence}


def _headline(asked: Asked) -> dict[str, Any]:
    answer = asked.answer
    likely = likelihood(asked)
    return _leaf(asked) | {
        "grade": answer.kind,
        "likely": likely,
        "experiment": answer.experiment,
        "proof": proof(asked),
        "source": source(asked),
        "also": None if asked.also is None else _other(asked.also),
    }


def _other(asked: Asked) -> dict[str, Any]:
    """The other source of evidence of the same cause."""
    answer = asked.answer
    found = {"source": source(asked), "answer": answer.kind, "outcome": answer.outcome, "message": answer.message}
    return found | {"measured": dict(answer.measured), "thresholds": _thresholds(asked)}


def _entry(asked: Asked) -> dict[str, Any]:
    question, answer = asked.question, asked.answer
    return {
        "code": question.code,
        "aliases": list(question.aliases),
        "name": question.name,
        "source": source(asked),
        "also": None if asked.also is None else _other(asked.also),
        "answer": answer.kind,
        "outcome": answer.outcome,
        "measured": dict(answer.measured),
        "thresholds": _thresholds(asked),
        "panel": asked.panel,
        "step": answer.step,
        **_ranks(asked),
        "message": answer.message,
    }


def _thresholds(asked: Asked) -> dict[str, Any]:
    return {t.name: threshold_entry(t, asked.changed) for t in asked.question.thresholds}


def threshold_entry(threshold: Threshold, changed: Mapping[str, float]) -> dict[str, Any]:
    """A threshold as reports show it: a changed one says so, and what it was."""
    mine = threshold.name in changed
    entry: dict[str, Any] = {
        "value": changed.get(threshold.name, threshold.value),
        "unit": threshold.unit,
        "source": "changed by the user" if mine else threshold.source,
        "changed": mine,
    }
    return entry | ({"default": threshold.value} if mine else {})


# How a run stands, without walking it: whether it has ended, when it began, and the monitor's last word on it.


def started(manifest: Mapping[str, Any]) -> float:
    """When a run began, in seconds since 1970; 0 where that is not known."""
    process = manifest.get("process")
    began = process.get("started") if isinstance(process, dict) else None
    imported = manifest.get("imported")
    if began is None and isinstance(imported, dict):
        began = imported.get("time")
    return float(began) if isinstance(began, int | float) and math.isfinite(began) else 0.0


def last_word(view: RunReader, state: str) -> tuple[str, str, str]:
    """The monitor's verdict on a run that has ended, its headline's code and what that means.

    All are "" if there is no verdict since the run last began.
    """
    words = [event for event in view.events() if event.kind in {"verdict", "start", "resume"}]
    if state not in ENDED or not words or words[-1].kind != "verdict":
        return "", "", ""
    fields = words[-1].fields
    verdict = str(fields.get("verdict"))
    headline = one_line(str(fields.get("headline") or fields.get("leaf") or ""))
    meaning = one_line(str(fields.get("words") or ""))
    return (verdict, headline, meaning) if verdict in EXIT_CODES else ("", "", "")
