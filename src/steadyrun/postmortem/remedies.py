"""Section 5's material: changes in the form in which they are made, with the numbers they are taken from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from steadyrun.postmortem.case import Case
from steadyrun.postmortem.measurements import Numbers
from steadyrun.signals.clipping import suggested_clip
from steadyrun.signals.curves import Floats
from steadyrun.store.incident_files import to_step
from steadyrun.text import shown

FIX, CANDIDATE, RECOVERY, CONTAINMENT, NEXT = "fix", "candidate", "recovery", "containment", "next"
_RARELY = 90  # percentile of the norms before the incident
_SAFER = 3.0  # by how much a learning rate is lowered first: 3 to 10 times


@dataclass(frozen=True)
class Remedy:
    """One change. `change` is a line of configuration or code; `purpose` says what it is for."""

    purpose: str
    text: str
    change: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def lower_than(norms: Floats, clip: float | None) -> float | None:
    """The threshold that the norms before the incident rarely exceed.

    None where it would not be lower than the one in force: then clipping is not what is missing.
    """
    threshold = suggested_clip(norms, _RARELY / 100)
    return threshold if np.isfinite(threshold) and (clip is None or threshold < clip) else None


def can_help(case: Case, group: str) -> bool:
    """Whether a change of this group is worth advising: an experiment that tried it did not leave the incident."""
    record = case.proofs.experiments
    tried = [] if record is None else [row.gone for row in record.rows if row.group == group and row.gone is not None]
    return not tried or any(tried)


def lower_clip(case: Case, numbers: Numbers) -> list[Remedy]:
    """A lower clip threshold, where it can help and the run's own norms leave room for one.

    A threshold bounds a finite gradient. It does nothing about a NaN, an exception, or a loss that is bad before any
    update; whether it keeps numbers from growing until they are infinite, only an experiment can tell.
    """
    norms, clip = numbers.gradients_before, numbers.clip
    if case.moment.non_finite or case.moment.raised or not can_help(case, "clip"):
        return []
    new = None if norms is None else lower_than(norms.values, clip)
    if new is None or norms is None:
        return []
    old = "none" if clip is None else shown(clip)
    why = (
        f"{_RARELY}% of the last {len(norms)} gradient norms before the incident are below {shown(new)}"
        f"{'' if numbers.gradient is None else f', at the incident it was {shown(numbers.gradient[1])}'}"
    )
    return [Remedy(CONTAINMENT, "Cap what one batch can do to the weights.", f"clip: {old} -> {shown(new)}", why)]


def tried_clip(case: Case, numbers: Numbers) -> list[Remedy]:
    """A clip threshold with which an experiment was free of the incident."""
    record = case.proofs.experiments
    rows = [] if record is None else record.removed("clip")
    old = "none" if numbers.clip is None else shown(numbers.clip)
    said = "Cap what one batch can do to the weights."
    return [Remedy(CONTAINMENT, said, f"clip: {old} -> as in the experiment", f"{row.words}: gone") for row in rows[:1]]


def back_to_checkpoint(case: Case, numbers: Numbers, known: bool = False) -> Remedy:
    """The most recent checkpoint from before the trouble; without one, a restart.

    Where the cause is not known, and no experiment spoke against it, the restart has a smaller learning rate.
    """
    clean = _checkpoint(case)
    if clean is not None:
        step, path = clean
        why = f"taken before step {step}; the trouble began at step {case.clean_until}"
        return Remedy(
            RECOVERY,
            "Go back to the most recent checkpoint that is clean; what came later is lost.",
            f"resume from: {path}",
            why,
        )
    said = "Restart from the beginning: no clean checkpoint was kept."
    if known or not can_help(case, "learning-rate"):
        return Remedy(RECOVERY, said, "train again from step 0, with the change", "what was saved later is not clean")
    return smaller_rate(case, numbers, said)


def smaller_rate(case: Case, numbers: Numbers, text: str, by: float = _SAFER) -> Remedy:
    """The peak of the learning rate divided by 3, or by as much as helped."""
    rate = case.signals.declared("lr_max") or numbers.rate
    change = f"lr_max: {shown(rate)} -> {shown(rate / by)}" if rate else f"lr_max: divide by {by:g}"
    return Remedy(CONTAINMENT, text, change, f"a rate {_SAFER:g} to 10 times lower is the first thing to try")


def _checkpoint(case: Case) -> tuple[int, str] | None:
    """Of what the run saved and what was captured, the latest from before the trouble; its step and its place."""
    began = case.clean_until
    saved = [event for event in case.signals.events("checkpoint") if event.step is not None and event.step < began]
    checkpoints = [
        ((event.step or 0) + 1, str(event.fields.get("path") or f"your checkpoint of step {event.step}"))
        for event in saved
    ]
    captured = to_step(case.proofs.incident.get("checkpoint"))
    if captured is not None and captured <= began and case.proofs.folder is not None:
        checkpoints.append((captured, f"incidents/{case.proofs.folder.name}/checkpoint.safetensors"))
    return max(checkpoints, default=None)


def regular_clip(numbers: Numbers) -> str:
    """Why the clip threshold is left alone, where it is."""
    norms, clip = numbers.gradients_before, numbers.clip
    if norms is None or clip is None or lower_than(norms.values, clip) is not None:
        return ""
    share = float(np.mean(norms.values > clip))
    cut = f"it cut {share:.0%} of the {len(norms)} steps before, and the incident's step no less"
    return f"The clip threshold {shown(clip)} stays: {cut}."
