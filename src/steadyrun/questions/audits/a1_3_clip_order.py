"""A1.3: are gradients clipped where it matters?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    late, scaled = run.events("clip-after-step"), run.events("clip-before-unscale")
    clipped = run.maybe("clipped")
    in_time = clipped is not None and float(clipped.values.max()) > 0
    if scaled:
        message = f"clip_grad_norm_{_to(run)} came before scaler.unscale_: it compared gradients times the loss scale."
        return Finding("before-unscale", message, step=scaled[0].step)
    if late and in_time:
        return Finding("also-late", "gradients were clipped before some steps, and after others.", step=late[0].step)
    if late:
        message = (
            f"clip_grad_norm_{_to(run)} came after the optimizer's step, first at step {late[0].step}, never before."
        )
        return Finding("after-step", message, step=late[0].step)
    if not run.has("clip_threshold"):
        raise NotApplicable("nothing was clipped")
    return Finding("pass", "gradients were clipped between backward and the optimizer's step, unscaled.")


def _to(run: Signals) -> str:
    points = run.maybe("clip_threshold")
    return "" if points is None else f" (to {points.values[0]:g})"


QUESTION = Question(
    code="A1.3",
    name="clipping in its place",
    asks="Is clip_grad_norm_ called after unscale_ and before the optimizer's step?",
    why="After the step it changes nothing but gradients that are thrown away. Before unscale_ it compares gradients "
    "that are larger by the loss scale: every step is clipped to almost nothing.",
    needs=("clip_threshold",),
    panel=3,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="clipping is where it belongs"),
        Outcome(
            name="after-step",
            answer=FAULT,
            meaning="clipping has no effect: it comes after the step",
            fix="Call clip_grad_norm_ after backward() and before optimizer.step().",
            explains=("C3", "D2", "D4", "S3"),
        ),
        Outcome(
            name="before-unscale",
            answer=FAULT,
            meaning="clipping compares scaled gradients",
            fix="Call scaler.unscale_(optimizer) before clip_grad_norm_.",
            explains=("C3", "C4", "S3", "D3.2"),
        ),
        Outcome(
            name="also-late",
            answer=NOTE,
            meaning="some clipping comes after the step",
            fix="Call clip_grad_norm_ before optimizer.step().",
        ),
    ),
    find=find,
    always=True,
)
