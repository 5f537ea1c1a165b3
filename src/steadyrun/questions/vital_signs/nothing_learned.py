"""A logged success that shows that nothing was learned: constant, at chance, or near zero."""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import SUSPECT, Finding, Limits, Outcome, Threshold
from steadyrun.questions.vital_signs.improvement import course
from steadyrun.signals.curves import Floats, chance_of_rise
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import better, is_held_out, is_reward, words_of
from steadyrun.text import percent, shown

_DETECTED = frozenset({"map", "map50", "map95", "ap", "ap50", "iou", "miou", "dice"})  # measured in evaluations
_PERCENT, _CHANCE, _AREAS, _ACCURACIES = 100, 0.5, frozenset({"auc", "auroc"}), frozenset({"accuracy", "acc"})
_SHARES = _ACCURACIES | frozenset({"correct", "top1", "prec1", "acc1"})  # of right answers


def nothing_to_learn(run: Signals, name: str, limit: Limits) -> Finding | None:
    """A success that has the same value in nearly every row to the end, or that stays at chance level."""
    values = run.points(name).values
    if len(values) >= limit["rows"] and (same := _one_value(run, name, values, limit)) is not None:
        return same
    level = levels(run, name, limit["losses"], rises=True)
    unit = _PERCENT if float(np.max(values)) > 1 else 1
    ends = [abs(part / unit - _CHANCE) for part in (level.start, level.end)]
    best = abs(level.best / unit - _CHANCE) - limit["lucky"] * level.error / unit
    if len(values) >= limit["rows"] and max(*ends, best) < limit["near"] and _of_two(run, name, limit):
        words = course(name, level.start, level.best, level.end)
        return Finding(
            "at-chance", f"{words}; random guessing gives {shown(unit * _CHANCE)}.", {"best": level.best / unit}
        )
    return None


def _one_value(run: Signals, name: str, values: Floats, limit: Limits) -> Finding | None:
    """A reward at its lowest value in most rows, or a held-out accuracy with a single value below the maximum."""
    last = values[-max(limit.count("parts"), len(values) // limit.count("last")) :]
    each, counts = np.unique(values, return_counts=True)
    usual = float(each[0] if is_reward(name) else each[np.argmax(counts)])
    share, late = float(np.mean(values == usual)), float(np.mean(last == usual))
    rows = f"all {len(values)} rows" if share == 1 else f"{percent(share)} of {len(values)} rows"
    words = f"{name} is exactly {shown(usual)} in {rows}"
    if is_reward(name):
        rises = chance_of_rise(values) < limit["unsure"]
        often = share == 1 if usual > 0 else min(share, late) > limit["same"]  # above zero it may be the maximum
        if rises or not often or _other_reward(run, name, limit):
            return None
        words = f"{words} (limit {percent(limit['same'])})."
        return Finding("no-signal", words, {"same": share})
    of_classes = is_held_out(name) and words_of(name) & (_ACCURACIES | _AREAS)
    if not of_classes or usual in (0, 1, _PERCENT) or min(share, late) <= limit["constant"]:
        return None
    if _beyond_one_answer(run, usual / (_PERCENT if usual > 1 else 1), limit):
        return None
    words = f"{words} (limit {percent(limit['constant'])})."
    return Finding("constant", words, {"constant": share})


def _other_reward(run: Signals, name: str, limit: Limits) -> bool:
    """Whether another logged reward differs from row to row: the policy can learn from that one."""
    others = [run.maybe(other) for other in run.own if other != name and is_reward(other)]
    long = [points.values for points in others if points is not None and len(points) >= limit["rows"]]
    return any(len(np.unique(values)) > len(values) / 2 for values in long)


def _beyond_one_answer(run: Signals, accuracy: float, limit: Limits) -> bool:
    """Whether the validation loss is lower than a constant answer can reach.

    A constant answer that is right for a fraction p costs at least -ln p. Such an accuracy does not measure learning.
    """
    val = run.maybe("val_loss")
    last = val.values[-max(1, len(val) // limit.count("last")) :] if val is not None else None
    return last is not None and accuracy > 0 and float(np.median(last)) < -math.log(accuracy)


def none_at_all(run: Signals, name: str, one: Finding, limit: Limits) -> Finding | None:
    """A held-out accuracy or overlap that is near zero in every evaluation and does not rise."""
    values = run.points(name).values
    if is_reward(name) or better(name) < 0 or one.outcome == "rose":
        return None
    if not is_held_out(name) and (not words_of(name) & _DETECTED or float(np.max(values)) > 0):
        return None
    if len(values) < limit["rows"] or float(np.min(values)) < 0 or float(np.max(values)) > limit["none"]:
        return None
    best = float(np.max(values))
    words = f"{name} is at most {shown(best)} in {len(values)} evaluations (expected above {limit['none']:g})."
    return Finding("none", words, {"best": best})


def memorised(run: Signals, name: str, one: Finding, way: int, limit: Limits) -> Finding | None:
    """A held-out accuracy with room above it that never rises while the training loss falls far."""
    values, loss = run.points(name).values, run.maybe("loss")
    if one.outcome == "rose" or not is_held_out(name) or not words_of(name) & _SHARES or loss is None:
        return None
    unit = _PERCENT if float(np.max(values)) > 1 else 1
    level = levels(run, name, limit["losses"], rises=True)
    may_rise = chance_of_rise(way * values) < limit["unsure"] and values[-1] > values[0]
    if len(values) < limit["rows"] or level.best / unit > 1 - limit["room"] or may_rise:
        return None
    since = loss.from_step(float(run.points(name).steps[0])).values
    if len(since) < limit["losses"] or known_facts(run, limit).moves_freely:
        return None
    part = max(1, len(since) // limit.count("last"))
    first, end = float(np.median(since[:part])), float(np.median(since[-part:]))
    if end >= limit["far_down"] * first:
        return None
    words = f"{course(name, level.start, level.best, level.end)}, while the training loss fell from {shown(first)} "
    return Finding("by-heart", f"{words}to {shown(end)}.", {"best": level.best, "train": end})


def _of_two(run: Signals, name: str, limit: Limits) -> bool:
    """Whether random guessing gives 0.5: for every AUC, and for an accuracy if a loss stays at ln 2."""
    losses = [points for series in ("loss", "val_loss") if (points := run.maybe(series)) is not None]
    at_ln2 = any(abs(float(np.median(points.values)) / math.log(2) - 1) < limit["ln2"] for points in losses)
    return bool(words_of(name) & _AREAS) or (bool(words_of(name) & _ACCURACIES) and at_ln2)


NOTHING_LEARNED_LIMITS = (
    Threshold(
        name="rows",
        value=10,
        unit="values",
        meaning="fewer equal values, or values at chance level, may be a slow start",
        seed="",
        decision="as for the sampled steps of V1.8",
    ),
    Threshold(
        name="same",
        value=0.75,
        unit="fraction of the rows",
        meaning="how many rewards may equal the lowest one, of all rows and of the last rows",
        seed="",
        decision="a sparse reward becomes more frequent as the policy learns; a reward that rises is exempt",
        of="same",
    ),
    Threshold(
        name="constant",
        value=0.9,
        unit="fraction of the rows",
        meaning="how many held-out values may be equal, if they are below the maximum",
        seed="",
        decision="changing weights change a few predictions on a validation set; a model with a constant answer keeps "
        "the frequency of one class to the last digit",
        of="constant",
    ),
    Threshold(
        name="near",
        value=0.05,
        unit="of 1",
        meaning="how far from 0.5 an accuracy or AUC may be at its start, its best and its end",
        seed="",
        decision="a run that learns leaves this range; with many classes accuracy starts far below",
    ),
    Threshold(
        name="none",
        value=0.01,
        unit="of 1",
        meaning="an accuracy or overlap that never exceeds this and does not rise counts as zero",
        seed="",
        decision="a model that always predicts one class of a hundred gets as much",
    ),
    Threshold(
        name="room",
        value=0.25,
        unit="of 1",
        meaning="how far below 1 a held-out accuracy must stay for its rise to be missed",
        seed="",
        decision="an accuracy above three quarters at the first evaluation may be as high as the task allows",
    ),
    Threshold(
        name="far_down",
        value=0.3,
        unit="of the training loss since the first evaluation",
        meaning="training that falls below this learns what held-out accuracy does not show",
        seed="",
        decision="beyond the half that V1.3 asks of a validation loss, for accuracy is coarser",
    ),
    Threshold(
        name="lucky",
        value=2,
        unit="standard errors",
        meaning="how far above the level the best stretch may be by chance",
        seed="",
        decision="the best of ten to twenty stretches, as in V1.1",
    ),
    Threshold(
        name="ln2",
        value=0.1,
        unit="fraction",
        meaning="how near to ln 2 the median loss must be for 0.5 to be chance level",
        seed="",
        decision="an accuracy of 0.5 is good with a hundred classes, whose loss is higher",
    ),
)

NOTHING_LEARNED_OUTCOMES = (
    Outcome(
        name="no-signal",
        answer=SUSPECT,
        meaning="nearly every reward is the same, so nothing can be learned from it",
        fix="Print a few answers with their rewards. Check how the answer is parsed, whether the length limit cuts it "
        "off, and whether the first policy can solve the task at all.",
        experiment="Pass a correct answer to the reward function by hand. If its reward is the same, the function or "
        "the parser is wrong; if it is higher, the task is too hard: start with easier examples, or reward partial "
        "answers.",
        may_pass=True,
    ),
    Outcome(
        name="constant",
        answer=SUSPECT,
        meaning="the model gives one answer to every input, or old weights are evaluated",
        fix="Count the predicted classes on held-out data, and compare the evaluated weights with the trained weights. "
        "Check class weights, the decision threshold and the learning rate.",
        experiment="Predict 100 held-out examples and count the answers. If all are equal, overfit one batch "
        "(steadyrun preflight --deep) to find out whether the model can learn; if they differ, the evaluation uses "
        "old weights.",
        may_pass=True,
    ),
    Outcome(
        name="at-chance",
        answer=SUSPECT,
        meaning="success stays at chance level: the model ignores its inputs",
        fix="Check that labels belong to their inputs and that gradients reach the first layer. Then try ten times the "
        "learning rate, and a tenth of it.",
        experiment="Overfit one batch (steadyrun preflight --deep). If that works, the labels or the learning rate "
        "are wrong; if not, the model or the loss is.",
        may_pass=True,
    ),
    Outcome(
        name="by-heart",
        answer=SUSPECT,
        meaning="training is memorised: held-out accuracy does not rise with it",
        fix="Check that inputs and labels belong together in both sets, and that both are prepared alike. Then add "
        "data or regularisation, or use a smaller model.",
        experiment="Evaluate a few training batches with the same code. If their accuracy is high, the model has "
        "memorised; if not, the evaluation is broken.",
        may_pass=True,
        symptom=True,
    ),
    Outcome(
        name="none",
        answer=SUSPECT,
        meaning="the model gets almost nothing right on held-out data",
        fix="Evaluate a few training examples with the same code and compare predictions with labels. Check the class "
        "indices, the decision threshold, the scale of the labels, and that the trained weights are evaluated.",
        experiment="Run the evaluation on training examples. If success is near zero there, the evaluation is broken; "
        "if not, held-out data is prepared differently.",
        may_pass=True,
    ),
)
