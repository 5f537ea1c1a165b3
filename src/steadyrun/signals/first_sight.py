"""The loss on examples that training sees for the first time: a held-out curve of the training data themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.signals.batches import thinned_by
from steadyrun.signals.curves import Floats
from steadyrun.signals.run_signals import Points, Signals

_MOSTLY_NEW = 0.8  # of a batch's examples: the rest are duplicates that any data set has
_SAMPLED = 200  # examples of a thinned sample that are judged together, so that chance moves them by 7%
_FEWEST_LOSSES, _MOST_LOSSES, _QUARTER = 5, 50, 4  # that make a level: the last quarter, within these


@dataclass(frozen=True)
class Sight:
    """At one validation: the level of the losses at first sight before it, that level's error, and validation."""

    step: int
    level: float
    error: float
    val: float

    def excess(self, untrained: float) -> float:
        """How much of the fall at first sight validation lacks: 0 if it follows, 1 if it has not fallen at all."""
        return (self.val - self.level) / (untrained - self.level)


def first_sight(run: Signals) -> Points | None:
    """The losses of the steps whose examples were never trained on before; None where that is not recorded."""
    if "first sight" not in run.memo:
        run.memo["first sight"] = _first_sight(run)
    known: Points | None = run.memo["first sight"]
    return known


def _first_sight(run: Signals) -> Points | None:
    loss, examples = run.maybe("loss"), run.maybe("examples")
    if loss is None or examples is None or not run.has("example_hash/train") or not run.every_step(loss):
        return None
    steps, hashes = run.sampled_at("example_hash/train")
    modulus = thinned_by(hashes)
    kept = np.flatnonzero(hashes % modulus == 0)
    order = kept[np.argsort(steps[kept], kind="stable")]
    _, first = np.unique(hashes[order], return_index=True)
    places = np.searchsorted(examples.steps, steps[order[first]])
    counts = np.bincount(places[places < len(examples)], minlength=len(examples))
    new: Floats = modulus * counts.astype(np.float64)
    fresh = examples.steps[_share(new, examples.values, modulus) >= _MOSTLY_NEW]
    return loss.where(np.isin(loss.steps, fresh))


def _share(new: Floats, examples: Floats, modulus: int) -> Floats:
    """The fraction of new examples in each step; of a thinned sample, in each stretch that holds enough of them."""
    per_step = max(1.0, float(np.median(examples))) / modulus
    size = 1 if modulus == 1 else max(1, int(np.ceil(_SAMPLED / per_step)))
    stretch = np.arange(len(examples)) // size
    share: Floats = (np.bincount(stretch, new) / np.maximum(1, np.bincount(stretch, examples)))[stretch]
    return share


def sights(run: Signals) -> list[Sight]:
    """First sight beside validation, at each validation up to the first one after the last new example."""
    losses, val = first_sight(run), run.maybe("val_loss")
    if losses is None or val is None or not len(losses):
        return []
    found = []
    last = int(np.searchsorted(val.steps, losses.steps[-1]))
    for index in range(min(len(val), last + 1)):
        level = level_before(losses, float(val.steps[index]))
        if level is not None:
            found.append(Sight(val.step_at(index), *level, float(val.values[index])))
    return found


def level_before(losses: Points, step: float) -> tuple[float, float] | None:
    """The mean of the last losses up to a step, and its error; None if there are too few."""
    there = int(np.searchsorted(losses.steps, step, side="right"))
    count = min(max(there // _QUARTER, _FEWEST_LOSSES), _MOST_LOSSES)
    if there < count:
        return None
    tail = losses.values[there - count : there]
    return float(np.mean(tail)), float(np.std(tail) / np.sqrt(count))
