"""The tools that one would use instead, through thin adapters, on the same cases."""

from __future__ import annotations

import importlib
import json
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from diagnosis.cases import Case
from diagnosis.harness import Log, Silent, log_file
from diagnosis.tools.findings import Finding, judged, means_of_ten

# Name of a tool: the package it is imported as, and the adapter.
LIVE = {"torch-audit": "torch_audit", "torchmortem": "torchmortem", "trainscope": "trainscope"}
READERS = {"runmedic": "runmedic", "trainproof": "trainproof"}
MEANS = "-means"  # the same tool on a log of ten-step means
TOOLS = [*LIVE, *(name + end for name in READERS for end in ("", MEANS))]


def package(tool: str) -> str:
    return (LIVE | READERS)[tool.removesuffix(MEANS)]


def why_not(tool: str) -> str:
    """Why a tool cannot be asked here; empty where it can."""
    if tool == "steadyrun":
        return ""
    if tool not in TOOLS:
        return f"there is no adapter for it; there are {', '.join(TOOLS)}"
    return "" if find_spec(package(tool)) else "it is not installed (benchmarks/diagnosis/requirements-tools.txt)"


def measured(case: Case, tool: str, run: Path) -> dict[str, Any]:
    """What a tool says about a case: in the loop where it has hooks, from the plain log where it reads logs."""
    began = time.perf_counter()
    adapter = importlib.import_module(f"diagnosis.tools.with_{package(tool)}")
    findings: list[Finding] = _live(case, adapter) if tool in LIVE else _from_log(case, adapter, tool, run)
    seconds = round(time.perf_counter() - began, 1)
    told = [f"{each.level} {each.name}: {each.text[:150]}" for each in findings]
    return {"seconds": seconds, "findings": told, "judged": judged(tool.removesuffix(MEANS), case.bug, findings)}


def _live(case: Case, adapter: Any) -> list[Finding]:
    from diagnosis.running import trained

    with tempfile.TemporaryDirectory() as place:
        watcher = adapter.Watcher(Path(place) / "tool")
        trained(case, Path(place) / "run", record=watcher.record)
        found: list[Finding] = watcher.findings()
        return found


def _from_log(case: Case, adapter: Any, tool: str, run: Path) -> list[Finding]:
    from diagnosis.running import trained

    with tempfile.TemporaryDirectory() as place:
        if not log_file(run).is_file():
            run = Path(place) / "run"
            trained(case, run, record=Silent)
        rows = Log.read(log_file(run)) if log_file(run).is_file() else []
        rows = means_of_ten(rows) if tool.endswith(MEANS) else rows
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (Path(place) / "metrics.jsonl").write_text(lines, "utf-8")
        found: list[Finding] = adapter.findings(Path(place) / "metrics.jsonl", case)
        return found
