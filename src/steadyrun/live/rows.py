"""A run as one row of the list: how it stands, its last loss, a small line, its verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from steadyrun.live.finding import Place
from steadyrun.panels.thinning import places
from steadyrun.records import Series
from steadyrun.report.checking import EXIT_CODES, check_with
from steadyrun.report.words import one_line
from steadyrun.store.layout import ENDED
from steadyrun.store.reader import RunView, open_run
from steadyrun.trees.walker import Changes

WIDTH, HEIGHT = 120, 24  # of the small line
_POINTS = 80


@dataclass(frozen=True)
class Row:
    """What the list says of a run; `verdict` and `line` are "" until they are known."""

    key: str
    name: str
    state: str
    started: float = 0.0
    step: int | None = None
    loss: str = ""
    line: str = ""
    ends_badly: bool = False
    verdict: str = ""
    leaf: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def first(place: Place) -> Row:
    """What the manifest alone says."""
    view = open_run(place.path)
    return Row(place.key, place.name, one_line(view.state), _started(view.manifest))


def detailed(place: Place) -> Row:
    """The row with all that can be read at once: the verdict only where the run's own last word is recorded."""
    view = open_run(place.path).as_of_now()
    row = first(place)
    loss = view.series("loss") if "loss" in view.names() else None
    verdict, leaf = _last_word(view, row.state)
    return replace(
        row,
        step=view.last_step() if loss is None or not len(loss) else int(loss.steps[-1]),
        loss="" if loss is None or not len(loss) else f"{loss.values[-1]:.4g}",
        line="" if loss is None else small_line(loss),
        ends_badly=loss is not None and len(loss) > 0 and not math.isfinite(loss.values[-1]),
        verdict=verdict,
        leaf=leaf,
    )


def walked(place: Place, row: Row, changes: Changes) -> Row:
    """The row with the verdict of a walk."""
    report = check_with(place.path, changes)
    leaf = "" if report.headline is None else report.headline.question.code
    return replace(row, verdict=report.verdict, leaf=one_line(leaf))


def small_line(series: Series) -> str:
    """The finite points of a series as the points of an SVG line, on a log scale where all are positive."""
    finite = np.isfinite(series.values)
    steps, values = series.steps[finite], series.values[finite]
    if len(values) < 2:
        return ""
    kept = places(values, _POINTS)
    x, y = _scaled(steps[kept].astype(float), WIDTH), _scaled(_levels(values[kept]), HEIGHT - 2)
    return " ".join(f"{a:.1f},{HEIGHT - 1 - b:.1f}" for a, b in zip(x, y, strict=True))


def _levels(values: Any) -> Any:
    return np.log(values) if values.min() > 0 else values / max(1.0, float(np.max(np.abs(values))))


def _scaled(values: Any, size: float) -> Any:
    low, high = float(np.min(values)), float(np.max(values))
    return (values - low) / (high - low) * size if high > low else np.full(len(values), size / 2)


def _started(manifest: Mapping[str, Any]) -> float:
    process = manifest.get("process")
    started = process.get("started") if isinstance(process, dict) else None
    imported = manifest.get("imported")
    if started is None and isinstance(imported, dict):
        started = imported.get("time")
    return float(started) if isinstance(started, int | float) and math.isfinite(started) else 0.0


def _last_word(view: RunView, state: str) -> tuple[str, str]:
    """The monitor's verdict on a run that has ended, "" where there is none since it was last begun."""
    words = [event for event in view.events() if event.kind in {"verdict", "start", "resume"}]
    if state not in ENDED or not words or words[-1].kind != "verdict":
        return "", ""
    fields = words[-1].fields
    verdict = str(fields.get("verdict"))
    return (
        (verdict, one_line(str(fields.get("headline") or fields.get("leaf") or "")))
        if verdict in EXIT_CODES
        else ("", "")
    )
