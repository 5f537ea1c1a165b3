"""Trains the cases, asks about each, and keeps one JSON file per case: what is there is not done again."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diagnosis.cases import Case
from steadyrun.workers import Job, open_crew

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "diagnosis"


def build(fleet: str) -> Path:
    """Where the results and runs of a fleet are kept."""
    return BUILD if fleet == "first" else BUILD.with_name(f"diagnosis-{fleet}")


def result_file(case: Case, tool: str) -> Path:
    return build(case.fleet) / tool / f"{case.name}.json"


def run_folder(case: Case) -> Path:
    return build(case.fleet) / "runs" / case.name


def missing(chosen: list[Case], tool: str, *, redo: bool) -> list[Case]:
    return [case for case in chosen if redo or not result_file(case, tool).is_file()]


def measure(case: Case, tool: str, *, again: bool = False) -> dict[str, Any]:
    """One case in a process of its own kind: trained, asked, written. `again` asks about the run that is there."""
    import torch

    torch.set_num_threads(1)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        result = _with_steadyrun(case, again=again) if tool == "steadyrun" else _with_tool(case, tool)
    result |= {"case": case.name, "program": case.program, "bug": case.bug, "seed": case.seed, "tool": tool}
    file = result_file(case, tool)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(result, indent=1), "utf-8")
    partial.replace(file)
    return result


def _with_steadyrun(case: Case, *, again: bool) -> dict[str, Any]:
    from diagnosis.asking import ask, judge

    folder, began, raised = run_folder(case), time.perf_counter(), ""
    if again and folder.is_dir():
        raised = str(json.loads(result_file(case, "steadyrun").read_text("utf-8")).get("raised", ""))
    else:
        shutil.rmtree(folder, ignore_errors=True)
        raised = trained(case, folder)
    seconds = round(time.perf_counter() - began, 1)
    said = ask(case, folder, raised)
    return {"seconds": seconds, "raised": raised, "said": said, "judged": judge(case.bug, said)}


def _with_tool(case: Case, tool: str) -> dict[str, Any]:
    from diagnosis.tools import measured

    return measured(case, tool, run_folder(case))


def trained(case: Case, folder: Path, **settings: Any) -> str:
    """Train a case; the exception that ended it, or nothing. Some bugs end in one."""
    try:
        case.module.train(folder, case.bug, case.seed, **(dict(case.changes) | settings))
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""


def results(chosen: list[Case], tool: str, jobs: int, *, again: bool) -> Iterator[dict[str, Any]]:
    """Every result as it comes."""
    with open_crew("here" if jobs == 1 else f"local:{jobs}") as crew:
        for case in chosen:
            # By its name, since the settings of a case may hold more than JSON does.
            named = {"fleet": case.fleet, "name": case.name, "seeds": case.seed, "tool": tool, "again": again}
            crew.start(Job(case.name, "diagnosis.running:measure_named", named))
        for done in crew.finished():
            if done.failure:
                raise RuntimeError(f"{done.job.key}: {done.failure}")
            yield done.result


def measure_named(fleet: str, name: str, seeds: int, tool: str, again: bool) -> dict[str, Any]:
    """`measure` for a case by its name."""
    listed = importlib.import_module("diagnosis.cases" if fleet == "first" else f"diagnosis.{fleet}.cases")
    (case,) = listed.cases(seeds, name)
    return measure(case, tool, again=again)


def stored(tool: str, fleet: str = "first") -> list[dict[str, Any]]:
    return [json.loads(file.read_text("utf-8")) for file in sorted((build(fleet) / tool).glob("*.json"))]
