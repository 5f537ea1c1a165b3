"""V1.2: does the model beat a guess?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.facts import LEARNED, Facts
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    known, loss = known_facts(run, limit), levels(run, "loss", limit["losses"])
    if known.guess is None:
        return _fits(run, limit, known, loss)
    if known.guess < limit["entropy"]:
        raise NotApplicable(f"almost all targets are of one class: a guess costs {shown(known.guess)}")
    ratio = loss.end / known.guess
    measured = {"guess": known.guess, "end": loss.end, "ratio": ratio, "steps": loss.steps}
    words = f"{known.guess_why}; the loss ends at {shown(loss.end)}"
    if ratio < limit["beats"]:
        return Finding("beats", f"{words}.", measured)
    if ratio > 1 + limit["worse"] and loss.steps >= limit["steps"]:
        return Finding("worse", f"{words}, {ratio:.2f} times that.", measured)
    return Finding(_no_better(run, limit, known, loss), f"{words} after {loss.steps:.0f} steps.", measured)


def _fits(run: Signals, limit: Limits, known: Facts, loss: Levels) -> Finding:
    """Of a loss that compares numbers: how its predictions do against the mean of all targets."""
    if known.moves_freely:
        raise NotApplicable(f"this loss may move freely: {known.moves_freely}")
    names = run.matching("fit/*")
    if not names:
        raise NotApplicable("the loss of a guess is not known for this objective", "vocab_size")
    ratios = {name.partition("/")[2]: _ratio(run, limit, name) for name in names}
    name, ratio = min(ratios.items(), key=lambda fit: fit[1])
    measured = {"ratio": ratio, "steps": loss.steps}
    words = f"predictions have {shown(ratio)} times the error of the mean target ({_WORDS[name.partition('#')[0]]})"
    if ratio < limit["beats"]:
        return Finding("beats", f"{words}.", measured)
    outcome = _no_better(run, limit, known, loss)
    return Finding(outcome, f"{words} after {loss.steps:.0f} steps: they do not depend on the inputs.", measured)


_WORDS = {
    "squared": "squared differences",
    "absolute": "absolute differences",
    "binary": "binary cross-entropy",
    "logits": "binary cross-entropy",
}


def _ratio(run: Signals, limit: Limits, name: str) -> float:
    """The error of predictions against that of the mean, over the last samples."""
    fit, guess = run.points(name), run.points(name.replace("fit/", "fit_guess/"))
    last = limit.count("samples")
    if len(fit) < last or len(guess) != len(fit):
        raise MissingSignal("fit/*", f"predictions were compared {len(fit)} times, {last} are needed")
    mean = float(np.mean(guess.values[-last:]))
    if mean <= 0:
        raise NotApplicable("all targets are the same")
    return float(np.mean(fit.values[-last:])) / mean


def _no_better(run: Signals, limit: Limits, known: Facts, loss: Levels) -> str:
    early = loss.steps < limit["patience"] or run.running or known.start == LEARNED
    return "not-yet" if early else "no-better"


_EXPERIMENT = (
    "Overfit one batch (steadyrun preflight --deep). If that works, the labels do not belong to the inputs, the rate "
    "is wrong, or another term of the loss outweighs this one; if not, the model or the loss is broken."
)

QUESTION = Question(
    code="V1.2",
    name="the model beats a guess",
    asks="Is the loss below that of a guess that ignores the inputs?",
    why="A model that has learned anything from its inputs is better than one that always answers with the class "
    "frequencies, or with the mean of all targets.",
    needs=("loss", "vocab_size"),
    panel=1,
    thresholds=(
        Threshold(
            name="beats",
            value=0.985,
            unit="of a guess's loss",
            meaning="what the loss must get below",
            seed="",
            decision="as in S1.4: noise moves a loss by less",
            of="ratio",
        ),
        Threshold(
            name="worse",
            value=0.1,
            unit="of a guess's loss",
            meaning="how far above a guess a loss may end",
            seed="",
            decision="label smoothing and mixup raise a loss by less",
        ),
        Threshold(
            name="steps",
            value=50,
            unit="steps",
            meaning="before this, a loss above a guess may be the start",
            seed="",
            decision="runs that start a little too wide are below a guess by then",
        ),
        Threshold(
            name="patience",
            value=300,
            unit="steps",
            meaning="how long a run may take to beat a guess",
            seed="",
            decision="as in S1.4",
        ),
        Threshold(
            name="samples",
            value=4,
            unit="samples",
            meaning="over how many of the last samples predictions are compared with the mean target",
            seed="",
            decision="one batch may be hard; the loss is read in every fiftieth step",
        ),
        Threshold(
            name="entropy",
            value=0.05,
            unit="nats",
            meaning="a guess this good leaves nothing to learn",
            seed="",
            decision="one class in a hundred differs",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="beats", answer=PASS, meaning="the model uses its inputs"),
        Outcome(name="not-yet", answer=NOTE, meaning="the model does not beat a guess yet"),
        Outcome(
            name="no-better",
            answer=SUSPECT,
            meaning="the model does no better than a guess that ignores its inputs",
            fix="Check that inputs and labels belong together, and that the learning rate fits.",
            experiment=_EXPERIMENT,
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="worse",
            answer=SUSPECT,
            meaning="the model is worse than a guess: the run diverged, or its labels are wrong",
            fix="Lower the learning rate by ten, and check the labels.",
            experiment=_EXPERIMENT,
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
