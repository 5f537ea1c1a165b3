"""Section 5: changes as lines of code or config, with the numbers they are based on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from steadyrun.postmortem.case import Case
from steadyrun.postmortem.measurements import Numbers
from steadyrun.signals.clipping import suggested_clip
from steadyrun.signals.curves import Floats
from steadyrun.store.incident_files import to_step
from steadyrun.store.joint_incidents import path_in_run
from steadyrun.text import percent, shown

FIX, CANDIDATE, RECOVERY, CONTAINMENT, NEXT = "fix", "candidate", "recovery", "containment", "next"
_RARELY = 90  # percentile of the norms before the incident
_SAFER = 3.0  # first factor by which to lower a learning rate: 3 to 10 times


@dataclass(frozen=True)
class Remedy:
    """One change. `change` is a line of config or code; `purpose` says what it is for."""

    purpose: str
    text: str
    change: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def lower_than(norms: Floats, clip: float | None) -> float | None:
    """The threshold that the norms before the incident rarely exceed.

    None if it would not be lower than the current one: then clipping does not help.
    """
    threshold = suggested_clip(norms, _RARELY / 100)
    return threshold if np.isfinite(threshold) and (clip is None or threshold < clip) else None


def can_help(case: Case, group: str) -> bool:
    """Whether to recommend a change of this group: no experiment shows that it does not help."""
    record = case.proofs.experiments
    tried = [] if record is None else [row.gone for row in record.rows if row.group == group and row.gone is not None]
    return not tried or any(tried)


def lower_clip(case: Case, numbers: Numbers) -> list[Remedy]:
    """A lower clip threshold, if it can help and the run's own norms allow one.

    A threshold bounds a finite gradient. It cannot prevent a NaN, an exception, or a loss that is bad before any
    update; only an experiment can show whether it keeps values from growing to infinity.
    """
    norms, clip = numbers.gradients_before, numbers.clip
    if case.moment.non_finite or case.moment.raised or not can_help(case, "clip"):
        return []
    new = None if norms is None else lower_than(norms.values, clip)
    if new is None or norms is None:
        return []
    old = "none" if clip is None else shown(clip)
    why = (
        f"{_RARELY}% of the {len(norms)} gradient norms before the incident are below {shown(new)}"
        f"{'' if numbers.gradient is None else f'; at the incident it was {shown(numbers.gradient[1])}'}"
    )
    return [Remedy(CONTAINMENT, "Limit what one batch can do to the weights.", f"clip: {old} -> {shown(new)}", why)]


def tried_clip(case: Case, numbers: Numbers) -> list[Remedy]:
    """A clip threshold that removed the incident in an experiment."""
    record = case.proofs.experiments
    rows = [] if record is None else record.removed("clip")
    old = "none" if numbers.clip is None else shown(numbers.clip)
    said = "Limit what one batch can do to the weights."
    return [
        Remedy(CONTAINMENT, said, f"clip: {old} -> as in the experiment", f"with {row.words} the incident is gone")
        for row in rows[:1]
    ]


def back_to_checkpoint(case: Case, numbers: Numbers, known: bool = False) -> Remedy:
    """The latest checkpoint before the incident; without one, a restart.

    If the cause is unknown and no experiment speaks against it, the restart uses a smaller learning rate.
    """
    clean = _checkpoint(case)
    if clean is not None:
        step, path = clean
        why = f"saved before step {step}; the incident began at step {case.clean_until}"
        return Remedy(
            RECOVERY,
            "Resume from the latest good checkpoint; later steps are lost.",
            f"resume from: {path}",
            why,
        )
    said = "Restart from step 0: there is no good checkpoint."
    if known or not can_help(case, "learning-rate"):
        return Remedy(RECOVERY, said, "train again from step 0, with the change", "every later checkpoint is affected")
    return smaller_rate(case, numbers, said)


def smaller_rate(case: Case, numbers: Numbers, text: str, by: float = _SAFER) -> Remedy:
    """The peak learning rate divided by 3, or by the factor that helped."""
    rate = case.signals.declared("lr_max") or numbers.rate
    change = f"lr_max: {shown(rate)} -> {shown(rate / by)}" if rate else f"lr_max: divide by {by:g}"
    return Remedy(CONTAINMENT, text, change, f"a learning rate {_SAFER:g} to 10 times lower is the first change to try")


def _checkpoint(case: Case) -> tuple[int, str] | None:
    """The latest saved or captured checkpoint before the incident: its step and its path."""
    began = case.clean_until
    saved = [event for event in case.signals.events("checkpoint") if event.step is not None and event.step < began]
    checkpoints = [
        ((event.step or 0) + 1, str(event.fields.get("path") or f"your checkpoint of step {event.step}"))
        for event in saved
    ]
    captured = to_step(case.proofs.incident.get("checkpoint"))
    if captured is not None and captured <= began and case.proofs.folder is not None:
        checkpoints.append((captured, f"{path_in_run(case.proofs.folder)}/checkpoint.safetensors"))
    return max(checkpoints, default=None)


def regular_clip(numbers: Numbers) -> str:
    """Why the clip threshold stays, if it does."""
    norms, clip = numbers.gradients_before, numbers.clip
    if norms is None or clip is None or lower_than(norms.values, clip) is not None:
        return ""
    fraction = float(np.mean(norms.values > clip))
    cut = f"it already clipped {percent(fraction)} of the {len(norms)} steps before the incident"
    return f"The clip threshold {shown(clip)} stays: {cut}."
