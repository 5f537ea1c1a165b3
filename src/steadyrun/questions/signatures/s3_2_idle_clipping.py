"""S3.2: does clipping ever engage?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    recorded, declared = run.maybe("clip_threshold"), run.declared("clip")
    threshold = float(recorded.values[-1]) if recorded is not None else declared
    if threshold is None or threshold <= 0:
        raise NotApplicable("gradients are not clipped, as far as was recorded or declared")
    norms = run.points("grad_norm")
    if len(norms) < limit["steps"]:
        why = f"{len(norms)} gradient norms are recorded, {limit['steps']:g} are needed"
        if run.running:
            raise MissingSignal("grad_norm", why, "let it run on")
        raise NotApplicable(why)
    clipped = run.maybe("clipped") if recorded is not None else None
    share = float(np.mean(clipped.values > 0 if clipped is not None else norms.values > threshold))
    highest, middle = float(np.max(norms.values)), float(np.median(norms.values))
    measured = {"clipped": share, "highest": highest / threshold}
    facts = (
        f"clip threshold {threshold:g}, gradient norm {shown(middle)} in the middle and {shown(highest)} at most in "
        f"{len(norms)} steps"
    )
    if share > 0 or highest * limit["far"] > threshold:
        return Finding("pass", f"{facts}; {share:.1%} of the steps are clipped.", measured)
    message = (
        f"{facts}: never clipped, the threshold is {shown(threshold / highest) if highest else 'infinitely many'} "
    )
    return Finding("never", f"{message}times the largest norm (limit {limit['far']:g}).", measured)


QUESTION = Question(
    code="S3.2",
    name="clipping that never engages",
    asks="Where gradients are clipped, does the threshold ever matter?",
    why="A threshold far above every norm protects from nothing: it is set for another loss or model, or something has "
    "already made the gradients small.",
    needs=("grad_norm", "clip_threshold or clip"),
    panel=3,
    thresholds=(
        Threshold(
            name="far",
            value=2,
            unit="times the largest norm",
            meaning="a threshold out of reach",
            seed="no clipping engagement at all",
            decision="a threshold just above the largest norm is a guard that was not needed; healthy ones lie "
            "within 1.5",
            of="-highest",
        ),
        Threshold(
            name="steps",
            value=100,
            unit="steps",
            meaning="how long it may stay idle",
            seed="",
            decision="spikes that it is for are rare",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="clipping engages, or stands ready"),
        Outcome(name="never", answer=NOTE, meaning="the clip threshold is out of reach of every gradient of this run"),
    ),
    find=find,
)
