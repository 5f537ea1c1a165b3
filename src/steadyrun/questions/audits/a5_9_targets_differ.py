"""A5.9: is there more than one answer to learn?"""

from __future__ import annotations

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.facts import CONTRASTIVE, Facts
from steadyrun.signals.fits import whole_loss
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    known = known_facts(run, limit)
    if (twice := _same_twice(run, limit, known)) is not None:
        return twice
    if known.moves_freely or known.objective == CONTRASTIVE:
        raise NotApplicable("the targets of this objective say who is who, not what is right")
    guesses = [points for name in run.matching("fit_guess/*") if (points := run.maybe(name)) is not None]
    if not guesses:
        raise NotApplicable("the loss compares no predictions with targets, as far as was recorded")
    if min(len(points) for points in guesses) < limit["samples"]:
        raise MissingSignal("fit/*", f"targets were sampled {len(guesses[0])} times, {limit['samples']:g} are needed")
    largest = max(float(points.values.max()) for points in guesses)
    measured = {"guess": largest}
    if largest <= limit["alike"] and whole_loss(run, limit["close"], limit["alike"]) is None:
        raise NotApplicable("targets that are all the same belong to one term of the loss: a condition to be met")
    if largest <= limit["alike"]:
        message = f"in {len(guesses[0])} sampled steps all targets are the same: a constant is off by {largest:.2g}."
        return Finding("constant", message, measured)
    return Finding("pass", f"targets differ: a constant has an error of up to {largest:.3g}.", measured)


def _same_twice(run: Signals, limit: Limits, known: Facts) -> Finding | None:
    """A loss that compares the outputs of several passes with each other, and two of them are the same."""
    alike = run.maybe("passes_alike")
    if alike is None or len(alike) < limit["samples"] or float(alike.values.min()) < 1:
        return None
    if known.objective != CONTRASTIVE and run.matching("fit/*"):  # each pass may have targets of its own
        return None
    message = f"in all {len(alike)} sampled steps two passes of the model gave the same outputs, row by row."
    return Finding("same-twice", message)


QUESTION = Question(
    code="A5.9",
    name="targets differ",
    asks="Do the targets of training differ from each other, and the examples of a pair?",
    why="If all targets are the same (no negative examples, a column that is constant), one answer fits all: the loss "
    "falls to nothing and nothing is learned.",
    needs=("fit/*",),
    panel=1,
    thresholds=(
        Threshold(
            name="alike",
            value=1e-6,
            unit="error of a constant",
            meaning="targets that differ less are the same",
            seed="",
            decision="rounding",
        ),
        Threshold(
            name="close",
            value=0.05,
            unit="of the loss",
            meaning="how near a comparison must come to the loss to be all of it",
            seed="",
            decision="a small penalty may be added; another term is of the same size",
        ),
        Threshold(
            name="samples",
            value=4,
            unit="samples",
            meaning="how many are looked at",
            seed="",
            decision="one batch of one class may come by chance",
        ),
    ),
    outcomes=(
        Outcome(
            name="same-twice",
            answer=SUSPECT,
            meaning="the loss compares examples with themselves: two passes of one step have the same inputs",
            fix="Draw each view anew (augment(x) twice, not one view twice), and pair an example with another one.",
            experiment="Compare the inputs of the two passes in one step. If they are equal, the pair teaches nothing.",
            explains=("V1.4", "C3", "C4", "S", "D2"),
        ),
        Outcome(name="pass", answer=PASS, meaning="there is something to tell apart"),
        Outcome(
            name="constant",
            answer=SUSPECT,
            meaning="all targets are the same: one answer fits all",
            fix="Add examples of the other answers (negative pairs, another class); look at how targets are made.",
            experiment="Print the targets of ten batches: if they are all the same, the loss cannot teach anything.",
            explains=("A5.6:unlike", "C4.2", "S1", "V1"),
        ),
    ),
    find=find,
    always=True,
)
