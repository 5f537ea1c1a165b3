"""runmedic 0.1.1: its diagnosis of a log in JSON lines."""

from __future__ import annotations

from pathlib import Path

from runmedic import loaders, roles
from runmedic.checks import run_checks

from diagnosis.cases import Case
from diagnosis.tools.findings import Finding

LEVEL = {"critical": "error", "warning": "warning", "info": "info"}


def findings(log: Path, _case: Case) -> list[Finding]:
    found = []
    for run in loaders.load(str(log)):
        for each in run_checks(run, roles.detect(run)):
            step = None if each.step is None else int(each.step)
            found.append(Finding(each.check, LEVEL[each.severity], f"{each.title}: {'; '.join(each.evidence)}", step))
    return found
