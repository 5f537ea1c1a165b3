"""Rules about data, parts and loss terms: repeated batches, untrained parts, and data that do not match."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from steadyrun.text import counted, listed, percent, shown
from steadyrun.trial import factor as kinds
from steadyrun.trial.curve import Curve, Drawn
from steadyrun.trial.setting_rules import is_fast
from steadyrun.trial.twin_table import LEARNED, SAME, Table
from steadyrun.trial.verdict import FAULT, REPEATED, UNDECIDED, Verdict

FEW_EXAMPLES = 0.5  # fraction of the expected examples; sampling with replacement gives 63%
SAME_BATCH = 8  # times
# Training data must teach this fraction of what validation data teach about each other: 0.93 to 1.9 in 16 healthy
# programs, 0 to 0.69 in 4 whose validation data are prepared or numbered differently.
CARRIES_OVER = 0.75


# -- seen without a change -------------------------------------------------------------------------


def repeated(table: Table) -> Verdict | None:
    """A loader that repeats examples although its dataset has more; visible without training."""
    own = next(iter(table.own.values()), None)
    if own is None or not own.drawn:
        return None
    drawn = Drawn(**own.drawn)  # type: ignore[arg-type]
    expected = min(drawn.dataset or 0, drawn.examples)
    repeats = drawn.different_batches < FEW_EXAMPLES * drawn.batches  # the dataset itself may contain equal examples
    if repeats and drawn.different_examples < FEW_EXAMPLES * expected:
        message = (
            f"In {drawn.batches} batches the loader gives {counted(drawn.different_examples, 'different example')}; "
            f"its dataset has {drawn.dataset:,}."
        )
        return Verdict(FAULT, REPEATED, "", message)
    if drawn.dataset is None and drawn.different_batches == 1 and drawn.batches >= SAME_BATCH:
        message = f"The loader gives the same batch {drawn.batches} times."
        more = "count its examples: this is right only if the batch is the whole training set"
        return Verdict(UNDECIDED, REPEATED, "", message, more)
    return None


def parts(table: Table) -> Verdict | None:
    """Parts that the forward pass uses and no seed's updates change, and parameters in no optimizer."""
    curves = [curve for curve in table.own.values() if not curve.raised]
    if not curves:
        return None
    still = set(curves[0].unmoved).intersection(*(curve.unmoved for curve in curves))
    loose = set(curves[0].unregistered)
    if not still and not loose:
        return None
    if still and not loose and "default-start" in table.curves and is_fast(table, "default-start"):
        return None  # in the optimizer, but their initial values (such as zeros) keep them from changing
    no_update = f"In {counted(curves[0].steps, 'step')} no update changes these parts"
    what = no_update if still else "No optimizer has these parameters with a gradient"
    return Verdict(FAULT, kinds.PART, "", f"{what}: {listed(sorted(still or loose))}.")


def inputs(table: Table) -> Verdict | None:
    """A program whose training loss is the same with noise as inputs."""
    if "inputs-noise" not in table.curves:
        return None
    pairs = [(table.own[seed], curve) for seed, curve in table.curves["inputs-noise"].items() if seed in table.own]
    whole = [(a, b) for a, b in pairs if len(a.training) == len(b.training) > 2 and not (a.raised or b.raised)]
    same = [np.allclose(a.training[1:], b.training[1:], rtol=SAME, atol=0) for a, b in whole]
    if not same or not all(same):
        return None
    message = "The training loss is the same with noise as inputs: the inputs do not reach the loss."
    return Verdict(FAULT, kinds.INPUTS, "inputs-noise", message)


# -- data ------------------------------------------------------------------------------------------


def labels(table: Table) -> Verdict | None:
    """Training data without a learnable relation, in a program that learns from validation data."""
    if "targets-shuffled" not in table.curves or not _has(table, "held"):
        return None
    ahead, teaches = table.ahead("own", "targets-shuffled", "held"), _validation_teaches(table)
    if not (ahead < LEARNED and teaches > 2 * LEARNED):
        return None
    message = (
        f"On held-out training examples the loss falls to {shown(table.lowest('own', 'held'))}, with shuffled targets "
        f"to {shown(table.lowest('targets-shuffled', 'held'))}. Trained on part of the validation data it falls to "
        f"{shown(table.lowest('validation-data', 'validation'))} on the rest, otherwise to "
        f"{shown(table.lowest('own', 'validation'))}: the training targets do not belong to their inputs."
    )
    return Verdict(FAULT, kinds.TARGETS, "targets-shuffled", message)


def prepared(table: Table) -> Verdict | None:
    """Training and validation data that each can be learned, but not from each other."""
    if not _has(table, "held") or not _has(table, "validation"):
        return None
    held, validation = table.learned("own", "held"), table.learned("own", "validation")
    if not held > 2 * LEARNED or "validation-data" not in table.curves:
        return None
    there = table.learned("validation-data", "validation")
    if validation < LEARNED and there < LEARNED:
        message = (
            f"The loss falls by {percent(held)} on held-out training examples and not on validation. Trained on part "
            "of validation it does not fall on the rest either: the validation targets do not belong to their inputs."
        )
        return Verdict(FAULT, kinds.PREPARATION, "validation-data", message)
    carried = max(table.learned(name, "validation") for name in ("own", "as-few-data") if name in table.curves)
    # Validation data may teach faster only because their batches are larger, so little must also carry over.
    if not (_validation_teaches(table) > 2 * LEARNED and carried < CARRIES_OVER * min(there, held)):
        return None
    message = (
        f"The loss falls by {percent(held)} on held-out training examples and by {percent(validation)} on validation. "
        f"Trained on part of validation it falls to {shown(table.lowest('validation-data', 'validation'))} on the "
        f"rest, otherwise to {shown(table.lowest('own', 'validation'))}: their preparation or class numbers differ."
    )
    return Verdict(FAULT, kinds.PREPARATION, "validation-data", message)


def _has(table: Table, split: str) -> bool:
    own = next(iter(table.own.values()), None)
    return own is not None and bool(own.losses.get(split))


def _validation_teaches(table: Table) -> float:
    """How much lower the validation loss gets after training on validation data than on training data."""
    names = [name for name in ("as-few-data", "own") if name in table.curves]
    if "validation-data" not in table.curves:
        return math.nan
    return min(table.ahead("validation-data", name, "validation") for name in names)


# -- terms -----------------------------------------------------------------------------------------


def terms(table: Table) -> Verdict | None:
    """A term without which the other terms that compare with targets fall much further."""
    for name in [name for name in table.curves if name.startswith("term:")]:
        index = int(name.partition(":")[2])
        others = [place for place, compares in enumerate(table.compares) if compares and place != index]
        seeds = [seed for seed in table.curves[name] if seed in table.own]
        pairs = [(_sums(table.own[seed], others), _sums(table.curves[name][seed], others)) for seed in seeds]
        known = [(own, without) for own, without in pairs if own and without]
        if not others or len(known) < 2:
            continue
        first, mine = (float(np.mean([own[place] for own, _ in known])) for place in (0, -1))
        without = float(np.mean([sums[-1] for _, sums in known]))
        possible = first - without
        if possible > LEARNED * abs(first) and mine - without > possible / 2:
            message = (
                f"Without term {index + 1} of the loss the other terms fall from {shown(first)} to {shown(without)}, "
                f"with it to {shown(mine)}: it outweighs them."
            )
            return Verdict(FAULT, kinds.TERM, name, message)
    return None


def _sums(curve: Curve, places: Sequence[int]) -> list[float]:
    """The sum of these terms at every mark; empty if one is missing."""
    if not curve.terms or any(len(terms) <= max(places, default=0) for terms in curve.terms):
        return []
    return [sum(terms[place] for place in places) for terms in curve.terms]
