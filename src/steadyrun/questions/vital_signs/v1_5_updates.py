"""V1.5: are units active, and do weights move by a useful amount?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.silent_units import dead_fractions
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    moves = _typical(run)
    dead = {name: fraction.last for name, fraction in dead_fractions(run).items()}
    if not moves and not dead:
        raise MissingSignal("update_ratio/*", "the size of updates was not recorded", _HOW)
    measured: dict[str, float] = {}
    update = units = ""
    if moves:
        name, largest = max(moves.items(), key=lambda move: move[1])
        measured["update"] = largest
        update = f"{name} moves most, by {shown(largest)} of its norm per step"
    if dead:
        layer, fraction = max(dead.items(), key=lambda layer: layer[1])
        measured["dead"] = float(np.median(list(dead.values())))
        units = f"{layer} has {percent(fraction)} dead units"
    if measured.get("dead", 0.0) > limit["dead"]:
        message = f"The median layer has {percent(measured['dead'])} dead units (limit {percent(limit['dead'])})."
        return Finding("dead", message, measured)
    if moves and measured["update"] > limit["violent"]:
        outcome = "violent" if levels(run, "loss", limit["losses"]).fallen < limit["learned"] else "large"
        return Finding(outcome, f"{update} (limit {limit['violent']:g}).", measured)
    if moves and measured["update"] < limit["tiny"] and levels(run, "loss", limit["losses"]).fallen < limit["learned"]:
        return Finding("tiny", f"{update} (expected at least {limit['tiny']:g}).", measured)
    return Finding("in-range", f"{'; '.join(filter(None, (update, units)))}.", measured)


_HOW = "call run.watch(model, optimizer) before training"


def _typical(run: Signals) -> dict[str, float]:
    """By block: its update per step relative to its norm, as the median of the second half."""
    moves = {}
    for name in run.matching("update_ratio/*"):
        points = run.maybe(name)
        if points is not None:
            moves[name.partition("/")[2]] = float(np.median(points.values[len(points) // 2 :]))
    return moves


QUESTION = Question(
    code="V1.5",
    name="weights move, units are active",
    asks="Are hidden units active, and do weights move by a useful amount?",
    why="A useful update is between a hundred-thousandth and a few hundredths of a block's norm per step. A smaller "
    "one learns nothing; a larger one overwrites what was learned.",
    needs=("update_ratio/*", "dead_units/*"),
    panel=6,
    thresholds=(
        Threshold(
            name="dead",
            value=0.9,
            unit="fraction of units, in the median layer",
            meaning="how many units may be dead",
            seed="",
            decision="healthy runs have up to 0.27; a dead network had 0.95",
            of="dead",
        ),
        Threshold(
            name="violent",
            value=0.3,
            unit="of a block's norm per step",
            meaning="larger updates overwrite what was learned",
            seed="",
            decision="in healthy runs the block that moves most moves by up to 0.043",
            of="update",
        ),
        Threshold(
            name="tiny",
            value=1e-6,
            unit="of a block's norm per step",
            meaning="smaller updates learn nothing",
            seed="",
            decision="in healthy runs the block that moves most moves by 0.0004 or more",
        ),
        Threshold(
            name="learned",
            value=0.1,
            unit="fraction of the first loss",
            meaning="after a larger fall of the loss, the updates were useful",
            seed="",
            decision="a run that learns is not broken",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="in-range", answer=PASS, meaning="units are active and weights move by a useful amount"),
        Outcome(
            name="large",
            answer=NOTE,
            meaning="updates are very large, though the loss fell",
            fix="No action is needed while the loss falls; otherwise divide the learning rate by 10.",
        ),
        Outcome(
            name="dead",
            answer=SUSPECT,
            meaning="almost all units are dead",
            fix="Lower the learning rate and restart from fresh weights.",
            experiment="Restart with a tenth of the learning rate. If units stay active, the learning rate was too "
            "high; if not, check the initial biases.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="violent",
            answer=SUSPECT,
            meaning="updates overwrite the weights, and the loss does not fall",
            fix="Divide the learning rate by ten.",
            experiment="Train 100 steps with a tenth of the learning rate. If the loss at step 100 is lower than "
            "in this run at step 100, the learning rate was too high.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="tiny",
            answer=SUSPECT,
            meaning="weights hardly move",
            fix="Multiply the learning rate by ten, and check that nothing scales the gradient down.",
            experiment="Train 100 steps with ten times the learning rate. If the loss at step 100 is lower than "
            "in this run at step 100, the learning rate was too low.",
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
