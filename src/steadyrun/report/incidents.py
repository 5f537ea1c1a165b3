"""The incidents of a run, and what replays have proved about them. They are data: nothing of it is executed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadyrun.store.discover import plain
from steadyrun.store.incident_files import (
    IN_REPORTS,
    REPRODUCED,
    IncidentFiles,
    entries,
    experiment_record,
    part,
    read,
    text,
)
from steadyrun.store.joint_incidents import JointIncident, joint_incidents

_LARGEST_STEP = 10**18


@dataclass(frozen=True)
class IncidentCard:
    """What happened at a step; with a replay, whether it reproduced it, and what it proved."""

    step: int
    kind: str
    why: str
    missing: str = ""  # why it cannot be replayed
    replay: str = ""  # the proof's verdict; "" where nobody has replayed it
    verdict: str = ""  # of the experiments
    cause: str = ""  # proved, in words; "" where nothing is
    removed_by: tuple[str, ...] = ()  # the changes with which it is gone
    fix: str = ""
    examples: tuple[Mapping[str, Any], ...] = ()  # of the batch, where the replay names some
    postmortem: str = ""  # its file inside the run directory; "" if there is none
    hardware: str = ""  # reproducible, transient, persistent or undecided; "" if the replay did not repeat the steps
    hardware_why: str = ""
    hardware_next: str = ""
    ranks: tuple[int, ...] = ()  # with several processes: the rank it happened on, then the others that kept a part

    @property
    def proved(self) -> bool:
        return bool(self.cause)

    def to_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "kind": self.kind,
            "why": self.why,
            "missing": self.missing or None,
            "replay": self.replay or None,
            "proved": self.proved,
            "verdict": self.verdict or None,
            "cause": self.cause or None,
            "removed_by": list(self.removed_by),
            "fix": self.fix,
            "examples": [dict(example) for example in self.examples],
            "hardware": self.hardware or None,
            **({"ranks": list(self.ranks)} if self.ranks else {}),
        }

    @property
    def blames_hardware(self) -> bool:
        return self.hardware in {"transient", "persistent"}

    def sentence(self, run: str) -> str:
        """What happened and what proved to be the cause, or what to type to find out."""
        return f"{self.where}: {self.why.rstrip('.')}. {self.found(run)}"

    @property
    def where(self) -> str:
        """`step 312, non-finite`, with the rank if the run has several processes."""
        on = f", rank {self.ranks[0]}" if self.ranks else ""
        return f"step {self.step}{on}, {self.kind}"

    def command(self, run: str) -> str:
        """What to type to replay it; "" if it was replayed or cannot be."""
        if self.replay or self.missing:
            return ""
        return f"steadyrun replay {shlex.quote(run)} --step {self.step} --factory FILE.py:FUNCTION"

    def found(self, run: str) -> str:
        """The second half of it."""
        if not self.replay:
            if self.missing:
                return f"It cannot be replayed: {self.missing.rstrip('.')}."
            return f"Not replayed yet: {self.command(run)}"
        if self.blames_hardware:
            return (
                f"Hardware, by replay ({self.hardware}): {self.hardware_why.rstrip('.')}. Next: {self.hardware_next}."
            )
        if self.replay not in REPRODUCED:
            return f"The replay does not prove a cause: {self.replay.replace('-', ' ')}."
        if not self.cause:
            return f"Reproduced by replay ({self.replay}); the cause is not decided."
        parts = [f"Cause, proved by replay: {self.cause.rstrip('.')}."]
        parts += [f"Rows: {rows}."] if (rows := ", ".join(map(_row, self.examples))) else []
        parts += [f"It is gone with: {self.removed_by[0]}."] if self.removed_by else []
        parts += [f"Fix: {self.fix}"] if self.fix else []
        return " ".join(parts)


def incidents(root: Path) -> tuple[IncidentCard, ...]:
    """The incidents of a run directory by their step; damaged files count as absent."""
    every = [joint for joint in joint_incidents(root) if joint.main.step < _LARGEST_STEP]
    cards = [(joint, _incident(joint.main.step, joint.main.folder)) for joint in every]
    return tuple(
        replace(card, postmortem=_postmortem(root, card.step), ranks=_ranks(joint))
        for joint, card in cards
        if card is not None
    )


def _ranks(joint: JointIncident) -> tuple[int, ...]:
    """The rank that the incident is judged by, then the others that kept a part; empty in a run of one process."""
    ranks = joint.ranks
    return () if ranks == (0,) else (joint.main.rank, *(rank for rank in ranks if rank != joint.main.rank))


def _postmortem(root: Path, step: int) -> str:
    """The post-mortem of an incident, by the name that `steadyrun postmortem` gives it."""
    name = f"postmortems/step-{step:07d}.md"
    return name if plain(root / "postmortems") and (root / name).is_file() else ""


def _incident(step: int, folder: Path) -> IncidentCard | None:
    files = read(folder, ("incident", "replay", "experiments"), IN_REPORTS)
    if not files.incident:
        return None
    happened = IncidentCard(
        step, text(files.incident, "kind") or "incident", text(files.incident, "why"), text(files.incident, "missing")
    )
    if not files.proof:
        return happened
    record = experiment_record(files.tried or part(files.replay, "experiments"))
    happened = replace(happened, replay=files.proof, verdict=record.verdict if record else "")
    happened = _with_hardware(happened, files)
    if not files.reproduced:
        return happened
    decided = record if record and record.decided else None
    return replace(
        happened,
        cause=text(files.culprit, "message") or (decided.why if decided else ""),
        removed_by=tuple(row.words for row in decided.removed(decided.verdict)) if decided else (),
        fix=text(files.culprit, "fix"),
        examples=tuple(entries(files.culprit, "examples")),
    )


def _with_hardware(card: IncidentCard, files: IncidentFiles) -> IncidentCard:
    """Add what the repetitions of the replay proved about the machine."""
    verdict, why, following = (text(part(files.replay, "hardware"), key) for key in ("verdict", "why", "next"))
    return replace(card, hardware=verdict, hardware_why=why, hardware_next=following)


def _row(example: Mapping[str, Any]) -> str:
    """An example of the batch, such as "row 3 (data/7.png)"."""
    where = [str(example[key]) for key in ("file", "dataset_index") if isinstance(example.get(key), str | int)]
    return f"{example.get('row')}" + (f" ({where[0]})" if where else "")
