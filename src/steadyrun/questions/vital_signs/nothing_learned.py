"""Success that shows that nothing was learned: one value in every row, what chance gives, next to nothing."""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.form import SUSPECT, Finding, Limits, Outcome, Threshold
from steadyrun.signals.curves import Floats, chance_of_rise
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import better, is_held_out, is_reward, words_of
from steadyrun.text import shown

_DETECTED = frozenset({"map", "map50", "map95", "ap", "ap50", "iou", "miou", "dice"})  # measured in evaluations
_PERCENT, _CHANCE, _AREAS, _ACCURACIES = 100, 0.5, frozenset({"auc", "auroc"}), frozenset({"accuracy", "acc"})


def nothing_to_learn(run: Signals, name: str, limit: Limits) -> Finding | None:
    """A success that is the same in nearly every row, to the end; or one that stays at what chance gives."""
    values = run.points(name).values
    if len(values) >= limit["rows"] and (same := _one_value(run, name, values, limit)) is not None:
        return same
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


def _one_value(run: Signals, name: str, values: Floats, limit: Limits) -> Finding | None:
    """A reward that is its lowest value in most rows, or a held-out accuracy that has one value below its top."""
    last = values[-max(limit.count("parts"), len(values) // limit.count("last")) :]
    each, counts = np.unique(values, return_counts=True)
    usual = float(each[0] if is_reward(name) else each[np.argmax(counts)])
    share, late = float(np.mean(values == usual)), float(np.mean(last == usual))
    words = f"{name} is exactly {shown(usual)} in {share:.0%} of {len(values)} rows"
    if is_reward(name):
        rises = chance_of_rise(values) < limit["unsure"]
        often = share == 1 if usual > 0 else min(share, late) > limit["same"]  # above zero it may be at its top
        if rises or not often or _other_reward(run, name, limit):
            return None
        words = f"{words} (limit {limit['same']:.0%}): there is nothing to learn from."
        return Finding("no-signal", words, {"same": share})
    of_classes = is_held_out(name) and words_of(name) & (_ACCURACIES | _AREAS)
    if not of_classes or usual in (0, 1, _PERCENT) or min(share, late) <= limit["constant"]:
        return None
    if _beyond_one_answer(run, usual / (_PERCENT if usual > 1 else 1), limit):
        return None
    words = f"{words} (limit {limit['constant']:.0%}): the model may give one answer to every input."
    return Finding("constant", words, {"constant": share})


def _other_reward(run: Signals, name: str, limit: Limits) -> bool:
    """Whether another reward is logged that differs from row to row: then there is something to learn from."""
    others = [run.maybe(other) for other in run.own if other != name and is_reward(other)]
    long = [points.values for points in others if points is not None and len(points) >= limit["rows"]]
    return any(len(np.unique(values)) > len(values) / 2 for values in long)


def _beyond_one_answer(run: Signals, accuracy: float, limit: Limits) -> bool:
    """Whether validation is better than one answer can be: right for that fraction, it costs -ln of it or more.

    Such an accuracy does not measure what is learned.
    """
    val = run.maybe("val_loss")
    last = val.values[-max(1, len(val) // limit.count("last")) :] if val is not None else None
    return last is not None and accuracy > 0 and float(np.median(last)) < -math.log(accuracy)


def none_at_all(run: Signals, name: str, one: Finding, limit: Limits) -> Finding | None:
    """A held-out accuracy or overlap that is next to zero in every evaluation, and does not rise."""
    values = run.points(name).values
    if is_reward(name) or better(name) < 0 or one.outcome == "rose":
        return None
    if not is_held_out(name) and (not words_of(name) & _DETECTED or float(np.max(values)) > 0):
        return None
    if len(values) < limit["rows"] or float(np.min(values)) < 0 or float(np.max(values)) > limit["none"]:
        return None
    words = (
        f"{name} is {shown(float(np.max(values)))} at its best in {len(values)} evaluations (limit {limit['none']:g})"
    )
    return Finding("none", f"{words}: the model gets nothing right on held-out data.", {"best": float(np.max(values))})


def _of_two(run: Signals, name: str, limit: Limits) -> bool:
    """Whether chance gives one half: of every AUC, and of an accuracy beside a loss at ln 2."""
    losses = [points for series in ("loss", "val_loss") if (points := run.maybe(series)) is not None]
    at_ln2 = any(abs(float(np.median(points.values)) / math.log(2) - 1) < limit["ln2"] for points in losses)
    return bool(words_of(name) & _AREAS) or (bool(words_of(name) & _ACCURACIES) and at_ln2)


NOTHING_LEARNED_LIMITS = (
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
        value=0.75,
        unit="fraction of the rows",
        meaning="how many rewards may be exactly the lowest one, of all and of the last ones",
        seed="",
        decision="a sparse reward that is learned comes more often at the end; one that rises is not judged so",
        of="same",
    ),
    Threshold(
        name="constant",
        value=0.9,
        unit="fraction of the rows",
        meaning="how many held-out successes may have exactly one value below the top",
        seed="",
        decision="weights that change move a few answers of a validation set; a model that always gives the same "
        "answer keeps the fraction of one class to the last digit",
        of="constant",
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
)

NOTHING_LEARNED_OUTCOMES = (
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
        name="constant",
        answer=SUSPECT,
        meaning="held-out success has one value in nearly every evaluation: the model gives one answer to all "
        "inputs, or the same weights are evaluated again and again",
        fix="Count the predicted classes on held-out data, and compare the evaluated weights with the trained "
        "ones; check class weights, the threshold and the learning rate.",
        experiment="Predict 100 held-out examples and count the answers. If all are alike, overfit one batch "
        "(steadyrun preflight --deep) to find out whether the model can learn; if they differ, the evaluation "
        "uses old weights.",
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
)
