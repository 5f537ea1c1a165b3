"""G3.3: can the scores of a contrastive loss separate examples?"""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import SAMPLES, compared, last_samples
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import declared_as
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    others = compared(run)
    if others is None:
        raise NotApplicable("the loss is not a cross-entropy over the examples of the batch")
    peak, alike = (last_samples(run, name, limit) for name in ("targets/peak", "output_alike"))
    if last_samples(run, "targets/itself", limit) == 1:
        message = f"Each of the {others:g} examples is compared with itself as well, and is its own target."
        return Finding("itself", message, {"scores": others})
    low = limit["flat"] * math.log(others)
    measured = {"scores": others} | ({} if peak is None else {"peak": peak})
    if (unusual := _unusual_temperature(run, limit)) is not None:
        return unusual
    if peak is not None and alike is not None and peak < low and alike < limit["apart"]:
        message = f"The best score of an example is {shown(peak)} above the median score (limit {shown(low)}), "
        return Finding("flat", f"{message}although the embeddings point in different directions.", measured)
    if others > limit["few"] and (lost := _lost_partners(run, limit)) is not None:
        return lost
    outcome = "few" if others <= limit["few"] else "some" if others < limit["some"] else "separate"
    words = f"Each example has {others:g} scores"
    words += "" if peak is None else f"; the best is {shown(peak)} above the median"
    return Finding(outcome, f"{words}.", measured)


def _unusual_temperature(run: Signals, limit: Limits) -> Finding | None:
    """A declared temperature that no published recipe is near."""
    given = declared_as(run, "temperature", "tau", "temp")
    if given is None or limit["cold"] <= given <= limit["hot"]:
        return None
    message = f"The declared temperature is {shown(given)} (usual: {limit['cold']:g} to {limit['hot']:g})."
    return Finding("temperature", message, {"temperature": given})


def _lost_partners(run: Signals, limit: Limits) -> Finding | None:
    """Each example finds its partner no better than a guess, although the run is long enough to learn something."""
    fit = last_samples(run, "fit/classes", limit, np.min)  # a run that begins to find them at its end is not lost
    guess = last_samples(run, "fit_guess/classes", limit)
    place = last_samples(run, "targets/place", limit)
    if fit is None or guess is None or fit < limit["guess"] * guess:
        return None
    words = f"The loss is {shown(fit)}, and guessing the partner costs {shown(guess)}"
    words += "" if place is None else f"; the partner's score is above {percent(place)} of the others"
    return Finding("lost", f"{words}.", {"fit": fit, "guess": guess})


_STUCK = ("C4.1:not-learning", "P6.1:does-not-fall")  # what such a loss shows, and no more than that
_LARGER = "Use a larger batch, a queue of former embeddings, or gather embeddings from all processes."

QUESTION = Question(
    code="G3.3",
    name="scores separate examples",
    asks="Can the scores of a contrastive loss separate examples?",
    why="A temperature that is too high makes all scores equal: the loss stays near that of a guess. With few "
    "negatives the task is too easy to learn much from it.",
    needs=("targets/peak",),
    panel=1,
    thresholds=(
        SAMPLES,
        Threshold(
            name="patience",
            value=200,
            unit="steps",
            meaning="before this, embeddings may be at their start",
            seed="",
            decision="measured: three healthy runs have spread their embeddings by then",
        ),
        Threshold(
            name="flat",
            value=0.1,
            unit="of the logarithm of the number of scores",
            meaning="if the best score is above the median by less, scores cannot separate examples",
            seed="",
            decision="to find one of n with a probability of a half takes a score that is ln n above the others",
        ),
        Threshold(
            name="apart",
            value=0.9,
            unit="length of the mean unit output",
            meaning="embeddings below this point in different directions",
            seed="",
            decision="measured: untrained embeddings start at 0.97",
        ),
        Threshold(
            name="few",
            value=4,
            unit="scores",
            meaning="with so few the task is too easy",
            seed="",
            decision="chosen: two images in two views each",
        ),
        Threshold(
            name="some",
            value=16,
            unit="scores",
            meaning="with fewer, embeddings are worse than they could be",
            seed="",
            decision="chosen: usual batches have 64 and more",
        ),
        Threshold(
            name="hot",
            value=2,
            unit="temperature",
            meaning="a higher temperature makes all scores equal",
            seed="",
            decision="chosen: usual temperatures are 0.01 to 0.5; cosines divided by 2 differ by at most 1",
        ),
        Threshold(
            name="cold",
            value=0.002,
            unit="temperature",
            meaning="with a lower temperature, tiny differences are enough",
            seed="",
            decision="chosen: a fifth of the smallest usual value",
        ),
        Threshold(
            name="guess",
            value=0.98,
            unit="of the loss of a guess",
            meaning="with a higher loss, examples do not find their partners",
            seed="",
            decision="chosen: healthy runs end below half of it",
            of="fit",
        ),
    ),
    outcomes=(
        Outcome(name="separate", answer=PASS, meaning="scores can separate examples"),
        Outcome(name="some", answer=NOTE, meaning="each example is compared with few others", fix=_LARGER),
        Outcome(
            name="few",
            answer=SUSPECT,
            meaning="each example is compared with too few others",
            fix=_LARGER,
            experiment="Train 500 steps with a batch of 64, and compare a linear classifier on both embeddings.",
            explains=_STUCK,
        ),
        Outcome(
            name="itself",
            answer=SUSPECT,
            meaning="each example is its own positive: the loss can be solved without looking at the other view",
            fix="Mask the diagonal of the scores, and make the other view of the example the target: "
            "(arange(2 * n) + n) % (2 * n).",
            experiment="Print the first targets beside the scores. If a target is the example's own row, it is.",
            explains=("V1", "S1.4", "G3.4", "C3", "C4", *_STUCK),
        ),
        Outcome(
            name="temperature",
            answer=SUSPECT,
            meaning="the temperature is far from the usual range",
            fix="Normalise the embeddings and divide their similarities by a temperature of 0.05 to 0.5.",
            experiment="Train 300 steps with a temperature of 0.1 and compare the accuracy of finding the partner. If "
            "it is higher, the temperature was wrong.",
            explains=("V1", "S1.4", "G3.4", "C3", "C4", "D2", *_STUCK),
        ),
        Outcome(
            name="lost",
            answer=SUSPECT,
            meaning="examples find their partners no better than a guess",
            fix="Check that the target of each example is the other view of the same example, and that larger scores "
            "mean nearer. Then try a tenth of the learning rate.",
            experiment="Print the targets of the first eight examples beside their sources. If a target is another "
            "example, the partners are wrong.",
            may_pass=True,
            explains=("V1", "S1.4", "G3.4", "C3", "C4", *_STUCK),
        ),
        Outcome(
            name="flat",
            answer=SUSPECT,
            meaning="the scores of a contrastive loss hardly differ: its temperature is too high",
            fix="Normalise the embeddings and divide their similarities by a temperature of 0.05 to 0.5.",
            experiment="Train 300 steps with a temperature of 0.1 and compare the losses at step 300. If the new one "
            "is lower, the temperature was too high.",
            may_pass=True,
            explains=("V1", "S1.4", "G3.4", *_STUCK),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
