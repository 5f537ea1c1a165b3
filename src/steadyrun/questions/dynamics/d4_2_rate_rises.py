"""D4.2: a learning rate that rises with the loss."""

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
        raise NotApplicable("no learning rate is recorded while the loss rises", "lr/*")
    first, last = float(rates.values[0]), float(rates.values[-1])
    times = last / first if first > 0 else float("inf") if last > 0 else 1.0
    plan = recorded.plan
    measured = {"times": times}
    facts = (
        f"The learning rate goes from {shown(first)} to {shown(last)} while the loss rises ({shown(times)} "
        f"times, limit {limit['times']:g})"
    )
    if times <= limit["times"]:
        return Finding("pass", f"{facts}.", measured)
    meant = plan.rate(np.array([rates.steps[0], rates.steps[-1]])) if plan is not None else None
    if meant is not None and meant[1] <= meant[0]:
        return Finding(
            "schedule",
            f"{facts}; the declared schedule goes from {shown(meant[0])} to {shown(meant[1])}.",
            measured,
            rates.step_at(0),
        )
    return Finding("rising", f"{facts}; the config does not contradict it.", measured, rates.step_at(0))


QUESTION = Question(
    code="D4.2",
    name="learning rate during drift",
    asks="Does the learning rate rise while the loss rises?",
    why="A reversed cosine, or a warmup that never ends, raises the learning rate until training breaks down.",
    needs=("loss", "lr/*"),
    panel=2,
    thresholds=(
        Threshold(
            name="times",
            value=1.1,
            unit="times",
            meaning="rise of the learning rate while the loss rises",
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
            meaning="the learning rate rises together with the loss",
            fix="Check that the schedule should rise there; otherwise lower the learning rate.",
        ),
        Outcome(
            name="schedule",
            answer=FAULT,
            meaning="the learning rate rises although the declared schedule falls",
            fix="Reverse the schedule, or end the warmup.",
            may_pass=True,
        ),
    ),
    find=find,
)
