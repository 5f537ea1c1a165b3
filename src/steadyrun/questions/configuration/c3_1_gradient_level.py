"""C3.1: the level of the smoothed gradient norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.questions.configuration import c5_1_initial_weights, c7_1_travel, c7_2_large_steps, c7_4_adam
from steadyrun.questions.configuration.sizes import change_in_words
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.curves import Floats, rolling_mean
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.facts import CONTRASTIVE, RANDOM
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import Progress, progress
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import apart, percent, shown


@dataclass(frozen=True)
class Level:
    """The smoothed gradient norm after warmup, and its reference."""

    norms: Points
    smooth: Floats
    window: int  # points of the rolling mean
    reference: float  # the clip threshold; without clipping, the norm of the first steps
    clips: bool
    always: float  # fraction of the steps that were clipped


def find(run: Signals, limit: Limits) -> Finding:
    level = _level(run, run.stretch(run.points("grad_norm"), limit["window"], limit.count("points")))
    highest, lowest = float(np.max(level.smooth)), float(np.min(level.smooth))
    training = progress(run, limit["losses"])
    high = level.norms.where(level.smooth > limit["high"] * level.reference)
    above, fallen = len(high) / len(level.norms), training.fallen
    measured = {
        "highest": highest,
        "lowest": lowest,
        "highest_relative": highest / level.reference if level.reference else 0.0,
        "above": above,
        "clipped": level.always,
        "fallen": fallen,
    }
    known = known_facts(run, limit)
    must_fall = bool(known.must_fall) and known.start == RANDOM
    stuck = must_fall and fallen < limit["fallen"]
    of = f"clip threshold ({level.reference:g})" if level.clips else f"first norm ({shown(level.reference)})"
    window = f"{level.window}-step" if run.counted(level.norms) == "steps" else f"{level.window}-point"
    facts = f"The {window} mean of the gradient norm is {_between(lowest, highest)} after warmup"
    gone = change_in_words(fallen, limit["fallen"] if must_fall else 0.0)
    frozen = _frozen(run, limit)
    if stuck and frozen and run.config.get("init") == "random":
        return Finding("frozen", f"{frozen}; {gone} (expected a fall of at least {limit['fallen']:.0%}).", measured)
    late = run.length(training.loss) >= limit["patience"] and not run.running
    compares_examples = known.objective == CONTRASTIVE  # its gradient depends on the temperature, see G3.3
    if stuck and late and not compares_examples and _vanished(run, lowest, limit):
        step = level.norms.step_at(int(np.argmin(level.smooth)))
        return Finding("dead", f"{facts} (expected at least {limit['low']:g}); {gone}.", measured, step)
    if above > 0:
        step = level.norms.step_at(int(np.argmax(level.smooth)))
        facts = f"{facts}, above {limit['high']:g} times the {of} at {_of_steps(above)}; {gone}"
        dense = run.counted(level.norms) == "steps"  # the few points of a sparse log belong to the start
        if level.clips and above >= limit["often"] and must_fall and (dense or stuck):
            meanwhile = _loss_while(high, training)
            if code := _other_setting(run, limit):
                fix = f"See {code} and fix that first."
                return Finding("high", f"{facts}. {code} names a likelier cause.", measured, step, fix)
            if meanwhile > (1 - limit["fallen"]) * training.start:
                began, later = apart(training.start, meanwhile)
                message = f"{facts}. The loss was {began} at the start and {later} in those steps."
                return Finding("always-clipping", message, measured, step)
        return Finding("high", f"{facts}.", measured, step)
    if level.clips and level.always > limit["always"]:
        steps = _of_steps(level.always)
        message = f"{steps[0].upper()}{steps[1:]} are clipped at {level.reference:g}. {facts}; {gone}."
        outliers = f"To clip only outliers, raise the clip threshold above {shown(highest)}."
        return Finding("clips-always", message, measured, fix=f"No action is needed while the loss falls. {outliers}")
    return Finding("pass", f"{facts}, below {limit['high']:g} times the {of}.", measured)


def _between(low: float, high: float) -> str:
    """A range in words; a single number if both ends look the same."""
    return shown(high) if shown(low) == shown(high) else f"{shown(low)} to {shown(high)}"


def _of_steps(fraction: float) -> str:
    return "all steps" if fraction == 1 else f"{percent(fraction)} of the steps"


def _other_setting(run: Signals, limit: Limits) -> str:
    """The question that suspects another cause than the learning rate; empty if none does."""
    for question, outcome in (
        (c7_1_travel.QUESTION, "clip-too-tight"),  # a lower rate would make it worse
        (c7_2_large_steps.QUESTION, "momentum-too-long"),
        (c7_4_adam.QUESTION, "betas"),
        (c5_1_initial_weights.QUESTION, "perhaps-too-wide"),
    ):
        if limit.ask(question, run).outcome == outcome:
            return question.code
    return ""


def _level(run: Signals, window: int) -> Level:
    norms = run.points("grad_norm")
    clip = run.maybe("clip_threshold")
    threshold = float(clip.values[-1]) if clip is not None else run.declared("clip") or 0.0
    first = float(np.median(norms.values[:window]))
    smooth = rolling_mean(norms.values, window)
    start = max(run.declared("warmup_steps") or 0.0, float(norms.steps[0]))
    keep = norms.steps >= start
    keep[: min(window, len(keep) - 1)] = False
    if not np.any(keep):
        raise MissingSignal(
            "grad_norm", f"fewer than {window} gradient norms after warmup are recorded so far", "let it run on"
        )
    clipped = run.maybe("clipped")
    always = (
        float(np.mean(clipped.from_step(start).values))
        if clipped is not None and len(clipped.from_step(start))
        else 0.0
    )
    return Level(norms.where(keep), smooth[keep], window, threshold or first, bool(threshold), always)


def _loss_while(high: Points, training: Progress) -> float:
    """The median of the smoothed loss over the steps with a high gradient norm."""
    return float(np.median(np.interp(high.steps, training.loss.steps, training.smooth)))


def _frozen(run: Signals, limit: Limits) -> str:
    """In words: hardly any parameter is trained; empty otherwise."""
    model = run.about("model")
    all_of_it, trained = number(model.get("parameters")), number(model.get("trainable"))
    if not all_of_it or trained is None or trained / all_of_it >= limit["trainable"]:
        return ""
    share = f"{percent(trained / all_of_it)}, expected at least {limit['trainable']:.0%}"
    return f"Only {trained:,.0f} of {all_of_it:,.0f} parameters are trainable ({share})"


def _vanished(run: Signals, lowest: float, limit: Limits) -> bool:
    """Whether the norm is below its limit, which holds for a cross-entropy; for any other loss only 0 is too small."""
    return lowest < limit["low"] if known_facts(run, limit).classes is not None else lowest == 0


QUESTION = Question(
    code="C3.1",
    name="gradient level",
    asks="Is the 20-step mean of the gradient norm before clipping between 0.01 and 5 (five times the clip threshold)?",
    why="Far above the clip threshold every step has the same length, whatever the gradient: the learning rate is too "
    "high or the batch too small. Near zero the model does not learn: check the loss mask and frozen parameters.",
    needs=("grad_norm", "loss"),
    panel=3,
    thresholds=(
        Threshold(
            name="high",
            value=5,
            unit="times the clip threshold",
            meaning="smoothed norm that is far above the clip threshold",
            seed="5.0 with clip 1.0",
            decision="healthy runs with small batches or tight clipping exceed it: a fault only if the loss does not "
            "fall",
            of="highest_relative",
        ),
        Threshold(
            name="low",
            value=0.01,
            unit="",
            meaning="smoothed norm of a model that does not learn",
            seed="0.01",
            decision="runs that have learned everything also get there: a fault only if the loss does not fall",
            of="-lowest",
        ),
        Threshold(
            name="often",
            value=0.2,
            unit="fraction of steps",
            meaning="how often the norm must be high",
            seed="",
            decision="a short excursion does not count",
            of="above",
        ),
        Threshold(
            name="fallen",
            value=0.1,
            unit="fraction of the first loss",
            meaning="by how much the loss must have fallen",
            seed="",
            decision="the loss of every healthy run that must fall fell by more",
            of="-fallen",
        ),
        Threshold(
            name="always",
            value=0.9,
            unit="fraction of steps",
            meaning="fraction of clipped steps that is a note",
            seed="always clipping",
            decision="healthy runs of the tutor clip nearly every step",
            of="clipped",
        ),
        Threshold(
            name="patience",
            value=500,
            unit="steps",
            meaning="how long a run without gradient may take to start learning",
            seed="",
            decision="very small initial weights start with hardly any gradient and still learn",
        ),
        Threshold(
            name="trainable",
            value=0.05,
            unit="fraction of parameters",
            meaning="with fewer trainable parameters the model is practically frozen",
            seed="",
            decision="adapters train fewer on purpose, but start from pretrained weights",
        ),
        Threshold(
            name="window",
            value=20,
            unit="steps",
            meaning="window of the mean",
            seed="20 steps",
            decision="the rule of thumb; counted in logged points if the log is sparse",
        ),
        Threshold(
            name="points",
            value=3,
            unit="logged points",
            meaning="smallest window of the mean in a sparse log",
            seed="",
            decision="a mean of fewer points is too noisy",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the gradient norm has an ordinary size"),
        Outcome(
            name="clips-always",
            answer=NOTE,
            meaning="all or nearly all steps are clipped",
            fix="No action is needed while the loss falls.",
        ),
        Outcome(
            name="high",
            answer=NOTE,
            meaning="the gradient norm is unusually high after the warmup",
            fix="No action is needed while the loss falls; otherwise halve lr_max.",
        ),
        Outcome(
            name="always-clipping",
            answer=FAULT,
            meaning="gradients stay far above the clip threshold and the loss does not fall",
            fix="Halve lr_max and run `steadyrun check` again. If that does not help, check the batch size and the "
            "batches with the largest gradient norms.",
            may_pass=True,
        ),
        Outcome(
            name="dead",
            answer=FAULT,
            meaning="the gradient is close to zero and the loss does not fall",
            fix="Count the targets that the loss mask keeps, and look for detach() or torch.no_grad() between model "
            "and loss.",
            may_pass=True,
        ),
        Outcome(
            name="frozen",
            answer=FAULT,
            meaning="nearly all parameters are frozen",
            fix="Set requires_grad=True on what should learn, before you build the optimizer. If the rest is frozen "
            "on purpose, declare config={'init': 'pretrained'}.",
            may_pass=True,
        ),
    ),
    find=find,
)
