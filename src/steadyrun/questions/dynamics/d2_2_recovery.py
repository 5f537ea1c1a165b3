"""D2.2: does the loss come back after a spike?"""

from __future__ import annotations

import math

from steadyrun.questions.dynamics.run_spikes import BACK, SETTLED, WITHIN, find_spikes, stays
from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


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
            f"after step {worst.start_step} the loss stays above "
            f"{shown(worst.level + limit['back'] * worst.deviation)} for {length} (limit {within})."
        )
        return Finding("stays", message, measured, worst.start_step)
    if open_end:
        message = (
            f"the spike at step {open_end[0].peak_step} is not over yet, "
            f"{len(run.points('loss')) - open_end[0].start} {run.counted(run.points('loss'))} after it began."
        )
        return Finding("open", message, measured, open_end[0].start_step)
    unit = run.counted(run.points("loss"))
    message = f"all {len(spikes)} are over within {int(measured['longest'])} {unit} (limit {within} steps)."
    return Finding("pass", message, measured)


QUESTION = Question(
    code="D2.2",
    name="recovery",
    asks="Is the loss back within half a deviation of its old mean within 50 steps?",
    why="A spike that recovers cost a few steps; one that stays has moved the model to a worse place.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="back",
            value=BACK,
            unit="deviations",
            meaning="distance from the old mean that counts as back",
            seed="0.5 sigma",
            decision="as specified, for a mean of steps: noise alone dips below it",
        ),
        Threshold(
            name="settled",
            value=SETTLED,
            unit="points",
            meaning="how many in the mean that must be back",
            seed="",
            decision="one lucky step does not end a spike",
        ),
        Threshold(
            name="within",
            value=WITHIN,
            unit="steps",
            meaning="how long it may take",
            seed="50 steps",
            decision="as specified; 10 logged points or more where the record is sparse",
            of="longest",
        ),
        Threshold(
            name="points",
            value=10,
            unit="logged points",
            meaning="it may take at least this many in a sparse record",
            seed="",
            decision="fewer show no recovery",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every spike recovers"),
        Outcome(name="open", answer=NOTE, meaning="the last spike is not over yet"),
        Outcome(name="stays", answer=NOTE, meaning="the loss stays elevated: D2.4 judges it"),
    ),
    find=find,
)
