"""C7.4: Adam's epsilon and betas are in their usual range."""

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

_ADVISED = 1e-8  # the epsilon that the fix recommends
_GROWN = 1.1  # times: a smaller growth is worded as none
_LOWER = "If the loss at step 200 is lower than in this run at step 200,"
_SMALLER = f"Train 200 steps with eps=1e-15. {_LOWER} epsilon was too large for these gradients."
_TINY_GRADIENTS = (
    "Find out why the gradients are so small: a loss that is divided too often or scaled down, or a mask. Otherwise "
    "use eps=1e-15."
)


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
    facts = f"Epsilon {shown(epsilon)} makes up {percent(share)} of Adam's denominator on average"
    measured = {"epsilon": share, "fallen": gone}
    if share > limit["epsilon"] and gone < limit["solved"]:
        message = f"{facts} (limit {percent(limit['epsilon'])}); {words}."
        if epsilon > _ADVISED:
            return Finding("epsilon", message, measured)
        return Finding("epsilon", message, measured, fix=_TINY_GRADIENTS, experiment=_SMALLER)
    return Finding("in-range", f"{facts}; {words}.", measured)


def _betas(run: Signals, first: float, second: float) -> Finding:
    """Betas that are a mistake, whatever the loss does: often the two are swapped."""
    facts = f"betas=({first:g}, {second:g}): beta1 is above the square root of beta2 ({shown(math.sqrt(second))})"
    measured = {"growth": growth(run)}
    grown = f"The weights of a typical block end at {shown(measured['growth'])}x their initial norm"
    if measured["growth"] < _GROWN:
        grown = "The weights have not grown so far"
    return Finding("betas", f"{facts}. {grown}.", measured)


def _smallest(run: Signals, adams: list[GroupSettings]) -> tuple[float, float]:
    """The smallest fraction of epsilon in the denominator of any group, and that epsilon.

    A bias before a normalisation has no gradient, so any epsilon is large beside it: a group may hold only such biases.
    """
    known = [(share, float(group.settings["eps"])) for group in adams if not math.isnan(share := _epsilon(run, group))]
    if not known:
        raise MissingSignal("epsilon_share/*", "the size of epsilon relative to the gradients was not recorded", _HOW)
    return min(known)


def _unstable(betas: tuple[float, float], limit: Limits) -> bool:
    """Whether first moments may outlast second moments, so that an update can be many times the learning rate."""
    return betas[1] > 0 and betas[0] > limit["outlives"] * math.sqrt(betas[1])


def _epsilon(run: Signals, group: GroupSettings) -> float:
    """The median fraction of epsilon in the denominator over the first half of the samples; NaN if not recorded.

    Small gradients at the end of training do not show that epsilon is too large.
    """
    points = run.maybe(f"epsilon_share/{group.number}")
    return float(np.median(points.values[: (len(points) + 1) // 2])) if points is not None else math.nan


QUESTION = Question(
    code="C7.4",
    name="Adam's settings",
    asks="Is Adam's epsilon small beside the gradients, and do its second moments outlast the first?",
    why="Adam divides by the usual size of each gradient plus epsilon. If epsilon is the larger part, updates shrink "
    "with the gradients, and a learning rate made for Adam is far too low. If beta1 is above the square root of "
    "beta2, an update can be many times the learning rate after a large gradient.",
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
            decision="above it epsilon, not the gradients, sets the size of updates; healthy runs reach 0.01, and "
            "0.36 did no harm",
            of="epsilon",
        ),
        Threshold(
            name="outlives",
            value=1,
            unit="times the square root of beta2",
            meaning="a larger beta1 is suspect, even if the loss falls",
            seed="",
            decision="Adam's analysis ends here; (0.95, 0.95) and (0.5, 0.9) are in use and below it, (0.999, 0.9) is "
            "a mistake",
        ),
        STEPS,
        Threshold(
            name="solved",
            value=0.99,
            unit="fraction of the first loss",
            meaning="after a larger fall, a large epsilon does no harm",
            seed="",
            decision="no healthy run has such an epsilon, so the run must show that it works",
        ),
    ),
    outcomes=(
        Outcome(name="in-range", answer=PASS, meaning="Adam's settings are usual, or the run learned anyway"),
        Outcome(
            name="epsilon",
            answer=SUSPECT,
            meaning="Adam's epsilon is larger than the gradients, so updates are tiny",
            fix="Use eps=1e-8.",
            experiment=f"Train 200 steps with eps=1e-8. {_LOWER} epsilon was too large.",
            may_pass=True,
            explains=("V1", "C4.1", "C7.1", "S1.4:unrelated", "S1.5"),
        ),
        Outcome(
            name="betas",
            answer=SUSPECT,
            meaning="Adam's beta2 is too small for its beta1: single updates can become huge",
            fix="Use betas=(0.9, 0.999).",
            experiment=f"Train 200 steps with betas=(0.9, 0.999). {_LOWER} the betas were wrong.",
            may_pass=True,
            explains=("V1", "C4.1", "C7.2", "S1.4:unrelated", "S1.5", "S4", "S5"),
        ),
    ),
    find=find,
)
