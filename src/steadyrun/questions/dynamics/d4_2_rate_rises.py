"""D4.2: does the learning rate rise while the loss does?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.dynamics.drift import last_stretch
from steadyrun.questions.facts import known_rates
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    stretch = last_stretch(run, limit)
    if not stretch.rising:
        raise NotApplicable("the loss does not rise")
    recorded = known_rates(run, limit)
    rates = recorded.rates.from_step(stretch.loss.steps[0])
    if len(rates) < 2:
        raise NotApplicable("no learning rates are recorded in this stretch", "lr/*")
    first, last = float(rates.values[0]), float(rates.values[-1])
    times = last / first if first > 0 else float("inf") if last > 0 else 1.0
    plan = recorded.plan
    measured = {"times": times}
    facts = (
        f"the learning rate goes from {shown(first)} to {shown(last)} while the loss rises ({shown(times)} "
        f"times, limit {limit['times']:g})"
    )
    if times <= limit["times"]:
        return Finding("pass", f"{facts}.", measured)
    meant = plan.rate(np.array([rates.steps[0], rates.steps[-1]])) if plan is not None else None
    if meant is not None and meant[1] <= meant[0]:
        return Finding(
            "schedule",
            f"{facts}; the declared one goes from {shown(meant[0])} to {shown(meant[1])}.",
            measured,
            rates.step_at(0),
        )
    return Finding("rising", f"{facts}; nothing declared says otherwise.", measured, rates.step_at(0))


QUESTION = Question(
    code="D4.2",
    name="learning rate against drift",
    asks="Has the learning rate increased over the stretch in which the loss rises?",
    why="A cosine upside down, or a warmup that never ends, raises the rate until training falls apart.",
    needs=("loss", "lr/*"),
    panel=2,
    thresholds=(
        Threshold(
            name="times",
            value=1.1,
            unit="times",
            meaning="rise of the learning rate over the stretch",
            seed="an increase",
            decision="less is rounding",
            of="times",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the learning rate does not rise"),
        Outcome(
            name="rising",
            answer=NOTE,
            meaning="the learning rate rises with the loss; no schedule is declared to compare with",
        ),
        Outcome(
            name="schedule",
            answer=FAULT,
            meaning="the learning rate rises where the declared schedule falls",
            fix="Turn the schedule around; let the warmup end.",
            may_pass=True,
        ),
    ),
    find=find,
)
