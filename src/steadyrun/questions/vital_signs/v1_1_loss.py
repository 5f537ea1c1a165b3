"""V1.1: has the loss fallen, and stayed down?"""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.questions.vital_signs.games import GAME_LIMITS, GAME_OUTCOMES, game_over, in_balance
from steadyrun.questions.vital_signs.guesses import (
    GUESS_LIMITS,
    GUESS_OUTCOMES,
    around_a_guess,
    at_a_guess,
    one_value,
)
from steadyrun.questions.vital_signs.improvement import (
    DESCENT_LIMITS,
    course,
    never_improves,
    surely_improves,
    within_noise,
)
from steadyrun.signals.curves import chance_of_rise
from steadyrun.signals.facts import ADVERSARIAL, POLICY, RANDOM
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.rollbacks import path_of
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import few_that_fall
from steadyrun.signals.swings import noise_of_a_mean, swings
from steadyrun.text import apart, percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    if (decided := game_over(run, limit) or in_balance(run, limit)) is not None:
        return decided
    if few := few_that_fall(run):
        return Finding("few", f"{few}.")
    known, loss = known_facts(run, limit), levels(run, "loss", limit["losses"])
    fallen, lost = loss.fallen, loss.lost
    measured = {"start": loss.start, "best": loss.best, "end": loss.end, "fallen": fallen, "lost": lost}
    words = f"{course('Loss', loss.start, loss.best, loss.end)}{run.excerpt}"
    surely = loss.error * limit["errors"]
    if known.objective == POLICY:
        raise NotApplicable("the loss of a policy does not show its success", "episodic_return")
    if known.objective == ADVERSARIAL and abs(loss.start) / limit["won"] < loss.end < limit["won"] * abs(loss.start):
        return Finding("in-play", f"{words}. Neither side has won ({known.moves_freely}).", measured)
    if not known.moves_freely and (same := one_value(run)):
        return Finding("constant", same, measured)
    if (runaway := _runaway(run, limit, loss)) is not None:
        return Finding("runaway", f"{words}. {runaway}", measured)
    if not known.moves_freely and (swinging := _swinging(run, limit, loss)) is not None:
        return Finding("swings", f"{words}. {swinging}", measured)
    if not known.moves_freely and (around := around_a_guess(limit, loss, surely)):
        return Finding("around", f"{words}. {around}", measured)
    if fallen > limit["fallen"] and (loss.start - loss.end > surely or loss.chance_of_fall < limit["steady"]):
        if known.moves_freely:
            return Finding("fell", f"{words}. It need not fall: {known.moves_freely}.", measured)
        if lost > limit["some"] and _validation_holds(run, limit, loss):
            return Finding("fell", f"{words}. Validation stays near its best.", measured)
        if loss.end - loss.best > surely and lost > limit["lost"]:
            message = f"{words}. It lost {percent(lost)} of its descent{_SCALE} (limit {percent(limit['lost'])})."
            return Finding("fell-back", message, measured, loss.best_step)
        if loss.later - loss.best > surely and loss.later > (1 + limit["far"]) * abs(loss.best):
            message = f"{words}. It stays at or above {shown(loss.later)} in the second half "
            message += f"(limit {percent(limit['far'])} above the best)."
            return Finding("fell-back", message, measured | {"later": loss.later}, loss.best_step)
        if _climbs(loss, limit, surely):
            message = (
                f"{words}. It climbs steadily since step {loss.best_step}, to {shown(loss.end / loss.best)}x its best."
            )
            return Finding("fell-back", message, measured, loss.best_step)
        if loss.end - loss.best > surely and lost > limit["some"] and loss.end > (1 + limit["far"]) * abs(loss.best):
            return Finding("partly-lost", f"{words}. It lost {percent(lost)} of its descent{_SCALE}.", measured)
        return Finding("fell", f"{words}.", measured)
    if known.moves_freely:
        raise NotApplicable(f"this loss need not fall: {known.moves_freely}")
    if loss.end - loss.start > surely and loss.end > (1 + limit["risen"]) * abs(loss.start):
        if _came_down(loss, limit, surely):
            return Finding("fell-back", f"{words}. It lost its whole descent.", measured, loss.best_step)
        must = known.must_fall or known.guess is not None or never_improves(run, limit, loss)
        outcome = "rose" if must else "unjudged"
        return Finding(outcome, f"{words}.", measured)
    if loss.start - loss.end > surely:
        stuck = at_a_guess(run, limit, loss)
        half = len(loss.stretches) // 2
        must = (known.start == RANDOM and loss.steps >= limit["patience"]) or never_improves(run, limit, loss, half)
        start, end = apart(loss.start, loss.end)
        words = f"Loss fell from {start} to {end}{run.excerpt}, by {percent(fallen)} in {loss.steps:,.0f} steps "
        words += f"(expected at least {percent(limit['fallen'])})"
        if not stuck and not must and (instead := surely_improves(run, limit)):
            return Finding("else", f"{words}, but {instead}.", measured)
        return Finding("flat" if stuck else "little" if must else "unjudged", f"{words}.{stuck}", measured)
    must = known.must_fall and known.start == RANDOM and loss.steps >= limit["patience"]
    stuck = at_a_guess(run, limit, loss) if surely < limit["fallen"] * abs(loss.start) else ""
    words = f"{words}{within_noise(surely)}"
    if must or stuck or never_improves(run, limit, loss):
        return Finding("flat", f"{words}.{stuck}", measured)
    if instead := surely_improves(run, limit):
        return Finding("else", f"{words}, but {instead}.", measured)
    return Finding("unjudged", f"{words}.", measured)


def _came_down(loss: Levels, limit: Limits, surely: float) -> bool:
    """Whether a loss that ends above its start had fallen first, and ends far above its best."""
    fell = loss.start - loss.best > max(surely, limit["fallen"] * abs(loss.start))
    return fell and loss.end > (1 + limit["far"]) * abs(loss.best)


def _climbs(loss: Levels, limit: Limits, surely: float) -> bool:
    """Whether a loss rises steadily and far from its best to its end: the depth of its fall does not excuse that."""
    far = loss.end - loss.best > surely and loss.end > (1 + limit["far"]) * abs(loss.best)
    return far and loss.chance_of_climb < limit["steady"]


_SCALE = " on a log scale"  # how Levels.lost measures


def _runaway(run: Signals, limit: Limits, loss: Levels) -> str | None:
    """A sentence if a loss falls below zero faster and faster, far beyond the size of its first values."""
    values = path_of(run).along(run.points("loss")).values
    half = float(np.median(values[len(values) // 2 :][: limit.count("points")]))
    began = max(1.0, float(np.max(np.abs(values[: limit.count("last")]))))
    if loss.end > -limit["endless"] * began or half - loss.end <= loss.start - half:
        return None
    return f"It falls ever faster, to {shown(-loss.end / began)} times the size of the first losses."


def _swinging(run: Signals, limit: Limits, loss: Levels) -> str | None:
    """A sentence if the loss climbs far and comes back many times."""
    values = path_of(run).along(run.points("loss")).values
    parts = limit.count("stretches")
    least = limit["fallen"] * abs(loss.start)  # as for a fall: a loss that hardly moves does not swing
    size = max(limit["swing"] * (loss.start - loss.best), limit["clear"] * noise_of_a_mean(values, parts), least)
    found = swings(values, size, parts)
    if found.count < limit["swings"]:
        return None
    return f"It climbed by {shown(size)} or more and came back {found.count} times (limit {limit['swings']:g})."


def _validation_holds(run: Signals, limit: Limits, loss: Levels) -> bool:
    """Whether validation kept most of the descent: training has become harder, and the model is not worse."""
    val = run.maybe("val_loss")
    if val is None or len(val) < limit["validations"] or float(np.min(val.values)) <= 0:
        return False
    if chance_of_rise(val.values[int(np.argmin(val.values)) :]) < limit["unsure"]:
        return False  # it climbs as well
    best, end = float(np.min(val.values)), float(np.median(val.values[-max(1, len(val) // limit.count("last")) :]))
    return 0 < best < loss.start and math.log(end / best) < limit["some"] * math.log(loss.start / best)


QUESTION = Question(
    code="V1.1",
    name="the loss stays down",
    asks="Is the loss at the end clearly below its start and near its best?",
    why="A run that learned ends with a low loss. A loss that never fell, or that climbed back, is the plainest sign "
    "of trouble.",
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
            unit="fraction of the descent, on a log scale",
            meaning="how much of its descent a loss may lose again",
            seed="",
            decision="healthy runs lose up to 0.28; a noisy loss lost 0.36, within its noise",
            of="lost",
        ),
        Threshold(
            name="some",
            value=0.15,
            unit="fraction of the descent, on a log scale",
            meaning="a smaller setback is not mentioned",
            seed="",
            decision="half of `lost`",
        ),
        Threshold(
            name="far",
            value=0.25,
            unit="of the best loss",
            meaning="how far above its best a loss may stay for the whole second half",
            seed="",
            decision="half a run above this level is not noise, whatever the first loss was; if validation stays near "
            "its best, training has become harder",
            of="later",
        ),
        Threshold(
            name="points",
            value=20,
            unit="losses",
            meaning="how many losses must be at the level of a guess",
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
            decision="the best of twenty stretches is two standard errors low by chance",
        ),
        Threshold(
            name="validations",
            value=4,
            unit="validations",
            meaning="with fewer, validation cannot excuse a loss that rises",
            seed="",
            decision="a best, an end, and some in between",
        ),
        Threshold(
            name="endless",
            value=1e6,
            unit="times the first losses, or 1 if they are smaller",
            meaning="a loss this far below zero that falls ever faster has no bound",
            seed="",
            decision="in float32, terms of the first size are almost lost beside such a number; a likelihood falls "
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
            meaning="how often a loss may climb that far and come back in its second half",
            seed="wild oscillations",
            decision="D2 covers a few spikes that recover",
        ),
        Threshold(
            name="clear",
            value=3,
            unit="standard errors",
            meaning="a smaller rise of a stretch's mean is noise",
            seed="",
            decision="chance does not produce four such climbs in thirty stretches",
        ),
        Threshold(
            name="stretches",
            value=30,
            unit="equal stretches",
            meaning="the second half is cut into these, and their means are compared, so that single steps are not "
            "swings",
            seed="",
            decision="a swing spans several of them",
        ),
        Threshold(
            name="patience",
            value=300,
            unit="steps",
            meaning="how long a loss may stay at its first level",
            seed="",
            decision="some tasks begin with a plateau",
        ),
        *DESCENT_LIMITS,
        *GAME_LIMITS,
        *GUESS_LIMITS,
        LOSSES,
    ),
    outcomes=(
        Outcome(name="fell", answer=PASS, meaning="the loss fell and ends near its best"),
        *GAME_OUTCOMES,
        *GUESS_OUTCOMES,
        Outcome(
            name="few", answer=PASS, meaning="only a few losses are recorded, and each is lower than the one before"
        ),
        Outcome(
            name="else",
            answer=PASS,
            meaning="the loss is too noisy to judge, but validation or a logged success shows progress",
        ),
        Outcome(
            name="partly-lost",
            answer=NOTE,
            meaning="the loss has lost part of its descent",
            fix="Train on and check again; if the loss climbs further, go back to the best checkpoint.",
        ),
        Outcome(
            name="unjudged",
            answer=NOTE,
            meaning="the loss has not fallen, and it is unknown whether it should",
            fix='Declare init="random" and vocab_size or num_classes in the config, and record a validation loss.',
        ),
        Outcome(
            name="fell-back",
            answer=SUSPECT,
            meaning="the loss fell and then climbed back",
            fix="Go back to the checkpoint with the best loss and continue with a lower learning rate.",
            experiment="Continue from the best checkpoint with a tenth of the learning rate. If the loss stays down, "
            "the learning rate was too high; if it climbs again, look at the data of those steps.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="runaway",
            answer=SUSPECT,
            meaning="one term drives the loss toward minus infinity",
            fix="Find the negative term and bound it: clip or penalise a critic (gradient penalty, spectral norm), set "
            "a minimum for a predicted variance, or check the sign of the term.",
            experiment="Log every term of the loss and train 100 steps without the one that falls. If the other terms "
            "fall then, it dominated them; if not, check the learning rate.",
            may_pass=True,
        ),
        Outcome(
            name="swings",
            answer=SUSPECT,
            meaning="the loss swings wildly without diverging",
            fix="Divide the learning rate by 3 to 10, warm up longer, and check the momentum and the order of the "
            "data.",
            experiment="Train again with a third and with a tenth of the learning rate. If the swings disappear, the "
            "steps were too large; if not, compare the batches at the peaks with the others: the data may be ordered.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="rose",
            answer=SUSPECT,
            meaning="the loss ends above its start",
            fix="Divide the learning rate by ten, and check the sign of the loss.",
            experiment="Train the first 100 steps again with a tenth of the learning rate. If the loss at step 100 is "
            "lower than in this run at step 100, the learning rate was too high.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="little",
            answer=SUSPECT,
            meaning="the loss has hardly fallen",
            fix="Multiply the learning rate by ten, and check that every part of the model is trained.",
            experiment="Overfit one batch (steadyrun preflight --deep). If that works, the learning rate or the data "
            "is wrong; if not, the model or the loss is.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="flat",
            answer=SUSPECT,
            meaning="the loss does not move",
            fix="Check that gradients reach every layer and that labels belong to their inputs.",
            experiment="Overfit one batch (steadyrun preflight --deep). If that works, the labels or the learning "
            "rate are wrong; if not, the model or the loss is.",
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
