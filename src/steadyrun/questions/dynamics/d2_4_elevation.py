"""D2.4: a loss that stays at a worse level after a spike."""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.dynamics.run_spikes import find_spikes, stays
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.spikes import Spike
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    staying = [spike for spike in find_spikes(run, limit) if stays(run, spike, limit)]
    if not staying:
        raise NotApplicable("the loss recovers from every spike")
    spike = max(staying, key=lambda spike: spike.length if spike.length is not None else math.inf)
    loss = run.points("loss")
    after = loss.values[spike.start :][-run.stretch(loss, limit["last"], limit.count("last_points")) :]
    rest = len(loss) - spike.start
    now = float(np.median(after))
    risen = (now - spike.level) / abs(spike.level) if spike.level else 0.0
    measured = {"risen": risen, "rest": float(rest)}
    facts = (
        f"The loss goes from {shown(spike.level)} before step {spike.start_step} to {shown(now)} at the end of the "
        f"record, {rest} {run.counted(loss)} later ({'+' if risen > 0 else ''}{percent(risen)})"
    )
    if spike.end is not None or risen < limit["risen"]:
        return Finding("came-back", f"{facts}.", measured, spike.start_step)
    if rest < run.stretch(loss, limit["rest"], limit.count("rest_points")):
        return Finding(
            "too-early", f"{facts}; {limit['rest']:g} steps are needed to judge it.", measured, spike.start_step
        )
    first = run.stretch(loss, limit["first"], limit.count("first_points"))
    at_once = float(np.median(loss.values[spike.start : spike.start + first])) - spike.level
    if at_once < max(limit["deviations"] * spike.deviation, limit["at_once"] * (now - spike.level)):
        return Finding("level-shift", f"{facts}. It rose gradually, not at once.", measured, spike.start_step)
    proof = _weights_thrown(run, spike, limit["weights"])
    if not proof and _overshoots(run, spike, at_once, now, limit):
        proof = _validation_rose(run, spike, risen / 2)
    if not proof and (worse := _never_back(run, spike, (at_once, now), rest, limit)):
        return Finding("worse-level", f"{facts}. {worse}. {_checkpoint(run, spike)}.", measured, spike.start_step)
    known = known_facts(run, limit)
    if not known.must_fall or known.summed or not proof:
        why = f"{proof}, but whether this loss must fall is not known"
        if not proof:
            why = "Neither weights nor validation show that the model is worse"
        return Finding("level-shift", f"{facts}. {why}. {_checkpoint(run, spike)}.", measured, spike.start_step)
    message = f"{facts}; limit {limit['risen']:.0%}. {proof}. {_checkpoint(run, spike)}."
    return Finding("elevated", message, measured, spike.start_step)


def _never_back(run: Signals, spike: Spike, heights: tuple[float, float], rest: int, limit: Limits) -> str:
    """In words: the loss stays far above its old level for long, and validation does as well; empty otherwise.

    Without validation the loss must have overshot its new level: new data or a new objective lift it in one step.
    """
    loss, val = run.points("loss"), run.maybe("val_loss")
    at_once, now = heights
    if known_facts(run, limit).moves_freely or spike.level <= 0 or now < (1 + limit["far"]) * spike.level:
        return ""
    if rest < limit["long"] * len(loss):
        return ""
    if val is not None and len(val) > 1:
        return _validation_rose(run, spike, limit["far"] / 2)
    if at_once <= limit["overshoot"] * (now - spike.level):
        return ""
    return (
        f"It jumped to {shown(spike.value)} and did not recover in the last {percent(rest / len(loss))} of the record"
    )


def _overshoots(run: Signals, spike: Spike, at_once: float, now: float, limit: Limits) -> bool:
    """Whether the loss and the gradient overshot their new level.

    If the objective was changed on purpose, neither does, and validation still rises.
    """
    if at_once <= limit["overshoot"] * (now - spike.level):
        return False
    norms = run.maybe("grad_norm")
    if norms is None:
        return False
    there = norms.values[(norms.steps >= spike.start_step) & (norms.steps <= spike.peak_step)][: limit.count("norms")]
    before = norms.values[norms.steps < spike.start_step][-limit.count("norms_before") :]
    return bool(len(there) and len(before)) and float(np.max(there)) > limit["thrown"] * float(np.median(before))


def _validation_rose(run: Signals, spike: Spike, limit: float) -> str:
    """In words: validation rose with the loss; a new objective or new data alone moves it less."""
    val = run.maybe("val_loss")
    if val is None:
        return ""
    before, after = val.values[val.steps < spike.start_step], val.values[val.steps > spike.peak_step]
    if not len(before) or not len(after):
        return ""
    lowest, last = float(np.min(before)), float(after[-1])
    return f"Validation rose from {shown(lowest)} to {shown(last)}" if last > (1 + limit) * lowest > 0 else ""


def _weights_thrown(run: Signals, spike: Spike, limit: float) -> str:
    """In words: the weights of a block grew far across the spike; empty otherwise."""
    for name in run.matching("block_param_norm/*"):
        norms = run.maybe(name)
        index = int(np.searchsorted(norms.steps, spike.start_step)) if norms is not None else 0
        if norms is None or not 0 < index < len(norms) or norms.values[index - 1] <= 0:
            continue
        times = float(norms.values[index] / norms.values[index - 1])
        if times > limit:
            block = name.partition("/")[2]
            return f"The weights of {block} are {shown(times)} times as large after it (limit {limit:g})"
    return ""


def _checkpoint(run: Signals, spike: Spike) -> str:
    saved = [(event.step, event.fields.get("path")) for event in run.events("checkpoint") if event.step is not None]
    before = [checkpoint for checkpoint in saved if checkpoint[0] < spike.start_step]
    if not before:
        return "No earlier checkpoint is recorded"
    step, path = max(before, key=lambda checkpoint: checkpoint[0])
    return f"The last checkpoint before it is from step {step}{f' ({path})' if path else ''}"


QUESTION = Question(
    code="D2.4",
    name="persistent elevation",
    asks="Has the loss stayed above its old level after a spike?",
    why="After a destructive update the optimizer's moments are corrupted and the model is worse. Training on rarely "
    "repairs it; going back to a checkpoint does.",
    needs=("loss", "val_loss", "block_param_norm/*"),
    panel=1,
    thresholds=(
        Threshold(
            name="risen",
            value=0.1,
            unit="fraction of the old level",
            meaning="rise at the end of the record",
            seed="no recovery in 50 steps",
            decision="smaller shifts are lost in the drift of the run",
            of="risen",
        ),
        Threshold(
            name="rest",
            value=100,
            unit="steps",
            meaning="how long the rise must last",
            seed="50 steps",
            decision="restarts and hard parts of the data last for 50",
        ),
        Threshold(
            name="at_once",
            value=0.6,
            unit="fraction of the rise",
            meaning="how much must come with the spike itself",
            seed="",
            decision="objectives that change on purpose (an annealed weight) rise gradually",
        ),
        Threshold(
            name="weights",
            value=1.5,
            unit="times",
            meaning="growth of a block's weights across the spike",
            seed="",
            decision="smoothed labels, new data or another objective also raise the loss at once, but hardly move "
            "weights",
        ),
        Threshold(
            name="overshoot",
            value=1.3,
            unit="times the rise that stays",
            meaning="how far the loss must jump at once",
            seed="",
            decision="with a new stage of training, a new term or quantisation the loss rises to its new level, not "
            "beyond",
        ),
        Threshold(
            name="thrown",
            value=2,
            unit="times the median of the norms before",
            meaning="gradient norm at the spike",
            seed="",
            decision="the tutor's damaged run reaches 3.3; without gradient norms it stays a note",
        ),
        Threshold(
            name="first",
            value=10,
            unit="steps",
            meaning="how many steps count as at once",
            seed="",
            decision="the peak alone does not move their median",
        ),
        Threshold(
            name="last",
            value=50,
            unit="steps",
            meaning="how many steps count as the end of the record",
            seed="",
            decision="a few batches do not move their median",
        ),
        Threshold(
            name="deviations",
            value=3,
            unit="standard deviations",
            meaning="smallest rise that must come with the spike itself",
            seed="",
            decision="the height of a spike in D2.1",
        ),
        Threshold(
            name="first_points",
            value=3,
            unit="logged points",
            meaning="at least this many count as at once in a sparse log",
            seed="",
            decision="a median of fewer is a single point",
        ),
        Threshold(
            name="last_points",
            value=5,
            unit="logged points",
            meaning="at least this many count as the end of a sparse log",
            seed="",
            decision="a median of fewer is noisy",
        ),
        Threshold(
            name="rest_points",
            value=10,
            unit="logged points",
            meaning="how long the rise must last in a sparse log",
            seed="",
            decision="the same as in D2.2",
        ),
        Threshold(
            name="norms",
            value=10,
            unit="gradient norms",
            meaning="how many from the spike on are examined",
            seed="",
            decision="later norms belong to the new level",
        ),
        Threshold(
            name="far",
            value=0.25,
            unit="of the old level",
            meaning="how far above it a loss may stay until the end",
            seed="",
            decision="the same as in V1.1; validation must have risen by half of it, if it is recorded",
        ),
        Threshold(
            name="long",
            value=0.2,
            unit="of the record",
            meaning="how long it must stay there",
            seed="",
            decision="a slow recovery takes less",
        ),
        Threshold(
            name="norms_before",
            value=20,
            unit="gradient norms",
            meaning="how many before the spike are the reference",
            seed="",
            decision="their median is the usual norm",
        ),
    ),
    outcomes=(
        Outcome(
            name="came-back",
            answer=NOTE,
            meaning="the loss recovered slowly from a spike",
            fix="No action is needed.",
        ),
        Outcome(
            name="too-early",
            answer=NOTE,
            meaning="the loss is high after a spike; too early to judge",
            fix="Train on and check again.",
        ),
        Outcome(
            name="level-shift",
            answer=NOTE,
            meaning="the loss moved to a higher level, without proof of harm",
            fix="No action is needed if the data or the objective changed there; otherwise compare validation before "
            "and after.",
        ),
        Outcome(
            name="worse-level",
            answer=SUSPECT,
            meaning="the loss jumped and did not recover",
            fix="Go back to the last checkpoint before the jump, and continue with a lower learning rate or a lower "
            "clip threshold.",
            experiment="Continue from the checkpoint before the jump, once with the same batches and once with "
            "others. If only the same batches jump, the data is the cause; if both do, it is the learning rate or the "
            "optimizer's state. If you changed the data or the objective there, compare validation before and after.",
            may_pass=True,
            explains=("V1.1", "V1.3", "C4.2", "D4", "S1.5"),
        ),
        Outcome(
            name="elevated",
            answer=FAULT,
            meaning="a spike damaged the model: the loss stays higher",
            fix="Go back to the last checkpoint before the spike. Lower the clip threshold to 0.5 and spread rare "
            "examples over all batches before you continue.",
            may_pass=True,
        ),
    ),
    find=find,
)
