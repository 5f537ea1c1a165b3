"""G3.1: do generated examples differ as real ones do?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import SAMPLES, last_samples
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import opponents
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    if (agree := _not_opposed(run, limit)) is not None:
        return agree
    last, rank = (last_samples(run, f"generated/{name}", limit) for name in ("variance", "rank"))
    if last is None:
        raise NotApplicable("no generated examples were seen beside real ones often enough")
    if (label := _same_label(run, limit)) is not None:
        return label
    measured = {"variance": last} | ({} if rank is None else {"rank": rank})
    if last < limit["equal"]:
        return Finding(
            "equal", f"All generated examples of a batch are equal: {last:.0e} of the variance of real ones.", measured
        )
    words = f"Generated examples have {percent(last)} of the variance of real ones"
    words += "" if rank is None else f" and {percent(rank)} of their effective rank"
    if rank is not None and last < limit["variance"] and rank < limit["rank"]:
        limits = f"{percent(limit['variance'])} and {percent(limit['rank'])}"
        return Finding("collapsed", f"{words} (limits {limits}).", measured)
    if last > limit["noise"]:
        return Finding("noise", f"Generated examples vary {shown(last)} times as much as real ones.", measured)
    return Finding("differ", f"{words}.", measured)


def _not_opposed(run: Signals, limit: Limits) -> Finding | None:
    """Two losses that both go to zero: what one side gains, the other must lose."""
    for pair in opponents(run):
        sides = [run.maybe(name) for name in pair]
        if any(side is None or len(side) < limit["patience"] or float(np.min(side.values)) < 0 for side in sides):
            continue  # a critic's loss has no zero point
        made, judge = (levels(run, name, limit["patience"]) for name in pair)
        if all(each.start > 0 and each.later < limit["both"] * each.start for each in (made, judge)):
            words = f"{pair[0]} fell from {shown(made.start)} to {shown(made.end)} and {pair[1]} from "
            words += f"{shown(judge.start)} to {shown(judge.end)}: opponents cannot both win."
            return Finding("not-opposed", words, {"generator": made.end, "discriminator": judge.end})
    return None


def _same_label(run: Signals, limit: Limits) -> Finding | None:
    """A discriminator whose real and generated examples have one label."""
    terms = [last_samples(run, f"fit_target/logits{number}", limit) for number in ("", "#2")]
    if terms[0] is None or terms[1] is None or abs(terms[0] - terms[1]) > limit["label"]:
        return None
    message = f"Both terms of the discriminator's loss have the label {shown(terms[0])}."
    return Finding("one-label", message, {"label": terms[0]})


QUESTION = Question(
    code="G3.1",
    name="generated examples differ",
    asks="Do the examples of a generator differ as much as real ones do?",
    why="A generator that gives a few examples again and again can fool its discriminator for long: the losses of both "
    "look healthy.",
    needs=("generated/variance",),
    panel=4,
    thresholds=(
        SAMPLES,
        Threshold(
            name="patience",
            value=200,
            unit="steps",
            meaning="before this, a generator may be at its start",
            seed="",
            decision="chosen: generators begin with little variance",
        ),
        Threshold(
            name="variance",
            value=0.1,
            unit="of the variance of real examples",
            meaning="a generator with less, and a low rank, has collapsed",
            seed="",
            decision="chosen: four collapsed DCGANs ended at 1.8% to 7.4%; a healthy slow one passed through 7.1%, so "
            "the rank must also be low",
        ),
        Threshold(
            name="rank",
            value=0.6,
            unit="of the effective rank of real examples",
            meaning="a generator with less, and little variance, has collapsed",
            seed="",
            decision="chosen on the same runs: the slow one kept about 90% and more while it had little variance",
        ),
        Threshold(
            name="equal",
            value=1e-6,
            unit="of the variance of real examples",
            meaning="below this, all examples of a batch are one example",
            seed="",
            decision="rounding",
        ),
        Threshold(
            name="both",
            value=0.05,
            unit="of its first value",
            meaning="if both losses fall below this, the two sides want the same",
            seed="",
            decision="chosen: of the cross-entropies of a game, one rises while the other falls",
        ),
        Threshold(
            name="label",
            value=0.05,
            unit="",
            meaning="labels of real and generated examples that differ by less are the same",
            seed="",
            decision="chosen: smoothed labels are 0.9 and 0.1",
        ),
        Threshold(
            name="noise",
            value=10,
            unit="times the variance of real examples",
            meaning="a generator with more is not in the range of the data",
            seed="",
            decision="chosen: real and generated examples are scaled alike",
        ),
    ),
    outcomes=(
        Outcome(name="differ", answer=PASS, meaning="generated examples differ as real ones do"),
        Outcome(
            name="collapsed",
            answer=SUSPECT,
            meaning="the generator has collapsed to few examples",
            fix="Lower the generator's learning rate and train the discriminator more often. Then add what shows it "
            "whole batches (minibatch standard deviation), or use a Wasserstein loss with a gradient penalty.",
            experiment="Look at 64 generated examples. Continue from a checkpoint before the collapse with a third of "
            "the generator's learning rate: if they stay different, it was too high.",
            may_pass=True,
            explains=("V1",),
        ),
        Outcome(
            name="one-label",
            answer=SUSPECT,
            meaning="the discriminator is taught the same label for real and for generated examples",
            fix="Give real examples the label 1 and generated ones 0 in the discriminator's loss.",
            experiment="Print the labels of both terms. If they are equal, there is nothing to tell apart.",
            explains=("V1", "C4", "A5.9"),
        ),
        Outcome(
            name="not-opposed",
            answer=SUSPECT,
            meaning="generator and discriminator want the same",
            fix="Give generated examples the label 1 in the generator's loss and 0 in the discriminator's, where real "
            "ones have 1.",
            experiment="Print all labels of one step. The generator's must be the one that real examples have.",
            explains=("V1", "C4", "A5.9"),
        ),
        Outcome(
            name="equal",
            answer=SUSPECT,
            meaning="the generator gives one example for the whole batch",
            fix="Draw one noise vector for each example: torch.randn(batch, size), not expanded from one. Check that "
            "the noise reaches the generator's output.",
            experiment="Print the variance of the noise over the batch. If it is zero, the noise is drawn once.",
            may_pass=True,
            explains=("V1",),
        ),
        Outcome(
            name="noise",
            answer=SUSPECT,
            meaning="generated examples are far outside the range of the data",
            fix="End the generator with the range of the data (tanh for -1 to 1), and scale real examples to it.",
            experiment="Print the smallest and largest value of a real and of a generated batch.",
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
