"""What the experiments showed: a row per change, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

DATA, OPTIMIZER, RATE, PRECISION = "data", "optimizer-state", "learning-rate", "precision"
MODEL, NOT_REPRODUCIBLE, UNDECIDED = "model", "not-reproducible", "undecided"
SCHEMA = 1


@dataclass(frozen=True)
class Row:
    """One change and what came of it. `gone` is None where it could not be told."""

    factor: str
    group: str
    words: str
    peak_loss: float
    peak_grad_norm: float
    gone: bool | None
    note: str = ""


@dataclass(frozen=True)
class Axes:
    """The same data with a smaller model, the same model on made-up data; and which axis carries the failure."""

    rows: list[Row]
    carries: str  # data, model, optimizer, or undecided
    why: str


@dataclass(frozen=True)
class Why:
    """The table and the verdict. `start` is the first changed step, `moment` the first with a bad loss."""

    step: int
    kind: str
    verdict: str
    why: str
    moment: int
    start: int
    until: int
    baseline: Row | None = None
    table: list[Row] = field(default_factory=list)
    interaction: str | None = None
    left_out: list[str] = field(default_factory=list)
    isolation: Axes | None = None

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON form (docs/replay.md)."""
        return {
            "schema": SCHEMA,
            "incident": {"step": self.step, "kind": self.kind},
            "verdict": self.verdict,
            "why": self.why,
            "interaction": self.interaction,
            "moment": self.moment,
            "start": self.start,
            "until": self.until,
            "baseline": None if self.baseline is None else asdict(self.baseline),
            "table": [asdict(row) for row in self.table],
            "left_out": self.left_out,
            "isolation": None if self.isolation is None else asdict(self.isolation),
        }
