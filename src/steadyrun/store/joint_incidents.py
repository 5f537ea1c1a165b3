"""The incidents of a run with their parts: with several processes each rank keeps its own.

Rank 0 writes `incidents/step-NNNNNNN/`, every other rank `incidents/step-NNNNNNN/rank-NNNNN/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from steadyrun.store.incident_files import IN_REPORTS, IncidentFiles, folders, gravity, read, to_step

NEAR = 5  # steps: the update of a step carries what happened on one rank to the others
JOINED = "joined"  # the kind of a part that a rank keeps because another rank has an incident
_RANK = re.compile(r"rank-(\d{5,})")
_MOST = 8  # parts whose kind is read, to choose the most severe


@dataclass(frozen=True)
class IncidentPart:
    """What one rank kept of an incident."""

    step: int
    rank: int
    folder: Path


@dataclass(frozen=True)
class JointIncident:
    """One incident with the parts of all ranks, the earliest first. In a run of one process it has one part."""

    parts: tuple[IncidentPart, ...]

    @cached_property
    def main(self) -> IncidentPart:
        """The part that the incident is judged by: the most severe, of equals the earliest."""
        if len(self.parts) == 1:
            return self.parts[0]
        return min(self.parts[:_MOST], key=_part_severity)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(part.rank for part in self.parts))


def _part_severity(part: IncidentPart) -> tuple[int, float, int]:
    incident = read(part.folder, ("incident",), IN_REPORTS).incident
    return gravity(incident.get("kind"), incident.get("severity"), part.step)


def joint_incidents(run: Path) -> list[JointIncident]:
    """All incidents of a run, ordered by step; parts of different ranks within a few steps are one incident."""
    joint: list[list[IncidentPart]] = []
    for part in sorted(_parts(run), key=lambda part: (part.step, part.rank)):
        last = joint[-1] if joint else []
        if last and part.step - last[0].step <= NEAR and part.rank not in {other.rank for other in last}:
            last.append(part)
        else:
            joint.append([part])
    return [JointIncident(tuple(parts)) for parts in joint]


def _parts(run: Path) -> Iterator[IncidentPart]:
    for step, folder in folders(run):
        for rank, path in parts_of(folder).items():
            yield IncidentPart(step, rank, path)


def parts_of(folder: Path) -> dict[int, Path]:
    """The parts in a folder `step-NNNNNNN`, by rank."""
    named = {int(name[1]): path for path in folder.glob("rank-*") if (name := _RANK.fullmatch(path.name)) is not None}
    return {rank: path for rank, path in {0: folder, **named}.items() if _has_files(path)}


def _has_files(path: Path) -> bool:
    return any((path / name).is_file() for name in ("incident.json", "replay.json"))


def captured(run: Path) -> dict[int, Path]:
    """The folder that each incident is judged by, by step."""
    return {joint.main.step: joint.main.folder for joint in joint_incidents(run)}


def gravest(run: Path) -> IncidentFiles | None:
    """The most severe incident, of equals the first; None if the run has none."""
    every = map(read, captured(run).values())
    return min((files for files in every if files.incident), key=_severity, default=None)


def _severity(files: IncidentFiles) -> tuple[int, float, int]:
    step = to_step(files.incident.get("step"))
    return gravity(files.incident.get("kind"), files.incident.get("severity"), -1 if step is None else step)


def rank_of(folder: Path) -> int:
    """The rank that wrote an incident folder."""
    name = _RANK.fullmatch(folder.name)
    return 0 if name is None else int(name[1])


def step_folder(folder: Path) -> Path:
    """The folder `step-NNNNNNN` that a part belongs to."""
    return folder if _RANK.fullmatch(folder.name) is None else folder.parent


def path_in_run(folder: Path) -> str:
    """`incidents/step-0000312`, or `incidents/step-0000312/rank-00001`."""
    return folder.relative_to(step_folder(folder).parent.parent).as_posix()
