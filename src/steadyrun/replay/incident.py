"""Incident folders as data: everything is validated when read, and nothing is executed."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steadyrun.capture.incident_folder import BATCH, BEFORE_SEAM, CHECKPOINT, INCIDENT, RAISED, REPLAY
from steadyrun.errors import RunDirectoryError, UsageError
from steadyrun.program import tensor_files
from steadyrun.program.packing import unpack
from steadyrun.program.random_state import RandomState, from_tensors
from steadyrun.records import Event, Series
from steadyrun.store.incident_files import gravity, to_step
from steadyrun.store.joint_incidents import JointIncident, joint_incidents, rank_of, step_folder
from steadyrun.store.jsonio import number
from steadyrun.store.reader import RunReader, open_run


class Incident:
    """One incident folder. With several processes it is the part of one rank, and `joint` has those of all."""

    def __init__(self, folder: Path, joint: JointIncident | None = None) -> None:
        self.folder, self.joint = folder, joint
        self.rank = rank_of(folder)
        self.content = tensor_files.load_json(folder / INCIDENT)
        with tensor_files.damage(folder / INCIDENT):
            self.step = int(self.content["step"])
            self.kind, self.why = str(self.content["kind"]), str(self.content["why"])
            self.missing = str(self.content["missing"])
            self.severity = number(self.content.get("severity", "inf"))
            self.steps = sorted(int(step) for step in self.content["batches"])
            self.code = dict(self.content.get("code") or {})
            self.world = int(self.content.get("world", 1))
            self.averaged = self.content.get("averaged") is True
            self.lost = [str(name) for name in self.content.get("lost") or []]

    @property
    def joint_steps(self) -> set[int]:
        """The steps at which the ranks noticed it."""
        return {self.step} if self.joint is None else {part.step for part in self.joint.parts}

    @property
    def raised(self) -> bool:
        """Whether the incident is an exception that ended the run."""
        return self.kind in RAISED

    @property
    def run(self) -> Path:
        return step_folder(self.folder).parent.parent

    @property
    def replay_folder(self) -> Path:
        """The run directory for the measurements of a replay."""
        return self.folder / REPLAY

    @cached_property
    def view(self) -> RunReader:
        return open_run(self.run)

    def names(self) -> list[str]:
        """The series that this rank recorded."""
        return self.view.names(self.rank)

    def series(self, name: str) -> Series:
        return self.view.series(name, self.rank)

    def events(self, kind: str) -> list[Event]:
        return self.view.events(kind, self.rank)

    @cached_property
    def other_parts(self) -> list[Incident]:
        """What the other ranks kept of the same incident, by rank."""
        others = [] if self.joint is None else [part for part in self.joint.parts if part.folder != self.folder]
        return [Incident(part.folder) for part in sorted(others, key=lambda part: part.rank)]

    def start_from(self, other: Incident) -> None:
        """Begin with the checkpoint of another rank, which holds the same parameters; all batches since are there."""
        if other is not self:
            self._checkpoint, self.missing = other._checkpoint, ""

    @property
    def checkpoint_step(self) -> int | None:
        """The step of this rank's own checkpoint; None if it kept none up to the incident."""
        return to_step(self.content.get("checkpoint"))

    @cached_property
    def _checkpoint(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        content, tensors = tensor_files.load(self.folder / CHECKPOINT)
        with tensor_files.damage(self.folder / f"{CHECKPOINT}.json"):
            content["step"], content["flags"] = int(content["step"]), dict(content.get("flags") or {})
            content["autocast"] = dict(content.get("autocast") or {}) or None
            if not set(content["autocast"] or ("device", "dtype")) >= {"device", "dtype"} or "state" not in content:
                raise KeyError("state, autocast")
        return content, tensors

    @property
    def checkpoint(self) -> dict[str, Any]:
        """The checkpoint's metadata: its step, torch's settings, autocast."""
        return self._checkpoint[0]

    @property
    def first_step(self) -> int:
        """The step before which the checkpoint was taken."""
        return int(self.checkpoint["step"])

    @property
    def state(self) -> tuple[Any, dict[str, Tensor]]:
        """The training state, as `state.restore` takes it."""
        content, tensors = self._checkpoint
        return content["state"], tensors

    @cached_property
    def before_seam(self) -> tuple[Any, dict[str, Tensor]] | None:
        """The last good state before the resume, if the incident came soon after one; else None."""
        if not isinstance(self.content.get(BEFORE_SEAM), int):
            return None
        content, tensors = tensor_files.load(self.folder / BEFORE_SEAM)
        return content["state"], tensors

    @property
    def batch_facts(self) -> dict[str, Any]:
        """The content of the incident's batch: text, unusual tokens, token losses; empty if it was not captured."""
        path = self.folder / BATCH
        return tensor_files.load_json(path) if path.is_file() else {}

    def batch(self, step: int, device: torch.device) -> Any:
        """The batch of a step on a device."""
        entry, tensors = self._entry(step)
        return unpack(entry.get("tree"), tensors, device)

    def random(self, step: int) -> tuple[RandomState, RandomState]:
        """The random states at the end of the previous step, and before the forward pass."""
        self._entry(step)
        return self._randoms[step]

    def input_hash(self, step: int) -> int | None:
        """A hash of the model's inputs, if it was recorded."""
        recorded_hash = self._entry(step)[0].get("input_hash")
        return recorded_hash if isinstance(recorded_hash, int) else None

    def recorded(self, name: str) -> dict[int, float]:
        """The recorded numbers of one series, by step."""
        if name in self._recorded:
            return self._recorded[name]
        with tensor_files.damage(self.folder / INCIDENT):
            table = self.content.get("recorded", {})
            steps, values = table.get("steps", []), table.get(name, [])
            kept = {int(step): number(value) for step, value in zip(steps, values, strict=False) if value is not None}
        if name in self.names():  # values that were not flushed yet when the folder was written
            series = self.series(name)
            first = self.steps[0] if self.steps else self.step
            for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
                if step >= first:
                    kept.setdefault(step, value)
        self._recorded[name] = kept
        return kept

    @cached_property
    def _recorded(self) -> dict[str, dict[int, float]]:
        return {}

    @cached_property
    def _randoms(self) -> dict[int, tuple[RandomState, RandomState]]:
        return {}

    @cached_property
    def _entries(self) -> dict[int, tuple[dict[str, Any], dict[str, Tensor]]]:
        return {}

    def _entry(self, step: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        if step not in self._entries:
            self._read_batches(step)
        if step not in self._entries:
            raise RunDirectoryError(f"{self.folder} does not contain the batch of step {step}")
        return self._entries[step]

    def _read_batches(self, step: int) -> None:
        for path in sorted(self.folder.glob("batches-*.json")):
            span = re.fullmatch(r"batches-(\d+)-(\d+)", path.stem)
            if span is None or not int(span[1]) <= step <= int(span[2]):
                continue
            content, tensors = tensor_files.load(path.with_suffix(""))
            with tensor_files.damage(path):
                self._take(content["steps"], tensors)

    def _take(self, entries: list[dict[str, Any]], tensors: dict[str, Tensor]) -> None:
        randoms = zip(from_tensors(tensors), from_tensors(tensors, "forward"), strict=True)
        for entry, random in zip(entries, randoms, strict=True):
            prefix = f"{int(entry['step']):07d}/"
            own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            self._entries[int(entry["step"])] = (dict(entry), own)
            self._randoms[int(entry["step"])] = random


def incidents_of(run: Path) -> list[Incident]:
    """All incidents of a run, ordered by step."""
    incidents, damaged = readable_incidents(run)
    if damaged:
        raise damaged[0]
    return incidents


def readable_incidents(run: Path) -> tuple[list[Incident], list[RunDirectoryError]]:
    """The readable incidents, and the errors of the others: one damaged file does not hide the rest."""
    incidents, damaged = [], []
    for joint in joint_incidents(run):
        try:
            incidents.append(Incident(joint.main.folder, joint))
        except RunDirectoryError as problem:
            damaged.append(problem)
    return incidents, damaged


def choose(run: Path, step: int | None = None, rank: int | None = None) -> Incident:
    """The incident at `step`; without it the most severe: by kind, then the largest spike, then the first.

    With several processes it is the part of `rank`; without it the part that the incident is judged by.
    """
    incident = _chosen(run, step)
    if rank is None or rank == incident.rank:
        return incident
    parts = () if incident.joint is None else incident.joint.parts
    folder = next((part.folder for part in parts if part.rank == rank), None)
    if folder is None:
        known = ", ".join(str(part.rank) for part in parts)
        raise UsageError(f"rank {rank} kept nothing of the incident at step {incident.step}; these ranks did: {known}")
    return Incident(folder, incident.joint)


def _chosen(run: Path, step: int | None) -> Incident:
    incidents, damaged = readable_incidents(run)
    matching = [incident for incident in incidents if step is None or step in incident.joint_steps]
    if damaged and not matching:
        raise damaged[0]
    if not incidents:
        raise UsageError(
            f"{run} has no incidents. To capture them, give run.watch a loss_fn and run.step its batch; a non-finite "
            "or jumping loss, a fault, an exception or run.incident(why) then makes an incident"
        )
    if step is None:
        return min(incidents, key=lambda incident: gravity(incident.kind, incident.severity, incident.step))
    if not matching:
        known = ", ".join(f"{incident.step} ({incident.kind})" for incident in incidents)
        raise UsageError(f"{run} has no incident at step {step}; it has incidents at: {known}")
    return matching[0]
