"""C7.1: do weights that start at random move far enough to learn?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.configuration import c7_4_adam
from steadyrun.questions.configuration.sizes import STEPS, fall_in_words, fallen, judged
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.facts import RANDOM
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.optimizer_settings import groups, rescaled
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.step_sizes import longest, travel
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    steps = judged(run, limit).steps
    if known_facts(run, limit).start != RANDOM:
        raise NotApplicable("only weights that start at random must move far, and this start is not known to be random")
    way, gone = travel(run), fallen(run, limit)
    measured = {"travel": way, "fallen": gone, "steps": steps}
    words = f"all {steps:.0f} steps together moved the median block by {percent(way)} of its size"
    words = f"{words} (limit {percent(limit['travel'])}); {fall_in_words(run, limit)}"
    little = way >= limit["hardly"] and gone >= limit["fallen"]
    if way >= limit["travel"] or little or gone >= limit["solved"]:
        return Finding("far-enough", f"{words}.", measured)
    if run.running or _rising(run, limit):
        raise NotApplicable(f"{words}; it is too early to judge that")
    over = _clipped(run)
    if over > limit["clipped"]:
        measured["clipped"] = over
        message = f"clipping divides every gradient by {shown(over)} (limit {shown(limit['clipped'])}); {words}."
        return Finding("clip-too-tight", message, measured)
    name, furthest = longest(run)
    if furthest >= max(limit["travel"], limit["apart"] * way):
        measured["furthest"] = furthest
        message = f"{words}, while {name} moved by {percent(furthest)} of its size"
        return Finding("starved", f"{message}.", measured)
    rate = _peak(run)
    return Finding("rate-too-low", f"learning rate {shown(rate)} at its peak: {words}.", measured)


def held_by_rate(run: Signals, limit: Limits, most: float) -> str:
    """In words, where all steps together moved weights by less than this, and only the rate decides how far they move.

    With Adam's scaling neither the size of the gradients nor a clip threshold does, but a large epsilon may.
    """
    moved = limit.ask(QUESTION, run)
    if moved.outcome != "rate-too-low" or moved.measured["travel"] > most or not rescaled(run):
        return ""
    if limit.ask(c7_4_adam.QUESTION, run).outcome == "epsilon":
        return ""
    way = percent(moved.measured["travel"])
    return f"all steps together moved the median block by {way} of its size (limit {percent(most)})"


def _peak(run: Signals) -> float:
    rates = [float(np.max(points.values)) for name in run.matching("lr/*") if (points := run.maybe(name)) is not None]
    return max(rates, default=float("nan"))


def _rising(run: Signals, limit: Limits) -> bool:
    """Whether the learning rate was still on its way up when the record ends."""
    rates = run.maybe("lr/0")
    if rates is None:
        return False
    last, middle = float(rates.values[-1]), float(rates.values[len(rates) // 2])
    return last >= float(np.max(rates.values)) and last > limit["rising"] * middle


def _clipped(run: Signals) -> float:
    """By how much clipping divides the median gradient; 1 if that does not change the size of an update, as in Adam."""
    norms, threshold = run.maybe("grad_norm"), run.maybe("clip_threshold")
    if norms is None or threshold is None or any(group.rescales for group in groups(run)):
        return 1.0
    allowed = float(np.median(threshold.values))
    return max(1.0, float(np.median(norms.values)) / allowed) if allowed > 0 else 1.0


QUESTION = Question(
    code="C7.1",
    name="weights move far enough",
    asks="Do weights that start at random move by a useful part of their size in the whole run?",
    why="What a model has learned lies in how far its weights are from their random start. If all steps together move "
    "them by less than half of their size, the loss may still fall, but only a little of what is possible.",
    needs=("update_ratio/*", "loss", "init or vocab_size"),
    panel=2,
    thresholds=(
        LOSSES,
        Threshold(
            name="travel",
            value=0.5,
            unit="of the median block's size, all steps together",
            meaning="a shorter way is too short to learn",
            seed="",
            decision="healthy runs from a random start whose loss falls by less than half: 0.7 and more",
            of="-travel",
        ),
        Threshold(
            name="fallen",
            value=0.4,
            unit="fraction of the first loss",
            meaning="with a larger fall, the way was long enough",
            seed="",
            decision="what learns is not broken",
        ),
        Threshold(
            name="hardly",
            value=0.2,
            unit="of the median block's size, all steps together",
            meaning="weights that moved less are near their random start: only a loss that is solved excuses it",
            seed="",
            decision="healthy runs from a random start: 0.5 and more",
            of="-travel",
        ),
        Threshold(
            name="apart",
            value=10,
            unit="times the median block's way",
            meaning="if one block goes this much further, and far enough, the rate is not what holds the others",
            seed="",
            decision="runs with a rate that is too low: up to 9 times; a mixture that uses one expert alone: 132",
        ),
        Threshold(
            name="solved",
            value=0.9,
            unit="fraction of the first loss",
            meaning="with a larger fall, even a very short way was long enough",
            seed="",
            decision="a first loss that is large by its units falls by more than half before anything is learned",
        ),
        STEPS,
        Threshold(
            name="rising",
            value=1.2,
            unit="times the rate at half time",
            meaning="a rate that ends this far above is still in its warmup",
            seed="",
            decision="as in C4.1",
        ),
        Threshold(
            name="clipped",
            value=20,
            unit="times",
            meaning="what clipping may divide the median gradient by",
            seed="",
            decision="healthy runs: up to 5",
        ),
    ),
    outcomes=(
        Outcome(name="far-enough", answer=PASS, meaning="weights moved far, or the loss fell without that"),
        Outcome(
            name="rate-too-low",
            answer=SUSPECT,
            meaning="the learning rate is too low for this model, or the run is far too short",
            fix="Raise the learning rate by ten.",
            experiment="Train 200 steps with ten times the learning rate. If the loss falls faster, the rate was too "
            "low.",
            may_pass=True,
            explains=("V1", "C4.1", "S1.4:unrelated", "S1.5"),
        ),
        Outcome(
            name="starved",
            answer=SUSPECT,
            meaning="most parts of the model get almost no gradient and stay at their start, while one part learns",
            fix="Look at what shares the gradient out: a saturated gate or softmax, or a scale near zero. Start gates "
            "near equal shares, and add a load-balancing loss to a mixture of experts.",
            experiment="Print the gate's mean share of each part on one batch: if one is near 1, the others have "
            "collapsed. Else print the gradient norm of each part.",
            may_pass=True,
            explains=("V1", "C4.1", "S1.5", "S4"),
        ),
        Outcome(
            name="clip-too-tight",
            answer=SUSPECT,
            meaning="the clip threshold is far below the usual gradient norm and makes every step tiny",
            fix="Set the clip threshold near the usual gradient norm (steadyrun.suggest_clip).",
            experiment="Train 200 steps with the clip threshold at the median gradient norm. If the loss falls faster, "
            "the threshold was too low.",
            may_pass=True,
            explains=("V1", "C3", "C4.1", "S1.4:unrelated", "S1.5"),
        ),
    ),
    find=find,
)
