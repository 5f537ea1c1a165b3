"""V1.8: does what the user logs as success improve?"""

from __future__ import annotations

import re

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.facts import POLICY
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown

_SUCCESS = re.compile(
    r"(^|[/_.-])(returns?|rewards?|rew_mean|reward_mean|accuracy|acc|score|success_rate|win_rate)$", re.I
)


def find(run: Signals, limit: Limits) -> Finding:
    names = [name for name in sorted(run.names) if _SUCCESS.search(name)]
    long = [name for name in names if (points := run.maybe(name)) is not None and len(points) >= limit["losses"]]
    if not long and known_facts(run, limit).objective == POLICY:
        return _by_value_targets(run, limit)
    if not long:
        raise NotApplicable("no return, reward, accuracy or score was logged often enough", "episodic_return")
    found = [_judged(name, levels(run, name, limit["losses"], rises=True), limit) for name in long]
    worst = max(found, key=lambda one: _ORDER.index(one.outcome))
    if worst.outcome == "flat" and not known_facts(run, limit).moves_freely:
        return Finding("steady", worst.message, worst.measured)
    return worst


def _by_value_targets(run: Signals, limit: Limits) -> Finding:
    """A policy's return as its value function is taught it: the first third of the samples beside the last."""
    for name in run.matching("fit_target/*"):
        points = run.maybe(name)
        if points is None or len(points) < limit["samples"]:
            continue
        third = len(points) // limit.count("parts")
        first, last = points.values[:third], points.values[-third:]
        start, end = float(np.mean(first)), float(np.mean(last))
        surely = limit["value_errors"] * float(np.sqrt((np.var(first, ddof=1) + np.var(last, ddof=1)) / third))
        words = f"the mean return that the value function learns goes from {shown(start)} to {shown(end)}"
        measured = {"start": start, "end": end}
        if end - start > surely:
            return Finding("rose", f"{words}.", measured)
        if start - end > surely:
            return Finding("fell", f"{words}: training makes it worse.", measured)
    raise NotApplicable("no return was logged, and the targets of a value function do not show it", "episodic_return")


_ORDER = ("rose", "flat", "collapsed", "fell")


def _judged(name: str, level: Levels, limit: Limits) -> Finding:
    surely = limit["errors"] * level.error
    measured = {"start": level.start, "best": level.best, "end": level.end}
    words = f"{name} {shown(level.start)} at the start, {shown(level.best)} at its best, {shown(level.end)} at the end"
    if level.start - level.end > surely and level.start - level.best < surely:
        return Finding("fell", f"{words}: training makes it worse.", measured)
    gained, lost = level.best - level.start, level.best - level.end
    if gained > surely and lost > surely and lost > limit["lost"] * gained:
        message = f"{words}: {percent(lost / gained)} of the gain is lost again (limit {percent(limit['lost'])})."
        return Finding("collapsed", message, measured, level.best_step)
    if level.end - level.start > surely:
        return Finding("rose", f"{words}.", measured)
    return Finding("flat", f"{words}: no change beyond its noise (± {shown(surely)}).", measured)


QUESTION = Question(
    code="V1.8",
    name="the measured success rises",
    asks="Does the return, reward, accuracy or score that is logged improve?",
    why="Some losses say nothing about success: a policy's, or those of two opponents. What the user measures as "
    "success must then rise.",
    needs=("episodic_return",),
    panel=1,
    thresholds=(
        LOSSES,
        Threshold(
            name="errors",
            value=6,
            unit="standard errors",
            meaning="smaller changes are noise",
            seed="",
            decision="as in V1.1",
        ),
        Threshold(
            name="samples",
            value=10,
            unit="sampled steps",
            meaning="how many means of a value function's targets show their trend",
            seed="",
            decision="half of what a logged curve needs: each is a mean over a batch",
        ),
        Threshold(
            name="parts",
            value=3,
            unit="equal parts of the samples",
            meaning="of how many the first and the last are compared",
            seed="",
            decision="a third of ten samples has a spread that can be measured",
        ),
        Threshold(
            name="value_errors",
            value=4,
            unit="standard errors",
            meaning="smaller changes of the mean target are noise",
            seed="",
            decision="measured: below 1 for a policy that does not learn, 10 and more for those that do",
        ),
        Threshold(
            name="lost",
            value=0.7,
            unit="fraction of the gain",
            meaning="how much of the gain may be lost again",
            seed="",
            decision="returns of healthy policies fall back by half and recover",
        ),
    ),
    outcomes=(
        Outcome(name="rose", answer=PASS, meaning="success is higher than at the start"),
        Outcome(name="steady", answer=PASS, meaning="success stays where it was, and the loss can be judged instead"),
        Outcome(
            name="flat",
            answer=NOTE,
            meaning="the logged success has not risen, and the loss says nothing about it",
            fix="Train for longer, or compare with a run at another learning rate.",
        ),
        Outcome(
            name="collapsed",
            answer=SUSPECT,
            meaning="success rose and was lost again",
            fix="Go back to the checkpoint of the best success, and lower the learning rate.",
            experiment="Train on from the best checkpoint with a third of the learning rate: if success stays, updates "
            "were too large.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="fell",
            answer=SUSPECT,
            meaning="success falls while the run trains: it may learn the opposite",
            fix="Check the sign of the advantage, the reward or the loss.",
            experiment="Turn the sign of the advantage (or of the loss) around and train 100 steps: if success rises, "
            "the sign was wrong.",
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
