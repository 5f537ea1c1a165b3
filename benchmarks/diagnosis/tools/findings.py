"""A finding of any tool, and whether it names the cause of a bug."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diagnosis.tools.mapping import AMONG, NAMES

LEVELS = ("info", "warning", "error")


@dataclass(frozen=True)
class Finding:
    """One thing that a tool said; `name` is its own identifier, `level` how serious it says it is."""

    name: str
    level: str
    text: str
    step: int | None = None


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """The gravest first, as every one of the tools lists them; equal ones stay in the tool's own order."""
    return sorted(findings, key=lambda finding: -LEVELS.index(finding.level))


def judged(tool: str, bug: str | None, findings: Sequence[Finding]) -> dict[str, Any]:
    """`first`: the first finding names the cause; `anywhere`: any does, also as one guess of several."""
    loud = [finding for finding in findings if finding.level != "info"]
    if bug is None:
        grave = any(finding.level == "error" for finding in loud)
        return {"alarm": bool(loud), "grave_alarm": grave}
    named = [bug in NAMES[tool].get(finding.name, ()) for finding in findings]
    among = [bug in AMONG[tool].get(finding.name, ()) for finding in findings]
    first = bool(loud) and bug in NAMES[tool].get(ranked(loud)[0].name, ())
    return {"first": first, "anywhere": any(named) or any(among), "any": bool(loud)}


def means_of_ten(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a logger writes that reports every ten steps: the mean loss, the last rate and norm, any validation."""
    kept = []
    for begin in range(0, len(rows), 10):
        part = rows[begin : begin + 10]
        row = dict(part[-1])
        row["loss"] = sum(each["loss"] for each in part) / len(part)
        validated = [each["val_loss"] for each in part if "val_loss" in each]
        kept.append(row | ({"val_loss": validated[-1]} if validated else {}))
    return kept
