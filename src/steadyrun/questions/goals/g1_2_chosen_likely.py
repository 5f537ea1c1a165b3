"""G1.2: do chosen answers stay likely?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ERRORS, MANY, ROWS
from steadyrun.questions.vital_signs.improvement import course
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import CHOSEN_LOGP, REJECTED_LOGP, metric
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    chosen, rejected = metric(run, CHOSEN_LOGP, limit["rows"]), metric(run, REJECTED_LOGP, limit["rows"])
    if chosen is None:
        raise NotApplicable("no log-probability of chosen answers was logged")
    level = levels(run, chosen.name, limit["rows"], rises=True)
    words = course("The log-probability of chosen answers", level.start, level.best, level.end)
    fallen = (level.start - level.end) / abs(level.start) if level.start else 0.0
    measured = {"start": level.start, "end": level.end, "fallen": fallen}
    later = chosen.values[len(chosen) // 2 :]  # pairs differ: noise may hide a fall that no late row is above
    lost = len(chosen) >= limit["many"] and max(later) < level.start - limit["collapse"] * abs(level.start)
    if level.start - level.end <= limit["errors"] * level.error and not lost:
        return Finding("stay", f"{words}.", measured)
    if fallen > limit["collapse"]:
        message = f"{words}: {percent(fallen)} of its size (limit {percent(limit['collapse'])})."
        return Finding("collapse", message, measured)
    both = rejected is not None and levels(run, rejected.name, limit["rows"]).end < rejected.values[0]
    return Finding("both-fall" if both else "chosen-falls", f"{words}.", measured)


_FIX = "Add a loss on the chosen answers (rpo_alpha=1 in TRL), raise beta, or lower the learning rate."
QUESTION = Question(
    code="G1.2",
    name="chosen answers stay likely",
    asks="Does the log-probability of the chosen answers stay where it was?",
    why="The loss only compares two answers: it also falls if both become unlikely and the rejected one more so. The "
    "probability then goes to answers that are in no pair.",
    needs=("logps/chosen",),
    panel=1,
    thresholds=(
        ROWS,
        MANY,
        ERRORS,
        Threshold(
            name="collapse",
            value=1.0,
            unit="of its first size",
            meaning="a larger fall means that the model has lost the chosen answers",
            seed="",
            decision="chosen: at twice the negative log-probability, the perplexity per token is squared; ordinary DPO "
            "runs lower it by up to a third",
        ),
    ),
    outcomes=(
        Outcome(name="stay", answer=PASS, meaning="the chosen answers stay as likely as they were"),
        Outcome(
            name="both-fall",
            answer=NOTE,
            meaning="chosen and rejected answers both become less likely, as in many DPO runs",
            fix=_FIX,
        ),
        Outcome(name="chosen-falls", answer=NOTE, meaning="the chosen answers become less likely", fix=_FIX),
        Outcome(
            name="collapse",
            answer=SUSPECT,
            meaning="the model has lost the chosen answers",
            fix=_FIX,
            experiment="Generate answers to ten prompts with the first and the last checkpoint. If the last one writes "
            "noise, the fall destroyed the model.",
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
