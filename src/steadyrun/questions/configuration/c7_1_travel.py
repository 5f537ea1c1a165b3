"""C7.1: randomly initialised weights move far enough to learn."""

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

_LOWER = "If the loss at step 200 is lower than in this run at step 200,"


def find(run: Signals, limit: Limits) -> Finding:
    steps = judged(run, limit).steps
    if known_facts(run, limit).start != RANDOM:
        raise NotApplicable("only random weights must move far, and whether this run starts from them is not known")
    way, gone = travel(run), fallen(run, limit)
    measured = {"travel": way, "fallen": gone, "steps": steps}
    words = f"All {steps:.0f} steps together moved the weights of a typical block by {percent(way)} of their norm"
    words = f"{words} (expected at least {percent(limit['travel'])}); {fall_in_words(run, limit)}"
    little = way >= limit["hardly"] and gone >= limit["fallen"]
    if way >= limit["travel"] or little or gone >= limit["solved"]:
        return Finding("far-enough", f"{words}.", measured)
    if run.running or _rising(run, limit):
        raise NotApplicable(f"it is too early to judge; {words[0].lower()}{words[1:]}")
    over = _clipped(run)
    if over > limit["clipped"]:
        measured["clipped"] = over
        threshold = float(np.median(run.points("clip_threshold").values))
        usual = shown(over * threshold)
        message = f"The median gradient norm, {usual}, is {shown(over)} times the clip threshold {shown(threshold)}"
        fix = f"Set the clip threshold near {usual}, the median gradient norm (steadyrun.suggest_clip)."
        return Finding("clip-too-tight", f"{message} (limit {limit['clipped']:g}). {words}.", measured, fix=fix)
    name, furthest = longest(run)
    if furthest >= max(limit["travel"], limit["apart"] * way):
        measured["furthest"] = furthest
        message = f"{words}, while {name} moved by {shown(furthest)} times its norm"
        return Finding("starved", f"{message}.", measured)
    rate = _peak(run)
    peak = "" if np.isnan(rate) else f" The learning rate peaks at {shown(rate)}."
    return Finding("rate-too-low", f"{words}.{peak}", measured)


def held_by_rate(run: Signals, limit: Limits, most: float) -> str:
    """In words: all steps together moved weights by less than `most`, and only the learning rate explains it.

    Under Adam's scaling neither the size of the gradients nor a clip threshold matters, but a large epsilon may.
    """
    moved = limit.ask(QUESTION, run)
    if moved.outcome != "rate-too-low" or moved.measured["travel"] > most or not rescaled(run):
        return ""
    if limit.ask(c7_4_adam.QUESTION, run).outcome == "epsilon":
        return ""
    way = percent(moved.measured["travel"])
    least = f"expected at least {percent(most)}"
    return f"All steps together moved the weights of a typical block by {way} of their norm ({least})"


def _peak(run: Signals) -> float:
    rates = [float(np.max(points.values)) for name in run.matching("lr/*") if (points := run.maybe(name)) is not None]
    return max(rates, default=float("nan"))


def _rising(run: Signals, limit: Limits) -> bool:
    """Whether the learning rate still rises at the end of the record."""
    rates = run.maybe("lr/0")
    if rates is None:
        return False
    last, middle = float(rates.values[-1]), float(rates.values[len(rates) // 2])
    return last >= float(np.max(rates.values)) and last > limit["rising"] * middle


def _clipped(run: Signals) -> float:
    """The factor by which clipping divides the median gradient; 1 if updates do not depend on it, as in Adam."""
    norms, threshold = run.maybe("grad_norm"), run.maybe("clip_threshold")
    if norms is None or threshold is None or any(group.rescales for group in groups(run)):
        return 1.0
    allowed = float(np.median(threshold.values))
    return max(1.0, float(np.median(norms.values)) / allowed) if allowed > 0 else 1.0


QUESTION = Question(
    code="C7.1",
    name="weights move far enough",
    asks="Do random initial weights move by a useful fraction of their norm in the whole run?",
    why="A model learns by moving its weights away from their random start. If all steps together move them by less "
    "than half of their norm, the loss may still fall, but only by a little of what is possible.",
    needs=("update_ratio/*", "loss", "init or vocab_size"),
    panel=2,
    thresholds=(
        LOSSES,
        Threshold(
            name="travel",
            value=0.5,
            unit="of the norm of the median block's weights, all steps together",
            meaning="weights that move less cannot learn much",
            seed="",
            decision="healthy runs from a random start whose loss falls by less than half reach 0.7 and more",
            of="-travel",
        ),
        Threshold(
            name="fallen",
            value=0.4,
            unit="fraction of the first loss",
            meaning="after a larger fall, weights moved far enough",
            seed="",
            decision="a run that learns is not broken",
        ),
        Threshold(
            name="hardly",
            value=0.2,
            unit="of the norm of the median block's weights, all steps together",
            meaning="weights that move less stay near their random start, which only a solved task excuses",
            seed="",
            decision="healthy runs from a random start reach 0.5 and more",
            of="-travel",
        ),
        Threshold(
            name="apart",
            value=10,
            unit="times the distance of the median block",
            meaning="if one block moves this much further, and far enough, the learning rate does not hold back the "
            "others",
            seed="",
            decision="runs with a learning rate that is too low reach 9; a mixture that uses a single expert reaches "
            "132",
        ),
        Threshold(
            name="solved",
            value=0.9,
            unit="fraction of the first loss",
            meaning="after a larger fall, even a very short distance was enough",
            seed="",
            decision="a first loss that is large because of its units falls by more than half before the model learns",
        ),
        STEPS,
        Threshold(
            name="rising",
            value=1.2,
            unit="times the rate at half of the run",
            meaning="a rate that ends this far above is still warming up",
            seed="",
            decision="the same as in C4.1",
        ),
        Threshold(
            name="clipped",
            value=20,
            unit="times",
            meaning="how far clipping may divide the median gradient",
            seed="",
            decision="healthy runs reach 5",
        ),
    ),
    outcomes=(
        Outcome(name="far-enough", answer=PASS, meaning="the weights moved far enough, or the loss fell anyway"),
        Outcome(
            name="rate-too-low",
            answer=SUSPECT,
            meaning="the learning rate is too low, or the run far too short",
            fix="Multiply the learning rate by 10 if that lowers the loss; otherwise train longer.",
            experiment=f"Train 200 steps with ten times the learning rate. {_LOWER} the rate was too low; if not, "
            "train longer.",
            may_pass=True,
            explains=("V1", "C4.1", "S1.4:unrelated", "S1.5"),
        ),
        Outcome(
            name="starved",
            answer=SUSPECT,
            meaning="most parts of the model get almost no gradient",
            fix="Check what distributes the gradient: a saturated gate or softmax, or a scale near zero. Initialise "
            "gates to nearly equal weights, and add a load-balancing loss to a mixture of experts.",
            experiment="Print the mean gate weight of each part on one batch. If one is near 1, the others have "
            "collapsed; otherwise print the gradient norm of each part.",
            may_pass=True,
            explains=("V1", "C4.1", "S1.5", "S4"),
        ),
        Outcome(
            name="clip-too-tight",
            answer=SUSPECT,
            meaning="the clip threshold is so low that every step is tiny",
            fix="Set the clip threshold near the median gradient norm (steadyrun.suggest_clip).",
            experiment=f"Train 200 steps with the clip threshold at the median gradient norm. {_LOWER} the threshold "
            "was too low.",
            may_pass=True,
            explains=("V1", "C3", "C4.1", "S1.4:unrelated", "S1.5"),
        ),
    ),
    find=find,
)
