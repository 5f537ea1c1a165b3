"""Rules about data, parts and terms: what the loader gave, what no update changed, and what teaches about what."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from steadyrun.text import listed, percent, shown
from steadyrun.trial import factor as kinds
from steadyrun.trial.curve import Curve, Drawn
from steadyrun.trial.setting_rules import is_fast
from steadyrun.trial.twin_table import LEARNED, SAME, Table
from steadyrun.trial.verdict import FAULT, REPEATED, UNDECIDED, Verdict

FEW_EXAMPLES = 0.5  # of the examples that are to be expected; drawing with replacement gives 63%
SAME_BATCH = 8  # times
# Of what validation data teach about each other, the part that training data must teach: 0.93 to 1.9 in 16 healthy
# programs, 0 to 0.69 in 4 whose validation data are prepared or numbered differently.
CARRIES_OVER = 0.75


# -- seen without a change -------------------------------------------------------------------------


def repeated(table: Table) -> Verdict | None:
    """The loader gives the same examples though its dataset has more: seen without training."""
    own = next(iter(table.own.values()), None)
    if own is None or not own.drawn:
        return None
    drawn = Drawn(**own.drawn)  # type: ignore[arg-type]
    expected = min(drawn.dataset or 0, drawn.examples)
    repeats = drawn.different_batches < FEW_EXAMPLES * drawn.batches  # equal examples alone may be in the dataset
    if repeats and drawn.different_examples < FEW_EXAMPLES * expected:
        message = (
            f"in {drawn.batches} batches the loader gave {drawn.different_examples} different examples "
            f"of the {drawn.dataset} that its dataset has."
        )
        return Verdict(FAULT, REPEATED, "", message)
    if drawn.dataset is None and drawn.different_batches == 1 and drawn.batches >= SAME_BATCH:
        message = f"the loader gave one and the same batch {drawn.batches} times."
        more = "this is right only if that batch is the whole training set: count its examples"
        return Verdict(UNDECIDED, REPEATED, "", message, more)
    return None


def parts(table: Table) -> Verdict | None:
    """Parts of which a pass uses every parameter and no update changes one, in any seed; tensors in no optimizer."""
    curves = [curve for curve in table.own.values() if not curve.raised]
    if not curves:
        return None
    still = set(curves[0].unmoved).intersection(*(curve.unmoved for curve in curves))
    loose = set(curves[0].unregistered)
    if not still and not loose:
        return None
    if still and not loose and "default-start" in table.curves and is_fast(table, "default-start"):
        return None  # all zero, say: they are in the optimizer, and their start keeps them from moving
    what = f"did not change in {curves[0].steps} steps" if still else "get a gradient and are in no optimizer"
    return Verdict(FAULT, kinds.PART, "", f"{listed(sorted(still or loose))} {what}: nothing trains this part.")


def inputs(table: Table) -> Verdict | None:
    """Noise instead of the inputs: a program that uses its inputs learns differently."""
    if "inputs-noise" not in table.curves:
        return None
    pairs = [(table.own[seed], curve) for seed, curve in table.curves["inputs-noise"].items() if seed in table.own]
    whole = [(a, b) for a, b in pairs if len(a.training) == len(b.training) > 2 and not (a.raised or b.raised)]
    same = [np.allclose(a.training[1:], b.training[1:], rtol=SAME, atol=0) for a, b in whole]
    if not same or not all(same):
        return None
    message = "the training loss is the same with noise instead of the inputs: the inputs do not reach the loss."
    return Verdict(FAULT, kinds.INPUTS, "inputs-noise", message)


# -- data ------------------------------------------------------------------------------------------


def labels(table: Table) -> Verdict | None:
    """Training data that teach nothing about themselves, in a program that learns from validation data."""
    if "targets-shuffled" not in table.curves or not _has(table, "held"):
        return None
    ahead, teaches = table.ahead("own", "targets-shuffled", "held"), _validation_teaches(table)
    if not (ahead < LEARNED and teaches > 2 * LEARNED):
        return None
    message = (
        f"on training examples kept back the loss falls to {shown(table.lowest('own', 'held'))}, with shuffled targets "
        f"to {shown(table.lowest('targets-shuffled', 'held'))}; a part of the validation data teaches (loss "
        f"{shown(table.lowest('validation-data', 'validation'))} on the rest of them, and not "
        f"{shown(table.lowest('own', 'validation'))}): the training targets do not belong to their inputs."
    )
    return Verdict(FAULT, kinds.TARGETS, "targets-shuffled", message)


def prepared(table: Table) -> Verdict | None:
    """Training data and validation data that each teach about themselves and not about each other."""
    if not _has(table, "held") or not _has(table, "validation"):
        return None
    held, validation = table.learned("own", "held"), table.learned("own", "validation")
    if not held > 2 * LEARNED or "validation-data" not in table.curves:
        return None
    there = table.learned("validation-data", "validation")
    if validation < LEARNED and there < LEARNED:
        message = (
            f"trained on training data the loss falls by {percent(held)} on training examples kept back and not at all "
            "on validation, and a part of validation teaches nothing about the rest of it: the validation targets do "
            "not belong to their inputs."
        )
        return Verdict(FAULT, kinds.PREPARATION, "validation-data", message)
    carried = max(table.learned(name, "validation") for name in ("own", "as-few-data") if name in table.curves)
    # Validation data may teach faster only because their batches are larger: so little must carry over as well.
    if not (_validation_teaches(table) > 2 * LEARNED and carried < CARRIES_OVER * min(there, held)):
        return None
    message = (
        f"trained on training data the loss falls by {percent(held)} on training examples kept back and by "
        f"{percent(validation)} on validation; trained on a part of validation it falls on the rest of it to "
        f"{shown(table.lowest('validation-data', 'validation'))} and not to "
        f"{shown(table.lowest('own', 'validation'))}: the two are prepared, or their classes numbered, differently."
    )
    return Verdict(FAULT, kinds.PREPARATION, "validation-data", message)


def _has(table: Table, split: str) -> bool:
    own = next(iter(table.own.values()), None)
    return own is not None and bool(own.losses.get(split))


def _validation_teaches(table: Table) -> float:
    """How much better validation data teach about others of their kind than training data, few or all, do."""
    names = [name for name in ("as-few-data", "own") if name in table.curves]
    if "validation-data" not in table.curves:
        return math.nan
    return min(table.ahead("validation-data", name, "validation") for name in names)


# -- terms -----------------------------------------------------------------------------------------


def terms(table: Table) -> Verdict | None:
    """A term without which the other comparisons with targets fall much further outweighs them."""
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
                f"without term {index + 1} of the loss the others fall from {shown(first)} to {shown(without)}, with "
                f"it to {shown(mine)}: it outweighs them."
            )
            return Verdict(FAULT, kinds.TERM, name, message)
    return None


def _sums(curve: Curve, places: Sequence[int]) -> list[float]:
    """The sum of these terms at every mark; empty if they were not seen at each."""
    if not curve.terms or any(len(terms) <= max(places, default=0) for terms in curve.terms):
        return []
    return [sum(terms[place] for place in places) for terms in curve.terms]
