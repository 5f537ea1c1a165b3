"""A3.5: is the end of a text ever a target?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import of_targets
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    given, asked = run.maybe("targets/ends_given"), run.maybe("targets/ends_asked")
    if given is None or asked is None:
        of_targets(run, "targets/same", "the targets are no tokens beside those of the input")
        how = 'declare config={"eos_id": …}, or give run.watch the tokenizer'
        raise MissingSignal("targets/ends_given", "whether ends of texts are supervised is not known", how)
    masked = run.maybe("targets/supervised")
    measured = {"given": float(np.sum(given.values)), "asked": float(np.sum(asked.values))}
    if measured["given"] < limit["ends"]:
        raise NotApplicable(f"ends of texts were seen {measured['given']:g} times in the inputs")
    if masked is None or float(np.min(masked.values)) >= 1:
        raise NotApplicable("no target is masked")
    facts = f"the end of a text stands {measured['given']:g} times in the sampled inputs"
    early = float(np.sum(given.values[: np.argmax(np.cumsum(given.values) >= limit["ends"]) + 1]))
    if measured["asked"] == 0 and early >= limit["ends"]:
        return Finding("never-asked", f"{facts} and is never a target.", measured, given.step_at(0))
    return Finding("pass", f"{facts} and {measured['asked']:g} times among the targets.", measured)


QUESTION = Question(
    code="A3.5",
    name="ends of texts are supervised",
    asks="Where texts end in the inputs, is the end ever a target?",
    why="Where padding and the end of a text share one id, masking padding masks every real end, too: the model never "
    "learns to stop.",
    needs=("objective", "eos_id"),
    panel=None,
    thresholds=(
        Threshold(
            name="ends",
            value=20,
            unit="ends in the sampled inputs",
            meaning="fewer say nothing",
            seed="",
            decision="one batch may have none by chance",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the model is taught to stop"),
        Outcome(
            name="never-asked",
            answer=FAULT,
            meaning="the end of a text is always masked",
            fix="Use a padding token of its own, or mask by the attention mask instead of by the id.",
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
)
