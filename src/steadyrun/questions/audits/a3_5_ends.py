"""A3.5: is the end-of-text token ever a target?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.supervision.counts import CUT, HARDLY, need_answers, need_whole_answers
from steadyrun.signals.intent import of_targets
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    need_answers(run, limit)
    need_whole_answers(run, limit)
    given, asked = run.maybe("targets/ends_given"), run.maybe("targets/ends_asked")
    if given is None or asked is None:
        of_targets(run, "targets/same", "the targets are not tokens aligned with the input")
        how = 'declare config={"eos_id": …}, or give run.watch the tokenizer'
        raise MissingSignal("targets/ends_given", "the end-of-text token is unknown", how)
    masked = run.maybe("targets/supervised")
    measured = {"given": float(np.sum(given.values)), "asked": float(np.sum(asked.values))}
    if measured["given"] < limit["ends"]:
        raise NotApplicable(f"the sampled inputs contain only {measured['given']:g} end-of-text tokens")
    if masked is None or float(np.min(masked.values)) >= 1:
        raise NotApplicable("no target is masked")
    facts = f"The end-of-text token occurs {measured['given']:g} times in the sampled inputs"
    early = float(np.sum(given.values[: np.argmax(np.cumsum(given.values) >= limit["ends"]) + 1]))
    if measured["asked"] == 0 and early >= limit["ends"]:
        return Finding("never-asked", f"{facts} and never as a target.", measured, given.step_at(0))
    return Finding("pass", f"{facts} and {measured['asked']:g} times as a target.", measured)


QUESTION = Question(
    code="A3.5",
    name="ends of texts are learned",
    asks="If the inputs contain ends of texts, is the end-of-text token ever a target?",
    why="If padding and end of text use the same id, masking padding also masks every real end: the model never "
    "learns to stop.",
    needs=("objective", "eos_id"),
    panel=None,
    thresholds=(
        Threshold(
            name="ends",
            value=20,
            unit="end-of-text tokens in the sampled inputs",
            meaning="with fewer the question is not answered",
            seed="",
            decision="one batch may have none by chance",
        ),
        HARDLY,
        CUT,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the model learns to stop"),
        Outcome(
            name="never-asked",
            answer=FAULT,
            meaning="the model never learns to stop: every end of text is masked",
            fix="Use a separate padding token, or mask by the attention mask instead of by the token id.",
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
)
