"""From the names of a log to the series of a run directory; what the table does not know keeps its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steadyrun.errors import LogError
from steadyrun.importers.guide_levels import GuideLevels
from steadyrun.importers.log_rows import LONGEST_NAME, WIDEST, Anomalies, Log, LogRows
from steadyrun.importers.loss_parts import losses_of
from steadyrun.importers.series_roles import (
    EPOCH,
    HIDDEN,
    ROLES,
    STEP,
    TIME,
    group_of,
    rank,
    roles_of,
    series_name,
)
from steadyrun.store.series_catalogue import entry_for

_AXIS = (STEP, EPOCH, TIME)


@dataclass
class RecognisedSeries:
    """What a series turned out to be; `dry-run` shows it."""

    name: str  # in the run directory
    source: str  # in the log
    points: int = 0
    first: int | None = None
    last: int | None = None
    low: float = float("inf")
    high: float = float("-inf")
    bad: int = 0  # points that are not finite
    levels: GuideLevels = field(default_factory=GuideLevels)

    def add(self, steps: np.ndarray, values: np.ndarray) -> None:
        finite = values[np.isfinite(values)]
        self.points += len(values)
        self.bad += len(values) - len(finite)
        self.first = int(steps.min()) if self.first is None else min(self.first, int(steps.min()))
        self.last = int(steps.max()) if self.last is None else max(self.last, int(steps.max()))
        if len(finite):
            self.levels.take(finite)
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))


@dataclass
class Mapped:
    """Which series every name becomes. Names that come later join where their place is still free."""

    roles: dict[str, str]
    sums: Mapping[str, tuple[str, ...]]  # role: the parts whose sum it is
    anomalies: Anomalies
    named: frozenset[str] = frozenset()  # roles that the format or the user names
    series: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        names: Iterable[str],
        log: Log,
        given: Mapping[str, str],
        anomalies: Anomalies,
        axes: Mapping[str, str] | None = None,
    ) -> Mapped:
        """The roles of some names; `axes` has those of the axis, if it was chosen before."""
        there = list(names)
        _check_given(given, there)
        known = {role: name for role, name in log.roles.items() if role not in given and name in there}
        known |= {role: name for role, name in (axes or {}).items() if role in _AXIS}
        roles, named = roles_of(there, {**known, **given}), frozenset({**known, **given})
        if axes is not None:
            roles = {role: name for role, name in roles.items() if role not in _AXIS or role in axes}
        found = losses_of(there, roles).sums
        sums = {role: parts for role, parts in found.items() if role not in given and len(parts) > 1}
        roles |= {role: parts[0] for role, parts in found.items() if role not in given and len(parts) == 1}
        mapped = cls({role: name for role, name in roles.items() if role not in sums}, sums, anomalies, named)
        mapped.extend(there)
        return mapped

    def extend(self, names: Iterable[str]) -> None:
        """Names met for the first time."""
        new = [name for name in names if name not in self.series and name not in self._axes()]
        if len(new) + len(self.series) > WIDEST:
            raise LogError(
                f"more than {WIDEST:,} different names, so it does not look like a training log. Export the metrics "
                "alone, as CSV or JSON lines."
            )
        late = roles_of(new, {}) if self.series else {}
        for role, name in late.items():
            if role not in self.roles and role not in self.sums and role not in _AXIS:
                self.roles[role] = name
        chosen = {name: series_name(role) for role, name in self.roles.items() if role not in _AXIS}
        taken = set(chosen.values())
        for name in new:
            if len(name) > LONGEST_NAME:
                self.anomalies.note(f"names longer than {LONGEST_NAME} characters", "left out", repr(name[:40]))
                continue
            self.series[name] = chosen.get(name) or self._own(name, taken)

    def columns(self, rows: LogRows) -> dict[str, tuple[str, pa.Array]]:
        """Series name to (name in the log, values)."""
        self.extend(rows.columns)
        columns = {self.series[name]: (name, column) for name, column in rows.columns.items() if name in self.series}
        for role, parts in self.sums.items():
            there = [rows.columns[part] for part in parts if part in rows.columns]
            if len(there) == len(parts):
                total = there[0]
                for part in there[1:]:
                    total = pc.add(total, part)
                columns[series_name(role)] = (" + ".join(parts), total)
        return columns

    def _own(self, name: str, roles: set[str]) -> str:
        group = group_of(name)
        if group is not None and "lr" in self.roles and group_of(self.roles["lr"]) is not None:
            first = group_of(self.roles["lr"]) or 0
            if group > first:
                return f"lr/{group - first}"
        taken = name in roles or name in self.series.values() or entry_for(name) is not None
        return f"logged/{name}" if taken else name

    def knows(self, role: str) -> bool:
        """Whether the table, several parts, the format or the user say which series has a role."""
        named = role in self.roles and (role in self.named or rank(role, self.roles[role]) is not None)
        return named or role in self.sums

    def losses(self) -> tuple[list[str], str]:
        """The series that are losses or parts of one, totals first, and what the objective is."""
        found = losses_of(self.series, {role: name for role, name in self.roles.items() if name in self.series})
        totals = [role for role in ("loss", "val_loss") if role in self.roles or role in self.sums]
        parts = [self.series[name] for name in found.names]
        return list(dict.fromkeys([*totals, *parts])), found.objective

    def _axes(self) -> set[str]:
        return {self.roles[role] for role in _AXIS if role in self.roles} | HIDDEN


def _check_given(given: Mapping[str, str], there: list[str]) -> None:
    for role, name in given.items():
        if role not in ROLES:
            raise LogError(f"--map {role}=…: unknown role. Roles are {', '.join(ROLES)}.")
        if name not in there:
            shown = ", ".join(repr(series) for series in there[:30])
            near = get_close_matches(name, there, n=1)
            nearest = f"; the nearest is {near[0]!r}" if near else ""
            raise LogError(f"--map {role}={name}: the log has no series of that name{nearest}. It has {shown}.")
