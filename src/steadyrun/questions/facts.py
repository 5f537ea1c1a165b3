"""F1.1: what kind of run is this? The facts that other questions build on, decided once."""

from __future__ import annotations

from steadyrun.questions.form import PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.facts import Facts, facts_of
from steadyrun.signals.learning_rates import RecordedRates, look, rates_of
from steadyrun.signals.run_signals import Points, Signals


def known_facts(run: Signals, limit: Limits) -> Facts:
    """The facts of a run; `limit` is the caller's, whose walk may have changed the limits of F1.1."""
    mine = limit.of(QUESTION)
    key = ("facts", tuple(sorted(mine.changed.items())))
    if key not in run.memo:
        run.memo[key] = facts_of(run, mine)
    known: Facts = run.memo[key]
    return known


def known_rates(run: Signals, limit: Limits) -> RecordedRates:
    """The recorded learning rates and what they were meant to be, under the limits of F1.1 as above."""
    mine = limit.of(QUESTION)
    key = ("rates", tuple(sorted(mine.changed.items())))
    if key not in run.memo:
        run.memo[key] = look(run, mine)
    known: RecordedRates = run.memo[key]
    return known


def rates_by_group(run: Signals, limit: Limits) -> dict[str, Points]:
    """The recorded learning rates by param group."""
    return rates_of(run, limit.of(QUESTION))


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
            name="elements",
            value=64,
            unit="elements",
            meaning="smaller matrices say nothing about the start",
            seed="",
            decision="so many draws come within 5% of the ends of their range, but for one in thousands",
        ),
        Threshold(
            name="full",
            value=0.1,
            unit="of torch's range",
            meaning="how far short of the range of torch's start the largest weight may be",
            seed="",
            decision="the largest of 64 uniform draws is within 5% in 96% of matrices",
        ),
        Threshold(
            name="beyond",
            value=0.001,
            unit="of torch's range",
            meaning="how far beyond it a weight may be: rounding",
            seed="",
            decision="a few steps of training push some weight out of the range it was drawn from",
        ),
        Threshold(
            name="padding",
            value=0.1,
            unit="of the declared number",
            meaning="how far the output's width may be from the declared classes",
            seed="",
            decision="output tables are often padded to a round size",
        ),
        Threshold(
            name="numbered",
            value=5,
            unit="validations",
            meaning="from how many on steps 0, 1, 2, … are a numbering",
            seed="",
            decision="fewer may be validations of the first steps",
        ),
        Threshold(
            name="apart",
            value=5,
            unit="times",
            meaning="how much further than such validations the losses must go to show that these are epochs",
            seed="",
            decision="an epoch has more steps than this",
        ),
        Threshold(
            name="learns",
            value=0.05,
            unit="fraction of the first loss",
            meaning="a loss that fell by more than this was trained with a learning rate above 0",
            seed="",
            decision="without an update a loss moves by its noise; a gradient or a rate of 0 beside such a fall is "
            "rounded, or not the one in use",
        ),
        Threshold(
            name="errors",
            value=5,
            unit="standard errors",
            meaning="how surely it must have fallen",
            seed="",
            decision="chance alone does not come to this",
        ),
        Threshold(
            name="early",
            value=5,
            unit="losses",
            meaning="how many count as its start, or a tenth of all if that is more",
            seed="",
            decision="fewer have no spread that can be measured",
        ),
        Threshold(
            name="distinct",
            value=3,
            unit="learning rates",
            meaning="how many different ones of one digit show that they are printed so",
            seed="",
            decision="one or two may be round by choice",
        ),
        Threshold(
            name="digits",
            value=6,
            unit="digits",
            meaning="if the losses of a record have no more, it is printed, and its learning rates may be rounded",
            seed="",
            decision="a recorded loss has the eight digits or more of a float",
        ),
        Threshold(
            name="groups",
            value=0.05,
            unit="of the declared peak",
            meaning="param groups further below and above it have fractions of it",
            seed="",
            decision="as for a rate that agrees in C2.1",
        ),
        Threshold(
            name="accumulated",
            value=0.9,
            unit="optimizer steps per step",
            meaning="with fewer, rates are counted by optimizer steps",
            seed="",
            decision="accumulation over two batches gives 0.5; a few steps without one are skipped steps",
        ),
        Threshold(
            name="beyond",
            value=0.2,
            unit="of the declared steps",
            meaning="how far beyond them a record goes that counts other steps: micro-batches or samples",
            seed="",
            decision="runs that go on for a little are common",
        ),
        LOSSES,
    ),
    outcomes=(Outcome(name="known", answer=PASS, meaning="what other questions build on"),),
    find=find,
    always=True,
)
