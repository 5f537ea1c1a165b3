"""S1.4: do the labels belong to their inputs?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.audits import a5_6_input_preparation
from steadyrun.questions.configuration import (
    c5_1_initial_weights,
    c7_1_travel,
    c7_2_large_steps,
    c7_3_decay,
    c7_4_adam,
    c7_5_dropout,
    c7_6_smoothing,
)
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals import g3_3_scores
from steadyrun.questions.vital_signs import v1_6_data
from steadyrun.signals.curves import ema
from steadyrun.signals.facts import CONTRASTIVE, RANDOM
from steadyrun.signals.fits import guess_and_ratio, whole_loss
from steadyrun.signals.intent import of_targets, seen_sum
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.progress import SPAN
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_SIZES = (
    c5_1_initial_weights,
    c7_1_travel,
    c7_2_large_steps,
    c7_3_decay,
    c7_4_adam,
    c7_5_dropout,
    c7_6_smoothing,
    g3_3_scores,
)


def find(run: Signals, limit: Limits) -> Finding:
    if (found := _numbers_by_heart(run, limit)) is not None:
        return found
    if seen_sum(run) is not None:
        raise NotApplicable("the loss is a sum over the batch, and a guess is known for one item")
    guess = float(of_targets(run, "targets/entropy", "the loss is not a cross-entropy over classes").values[-1])
    loss = run.points("loss")
    late = loss.values[len(loss) // 2 :]
    if guess < limit["entropy"]:
        raise NotApplicable(f"nearly all labels have one class: guessing costs only {shown(guess)}")
    reached = float(np.mean(late))
    val = run.maybe("val_loss")
    lowest = float(np.min(ema(loss.values, SPAN)[SPAN:])) if len(loss) > SPAN else reached  # at any time
    best = min(reached, lowest, float(np.min(val.values)) if val is not None else reached)
    error = float(np.std(late) / np.sqrt(max(1, len(late))))
    rounds = _rounds(run)
    measured = {"guess": guess, "loss": reached, "best": best, "rounds": rounds, "steps": float(len(loss))}
    facts = f"Loss is {shown(reached)} in the second half; guessing by class frequency costs {shown(guess)}"
    stuck = best > limit["share"] * guess and reached + 2 * error > limit["share"] * guess
    if not stuck and (found := _memorised(run, limit, guess, reached, rounds, measured)) is not None:
        return found
    if not stuck:
        return Finding("pass", f"{facts}.", measured)
    young = len(loss) < limit["steps"] or rounds < limit["rounds"] or run.running
    if young or known_facts(run, limit).start != RANDOM or not _moving(run, limit):
        return Finding("nothing-yet", f"{facts}.", measured)
    if reached > limit["worse"] * guess:
        message = f"{facts}. A loss above a guess has another cause than the labels."
        return Finding("nothing-yet", message, measured)
    if other := _size_that_is_off(run, limit):
        return Finding("nothing-yet", f"{facts}. Another cause is suspected: {other}", measured)
    message = (
        f"{facts}. The run made {len(loss):,} steps and {shown(rounds)} passes over the data, and its weights move."
    )
    return Finding("unrelated", message, measured)


def _memorised(
    run: Signals, limit: Limits, guess: float, reached: float, rounds: float, measured: dict[str, float]
) -> Finding | None:
    """Training is better than a guess and validation never is, although its inputs are prepared alike."""
    val, known = run.maybe("val_loss"), known_facts(run, limit)
    if val is None or len(val) < limit["validations"] or rounds < limit["rounds"]:
        return None
    if known.guess is None or known.objective == CONTRASTIVE:  # a sum, other terms, or no labels
        return None
    best = float(np.min(val.values))
    if not _beaten(run, limit, min(reached, measured["best"]) / guess, best / guess) or _other_cause(run, limit):
        return None
    message = (
        f"After {shown(rounds)} passes over the data, training is at {shown(reached)}, but validation never fell below "
        f"{shown(best)}; guessing by class frequency costs {shown(guess)}."
    )
    return Finding("by-heart-alone", message, {**measured, "validation": best})


def _numbers_by_heart(run: Signals, limit: Limits) -> Finding | None:
    """The same for a regression loss, for which a guess is the mean of all targets."""
    val, known, name = run.maybe("val_loss"), known_facts(run, limit), whole_loss(run, limit["close"], 0.0)
    if val is None or name is None or known.guess is not None or known.moves_freely:
        return None
    rounds, sampled = _rounds(run), guess_and_ratio(run, name, limit.count("samples"))
    if sampled is None or len(val) < limit["validations"] or rounds < limit["rounds"]:
        return None
    (guess, ratio), best = sampled, float(np.min(val.values))
    if not _beaten(run, limit, ratio, best / guess) or _other_cause(run, limit):
        return None
    message = (
        f"After {shown(rounds)} passes over the data, training is at {shown(ratio * guess)}, but validation never fell "
        f"below {shown(best)}; guessing the mean of all targets costs {shown(guess)}."
    )
    return Finding("by-heart-alone", message, {"guess": guess, "best": ratio * guess, "rounds": rounds})


def _beaten(run: Signals, limit: Limits, ratio: float, validation: float) -> bool:
    """Whether training is better than a guess, by far or surely after many steps, while validation stays at a guess.

    Validation far above a guess has other labels than training, such as a few of many classes, and shows nothing.
    """
    if not limit["share"] <= validation <= limit["worse"]:
        return False
    if ratio <= limit["by_heart"]:
        return True
    surely = ratio <= limit["share"] and validation - ratio > 1 - limit["share"]
    return surely and run.length(run.points("loss")) >= limit["steps"]


def _other_cause(run: Signals, limit: Limits) -> bool:
    """Whether validation is prepared differently, or there is too little data."""
    others = (a5_6_input_preparation, v1_6_data)
    return any(limit.ask(other.QUESTION, run).kind in (FAULT, SUSPECT) for other in others)


def _size_that_is_off(run: Signals, limit: Limits) -> str:
    """Another reason why the model does not learn, in words; empty if no setting is suspect."""
    answers = (limit.ask(module.QUESTION, run) for module in _SIZES)
    return next((answer.message for answer in answers if answer.kind == SUSPECT), "")


def _rounds(run: Signals) -> float:
    """How often each example was seen, by the hashes of examples; 0 if they are unknown."""
    examples = run.maybe("examples")
    if examples is None or not run.has("example_hash/train"):
        return 0.0
    different = len(np.unique(run.distinct("example_hash/train")))
    if not different:
        raise MissingSignal("example_hash/train")
    return float(np.sum(examples.values)) / different


def _moving(run: Signals, limit: Limits) -> bool:
    """Whether the block that moves most moves as in a model that learns."""
    moves = [points for name in run.matching("update_ratio/*") if (points := run.maybe(name)) is not None]
    return any(float(np.median(points.values)) > limit["moves"] for points in moves)


QUESTION = Question(
    code="S1.4",
    name="labels belong to their inputs",
    asks="Does the model learn more than the class frequencies?",
    why="If inputs were permuted without their labels, only the class frequencies can be learned: the loss stops at "
    "the entropy of the labels, and falls later only by memorisation.",
    needs=("objective", "batch"),
    panel=1,
    thresholds=(
        Threshold(
            name="by_heart",
            value=0.9,
            unit="of the loss of a guess",
            meaning="in a short run, training must be below this before validation at a guess is suspect",
            seed="",
            decision="with a higher loss hardly anything is learned, and validation may need as long",
        ),
        Threshold(
            name="close",
            value=0.05,
            unit="fraction of the loss",
            meaning="how near a comparison with targets must be to the loss to count as all of it",
            seed="",
            decision="as in A5.9",
        ),
        Threshold(
            name="samples",
            value=4,
            unit="samples",
            meaning="how many of the last samples the error is averaged over",
            seed="",
            decision="as in V1.2",
        ),
        Threshold(
            name="validations",
            value=3,
            unit="validations",
            meaning="how many validations must be no better than a guess",
            seed="",
            decision="the first may come early",
        ),
        Threshold(
            name="share",
            value=0.985,
            unit="of the loss of a guess",
            meaning="neither training nor validation falls below this",
            seed="",
            decision="noise moves a loss that knows only the class frequencies by less",
        ),
        Threshold(
            name="worse",
            value=1.1,
            unit="of the loss of a guess",
            meaning="a higher loss has another cause",
            seed="",
            decision="such a training loss has exploded, which C4.1 and V1.2 judge; such a validation has other labels",
        ),
        Threshold(
            name="steps",
            value=300,
            unit="steps",
            meaning="with fewer the question is not answered",
            seed="",
            decision="some tasks begin with a plateau",
        ),
        Threshold(
            name="rounds",
            value=3,
            unit="passes over the data",
            meaning="with fewer the question is not answered",
            seed="",
            decision="a large task may need its first epoch",
        ),
        Threshold(
            name="moves",
            value=1e-4,
            unit="of a block's norm per step",
            meaning="a model whose blocks all move less does not learn",
            seed="",
            decision="in healthy runs the block that moves most moves at least three times as far",
        ),
        Threshold(
            name="entropy",
            value=0.3,
            unit="nats",
            meaning="labels with a lower entropy are nearly of one class",
            seed="",
            decision="hardly any example has another class",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the model learns from its inputs"),
        Outcome(
            name="unrelated",
            answer=FAULT,
            meaning="labels do not belong to their inputs",
            fix="Look at examples with their labels: permute inputs and labels together, and join them by a key. If "
            "they belong together, divide lr_max by ten and look for dead units: a model that diverged also stays "
            "here.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="by-heart-alone",
            answer=SUSPECT,
            meaning="training is memorised: labels may not belong to their inputs",
            fix="Look at examples with their labels: permute inputs and labels together, and join them by a key.",
            experiment="Train on shuffled labels. If the curves look the same, the labels are unrelated to the "
            "inputs. If not, there is too little data for this model.",
            explains=("C4.2", "C7", "S1.3", "V1"),
            may_pass=True,
        ),
        Outcome(
            name="nothing-yet",
            answer=NOTE,
            meaning="the model has learned nothing from its inputs yet",
            fix="Fix what the other findings report first, then train on and check again.",
        ),
    ),
    find=find,
)
