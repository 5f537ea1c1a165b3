"""C7.3: the gradient is stronger than weight decay."""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.configuration.sizes import STEPS, fall_in_words, fallen
from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.curves import Floats
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.optimizer_settings import GroupSettings, groups
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.signals.step_sizes import moving, shrinking
from steadyrun.text import percent, shown

_ADVISED = (1e-3, 0.1)  # the largest weight decay that the fix recommends: for SGD, and decoupled as in AdamW


def find(run: Signals, limit: Limits) -> Finding:
    group = max(groups(run), key=lambda group: group.decay)
    if group.decay <= 0:
        raise NotApplicable("no param group has weight decay")
    share, left, gone = _share(run, group), shrinking(run), fallen(run, limit)
    measured = {"share": share, "left": left, "fallen": gone}
    of = "update" if group.decoupled else "gradient"
    kept = _kept(run, group)
    if not math.isnan(kept):
        measured["kept"] = kept
    weaker = left < limit["left"] or kept < limit["kept"]
    stronger = share > limit["share"] and weaker and gone < limit["learned"]
    collapsed = left < limit["collapsed"] and gone < limit["half"]
    size, largest = f"{percent(share)} of the {of}", f"{limit['share']:.0%}"
    if share > 1:
        size, largest = f"{shown(share)} times the {of}", f"{limit['share']:g} times"
    most = f" (limit {largest})" if stronger else ""
    least = f" (expected at least {limit['collapsed']:.0%})" if collapsed else ""
    words = (
        f"Weight decay {shown(group.decay)} {_per_step(run, group)}; in a typical block it is "
        f"{size}{most}. Weights end at {percent(left)} of their initial norm{least}; {fall_in_words(run, limit)}."
    )
    if not (stronger or collapsed):
        return Finding("weaker", words, measured)
    usual = group.decay <= _ADVISED[group.decoupled]  # then the usual values do not help
    return Finding("too-strong", words, measured, fix="Divide the weight decay by 10." if usual else "")


def _kept(run: Signals, group: GroupSettings) -> float:
    """The steps in which decay at the median rate shrinks a weight without gradient to 1/e; NaN if not known.

    If updates are scaled after decay is added, as in Adam with L2, there is no such time.
    """
    rates = run.maybe(f"lr/{group.number}")
    if rates is None or (group.rescales and not group.decoupled):
        return math.nan
    taken = float(np.median(rates.values)) * group.decay
    faster = 1.0 if group.decoupled else group.memory  # momentum repeats the decay as it does a gradient
    return 1 / (taken * faster) if taken > 0 else math.nan


def _per_step(run: Signals, group: GroupSettings) -> str:
    rates = run.maybe(f"lr/{group.number}")
    if rates is None:
        return "acts on every step"
    return f"removes {percent(float(np.max(rates.values)) * group.decay)} of each weight per step at the peak rate"


def _share(run: Signals, group: GroupSettings) -> float:
    """The ratio of decay to the update or gradient of the median block, in the second half of the run."""
    later = {name: points.where(slice(len(points) // 2, None)) for name, points in moving(run).items()}
    find_share = _of_update if group.decoupled else _of_gradient
    shares = [find_share(run, group, name, points) for name, points in later.items()]
    known = [float(np.median(share)) for share in shares if share is not None and len(share)]
    if not known:
        raise MissingSignal("block_grad_norm/*", "the gradients of blocks were not recorded")
    return float(np.median(known))


def _of_update(run: Signals, group: GroupSettings, name: str, updates: Points) -> Floats | None:  # noqa: ARG001
    """Decoupled decay: the fraction of the weights that decay removes over the fraction by which they move."""
    rates = run.points(f"lr/{group.number}")
    kept = updates.where(updates.values > 0)
    decayed: Floats = np.interp(kept.steps, rates.steps, rates.values) * group.decay / kept.values
    return decayed


def _of_gradient(run: Signals, group: GroupSettings, name: str, updates: Points) -> Floats | None:
    """Decay as a part of the gradient: the added decay over the gradient norm that the optimizer sees."""
    gradients, weights = run.maybe(f"block_grad_norm/{name}"), run.maybe(f"block_param_norm/{name}")
    if gradients is None or weights is None:
        return None
    kept = gradients.where((gradients.values > 0) & (gradients.steps >= updates.steps[0]))
    sizes = np.interp(kept.steps, weights.steps, weights.values)
    added: Floats = group.decay * sizes / (kept.values * _left_by_clipping(run, kept.steps))
    return added


def _left_by_clipping(run: Signals, steps: Floats) -> Floats:
    before, applied = run.maybe("grad_norm"), run.maybe("grad_norm_applied")
    if before is None or applied is None:
        return np.ones(len(steps))
    norms = np.interp(steps, before.steps, before.values)
    left: Floats = np.interp(steps, applied.steps, applied.values) / np.where(norms > 0, norms, 1.0)
    return np.where((norms > 0) & (left > 0), left, 1.0)


QUESTION = Question(
    code="C7.3",
    name="weight decay",
    asks="Does the gradient move weights more than weight decay does?",
    why="Decay pulls every weight towards zero, useful or not. If it is stronger than the gradient, weights keep "
    "shrinking and retain little of the data.",
    needs=("param_groups", "update_ratio/*", "block_param_norm/*", "loss"),
    panel=5,
    thresholds=(
        LOSSES,
        Threshold(
            name="share",
            value=0.7,
            unit="of the update (of the gradient, if decay is added to it)",
            meaning="how large decay may be",
            seed="",
            decision="healthy runs reach 0.36, and one that learns everything 3.6",
            of="share",
        ),
        Threshold(
            name="left",
            value=0.8,
            unit="of the initial norm",
            meaning="weights that keep more are not shrinking",
            seed="",
            decision="weights that learn grow; decay and gradient may balance at the end without harm",
        ),
        Threshold(
            name="kept",
            value=75,
            unit="steps",
            meaning="weights that decay in fewer steps forget what they learned, even if the gradient restores their "
            "size",
            seed="",
            decision="decay 0.01 to 0.1 at rates of 0.001 to 0.01 keeps weights for 1,000 steps and more; healthy "
            "runs reach 200 (the tables of a recommender); a mistaken decay of 5 gives 20 to 67",
            of="-kept",
        ),
        Threshold(
            name="learned",
            value=0.9,
            unit="fraction of the first loss",
            meaning="after a larger fall, decay is a choice that works",
            seed="",
            decision="strong decay on purpose, as for grokking, still fits the training data",
        ),
        Threshold(
            name="collapsed",
            value=0.4,
            unit="of the initial norm",
            meaning="weights that shrink further retain only noise, even if the gradient is larger than decay",
            seed="",
            decision="healthy runs keep 0.7 and more",
            of="-left",
        ),
        Threshold(
            name="half",
            value=0.5,
            unit="fraction of the first loss",
            meaning="after a larger fall, weights may be of any size",
            seed="",
            decision="a run that learns is not broken",
        ),
        STEPS,
    ),
    outcomes=(
        Outcome(name="weaker", answer=PASS, meaning="weight decay is weaker than the gradient, or does no harm"),
        Outcome(
            name="too-strong",
            answer=SUSPECT,
            meaning="weight decay is too strong",
            fix="Use a weight decay of 0.01 to 0.1 with AdamW, 1e-4 to 1e-3 with SGD.",
            experiment="Train 200 steps with weight decay 0. If the validation loss at step 200 is lower than in this "
            "run at step 200, decay was too strong.",
            may_pass=True,
            explains=("V1", "C4.1", "S1.4:unrelated", "S1.5", "S4", "S5", "S6"),
        ),
    ),
    find=find,
)
