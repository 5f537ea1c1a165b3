"""F1.1: the kind of run. Facts that other questions need, decided once."""

from __future__ import annotations

from steadyrun.questions.form import PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.facts import Facts, facts_of
from steadyrun.signals.learning_rates import RecordedRates, look, rates_of
from steadyrun.signals.run_signals import Points, Signals


def known_facts(run: Signals, limit: Limits) -> Facts:
    """The facts of a run; `limit` belongs to the caller and carries the user's changes to F1.1."""
    mine = limit.of(QUESTION)
    key = ("facts", tuple(sorted(mine.changed.items())))
    if key not in run.memo:
        run.memo[key] = facts_of(run, mine)
    known: Facts = run.memo[key]
    return known


def known_rates(run: Signals, limit: Limits) -> RecordedRates:
    """The recorded learning rates beside the declared ones, under the limits of F1.1."""
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
        f"Start: {known.start} ({known.start_why})",
        f"objective: {known.objective} ({known.objective_why})",
        f"the loss must fall: {known.must_fall}" if known.must_fall else "",
        f"the loss may move freely: {known.moves_freely}" if known.moves_freely else "",
        known.guess_why,
        density,
    ]
    measured = {"guess": known.guess} if known.guess is not None else {}
    return Finding("known", f"{'; '.join(part for part in parts if part)}.", measured)


QUESTION = Question(
    code="F1.1",
    name="kind of run",
    asks="Which weights does the run start from, what does it minimise, and is every step recorded?",
    why="Some losses must fall and others move freely. Every question uses these facts, so that all answers agree.",
    needs=("loss",),
    panel=None,
    thresholds=(
        Threshold(
            name="near",
            value=0.3,
            unit="of ln V",
            meaning="a first loss this close to the loss of a guess means an untrained model",
            seed="within 0.3 of ln V",
            decision="random weights of ordinary width start within 15% of it; pretrained weights start far below",
        ),
        Threshold(
            name="few",
            value=8,
            unit="classes",
            meaning="with fewer classes, a first point that is an average cannot identify the start",
            seed="",
            decision="ln V is then close to the first value of any standardised loss",
        ),
        Threshold(
            name="elements",
            value=64,
            unit="elements",
            meaning="smaller matrices cannot identify the start",
            seed="",
            decision="the extremes of 64 draws lie within 5% of the ends of their range in nearly every matrix",
        ),
        Threshold(
            name="full",
            value=0.1,
            unit="of torch's range",
            meaning="how far the largest weight may fall short of the range of torch's default initialisation",
            seed="",
            decision="the largest of 64 uniform draws is within 5% of the range in 96% of matrices",
        ),
        Threshold(
            name="beyond",
            value=0.001,
            unit="of torch's range",
            meaning="how far a weight may exceed that range: rounding",
            seed="",
            decision="after a few training steps some weights lie outside the range they were drawn from",
        ),
        Threshold(
            name="padding",
            value=0.1,
            unit="of the declared number",
            meaning="how far the output width may differ from the declared number of classes",
            seed="",
            decision="output layers are often padded to a round size",
        ),
        Threshold(
            name="numbered",
            value=5,
            unit="validations",
            meaning="from this many on, validations at steps 0, 1, 2, … count epochs",
            seed="",
            decision="fewer may be validations of the first training steps",
        ),
        Threshold(
            name="apart",
            value=5,
            unit="times",
            meaning="how far the training steps must go beyond such validations to show that these count epochs",
            seed="",
            decision="an epoch has more steps than this",
        ),
        Threshold(
            name="learns",
            value=0.05,
            unit="fraction of the first loss",
            meaning="a loss that fell by more was trained with a learning rate above 0",
            seed="",
            decision="without updates a loss only fluctuates; a recorded gradient or rate of 0 beside such a fall was "
            "rounded or is not the one in use",
        ),
        Threshold(
            name="errors",
            value=5,
            unit="standard errors",
            meaning="how many standard errors the fall must exceed",
            seed="",
            decision="chance alone does not reach this",
        ),
        Threshold(
            name="early",
            value=5,
            unit="losses",
            meaning="how many losses count as the start, or a tenth of all if that is more",
            seed="",
            decision="the spread of fewer cannot be measured",
        ),
        Threshold(
            name="distinct",
            value=3,
            unit="learning rates",
            meaning="this many different rates of one digit show that the log rounds them",
            seed="",
            decision="one or two rates may be round by choice",
        ),
        Threshold(
            name="digits",
            value=6,
            unit="digits",
            meaning="if the losses have no more digits, the log is printed text and its learning rates may be rounded",
            seed="",
            decision="a recorded loss has the eight digits or more of a float",
        ),
        Threshold(
            name="groups",
            value=0.05,
            unit="of the declared peak",
            meaning="param groups that differ from the declared peak by more use a multiple of it",
            seed="",
            decision="the same as for an agreeing rate in C2.1",
        ),
        Threshold(
            name="accumulated",
            value=0.9,
            unit="optimizer steps per step",
            meaning="with fewer, the schedule is counted in optimizer steps",
            seed="",
            decision="accumulation over two batches gives 0.5; a few steps without an update are skipped steps",
        ),
        Threshold(
            name="longer",
            value=0.2,
            unit="of the declared steps",
            meaning="a record that goes further counts other steps: micro-batches or samples",
            seed="",
            decision="many runs go on a little longer than declared",
        ),
        LOSSES,
    ),
    outcomes=(Outcome(name="known", answer=PASS, meaning="the facts that other questions use"),),
    find=find,
    always=True,
)
