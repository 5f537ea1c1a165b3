"""The kind of run: its start, its objective, the loss of a guess, whether the loss must fall. Decided once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyrun.signals.declared_schedule import number
from steadyrun.signals.progress import learns
from steadyrun.signals.run_signals import LimitTable, Points, Signals
from steadyrun.signals.success import opponents, trains_policy, words_of
from steadyrun.text import shown

RANDOM, LEARNED, UNKNOWN = "random", "learned", "unknown"
CROSS_ENTROPY, CONTRASTIVE, REGRESSION = "cross-entropy", "contrastive", "regression"
ADVERSARIAL, POLICY, OTHER = "adversarial", "policy", "other"


@dataclass(frozen=True)
class Facts:
    """Facts about a run, each with its reason."""

    start: str  # RANDOM, LEARNED or UNKNOWN
    start_why: str
    objective: str  # CROSS_ENTROPY, CONTRASTIVE, REGRESSION, ADVERSARIAL, POLICY, OTHER or UNKNOWN
    objective_why: str
    classes: int | None  # number of classes of the loss
    guess: float | None  # the loss of a guess that ignores the inputs
    guess_why: str
    must_fall: str  # why the loss must fall; empty if that is not known
    moves_freely: str  # why the loss may rise and fall freely
    every_step: bool  # whether each point of the loss is one step
    learns: bool  # whether the loss fell beyond chance
    validated_by: str  # why validations and losses count different steps; empty if they count the same
    summed: bool  # whether the loss is a sum of logged terms with unknown weights: then a rise is not proof


def facts_of(run: Signals, limit: LimitTable) -> Facts:
    """The facts of a run under these limits."""
    loss = run.maybe("loss")
    every_step = loss is not None and run.every_step(loss)
    classes, classes_why = _classes(run, limit, loss)
    start, start_why = _start(run, limit, loss, classes, every_step)
    free = _moves_freely(run, loss)
    objective, why = _objective(run, free, classes_why)
    guess, guess_why = _guess(run, limit, loss, classes)
    must_fall = ""
    if not free and guess is not None and loss is not None and loss.values[0] > (1 - limit["near"]) * guess:
        must_fall = "it is a cross-entropy that starts at a guess"
    elif not free and run.maybe("val_loss") is not None:
        must_fall = "a validation loss is recorded with it"
    by = (every_step, learns(run, limit), _validated_by(run, limit, loss), _of_a_log(run) == "sum")
    return Facts(start, start_why, objective, why, classes, guess, guess_why, must_fall, free, *by)


def _objective(run: Signals, free: str, classes_why: str) -> tuple[str, str]:
    graph = run.inferred.get("objective")
    seen = graph if isinstance(graph, dict) else {}
    if seen.get("advantages") or free == _OF_A_POLICY:
        return POLICY, free
    if free:
        return (ADVERSARIAL if "optimizers" in free or free == _OF_A_GAME else OTHER), free
    if seen.get("contrastive"):
        return CONTRASTIVE, "each example is matched with its partner in the batch"
    if classes_why:
        return CROSS_ENTROPY, classes_why
    if seen.get("compares") in ("squared", "absolute"):
        return REGRESSION, f"the loss compares numbers ({seen['compares']} differences)"
    if isinstance(graph, dict):
        return OTHER, "the loss is not a cross-entropy over classes"
    return UNKNOWN, "the graph of the loss is not recorded and no number of classes is declared"


def _classes(run: Signals, limit: LimitTable, loss: Points | None) -> tuple[int | None, str]:
    """The number of classes of the loss, and the reason."""
    objective = run.inferred.get("objective")
    seen = number(objective.get("classes")) if isinstance(objective, dict) else None
    width = number(run.inferred.get("output_width"))
    for name in ("vocab_size", "num_classes"):
        declared = run.declared(name)
        if declared is None:
            continue
        if declared < 2 or (width is not None and abs(width - declared) > limit["padding"] * declared):
            return None, ""
        return int(declared), f"{name} {declared:g} is declared"
    if loss is None or "num_classes" in run.config:
        return None, ""
    first = float(loss.values[0])
    if seen is not None and seen >= 2 and first <= (1 + limit["near"]) * math.log(seen):  # else there are other terms
        return int(seen), f"the loss is a cross-entropy over {seen:g} classes"
    if isinstance(objective, dict) or width is None or width < limit["few"]:
        return None, ""
    near = abs(first / math.log(width) - 1) < limit["near"]
    return (int(width), f"the first loss is near ln {width:g}, with the output width {width:g}") if near else (None, "")


def _start(
    run: Signals, limit: LimitTable, loss: Points | None, classes: int | None, every_step: bool
) -> tuple[str, str]:
    """Whether training starts from random or pretrained weights, and the reason."""
    init = run.config.get("init")
    if isinstance(init, str) and init:
        return (
            (RANDOM, "init 'random' is declared") if init.lower() == RANDOM else (LEARNED, f"init {init!r} is declared")
        )
    if run.about("imported").get("continues"):
        return LEARNED, "its loss begins where that of the run before it in the log ended"
    if loss is not None and run.events("resume") and loss.steps[0] > 0:
        return UNKNOWN, f"the record begins with a resume at step {loss.step_at(0)}"
    if loss is None or classes is None:
        return _start_of_numbers(run, limit)
    ratio = float(loss.values[0]) / math.log(classes)
    words = f"the first loss is {shown(loss.values[0])}, a guess has ln {classes} = {shown(math.log(classes))}"
    if ratio < 1 - limit["near"]:
        return LEARNED, words
    if ratio > 1 + limit["near"]:  # another term of the loss, or pretrained weights with a new output layer
        made = _as_made(run, limit)
        return (RANDOM, f"{words}; {made}") if made else (UNKNOWN, words)
    # The first point of a sparse record may be a mean over steps that have already learned.
    if run.step_unit != "step" or (not every_step and classes < limit["few"]):
        return UNKNOWN, f"{words}, but the first point covers more than the first step"
    return RANDOM, words


def _validated_by(run: Signals, limit: LimitTable, loss: Points | None) -> str:
    """In words: validations are numbered 0, 1, 2, … beside far more training steps, so they count epochs."""
    val = run.maybe("val_loss")
    if loss is None or val is None or len(val) < limit["numbered"] or val.spacing != 1 or val.steps[0] > 1:
        return ""
    if loss.steps[-1] <= limit["apart"] * val.steps[-1]:
        return ""
    where = f"the validation losses are at steps {val.steps[0]:.0f} to {val.steps[-1]:.0f}"
    return f"{where}, which do not count the same as the steps of the training losses"


def _start_of_numbers(run: Signals, limit: LimitTable) -> tuple[str, str]:
    """The start of a run without classes, judged by its first predictions or by its weights."""
    for name in run.matching("fit/*"):
        fit, guess = run.maybe(name), run.maybe(name.replace("fit/", "fit_guess/"))
        if fit is not None and guess is not None and fit.values[0] >= (1 - limit["near"]) * guess.values[0] > 0:
            return RANDOM, "the first predictions are not better than a guess that ignores the inputs"
    if made := _as_made(run, limit):
        return RANDOM, made
    return UNKNOWN, "neither init nor the number of classes is known"


def _as_made(run: Signals, limit: LimitTable) -> str:
    """In words: at least half of the matrices have torch's default initialisation; empty otherwise."""
    known = [weight for weight in run.listed("initial_weights") if is_matrix(weight, limit)]
    fresh = sum(is_as_made(weight, limit) for weight in known)
    enough = bool(known) and fresh >= len(known) / 2
    return f"{fresh} of {len(known)} matrices have torch's default initialisation" if enough else ""


def is_matrix(weight: Mapping[str, Any], limit: LimitTable) -> bool:
    """Whether a weight is large enough to show how it was drawn."""
    shape = weight.get("shape")
    return isinstance(shape, list) and len(shape) >= 2 and math.prod(shape) >= limit["elements"]


def is_as_made(weight: Mapping[str, Any], limit: LimitTable) -> bool:
    """Whether a matrix fills the range of torch's uniform default without exceeding it; trained matrices do not."""
    fan_in, low, high = (number(weight.get(name)) for name in ("fan_in", "min", "max"))
    if not fan_in or low is None or high is None:
        return False
    reach = max(-low, high) * math.sqrt(fan_in)
    return 1 - limit["full"] <= reach <= 1 + limit["beyond"]


def _moves_freely(run: Signals, loss: Points | None) -> str:
    graph = run.inferred.get("objective")
    if isinstance(graph, dict) and graph.get("advantages"):
        return "it weights actions by advantages of both signs, as a policy gradient does"
    optimizers = {str(group.get("optimizer")) for group in run.listed("param_groups")}
    one_loss = isinstance(graph, dict) and graph.get("sides") == 1
    if len(optimizers) > 1 and not one_loss:
        return f"{len(optimizers)} optimizers train different parts"
    if loss is not None and float(np.min(loss.values)) < 0:
        return f"it is negative ({shown(np.min(loss.values))} at its lowest)"
    return "" if isinstance(graph, dict) else _by_names(run) or _grows(run)


_OF_A_GAME = "a generator and a discriminator train against each other"
_OF_A_POLICY = "rewards or a policy are logged with it"


_WEIGHTS, _TERMS = frozenset({"weight", "coef", "coeff", "factor", "anneal", "annealing"}), frozenset({"kl", "kld"})
_TWICE = 2  # times: a weight that grows by less hardly moves the loss


def _grows(run: Signals) -> str:
    """In words: a logged weight of a term grows, so the loss may rise although every term falls."""
    for name in run.own:
        words, points = words_of(name), run.maybe(name)
        if points is None or not (words == {"beta"} or (words & _WEIGHTS and words & _TERMS)):
            continue
        first, last = float(points.values[0]), float(points.values[-1])
        if first >= 0 and last > _TWICE * first:
            return f"{name}, the weight of one of its terms, grows from {shown(first)} to {shown(last)}"
    return ""


def _of_a_log(run: Signals) -> str:
    """The objective that the importer found in a log; empty if the run was recorded."""
    return str(run.about("imported").get("objective") or "")


def _by_names(run: Signals) -> str:
    """The objective by the names of the series; for a log the importer has decided."""
    found = _of_a_log(run)
    if found == "opposed" or (not found and opponents(run)):
        return _OF_A_GAME
    return _OF_A_POLICY if found == "reward" or (not found and trains_policy(run)) else ""


def _guess(run: Signals, limit: LimitTable, loss: Points | None, classes: int | None) -> tuple[float | None, str]:
    """The loss of a guess, if the recorded loss is a mean without other large terms."""
    objective = run.inferred.get("objective")
    summed = isinstance(objective, dict) and objective.get("reduction") == "sum"
    if loss is None or classes is None or summed or "sum" in (run.config.get("reduction"), _of_a_log(run)):
        return None, ""
    if not 0 <= float(loss.values[0]) <= (1 + limit["near"]) * math.log(classes):
        return None, ""
    entropy = run.maybe("targets/entropy")
    if entropy is not None and 0 < float(entropy.values[-1]) <= math.log(classes):
        return float(entropy.values[-1]), f"a guess by class frequency has a loss of {shown(entropy.values[-1])}"
    return math.log(classes), f"a guess among {classes} classes has a loss of {shown(math.log(classes))}"
