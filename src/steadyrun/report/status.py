"""How a run stands, without walking it: whether it has ended, when it began, and the monitor's last word on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from steadyrun.report.phrases import one_line
from steadyrun.report.report import EXIT_CODES
from steadyrun.store.layout import ENDED
from steadyrun.store.reader import RunReader


def started(manifest: Mapping[str, Any]) -> float:
    """When a run began, in seconds since 1970; 0 where that is not known."""
    process = manifest.get("process")
    began = process.get("started") if isinstance(process, dict) else None
    imported = manifest.get("imported")
    if began is None and isinstance(imported, dict):
        began = imported.get("time")
    return float(began) if isinstance(began, int | float) and math.isfinite(began) else 0.0


def last_word(view: RunReader, state: str) -> tuple[str, str]:
    """The monitor's verdict on a run that has ended, and its headline; "" where there is none since it last began."""
    words = [event for event in view.events() if event.kind in {"verdict", "start", "resume"}]
    if state not in ENDED or not words or words[-1].kind != "verdict":
        return "", ""
    fields = words[-1].fields
    verdict = str(fields.get("verdict"))
    headline = one_line(str(fields.get("headline") or fields.get("leaf") or ""))
    return (verdict, headline) if verdict in EXIT_CODES else ("", "")
