"""`run.watch(…, preflight=…)`: the probes of preflight before the first step, kept with the run."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from steadyrun.errors import FaultFound, UsageError
from steadyrun.preflight.batch_draw import can_be_drawn_from
from steadyrun.probes.problems import say
from steadyrun.records import Found
from steadyrun.report.config_answers import is_about_config
from steadyrun.report.kept_answers import as_data
from steadyrun.report.preflight import preflight
from steadyrun.report.report import Report
from steadyrun.store.jsonio import jsonable
from steadyrun.store.writer import RunWriter

# What `watch` and `record` were given, and preflight gets from them.
_OF_WATCH = {"model", "optimizer", "loss_fn", "scheduler", "scaler", "tokenizer", "config"}


def arguments(asked: Any, loss_fn: Any, loader: Any) -> dict[str, Any] | None:
    """What `steadyrun.preflight` is called with; None if it is not asked for, a clear error if it cannot be done."""
    if asked is False or asked is None:
        return None
    if loss_fn is None:
        raise UsageError("watch(preflight=True) needs loss_fn, called as loss_fn(model, batch)")
    if asked is True or isinstance(asked, Mapping):
        given = {"loader": loader, **(_known(asked) if isinstance(asked, Mapping) else {})}
    else:
        given = {"batches": asked}
    if given.get("batches") is not None and not can_be_drawn_from(given.get("loader")):
        given["loader"] = None
    _require_batches(given)
    return given


def _known(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of preflight that are not arguments of watch; an error names them if there is another."""
    known = [name for name in inspect.signature(preflight).parameters if name not in _OF_WATCH]
    for name in asked:
        if name not in known:
            near = next(iter(get_close_matches(str(name), known, 1)), None)
            hint = f"did you mean {near!r}? " if near else ""
            raise UsageError(f"watch(preflight=…) has no argument {name!r}; {hint}It takes {', '.join(known)}")
    return asked


def _require_batches(given: Mapping[str, Any]) -> None:
    batches = given.get("loader") if given.get("batches") is None else given["batches"]
    if batches is None:
        raise UsageError("watch(preflight=True) needs batches: give loader=…, or preflight=[batch, batch, …]")
    for each in (batches, given.get("val_loader")):
        if each is not None and not can_be_drawn_from(each):
            raise UsageError(
                f"batches cannot be taken from a {type(each).__name__} without using them up: give "
                "preflight=[batch, batch, …]"
            )


def preflight_run(
    writer: RunWriter, objects: Mapping[str, Any], given: Mapping[str, Any], on_fault: Any, step: int
) -> FaultFound | None:
    """Try the objects, record what was found and print one line; returns what to raise if the run must stop."""
    began = time.perf_counter()
    report = preflight(**objects, **given)
    seconds = time.perf_counter() - began
    walk = [as_data(asked) for asked in report.walk.path if not is_about_config(asked)]  # the run has its own note
    writer.save_manifest(preflight=jsonable({"verdict": report.verdict, "walk": walk}))
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
