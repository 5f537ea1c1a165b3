"""D4.1: a slow rise of the loss at the end of the record."""

from __future__ import annotations

from steadyrun.questions.dynamics.drift import CERTAIN, WINDOW, last_stretch
from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    stretch = last_stretch(run, limit)
    measured = {"t": stretch.trend.t, "above_best": stretch.above_best}
    unit = run.counted(stretch.loss)
    facts = (
        f"Over the last {len(stretch.loss)} {unit} the loss goes from {shown(stretch.trend.start)} to "
        f"{shown(stretch.trend.end)} (trend {shown(stretch.trend.t)} standard errors, limit {limit['t']:g}), now "
        f"{percent(stretch.above_best)} above its best at step {stretch.best_step}"
    )
    if stretch.rising and stretch.above_best > limit["above"]:
        return Finding("rising", f"{facts}.", measured, int(stretch.loss.steps[0]))
    return Finding("pass", f"{facts}.", measured)


QUESTION = Question(
    code="D4.1",
    name="upward drift",
    asks="Has the loss risen over the last 200 steps?",
    why="Without a spike or NaN a run can still drift away from its minimum. Noise rises and falls: only a tested "
    "trend counts.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="window",
            value=WINDOW,
            unit="steps",
            meaning="length of the window",
            seed="200 steps",
            decision="the rule of thumb; at least 40 points if the log is sparse",
        ),
        Threshold(
            name="t",
            value=CERTAIN,
            unit="standard errors",
            meaning="trend over ten block means",
            seed="monotonic",
            decision="1 in 1,000 series without a trend exceeds it",
            of="t",
        ),
        Threshold(
            name="above",
            value=0.03,
            unit="fraction of the best smoothed loss",
            meaning="how far the loss must be above its best",
            seed="",
            decision="healthy plateaus fluctuate by less",
            of="above_best",
        ),
        Threshold(
            name="points",
            value=40,
            unit="losses",
            meaning="smallest window; with fewer losses the last two thirds are ranked",
            seed="",
            decision="ten block means of four points each",
        ),
        Threshold(
            name="ranked",
            value=0.67,
            unit="fraction of a short record",
            meaning="how many of the last losses are ranked",
            seed="",
            decision="a loss that rose since the first third rises to the end; the descent before it would hide that",
        ),
        Threshold(
            name="chance",
            value=0.001,
            unit="probability",
            meaning="a rise in a short record that chance gives more often does not count",
            seed="",
            decision="as certain as the trend above",
        ),
        LOSSES,
        Threshold(
            name="smooth",
            value=50,
            unit="steps",
            meaning="span of the moving average whose lowest point is the best loss",
            seed="",
            decision="the same as in C4.1",
        ),
        Threshold(
            name="smooth_points",
            value=10,
            unit="logged points",
            meaning="shortest span of that average in a sparse log",
            seed="",
            decision="shorter averages keep the noise",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss does not rise"),
        Outcome(
            name="rising",
            answer=NOTE,
            meaning="the loss rises slowly",
            fix="Train on and check again; if the validation loss also rises, halve the learning rate.",
        ),
    ),
    find=find,
)
