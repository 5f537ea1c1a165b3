"""Which run and which step a row belongs to: steps that go back, start over in every epoch, collide or are missing.

Only the rows that have the *guide*, the loss if there is one, decide whether a log goes back: a validation or a summary
often counts something else. A row without a step belongs to the step of the row before it.

A log that goes back keeps what came before, and resumes, or it keeps nothing, and then another run begins. If something
above the epochs changes (a fold, a seed), the run may be as short as it likes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from steadyrun.importers.counters import FEWEST_EPOCHS, first_again, measures, never_falls, step_columns, tells_apart
from steadyrun.importers.guide_levels import GuideLevels
from steadyrun.importers.log_rows import Anomalies, LogRows
from steadyrun.importers.row_marks import (
    Flags,
    Integers,
    changes,
    floats,
    guide_series,
    guided,
    guiding,
    present,
    run_counters,
)
from steadyrun.importers.series_roles import EPOCH, EPOCH_LENGTH, STEP, TIME
from steadyrun.signals.curves import Floats

MOST_ATTEMPTS = 60  # more resumes than this: the steps are in no order
MOST_RUNS = 100  # in one file; the same holds
_SPARSE = 0.1  # of the way so far: a start that is logged at its first interval, and not before
NEAR_START = 0.05  # of the way so far: a resume keeps more of the run than this
_RESTARTED = 0.25  # the same if the program says that it starts: a checkpoint lies nearer to the end
FEWEST_POINTS = 5  # of the stretches of a log, on average, or of the one before: shorter ones are epochs without a name
_AHEAD = 3  # points at once, of which a log may leave out two: another fold or stage that begins further on is a run
_ELSEWHERE = 0.5  # of the guide's count: a series that stays below it counts something else, such as epochs
_MOST = 0.8  # of the points of a series, to say so; the first ones of two counters are alike
_FEWEST_ELSEWHERE = 3
_COLLIDE = 0.5  # distinct steps per point: below it most points lie on the step of another
_FEWEST_COLLIDING = 10
LARGEST = 2.0**53
_SECONDS, _MILLISECONDS = (1e8, 1e11), (1e11, 1e14)  # since 1970


@dataclass(frozen=True)
class Placed:
    """A part of the rows that belongs to one attempt: which rows, at which steps and times."""

    rows: Integers
    steps: Integers
    times: Floats
    resumes: bool  # the log went back before it
    begins: bool = False  # another run begins with it


@dataclass(frozen=True)
class _Cut:
    """The first row after the log goes back: a resume, another run, or an epoch whose steps count on."""

    row: int
    offset: float
    resumes: bool = False
    begins: bool = False


@dataclass(frozen=True)
class _Fall:
    """Two neighbouring points of the guide of which the second has the lower count."""

    row: int  # the first that belongs to the second
    before: float
    now: float
    ahead: float  # the count after it
    epoch_before: float
    epoch: float
    gap: float  # between points before it
    after: Floats  # the next values of the guide
    then: tuple[float, float]  # the counts between which the log goes back the next time
    changed: bool = False  # another fold, seed or stage
    started: bool = False  # the program says that it starts
    long: bool = False  # the stretches of the log are long on average: a short one is a start that was given up


@dataclass
class Axis:
    """Gives every row a step, in the order of the log, pack by pack."""

    roles: dict[str, str]
    anomalies: Anomalies
    guides: tuple[str, ...]  # the series whose rows show whether the log went back: each in its stretch of the log
    counters: tuple[str, ...] = ()  # what stands above the epochs: a fold, a seed, a start of the program
    unit: str = "step"  # "epoch" if the log counts nothing else, "point" if it counts nothing usable
    runs: int = 1
    attempts: int = 1  # of the run
    _carried: float = float("nan")  # the count of the last row
    _count: float = float("nan")  # that of the last row with the guide
    _epoch: float = float("nan")
    _gap: float = 1.0
    _offset: float = 0.0
    _points: list[float] = field(default_factory=list)  # the count of each point, where points are the steps
    _first: tuple[float, float] | None = None  # count and epoch with which the run began
    _seen: int = 0  # points of the run that were further than all before them
    _highest: float = -np.inf  # count of the run
    _levels: GuideLevels = field(default_factory=GuideLevels)  # of the guide in the run
    _top: float = float("nan")  # the count from which the log last went back
    _base: float = float("nan")  # the epoch from which steps of known epochs are counted
    _offsets: dict[float, float] = field(default_factory=dict)  # of each epoch whose steps started over
    _elsewhere: set[str] = field(default_factory=set)  # series that count something else
    _above: dict[str, float] = field(default_factory=dict)  # the last value of each counter above the epochs

    @classmethod
    def of(cls, ahead: Iterable[LogRows], roles: dict[str, str], anomalies: Anomalies) -> Axis:
        """The axis of a log that begins with these rows."""
        packs = list(ahead)
        names = list(dict.fromkeys(name for rows in packs for name in rows.columns))
        guides, epoch = guide_series(packs, names, roles), roles.get(EPOCH)
        counters = run_counters(packs, guides)
        steps = step_columns(names, roles.get(STEP))
        moving = {name for name in steps if measures(packs, name, epoch, guides)}
        apart = [
            name for name in steps
            if name not in moving and not cls({**roles, STEP: name}, Anomalies(), guides, counters)._collides(packs)
        ]  # fmt: skip
        on = [name for name in apart if never_falls(packs, name, epoch, guides)]
        counter = next(iter([*(name for name in on if tells_apart(packs, name, guides)), *on, *apart]), None)
        if counter is not None:
            if steps[0] in moving or steps[0] not in apart:
                _tell_passed_over(anomalies, steps[0], steps[0] in moving, f"steps are read from {counter!r}")
            return cls({**roles, STEP: counter}, anomalies, guides, counters)
        if epoch in names and measures(packs, str(epoch), None, guides):
            _tell_passed_over(anomalies, str(epoch), True, "points are counted instead")
            roles = {role: name for role, name in roles.items() if role != EPOCH}
        whole = roles.get(EPOCH) in names and cls(roles, anomalies, guides, counters)._once_each(packs)
        if steps:
            counted = "epochs are counted instead" if whole else "points are counted instead"
            _tell_passed_over(anomalies, steps[0], steps[0] in moving, counted)
        rest = {role: name for role, name in roles.items() if role != STEP}
        return cls(rest, anomalies, guides, counters, "epoch" if whole else "point")

    def _collides(self, packs: list[LogRows]) -> bool:
        """Whether most values of the guide lie on the step of another value: such a column counts something else."""
        each: list[Integers] = []  # values on each step
        for rows in packs:
            values = guiding(rows, self.guides)
            for part in self.place(rows):
                there = np.isfinite(values[part.rows])
                pairs = np.unique(np.stack([part.steps[there], values[part.rows][there]]), axis=1)
                each.append(np.unique(pairs[0], return_counts=True)[1])
        counts = np.concatenate([*each, np.zeros(0, np.int64)])
        points = int(np.sum(counts))
        if points < _FEWEST_COLLIDING:
            return len(counts) == 1 and points >= _FEWEST_ELSEWHERE  # all on one step
        return len(counts) < _COLLIDE * points or _vary(counts)

    @np.errstate(invalid="ignore", over="ignore")  # epochs and losses may be infinite; what is compared is then false
    def place(self, rows: LogRows) -> list[Placed]:
        """The rows with their steps, cut where the log goes back."""
        counts = self._counts(rows)
        usable = np.isfinite(counts) & (np.abs(counts) < LARGEST)
        if not np.all(usable):
            self.anomalies.note("rows without a usable step", "left out", count=int(np.sum(~usable)))
        guides = np.flatnonzero(guided(rows, self.guides) & usable)
        counts = np.where(usable, counts, 0.0)
        if self.unit == "step":
            counts = self._brought_together(rows, counts, guides)
        epochs, values = floats(rows, self._epochs_name()), guiding(rows, self.guides)
        cuts = self._cuts(counts, epochs, values, guides, changes(rows, guides, self.counters, self._above))
        if self.unit == "point":
            return self._by_points(rows, counts, usable, guides, cuts)
        steps = self._steps(counts, usable, cuts)
        times = self._times(rows)
        starts = {cut.row: cut for cut in cuts if cut.resumes or cut.begins}
        placed: list[Placed] = []
        for start, end in pairwise([0, *starts, rows.count]):
            placed += self._part(start, end, steps, times, usable, starts.get(start))
        return placed

    def _steps(self, counts: Floats, usable: Flags, cuts: list[_Cut]) -> Integers:
        """What the log counts, with all the steps before an epoch that starts over."""
        lengths = np.diff([0, *(cut.row for cut in cuts), len(counts)])
        offsets = np.repeat([self._offset, *(cut.offset for cut in cuts)], lengths)
        self._offset = cuts[-1].offset if cuts else self._offset
        return np.rint(np.where(usable, counts + offsets, 0.0)).astype(np.int64)

    def _by_points(
        self, rows: LogRows, counts: Floats, usable: Flags, guides: Integers, cuts: list[_Cut]
    ) -> list[Placed]:
        """Every row with the guide is a step; after a resume, counting goes on where the log went back to."""
        times, at = self._times(rows), np.zeros(rows.count, np.int64)
        guided = np.zeros(rows.count, bool)
        guided[guides] = True
        starts = {cut.row: cut for cut in cuts if cut.resumes or cut.begins}
        placed: list[Placed] = []
        start = 0
        for row in range(rows.count):
            if row in starts:
                placed += self._part(start, row, at, times, usable, starts.get(start))
                del self._points[0 if starts[row].begins else bisect_left(self._points, counts[row]) :]
                start = row
            if guided[row]:
                self._points.append(counts[row])
            at[row] = max(len(self._points) - 1, 0)
        return placed + self._part(start, rows.count, at, times, usable, starts.get(start))

    def _part(self, start: int, end: int, at: Integers, times: Floats, usable: Flags, cut: _Cut | None) -> list[Placed]:
        where = np.arange(start, end)[usable[start:end]]
        resumes, begins = (cut.resumes, cut.begins) if cut else (False, False)
        return [Placed(where, at[where], times[where], resumes, begins)] if len(where) else []

    def _counts(self, rows: LogRows) -> Floats:
        """What the log counts, for each row; of a row that says nothing that of the row before."""
        name = self.roles.get(STEP if self.unit == "step" else EPOCH)
        if name is None:
            return np.zeros(rows.count)
        there = present(rows, name)
        if not np.all(there) and self.unit != "point":
            self.anomalies.note("rows without a step", "placed at the step before them", count=int(np.sum(~there)))
        column = floats(rows, name)
        if self.unit == "step" and EPOCH_LENGTH in rows.columns:
            column = self._through_epochs(rows, column)
        before = self._carried
        if np.isnan(before):
            before = column[there][0] if np.any(there) else 0.0
        last = np.maximum.accumulate(np.where(there, np.arange(rows.count), -1))
        counts: Floats = np.where(last >= 0, column[np.maximum(last, 0)], before)
        self._carried = float(counts[-1]) if rows.count else before
        return counts

    def _through_epochs(self, rows: LogRows, column: Floats) -> Floats:
        """Steps within epochs of known length, counted through all epochs; an excerpt keeps its place."""
        epochs, lengths = floats(rows, self.roles.get(EPOCH)), floats(rows, EPOCH_LENGTH)
        inside = np.isfinite(epochs) & (column <= lengths)
        if np.isnan(self._base) and np.any(inside):
            self._base = min(float(epochs[inside][0]), 1.0)
        return np.where(inside, column + (epochs - self._base) * lengths, column)

    def _brought_together(self, rows: LogRows, counts: Floats, guides: Integers) -> Floats:
        """Rows of series that count epochs while the guide counts steps, at the step of the guide before them."""
        others = np.ones(rows.count, bool)
        others[guides] = False
        before = np.searchsorted(guides, np.arange(rows.count)) - 1
        others &= (before >= 0) & present(rows, self.roles.get(STEP))
        if not np.any(others):
            return counts
        last, following = guides[np.maximum(before, 0)], guides[np.minimum(before + 1, len(guides) - 1)]
        low = others & (counts < _ELSEWHERE * np.minimum(counts[last], counts[following]))
        moved = np.zeros(rows.count, bool)
        for name in rows.columns.keys() - {self.roles.get(role) for role in (STEP, EPOCH, TIME)}:
            there = others & present(rows, name)
            if name not in self._elsewhere and self._counts_else(there, low, before):
                self._elsewhere.add(name)
                self.anomalies.note("series that count something else than steps", "placed at the step before", name)
            moved |= there & (name in self._elsewhere)
        return np.where(moved, counts[last], counts)

    def _counts_else(self, there: Flags, low: Flags, before: Integers) -> bool:
        points = int(np.sum(there))
        if points < _FEWEST_ELSEWHERE or np.sum(low & there) < _MOST * points:
            return False
        return len(np.unique(before[there])) >= _MOST * points

    def _once_each(self, packs: list[LogRows]) -> bool:
        """Whether epochs are whole and each has one point, so that they can stand for steps."""
        above: dict[str, float] = {}
        found = [(floats(rows, self.roles[EPOCH]), np.flatnonzero(guided(rows, self.guides)), rows) for rows in packs]
        epochs = np.concatenate([column[guides] for column, guides, _ in found])
        marked = np.concatenate([changes(rows, guides, self.counters, above)[0] for _, guides, rows in found])
        there = np.isfinite(epochs)
        epochs, marked = epochs[there], marked[there]
        again = (epochs[1:] == epochs[:-1]) & ~marked[1:] & ~first_again(epochs)
        return bool(np.all(epochs == np.rint(epochs))) and not np.any(again)

    def _cuts(
        self, counts: Floats, epochs: Floats, values: Floats, guides: Integers, changes: tuple[Flags, Flags]
    ) -> list[_Cut]:
        """Where the log goes back, by the rows that have the guide."""
        if not len(guides):
            return []
        along = np.concatenate([[self._count], counts[guides]])
        past = np.concatenate([[self._epoch], epochs[guides]])
        losses, gaps = values[guides], self._gaps(along)
        self._first = self._first or (along[1], past[1])
        cuts: list[_Cut] = []
        offset, done = self._offset, 0
        back, (changed, started) = along[1:] < along[:-1], changes
        if self.unit == "epoch":
            started = started | np.concatenate([[False], first_again(along[1:])])
        ahead = np.diff(along)
        marked = (changed & ~((ahead > 0) & (ahead <= _AHEAD * gaps[:-1]))) | started
        falls = [*np.flatnonzero(back).tolist(), len(losses)]
        long = len(losses) >= FEWEST_POINTS * len(falls)
        for index in np.flatnonzero(back | marked).tolist():
            following = falls[bisect_right(falls, index)]
            again = following < len(losses)
            self._pass(losses[done:index], along[done + 1 : index + 1])
            done = index
            row = _first_back(counts, int(guides[index - 1]) + 1 if index else 0, int(guides[index]), along[index])
            fall = _Fall(
                row, along[index], along[index + 1], along[index + 2] if index + 2 < len(along) else -np.inf,
                past[index], past[index + 1], gaps[index], losses[index : min(index + FEWEST_POINTS, following)],
                (along[following], along[following + 1]) if again else (np.nan, np.nan), bool(changed[index]),
                bool(started[index]), long,
            )  # fmt: skip
            cut = self._cut(fall, offset)
            if cut is not None:
                cuts.append(cut)
                offset = cut.offset
            self._top = fall.before if back[index] else self._top
        self._pass(losses[done:], along[done + 1 :])
        self._gap, self._count, self._epoch = float(gaps[-1]), float(along[-1]), float(past[-1])
        return cuts

    def _cut(self, fall: _Fall, offset: float) -> _Cut | None:
        """What it means that the log goes back here; None if points are merely out of order."""
        where = f"{fall.now:g} after {fall.before:g}"
        if (fall.changed or fall.started) and self._starts_over(fall):
            self._begin(fall.now, fall.epoch)
            self.anomalies.note("times the steps start over with another fold, seed or start", "read as another run")
            return _Cut(fall.row, 0.0, begins=True)
        if not fall.now < fall.before:
            return None
        if fall.epoch > fall.epoch_before or self._goes_on(fall):
            offset += fall.before if fall.now > 0 else fall.before + fall.gap - fall.now
            if fall.epoch > fall.epoch_before:
                self._offsets[fall.epoch] = offset
            self._highest = -np.inf
            self.anomalies.note("epochs whose steps start over", "steps counted on from the epoch before")
            return _Cut(fall.row, offset)
        if fall.ahead <= fall.before and self._begins(fall):
            self._begin(fall.now, fall.epoch)
            self.anomalies.note("times the steps go back to their start", "read as another run", where)
            return _Cut(fall.row, 0.0, begins=True)
        if fall.ahead <= fall.before and self.attempts < MOST_ATTEMPTS:
            self.attempts += 1
            self.anomalies.note("times the steps go back", "kept as a resume, the later points count", where)
            return _Cut(fall.row, self._offsets.get(fall.epoch, offset), resumes=True)
        self.anomalies.note("points out of order", "sorted by step", where)
        return None

    def _pass(self, losses: Floats, counts: Floats) -> None:
        """Remember how the guide began in this run, its last values, and how far it came."""
        highest = np.maximum.accumulate(np.concatenate([[self._highest], counts]))
        self._seen += int(np.sum(np.diff(highest) > 0))
        self._highest = float(highest[-1])
        self._levels.take(losses)

    def _begin(self, count: float, epoch: float) -> None:
        self.runs, self.attempts, self._first, self._seen = self.runs + 1, 1, (count, epoch), 0
        self._levels, self._highest = GuideLevels(), -np.inf
        self._offsets.clear()

    def _begins(self, fall: _Fall) -> bool:
        """Whether another run begins here: nothing that is worth a resume is kept of the one before."""
        same_epoch = fall.epoch <= fall.epoch_before  # it is named, so nothing starts over in it
        fewest = 1 if fall.long or same_epoch else FEWEST_EPOCHS if self.unit == "epoch" else FEWEST_POINTS
        if self._seen < fewest or self.runs >= MOST_RUNS or self._first is None:
            return False
        first, before, now = self._first[0], fall.before, fall.now
        if self._offsets:  # steps start over in every epoch: the epochs say how far back it goes
            first, before, now = self._first[1], fall.epoch_before, fall.epoch
        elif 0 < fall.then[1] - before <= 2 * fall.gap:
            return False  # the next time it goes back to just after here: processes take turns in writing
        near = now <= first + NEAR_START * (before - first)
        sparse = not self._offsets and now <= min(fall.ahead - now, _SPARSE * before)
        return bool(near or sparse)  # every tenth is logged, from the tenth on

    def _starts_over(self, fall: _Fall) -> bool:
        """Whether the epochs, or else the steps, are at their start; in another fold or stage, whether they go back."""
        if self._first is None or self.runs >= MOST_RUNS:
            return False
        first, before, now = self._first[1], fall.epoch_before, fall.epoch
        through = fall.now <= fall.before or fall.epoch_before > first  # a resume keeps steps that count through epochs
        if (through and not fall.changed and not self._offsets) or np.isnan(first) or np.isnan(now):
            first, before, now = self._first[0], fall.before, fall.now
        near = _RESTARTED if fall.started else NEAR_START
        elsewhere = now < before or (np.isnan(fall.epoch) and now > before + _AHEAD * fall.gap)
        return bool((fall.changed and elsewhere) or now <= first + near * max(before - first, 0.0))

    def _goes_on(self, fall: _Fall) -> bool:
        """Whether a count starts over within a run: in epochs that the log does not name, the loss goes on.

        Steps that always start over at one count need no more than a loss that does not jump back: a noisy one shows
        nothing. Epochs with a name seldom start over within a run: they need both, that count and a loss that goes on.
        """
        if not np.isnan(fall.epoch):
            return False
        regular = fall.before in (self._top, fall.then[0])
        first = fall.now if self._first is None else self._first[0]
        if self.unit != "step" or fall.now > first + NEAR_START * (fall.before - first):
            return regular and self._levels.goes_on(fall.after)
        return not self._levels.jumps_back(fall.after) if regular else self._levels.surely_goes_on(fall.after)

    def _gaps(self, along: Floats) -> Floats:
        """At each place the last step forward up to it: what an epoch that starts over at zero goes on with."""
        gaps = np.diff(along, prepend=np.nan)
        last = np.maximum.accumulate(np.where(gaps > 0, np.arange(len(gaps)), -1))
        last_gaps: Floats = np.where(last >= 0, gaps[np.maximum(last, 0)], self._gap)
        return last_gaps

    def _epochs_name(self) -> str | None:
        return self.roles.get(EPOCH) if self.unit == "step" else None

    def _times(self, rows: LogRows) -> Floats:
        times = floats(rows, self.roles.get(TIME))
        seconds = np.where((times > _MILLISECONDS[0]) & (times < _MILLISECONDS[1]), times / 1000, times)
        return np.where((seconds > _SECONDS[0]) & (seconds < _SECONDS[1]), seconds, np.nan)


def _vary(counts: Integers) -> bool:
    """Whether most steps hold several values, now more, now fewer: ranks of a training write equally many each."""
    alike = np.max(np.bincount(counts)) / len(counts)
    return bool(np.sum(counts > 1) > _COLLIDE * len(counts) and alike < _MOST)


def _tell_passed_over(anomalies: Anomalies, name: str, moves: bool, done: str) -> None:
    what = f"{name!r} goes up and down" if moves else f"most values share the {name!r} of another"
    anomalies.note(what, done)


def _first_back(counts: Floats, start: int, end: int, before: float) -> int:
    """The first row after the last guide whose count also went back: a validation printed before its step."""
    back = np.flatnonzero(counts[start:end] < before)
    return start + int(back[0]) if len(back) else end
