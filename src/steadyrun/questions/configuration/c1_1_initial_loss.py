"""C1.1: is the loss of the first step that of a model that knows nothing?"""

from __future__ import annotations

import math

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.intent import summed_loss, unknown_classes, untrained_start
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    untrained_start(run)
    summed_loss(run)
    count = known_facts(run, limit).classes
    if count is None:
        raise MissingSignal(*unknown_classes(run))
    loss = run.points("loss")
    if loss.steps[0] > 0:
        raise MissingSignal(
            "loss", f"the first recorded step is {loss.step_at(0)}, not 0", "record from the first step on"
        )
    expected, first = math.log(count), float(loss.values[0])
    offset = first - expected
    measured = {"loss": first, "expected": expected, "offset": offset}
    facts = f"loss {shown(first)} at step 0; ln {count} = {shown(expected)} is the loss of a uniform guess"
    if offset > limit["high"]:
        return Finding("high", f"{facts}: {shown(offset)} above it, limit {limit['high']:g}.", measured, 0)
    if offset < -limit["low"]:
        return _low(run, f"{facts}: {shown(-offset)} below it, limit {limit['low']:g}", first, measured, limit)
    if abs(offset) > limit["band"]:
        return Finding("off", f"{facts}: off by {shown(abs(offset))}, more than {limit['band']:g}.", measured, 0)
    return Finding("pass", f"{facts} (within {limit['band']:g}).", measured, 0)


def _low(run: Signals, facts: str, first: float, measured: dict[str, float], limit: Limits) -> Finding:
    """Learned weights, or a loss that leaves most of it out: the scales of norm layers tell which."""
    if abs(first - math.log(2)) < limit["binary"]:
        raise NotApplicable(f"{facts}; but {shown(first)} is ln 2, a guess between yes and no: a binary cross-entropy")
    new, known = _norm_scales(run)
    if run.config.get("init") == "random" and new < known:
        message = f"{facts}; random weights are declared, and {known - new} of {known} norm layers have learned scales."
        return Finding("already-trained", message, measured, 0)
    baseline = run.declared("baseline_loss")
    if known and run.config.get("init") == "random" and baseline is not None and first < baseline:
        message = f"{facts}, and below the baseline {shown(baseline)}, yet all {known} norm layers are as new."
        return Finding("counts-too-little", message, measured, 0)
    return Finding("low", f"{facts}; learned weights, a bias that knows the classes, or another loss.", measured, 0)


def _norm_scales(run: Signals) -> tuple[int, int]:
    """How many norm layers have scales that are all alike (1, or 0 at the end of a branch), and of how many."""
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
    asks="Is the loss at step 0 within 0.5 of ln V, where V is the number of classes or the vocabulary size?",
    why="A model that knows nothing gives every class the same probability, and its cross-entropy is ln V. More "
    "means it starts out confidently wrong (weights too large, a head bias); much less means it is not untrained.",
    needs=("loss", "vocab_size or num_classes"),
    panel=1,
    thresholds=(
        Threshold(
            name="band",
            value=0.5,
            unit="nats",
            meaning="distance from ln V that still passes",
            seed="0.5 around ln V",
            decision="as specified",
            of="offset",
        ),
        Threshold(
            name="high",
            value=1.76,
            unit="nats",
            meaning="above ln V by more than this",
            seed="8.0 for V = 512",
            decision="8.0 is 1.76 above ln 512; as an offset it holds for any number of classes",
            of="offset",
        ),
        Threshold(
            name="low",
            value=2.24,
            unit="nats",
            meaning="below ln V by more than this",
            seed="4.0 for V = 512",
            decision="4.0 is 2.24 below ln 512; as an offset it holds for any number of classes",
            of="-offset",
        ),
        Threshold(
            name="binary",
            value=0.1,
            unit="nats",
            meaning="a first loss this close to ln 2 is that of a binary cross-entropy",
            seed="",
            decision="ln 2 is the loss of a guess between yes and no",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the model starts as ignorant as it should"),
        Outcome(
            name="off",
            answer=NOTE,
            meaning="outside the band but inside the hard limits: the initial weights are looked at first",
        ),
        Outcome(
            name="high",
            answer=NOTE,
            meaning="the loss starts far above a guess: weights and reduction are looked at; a margin, an "
            "auxiliary head or "
            "another unit explains it, too",
            fix="Look at how the output layer and its bias are initialised, and whether the loss is a mean over items.",
        ),
        Outcome(
            name="low",
            answer=NOTE,
            meaning="the loss starts far below a guess: learned weights, a bias that knows the classes, or "
            "another loss",
        ),
        Outcome(
            name="already-trained",
            answer=FAULT,
            meaning="random weights are declared, but the model is not untrained",
            fix="Look for a checkpoint that is loaded; if it is meant, declare config={'init': 'pretrained'}.",
        ),
        Outcome(
            name="counts-too-little",
            answer=FAULT,
            meaning="an untrained model cannot be below the baseline: the loss leaves out most of what it should count",
            fix="Look at what the loss masks and what it divides by: the mean is over the items that are kept.",
        ),
    ),
    find=find,
)
