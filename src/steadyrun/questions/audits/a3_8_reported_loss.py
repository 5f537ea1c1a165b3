"""A3.8: is the recorded loss the one that was differentiated?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.reported_loss import Factor, factors
from steadyrun.signals.reported_loss import hidden as hidden_by_reports
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, shown


def find(run: Signals, limit: Limits) -> Finding:
    if not run.has("backward_loss") or not run.has("loss"):
        raise MissingSignal("backward_loss")
    given, root = run.raw("loss"), run.raw("backward_loss")
    steps, mine, theirs = np.intersect1d(given.steps, root.steps, return_indices=True)
    if run.has("skipped"):  # the scaler handles the steps that it skips
        skipped = run.raw("skipped")
        keep = ~np.isin(steps, skipped.steps[skipped.values > 0])
        steps, mine, theirs = steps[keep], mine[keep], theirs[keep]
    hidden = steps[np.isfinite(given.values[mine]) & ~np.isfinite(root.values[theirs])]
    measured = {"steps": float(len(steps)), "hidden": float(len(hidden))}
    if len(hidden):
        message = (
            f"At step {int(hidden[0])}, backward() ran on a NaN or infinite loss, but a finite loss was reported "
            f"({counted(len(hidden), 'such step')})."
        )
        return Finding("filtered", message, measured, int(hidden[0]))
    if run.has("printed_loss") and (found := _printed(run, limit, measured)) is not None:
        return found
    return Finding("pass", f"The reported loss hides no NaN or infinity in {len(steps):,} steps.", measured)


def _printed(run: Signals, limit: Limits, measured: dict[str, float]) -> Finding | None:
    """What is wrong with the loss that the script itself prints or sends to a tracker."""
    given = run.raw("loss")
    steps = hidden_by_reports(run.raw("printed_loss"), given)
    if len(steps):
        message = (
            f"From step {int(steps[0])} on the script reported a finite loss while backward() ran on NaN or infinity "
            f"({counted(len(steps), 'such report')})."
        )
        return Finding("filtered", message, {**measured, "hidden": float(len(steps))}, int(steps[0]))
    printed, loss = run.maybe("printed_loss"), run.maybe("loss")
    found = [] if printed is None or loss is None else factors(printed, loss)
    found = [each for each in found if each.reports >= limit.count("reports")]
    if not found or any(abs(each.times - 1) <= limit["near"] for each in found):
        return None
    best = min(found, key=lambda each: each.spread)
    if best.spread > limit["constant"]:
        return None
    return Finding("scaled", _scaled(run, best, limit["near"]), {**measured, "times": best.times})


def _scaled(run: Signals, factor: Factor, near: float) -> str:
    """The factor in words; a known size is named."""
    times = f"The script reports {shown(factor.times)}x {factor.reading}, in {counted(factor.reports, 'report')}"
    examples = run.maybe("examples")
    size = None if examples is None else float(np.median(examples.values))
    if size is not None and size > 1 and abs(factor.times / size - 1) <= near:
        return f"{times}: a sum over the batch of {shown(size)} examples; backward() got the mean."
    if size is not None and size > 1 and abs(factor.times * size - 1) <= near:
        return f"{times}: it divides by the batch size of {shown(size)} once more."
    return f"{times}."


QUESTION = Question(
    code="A3.8",
    name="the reported loss is the real loss",
    asks="Is a NaN or infinite loss reported as such?",
    why="Some trainers and loggers replace NaN by the last finite value: the curve looks fine while every update is "
    "lost.",
    needs=("loss", "backward_loss"),
    panel=1,
    thresholds=(
        Threshold(
            name="reports",
            value=8,
            unit="reports",
            meaning="how many losses the script has to report before they are compared",
            seed="",
            decision="fewer do not show that a factor is constant",
        ),
        Threshold(
            name="near",
            value=0.05,
            unit="fraction",
            meaning="how close to 1, or to the batch size, a factor counts as equal",
            seed="",
            decision="printed numbers are rounded, and means are taken over neighbouring steps",
        ),
        Threshold(
            name="constant",
            value=0.01,
            unit="fraction",
            meaning="how much the factor may vary between reports to be one factor",
            seed="",
            decision="smoothed losses vary by more than a factor between two units of the same number",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the reported loss hides no NaN"),
        Outcome(
            name="filtered",
            answer=FAULT,
            meaning="the reported loss hides NaN",
            fix="Report the loss before any filter (logging_nan_inf_filter=False), and look for the first NaN.",
            explains=("C4", "D3", "S"),
        ),
        Outcome(
            name="scaled",
            answer=NOTE,
            meaning="the script reports its loss in another unit",
            fix="Compare the reported loss with the one given to backward(): report the mean over the examples.",
        ),
    ),
    find=find,
    always=True,
)
