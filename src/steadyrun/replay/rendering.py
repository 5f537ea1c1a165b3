"""A replay as JSON and as lines of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyrun.capture.incident_folder import BATCH
from steadyrun.program.tensor_files import damage
from steadyrun.replay.compare import CLOSE, EXACT, UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from steadyrun.replay.experiments import FactorRow, Why
    from steadyrun.replay.incident import Incident
    from steadyrun.replay.result import Replay
    from steadyrun.replay.window import ParameterUpdate

SCHEMA = 1


def as_json(result: Replay) -> dict[str, Any]:
    """The documented form (docs/replay.md)."""
    incident, recorded = result.incident, result.incident.recorded("loss")
    return {
        "schema": SCHEMA,
        "run": str(incident.run),
        "incident": {
            "step": incident.step,
            "kind": incident.kind,
            "why": incident.why,
            "folder": str(incident.folder),
            "code": {key: incident.code.get(key) for key in ("file", "line", "function")},
        },
        "window": {"first": incident.first_step, "last": max(result.losses, default=incident.first_step)},
        "proof": asdict(result.proof),
        "reproduced": result.proof.holds,
        "verdict": None if result.why is None else result.why.verdict,
        "experiments": None if result.why is None else result.why.to_dict(),
        "first_bad": result.first_bad,
        "raised": result.raised or None,
        "culprit": None if result.culprit is None else {"step": result.first_bad, **asdict(result.culprit)},
        "precision": None if result.precision is None else asdict(result.precision),
        "violent": None if result.violent is None else {**asdict(result.violent), "times": result.violent.times},
        "token_losses": _quantiles(result.token_losses),
        "batch": {
            key: value for key, value in incident.batch_facts.items() if key in {"batch_index", "unusual_tokens"}
        },
        "steps": [{"step": step, "loss": loss, "recorded": recorded.get(step)} for step, loss in result.losses.items()],
        "measurements": str(result.folder),
    }


def listed(run: Path, incidents: Sequence[Incident]) -> dict[str, Any]:
    """The incidents of a run, as `steadyrun replay RUN --list --json` gives them."""
    return {
        "schema": SCHEMA,
        "run": str(run),
        "incidents": [
            {"step": incident.step, "kind": incident.kind, "why": incident.why, "missing": incident.missing or None}
            for incident in incidents
        ],
    }


def as_lines(result: Replay) -> list[str]:
    """What a person reads."""
    incident = result.incident
    lines = [
        f"Incident at step {incident.step} ({incident.kind}): {incident.why}",
        f"Replayed steps {incident.first_step} to {max(result.losses, default=incident.first_step)} "
        f"from the checkpoint before step {incident.first_step}.",
        _proof_line(result),
    ]
    lines += [f"  differs: {difference.message}" for difference in result.proof.differences]
    lines += _bad_step(result)
    if result.violent is not None and result.proof.holds:
        change = result.violent
        lines.append(
            f"First violent change of a parameter: step {change.step}, {change.parameter} {_moved(change)} "
            f"(median before: {change.typical:.3g})"
        )
    lines += _unusual(incident.batch_facts)
    if result.culprit is not None:
        lines += _culprit(result)
    if result.precision is not None:
        lines.append(f"Precision: {result.precision.message} ({result.precision.outcome})")
    if result.why is not None:
        lines += _why(result.why)
    return lines


def _bad_step(result: Replay) -> list[str]:
    incident = result.incident
    if result.raised:
        return [f"Step {result.first_bad} raised {result.raised}"] if result.proof.raised_again else []
    lines = []
    if result.first_bad is not None:
        only = "" if result.happened else " (of this replay: in the run it was finite)"
        lines.append(f"First step with a non-finite loss or parameter: {result.first_bad}{only}")
    if incident.raised and incident.step in result.losses:
        lines.append(f"Step {incident.step} did not raise: what raised in the run is outside of the step.")
    elif incident.raised:
        lines.append(f"Step {incident.step} was not executed: the run raised before its batch was handed over.")
    return lines


def _moved(change: ParameterUpdate) -> str:
    return f"moved by {change.ratio:.3g} of its norm" if math.isfinite(change.ratio) else "was destroyed"


def _proof_line(result: Replay) -> str:
    proof = result.proof
    if proof.verdict == EXACT:
        return f"Proof: all {proof.compared} losses are bit-equal to the recorded ones."
    if proof.verdict == UNKNOWN and proof.raised_again:
        return "Proof: the first step raised what it raised in the run."
    if proof.verdict == UNKNOWN:
        return "Proof: no recorded loss to compare with."
    if proof.first_different is None:
        return "NOT REPRODUCIBLE: the replay ended in another way than the run."
    words = (
        f"largest relative difference {proof.largest:.2g}, tolerance {proof.tolerance:.2g}, "
        f"first at step {proof.first_different}"
    )
    if proof.verdict == CLOSE:
        return f"Proof: {proof.compared} losses agree within the tolerance ({words})."
    return f"NOT REPRODUCIBLE: the replayed losses are not the recorded ones ({words})."


def _culprit(result: Replay) -> list[str]:
    culprit = result.culprit
    assert culprit is not None
    return [f"Culprit: {culprit.message}", f"Fix: {culprit.fix}"]


def _why(why: Why) -> list[str]:
    rows = [row for row in (why.baseline, *why.table) if row is not None]
    rows += why.isolation.rows if why.isolation is not None else []
    width = max((len(row.words) for row in rows), default=0)
    lines = [f"Experiments, one change at a time, from step {why.start} on or as stated:"] if rows else []
    lines += [f"  {row.words:<{width}}  {_outcome(row, why.start)}" for row in rows]
    if why.isolation is not None:
        lines.append(f"Carried by: {why.isolation.carries}: {why.isolation.why}")
    return [*lines, f"Verdict: {why.verdict}: {why.why}"]


def _outcome(row: FactorRow, start: int) -> str:
    if row.gone is None:
        return row.note if row.note.startswith("not tested") else f"cannot tell ({row.note})"
    numbers = f"peak loss {row.peak_loss:<9.4g} peak gradient norm {row.peak_grad_norm:<9.4g}"
    tried = row.starts[-1:] if row.gone else row.starts
    before = any(row.before) and tried != (start,)  # else it began at the step that the table names, or the bad one
    elsewhere = f"from step {', '.join(map(str, tried))} on" if before else ""
    notes = [row.note] if row.note else [elsewhere] if elsewhere else []
    return f"{numbers} {'gone' if row.gone else 'still there'}{f' ({notes[0]})' if notes else ''}"


def _unusual(facts: dict[str, Any]) -> list[str]:
    tokens = facts.get("unusual_tokens") or []
    if not tokens:
        return []
    with damage(BATCH):
        shown = ", ".join(f"{token['text']!r} {token['in_batch']}x (before: {token['before']})" for token in tokens[:5])
    return [f"Unusual tokens in its batch: {shown}"]


def _quantiles(losses: list[float] | None) -> dict[str, Any] | None:
    if not losses:
        return None
    values = np.array(losses)
    finite = values[np.isfinite(values)]
    levels = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    return {
        "count": len(losses),
        "non_finite": int(len(values) - len(finite)),
        **{name: float(np.percentile(finite, level)) if len(finite) else None for name, level in levels.items()},
    }
