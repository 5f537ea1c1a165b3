"""`run.watch(…, preflight=True)`: the probes of preflight before the first step, kept with the run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from steadyrun.errors import FaultFound, UsageError
from steadyrun.preflight.batch_draw import can_be_drawn_from
from steadyrun.probes.problems import say
from steadyrun.records import Found
from steadyrun.report.kept_answers import as_data
from steadyrun.report.preflight import preflight
from steadyrun.report.report import Report
from steadyrun.store.jsonio import jsonable
from steadyrun.store.writer import RunWriter


def wanted(asked: Any, loss_fn: Any, loader: Any) -> Any:
    """The batches to try; None where preflight is not asked for, a clear error where it cannot be done."""
    if asked is False or asked is None:
        return None
    if loss_fn is None:
        raise UsageError("watch(preflight=True) needs loss_fn, called as loss_fn(model, batch)")
    batches = loader if asked is True else asked
    if batches is None:
        raise UsageError("watch(preflight=True) needs batches: give loader=…, or preflight=[batch, batch, …]")
    if not can_be_drawn_from(batches):
        raise UsageError(
            f"batches cannot be taken from a {type(batches).__name__} without using them up: give "
            "preflight=[batch, batch, …]"
        )
    return batches


def preflight_run(
    writer: RunWriter, objects: Mapping[str, Any], batches: Any, on_fault: Any, step: int
) -> FaultFound | None:
    """Try the objects, write down what was found, tell of it in one line; what to raise where the run is to stop."""
    began = time.perf_counter()
    report = preflight(batches=batches, **objects)
    seconds = time.perf_counter() - began
    writer.save_manifest(
        preflight=jsonable({"verdict": report.verdict, "walk": [as_data(a) for a in report.walk.path]})
    )
    headline = report.headline
    writer.event(
        "preflight", step, verdict=report.verdict, headline=None if headline is None else headline.question.code
    )
    say(_line(report, seconds))
    if headline is None or on_fault is None:
        return None
    answer = headline.answer
    finding = Found(headline.question.code, answer.outcome, None, answer.message, answer.fix, step, True)
    if on_fault == "stop" or (callable(on_fault) and on_fault(finding) == "stop"):
        return FaultFound(finding)
    return None


def _line(report: Report, seconds: float) -> str:
    asked = len(report.walk.path)
    if report.headline is None:
        return f"preflight: no fault in {asked} probes ({seconds:.1f} s)"
    answer = report.headline.answer
    return f"preflight: fault {report.headline.question.code} {answer.outcome}: {answer.message} Fix: {answer.fix}"
