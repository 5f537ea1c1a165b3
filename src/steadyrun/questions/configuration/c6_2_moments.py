"""C6.2: the optimizer keeps and uses its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import Floats
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown

_TINY = 1e-30  # no division by zero


@dataclass(frozen=True)
class Group:
    """A param group: its number, its optimizer's class and settings."""

    number: str
    kind: str
    settings: dict[str, Any]

    def beta(self, which: int) -> float | None:
        betas = self.settings.get("betas")
        usable = isinstance(betas, list | tuple) and len(betas) == 2 and isinstance(betas[which], int | float)
        return float(betas[which]) if usable and betas is not None else None


def find(run: Signals, limit: Limits) -> Finding:
    groups = _groups(run)
    if not run.matching("moment1_norm/*") and not run.matching("moment2_norm/*"):
        kinds = sorted({group.kind for group in groups})
        raise NotApplicable(f"{', '.join(kinds) or 'the optimizer'} does not keep moments")
    measured: dict[str, float] = {}
    for diagnose in (_stalled, _empty, _same_as_gradient, _uncorrected):
        findings = [diagnose(run, group, limit) for group in groups]
        # A single group may lack gradients on purpose or by construction, but not all groups.
        known = [finding for finding, group in zip(findings, groups, strict=True) if _is_recorded(run, group)]
        if known and known[0] is not None and all(finding is not None for finding in known):
            return known[0]
    scales = [scale for group in groups if (scale := _scale(run, group, limit["misfit"])) is not None and len(scale)]
    if scales:
        measured["update_scale"] = max((float(np.median(s.values)) for s in scales), key=lambda s: abs(s - 1))
        if abs(measured["update_scale"] - 1) > limit["scale"]:
            message = (
                f"The updates are {shown(measured['update_scale'])} times as large as plain Adam makes them from the "
                f"same moments (normally {1 - limit['scale']:g} to {1 + limit['scale']:g} times)."
            )
            return Finding("other-rule", message, measured)
        return Finding(
            "pass",
            f"Moments accumulate; the ratio of the updates to Adam's is {shown(measured['update_scale'])}.",
            measured,
        )
    return Finding("pass", "Moments accumulate from step to step.", measured)


def _is_recorded(run: Signals, group: Group) -> bool:
    return (
        run.maybe(f"moment1_norm/{group.number}") is not None or run.maybe(f"moment2_norm/{group.number}") is not None
    )


def _groups(run: Signals) -> list[Group]:
    entries = run.listed("param_groups")
    if not entries:
        raise MissingSignal("param_groups")
    settings = [entry.get("settings") for entry in entries]
    return [
        Group(str(number), str(entry.get("class", "")), setting)
        for number, (entry, setting) in enumerate(zip(entries, settings, strict=True))
        if isinstance(setting, dict)
    ]


def _stalled(run: Signals, group: Group, limit: Limits) -> Finding | None:
    """A step counter of the optimizer that does not advance, or restarts again and again."""
    counts = run.maybe(f"step_count/{group.number}")
    if counts is None or len(counts) < limit["samples"]:
        return None
    later = counts.where(_taken(run, counts) >= limit["later"])
    if not len(later) or float(np.max(later.values)) > float(np.min(counts.values)) + 1:
        return None
    last = later.step_at(len(later) - 1)
    message = (
        f"The optimizer's step counter (param group {group.number}) is {counts.values[0]:g} at step "
        f"{counts.step_at(0)} and still {later.values[-1]:g} at step {last}."
    )
    return Finding("rebuilt", message, {"step_count": float(later.values[-1])}, later.step_at(0))


def _taken(run: Signals, counts: Points) -> Floats:
    """How many steps the optimizer took since the first count, without those that a loss scaler skipped."""
    skipped = run.maybe("skipped")
    taken: Floats = counts.steps - counts.steps[0]
    if skipped is not None:
        before = np.concatenate([[0.0], np.cumsum(skipped.values > 0)])
        lost = before[np.searchsorted(skipped.steps, counts.steps, side="right")]
        taken = taken - (lost - lost[0])
    return taken


def _empty(run: Signals, group: Group, limit: Limits) -> Finding | None:
    """Second moments of zero although there are gradients."""
    moments = run.maybe(f"moment2_norm/{group.number}")
    norms = run.maybe("grad_norm_applied") or run.maybe("grad_norm")  # what the optimizer gets: after clipping
    if moments is None or norms is None or float(np.median(norms.values)) <= 0:
        return None
    later = moments.from_step(limit["later"])
    # Second moments average squared gradients, so their norm is compared with a squared norm.
    size = float(np.median(norms.values)) ** 2
    if not len(later) or float(np.max(later.values)) > limit["empty"] * size:
        return None
    message = (
        f"The norm of the second moments (param group {group.number}) is {shown(np.max(later.values))} from step "
        f"{later.step_at(0)} on, although the median gradient norm is {shown(np.median(norms.values))}."
    )
    return Finding("empty", message, {"second_moment": float(np.max(later.values))}, later.step_at(0))


def _same_as_gradient(run: Signals, group: Group, limit: Limits) -> Finding | None:
    """A first moment that equals the gradient, without any past gradients."""
    moments = [run.maybe(name) for name in run.matching("moment1_norm/*")]
    applied = run.maybe("grad_norm_applied")
    if applied is None or group.beta(0) == 0 or not moments or any(m is None for m in moments):
        return None
    together = _joined([m for m in moments if m is not None])
    later = together.from_step(together.steps[0] + 1)
    norms = np.interp(later.steps, applied.steps, applied.values)
    same = np.abs(later.values - norms) <= limit["same"] * norms
    if len(later) < limit["samples"] or not np.all(same) or not np.any(norms > 0):
        return None
    message = (
        f"The norm of the first moments equals the gradient norm at all {len(later)} recorded steps, for example "
        f"{shown(later.values[-1])} at step {later.step_at(len(later) - 1)}."
    )
    return Finding(
        "no-memory", message, {"difference": float(np.max(np.abs(later.values / norms - 1)))}, later.step_at(0)
    )


def _joined(parts: list[Points]) -> Points:
    steps = parts[0].steps
    for part in parts[1:]:
        steps = np.intersect1d(steps, part.steps)
    squares = [part.values[np.isin(part.steps, steps)] ** 2 for part in parts]
    return Points("moments", steps, np.sqrt(np.sum(squares, axis=0)))


def _scale(run: Signals, group: Group, misfit: float) -> Points | None:
    """The size of the updates relative to Adam's, if Adam's rule explains them: tiny updates drown in rounding."""
    scale, left = run.maybe(f"update_scale/{group.number}"), run.maybe(f"update_misfit/{group.number}")
    if scale is None or left is None:
        return None
    return scale.where(np.interp(scale.steps, left.steps, left.values) < misfit)


def _on_purpose(group: Group) -> bool:
    """Whether the optimizer omits bias correction by design or by its settings."""
    set_so = any(group.settings.get(key) is False for key in ("correct_bias", "bias_correction"))
    return set_so or group.kind.lower().startswith(("bert", "lamb", "fusedlamb"))


def _uncorrected(run: Signals, group: Group, limit: Limits) -> Finding | None:
    """Updates that differ from Adam's by the factor of a missing bias correction."""
    scale, counts = _scale(run, group, limit["misfit"]), run.maybe(f"step_count/{group.number}")
    beta1, beta2 = group.beta(0), group.beta(1)
    if scale is None or counts is None or beta1 is None or beta2 is None or _on_purpose(group):
        return None
    count = np.interp(scale.steps, counts.steps, counts.values)
    factor = (1 - beta1**count) / np.sqrt(np.maximum(_TINY, 1 - beta2**count))
    telling = np.abs(factor - 1) > limit["telling"]
    fits = np.abs(scale.values / factor - 1) < limit["scale"]
    if np.sum(telling) < 2 or not np.all(fits[telling]):
        return None
    index = int(np.argmax(np.where(telling, np.abs(factor - 1), 0)))
    message = (
        f"At step {scale.step_at(index)} the update is {shown(scale.values[index])} times Adam's; a missing bias "
        f"correction gives {shown(factor[index])} times ({int(np.sum(telling))} recorded steps agree)."
    )
    return Finding("no-bias-correction", message, {"update_scale": float(scale.values[index])}, scale.step_at(index))


QUESTION = Question(
    code="C6.2",
    name="optimizer state",
    asks="Do the optimizer's moments accumulate, and do its updates follow from them?",
    why="An optimizer that is rebuilt or loses its state takes every step like its first. Without bias correction its "
    "first steps are several times too long.",
    needs=("moment1_norm/*", "moment2_norm/*", "param_groups"),
    panel=None,
    thresholds=(
        Threshold(
            name="empty",
            value=1e-12,
            unit="of the squared gradient norm",
            meaning="second moments below this are practically zero",
            seed="about 0 at step 100",
            decision="healthy second moments are above 1e-7",
        ),
        Threshold(
            name="same",
            value=1e-4,
            unit="fraction",
            meaning="how closely moment and gradient must agree",
            seed="exactly equal",
            decision="the rule of thumb, up to rounding",
        ),
        Threshold(
            name="scale",
            value=0.05,
            unit="fraction",
            meaning="how far an update may differ from Adam's",
            seed="",
            decision="torch's own optimizers differ by less than 0.001",
            of="update_scale",
        ),
        Threshold(
            name="misfit",
            value=0.1,
            unit="fraction",
            meaning="how much of an update Adam's rule may leave unexplained",
            seed="",
            decision="healthy runs stay below 0.01",
        ),
        Threshold(
            name="later",
            value=10,
            unit="steps",
            meaning="after this many steps a counter must have advanced and second moments must exist",
            seed="",
            decision="the first steps may lack them",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="sampled steps",
            meaning="how many must agree",
            seed="",
            decision="two may agree by chance",
        ),
        Threshold(
            name="telling",
            value=0.2,
            unit="",
            meaning="how much a missing bias correction must change an update",
            seed="",
            decision="a smaller factor is hard to distinguish from none",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the optimizer keeps and uses its state"),
        Outcome(
            name="other-rule",
            answer=NOTE,
            meaning="the updates are larger or smaller than those of plain Adam",
            fix="No action is needed for a variant of Adam. Otherwise look for a second optimizer.step() per batch or "
            "a factor on the learning rate.",
        ),
        Outcome(
            name="rebuilt",
            answer=FAULT,
            meaning="the optimizer is rebuilt again and again",
            fix="Build the optimizer once, before the training loop.",
        ),
        Outcome(
            name="empty",
            answer=FAULT,
            meaning="the optimizer loses its second moments",
            fix="Build the optimizer once, and load its state_dict() at a resume.",
        ),
        Outcome(
            name="no-memory",
            answer=FAULT,
            meaning="the optimizer does not average past gradients",
            fix="Keep the first moment between steps: m = beta1 * m + (1 - beta1) * g.",
        ),
        Outcome(
            name="no-bias-correction",
            answer=FAULT,
            meaning="the optimizer omits Adam's bias correction",
            fix="Divide m by (1 - beta1**t) and v by (1 - beta2**t) before the update, or use torch.optim.AdamW.",
        ),
    ),
    find=find,
)
