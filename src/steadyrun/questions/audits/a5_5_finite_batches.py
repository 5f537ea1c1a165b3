"""A5.5: is every value in the batches finite?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.records import Series
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, _limit: Limits) -> Finding:
    fractions = _recorded(run)
    bad = fractions.values > 0
    measured = {"batches": float(len(fractions)), "bad": float(bad.sum())}
    if not bad.any():
        return Finding("pass", f"All values of {len(fractions):,} batches are finite.", measured)
    first, fraction = int(fractions.steps[bad][0]), float(fractions.values[bad][0])
    facts = f"{bad.sum():,} of {len(fractions):,} batches contain NaN or infinity, the first at step {first}"
    broke = run.first_nonfinite
    # An earlier such batch without harm proves that the program handles these values, for example by a mask.
    if broke is None or not first <= broke[0] <= first + 1:
        return Finding("handled", f"{facts}. Loss and gradients stay finite there.", measured)
    what = "loss" if broke[1] == "loss" else "gradient norm"
    message = f"In the batch at step {first}, {percent(fraction)} of the values are NaN or infinite"
    return Finding("non-finite", f"{message}. The {what} is not finite at step {broke[0]}.", measured, first)


def _recorded(run: Signals) -> Series:
    for name in ("batch_nonfinite", "inputs/nonfinite"):  # every batch, or the model's inputs in sampled steps
        if run.has(name):
            return run.raw(name)
    if run.has("batch_hash"):
        raise NotApplicable("the batches have no floating-point values")
    raise MissingSignal("batch_nonfinite", "the batches were not recorded", "give run.step(loss, batch=…) the batch")


QUESTION = Question(
    code="A5.5",
    name="finite batches",
    asks="Is every value in the batches finite?",
    why="One NaN in a batch makes the loss NaN and, after one update, every weight. It looks like exploding "
    "gradients, but no learning rate prevents it.",
    needs=("batch",),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every value in the batches is finite"),
        Outcome(
            name="handled",
            answer=PASS,
            meaning="some inputs are NaN or infinite, and the program handles them",
        ),
        Outcome(
            name="non-finite",
            answer=FAULT,
            meaning="NaN or infinity in the batch made the loss or gradient non-finite",
            fix="Repair or drop the examples of this batch that contain NaN or infinity: assert "
            "torch.isfinite(x).all() in the dataset finds them. Look for a division by zero or a logarithm in the "
            "preprocessing.",
            explains=("D", "C", "S"),
            proved=True,
        ),
    ),
    find=find,
    always=True,
)
