"""A5.9: do the targets differ?"""

from __future__ import annotations

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.facts import CONTRASTIVE, Facts
from steadyrun.signals.fits import whole_loss
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    known = known_facts(run, limit)
    if (twice := _same_twice(run, limit, known)) is not None:
        return twice
    if known.moves_freely or known.objective == CONTRASTIVE:
        raise NotApplicable("this objective has no targets that must differ")
    guesses = [points for name in run.matching("fit_guess/*") if (points := run.maybe(name)) is not None]
    if not guesses:
        raise NotApplicable("no comparison of predictions with targets was recorded")
    if min(len(points) for points in guesses) < limit["samples"]:
        raise MissingSignal("fit/*", f"samples of targets: {len(guesses[0])}, needed: {limit['samples']:g}")
    largest = max(float(points.values.max()) for points in guesses)
    measured = {"guess": largest}
    if largest <= limit["alike"] and whole_loss(run, limit["close"], limit["alike"]) is None:
        raise NotApplicable("the equal targets belong to one term of the loss, which is a condition")
    if largest <= limit["alike"]:
        message = (
            f"All targets are equal in {len(guesses[0])} sampled steps: a constant has an error of {shown(largest)}."
        )
        return Finding("constant", message, measured)
    return Finding("pass", f"Targets differ: a constant has an error of up to {shown(largest)}.", measured)


def _same_twice(run: Signals, limit: Limits, known: Facts) -> Finding | None:
    """A loss that compares the outputs of several passes, of which two are equal."""
    alike = run.maybe("passes_alike")
    if alike is None or len(alike) < limit["samples"] or float(alike.values.min()) < 1:
        return None
    if known.objective != CONTRASTIVE and run.matching("fit/*"):  # each pass may have its own targets
        return None
    message = f"In all {len(alike)} sampled steps, two passes of the model gave equal outputs."
    return Finding("same-twice", message)


QUESTION = Question(
    code="A5.9",
    name="targets differ",
    asks="Do the targets differ from each other, and do the two examples of a pair differ?",
    why="If all targets are equal (no negative examples, a constant column), one answer fits every input: the loss "
    "falls to zero and nothing is learned.",
    needs=("fit/*",),
    panel=1,
    thresholds=(
        Threshold(
            name="alike",
            value=1e-6,
            unit="error of a constant guess",
            meaning="targets that differ by less are equal",
            seed="",
            decision="rounding",
        ),
        Threshold(
            name="close",
            value=0.05,
            unit="fraction of the loss",
            meaning="how near a comparison must be to the loss to count as all of it",
            seed="",
            decision="a small penalty may be added; another term has the same order of magnitude",
        ),
        Threshold(
            name="samples",
            value=4,
            unit="samples",
            meaning="with fewer the question is not answered",
            seed="",
            decision="one batch may have a single class by chance",
        ),
    ),
    outcomes=(
        Outcome(
            name="same-twice",
            answer=SUSPECT,
            meaning="the loss compares examples with themselves",
            fix="Draw each view separately (call augment(x) twice), and pair an example with a different example.",
            experiment="Compare the inputs of the two passes in one step. If they are equal, the pair teaches nothing.",
            explains=("V1.4", "C3", "C4", "S", "D2"),
        ),
        Outcome(name="pass", answer=PASS, meaning="the targets differ"),
        Outcome(
            name="constant",
            answer=SUSPECT,
            meaning="all targets are equal, so there is nothing to learn",
            fix="Add examples with other targets (negative pairs, another class), and check the code that makes the "
            "targets.",
            experiment="Print the targets of ten batches. If they are all equal, the loss cannot teach anything.",
            explains=("A5.6:unlike", "C4.2", "S1", "V1"),
        ),
    ),
    find=find,
    always=True,
)
