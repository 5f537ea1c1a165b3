"""Asks steadyrun about one run: afterwards, before, by replaying the moment, and with all of it together."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import steadyrun
from diagnosis.cases import Case
from diagnosis.fleets import cause_of
from steadyrun.questions.aliases import outcome_of
from steadyrun.report.kept_answers import as_data
from steadyrun.store.jsonio import jsonable
from steadyrun.store.layout import ManifestText, read_manifest

ALERTS = ("fault", "warning")


def ask(case: Case, folder: Path, raised: str) -> dict[str, Any]:
    """All that steadyrun says about a recorded run."""
    began = time.perf_counter()
    _forget(folder)
    found: dict[str, Any] = {"check": _check(folder), "live": _live(folder)}
    found["check"]["seconds"] = round(time.perf_counter() - began, 2)
    found["preflight"] = _preflight(case, folder)
    found["replay"] = _replay(case, folder) if _worth_a_replay(found, raised) else None
    found["together"] = _check(folder)  # knows what preflight and the replay have found
    return found


def _forget(folder: Path) -> None:
    """A run that is asked again is asked without what was found the last time."""
    manifest = read_manifest(folder)
    if manifest.pop("preflight", None) is not None:
        ManifestText().write(folder, manifest)
    for replayed in folder.glob("incidents/*/replay.json"):
        replayed.unlink()


def _check(folder: Path) -> dict[str, Any]:
    return _in_short(steadyrun.check(folder).to_dict())


def _in_short(report: dict[str, Any]) -> dict[str, Any]:
    headline = report.get("headline") or report["leaf"]
    if headline is not None:
        headline = {name: headline.get(name) for name in ("code", "outcome", "step", "message")}
    notes = [f"{note['code']} {note['outcome']}" for note in report["notes"]]
    return {"verdict": report["verdict"], "headline": headline, "notes": notes}


def _live(folder: Path) -> dict[str, Any] | None:
    """The first alert of the monitor while the run went on."""
    for event in steadyrun.open_run(folder).events():
        if event.kind in ALERTS:
            fields = dict(event.fields)
            told = {name: fields.get(name) for name in ("code", "outcome", "noticed", "message")}
            return {"kind": event.kind, "step": event.step, **told}
    return None


def _preflight(case: Case, folder: Path) -> dict[str, Any]:
    if not hasattr(steadyrun, "preflight"):
        return {"absent": "this steadyrun has no preflight"}
    if not hasattr(case.module, "task"):
        return {"absent": "the program has no task"}
    config = dict(steadyrun.open_run(folder).manifest.get("config", {}))
    began = time.perf_counter()
    try:
        task = case.module.task(config)
        task.config = config
        # The program's own loader, where it has one: workers and samplers are asked, too.
        loader = case.module.loader_of(config) if _has_a_loader(case, config) else None
        report = steadyrun.preflight(task, loader=loader, deep=True)
        _keep(folder, report)
    except Exception as problem:
        return {"raised": f"{type(problem).__name__}: {problem}"}
    return _in_short(report.to_dict()) | {"seconds": round(time.perf_counter() - began, 2)}


def _keep(folder: Path, report: steadyrun.Report) -> None:
    """What preflight found, kept with the run as `run.watch(…, preflight=True)` keeps it."""
    answers = [as_data(asked) for asked in report.walk.path]
    kept = jsonable({"verdict": report.verdict, "walk": answers})
    ManifestText().write(folder, read_manifest(folder) | {"preflight": kept})


def _has_a_loader(case: Case, config: dict[str, Any]) -> bool:
    return hasattr(case.module, "loader_of") and config.get("accumulation", 1) == 1


def _worth_a_replay(found: dict[str, Any], raised: str) -> bool:
    headline = found["check"]["headline"]
    notes = " ".join(found["check"]["notes"])
    return bool(raised) or (headline is not None and headline["code"].startswith("D1")) or "D1.1" in notes


def _replay(case: Case, folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        result = steadyrun.replay(folder, case.module.task).to_dict()
    except Exception as problem:
        return {"raised": f"{type(problem).__name__}: {problem}"}
    culprit = result["culprit"]
    kept = None if culprit is None else {name: culprit[name] for name in ("module", "operation", "cause", "message")}
    told = {"proof": result["proof"]["verdict"], "culprit": kept, "exception": result["raised"]}
    return told | {"precision": result["precision"], "seconds": round(time.perf_counter() - began, 2)}


def judge(bug: str | None, said: dict[str, Any]) -> dict[str, Any]:
    """Whether each way of asking detected the bug, and named its cause."""
    ways = {"check": said["check"], "preflight": said["preflight"], "together": said["together"]}
    faults = {way: _fault(answer) for way, answer in ways.items()}
    replayed = said["replay"] or {}
    hunted = (replayed.get("culprit") or {}).get("cause")
    detected = {way: fault is not None for way, fault in faults.items()} | {"replay": hunted is not None}
    if bug is None:
        return {"alarm": any(detected.values()), "detected": detected}
    cause = cause_of(bug)
    right = {way: fault in cause.named for way, fault in faults.items()} | {"replay": hunted in cause.culprits}
    return {
        "detected": detected,
        "right": right,
        "any_detected": detected["together"],
        "any_right": right["together"],
        "step": _first_step(said),
    }


def _fault(answer: dict[str, Any]) -> tuple[str, str] | None:
    headline = answer.get("headline")
    return None if headline is None else outcome_of(headline["code"], headline["outcome"])


def _first_step(said: dict[str, Any]) -> int | None:
    """When one could know: before the first step, at the monitor's first alert, or where the report points."""
    if _fault(said["preflight"]) is not None:
        return 0
    live, headline = said["live"], said["check"]["headline"] or {}
    steps = [headline.get("step")] if live is None else [live["noticed"], live["step"]]
    return next((int(step) for step in steps if step is not None and math.isfinite(step)), None)
