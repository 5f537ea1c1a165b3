"""D4.4: gradients that grow with a rising loss."""

from __future__ import annotations

import numpy as np

from steadyrun.questions.dynamics.drift import CERTAIN, WORSE, last_stretch, surely_worse
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import rolling_mean, trend
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    stretch = last_stretch(run, limit)
    if not stretch.rising:
        raise NotApplicable("the loss does not rise")
    norms = run.points("grad_norm")
    smooth = rolling_mean(norms.values, limit.count("smooth"))
    # The whole rise, if the loss has risen for longer than the window.
    start = min(float(stretch.loss.steps[0]), float(stretch.best_step))
    keep = norms.steps >= start
    slope = trend(norms.steps[keep], smooth[keep])
    measured = {"t": slope.t, "above_best": stretch.above_best}
    facts = (
        f"The gradient norm goes from {shown(slope.start)} to {shown(slope.end)} since step {start:.0f} (trend "
        f"{shown(slope.t)} standard errors, limit {limit['t']:g}); the loss is {percent(stretch.above_best)} above its "
        "best"
    )
    if slope.t <= limit["t"]:
        val = run.maybe("val_loss")
        flat = "; validation is flat" if val is not None and _flat(val.values, limit) else ""
        return Finding("plateau", f"{facts}{flat}.", measured, int(stretch.loss.steps[0]))
    worse = surely_worse(run, stretch, known_facts(run, limit), limit["worse"])
    if stretch.above_best < limit["above"] or not worse:
        why = worse or "Validation does not show that the model is worse"
        return Finding("harder", f"{facts} (limit {limit['above']:.0%}). {why}.", measured, int(stretch.loss.steps[0]))
    return Finding("diverging", f"{facts} (limit {limit['above']:.0%}). {worse}.", measured, int(stretch.loss.steps[0]))


def _flat(values: np.ndarray, limit: Limits) -> bool:
    wanted = limit.count("validations")
    last = values[-wanted:]
    return len(last) == wanted and float(np.ptp(last)) < limit["flat"] * abs(float(np.mean(last)))


QUESTION = Question(
    code="D4.4",
    name="gradient during drift",
    asks="Does the smoothed gradient norm rise together with the loss?",
    why="If loss and gradient rise together, the model moves away from a minimum. A rising loss with steady gradients "
    "more often comes from the data, or the model has learned what it can.",
    needs=("loss", "grad_norm", "val_loss"),
    panel=3,
    thresholds=(
        Threshold(
            name="t",
            value=CERTAIN,
            unit="standard errors",
            meaning="trend of the gradient norm",
            seed="trending up",
            decision="the same as in D4.1",
            of="t",
        ),
        Threshold(
            name="above",
            value=0.1,
            unit="fraction of the best smoothed loss",
            meaning="how far the loss must have risen",
            seed="",
            decision="a smaller rise is a note",
            of="above_best",
        ),
        WORSE,
        Threshold(
            name="smooth",
            value=20,
            unit="norms",
            meaning="window over which the gradient norm is smoothed",
            seed="",
            decision="the window of C3.1",
        ),
        Threshold(
            name="validations",
            value=3,
            unit="validations",
            meaning="how many last validations must be close to call validation flat",
            seed="",
            decision="it does not decide: the message mentions flat validation",
        ),
        Threshold(
            name="flat",
            value=0.02,
            unit="of their mean",
            meaning="how close they must be",
            seed="",
            decision="it does not decide: the message mentions flat validation",
        ),
    ),
    outcomes=(
        Outcome(
            name="plateau",
            answer=NOTE,
            meaning="the loss rises slightly, but the gradients do not",
            fix="Train on and check again.",
        ),
        Outcome(
            name="harder",
            answer=NOTE,
            meaning="loss and gradient rise together, without proof of harm",
            fix="Check whether the data became harder there; otherwise halve the learning rate.",
        ),
        Outcome(
            name="diverging",
            answer=FAULT,
            meaning="the run diverges: loss, gradient and validation rise together",
            fix="Halve the learning rate and continue from the best checkpoint. Then check what changed in the data.",
            may_pass=True,
        ),
    ),
    find=find,
)
