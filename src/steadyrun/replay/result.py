"""The result of a replay. It does not import torch: reading a result executes nothing."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steadyrun.program.packing import Packed
    from steadyrun.program.task import Factory
    from steadyrun.replay.compare import Proof
    from steadyrun.replay.experiments import OnRow, Why
    from steadyrun.replay.hardware import Hardware
    from steadyrun.replay.hunt import Culprit
    from steadyrun.replay.incident import Incident
    from steadyrun.replay.recorded_digests import RecordedDigests
    from steadyrun.replay.session import Session
    from steadyrun.replay.window import ParameterUpdate


@dataclass
class Replay:
    """Result of a replay: print it, or call `explain()` to find the cause by experiment.

    `folder` holds the measurements of every step, as a run directory. `first_bad` is the first step with a non-finite
    loss or parameter, `culprit` the operation responsible for it, `proof` how the replay compares with the record.
    """

    incident: Incident
    session: Session
    proof: Proof
    losses: dict[int, float]
    folder: Path
    factory: Factory | None = None
    factory_name: str | None = None
    arguments: list[str] = field(default_factory=list)  # the script's command-line arguments
    first_bad: int | None = None  # the first step with a non-finite loss or parameter
    raised: str = ""
    violent: ParameterUpdate | None = None
    culprit: Culprit | None = None
    precision: Precision | None = None
    token_losses: list[float] | None = None
    inputs: dict[int, int | None] = field(default_factory=dict)
    why: Why | None = None  # the result of the experiments, if `explain` was called
    explained: str = ""  # what the replay's first different step does otherwise than the run, if it is known
    other_losses: dict[int, dict[int, float]] = field(default_factory=dict)  # of the other ranks, if they were executed
    digests: RecordedDigests | None = None  # the replay's parameters compared with those that the ranks recorded
    hardware: Hardware | None = None  # whether software, data or this machine caused it
    before_bad: Packed | None = None  # the state before `first_bad`, or before the step that raised

    @property
    def happened(self) -> bool:
        """Whether the non-finite value or exception also occurred in the run."""
        if self.raised or self.proof.holds:
            return self.proof.holds or self.proof.raised_again
        recorded, bad = self.incident.recorded("loss"), self.first_bad or 0
        return any(not math.isfinite(recorded[step]) for step in (bad, bad + 1) if step in recorded)

    @property
    def began_on(self) -> int | None:
        """Another rank whose loss was the first that is not finite; None if it is the replayed one."""
        if self.first_bad is None or not math.isfinite(self.losses.get(self.first_bad, math.nan)):
            return None
        bad = [rank for rank, losses in self.other_losses.items() if not math.isfinite(losses.get(self.first_bad, 0.0))]
        return min(bad, default=None)

    def __str__(self) -> str:
        from steadyrun.replay.rendering import as_lines

        return "\n".join(as_lines(self))

    def to_dict(self) -> dict[str, Any]:
        """Convert to the documented JSON form (docs/replay.md)."""
        from steadyrun.replay.rendering import as_json

        return as_json(self)

    def explain(
        self, *, everything: bool = False, isolating: bool = False, jobs: int = 1, on_row: OnRow | None = None
    ) -> Why:
        """Find the cause by experiment: one change at a time, until the cause is decided.

        `everything=True` tries all changes. `isolating=True` also searches the smallest part of the batch that shows
        the incident. `jobs` is the number of processes. `on_row` is called after each change.
        """
        from steadyrun.replay.experiments import explain_incident

        return explain_incident(self, everything=everything, isolating=isolating, jobs=jobs, on_row=on_row)

    def export(self, folder: str | os.PathLike[str]) -> list[str]:
        """Write a script and data to `folder` that show the incident without steadyrun; returns what was written."""
        from steadyrun.replay.export import export

        return export(self, Path(folder).expanduser())


@dataclass(frozen=True)
class Precision:
    """The bad step repeated in float32: if it is fine there, the dtype overflowed; if not, the cause is structural."""

    dtype: str
    outcome: str  # overflow, structural, or not-told
    message: str
