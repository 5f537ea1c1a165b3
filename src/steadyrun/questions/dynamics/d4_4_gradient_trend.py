"""D4.4: do gradients grow while the loss rises?"""

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
    # The whole rise, where the loss has risen for longer than the stretch.
    start = min(float(stretch.loss.steps[0]), float(stretch.best_step))
    keep = norms.steps >= start
    slope = trend(norms.steps[keep], smooth[keep])
    measured = {"t": slope.t, "above_best": stretch.above_best}
    facts = (
        f"the gradient norm goes from {shown(slope.start)} to {shown(slope.end)} since step {start:.0f} (trend "
        f"{shown(slope.t)} times its error, limit {limit['t']:g}) while the loss is "
        f"{percent(stretch.above_best)} above its best"
    )
    if slope.t <= limit["t"]:
        val = run.maybe("val_loss")
        flat = (
            "; validation is flat: this may be as far as it goes"
            if val is not None and _flat(val.values, limit)
            else ""
        )
        return Finding("plateau", f"{facts}: not growing{flat}.", measured, int(stretch.loss.steps[0]))
    worse = surely_worse(run, stretch, known_facts(run, limit), limit["worse"])
    if stretch.above_best < limit["above"] or not worse:
        why = f"; {worse}" if worse else "; validation does not show that this is worse"
        return Finding("harder", f"{facts} (limit {limit['above']:.0%}){why}.", measured, int(stretch.loss.steps[0]))
    return Finding("diverging", f"{facts} (limit {limit['above']:.0%}); {worse}.", measured, int(stretch.loss.steps[0]))


def _flat(values: np.ndarray, limit: Limits) -> bool:
    wanted = limit.count("validations")
    last = values[-wanted:]
    return len(last) == wanted and float(np.ptp(last)) < limit["flat"] * abs(float(np.mean(last)))


QUESTION = Question(
    code="D4.4",
    name="gradient against drift",
    asks="Is the smoothed gradient norm rising together with the loss?",
    why="Loss and gradient rising together means moving away from a minimum; a rising loss with steady gradients is "
    "more "
    "often data, or the end of what can be learned.",
    needs=("loss", "grad_norm", "val_loss"),
    panel=3,
    thresholds=(
        Threshold(
            name="t",
            value=CERTAIN,
            unit="times its error",
            meaning="trend of the gradient norm",
            seed="trending up",
            decision="as for D4.1",
            of="t",
        ),
        Threshold(
            name="above",
            value=0.1,
            unit="share of the best smoothed loss",
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
            meaning="the mean over which the gradient norm is smoothed",
            seed="",
            decision="the window of C3.1",
        ),
        Threshold(
            name="validations",
            value=3,
            unit="validations",
            meaning="how many last ones must be close to call validation flat",
            seed="",
            decision="it decides nothing: flat validation is mentioned with the trend",
        ),
        Threshold(
            name="flat",
            value=0.02,
            unit="of their mean",
            meaning="how close they must be",
            seed="",
            decision="it decides nothing: flat validation is mentioned with the trend",
        ),
    ),
    outcomes=(
        Outcome(
            name="plateau",
            answer=NOTE,
            meaning="the loss rises a little and gradients do not: a plateau, or other data",
        ),
        Outcome(name="harder", answer=NOTE, meaning="loss and gradient rise together, a little"),
        Outcome(
            name="diverging",
            answer=FAULT,
            meaning="loss and gradient rise together: the run walks away from its minimum",
            fix="Halve the learning rate and go on from the best checkpoint; then look at what changed in the data.",
            may_pass=True,
        ),
    ),
    find=find,
)
