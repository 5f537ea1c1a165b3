"""The result of a trial: table and verdict, as text, JSON, HTML and a file in the run directory."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from steadyrun.renamed_arguments import renamed
from steadyrun.store.jsonio import dumps, replace_file
from steadyrun.store.trial_record import FILE, SCHEMA, trial_record
from steadyrun.text import counted, shown
from steadyrun.trial.decision import decide, tested
from steadyrun.trial.factor import NotVaried
from steadyrun.trial.setting_rules import share
from steadyrun.trial.statistics import seeds_for
from steadyrun.trial.twin_table import Row, Table, rows_of
from steadyrun.trial.verdict import CLEAR, FAULT, IMPROVEMENT, UNDECIDED, Verdict

EXIT_CODES = {CLEAR: 0, IMPROVEMENT: 0, FAULT: 1, UNDECIDED: 3}
_HEADS = {
    FAULT: "✗ fault",
    CLEAR: "✓ no fault found",
    IMPROVEMENT: "✓ no fault found; one change is better",
    UNDECIDED: "? undecided",
}
_DIFFERENCES = (0.05, 0.02, 0.01)  # fractions of the mean loss, for which the seeds needed are shown


@dataclass(frozen=True)
class Trial:
    """Result of a trial: print it for the verdict and the table of twins."""

    program: str
    config: Mapping[str, Any]
    start: str
    steps: int
    table: Table
    not_varied: tuple[NotVaried, ...] = ()
    untried: tuple[str, ...] = ()  # because the budget ended
    seconds: float = 0.0
    kept: int = 0  # twins reused from earlier trials
    interrupted: bool = False
    asks_about_noise: bool = False  # whether the user gave the number of seeds
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the program's optimizers
    parameters: tuple[str, ...] = ()  # of the model, by name
    command: str = ""
    written: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict; clear only if every change was tried."""
        found = decide(self.table)
        if found.kind != CLEAR or not (self.untried or self.interrupted):
            return found
        tried = len(self.table.curves) - 1
        message = f"The trial tried {tried} of {counted(tried + len(self.untried), 'change')}, and none decides."
        return replace(found, kind=UNDECIDED, message=message, more="give a larger --budget")

    @cached_property
    def rows(self) -> list[Row]:
        return rows_of(self.table)

    @property
    def exit_code(self) -> int:
        """0 without a fault, 1 for a fault, 3 if the trial does not decide."""
        return EXIT_CODES[self.verdict.kind]

    @property
    def tested(self) -> list[str]:
        """The questions that this trial can clear, because it tried their causes."""
        return tested(self.table)

    @property
    def curves(self) -> list[dict[str, Any]]:
        return [
            curve.as_json() | {"words": self.table.factor(name).words}
            for name, curves in self.table.curves.items()
            for curve in curves.values()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Convert to the documented JSON form (docs/trial.md)."""
        verdict = self.verdict
        return {
            "schema": SCHEMA,
            "program": self.program,
            "written": self.written,
            "command": self.command,
            "start": self.start,
            "steps": self.steps,
            "measured_on": self.table.split,
            "verdict": verdict.kind,
            "code": verdict.code,
            "outcome": verdict.outcome,
            "factor": verdict.factor,
            "message": verdict.message,
            "would_decide": verdict.more,
            "fix": verdict.fix,
            "tested": self.tested,
            "noise": self.noise,
            "rows": [_row(row) for row in self.rows],
            "not_varied": [{"factor": each.name, "words": each.words, "why": each.why} for each in self.not_varied],
            "not_tried": list(self.untried),
            "interrupted": self.interrupted,
            "seconds": round(self.seconds, 1),
            "curves": self.curves,
        }

    @property
    def noise(self) -> dict[str, Any]:
        """Mean and standard deviation of the unchanged twins, and the seeds that resolve small differences."""
        ends = [end for end in self.table.ends("own") if math.isfinite(end)]
        mean, deviation = self.table.mean_and_spread("own")
        needed = {f"{part:.1%}": seeds_for(deviation, part * abs(mean)) for part in _DIFFERENCES}  # keys of JSON
        return {"seeds": len(ends), "mean": mean, "deviation": deviation, "seeds_that_show": needed}

    def save(self, run: Path) -> None:
        """Save the result in a run directory for reports, dashboards and post-mortems.

        An undecided result does not replace a decided one.
        """
        before = trial_record(run)
        if before is None or before.verdict == UNDECIDED or self.verdict.kind != UNDECIDED:
            replace_file(run / FILE, dumps(self.to_dict(), indent=1))

    # -- text --------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<steadyrun trial of {self.program!r}, {self.verdict.kind}>"

    @renamed(whole="everything")
    def lines(self, *, everything: bool = False) -> list[str]:
        """Lay out the answer, its evidence and the table; `everything` adds every row and what was not varied."""
        verdict, count = self.verdict, sum(len(curves) for curves in self.table.curves.values())
        head = f"{_HEADS[verdict.kind]}: {verdict.message}"
        lines = [f"{self.program}: {counted(count, 'twin')} of {counted(self.steps, 'step')} in {self._took()}", head]
        lines += [f"  fix: {verdict.fix}"] if verdict.fix else []
        lines += [f"  to decide: {verdict.more}."] if verdict.more else []
        lines += self._noise_lines() if self.asks_about_noise else []
        lines += ["", *self._table(everything)]
        if self.untried:
            words = "; ".join(self.table.factor(name).words for name in self.untried)
            lines.append(f"not tried within the budget: {words} (give a larger --budget)")
        if self.not_varied:
            lines += self._left_out(everything)
        return lines

    def _took(self) -> str:
        took = f"{self.seconds:.0f} s"
        took += f", {self.kept} of them from an earlier trial" if self.kept else ""
        return took + (", stopped with Ctrl-C" if self.interrupted else "")

    def _noise_lines(self) -> list[str]:
        noise = self.noise
        end = f"{shown(noise['mean'])} ± {shown(noise['deviation'])}"
        line = f"  noise: {counted(noise['seeds'], 'seed')}, the loss ends at {end}"
        needed = [f"{size}: {count}" for size, count in noise["seeds_that_show"].items() if count]
        return [line, *([f"  seeds needed to resolve a difference of {', of '.join(needed)}"] if needed else [])]

    def _table(self, whole: bool) -> list[str]:
        """The unchanged twins and the changes by gain; the worst are left out if there are many."""
        rows = sorted(self.rows, key=lambda row: (row.factor != "own", -_brings(row)))
        shown_rows = rows if whole else rows[:_MOST_ROWS]
        lines = [_line(("change", "loss", "better by", "95% interval", "seeds", ""))]
        lines += [_line(_cells(row)) for row in shown_rows]
        hidden = len(self.rows) - len(shown_rows)
        return [*lines, f"  and {hidden} more with smaller gains (--verbose)"] if hidden else lines

    def _left_out(self, whole: bool) -> list[str]:
        if whole:
            return ["not varied:", *(f"  {each.words}: {each.why}" for each in self.not_varied)]
        return [f"not varied: {'; '.join(each.words for each in self.not_varied)} (--verbose shows why)"]

    def _repr_html_(self) -> str:
        cells = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row)) + "</tr>" for row in self.rows
        )
        heads = "".join(f"<th>{name}</th>" for name in ("change", "loss", "better by", "95% interval", "seeds", ""))
        answer = html.escape(f"{_HEADS[self.verdict.kind]}: {self.verdict.message}")
        return f"<p><b>{answer}</b></p><table><tr>{heads}</tr>{cells}</table>"


_MOST_ROWS = 13  # of the table on a terminal


def _brings(row: Row) -> float:
    return row.gain.mean if row.gain is not None and math.isfinite(row.gain.mean) else -math.inf


def _cells(row: Row) -> tuple[str, str, str, str, str, str]:
    gain = row.gain
    finite = gain is not None and math.isfinite(gain.mean)
    by = share(gain.mean) if gain is not None and finite else ""
    interval = f"{share(gain.low)} to {share(gain.high)}" if gain is not None and finite else ""
    loss = shown(row.loss) if math.isfinite(row.loss) else ""
    return (row.words, loss, by, interval, str(row.seeds), row.note)


def _line(cells: tuple[str, ...]) -> str:
    words, loss, by, interval, seeds, note = cells
    return f"  {words:<44} {loss:>9} {by:>9} {interval:>20} {seeds:>5}  {note}".rstrip()


def _row(row: Row) -> dict[str, Any]:
    gain = None if row.gain is None else {"mean": row.gain.mean, "low": row.gain.low, "high": row.gain.high}
    named = {"factor": row.factor, "group": row.group, "words": row.words, "seeds": row.seeds, "loss": row.loss}
    return named | {"gain": gain, "steps_to_own_end": row.speed, "note": row.note}
