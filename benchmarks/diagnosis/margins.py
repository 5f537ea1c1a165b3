"""How near healthy runs come to the limits of the audits: written beside the thresholds, where their pages show it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from leaves import rounded, summary

import steadyrun
from diagnosis.running import BUILD, ROOT
from steadyrun.trees import QUESTIONS

MEASURED = ROOT / "src" / "steadyrun" / "questions" / "measured.json"
AUDITED = [code for code in QUESTIONS if code.startswith(("A", "V", "C7")) or code in ("S1.4", "S6.3")]


def write_margins(rows: list[dict[str, Any]]) -> Path:
    """Measure the audits on the runs that are there; what the tutor's benchmark measured of the trees stays."""
    kept = {code: held for code, held in json.loads(MEASURED.read_text()).items() if code not in AUDITED}
    folders = {row["case"]: BUILD / "runs" / row["case"] for row in rows}
    answers = {case: _answers(folder) for case, folder in folders.items() if folder.is_dir()}
    bugs = {row["case"]: row["bug"] for row in rows}
    for code in AUDITED:
        for of in sorted({threshold.of for threshold in QUESTIONS[code].thresholds if threshold.of}):
            name, sign = of.removeprefix("-"), -1.0 if of.startswith("-") else 1.0
            healthy, faulty = {}, {}
            for case, held in answers.items():
                value = held.get(code, {}).get(name)
                if value is not None and math.isfinite(value):
                    (healthy if bugs[case] is None else faulty)[case] = float(value)
            found = {bug: _middle(faulty, bugs, bug) for bug in sorted({bugs[case] or "" for case in faulty})}
            beyond = {bug: value for bug, value in found.items() if _is_beyond(code, of, value)}
            kept.setdefault(code, {})[of] = {"healthy": summary(healthy, sign), "faults": beyond}
    MEASURED.write_text(json.dumps(kept, indent=1) + "\n")
    return MEASURED


def _answers(folder: Path) -> dict[str, Mapping[str, float]]:
    path = steadyrun.check(folder).walk.path
    return {asked.question.code: asked.answer.measured for asked in path if asked.question.code in AUDITED}


def _middle(values: dict[str, float], bugs: dict[str, Any], bug: str) -> float:
    return rounded(float(np.median([value for case, value in values.items() if bugs[case] == bug])))


def _is_beyond(code: str, of: str, value: float) -> bool:
    """Whether a number is on the wrong side of the limit that is about it: those of other bugs say nothing."""
    limit = next(each.value for each in QUESTIONS[code].thresholds if each.of == of)
    return value < limit if of.startswith("-") else value > limit
