"""D4.1: does the loss rise, slowly, at the end of the record?"""

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
        f"over the last {len(stretch.loss)} {unit} the loss goes from {shown(stretch.trend.start)} to "
        f"{shown(stretch.trend.end)} "
        f"(trend {shown(stretch.trend.t)} times its error, limit {limit['t']:g}); "
        f"{percent(stretch.above_best)} above its best, at step {stretch.best_step}"
    )
    if stretch.rising and stretch.above_best > limit["above"]:
        return Finding("rising", f"{facts}.", measured, int(stretch.loss.steps[0]))
    return Finding("pass", f"{facts}.", measured)


QUESTION = Question(
    code="D4.1",
    name="upward drift",
    asks="Has the loss risen over the last 200 steps?",
    why="Without a spike and without NaN a run can still walk away from its minimum. Noise rises and falls: only a "
    "tested "
    "trend counts.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="window",
            value=WINDOW,
            unit="steps",
            meaning="the stretch",
            seed="200 steps",
            decision="as specified; at least 40 points where sparse",
        ),
        Threshold(
            name="t",
            value=CERTAIN,
            unit="times its error",
            meaning="trend over ten block means",
            seed="monotonic",
            decision="one in a thousand series without a trend passes it",
            of="t",
        ),
        Threshold(
            name="above",
            value=0.03,
            unit="share of the best smoothed loss",
            meaning="how far the loss must be above its best",
            seed="",
            decision="healthy plateaus wander by less",
            of="above_best",
        ),
        Threshold(
            name="points",
            value=40,
            unit="losses",
            meaning="the stretch has at least this many; of fewer the last two thirds are ranked",
            seed="",
            decision="ten block means of four points each",
        ),
        Threshold(
            name="ranked",
            value=0.67,
            unit="of so few losses",
            meaning="how many of the last ones are ranked",
            seed="",
            decision="what rose since the first third rises to the end; the descent before it would hide that",
        ),
        Threshold(
            name="chance",
            value=0.001,
            unit="probability",
            meaning="a rise of so few losses that is more likely by chance does not count",
            seed="",
            decision="as certain as the trend above",
        ),
        LOSSES,
        Threshold(
            name="smooth",
            value=50,
            unit="steps",
            meaning="the moving average whose lowest point is the best loss",
            seed="",
            decision="as for C4.1",
        ),
        Threshold(
            name="smooth_points",
            value=10,
            unit="logged points",
            meaning="the moving average has at least this many in a sparse record",
            seed="",
            decision="fewer leave the noise",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss does not rise"),
        Outcome(name="rising", answer=NOTE, meaning="the loss rises: why, is asked next"),
    ),
    find=find,
)
