"""The JSON of an incident folder as plain data, for reports and post-mortems.

Nothing is executed; a damaged file is reported and counts as absent. A replay is stricter: see `replay.incident`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from steadyrun.store.jsonio import LARGEST, number, read_json
from steadyrun.text import counted, shown

# The order of incidents, the most severe first.


_KINDS = ("non-finite", "exception", "out-of-memory", "fault", "rollback", "asked", "spike")


def gravity(kind: Any, severity: Any, step: int) -> tuple[int, float, int]:
    """The key that sorts the most severe incident first: by kind, then by severity, then by step.

    A missing or invalid severity counts as the largest, an unknown kind as the least severe.
    """
    rank = _KINDS.index(kind) if kind in _KINDS else len(_KINDS)
    return rank, -_size(severity), step


def _size(severity: Any) -> float:
    try:
        size = number(severity)
    except (TypeError, ValueError, OverflowError):
        return math.inf
    return math.inf if math.isnan(size) else size


IN_REPORTS = 4 * 2**20  # bytes of a file that reports read
REPRODUCED = ("bit-equal", "within-tolerance")
_FILES = ("incident", "batch", "replay", "experiments")
_NAME = re.compile(r"step-(\d{7,})")
_DECIDED = frozenset({"data", "optimizer-state", "learning-rate", "precision", "model"})


@dataclass(frozen=True)
class TriedFactor:
    """One row of the experiments: a change, and whether the incident is gone with it."""

    factor: str
    group: str
    words: str
    peak_loss: float | None
    peak_grad_norm: float | None
    gone: bool | None
    note: str = ""


@dataclass(frozen=True)
class ExperimentRecord:
    """The result of the experiments."""

    verdict: str
    why: str
    interaction: str
    peak_loss: float | None
    rows: tuple[TriedFactor, ...]
    isolation: str = ""  # whether it is isolated to data, model or optimizer, in a sentence

    def removed(self, group: str) -> list[TriedFactor]:
        """The changes of one group that remove the incident, the mildest first."""
        return [row for row in self.rows if row.group == group and row.gone]

    @property
    def decided(self) -> bool:
        return self.verdict in _DECIDED and not self.interaction


@dataclass(frozen=True)
class IncidentFiles:
    """The JSON files of one incident folder; missing files are empty."""

    folder: Path | None = None
    incident: Mapping[str, Any] = field(default_factory=dict)
    batch: Mapping[str, Any] = field(default_factory=dict)
    replay: Mapping[str, Any] = field(default_factory=dict)
    tried: Mapping[str, Any] = field(default_factory=dict)  # experiments.json
    damaged: tuple[str, ...] = ()

    @property
    def measurements(self) -> Path | None:
        """The run directory with a replay's measurements of every step."""
        path = None if self.folder is None else self.folder / "replay"
        return path if path is not None and path.is_dir() else None

    @property
    def proof(self) -> str:
        """`bit-equal`, `within-tolerance`, `not-reproducible`, `not-comparable`; "" without a replay."""
        return text(part(self.replay, "proof"), "verdict")

    @property
    def reproduced(self) -> bool:
        return self.proof in REPRODUCED

    @property
    def culprit(self) -> Mapping[str, Any]:
        return part(self.replay, "culprit")

    @cached_property
    def experiments(self) -> ExperimentRecord | None:
        return experiment_record(self.tried)

    @property
    def unusual(self) -> list[Mapping[str, Any]]:
        """The unusual tokens of the incident's batch."""
        return entries(self.batch, "unusual_tokens")

    @property
    def examples(self) -> list[Mapping[str, Any]]:
        """The rows of the batch that contain NaN or infinity, or that fail alone: `row`, `dataset_index`, `file`."""
        return [example for example in entries(self.culprit, "examples") if to_step(example.get("row")) is not None]

    @property
    def token_losses(self) -> list[float]:
        losses = self.batch.get("token_losses")
        values = [to_number(loss) for loss in losses] if isinstance(losses, list) else []
        return [value for value in values if value is not None]


def folders(run: Path) -> list[tuple[int, Path]]:
    """The folders of a run that are named as incidents, ordered by step."""
    root = run / "incidents"
    named = [(_NAME.fullmatch(path.name), path) for path in root.iterdir()] if root.is_dir() else []
    return sorted((int(name[1]), path) for name, path in named if name is not None)


def read(folder: Path, files: Collection[str] = _FILES, largest: int = LARGEST) -> IncidentFiles:
    """Read these files of an incident folder; a file of more than `largest` bytes counts as damaged."""
    damaged: list[str] = []
    incident, batch, replay, tried = (
        _load(folder / f"{name}.json", largest, damaged) if name in files else {} for name in _FILES
    )
    return IncidentFiles(folder, incident, batch, replay, tried, tuple(damaged))


def text(content: Mapping[str, Any], key: str) -> str:
    """A string of a JSON object, "" if it is not a string."""
    value = content.get(key)
    return value if isinstance(value, str) else ""


def part(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def entries(content: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects of a list in a JSON object; empty if it is not a list."""
    value = content.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def token_count(token: Mapping[str, Any]) -> str:
    """An unusual token with its count, such as "'writ' 6 times (0.736 expected)"."""
    count, expected = token["in_batch"], to_number(token.get("expected"))
    usual = "never seen before" if not token["before"] else f"{token['before']:,} times before"
    if token["before"] and expected is not None:
        usual = f"{shown(expected)} expected"
    return f"{token['text']!r} {counted(count, 'time')} ({usual})"


def to_number(value: Any) -> float | None:
    """A number of a JSON file, "nan" and "inf" included; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return number(value)
    except (ValueError, OverflowError):
        return None


def to_step(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _load(path: Path, largest: int, damaged: list[str]) -> Mapping[str, Any]:
    try:
        if not path.exists():
            return {}
        content = read_json(path, largest)
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError) as problem:
        damaged.append(f"cannot read {path.name}: {problem}")
        return {}
    return content


def experiment_record(content: Mapping[str, Any]) -> ExperimentRecord | None:
    """The content of experiments.json; None if it has no verdict."""
    if not text(content, "verdict"):
        return None
    rows = [_factor(row) for row in entries(content, "table")]
    baseline = to_number(part(content, "baseline").get("peak_loss"))
    verdict, why, together = (text(content, key) for key in ("verdict", "why", "interaction"))
    return ExperimentRecord(verdict, why, together, baseline, tuple(rows), text(part(content, "isolation"), "why"))


def _factor(row: Mapping[str, Any]) -> TriedFactor:
    gone = row.get("gone")
    return TriedFactor(
        text(row, "factor"),
        text(row, "group"),
        text(row, "words") or text(row, "factor"),
        to_number(row.get("peak_loss")),
        to_number(row.get("peak_grad_norm")),
        gone if isinstance(gone, bool) else None,
        text(row, "note") or _tried_from(row.get("starts")),
    )


def _tried_from(starts: Any) -> str:
    """The steps from which a change was tested, if there were several; else ""."""
    steps = [step for start in starts if (step := to_step(start)) is not None] if isinstance(starts, list) else []
    return f"from step {', '.join(map(str, steps))}" if len(steps) > 1 else ""
