"""V1.2: does the model beat a guess?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.facts import LEARNED, Facts
from steadyrun.signals.latent_terms import DIVERGENCES, RECONSTRUCTIONS
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import words_of
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    known, loss = known_facts(run, limit), levels(run, "loss", limit["losses"])
    if known.guess is None:
        return _fits(run, limit, known, loss)
    if known.guess < limit["entropy"]:
        raise NotApplicable(f"almost all targets have one class: a guess costs only {shown(known.guess)}")
    if (left := _left_behind(run, limit, known, loss)) is not None:
        return left
    ratio = loss.end / known.guess
    measured = {"guess": known.guess, "end": loss.end, "ratio": ratio, "steps": loss.steps}
    words = f"Loss ends at {shown(loss.end)}"
    if ratio < limit["beats"]:
        return Finding("beats", f"{words}; {known.guess_why}.", measured)
    if ratio > 1 + limit["worse"] and loss.steps >= limit["steps"]:
        return Finding("worse", f"{words}, {shown(ratio)} times a guess: {known.guess_why}.", measured)
    words = f"{words} after {loss.steps:,.0f} steps; {known.guess_why}."
    return Finding(_no_better(run, limit, known, loss), words, measured)


def _fits(run: Signals, limit: Limits, known: Facts, loss: Levels) -> Finding:
    """How the predictions of a regression loss compare with the mean of all targets."""
    if (unused := _unused_code(run, limit)) is not None:
        return unused
    if known.moves_freely:
        raise NotApplicable(f"this loss need not fall: {known.moves_freely}")
    ratios = _terms(run, limit)
    if (unmet := _unmet(run, limit, known, loss)) is not None:
        return unmet
    if not ratios:
        raise NotApplicable("the loss of a guess is unknown for this objective", "vocab_size")
    name, ratio = min(ratios.items(), key=lambda fit: fit[1])
    measured = {"ratio": ratio, "steps": loss.steps}
    words = f"Error is {shown(ratio)} times that of a constant guess ({_word(name)})"
    if ratio < limit["beats"]:
        return _left_behind(run, limit, known, loss) or Finding("beats", f"{words}.", measured)
    outcome = _no_better(run, limit, known, loss)
    return Finding(outcome, f"{words} after {loss.steps:,.0f} steps.", measured)


def _left_behind(run: Signals, limit: Limits, known: Facts, loss: Levels) -> Finding | None:
    """A term of the loss that stays at a guess while another term learns: for long, or because its weight is small."""
    ratios = _terms(run, limit)
    if len(ratios) < 2 or min(ratios.values()) >= limit["beats"] or run.running or known.start == LEARNED:
        return None
    name, ratio = max(ratios.items(), key=lambda term: term[1])
    share = _share(run, limit, name)
    outweighed = share is not None and share < limit["counts"] and ratio > limit["hardly"]
    if loss.steps < limit["patience" if outweighed else "term_patience"] or not (outweighed or ratio >= 1):
        return None
    measured = {"ratio": ratio, "steps": loss.steps} | ({} if share is None else {"share": share})
    counts = f" and makes up {percent(share)} of the loss" if share is not None and outweighed else ""
    message = f"One of {len(ratios)} loss terms ({_word(name)}) has {shown(ratio)} times the error of a guess"
    message = f"{message}{counts} after {loss.steps:,.0f} steps, while another term learns."
    return Finding("term-left-behind", message, measured)


def _unused_code(run: Signals, limit: Limits) -> Finding | None:
    """A logged KL term that vanished beside a reconstruction: the decoder ignores the latent code."""
    if not any(words_of(name) & RECONSTRUCTIONS for name in run.names):
        return None
    for name in (name for name in run.names if words_of(name) & DIVERGENCES):
        points = run.maybe(name)
        if points is None or len(points) < limit["losses"]:
            continue
        start, end = float(points.values[0]), float(np.median(points.values[-limit.count("samples") :]))
        if 0 <= end < min(limit["vanished"] * start, limit["code"]):
            message = f"{name} fell from {shown(start)} to {shown(end)} nats: the latent code carries no information."
            return Finding("term-left-behind", message, {"start": start, "end": end})
    return None


def _share(run: Signals, limit: Limits, name: str) -> float | None:
    """The fraction of the loss that a term makes up, in the last samples."""
    last, loss = limit.count("samples"), run.points("loss")
    fit, weight = run.maybe(f"fit/{name}"), run.maybe(f"fit_weight/{name}")
    if fit is None or weight is None or len(weight) < last or len(fit) < last:
        return None
    there = np.isin(loss.steps, fit.steps[-last:])
    whole = float(np.mean(np.abs(loss.values[there]))) if there.any() else 0.0
    return float(np.mean(np.abs(fit.values[-last:]) * np.abs(weight.values[-last:]))) / whole if whole else None


def _unmet(run: Signals, limit: Limits, known: Facts, loss: Levels) -> Finding | None:
    """A condition (a term with one number as its target) that stays unmet while the whole loss fell."""
    if run.running or known.start == LEARNED or loss.steps < limit["patience"]:
        return None
    if not 0 < loss.end < limit["solved"] * loss.start:
        return None
    last = limit.count("samples")
    for name in run.matching("fit/*"):
        fit, guess = run.maybe(name), run.maybe(name.replace("fit/", "fit_guess/"))
        if fit is None or guess is None or len(fit) <= last or len(guess) != len(fit):
            continue
        if float(np.max(guess.values)) > limit["alike"]:  # its targets differ
            continue
        start, end = float(fit.values[0]), float(np.mean(fit.values[-last:]))
        if start > 0 and end > limit["unmet"] * start:
            word = _word(name.partition("/")[2])
            message = f"Loss fell from {shown(loss.start)} to {shown(loss.end)}, but one of its terms ({word}), "
            message += f"whose targets are all equal, went only from {shown(start)} to {shown(end)}."
            return Finding("term-left-behind", message, {"left": end / start, "steps": loss.steps})
    return None


def _word(name: str) -> str:
    kind, _, number = name.partition("#")
    return f"{_WORDS.get(kind, kind)}{f' {number}' if number else ''}"


_WORDS = {
    "classes": "cross-entropy",
    "squared": "squared error",
    "absolute": "absolute error",
    "binary": "binary cross-entropy",
    "logits": "binary cross-entropy",
}


def _terms(run: Signals, limit: Limits) -> dict[str, float]:
    """By term of the loss: the error of its predictions over that of a guess, in the last samples."""
    last, ratios = limit.count("samples"), {}
    for name in run.matching("fit/*"):
        fit, guess = run.maybe(name), run.maybe(name.replace("fit/", "fit_guess/"))
        if fit is None or guess is None or len(fit) < last or len(guess) != len(fit):
            continue
        mean = float(np.mean(guess.values[-last:]))
        if mean > 0:  # otherwise all its targets are equal
            ratios[name.partition("/")[2]] = float(np.mean(fit.values[-last:])) / mean
    return ratios


def _no_better(run: Signals, limit: Limits, known: Facts, loss: Levels) -> str:
    early = loss.steps < limit["patience"] or run.running or known.start == LEARNED
    return "not-yet" if early else "no-better"


_EXPERIMENT = (
    "Overfit one batch (steadyrun preflight --deep). If that fails, the model or the loss is broken. If it works, "
    "train 300 steps with shuffled labels: if the curve is the same, the labels do not belong to their inputs; if it "
    "is worse, the learning rate is wrong, or another term of the loss outweighs this one."
)

QUESTION = Question(
    code="V1.2",
    name="better than a guess",
    asks="Is the loss below that of a guess that ignores the inputs?",
    why="A model that has learned anything from its inputs is better than a constant guess: the class frequencies, or "
    "the mean of all targets.",
    needs=("loss", "vocab_size"),
    panel=1,
    thresholds=(
        Threshold(
            name="beats",
            value=0.985,
            unit="of the loss of a guess",
            meaning="the loss must end below this",
            seed="",
            decision="as in S1.4: noise moves a loss by less",
            of="ratio",
        ),
        Threshold(
            name="worse",
            value=0.1,
            unit="of the loss of a guess",
            meaning="how far above a guess a loss may end",
            seed="",
            decision="label smoothing and mixup raise a loss by less",
        ),
        Threshold(
            name="steps",
            value=50,
            unit="steps",
            meaning="before this, a loss above that of a guess may be the start",
            seed="",
            decision="runs with slightly too large initial weights are below a guess by then",
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
            meaning="how many of the last samples the error is averaged over",
            seed="",
            decision="one batch may be hard; the terms are measured every fifty steps",
        ),
        Threshold(
            name="term_patience",
            value=1000,
            unit="steps",
            meaning="how long a term of the loss may stay at a guess while another term learns",
            seed="",
            decision="auxiliary terms often begin late",
        ),
        Threshold(
            name="hardly",
            value=0.9,
            unit="of the loss of a guess",
            meaning="a term above this has learned hardly anything",
            seed="",
            decision="measured: terms of nine healthy detectors end at 0.33 to 0.54, an outweighed term at 0.95",
        ),
        Threshold(
            name="counts",
            value=0.05,
            unit="fraction of the loss",
            meaning="a term that makes up less is outweighed by the others",
            seed="",
            decision="measured: 0.01 for a term whose rival has a weight a thousand times too large; 0.22 and more in "
            "nine healthy detectors",
        ),
        Threshold(
            name="alike",
            value=1e-6,
            unit="error of a constant guess",
            meaning="targets that differ by less are one number: the term is a condition",
            seed="",
            decision="as in A5.9: rounding",
        ),
        Threshold(
            name="solved",
            value=0.05,
            unit="of the first loss",
            meaning="a loss below this counts as solved",
            seed="",
            decision="once the whole loss is this low, its conditions must be met",
        ),
        Threshold(
            name="unmet",
            value=0.5,
            unit="of its first error",
            meaning="a condition with a larger error is not met",
            seed="",
            decision="measured: below 0.0001 in five healthy programs, 0.72 in one whose condition has too small a "
            "weight",
        ),
        Threshold(
            name="entropy",
            value=0.05,
            unit="nats",
            meaning="a guess with a lower loss leaves nothing to learn",
            seed="",
            decision="one target in a hundred has another class",
        ),
        Threshold(
            name="vanished",
            value=0.01,
            unit="of its first value",
            meaning="a KL term below this has vanished",
            seed="",
            decision="training balances a KL term and a reconstruction within a factor of a hundred; most encoders "
            "start with a small KL term that grows",
        ),
        Threshold(
            name="code",
            value=0.02,
            unit="nats",
            meaning="a latent code with a smaller KL term carries no information",
            seed="",
            decision="one bit is 0.7 nats",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="beats", answer=PASS, meaning="the model uses its inputs"),
        Outcome(
            name="not-yet",
            answer=NOTE,
            meaning="the model is not better than a guess yet",
            fix="Train on and check again.",
        ),
        Outcome(
            name="no-better",
            answer=SUSPECT,
            meaning="the model is no better than a guess that ignores its inputs",
            fix="Check in this order: inputs and labels belong together, inputs reach the output, the learning rate is "
            "neither too low nor too high.",
            experiment=_EXPERIMENT,
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="term-left-behind",
            answer=SUSPECT,
            meaning="one term of the loss does not learn while another does",
            fix="Give this term a larger weight, and check that its targets belong to their inputs.",
            experiment="Train 500 steps with this term alone. If it learns, the other terms outweigh it; if not, its "
            "targets or its part of the model are wrong.",
            may_pass=True,
        ),
        Outcome(
            name="worse",
            answer=SUSPECT,
            meaning="the model is worse than a guess that ignores its inputs",
            fix="Divide the learning rate by ten, and check the labels.",
            experiment=_EXPERIMENT,
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
