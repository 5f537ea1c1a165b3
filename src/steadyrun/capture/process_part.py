"""Which part of an incident this process keeps, if the run has several; and what other ranks found."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrun.store.incident_files import folders
from steadyrun.store.joint_incidents import parts_of

MOST = 8  # ranks that all keep checkpoints: beyond it rank 0 alone does, or a large job would fill the disk


@dataclass(frozen=True)
class ProcessPart:
    """The rank of this process among `world`; `averaged` asks whether DistributedDataParallel averages gradients."""

    rank: int = 0
    world: int = 1
    averaged: Callable[[], bool] = lambda: False

    @property
    def whole(self) -> bool:
        """Whether this rank keeps checkpoints and all batches since; otherwise only the incident's own batches."""
        return self.world <= MOST or self.rank == 0

    @property
    def why_not_whole(self) -> str:
        if self.whole:
            return ""
        return (
            f"rank {self.rank} of {self.world:,} keeps only its batch: of more than {MOST} ranks, rank 0 alone keeps "
            "checkpoints"
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What incident.json contains of it: nothing in a run of one process."""
        one = self.world == 1 and self.rank == 0
        return {} if one else {"rank": self.rank, "world": self.world, "averaged": self.averaged()}

    def inside(self, folder: Path) -> Path:
        """The folder of this rank: rank 0 has `folder` itself."""
        return folder if self.rank == 0 else folder / f"rank-{self.rank:05d}"


class OtherRanks:
    """Incidents of other ranks, found by looking into their folders. The writing thread looks, training takes."""

    def __init__(self, run: Path, rank: int) -> None:
        self._run, self._rank = run, rank
        self._known = self._opened()  # by the attempts before
        self._new: deque[tuple[int, int]] = deque()

    def look(self) -> None:
        new = self._opened() - self._known
        self._known |= new
        self._new.extend(sorted(new))

    def take(self, before: int | None) -> list[tuple[int, int]]:
        """Step and rank of what is new, up to the steps that this rank has had."""
        due = [opened for opened in list(self._new) if before is None or opened[0] < before]
        for opened in due:
            self._new.remove(opened)
        return due

    def _opened(self) -> set[tuple[int, int]]:
        every = folders(self._run)
        return {(step, rank) for step, folder in every for rank in parts_of(folder) if rank != self._rank}
