"""F1.1: what kind of run is this? The facts that other questions build on, decided once."""

from __future__ import annotations

from steadyrun.questions.form import PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.facts import Facts, facts_of
from steadyrun.signals.run_signals import Signals


def known_facts(run: Signals, limit: Limits) -> Facts:
    """The facts of a run; `limit` is the caller's, whose walk may have changed the limits of F1.1."""
    mine = limit.of(QUESTION)
    key = ("facts", tuple(sorted(mine.changed.items())))
    if key not in run.memo:
        run.memo[key] = facts_of(run, mine)
    known: Facts = run.memo[key]
    return known


def find(run: Signals, limit: Limits) -> Finding:
    run.points("loss")
    known = known_facts(run, limit)
    density = "every step is recorded" if known.every_step else "not every step is recorded"
    parts = [
        f"start {known.start} ({known.start_why})",
        f"objective {known.objective} ({known.objective_why})",
        f"the loss must fall: {known.must_fall}" if known.must_fall else "",
        f"the loss may move freely: {known.moves_freely}" if known.moves_freely else "",
        known.guess_why,
        density,
    ]
    measured = {"guess": known.guess} if known.guess is not None else {}
    return Finding("known", f"{'; '.join(part for part in parts if part)}.", measured)


QUESTION = Question(
    code="F1.1",
    name="what kind of run this is",
    asks="What are the start, the objective and the density of this run?",
    why="A question that asks whether the loss falls must know whether it has to. All questions ask here, so that they "
    "agree.",
    needs=("loss",),
    panel=None,
    thresholds=(
        Threshold(
            name="near",
            value=0.3,
            unit="of ln V",
            meaning="how near to a guess a first loss is that of an untrained model",
            seed="within 0.3 of ln V",
            decision="random weights of ordinary width give a first loss within 15%; learned ones start far below",
        ),
        Threshold(
            name="few",
            value=8,
            unit="classes",
            meaning="with fewer classes, a first point that is a mean cannot identify the start",
            seed="",
            decision="ln of fewer is close to where any standardised loss begins",
        ),
        Threshold(
            name="padding",
            value=0.1,
            unit="of the declared number",
            meaning="how far the output's width may be from the declared classes",
            seed="",
            decision="output tables are often padded to a round size",
        ),
    ),
    outcomes=(Outcome(name="known", answer=PASS, meaning="what other questions build on"),),
    find=find,
    always=True,
)
