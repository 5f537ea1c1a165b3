"""A1.3: are gradients clipped at the right point of the step?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    late, scaled = run.events("clip-after-step"), run.events("clip-before-unscale")
    early = run.events("clip-before-backward")
    clipped = run.maybe("clipped")
    in_time = clipped is not None and float(clipped.values.max()) > 0
    if scaled:
        message = f"clip_grad_norm_{_to(run)} ran before scaler.unscale_, on gradients multiplied by the loss scale."
        return Finding("before-unscale", message, step=scaled[0].step)
    if (late or early) and in_time:
        message = "Gradients were clipped between backward and the optimizer's step in some steps, and not in others."
        return Finding("also-late", message, step=(late or early)[0].step)
    if late:
        message = f"clip_grad_norm_{_to(run)} always ran after the optimizer's step, first at step {late[0].step}."
        return Finding("after-step", message, step=late[0].step)
    if early:
        message = f"clip_grad_norm_{_to(run)} always ran before backward(), first at step {early[0].step}."
        return Finding("before-backward", message, step=early[0].step)
    if not run.has("clip_threshold"):
        raise NotApplicable("no gradients were clipped")
    return Finding("pass", "Gradients were clipped unscaled, between backward and the optimizer's step.")


def _to(run: Signals) -> str:
    points = run.maybe("clip_threshold")
    return "" if points is None else f" (to {points.values[0]:g})"


QUESTION = Question(
    code="A1.3",
    name="clipping order",
    asks="Is clip_grad_norm_ called after backward and unscale_, and before the optimizer's step?",
    why="Before backward there is nothing to clip. After the step, clipping changes only gradients that are thrown "
    "away. Before unscale_ the gradients are still multiplied by the loss scale, so every step is clipped to almost "
    "nothing.",
    needs=("clip_threshold",),
    panel=3,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="gradients are clipped at the right point of the step"),
        Outcome(
            name="after-step",
            answer=FAULT,
            meaning="clipping has no effect because it comes after the step",
            fix="Call clip_grad_norm_ after backward() and before optimizer.step().",
            explains=("C3", "D2", "D4", "S3"),
        ),
        Outcome(
            name="before-backward",
            answer=FAULT,
            meaning="clipping has no effect because it comes before backward",
            fix="Call clip_grad_norm_ after backward() and before optimizer.step().",
            explains=("C3", "D2", "D4", "S3"),
        ),
        Outcome(
            name="before-unscale",
            answer=FAULT,
            meaning="clipping is applied to gradients that are still scaled",
            fix="Call scaler.unscale_(optimizer) before clip_grad_norm_.",
            explains=("C3", "C4", "S3", "D3.2"),
        ),
        Outcome(
            name="also-late",
            answer=NOTE,
            meaning="some gradients are clipped before backward or after the step, without effect",
            fix="Call clip_grad_norm_ after backward() and before optimizer.step().",
        ),
    ),
    find=find,
    always=True,
)
