"""C7.4: are Adam's epsilon and betas in the range in which it is Adam?"""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.configuration.sizes import STEPS, fall_in_words, fallen, judged
from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.optimizer_settings import GroupSettings, groups
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.step_sizes import growth
from steadyrun.text import percent, shown

_HOW = "call run.watch(model, optimizer) before training, with the probe `moments` on"


def find(run: Signals, limit: Limits) -> Finding:
    adams = [group for group in groups(run) if group.betas is not None and number(group.settings.get("eps"))]
    if not adams:
        raise NotApplicable("no optimizer has Adam's settings")
    unstable = next((group.betas for group in adams if group.betas and _unstable(group.betas, limit)), None)
    if unstable is not None:
        return _betas(run, *unstable)
    judged(run, limit)
    gone, words = fallen(run, limit), fall_in_words(run, limit)
    share, epsilon = _smallest(run, adams)
    facts = f"epsilon {shown(epsilon)} is {percent(share)} of Adam's denominator on average"
    measured = {"epsilon": share, "fallen": gone}
    if share > limit["epsilon"] and gone < limit["solved"]:
        return Finding("epsilon", f"{facts} (limit {percent(limit['epsilon'])}); {words}.", measured)
    return Finding("in-range", f"{facts}; {words}.", measured)


def _betas(run: Signals, first: float, second: float) -> Finding:
    """Betas that nobody means, whatever the loss does: mostly the two are swapped."""
    facts = f"betas ({first:g}, {second:g}): beta1 is above the square root of beta2, {shown(math.sqrt(second))}"
    measured = {"growth": growth(run)}
    return Finding("betas", f"{facts}; the median block ends at {shown(measured['growth'])} times its size.", measured)


def _smallest(run: Signals, adams: list[GroupSettings]) -> tuple[float, float]:
    """The share of epsilon in the group in which it is smallest, and epsilon.

    A bias before a normalisation has no gradient, so any epsilon is large beside it: one group may be all like that.
    """
    known = [(share, float(group.settings["eps"])) for group in adams if not math.isnan(share := _epsilon(run, group))]
    if not known:
        raise MissingSignal("epsilon_share/*", "how large epsilon is beside the gradients was not recorded", _HOW)
    return min(known)


def _unstable(betas: tuple[float, float], limit: Limits) -> bool:
    """Whether the first moments may outlive the second, so that an update can be many times the learning rate."""
    return betas[1] > 0 and betas[0] > limit["outlives"] * math.sqrt(betas[1])


def _epsilon(run: Signals, group: GroupSettings) -> float:
    """The share of epsilon in the denominator, in the first half of the samples; NaN if it was not recorded.

    Gradients that have become small at the end of training say nothing about epsilon.
    """
    points = run.maybe(f"epsilon_share/{group.number}")
    return float(np.median(points.values[: (len(points) + 1) // 2])) if points is not None else math.nan


QUESTION = Question(
    code="C7.4",
    name="Adam's settings",
    asks="Is Adam's epsilon small beside the gradients, and do its second moments live longer than the first?",
    why="Adam divides by the usual size of each gradient plus epsilon. If epsilon is the larger part, updates shrink "
    "with the gradients, and a learning rate made for Adam is far too low. If beta1 is above the square root of beta2, "
    "an update can be many times the learning rate after a large gradient.",
    needs=("param_groups", "epsilon_share/*", "loss"),
    panel=2,
    thresholds=(
        LOSSES,
        Threshold(
            name="epsilon",
            value=0.5,
            unit="of the denominator",
            meaning="how large epsilon may be",
            seed="",
            decision="above it epsilon, and not the gradients, sets the size of updates; healthy runs: up to 0.01, "
            "and 0.36 did no harm",
            of="epsilon",
        ),
        Threshold(
            name="outlives",
            value=1,
            unit="times the square root of beta2",
            meaning="a larger beta1 is suspect, even if the loss falls",
            seed="",
            decision="where Adam's analysis ends; (0.95, 0.95) and (0.5, 0.9) are in use and below it, and nobody "
            "means (0.999, 0.9)",
        ),
        STEPS,
        Threshold(
            name="solved",
            value=0.99,
            unit="fraction of the first loss",
            meaning="with a larger fall, a large epsilon does no harm",
            seed="",
            decision="no healthy run has such an epsilon, so the run has to show that it works",
        ),
    ),
    outcomes=(
        Outcome(name="in-range", answer=PASS, meaning="epsilon and betas are in range, or the run learned with them"),
        Outcome(
            name="epsilon",
            answer=SUSPECT,
            meaning="Adam's epsilon is larger than the gradients: updates lose their scaling and become tiny",
            fix="Use eps=1e-8.",
            experiment="Train 200 steps with eps=1e-8. If the loss falls faster, epsilon was too large.",
            may_pass=True,
            explains=("V1", "C4.1", "C7.1", "S1.4:unrelated", "S1.5"),
        ),
        Outcome(
            name="betas",
            answer=SUSPECT,
            meaning="Adam's second moments are forgotten before the first: single updates become huge",
            fix="Use betas=(0.9, 0.999).",
            experiment="Train 200 steps with betas=(0.9, 0.999). If the loss gets lower and weights stop growing, the "
            "betas were wrong.",
            may_pass=True,
            explains=("V1", "C4.1", "C7.2", "S1.4:unrelated", "S1.5", "S4", "S5"),
        ),
    ),
    find=find,
)
