"""What an incident folder holds, as plain data: nothing is executed; what is damaged is told and counts as absent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadyrun.store.incident_order import gravity
from steadyrun.store.jsonio import number, read_json

_NAME = re.compile(r"step-(\d{7,})")
_DECIDED = frozenset({"data", "optimizer-state", "learning-rate", "precision", "model"})


@dataclass(frozen=True)
class TriedFactor:
    """One row of the experiments: one thing changed, and whether the incident is gone."""

    factor: str
    group: str
    words: str
    peak_loss: float | None
    peak_grad_norm: float | None
    gone: bool | None
    note: str = ""


@dataclass(frozen=True)
class ExperimentRecord:
    """What the experiments decided."""

    verdict: str
    why: str
    interaction: str
    peak_loss: float | None
    rows: tuple[TriedFactor, ...]
    isolation: str = ""  # which of data, model and optimizer carries it, in a sentence

    def removed(self, group: str) -> list[TriedFactor]:
        """The changes of one group with which the incident is gone, the mildest first."""
        return [row for row in self.rows if row.group == group and row.gone]

    @property
    def decided(self) -> bool:
        return self.verdict in _DECIDED and not self.interaction


@dataclass(frozen=True)
class Proofs:
    """The JSON files of one incident folder; those that are not there are empty."""

    folder: Path | None = None
    incident: Mapping[str, Any] = field(default_factory=dict)
    batch: Mapping[str, Any] = field(default_factory=dict)
    replay: Mapping[str, Any] = field(default_factory=dict)
    experiments: ExperimentRecord | None = None
    damaged: tuple[str, ...] = ()

    @property
    def measurements(self) -> Path | None:
        """The run directory that a replay left: every step of the window measured."""
        path = None if self.folder is None else self.folder / "replay"
        return path if path is not None and path.is_dir() else None

    @property
    def proof(self) -> str:
        """`bit-equal`, `within-tolerance`, `not-reproducible`, `not-comparable`; "" without a replay."""
        return text(part(self.replay, "proof"), "verdict")

    @property
    def reproduced(self) -> bool:
        return self.proof in {"bit-equal", "within-tolerance"}

    @property
    def culprit(self) -> Mapping[str, Any]:
        return part(self.replay, "culprit")

    @property
    def unusual(self) -> list[Mapping[str, Any]]:
        """The unusual tokens of the incident's batch."""
        return entries(self.batch, "unusual_tokens")

    @property
    def examples(self) -> list[Mapping[str, Any]]:
        """The rows of the batch that are not finite, or that fail by themselves: `row`, `dataset_index`, `file`."""
        return [example for example in entries(self.culprit, "examples") if to_step(example.get("row")) is not None]

    @property
    def token_losses(self) -> list[float]:
        losses = self.batch.get("token_losses")
        values = [to_number(loss) for loss in losses] if isinstance(losses, list) else []
        return [value for value in values if value is not None]


def read(folder: Path) -> Proofs:
    """Everything an incident folder tells without executing anything."""
    damaged: list[str] = []
    incident, batch, replay, experiments = (
        _load(folder / f"{name}.json", damaged) for name in ("incident", "batch", "replay", "experiments")
    )
    return Proofs(folder, incident, batch, replay, _experiments(experiments), tuple(damaged))


def folders(run: Path) -> dict[int, Path]:
    """The incident folders of a run by their step."""
    root = run / "incidents"
    named = [(path, _NAME.fullmatch(path.name)) for path in root.iterdir()] if root.is_dir() else []
    by_step = {int(name[1]): path for path, name in named if name is not None and (path / "incident.json").is_file()}
    return dict(sorted(by_step.items()))


def gravest(run: Path) -> Proofs | None:
    """The incident that matters most, of those the first; None where the run has none."""
    every = [read(path) for path in folders(run).values()]
    readable = [proofs for proofs in every if proofs.incident]
    return min(readable, key=_gravity, default=None)


def _gravity(proofs: Proofs) -> tuple[int, float, int]:
    step = to_step(proofs.incident.get("step"))
    return gravity(proofs.incident.get("kind"), proofs.incident.get("severity"), -1 if step is None else step)


def text(content: Mapping[str, Any], key: str) -> str:
    """A string of a JSON object, "" where it is none."""
    value = content.get(key)
    return value if isinstance(value, str) else ""


def part(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def entries(content: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects of a list in a JSON object; none where it is no list."""
    value = content.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


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


def _load(path: Path, damaged: list[str]) -> Mapping[str, Any]:
    try:
        if not path.exists():
            return {}
        content = read_json(path)
        if not isinstance(content, dict):
            raise ValueError("it holds no object")
    except (OSError, ValueError) as problem:
        damaged.append(f"{path.name} could not be read: {problem}")
        return {}
    return content


def _experiments(content: Mapping[str, Any]) -> ExperimentRecord | None:
    if not text(content, "verdict"):
        return None
    table = content.get("table")
    rows = [_factor(row) for row in table if isinstance(row, dict)] if isinstance(table, list) else []
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
    """The steps from which on a change was tried, the last first; "" where it was one."""
    steps = [step for start in starts if (step := to_step(start)) is not None] if isinstance(starts, list) else []
    return f"from step {', '.join(map(str, steps))} on" if len(steps) > 1 else ""
