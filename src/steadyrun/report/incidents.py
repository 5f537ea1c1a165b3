"""The incidents of a run, and what replays have proved about them. They are data: nothing of it is executed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrun.report.kept_answers import REPRODUCED, json_object

_FOLDER = re.compile(r"step-(\d{7,18})")
_DECIDED = frozenset({"data", "optimizer-state", "learning-rate", "precision", "model"})


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
        }

    def sentence(self, run: str) -> str:
        """What happened and what proved to be the cause, or what to type to find out."""
        return f"step {self.step}, {self.kind}: {self.why.rstrip('.')}. {self.found(run)}"

    def found(self, run: str) -> str:
        """The second half of it."""
        if not self.replay:
            if self.missing:
                return f"It cannot be replayed: {self.missing.rstrip('.')}."
            return (
                f"Not replayed yet: steadyrun replay {shlex.quote(run)} --step {self.step} --factory FILE.py:FUNCTION"
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
    folder = root / "incidents"
    named = [(_FOLDER.fullmatch(path.name), path) for path in folder.iterdir()] if folder.is_dir() else []
    folders = sorted((int(name[1]), path) for name, path in named if name is not None)
    cards = [_incident(step, path) for step, path in folders]
    return tuple(card for card in cards if card is not None)


def _incident(step: int, folder: Path) -> IncidentCard | None:
    account = json_object(folder / "incident.json")
    if not account:
        return None
    happened = IncidentCard(
        step, _text(account, "kind") or "incident", _text(account, "why"), _text(account, "missing")
    )
    replay = json_object(folder / "replay.json")
    proof = _text(_part(replay, "proof"), "verdict")
    if not proof:
        return happened
    tried = json_object(folder / "experiments.json") or _part(replay, "experiments")
    culprit = _part(replay, "culprit")
    verdict, reproduced = _text(tried, "verdict"), proof in REPRODUCED
    decided = reproduced and verdict in _DECIDED and not _text(tried, "interaction")
    cause = _text(culprit, "message") if reproduced else ""
    return IncidentCard(
        step,
        happened.kind,
        happened.why,
        happened.missing,
        proof,
        verdict,
        cause or (_text(tried, "why") if decided else ""),
        tuple(_removed(tried, verdict)) if decided else (),
        _text(culprit, "fix") if reproduced else "",
        tuple(example for example in _list(culprit, "examples") if isinstance(example, dict)) if reproduced else (),
    )


def _removed(tried: Mapping[str, Any], verdict: str) -> list[str]:
    """The changes of the proved group with which the incident is gone, the mildest first."""
    rows = [row for row in _list(tried, "table") if isinstance(row, dict) and row.get("gone") is True]
    return [_text(row, "words") or _text(row, "factor") for row in rows if _text(row, "group") == verdict]


def _row(example: Mapping[str, Any]) -> str:
    """An example of the batch, such as "row 3 (data/7.png)"."""
    where = [str(example[key]) for key in ("file", "dataset_index") if isinstance(example.get(key), str | int)]
    return f"{example.get('row')}" + (f" ({where[0]})" if where else "")


def _text(account: Mapping[str, Any], key: str) -> str:
    text = account.get(key)
    return text if isinstance(text, str) else ""


def _part(account: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = account.get(key)
    return part if isinstance(part, dict) else {}


def _list(account: Mapping[str, Any], key: str) -> list[Any]:
    items = account.get(key)
    return items if isinstance(items, list) else []
