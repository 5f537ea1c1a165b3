"""V1.5: are units alive, and are updates of a useful size?"""

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
        raise MissingSignal("update_ratio/*", "how far weights move was not recorded", _HOW)
    measured = {}
    words = []
    if moves:
        name, largest = max(moves.items(), key=lambda move: move[1])
        measured["update"] = largest
        words.append(f"the liveliest block ({name}) moves by {shown(largest)} of its size per step")
    if dead:
        layer, fraction = max(dead.items(), key=lambda layer: layer[1])
        measured["dead"] = float(np.median(list(dead.values())))
        words.append(f"{percent(fraction)} of the units of {layer} are dead")
    facts = f"{'; '.join(words)}"
    if measured.get("dead", 0.0) > limit["dead"]:
        message = f"{facts}; {percent(measured['dead'])} in the median layer (limit {percent(limit['dead'])})."
        return Finding("dead", message, measured)
    if moves and measured["update"] > limit["violent"]:
        outcome = "violent" if levels(run, "loss", limit["losses"]).fallen < limit["learned"] else "large"
        return Finding(outcome, f"{facts} (limit {shown(limit['violent'])}).", measured)
    if moves and measured["update"] < limit["tiny"] and levels(run, "loss", limit["losses"]).fallen < limit["learned"]:
        return Finding("tiny", f"{facts} (limit {shown(limit['tiny'])}).", measured)
    return Finding("in-range", f"{facts}.", measured)


_HOW = "call run.watch(model, optimizer) before training"


def _typical(run: Signals) -> dict[str, float]:
    """By block: how far it moves per step, relative to its size, in the median of the second half."""
    moves = {}
    for name in run.matching("update_ratio/*"):
        points = run.maybe(name)
        if points is not None:
            moves[name.partition("/")[2]] = float(np.median(points.values[len(points) // 2 :]))
    return moves


QUESTION = Question(
    code="V1.5",
    name="units and updates are alive",
    asks="Are hidden units active, and do weights move by a useful amount?",
    why="Useful updates are between a hundred-thousandth and a few hundredths of a block's size per step. Below, "
    "nothing is learned; above, what was learned is overwritten.",
    needs=("update_ratio/*", "dead_units/*"),
    panel=6,
    thresholds=(
        Threshold(
            name="dead",
            value=0.9,
            unit="fraction of units, in the median layer",
            meaning="how many units may be dead",
            seed="",
            decision="healthy runs have up to 0.27; a network that died has 0.95",
            of="dead",
        ),
        Threshold(
            name="violent",
            value=0.3,
            unit="of a block's size per step",
            meaning="larger updates overwrite what was learned",
            seed="",
            decision="healthy runs move their liveliest block by up to 0.043",
            of="update",
        ),
        Threshold(
            name="tiny",
            value=1e-6,
            unit="of a block's size per step",
            meaning="smaller updates learn nothing",
            seed="",
            decision="healthy runs move their liveliest block by 0.0004 or more",
        ),
        Threshold(
            name="learned",
            value=0.1,
            unit="fraction of the first loss",
            meaning="with a larger fall, the updates were useful",
            seed="",
            decision="what learns is not broken",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="in-range", answer=PASS, meaning="units are active and weights move by a useful amount"),
        Outcome(name="large", answer=NOTE, meaning="updates are very large, though the loss fell"),
        Outcome(
            name="dead",
            answer=SUSPECT,
            meaning="almost all units are dead: the model has thrown its capacity away",
            fix="Lower the learning rate and start again from fresh weights.",
            experiment="Start again with a tenth of the learning rate. If units stay alive, the rate was too high; if "
            "not, look at the initial biases.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="violent",
            answer=SUSPECT,
            meaning="each step overwrites a large part of the weights, and the loss does not fall",
            fix="Lower the learning rate by ten.",
            experiment="Train 100 steps with a tenth of the learning rate. If the loss falls faster, the rate was too "
            "high.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="tiny",
            answer=SUSPECT,
            meaning="weights hardly move: the learning rate is too low, or something scales the gradient down",
            fix="Raise the learning rate by ten.",
            experiment="Train 100 steps with ten times the learning rate. If the loss falls faster, the rate was too "
            "low.",
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
