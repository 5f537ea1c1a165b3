"""Check a run repeatedly while it is being written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from steadyrun.cli.messages import say
from steadyrun.errors import NewerSchemaError, RunDirectoryError
from steadyrun.store.layout import ENDED

if TYPE_CHECKING:
    from steadyrun.report import Report
    from steadyrun.store.tail import Fingerprint
    from steadyrun.trees.walker import Asked


def follow(run: str, walk: Callable[[], Report], *, interval: float, wait: float) -> Iterator[Report]:
    """Yield a report whenever the run has new data, until it ends."""
    until_begun(run, interval, wait)
    walked, took, unknown = None, 0.0, 0
    while True:
        now = _data_of(run)
        if now != walked:
            walked, began = now, time.monotonic()
            report = walk()
            took = time.monotonic() - began
            yield report
            # What was written during the check may not be in the report yet.
            if report.state in ENDED and _data_of(run) == now:
                return
        unknown = unknown + 1 if now[0] == "unknown" else 0
        if unknown == 2:  # not immediately: a run that has just started has no manifest yet
            say(f"cannot read the manifest of {run}, so the end of the run will go unnoticed; press Ctrl-C to stop")
        time.sleep(max(interval, took))  # checking a long run must not keep a core busy


def changed_answers(report: Report, before: Report | None) -> list[Asked]:
    """The questions whose answer changed; in the first report, every question with an answer."""
    known = {} if before is None else {asked.question.code: _answer(asked) for asked in before.walk.path}
    unanswered = ("cannot-tell", "missing")
    return [a for a in report.walk.path if _answer(a) != known.get(a.question.code, unanswered)]


def same_standing(report: Report, before: Report) -> bool:
    """Whether state, verdict, leaf and all answers are the same."""
    return _standing(report) == _standing(before)


def _standing(report: Report) -> object:
    headline = None if report.headline is None else report.headline.question.code
    return report.state, report.verdict, headline, [(a.question.code, _answer(a)) for a in report.walk.path]


def _answer(asked: Asked) -> tuple[str, str]:
    return asked.answer.kind, asked.answer.outcome


def until_begun(run: str, interval: float, wait: float) -> None:
    """Wait for the run to start; raise the reader's error if it does not."""
    from steadyrun.store.reader import open_run

    deadline = time.monotonic() + wait
    announced = False
    while True:
        try:
            view = open_run(run)
            if not view.manifest and not view.names():  # the folders exist and are still empty
                raise RunDirectoryError(f"{run} has no manifest and no series yet")
        except NewerSchemaError:
            raise
        except RunDirectoryError:
            if time.monotonic() >= deadline:
                raise
            if not announced:
                say(f"waiting up to {wait:g} s for {run} to start")
                announced = True
            time.sleep(min(interval, max(0.0, deadline - time.monotonic())))
        else:
            return


def _data_of(run: str) -> tuple[str, Fingerprint]:
    """What changes with the run: its state, and the sizes of its files."""
    from steadyrun.store.reader import open_run
    from steadyrun.store.tail import fingerprint

    view = open_run(run)
    return view.state, fingerprint(view.root)
