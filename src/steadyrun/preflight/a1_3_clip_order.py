"""A1.3, before training: is the gradient clipped after unscaling and before the step?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a1_3_clip_order import QUESTION as RECORDED
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.preflight.step_trace import StepEvent, StepTrace

_ONLY_MEASURED = 1e5  # a threshold this high only reads the norm


def find(bench: Bench, limit: Limits) -> Finding:
    assert bench.train_step is not None
    from steadyrun.preflight.rehearsal import rehearsal
    from steadyrun.preflight.step_trace import CLIP

    made = rehearsal(bench)
    trace = made.first if made.first.stepped else made.second
    clips = [e for e in trace.events if e.kind == CLIP and e.clip is not None and e.clip.max_norm < _ONLY_MEASURED]
    declared = bench.declared("clip")
    if not clips:
        return _unseen(trace, declared, limit)
    for clip in clips:
        if finding := _misplaced(trace, clip):
            return finding
    call = clips[-1].clip
    assert call is not None
    measured = {"max_norm": call.max_norm, "norm": float(call.total_norm)}
    facts = f"The gradient norm was {shown(measured['norm'])}, clipped to {call.max_norm:g} before the step"
    if declared is not None and abs(call.max_norm - declared) > limit["same"] * declared:
        return Finding("other-threshold", f"{facts}. The config declares {declared:g}.", measured)
    return Finding("pass", f"{facts}.", measured)


def _misplaced(trace: StepTrace, clip: StepEvent) -> Finding | None:
    """A clip after its optimizer's step, before backward, or before gradients are unscaled."""
    from steadyrun.preflight.step_trace import BACKWARD, CLIP, STEP, UNSCALE

    assert clip.clip is not None
    index = next(index for index, event in enumerate(trace.events) if event is clip)
    before, after = trace.events[:index], trace.events[index + 1 :]
    facts = f"clip_grad_norm_ (max_norm {clip.clip.max_norm:g}, norm {shown(float(clip.clip.total_norm))})"
    measured = {"max_norm": clip.clip.max_norm, "norm": float(clip.clip.total_norm)}
    mine = [event for event in before if event.kind in {STEP, CLIP, UNSCALE} and event.members & clip.members]
    stepped = [event for event in mine if event.kind == STEP]
    coming = any(event.kind in {STEP, UNSCALE} and event.members & clip.members for event in after)
    if stepped and not coming and not any(event.kind == CLIP for event in mine):
        return Finding("after-step", f"{facts} runs after optimizer.step() and limits nothing.", measured)
    if (
        coming
        and not any(event.kind == BACKWARD for event in before)
        and any(event.kind == BACKWARD for event in after)
    ):
        return Finding("before-backward", f"{facts} runs before backward, without a gradient of this step.", measured)
    unscaled = any(event.kind == UNSCALE for event in mine)
    later = any(event.kind == UNSCALE and event.members & clip.members for event in after)
    if later and not unscaled:
        message = f"{facts} runs before the gradients are unscaled: the norm still includes the loss scale."
        return Finding("before-unscale", message, measured)
    return None


def _unseen(trace: StepTrace, declared: float | None, limit: Limits) -> Finding:
    """The finding without a call of `clip_grad_norm_`: compares the norm at the step with the declared clip."""
    from steadyrun.preflight.step_trace import STEP, dense

    if declared is None:
        raise NotApplicable("the step does not call clip_grad_norm_, and the config declares no clip")
    gradients = [dense(gradient).float() for gradient in trace.gradients.values()]
    if not gradients:
        raise NotApplicable("no parameter had a gradient when the optimizer stepped")
    norm = max(_norm(trace, event.members) for event in trace.events if event.kind == STEP)
    largest = max(float(gradient.abs().max()) for gradient in gradients if gradient.numel())
    measured = {"norm": norm, "declared": declared, "largest": largest}
    facts = f"The gradient norm at the step is {shown(norm)}; the config declares a clip of {declared:g}"
    if norm <= declared * (1 + limit["same"]) or largest <= declared * (1 + limit["same"]):
        return Finding("within", f"{facts}. The step does not call clip_grad_norm_.", measured)
    return Finding("not-clipped", f"{facts}, and nothing clips it.", measured)


def _norm(trace: StepTrace, members: frozenset[int]) -> float:
    """The gradient norm over the parameters of one optimizer."""
    import torch

    from steadyrun.preflight.step_trace import dense

    norms = [dense(gradient).float().norm() for key, gradient in trace.gradients.items() if key in members]
    return float(torch.stack(norms).norm()) if norms else 0.0


_FIX = "Use this order: backward, scaler.unscale_(optimizer) with a scaler, clip_grad_norm_, step, zero_grad."

QUESTION = probe_of(
    RECORDED,
    asks="Is the gradient clipped after it is unscaled and before the optimizer steps?",
    needs=("train_step", "optimizer", "batches", "clip"),
    thresholds=(
        Threshold(
            name="same",
            value=1e-3,
            unit="relative",
            meaning="two norms that differ by less are equal",
            seed="",
            decision="another order of summation changes a norm by 1e-6; clip_grad_norm_ itself adds 1e-6 to the norm",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        Outcome(name="within", answer=PASS, meaning="the gradient norm is below the declared clip"),
        same(RECORDED, "after-step", ("C3", "D2", "S")),
        Outcome(
            name="before-backward",
            answer=FAULT,
            meaning="the gradient is clipped before backward",
            fix=_FIX,
            explains=("C3", "D2", "S"),
        ),
        same(RECORDED, "before-unscale", ("C3", "C4", "S")),
        Outcome(
            name="not-clipped",
            answer=FAULT,
            meaning="the config declares a clip, and nothing clips the gradient",
            fix=_FIX,
            explains=("C3", "D2", "S"),
        ),
        Outcome(
            name="other-threshold",
            answer=NOTE,
            meaning="the clip threshold differs from the declared value",
            fix=_FIX,
        ),
    ),
    find=find,
)
