"""V1.1: has the loss come down, and stayed down?"""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.questions.vital_signs.games import GAME_LIMITS, GAME_OUTCOMES, game_over, in_balance
from steadyrun.questions.vital_signs.improvement import DESCENT_LIMITS, never_improves, surely_improves
from steadyrun.signals.facts import ADVERSARIAL, POLICY, RANDOM
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.rollbacks import path_of
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import few_that_fall
from steadyrun.signals.swings import noise_of_a_mean, swings
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    if (decided := game_over(run, limit) or in_balance(run, limit)) is not None:
        return decided
    if few := few_that_fall(run):
        return Finding("few", f"{few}.")
    known, loss = known_facts(run, limit), levels(run, "loss", limit["losses"])
    fallen, lost = loss.fallen, loss.lost
    measured = {"start": loss.start, "best": loss.best, "end": loss.end, "fallen": fallen, "lost": lost}
    words = f"loss {shown(loss.start)} at the start, {shown(loss.best)} at its best, {shown(loss.end)} at the end"
    words += run.excerpt
    surely = loss.error * limit["errors"]
    if known.objective == POLICY:
        raise NotApplicable("the loss of a policy says nothing about its success", "episodic_return")
    if known.objective == ADVERSARIAL and abs(loss.start) / limit["won"] < loss.end < limit["won"] * abs(loss.start):
        return Finding("in-play", f"{words}: neither side has won ({known.moves_freely}).", measured)
    if (runaway := _runaway(run, limit, loss)) is not None:
        return Finding("runaway", f"{words}; {runaway}", measured)
    if not known.moves_freely and (swinging := _swinging(run, limit, loss)) is not None:
        return Finding("swings", f"{words}; {swinging}", measured)
    if fallen > limit["fallen"] and (loss.start - loss.end > surely or loss.chance_of_fall < limit["steady"]):
        if known.moves_freely:
            return Finding("fell", f"{words}; it may move freely: {known.moves_freely}.", measured)
        if lost > limit["some"] and _validation_holds(run, limit, loss):
            return Finding("fell", f"{words}; validation stays near its best.", measured)
        if loss.end - loss.best > surely and lost > limit["lost"]:
            message = f"{words}: {percent(lost)} of the descent is lost again (limit {percent(limit['lost'])})."
            return Finding("fell-back", message, measured, loss.best_step)
        if loss.later - loss.best > surely and loss.later > (1 + limit["far"]) * abs(loss.best):
            message = (
                f"{words}, and never below {shown(loss.later)} in the second half (limit {percent(limit['far'])})."
            )
            return Finding("fell-back", message, measured | {"later": loss.later}, loss.best_step)
        if _climbs(loss, limit, surely):
            message = f"{words}: it climbs steadily since step {loss.best_step}, to {shown(loss.end / loss.best)} times"
            return Finding("fell-back", f"{message} its best.", measured, loss.best_step)
        if loss.end - loss.best > surely and lost > limit["some"] and loss.end > (1 + limit["far"]) * abs(loss.best):
            return Finding("partly-lost", f"{words}: {percent(lost)} of the descent is lost again.", measured)
        return Finding("fell", f"{words}.", measured)
    if known.moves_freely:
        raise NotApplicable(f"this loss may move freely: {known.moves_freely}")
    if loss.end - loss.start > surely and loss.end > (1 + limit["risen"]) * abs(loss.start):
        if _came_down(loss, limit, surely):
            return Finding("fell-back", f"{words}: all of the descent is lost again.", measured, loss.best_step)
        must = known.must_fall or known.guess is not None or never_improves(run, limit, loss)
        outcome = "rose" if must else "unjudged"
        return Finding(outcome, f"{words}: it ends above its start.", measured)
    if loss.start - loss.end > surely:
        stuck = _at_a_guess(run, limit, loss)
        half = len(loss.stretches) // 2
        must = (known.start == RANDOM and loss.steps >= limit["patience"]) or never_improves(run, limit, loss, half)
        words = f"{words}: it fell by {percent(fallen)} (limit {percent(limit['fallen'])}) in {loss.steps:.0f} steps"
        if not stuck and not must and (instead := surely_improves(run, limit)):
            return Finding("else", f"{words}; but {instead}.", measured)
        return Finding("flat" if stuck else "little" if must else "unjudged", f"{words}{stuck}.", measured)
    must = known.must_fall and known.start == RANDOM and loss.steps >= limit["patience"]
    stuck = _at_a_guess(run, limit, loss) if surely < limit["fallen"] * abs(loss.start) else ""
    words = f"{words}: no change beyond its noise (± {shown(surely)}){stuck}"
    if must or stuck or never_improves(run, limit, loss):
        return Finding("flat", f"{words}.", measured)
    if instead := surely_improves(run, limit):
        return Finding("else", f"{words}; but {instead}.", measured)
    return Finding("unjudged", f"{words}.", measured)


def _came_down(loss: Levels, limit: Limits, surely: float) -> bool:
    """Whether a loss that ends above its start had fallen first, and ends far above its best."""
    fell = loss.start - loss.best > max(surely, limit["fallen"] * abs(loss.start))
    return fell and loss.end > (1 + limit["far"]) * abs(loss.best)


def _climbs(loss: Levels, limit: Limits, surely: float) -> bool:
    """Whether a loss rises steadily from its best to its end, and far: then how deep it fell before says nothing."""
    far = loss.end - loss.best > surely and loss.end > (1 + limit["far"]) * abs(loss.best)
    return far and loss.chance_of_climb < limit["steady"]


_CLASSES = (2, 10, 100, 1000)
_GUESSES = {math.log(count): f"guessing among {count} classes costs" for count in _CLASSES}
_GUESSES[0.25] = "always saying 0.5 for targets of 0 and 1 has a squared error of"


def _at_a_guess(run: Signals, limit: Limits, loss: Levels) -> str:
    """In words, if a loss that does not fall stays where a model is that ignores its inputs; else empty.

    A policy's loss and one that is trained with hardly any rate may stay anywhere.
    """
    rates = run.maybe("lr/0")
    if rates is not None and float(np.max(rates.values)) < limit["rate"]:
        return ""
    for guess, words in _GUESSES.items():
        levels_there = (loss.start, loss.best, loss.end)
        if loss.points >= limit["points"] and all(abs(level / guess - 1) < limit["near"] for level in levels_there):
            return f", and {words} {shown(guess)}"
    return ""


def _runaway(run: Signals, limit: Limits, loss: Levels) -> str | None:
    """In words, if a loss falls below zero without bound: faster and faster, far beyond the size it began with."""
    values = path_of(run).along(run.points("loss")).values
    half = float(np.median(values[len(values) // 2 :][: limit.count("points")]))
    began = max(1.0, float(np.max(np.abs(values[: limit.count("last")]))))
    if loss.end > -limit["endless"] * began or half - loss.end <= loss.start - half:
        return None
    return f"it falls faster and faster, to {shown(-loss.end / began)} times the size it began with: it has no bound."


def _swinging(run: Signals, limit: Limits, loss: Levels) -> str | None:
    """In words, if the loss climbs far and comes back again and again."""
    values = path_of(run).along(run.points("loss")).values
    parts = limit.count("stretches")
    size = max(limit["swing"] * (loss.start - loss.best), limit["clear"] * noise_of_a_mean(values, parts))
    found = swings(values, size, parts)
    if found.count < limit["swings"]:
        return None
    return f"it climbs by {shown(size)} or more and comes back {found.count} times (limit {limit['swings']:g})."


def _validation_holds(run: Signals, limit: Limits, loss: Levels) -> bool:
    """Whether validation has lost little of the descent: then training has become harder, not the model worse."""
    val = run.maybe("val_loss")
    if val is None or len(val) < limit["validations"] or float(np.min(val.values)) <= 0:
        return False
    best, end = float(np.min(val.values)), float(np.median(val.values[-max(1, len(val) // limit.count("last")) :]))
    return 0 < best < loss.start and math.log(end / best) < limit["some"] * math.log(loss.start / best)


QUESTION = Question(
    code="V1.1",
    name="the loss falls and stays down",
    asks="Is the loss at the end clearly below its start and near its best?",
    why="A run that learned ends low. A loss that never fell, or that climbed back, is the plainest sign of trouble.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="fallen",
            value=0.02,
            unit="fraction of the first loss",
            meaning="a smaller fall does not count",
            seed="",
            decision="as in C4.1",
            of="-fallen",
        ),
        Threshold(
            name="lost",
            value=0.3,
            unit="fraction of the descent, in logarithms",
            meaning="how much of the descent may be lost again",
            seed="",
            decision="healthy runs lose up to 0.28, one with noisy losses 0.36 within its noise",
            of="lost",
        ),
        Threshold(
            name="some",
            value=0.15,
            unit="fraction of the descent, in logarithms",
            meaning="a smaller loss of ground is not mentioned",
            seed="",
            decision="half of the limit above",
        ),
        Threshold(
            name="far",
            value=0.25,
            unit="of the best loss",
            meaning="how far above its best a loss may stay for the whole second half",
            seed="",
            decision="a level from which half of the run does not come back is not noise, whatever the first loss was; "
            "if validation stays near its best, training has become harder",
            of="later",
        ),
        Threshold(
            name="near",
            value=0.01,
            unit="fraction",
            meaning="how near a loss that does not fall is to the loss of a guess",
            seed="",
            decision="0.693, 2.303, 4.605, 6.908 and 0.25 alone: other losses come so near by chance",
        ),
        Threshold(
            name="rate",
            value=1e-9,
            unit="learning rate",
            meaning="a rate that never exceeds this cannot move anything",
            seed="",
            decision="a tenth of the lowest rates that are used",
        ),
        Threshold(
            name="points",
            value=20,
            unit="losses",
            meaning="how many must lie at a guess",
            seed="",
            decision="some tasks begin with a plateau",
        ),
        Threshold(
            name="risen",
            value=0.05,
            unit="fraction of the first loss",
            meaning="how far above its start a loss may end",
            seed="",
            decision="as in C4.1",
        ),
        Threshold(
            name="errors",
            value=6,
            unit="standard errors",
            meaning="smaller changes are noise",
            seed="",
            decision="the best of twenty blocks lies two errors low by chance",
        ),
        Threshold(
            name="validations",
            value=4,
            unit="validations",
            meaning="with fewer, validation cannot speak for a loss that rises",
            seed="",
            decision="a best, an end, and some between",
        ),
        Threshold(
            name="endless",
            value=1e6,
            unit="times the first losses, or 1 if they are smaller",
            meaning="a loss so far below zero that falls faster and faster has no bound",
            seed="",
            decision="beside such a number, terms of the first size are almost lost in float32; a likelihood falls "
            "ever more slowly",
        ),
        Threshold(
            name="swing",
            value=0.5,
            unit="fraction of the descent",
            meaning="a smaller climb is not a swing",
            seed="wild oscillations",
            decision="warm restarts climb less",
        ),
        Threshold(
            name="swings",
            value=4,
            unit="times",
            meaning="how often a loss climbs so far and comes back, in its second half, before it is called wild",
            seed="wild oscillations",
            decision="a few spikes that recover are D2's",
        ),
        Threshold(
            name="clear",
            value=3,
            unit="standard errors",
            meaning="a climb of the mean of a stretch that is smaller is noise",
            seed="",
            decision="four such climbs in thirty stretches do not come by chance",
        ),
        Threshold(
            name="stretches",
            value=30,
            unit="stretches",
            meaning="of the second half, whose means are compared, so that single steps are not swings",
            seed="",
            decision="a swing takes several of them",
        ),
        Threshold(
            name="patience",
            value=300,
            unit="steps",
            meaning="how long a loss may stay where it began",
            seed="",
            decision="some tasks begin with a plateau",
        ),
        *DESCENT_LIMITS,
        *GAME_LIMITS,
        LOSSES,
    ),
    outcomes=(
        Outcome(name="fell", answer=PASS, meaning="the loss fell and is near its best"),
        *GAME_OUTCOMES,
        Outcome(name="few", answer=PASS, meaning="the few losses that are recorded fall throughout"),
        Outcome(
            name="else", answer=PASS, meaning="the noise of the loss hides its change, and held-out data shows progress"
        ),
        Outcome(name="partly-lost", answer=NOTE, meaning="the loss has lost a part of its descent"),
        Outcome(
            name="unjudged",
            answer=NOTE,
            meaning="the loss has not come down, and whether it must is not known",
            fix='Declare init ("random"), vocab_size or num_classes in the config, and record a validation loss.',
        ),
        Outcome(
            name="fell-back",
            answer=SUSPECT,
            meaning="the loss came down and climbed back",
            fix="Go back to the checkpoint of the best loss, and lower the learning rate from there.",
            experiment="Train on from the best checkpoint with a tenth of the learning rate. If the loss stays down, "
            "the rate was too high; if it climbs again, look at the data of those steps.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="runaway",
            answer=SUSPECT,
            meaning="the loss runs towards minus infinity: one of its terms has no bound and drowns the others",
            fix="Find the term that is negative, and bound it: clip or penalise a critic (gradient penalty, spectral "
            "norm), put a floor under a predicted variance, or check the sign of the term.",
            experiment="Log every term of the loss and train 100 steps without the one that falls. If the others fall "
            "then, it drowned them; if not, look at the rate.",
            may_pass=True,
        ),
        Outcome(
            name="swings",
            answer=SUSPECT,
            meaning="the loss swings wildly and does not diverge",
            fix="Divide the learning rate by 3 to 10, warm up longer, and check momentum and the order of the data.",
            experiment="Train again with a third and a tenth of the learning rate. If the swings go, the steps were "
            "too large; if not, compare the batches at the tops with those between: the data may come in an order of "
            "their own.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="rose",
            answer=SUSPECT,
            meaning="the loss ends above its start: the run unlearned",
            fix="Lower the learning rate by ten, and check the sign of the loss.",
            experiment="Train the first 100 steps again with a tenth of the learning rate: if the loss falls, the rate "
            "was too high.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="little",
            answer=SUSPECT,
            meaning="the loss hardly fell",
            fix="Raise the learning rate by ten, and check that every part of the model is trained.",
            experiment="Overfit one batch (steadyrun preflight --deep). If that works, the rate or the data is at "
            "fault; if not, the model or the loss.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="flat",
            answer=SUSPECT,
            meaning="the loss has not moved",
            fix="Check that gradients arrive and that labels belong to their inputs.",
            experiment="Overfit one batch (steadyrun preflight --deep). If that works, the labels or the rate are at "
            "fault; if not, the model or the loss.",
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
