"""R3.1: which rank has the first non-finite value?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.ranks import in_words
from steadyrun.signals.replicas import first_bad, joined
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:  # noqa: ARG001  a value is finite or it is not
    ranks = joined(run)
    known = ranks.matrix("loss").ranks
    if not known:
        raise MissingSignal("loss")
    bad = first_bad(run)
    if not bad:
        return Finding("pass", f"The losses of {len(known)} ranks stay finite.", {"ranks": float(len(known))})
    step = min(bad.values())
    first = [rank for rank in sorted(bad) if bad[rank] == step]
    measured = {"first_ranks": float(len(first)), "ranks": float(len(known))}
    if len(first) == len(known):
        return Finding(
            "together", f"The losses of all {len(known)} ranks are not finite from step {step} on.", measured
        )
    later = [at for rank, at in bad.items() if rank not in first]
    others = f"the others follow at step {min(later)}" if later else "the others stay finite"
    verb = "is" if len(first) == 1 else "are"
    words = f"The loss of {in_words(first)} {verb} not finite from step {step} on; {others}."
    return Finding("first", words, measured, step, ranks=tuple(first))


QUESTION = Question(
    code="R3.1",
    name="the first rank with NaN",
    asks="Which rank has the first non-finite loss?",
    why="One rank's NaN reaches all others with the next average of gradients. Only the first rank holds the batch and "
    "the operation that made it.",
    needs=("loss",),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the losses of all ranks stay finite"),
        Outcome(
            name="together",
            answer=PASS,
            meaning="the losses of all ranks become non-finite at the same step",
        ),
        Outcome(
            name="first",
            answer=FAULT,
            meaning="the first non-finite loss is on some ranks only",
            fix="Look at this rank's batch of this step, and replay it on this rank; the values of the other ranks "
            "only follow from it.",
            explains=("R2.4", "D1", "D1.1:non-finite", "D2", "D3", "C4", "V1", "S"),
            proved=True,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
