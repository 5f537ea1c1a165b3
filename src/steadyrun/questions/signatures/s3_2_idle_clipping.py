"""S3.2: does clipping ever engage?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    recorded, declared = run.maybe("clip_threshold"), run.declared("clip")
    threshold = float(recorded.values[-1]) if recorded is not None else declared
    if threshold is None or threshold <= 0:
        raise NotApplicable("no clipping is recorded or declared")
    norms = run.points("grad_norm")
    if len(norms) < limit["steps"]:
        why = f"{counted(len(norms), 'gradient norm')} recorded, {limit['steps']:g} needed"
        if run.running:
            raise MissingSignal("grad_norm", why, "let it run on")
        raise NotApplicable(why)
    clipped = run.maybe("clipped") if recorded is not None else None
    share = float(np.mean(clipped.values > 0 if clipped is not None else norms.values > threshold))
    highest, median = float(np.max(norms.values)), float(np.median(norms.values))
    measured = {"clipped": share, "highest": highest / threshold}
    if share > 0 or highest * limit["far"] > threshold:
        message = (
            f"Clip threshold is {threshold:g}, median gradient norm {shown(median)}; {percent(share)} of the steps "
        )
        return Finding("pass", f"{message}are clipped.", measured)
    message = (
        f"In {len(norms):,} steps the largest gradient norm is {shown(highest)} (median {shown(median)}), below the "
    )
    return Finding("never", f"{message}clip threshold {threshold:g} by a factor of {limit['far']:g} or more.", measured)


QUESTION = Question(
    code="S3.2",
    name="clipping takes effect",
    asks="If gradients are clipped, is the threshold ever reached?",
    why="A threshold far above every norm protects from nothing: it was set for another loss or model, or something "
    "has already made the gradients small.",
    needs=("grad_norm", "clip_threshold or clip"),
    panel=3,
    thresholds=(
        Threshold(
            name="far",
            value=2,
            unit="times the largest norm",
            meaning="a threshold this far above is out of reach",
            seed="no clipping engagement at all",
            decision="a threshold just above the largest norm is a guard that was not needed; healthy thresholds are "
            "within 1.5",
            of="-highest",
        ),
        Threshold(
            name="steps",
            value=100,
            unit="steps",
            meaning="for how many steps clipping may have no effect",
            seed="",
            decision="the spikes it guards against are rare",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="clipping takes effect, or is ready to"),
        Outcome(
            name="never",
            answer=NOTE,
            meaning="the clip threshold is too high to ever take effect",
            fix="No action is needed while the loss falls. To catch outliers, lower the clip threshold "
            "(steadyrun.suggest_clip).",
        ),
    ),
    find=find,
)
