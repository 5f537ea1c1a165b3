"""D4.3: weight norms that change with a rising loss."""

from __future__ import annotations

import math

from steadyrun.questions.dynamics.drift import WORSE, change_in, last_stretch, surely_worse
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    stretch = last_stretch(run, limit)
    if not stretch.rising:
        raise NotApplicable("the loss does not rise")
    start = float(stretch.loss.steps[-1]) - stretch.window * max(1.0, stretch.loss.spacing)
    changes = {name: change_in(points, start) for name, points in run.family("block_param_norm/*").items()}
    known = {name: change for name, change in changes.items() if change}
    if not known:
        raise NotApplicable("no weight norm is recorded before and during the rise of the loss", "block_param_norm/*")
    worst = max(known, key=lambda name: abs(math.log(known[name])))
    times = known[worst]
    measured = {"times": times}
    bound = f"limit {limit['times']:g}" if times > 1 else f"expected at least {1 / limit['times']:g}"
    change = f"by a factor of {shown(times)} in {stretch.window} steps ({bound})"
    facts = f"The weight norm of {worst} changes {change}"
    if 1 / limit["times"] <= times <= limit["times"]:
        return Finding("pass", f"{facts}.", measured)
    worse = surely_worse(run, stretch, known_facts(run, limit), limit["worse"])
    if not worse:
        message = f"{facts} while the loss rises. Validation does not show that the model is worse."
        return Finding("changing", message, measured, int(start))
    outcome = "growing" if times > 1 else "shrinking"
    return Finding(outcome, f"{facts} while the loss rises. {worse}.", measured, int(start))


QUESTION = Question(
    code="D4.3",
    name="weight norms during drift",
    asks="Has the weight norm of any block changed by more than 2 times over the last 200 steps?",
    why="Weight norms that grow need more weight decay; weight norms that collapse need less.",
    needs=("loss", "block_param_norm/*", "val_loss"),
    panel=5,
    thresholds=(
        Threshold(
            name="times",
            value=2,
            unit="times",
            meaning="change of a weight norm in 200 steps",
            seed="2 times",
            decision="the rule of thumb, unchanged",
            of="times",
        ),
        WORSE,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="weight norms are steady"),
        Outcome(
            name="changing",
            answer=NOTE,
            meaning="weight norms change a lot while the loss rises",
            fix="Train on and check again; record a validation loss if there is none.",
        ),
        Outcome(
            name="growing",
            answer=FAULT,
            meaning="weights grow without bound while the model gets worse",
            fix="Double weight_decay or lower the learning rate, and continue from a checkpoint.",
            may_pass=True,
        ),
        Outcome(
            name="shrinking",
            answer=FAULT,
            meaning="weights collapse while the model gets worse",
            fix="Halve weight_decay and continue from a checkpoint.",
            may_pass=True,
        ),
    ),
    find=find,
)
