"""The loss on training examples at first sight: a held-out curve from the training data itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.signals.batches import thinned_by
from steadyrun.signals.curves import Floats
from steadyrun.signals.run_signals import Points, Signals

_MOSTLY_NEW = 0.8  # of a batch's examples: the rest are duplicates, which any data set has
_SAMPLED = 200  # examples of a thinned sample that are judged together: chance moves them by 7%
_FEWEST_LOSSES, _MOST_LOSSES, _QUARTER = 5, 50, 4  # of a level: the last quarter, within these bounds


@dataclass(frozen=True)
class Sight:
    """At one validation: the level of the first-sight losses before it, its standard error, and the validation loss."""

    step: int
    level: float
    error: float
    val: float

    def excess(self, untrained: float) -> float:
        """The fraction of the fall at first sight that validation lacks: 0 if it follows, 1 if it did not fall."""
        return (self.val - self.level) / (untrained - self.level)


def first_sight(run: Signals) -> Points | None:
    """The losses of steps whose examples are new to training; None if that is not recorded."""
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
    indices = np.searchsorted(examples.steps, steps[order[first]])
    counts = np.bincount(indices[indices < len(examples)], minlength=len(examples))
    new: Floats = modulus * counts.astype(np.float64)
    fresh = examples.steps[_share(new, examples.values, modulus) >= _MOSTLY_NEW]
    return loss.where(np.isin(loss.steps, fresh))


def _share(new: Floats, examples: Floats, modulus: int) -> Floats:
    """The fraction of new examples in each step; for a thinned sample, in each group of steps with enough of them."""
    per_step = max(1.0, float(np.median(examples))) / modulus
    size = 1 if modulus == 1 else max(1, int(np.ceil(_SAMPLED / per_step)))
    stretch = np.arange(len(examples)) // size
    share: Floats = (np.bincount(stretch, new) / np.maximum(1, np.bincount(stretch, examples)))[stretch]
    return share


def sights(run: Signals) -> list[Sight]:
    """First-sight loss and validation at each validation, up to the first after the last new example."""
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
    """The mean of the last losses up to a step, and its standard error; None if there are too few."""
    there = int(np.searchsorted(losses.steps, step, side="right"))
    count = min(max(there // _QUARTER, _FEWEST_LOSSES), _MOST_LOSSES)
    if there < count:
        return None
    tail = losses.values[there - count : there]
    return float(np.mean(tail)), float(np.std(tail) / np.sqrt(count))
