"""Run directories out of a log: its rows get series and steps, and are written run by run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain, groupby, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steadyrun.errors import LogError
from steadyrun.importers import series_roles as table
from steadyrun.importers.likely_roles import likely_roles
from steadyrun.importers.log_rows import MOST_ROWS, Anomalies, Log, LogRows
from steadyrun.importers.log_series import Mapped, RecognisedSeries
from steadyrun.importers.loss_parts import NONE, OPPOSED
from steadyrun.importers.processes import Processes
from steadyrun.importers.staging import check_target, put, staged
from steadyrun.importers.step_axis import Axis, Placed
from steadyrun.store.layout import SCHEMA
from steadyrun.store.writer import RunWriter

_SERIES_WITH_ROLE = frozenset(table.series_name(role) for role in table.ROLES)
_LOOK_AHEAD = 8  # packs of rows in which the names are looked for before any is given a role
_MOST_NAMED = 8  # runs in a message
_FEW = 3  # points: a series that has no known role shows nothing with fewer
_AXES = (table.STEP, table.EPOCH, table.TIME)
_ROLES = ("loss", "val_loss", "lr", "grad_norm", table.SCORE)  # one point of these says something


@dataclass
class Imported:
    """What became of one run of a log."""

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
    number: int = 1  # of the run in the log
    runs: int = 1  # in the log

    @property
    def points(self) -> int:
        return sum(series.points for series in self.series)


def span(series: Iterable[RecognisedSeries]) -> tuple[int, int]:
    """The first and the last step of some series."""
    steps = [step for each in series for step in (each.first, each.last) if step is not None]
    return min(steps, default=0), max(steps, default=0)


@dataclass
class _Run:
    """One run while the log is read."""

    number: int
    mapped: Mapped
    unit: str  # of its steps
    builder: _Builder | None
    series: dict[str, RecognisedSeries] = field(default_factory=dict)
    attempts: int = 1
    continues: bool = False  # its loss begins where that of the run before it ended

    def recognised(self) -> list[RecognisedSeries]:
        return sorted((series for series in self.series.values() if series.points), key=_roles_first)


@dataclass(frozen=True)
class Request:
    """What is wanted of a log: roles and intent as the user gives them, which run, and how sure a log has to be."""

    given: Mapping[str, str] = field(default_factory=dict)
    declared: Mapping[str, Any] = field(default_factory=dict)
    run: int | None = None  # only this one
    alone: bool = False  # a log with several runs, of which none is chosen, is an error
    surely: bool = False  # it was found in a folder: what counts no steps and has no loss is passed over


def imported(
    log: Log, source: Path, form: str, wanted: Request, anomalies: Anomalies, target: Path | None
) -> list[Imported]:
    """Read a log to its end, into `target` if there is one; of several runs, the second into `target-2`."""
    packs = _bounded(log.rows, source)
    ahead = list(islice(packs, _LOOK_AHEAD))
    names = list(dict.fromkeys(name for rows in ahead for name in rows.columns))
    if not names:
        if log.failure:
            return [_without_steps(log, source, form, wanted, anomalies, target)]
        raise LogError(f"{source} has no row of numbers. Print at least a step and a loss, such as `step 10 loss 2.5`.")
    mapped = Mapped.of(names, log, wanted.given, anomalies)
    likely = {role: name for role, name in likely_roles(mapped, ahead, source).items() if role not in wanted.given}
    if likely:
        log.roles |= likely
        mapped = Mapped.of(names, log, wanted.given, anomalies)
    roles = {role: parts[0] for role, parts in mapped.sums.items()} | mapped.roles
    windows = chain([ahead], ([pack] for pack in packs))
    with nullcontext() if target is None else staged(target) as stage:
        runs = _read(windows, roles, log, wanted, anomalies, stage)
        if not runs:
            raise LogError(f"{source}: no row has a usable step. Name the column that counts with --map step=NAME.")
        _tell_objective([run.mapped for run in runs], anomalies)
        for before, run in pairwise(runs):
            run.continues = _goes_on(before, run)
        _check_useful(runs, source, wanted)
        chosen = _chosen(runs, wanted, source)
        outcomes = []
        for run in chosen:
            place = _place(target, run, len(runs), wanted.run)
            if run.builder is not None and place is not None:
                check_target(place, source)
                run.builder.close(_manifest(log, source, form, run, len(runs), anomalies, wanted))
            about = (source.name, form, source, dict(run.mapped.roles), run.unit, run.recognised(), anomalies.lines())
            outcomes.append(Imported(*about, run.attempts, place, log.kind, run.number, len(runs)))
        for run, outcome in zip(chosen, outcomes, strict=True):
            if run.builder is not None and outcome.path is not None:
                put(run.builder.root, outcome.path)
    return outcomes


def _without_steps(
    log: Log, source: Path, form: str, wanted: Request, anomalies: Anomalies, target: Path | None
) -> Imported:
    """The run of a program that ended before its first step: it holds how the program ended."""
    run = _Run(1, Mapped.of((), log, {}, anomalies), "step", None)
    if target is not None:
        with staged(target) as stage:
            builder = _Builder(stage / "1")
            builder.begin(None)
            builder.close(_manifest(log, source, form, run, 1, anomalies, wanted))
            put(builder.root, target)
    return Imported(source.name, form, source, {}, run.unit, [], anomalies.lines(), 1, target)


def _tell_objective(every: list[Mapped], anomalies: Anomalies) -> None:
    """Say why nothing in any run got the role of the loss."""
    if any({"loss", table.SCORE} & (mapped.roles.keys() | mapped.sums.keys()) for mapped in every):
        return
    objective = every[-1].losses()[1]
    if objective == OPPOSED:
        anomalies.note(
            "losses of players against each other", "each is kept under its name because their sum need not fall"
        )
    elif objective == NONE:
        done = "all are kept; --map loss=NAME names one, --map score=NAME a reward, accuracy or other score"
        anomalies.note("no series looks like a loss", done)


def _place(target: Path | None, run: _Run, count: int, only: int | None) -> Path | None:
    if target is None or only is not None or count == 1:
        return target
    return target.with_name(f"{target.name}-{run.number}")


def _read(
    windows: Iterable[list[LogRows]],
    roles: dict[str, str],
    log: Log,
    wanted: Request,
    anomalies: Anomalies,
    stage: Path | None,
) -> list[_Run]:
    """All the runs of a log; only what is wanted is written. Of processes that take turns, one after the other."""
    readings: list[_Reading] = []
    processes = Processes()
    for packs in windows:
        if not readings:
            processes = Processes.of(packs, Axis.of(packs, roles, Anomalies()), anomalies)
        rows = processes.apart(packs)
        if not readings:
            only = wanted.run if len(rows) == 1 else None
            folders = [f"{index}" if len(rows) > 1 else "" for index in range(len(rows))]
            places = [None if stage is None else stage / folder for folder in folders]
            axes = [Axis.of(each, roles, anomalies) for each in rows]
            readings = [
                _Reading(axis, log, wanted.given, only, place) for axis, place in zip(axes, places, strict=True)
            ]
        for reading, each in zip(readings, rows, strict=True):
            reading.take(each)
    runs = [run for reading in readings for run in reading.runs]
    for number, run in enumerate(runs, start=1):
        run.number = number
    return runs


@dataclass
class _Reading:
    """What one process wrote, run by run. Roles are given to each run by the names that it has."""

    axis: Axis
    log: Log
    given: Mapping[str, str]
    only: int | None  # the run that is written; all of them if none is named
    stage: Path | None
    runs: list[_Run] = field(default_factory=list)

    def take(self, packs: list[LogRows]) -> None:
        for stretch in _stretches([(pack, placed) for pack in packs for placed in self.axis.place(pack)]):
            if not self.runs or (stretch[0][1].begins and self.runs[-1].series):
                self._begin(_names(stretch))
            run = self.runs[-1]
            for pack, together in groupby(stretch, key=lambda part: part[0]):
                columns = run.mapped.columns(pack)
                for _, placed in together:
                    run.attempts += placed.resumes
                    _take(placed, columns, run)

    def _begin(self, names: list[str]) -> None:
        if self.runs and self.runs[-1].builder is not None:
            self.runs[-1].builder.pause()
        number = len(self.runs) + 1
        given = {role: name for role, name in self.given.items() if name in names}
        mapped = Mapped.of(names, self.log, given, self.axis.anomalies, self.axis.roles)
        written = self.stage if self.only in (None, number) else None
        builder = None if written is None else _Builder(written / str(number))
        self.runs.append(_Run(number, mapped, self.axis.unit, builder))


def _stretches(parts: list[tuple[LogRows, Placed]]) -> list[list[tuple[LogRows, Placed]]]:
    """Parts of a log, those of one run together."""
    stretches: list[list[tuple[LogRows, Placed]]] = []
    for pack, placed in parts:
        if placed.begins or not stretches:
            stretches.append([])
        stretches[-1].append((pack, placed))
    return stretches


def _names(stretch: list[tuple[LogRows, Placed]]) -> list[str]:
    """The names that have a value in some rows; if none has, those of the columns."""
    there = (
        name for pack, placed in stretch for name, column in pack.columns.items()
        if np.any(column.is_valid().to_numpy(zero_copy_only=False)[placed.rows])
    )  # fmt: skip
    return list(dict.fromkeys(there)) or list(dict.fromkeys(name for pack, _ in stretch for name in pack.columns))


def _chosen(runs: list[_Run], wanted: Request, source: Path) -> list[_Run]:
    if wanted.run is not None and not 1 <= wanted.run <= len(runs):
        raise LogError(f"{source} has no run {wanted.run}. It holds {_listed(runs)}.")
    if wanted.run is None and wanted.alone and len(runs) > 1:
        raise LogError(f"{source} holds {_listed(runs)}. Choose one with run=N (on the command line: --run N).")
    return runs if wanted.run is None else [runs[wanted.run - 1]]


def _goes_on(before: _Run, run: _Run) -> bool:
    """Whether the loss of a run surely begins at the level at which the run before it ended: it kept the weights."""
    ended, begun = before.series.get("loss"), run.series.get("loss")
    return ended is not None and begun is not None and ended.levels.surely_goes_on(np.array(begun.levels.began))


def _listed(runs: list[_Run]) -> str:
    steps = [(each.number, *span(each.recognised())) for each in runs[:_MOST_NAMED]]
    listed = ", ".join(f"{number} (steps {first} to {last})" for number, first, last in steps)
    more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''}: {listed}{more}"


def _bounded(packs: Iterable[LogRows], source: Path) -> Iterator[LogRows]:
    count = 0
    for rows in packs:
        count += rows.count
        if count > MOST_ROWS:
            raise LogError(
                f"{source} has more than {MOST_ROWS:,} rows, so it does not look like a training log. Keep every "
                "hundredth row."
            )
        yield rows


def _take(placed: Placed, columns: Mapping[str, tuple[str, pa.Array]], run: _Run) -> None:
    take = pa.array(placed.rows)
    part: dict[str, pa.Array] = {}
    for series, (source, whole) in columns.items():
        # Speeds and times are often printed twice: only series with a role are noted.
        anomalies = run.mapped.anomalies if series in _SERIES_WITH_ROLE else Anomalies()
        column = _last_of_each_step(whole.take(take), placed.steps, anomalies)
        there = column.is_valid().to_numpy(zero_copy_only=False)
        if there.any():
            part[series] = column
            values = column.to_numpy(zero_copy_only=False)[there]
            run.series.setdefault(series, RecognisedSeries(series, source)).add(placed.steps[there], values)
    if run.builder is not None:
        run.builder.write(placed, part)


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


def _check_useful(runs: list[_Run], source: Path, wanted: Request) -> None:
    """A log has a known series, or any other with a few points; one found in a folder also counts steps or epochs."""
    known = [{table.series_name(role) for role in _ROLES if run.mapped.knows(role)} for run in runs]
    if any(names & set(run.series) for names, run in zip(known, runs, strict=True)):
        return
    surely = not wanted.surely or runs[0].unit != "point" or any(run.mapped.losses()[0] for run in runs)
    if surely and any(series.points >= _FEW for run in runs for series in run.series.values()):
        return
    names = ", ".join(repr(name) for run in runs[:1] for name in list(run.mapped.series)[:20]) or "nothing"
    raise LogError(
        f"{source}: no series looks like a loss, a learning rate or a gradient norm, and none has {_FEW} points on an "
        f"axis of steps or epochs. It has {names}. Name one of them with --map loss=NAME, or with --map score=NAME if "
        f"it has to rise (in Python: mapping={{'loss': 'NAME'}})."
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
            self.begin(first)
        assert self.writer is not None
        self.writer.write("steps", placed.steps, placed.times, columns)
        end = int(placed.steps.max())
        self.last = end if self.last is None else max(self.last, end)

    def begin(self, first: int | None) -> None:
        """Begin an attempt at a step; at none if the program made none."""
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

    def pause(self) -> None:
        """End the files of a run after which another begins; its manifest is written when the log was read."""
        if self.writer is not None:
            self.writer.close()

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
    log: Log,
    source: Path,
    form: str,
    run: _Run,
    runs: int,
    anomalies: Anomalies,
    wanted: Request,
) -> dict[str, Any]:
    mapped = run.mapped
    losses, objective = mapped.losses()
    roles = {**mapped.roles, **{role: " + ".join(parts) for role, parts in mapped.sums.items()}}
    return {
        "schema": SCHEMA,
        "state": "imported",
        **({"failure": log.failure} if log.failure and run.number == runs else {}),
        "config": {**log.declared, **wanted.declared},
        "imported": {
            "format": form,
            "source": source.name,
            "run": run.number,
            "runs": runs,
            "time": time.time(),
            "step_unit": run.unit,
            "loss_kind": log.kind,
            "roles": {
                role: name for role, name in roles.items() if role in _AXES or table.series_name(role) in run.series
            },
            "losses": [name for name in losses if name in run.series],
            "objective": objective,
            "config": log.config,
            "odd": anomalies.lines(),
            **({"continues": True} if run.continues else {}),
        },
    }
