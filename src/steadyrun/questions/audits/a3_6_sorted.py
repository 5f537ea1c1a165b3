"""A3.6: are the classes mixed within batches?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import of_targets
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    if run.config.get("shuffle") is False:
        raise NotApplicable("the run declares shuffle False: the order is intended")
    why = "no cross-entropy over the classes of whole examples was seen"
    within, overall = (of_targets(run, f"targets/{name}", why) for name in ("alike", "alike_overall"))
    _whole_examples(run, why)
    if len(within) < limit["batches"]:
        how = "let it run on" if run.running else "train for longer"
        raise MissingSignal("targets/alike", f"sampled batches: {len(within)}, needed: {limit['batches']:g}", how)
    error = float(np.std(within.values, ddof=1) / np.sqrt(len(within)))
    inside, outside = float(np.mean(within.values)), float(overall.values[-1])
    mean = inside - outside
    measured = {"within": inside, "overall": outside, "more": mean, "errors": mean / max(error, limit["error"])}
    facts = (
        f"Two examples of one batch have the same class with probability {percent(inside)}, any two examples with "
        f"{percent(outside)} ({len(within)} sampled batches)"
    )
    if mean > limit["more"] and measured["errors"] > limit["errors"]:
        return Finding("sorted", f"{facts}.", measured, within.step_at(0))
    return Finding("pass", f"{facts}.", measured)


def _whole_examples(run: Signals, why: str) -> None:
    """Raise if an example has several targets: the words of one text resemble each other by nature."""
    count, examples = of_targets(run, "targets/count", why), run.maybe("examples")
    if examples is None:
        raise MissingSignal("examples", how="give run.step(loss, batch=…) the batches")
    steps, mine, theirs = np.intersect1d(count.steps, examples.steps, return_indices=True)
    if not len(steps) or np.any(count.values[mine] > examples.values[theirs]):
        raise NotApplicable("an example has more than one target")


QUESTION = Question(
    code="A3.6",
    name="classes are mixed",
    asks="Are the classes mixed within batches?",
    why="Data sorted by class and not shuffled gives batches of a single class: the model learns to predict that "
    "class, then the next, and the loss is a sawtooth.",
    needs=("objective",),
    panel=1,
    thresholds=(
        Threshold(
            name="more",
            value=0.25,
            unit="probability",
            meaning="how much more likely two examples of one batch have the same class",
            seed="",
            decision="mixed data gives 0 on average, however imbalanced; samplers that group a few of many classes "
            "give 0.1",
            of="more",
        ),
        Threshold(
            name="errors",
            value=5,
            unit="standard errors",
            meaning="how far above zero the difference must be",
            seed="",
            decision="one run in millions by chance",
            of="errors",
        ),
        Threshold(
            name="batches",
            value=5,
            unit="sampled batches",
            meaning="with fewer the question is not answered",
            seed="",
            decision="the first steps are sampled densely",
        ),
        Threshold(
            name="error",
            value=1e-3,
            unit="probability",
            meaning="the standard error is taken as at least this",
            seed="",
            decision="batches of a single class have a standard error of zero",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every batch mixes the classes"),
        Outcome(
            name="sorted",
            answer=FAULT,
            meaning="the data is sorted by class and not shuffled",
            fix="Shuffle with DataLoader(…, shuffle=True), or permute the examples once before training.",
            explains=("C2.2", "C3", "C4", "D2", "D4", "S1", "S3"),
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
)
