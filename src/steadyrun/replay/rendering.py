"""A replay as JSON and as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyrun.capture.incident_folder import BATCH
from steadyrun.program.tensor_files import damage
from steadyrun.replay.compare import CLOSE, EXACT, UNKNOWN
from steadyrun.replay.hardware import REPRODUCIBLE
from steadyrun.store.incident_files import token_count
from steadyrun.text import percent, shown

if TYPE_CHECKING:
    from pathlib import Path

    from steadyrun.replay.experiments import FactorRow, Why
    from steadyrun.replay.hardware import Hardware
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
        "hardware": None if result.hardware is None else result.hardware.to_dict(),
        **_ranks(result),
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


def _ranks(result: Replay) -> dict[str, Any]:
    """The rank that was replayed and those whose gradients were averaged with its own; nothing with one process."""
    incident, session = result.incident, result.session
    if incident.world <= 1:
        return {}
    averaged = sorted([incident.rank, *(part.rank for part in session.ranks)]) if session.ranks else []
    return {
        "ranks": {"rank": incident.rank, "world": incident.world, "averaged": averaged, "alone": session.alone or None}
    }


def listed(run: Path, incidents: Sequence[Incident]) -> dict[str, Any]:
    """The incidents of a run, as `steadyrun replay RUN --list --json` gives them."""
    return {
        "schema": SCHEMA,
        "run": str(run),
        "incidents": [
            {
                "step": incident.step,
                "kind": incident.kind,
                "why": incident.why,
                "missing": incident.missing or None,
                **(
                    {"rank": incident.rank, "ranks": list(incident.joint.ranks)}
                    if incident.joint and incident.world > 1
                    else {}
                ),
            }
            for incident in incidents
        ],
    }


def as_lines(result: Replay) -> list[str]:
    """The text: the incident, its cause and fix, then the evidence."""
    incident = result.incident
    on = f", rank {incident.rank}" if incident.world > 1 else ""
    lines = [f"Step {incident.step}{on}, {incident.kind}: {_sentence(incident.why)}"]
    if result.hardware is not None and result.hardware.blames_hardware:
        lines += _hardware(result.hardware)
    if result.why is not None:
        lines.append(f"Verdict: {result.why.verdict}. {_sentence(result.why.why)}")
    if result.culprit is not None:
        lines += _culprit(result)
    if result.precision is not None:
        lines.append(f"Precision: {result.precision.outcome}. {_sentence(result.precision.message)}")
    lines += _unusual(incident.batch_facts)
    lines += [
        f"Replayed steps {incident.first_step} to {max(result.losses, default=incident.first_step)} "
        f"from the checkpoint before step {incident.first_step}.",
        *_together(result),
        _proof_line(result),
    ]
    lines += [f"  differs: {difference.message.rstrip('.')}." for difference in result.proof.differences]
    if result.hardware is not None and not result.hardware.blames_hardware:
        lines += _hardware(result.hardware)
    lines += _bad_step(result)
    if result.violent is not None and result.proof.holds:
        change = result.violent
        usual = f"normally {shown(change.typical)}" if math.isfinite(change.typical) else "too few steps before it"
        lines.append(f"First violent update: step {change.step}, {change.parameter} {_moved(change)} ({usual}).")
    return [*lines, *([] if result.why is None else _why(result.why))]


def _hardware(hardware: Hardware) -> list[str]:
    """The verdict; with the next thing to do unless the experiments, which follow, are that."""
    lines = [f"Hardware or software: {hardware.verdict}. {_sentence(hardware.why)}"]
    return lines if hardware.verdict == REPRODUCIBLE else [*lines, f"Next: {_sentence(hardware.next)}"]


def _together(result: Replay) -> list[str]:
    """With several processes: whose gradients an update used."""
    incident, session = result.incident, result.session
    if session.ranks:
        return [f"Each step averages the gradients of all {incident.world} ranks, as the run did."]
    return (
        [f"Rank {incident.rank} alone: the averaged gradient is not reproduced ({session.alone})."]
        if session.alone
        else []
    )


def _bad_step(result: Replay) -> list[str]:
    incident = result.incident
    if result.raised:
        return [f"Step {result.first_bad} raised {result.raised} again."] if result.proof.raised_again else []
    lines = []
    if result.first_bad is not None:
        only = "" if result.happened else " (only in this replay; in the run it was finite)"
        lines.append(f"First step with a non-finite loss or parameter: {result.first_bad}{only}.")
    if result.began_on is not None:
        lines.append(
            f"It begins with the loss of rank {result.began_on}: steadyrun replay RUN --rank {result.began_on} finds "
            "the operation."
        )
    if incident.raised and incident.step in result.losses:
        lines.append(f"Step {incident.step} did not raise: the exception of the run came from outside the step.")
    elif incident.raised:
        lines.append(f"Step {incident.step} was not replayed: the run raised before run.step got its batch.")
    return lines


def _moved(change: ParameterUpdate) -> str:
    return f"changed by {percent(change.ratio)} of its norm" if math.isfinite(change.ratio) else "became non-finite"


def _proof_line(result: Replay) -> str:
    proof = result.proof
    if proof.verdict == EXACT:
        return f"Proof: {_compared(proof.compared)} bit-equal to the recording."
    if proof.verdict == UNKNOWN and proof.raised_again:
        return "Proof: the first step raised the same exception as in the run."
    if proof.verdict == UNKNOWN:
        return "No proof: the run has no recorded loss to compare with."
    if proof.first_different is None:
        return "NOT REPRODUCIBLE: the replay ended differently from the run."
    words = (
        f"largest relative difference {shown(proof.largest, 2)}, tolerance {proof.tolerance:g}, "
        f"first at step {proof.first_different}"
    )
    if proof.verdict == CLOSE:
        return f"Proof: {_compared(proof.compared)} equal to the recording within the tolerance ({words})."
    return f"NOT REPRODUCIBLE: the replayed losses differ from the recording ({words})."


def _compared(count: int) -> str:
    return "the loss is" if count == 1 else f"all {count:,} losses are"


def _sentence(text: str) -> str:
    """A text that ends with a period, and begins with a capital if it begins with an ordinary word."""
    first = text.partition(" ")[0]
    ordinary = first.isalpha() and first.islower()
    return f"{text[:1].upper() if ordinary else text[:1]}{text[1:].rstrip('.')}."


def _culprit(result: Replay) -> list[str]:
    culprit = result.culprit
    assert culprit is not None
    return [f"Culprit: {culprit.message}", f"Fix: {culprit.fix}"]


def _why(why: Why) -> list[str]:
    rows = [row for row in (why.baseline, *why.table) if row is not None]
    rows += why.isolation.rows if why.isolation is not None else []
    width = max((len(row.words) for row in rows), default=0)
    lines = [f"Experiments, one change at a time, from step {why.start} unless stated:"] if rows else []
    lines += [f"  {row.words:<{width}}  {_outcome(row, why.start)}" for row in rows]
    if why.isolation is not None:
        lines.append(f"Isolated to: {why.isolation.carries}. {_sentence(why.isolation.why)}")
    return lines


def _outcome(row: FactorRow, start: int) -> str:
    if row.gone is None:
        return row.note if row.note.startswith("not tested") else f"undecided ({row.note})"
    numbers = f"peak loss {shown(row.peak_loss):<8}  peak gradient norm {_norm(row):<8}"
    tried = row.starts[-1:] if row.gone else row.starts
    before = any(row.before) and tried != (start,)  # else it began at the step that the heading names, or the bad one
    elsewhere = f"from step {', '.join(map(str, tried))}" if before else ""
    notes = [row.note] if row.note else [elsewhere] if elsewhere else []
    return f"{numbers}  {'gone' if row.gone else 'still there'}{f' ({notes[0]})' if notes else ''}"


def _norm(row: FactorRow) -> str:
    """The peak gradient norm; a single step with another batch does not measure it."""
    return "-" if row.factor == "batch-elsewhere" else shown(row.peak_grad_norm)


def _unusual(facts: dict[str, Any]) -> list[str]:
    tokens = facts.get("unusual_tokens") or []
    if not tokens:
        return []
    with damage(BATCH):
        return [f"Unusual in the batch: {', '.join(token_count(token) for token in tokens[:5])}."]


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
