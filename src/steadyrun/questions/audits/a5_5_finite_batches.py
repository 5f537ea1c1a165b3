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
        return Finding("pass", f"all values of {len(fractions)} batches are finite.", measured)
    first, fraction = int(fractions.steps[bad][0]), float(fractions.values[bad][0])
    facts = f"{bad.sum()} of {len(fractions)} batches hold NaN or infinity, the first at step {first}"
    broke = run.first_nonfinite
    # A batch that was trained on before without harm proves that the program copes with such values, as masks do.
    if broke is None or not first <= broke[0] <= first + 1:
        return Finding("handled", f"{facts}; the loss and the gradients stay finite there.", measured)
    what = "loss" if broke[1] == "loss" else "gradient norm"
    message = f"{percent(fraction)} of the values in the batch at step {first} are NaN or infinite"
    return Finding("non-finite", f"{message}, and the {what} is not finite at step {broke[0]}.", measured, first)


def _recorded(run: Signals) -> Series:
    for name in ("batch_nonfinite", "inputs/nonfinite"):  # of every batch, or of what the model was given when sampled
        if run.has(name):
            return run.raw(name)
    if run.has("batch_hash"):
        raise NotApplicable("the batches hold no floating-point values")
    raise MissingSignal("batch_nonfinite", "the batches were not recorded", "give run.step(loss, batch=…) the batch")


QUESTION = Question(
    code="A5.5",
    name="finite batches",
    asks="Is every value in the batches finite?",
    why="One NaN in a batch makes the loss NaN and, after one update, every weight. It looks like exploding gradients, "
    "and no learning rate prevents it.",
    needs=("batch",),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every value is finite"),
        Outcome(
            name="handled",
            answer=PASS,
            meaning="some values are NaN or infinite, and the program copes with them: a mask, missing values",
        ),
        Outcome(
            name="non-finite",
            answer=FAULT,
            meaning="the batch held NaN or infinity before the loss did",
            fix="Find the examples of this batch that hold NaN or infinity, and repair or drop them: assert "
            "torch.isfinite(x).all() in the data set. Look for a division by zero or a logarithm in the preparation.",
            explains=("D", "C", "S"),
            proved=True,
        ),
    ),
    find=find,
    always=True,
)
