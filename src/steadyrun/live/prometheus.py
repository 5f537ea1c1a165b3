"""The list of runs in Prometheus' text format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from steadyrun.live.run_list import MEASURED
from steadyrun.live.run_row import Figures, RunRow
from steadyrun.store.layout import ENDED

KIND = "text/plain; version=0.0.4; charset=utf-8"
_STATES = ("running", *sorted(ENDED), "unreadable", "unknown")
_VERDICTS = ("healthy", "suspect", "fault", "cannot-tell")
_NOTHING = Figures()

Sample = tuple[dict[str, str], float]


def exposition(rows: Sequence[RunRow], left_out: int, now: float) -> str:
    """All metrics. Unknown values have no sample; NaN is a measured value."""
    named = list(zip(_names(rows), rows, strict=True))

    def samples(value: Callable[[RunRow], float | None]) -> list[Sample]:
        return [({"run": name}, number) for name, row in named if (number := value(row)) is not None]

    parts = [
        _family("steadyrun_runs", "Number of runs in the served folder.", [({}, float(len(rows) + left_out))]),
        _family(
            "steadyrun_runs_left_out",
            f"Number of runs beyond the newest {MEASURED}, which have no metrics.",
            [({}, float(left_out))],
        ),
        _family("steadyrun_run_state", "1 for the current state of the run.", _set(named, "state", _STATES, _state)),
        _family("steadyrun_run_last_step", "The last recorded step.", samples(lambda row: row.step)),
        _family("steadyrun_run_loss", "The last training loss.", samples(lambda row: _of(row).loss)),
        _family("steadyrun_run_val_loss", "The last validation loss.", samples(lambda row: _of(row).val_loss)),
        _family(
            "steadyrun_run_learning_rate",
            "The last learning rate of the first parameter group.",
            samples(lambda row: _of(row).lr),
        ),
        _family(
            "steadyrun_run_grad_norm",
            "The last gradient norm before clipping.",
            samples(lambda row: _of(row).grad_norm),
        ),
        _family(
            "steadyrun_run_last_point_age_seconds",
            "Seconds since the last of these values was recorded.",
            samples(lambda row: None if (at := _of(row).at) is None else max(0.0, now - at)),
        ),
        _family(
            "steadyrun_run_verdict", "1 for the verdict.", _set(named, "verdict", _VERDICTS, lambda row: row.verdict)
        ),
        _family("steadyrun_run_fault", "1 if a fault was found; leaf is its code.", _found(named, "fault")),
        _family("steadyrun_run_suspect", "1 if the headline is a suspect; leaf is its code.", _found(named, "suspect")),
    ]
    return "".join(parts)


def _of(row: RunRow) -> Figures:
    return row.figures or _NOTHING


def _state(row: RunRow) -> str:
    return row.state if row.state in _STATES else "unknown"


def _set(
    named: Iterable[tuple[str, RunRow]], label: str, choices: Sequence[str], chosen: Callable[[RunRow], str]
) -> list[Sample]:
    """One sample per choice, 1 for the current one; none if it is unknown."""
    known = [(name, choice) for name, row in named if (choice := chosen(row)) in choices]
    return [
        ({"run": name, label: label_value}, float(label_value == choice))
        for name, choice in known
        for label_value in choices
    ]


def _found(named: Iterable[tuple[str, RunRow]], verdict: str) -> list[Sample]:
    known = [(name, row) for name, row in named if row.verdict in _VERDICTS]
    return [
        ({"run": name, "leaf": row.leaf if row.verdict == verdict else ""}, float(row.verdict == verdict))
        for name, row in known
    ]


def _names(rows: Sequence[RunRow]) -> list[str]:
    """The label of each run: its name, or its address if two names look the same."""
    count = Counter(row.name for row in rows)
    return [row.name if count[row.name] == 1 else f"/run/{row.key}" for row in rows]


def _family(name: str, about: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
    lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: dict[str, str]) -> str:
    inside = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def escaped(value: str) -> str:
    """An escaped label value."""
    safe = value.encode("utf-8", "backslashreplace").decode()
    return safe.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(float(value)) if math.isfinite(value) else ("+Inf" if value > 0 else "-Inf")
