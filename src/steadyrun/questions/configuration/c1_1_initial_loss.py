"""C1.1: the first loss is the loss of a guess."""

from __future__ import annotations

import math

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.intent import summed_loss, unknown_classes, untrained_start
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, shown


def find(run: Signals, limit: Limits) -> Finding:
    untrained_start(run)
    summed_loss(run)
    count = known_facts(run, limit).classes
    if count is None:
        raise MissingSignal(*unknown_classes(run))
    loss = run.points("loss")
    if loss.steps[0] > 0:
        raise MissingSignal(
            "loss", f"the record begins at step {loss.step_at(0)}, not at 0", "record from the first step on"
        )
    expected, first = math.log(count), float(loss.values[0])
    offset = first - expected
    measured = {"loss": first, "expected": expected, "offset": offset}
    loss_0, guess = f"The loss at step 0 is {shown(first)}", f"a uniform guess over {count} classes ({shown(expected)})"
    if offset > limit["high"]:
        message = f"{loss_0}, {shown(offset)} above {guess}; limit {limit['high']:g}."
        return Finding("high", message, measured, 0)
    if offset < -limit["low"]:
        return _low(run, f"{loss_0}, {shown(-offset)} below {guess}", first, measured, limit)
    if abs(offset) > limit["band"]:
        side = "above" if offset > 0 else "below"
        message = f"{loss_0}, {shown(abs(offset))} {side} {guess}; normally within {limit['band']:g}."
        return Finding("off", message, measured, 0)
    return Finding("pass", f"{loss_0}, within {limit['band']:g} of {guess}.", measured, 0)


def _low(run: Signals, facts: str, first: float, measured: dict[str, float], limit: Limits) -> Finding:
    """Tell trained weights from a loss that omits most targets: the scales of norm layers decide."""
    if abs(first - math.log(2)) < limit["binary"]:
        raise NotApplicable(f"the first loss, {shown(first)}, is that of a binary cross-entropy (ln 2)")
    new, known = _norm_scales(run)
    if run.config.get("init") == "random" and new < known:
        have = "has" if known - new == 1 else "have"
        trained = f"{known - new} of {counted(known, 'norm layer')} {have} trained scales"
        message = f"{facts}. Random weights are declared, but {trained}."
        return Finding("already-trained", message, measured, 0)
    baseline = run.declared("baseline_loss")
    if known and run.config.get("init") == "random" and baseline is not None and first < baseline:
        message = (
            f"{facts} and below the baseline {shown(baseline)}. The weights are untrained: no norm scale has changed "
            f"({counted(known, 'norm layer')})."
        )
        return Finding("counts-too-little", message, measured, 0)
    message = f"{facts}; limit {limit['low']:g}. Trained weights, a class prior in the bias or another loss explain it."
    return Finding("low", message, measured, 0)


def _norm_scales(run: Signals) -> tuple[int, int]:
    """The number of norm layers with constant scales (1, or 0 at the end of a branch), and of all norm layers."""
    scales = [
        entry
        for entry in run.listed("initial_weights")
        if "norm" in str(entry.get("module")).lower() and str(entry.get("name")).endswith("weight")
    ]
    new = [entry for entry in scales if number(entry.get("std")) == 0]
    return len(new), len(scales)


QUESTION = Question(
    code="C1.1",
    name="initial loss",
    asks="Is the loss at step 0 within 0.5 of ln V, with V the number of classes or the vocabulary size?",
    why="An untrained model gives every class the same probability, so its cross-entropy is ln V. A higher loss means "
    "it starts confidently wrong (large weights, a bias in the output layer); a much lower loss means it is not "
    "untrained.",
    needs=("loss", "vocab_size or num_classes"),
    panel=1,
    thresholds=(
        Threshold(
            name="band",
            value=0.5,
            unit="nats",
            meaning="distance from ln V that still passes",
            seed="0.5 around ln V",
            decision="the rule of thumb, unchanged",
            of="offset",
        ),
        Threshold(
            name="high",
            value=1.76,
            unit="nats",
            meaning="distance above ln V that is a note",
            seed="8.0 for V = 512",
            decision="8.0 is 1.76 above ln 512; as an offset it holds for any number of classes",
            of="offset",
        ),
        Threshold(
            name="low",
            value=2.24,
            unit="nats",
            meaning="distance below ln V that is unusual",
            seed="4.0 for V = 512",
            decision="4.0 is 2.24 below ln 512; as an offset it holds for any number of classes",
            of="-offset",
        ),
        Threshold(
            name="binary",
            value=0.1,
            unit="nats",
            meaning="a first loss this close to ln 2 is a binary cross-entropy",
            seed="",
            decision="ln 2 is the loss of a guess between two classes",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the first loss is that of an untrained model"),
        Outcome(
            name="off",
            answer=NOTE,
            meaning="the first loss is not quite that of a uniform guess",
            fix="No action is needed while the loss falls; otherwise check the initialisation of the output layer.",
        ),
        Outcome(
            name="high",
            answer=NOTE,
            meaning="the first loss is far above that of a uniform guess",
            fix="Check the initialisation of the output layer and its bias, and that the loss is a mean over items. A "
            "margin, an auxiliary loss or another unit also explains it.",
        ),
        Outcome(
            name="low",
            answer=NOTE,
            meaning="the first loss is far below that of a uniform guess",
            fix="If the weights are trained, declare config={'init': 'pretrained'}; otherwise print the loss mask and "
            "the bias of the output layer.",
        ),
        Outcome(
            name="already-trained",
            answer=FAULT,
            meaning="random weights are declared, but the weights are trained",
            fix="Find the code that loads a checkpoint and remove it; if you want it, declare config={'init': "
            "'pretrained'}.",
        ),
        Outcome(
            name="counts-too-little",
            answer=FAULT,
            meaning="the loss omits most of the targets",
            fix="Print the loss mask and the divisor of the loss: divide by the number of targets that the mask keeps.",
        ),
    ),
    find=find,
)
