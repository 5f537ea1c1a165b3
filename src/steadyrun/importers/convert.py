"""A run directory out of a log: staged beside its place, and renamed into it when it is whole."""

from __future__ import annotations

import glob
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steadyrun.errors import LogError
from steadyrun.importers import series_roles as table
from steadyrun.importers.log_rows import MOST_ROWS, Anomalies, Log, LogRows
from steadyrun.importers.series_roles import Mapped, RecognisedSeries
from steadyrun.importers.step_axis import Axis, Placed
from steadyrun.store.layout import SCHEMA
from steadyrun.store.writer import RunWriter


def _sweep(target: Path) -> None:
    """Take away what imports that were killed left beside a target."""
    for left in target.parent.glob(f".importing-*-{glob.escape(target.name)}"):
        process = left.name.split("-")[1]
        if process.isdecimal() and (int(process) == os.getpid() or not _runs(int(process))):
            shutil.rmtree(left, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it runs, and is somebody else's
        return True
    return True


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A folder beside the target that takes its place at the end; nothing of it stays where anything fails."""
    stage = target.with_name(f".importing-{os.getpid()}-{target.name}"[:200])
    try:
        stage.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        stage.mkdir()
        yield stage
        if target.exists():
            old = target.with_name(f".replaced-{os.getpid()}-{target.name}"[:200])
            target.rename(old)
            stage.rename(target)
            shutil.rmtree(old, ignore_errors=True)
        else:
            stage.rename(target)
    except OSError as problem:
        raise LogError(f"cannot write {target}: {problem}. Choose another folder.") from problem
    finally:
        shutil.rmtree(stage, ignore_errors=True)


_SERIES_WITH_ROLE = frozenset(table.series_name(role) for role in table.ROLES)
_LOOK_AHEAD = 8  # packs of rows in which the names are looked for before any is given a role


@dataclass
class Imported:
    """What became of one log."""

    name: str
    format: str
    source: Path
    roles: dict[str, str]
    unit: str
    series: list[RecognisedSeries]
    odd: list[str]
    attempts: int
    path: Path | None = None
    kind: str = ""
    unknown: dict[str, Any] = field(default_factory=dict)

    @property
    def points(self) -> int:
        return sum(series.points for series in self.series)


def imported(
    log: Log,
    source: Path,
    form: str,
    given: Mapping[str, str],
    declared: Mapping[str, Any],
    anomalies: Anomalies,
    target: Path | None,
) -> Imported:
    """Read a log to its end, into `target` where there is one."""
    packs = iter(log.rows)
    ahead = list(islice(packs, _LOOK_AHEAD))
    names = list(dict.fromkeys(name for rows in ahead for name in rows.columns))
    if not names:
        raise LogError(f"{source} has no row of numbers in it")
    mapped = Mapped.of(names, log, given, anomalies)
    axis = Axis.of(ahead, {role: parts[0] for role, parts in mapped.sums.items()} | mapped.roles, anomalies)
    series_by_name: dict[str, RecognisedSeries] = {}
    if target is None:
        for rows in _bounded(chain(ahead, packs), source):
            _take_rows(rows, mapped, axis, series_by_name, None)
    else:
        with staged(target) as stage:
            builder = _Builder(stage)
            for rows in _bounded(chain(ahead, packs), source):
                _take_rows(rows, mapped, axis, series_by_name, builder)
            _check_useful(mapped, series_by_name, source)
            builder.close(_manifest(log, source, form, mapped, axis, anomalies, declared))
    _check_useful(mapped, series_by_name, source)
    recognised = sorted((series for series in series_by_name.values() if series.points), key=_roles_first)
    return Imported(
        source.name,
        form,
        source,
        dict(mapped.roles),
        axis.unit,
        recognised,
        anomalies.lines(),
        axis.attempts,
        target,
        log.kind,
    )


def _bounded(packs: Iterable[LogRows], source: Path) -> Iterator[LogRows]:
    count = 0
    for rows in packs:
        count += rows.count
        if count > MOST_ROWS:
            raise LogError(f"{source} has more than {MOST_ROWS:,} rows: this is no log of a training run")
        yield rows


def _take_rows(
    rows: LogRows, mapped: Mapped, axis: Axis, series_by_name: dict[str, RecognisedSeries], builder: _Builder | None
) -> None:
    columns = mapped.columns(rows)
    for placed in axis.place(rows):
        take = pa.array(placed.rows)
        part: dict[str, pa.Array] = {}
        for series, (source, whole) in columns.items():
            # Speeds and times are often printed twice: only series with a role are noted.
            anomalies = mapped.anomalies if series in _SERIES_WITH_ROLE else Anomalies()
            column = _last_of_each_step(whole.take(take), placed.steps, anomalies)
            there = column.is_valid().to_numpy(zero_copy_only=False)
            if there.any():
                part[series] = column
                values = column.to_numpy(zero_copy_only=False)[there]
                series_by_name.setdefault(series, RecognisedSeries(series, source)).add(placed.steps[there], values)
        if builder is not None:
            builder.write(placed, part)


def _last_of_each_step(column: pa.Array, steps: np.ndarray, anomalies: Anomalies) -> pa.Array:
    """A column in which each step has one value: the last that the log gives."""
    there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    given = steps[there]
    if np.all(given[1:] > given[:-1]):
        return column
    _, back = np.unique(given[::-1], return_index=True)
    if len(back) == len(given):
        return column
    anomalies.note("values given more than once for a step", "the last one counts", f"step {_first_twice(given)}",
             len(given) - len(back))  # fmt: skip
    kept = np.zeros(len(column), bool)
    kept[there[len(given) - 1 - back]] = True
    return pc.if_else(pa.array(kept), column, pa.scalar(None, pa.float64()))


def _first_twice(steps: np.ndarray) -> int:
    distinct, counts = np.unique(steps, return_counts=True)
    return int(distinct[counts > 1][0])


def _check_useful(mapped: Mapped, series_by_name: Mapping[str, RecognisedSeries], source: Path) -> None:
    needed = {table.series_name(role) for role in table.NEEDED}
    if not needed & set(series_by_name):
        names = ", ".join(repr(name) for name in list(mapped.series)[:20]) or "nothing"
        raise LogError(
            f"{source}: no series looks like a loss, a validation loss, a learning rate or a gradient norm; it has "
            f"{names}. Say which is which, such as --map loss=NAME (in Python: map={{'loss': 'NAME'}})"
        )


def _roles_first(series: RecognisedSeries) -> tuple[int, str]:
    order = [table.series_name(role) for role in table.ROLES]
    return (order.index(series.name) if series.name in order else len(order), series.name)


class _Builder:
    """Writes attempts one after the other into a staged folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.last: int | None = None
        self.writer: RunWriter | None = None

    def write(self, placed: Placed, columns: dict[str, pa.Array]) -> None:
        first = int(placed.steps.min())
        if self.writer is None or placed.resumes:
            self._begin(first)
        assert self.writer is not None
        self.writer.write("steps", placed.steps, placed.times, columns)
        end = int(placed.steps.max())
        self.last = end if self.last is None else max(self.last, end)

    def _begin(self, first: int) -> None:
        before = self.last
        if self.writer is not None:
            self.writer.close()
        self.writer = RunWriter(self.root, on_problem=_raise)
        attempt = self.writer.attempt
        if before is None:
            self.writer.event("start", first, attempt=attempt)
        else:
            why = f"the log goes back to step {first} after step {before}"
            self.writer.event("resume", first, attempt=attempt, after_step=before, why=why)
        self.last = None if before is None else first

    def close(self, manifest: dict[str, Any]) -> None:
        if self.writer is None:
            raise LogError("no row has a usable step")
        for line in manifest["imported"]["odd"]:
            self.writer.event("note", None, message=line)
        self.writer.close()
        self.writer.save_manifest(**manifest, attempt=self.writer.attempt)


def _raise(what: str, problem: Exception) -> None:
    raise LogError(f"{what} could not be written: {problem}") from problem


def _manifest(
    log: Log, source: Path, form: str, mapped: Mapped, axis: Axis, anomalies: Anomalies, declared: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "state": "imported",
        "config": {**log.declared, **declared},
        "imported": {
            "format": form,
            "source": source.name,
            "time": time.time(),
            "step_unit": axis.unit,
            "loss_kind": log.kind,
            "roles": {**mapped.roles, **{role: " + ".join(parts) for role, parts in mapped.sums.items()}},
            "config": log.config,
            "odd": anomalies.lines(),
        },
    }
