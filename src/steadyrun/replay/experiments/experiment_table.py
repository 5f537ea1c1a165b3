"""What the experiments showed: a row per change, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any
from steadyrun.replay.hunt.culprit import Example

DATA, OPTIMIZER, RATE, PRECISION = "data", "optimizer-state", "learning-rate", "precision"
MODEL, NOT_REPRODUCIBLE, UNDECIDED = "model", "not-reproducible", "undecided"
SCHEMA = 1
NEAR = 10  # steps before the bad loss: a change that must begin earlier than this has changed the path to it


@dataclass(frozen=True)
class FactorRow:
    """One change and what came of it. `gone` is None if it was not tested, and `note` says why.

    `starts` are the steps from which on it was tried, `before` how many steps before the bad loss each of them is; the
    numbers are those of the last. The incident is gone with the last, or with none.
    """

    factor: str
    group: str
    words: str
    peak_loss: float
    peak_grad_norm: float
    gone: bool | None
    note: str = ""
    starts: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    @property
    def early(self) -> bool:
        """Whether only a start long before the bad loss made a difference."""
        return bool(self.before) and self.before[-1] > NEAR


@dataclass(frozen=True)
class FailureAxes:
    """The same data with a smaller model, the same model on made-up data; and which axis carries the failure."""

    rows: list[FactorRow]
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
    baseline: FactorRow | None = None
    table: list[FactorRow] = field(default_factory=list)
    interaction: str | None = None
    left_out: list[str] = field(default_factory=list)
    isolation: FailureAxes | None = None
    examples: tuple[Example, ...] = ()  # of the batch that does it: those that do it alone, or are not finite

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
            "examples": [asdict(example) for example in self.examples],
        }
