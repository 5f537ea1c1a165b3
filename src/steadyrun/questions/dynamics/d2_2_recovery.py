"""D2.2: recovery of the loss after a spike."""

from __future__ import annotations

import math

from steadyrun.questions.dynamics.run_spikes import BACK, SETTLED, WITHIN, find_spikes, stays
from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, shown


def find(run: Signals, limit: Limits) -> Finding:
    within = int(limit["within"])
    spikes = find_spikes(run, limit)
    if not spikes:
        raise NotApplicable("the loss does not spike")
    longest = max(spikes, key=lambda spike: spike.length if spike.length is not None else math.inf)
    staying = [spike for spike in spikes if stays(run, spike, limit)]
    open_end = [spike for spike in spikes if spike.end is None and not stays(run, spike, limit)]
    measured = {
        "longest": float(longest.length if longest.length is not None else len(run.points("loss")) - longest.start)
    }
    if staying:
        worst = staying[0]
        unit = run.counted(run.points("loss"))
        length = f"{worst.length} {unit}" if worst.length is not None else "the rest of the record"
        message = (
            f"After step {worst.start_step} the loss stays above "
            f"{shown(worst.level + limit['back'] * worst.deviation)} for {length} (limit {within})."
        )
        return Finding("stays", message, measured, worst.start_step)
    if open_end:
        message = (
            f"The spike at step {open_end[0].peak_step} has not ended "
            f"{len(run.points('loss')) - open_end[0].start} {run.counted(run.points('loss'))} after its start."
        )
        return Finding("open", message, measured, open_end[0].start_step)
    unit = run.counted(run.points("loss"))
    each = "The spike ends" if len(spikes) == 1 else f"All {len(spikes)} spikes end"
    message = f"{each} within {counted(int(measured['longest']), unit.removesuffix('s'))} (limit {within})."
    return Finding("pass", message, measured)


QUESTION = Question(
    code="D2.2",
    name="recovery from spikes",
    asks="Does the loss return to within half a standard deviation of its old mean within 50 steps?",
    why="A spike that recovers costs a few steps. A loss that stays high shows a worse model.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="back",
            value=BACK,
            unit="standard deviations",
            meaning="distance from the old mean that counts as recovered",
            seed="0.5 sigma",
            decision="the rule of thumb, for a mean of several steps: noise alone dips below it",
        ),
        Threshold(
            name="settled",
            value=SETTLED,
            unit="points",
            meaning="how many points the recovered mean covers",
            seed="",
            decision="one low step does not end a spike",
        ),
        Threshold(
            name="within",
            value=WITHIN,
            unit="steps",
            meaning="how long the recovery may take",
            seed="50 steps",
            decision="the rule of thumb; 10 logged points or more if the log is sparse",
            of="longest",
        ),
        Threshold(
            name="points",
            value=10,
            unit="logged points",
            meaning="shortest time allowed in a sparse log",
            seed="",
            decision="fewer do not show a recovery",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss recovers from every spike"),
        Outcome(
            name="open",
            answer=NOTE,
            meaning="the last spike has not ended yet",
            fix="Train on and check again.",
        ),
        Outcome(
            name="stays",
            answer=NOTE,
            meaning="the loss stays high after a spike",
            fix="Train on and check again; D2.4 judges whether the model is damaged.",
        ),
    ),
    find=find,
)
