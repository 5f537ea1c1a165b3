"""A run as one row of the list: state, last loss, sparkline, verdict."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from steadyrun.panels.run_overlay import declared
from steadyrun.panels.thinning import places
from steadyrun.records import Series
from steadyrun.report.phrases import meaning, one_line
from steadyrun.report.report import check_with, last_word, started
from steadyrun.store.discover import RunPlace
from steadyrun.store.reader import RunReader, open_run
from steadyrun.text import shown
from steadyrun.trees.walker import Changes

WIDTH, HEIGHT = 120, 24  # of the sparkline
_POINTS = 80
_MOST_SETTINGS = 40


@dataclass(frozen=True)
class Figures:
    """The last values of a run, and the time of the latest; None if missing."""

    loss: float | None = None
    val_loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    at: float | None = None


@dataclass(frozen=True)
class RunRow:
    """One row of the list; `verdict` and `line` are "" until known."""

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
    finding: str = ""  # what the headline means
    val_loss: str = ""
    duration: float | None = None  # seconds
    settings: tuple[tuple[str, str], ...] = ()  # what a person declared
    ranks: int = 1
    figures: Figures | None = field(default=None, compare=False)  # read only if metrics are requested

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON for the pages."""
        return {name: value for name, value in asdict(self).items() if name != "figures"}


def first(run: RunPlace) -> RunRow:
    """The row from the manifest alone."""
    view = open_run(run.path)
    settings = tuple(declared(view.manifest).items())[:_MOST_SETTINGS]
    return RunRow(run.key, run.name, one_line(view.state), started(view.manifest), settings=settings)


def detailed(run: RunPlace, measured: bool = False) -> RunRow:
    """The row with all that can be read quickly; the verdict only if the run recorded one."""
    view = open_run(run.path).as_of_now()
    row = first(run)
    loss = view.series("loss") if "loss" in view.names() else None
    val = view.series("val_loss") if "val_loss" in view.names() else None
    verdict, leaf, finding = last_word(view, row.state)
    return replace(
        row,
        step=view.last_step() if loss is None or not len(loss) else int(loss.steps[-1]),
        loss="" if loss is None or not len(loss) else shown(loss.values[-1]),
        val_loss="" if val is None or not len(val) else shown(val.values[-1]),
        duration=_duration(loss),
        line="" if loss is None else small_line(loss),
        ends_badly=loss is not None and len(loss) > 0 and not math.isfinite(loss.values[-1]),
        verdict=verdict,
        leaf=leaf,
        finding=finding,
        ranks=_ranks(view),
        figures=_figures(view) if measured else None,
    )


def _ranks(view: RunReader) -> int:
    """The number of processes, as the first rank recorded it, or as many as have files."""
    worlds = [event.fields.get("world") for event in view.events("process")]
    known = [world for world in worlds if isinstance(world, int) and not isinstance(world, bool)]
    return max(1, known[-1] if known else len(view.ranks))


def _figures(view: RunReader) -> Figures:
    names = set(view.names())
    series = {name: view.series(name) for name in ("loss", "val_loss", "lr/0", "grad_norm") if name in names}
    last = {name: float(points.values[-1]) for name, points in series.items() if len(points)}
    times = [float(points.times[-1]) for points in series.values() if len(points)]
    return Figures(
        last.get("loss"), last.get("val_loss"), last.get("lr/0"), last.get("grad_norm"), max(times, default=None)
    )


def walked(run: RunPlace, row: RunRow, changes: Changes) -> RunRow:
    """The row with the verdict of a check."""
    report = check_with(run.path, changes)
    leaf = "" if report.headline is None else report.headline.question.code
    finding = "" if report.headline is None else meaning(report.headline)
    return replace(row, verdict=report.verdict, leaf=one_line(leaf), finding=finding)


def _duration(loss: Series | None) -> float | None:
    """Seconds from the first to the last recorded loss."""
    if loss is None or len(loss) < 2:
        return None
    seconds = float(loss.times[-1] - loss.times[0])
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def small_line(series: Series) -> str:
    """The finite points of a series as SVG points, on a log scale if all are positive."""
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
