"""V1.8: does what the user logs as success improve?"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.facts import POLICY
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import better, has_success_alone, is_held_out, is_reward, successes, words_of
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    ways = successes(run)
    long = [name for name in ways if (points := run.maybe(name)) is not None and len(points) >= limit["losses"]]
    for name in long:
        if (nothing := _nothing_to_learn(run, name, limit)) is not None:
            return nothing
    if not long and known_facts(run, limit).objective == POLICY:
        return _by_value_targets(run, limit)
    if not long:
        raise NotApplicable("no return, reward, accuracy or score was logged often enough", "episodic_return")
    found = {
        name: _judged(name, levels(run, name, limit["losses"], rises=ways[name] > 0), ways[name], limit)
        for name in long
    }
    found = {name: _at_the_top(name, one, found, limit) or one for name, one in found.items()}
    worst = max(found.values(), key=lambda one: _ORDER.index(one.outcome))
    for name in long:
        if (none := _none_at_all(run, name, found[name], limit)) is not None:
            return none
    if worst.outcome == "flat" and not known_facts(run, limit).moves_freely and not has_success_alone(run):
        return Finding("steady", worst.message, worst.measured)
    return worst


def _at_the_top(name: str, one: Finding, found: Mapping[str, Finding], limit: Limits) -> Finding | None:
    """An evaluated reward that begins where training arrives: evaluated after the rise, or without exploration."""
    if one.outcome != "flat" or not (is_reward(name) and is_held_out(name)):
        return None
    for other, trained in found.items():
        if trained.outcome != "rose" or not is_reward(other) or is_held_out(other):
            continue
        start, end = trained.measured["start"], trained.measured["end"]
        if min(one.measured["start"], one.measured["end"]) > start + limit["reached"] * (end - start):
            return Finding("rose", f"{trained.message[:-1]}; {one.message}", trained.measured)
    return None


def _nothing_to_learn(run: Signals, name: str, limit: Limits) -> Finding | None:
    """A reward that is the same in nearly every row, to the end; or a success that stays at what chance gives."""
    values = run.points(name).values
    lowest = float(np.min(values))
    last = values[-max(limit.count("parts"), len(values) // limit.count("last")) :]
    share, late = float(np.mean(values == lowest)), float(np.mean(last == lowest))
    if is_reward(name) and lowest <= 0 and len(values) >= limit["rows"] and min(share, late) > limit["same"]:
        words = f"{name} is exactly {shown(lowest)} in {share:.0%} of {len(values)} rows (limit {limit['same']:.0%})"
        return Finding("no-signal", f"{words}: there is nothing to learn from.", {"same": share})
    level = levels(run, name, limit["losses"], rises=True)
    unit = _PERCENT if float(np.max(values)) > 1 else 1
    ends = [abs(part / unit - _CHANCE) for part in (level.start, level.end)]
    best = abs(level.best / unit - _CHANCE) - limit["lucky"] * level.error / unit
    if len(values) >= limit["rows"] and max(*ends, best) < limit["near"] and _of_two(run, name, limit):
        words = (
            f"{name} {shown(level.start)} at the start, {shown(level.best)} at its best, {shown(level.end)} at the end"
        )
        return Finding("at-chance", f"{words}: what a coin gives between two classes.", {"best": level.best / unit})
    return None


def _none_at_all(run: Signals, name: str, one: Finding, limit: Limits) -> Finding | None:
    """A held-out accuracy or overlap that is next to zero in every evaluation, and does not rise."""
    values = run.points(name).values
    if is_reward(name) or better(name) < 0 or not is_held_out(name) or one.outcome == "rose":
        return None
    if len(values) < limit["rows"] or float(np.min(values)) < 0 or float(np.max(values)) > limit["none"]:
        return None
    words = (
        f"{name} is {shown(float(np.max(values)))} at its best in {len(values)} evaluations (limit {limit['none']:g})"
    )
    return Finding("none", f"{words}: the model gets nothing right on held-out data.", {"best": float(np.max(values))})


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
_PERCENT, _CHANCE, _AREAS, _ACCURACIES = 100, 0.5, frozenset({"auc", "auroc"}), frozenset({"accuracy", "acc"})


def _of_two(run: Signals, name: str, limit: Limits) -> bool:
    """Whether chance gives one half: of every AUC, and of an accuracy beside a loss at ln 2."""
    losses = [points for series in ("loss", "val_loss") if (points := run.maybe(series)) is not None]
    at_ln2 = any(abs(float(np.median(points.values)) / math.log(2) - 1) < limit["ln2"] for points in losses)
    return bool(words_of(name) & _AREAS) or (bool(words_of(name) & _ACCURACIES) and at_ln2)


def _judged(name: str, level: Levels, way: int, limit: Limits) -> Finding:
    surely = limit["errors"] * level.error
    measured = {"start": level.start, "best": level.best, "end": level.end}
    words = f"{name} {shown(level.start)} at the start, {shown(level.best)} at its best, {shown(level.end)} at the end"
    gained, lost = way * (level.best - level.start), way * (level.best - level.end)
    if way * (level.start - level.end) > surely and -gained < surely and gained < surely:
        return Finding("fell", f"{words}: training makes it worse.", measured)
    if gained > surely and lost > surely and lost > limit["lost"] * gained:
        message = f"{words}: {percent(lost / gained)} of the gain is lost again (limit {percent(limit['lost'])})."
        return Finding("collapsed", message, measured, level.best_step)
    if way * (level.end - level.start) > surely:
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
            name="rows",
            value=10,
            unit="values",
            meaning="fewer that are all alike, or all at chance, may be a slow start",
            seed="",
            decision="as the samples above",
        ),
        Threshold(
            name="same",
            value=0.9,
            unit="fraction of the rows",
            meaning="how many rewards may be exactly the lowest one, of all and of the last ones",
            seed="",
            decision="a sparse reward that is learned comes more often at the end",
            of="same",
        ),
        Threshold(
            name="last",
            value=5,
            unit="th part of the rows",
            meaning="whose rewards are the last ones",
            seed="",
            decision="as in V1.3",
        ),
        Threshold(
            name="near",
            value=0.05,
            unit="of 1",
            meaning="how far from 0.5 the level of an accuracy or AUC may be at its start, its best and its end",
            seed="",
            decision="a run that learns anything leaves it; many classes begin far below",
        ),
        Threshold(
            name="none",
            value=0.01,
            unit="of 1",
            meaning="an accuracy or overlap that stays below this in every evaluation, and does not rise, is nothing",
            seed="",
            decision="a model that predicts one class of a hundred gets as much",
        ),
        Threshold(
            name="lucky",
            value=2,
            unit="standard errors",
            meaning="how far the best stretch lies above the level by chance",
            seed="",
            decision="the best of ten to twenty stretches, as in V1.1",
        ),
        Threshold(
            name="ln2",
            value=0.1,
            unit="fraction",
            meaning="how near to ln 2 the median loss beside such an accuracy is",
            seed="",
            decision="an accuracy of 0.5 is good among a hundred classes, whose loss is higher",
        ),
        Threshold(
            name="reached",
            value=0.5,
            unit="fraction of what training gains",
            meaning="an evaluated reward that stays above this is as high as training leads to",
            seed="",
            decision="halfway: an evaluation that training does not reach stays at the level of the start",
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
            name="no-signal",
            answer=SUSPECT,
            meaning="nearly every reward is the same: nothing can be learned from it",
            fix="Print a few answers with their rewards: check how the answer is parsed, whether the length limit cuts "
            "it, and whether the task is solvable at all by the first policy.",
            experiment="Give the reward function a right answer by hand. If its reward is the same, the function or "
            "the parser is wrong; if it is higher, the task is too hard: start with easier examples, or reward parts.",
            may_pass=True,
        ),
        Outcome(
            name="at-chance",
            answer=SUSPECT,
            meaning="success stays at what chance gives: the model has learned nothing about the inputs",
            fix="Check that labels belong to their inputs and that gradients reach the first layer; then try ten times "
            "the learning rate, and a tenth.",
            experiment="Overfit one batch (steadyrun preflight --deep). If that works, the labels or the rate are at "
            "fault; if not, the model or the loss.",
            may_pass=True,
        ),
        Outcome(
            name="none",
            answer=SUSPECT,
            meaning="the model gets next to nothing right on held-out data, from the first evaluation to the last",
            fix="Evaluate a few training examples with the same code, and look at predictions beside their labels: "
            "check the numbering of classes, the threshold, the scale of labels and whether the trained weights are "
            "the ones evaluated.",
            experiment="Run the evaluation on training examples. If success is next to zero there, the evaluation is "
            "broken; if not, held-out data is prepared differently.",
            may_pass=True,
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
