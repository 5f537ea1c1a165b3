"""G1.1: do chosen answers gain on rejected ones?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ERRORS, MANY, ROWS
from steadyrun.questions.vital_signs.improvement import course
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import CHOSEN_LOGP, MARGIN, PREFERENCE_ACCURACY, REJECTED_LOGP, last_level, metric
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown

_HALF = 0.5  # the accuracy of a guess between two answers


def find(run: Signals, limit: Limits) -> Finding:
    margin = metric(run, MARGIN, limit["rows"])
    if margin is None:
        raise NotApplicable("no margin between chosen and rejected answers was logged")
    level = levels(run, margin.name, limit["rows"], rises=True)
    surely = limit["errors"] * level.error
    words = course("The margin between chosen and rejected answers", level.start, level.best, level.end)
    accuracy = metric(run, PREFERENCE_ACCURACY, limit["rows"])
    right = None if accuracy is None else last_level(accuracy)
    measured = {"start": level.start, "end": level.end} | ({} if right is None else {"accuracy": right})
    prefers = "" if right is None else f"; the chosen answer wins in {percent(right)} of the pairs"
    if float(np.max(np.abs(run.points(margin.name).values))) <= limit["same"]:
        return Finding("identical", f"The margin is 0 in all {len(margin)} rows{prefers}.", measured)
    if (away := _parts_wrongly(run, limit)) is not None:
        return away
    if level.end < min(0.0, level.start) - surely and (right is None or right < _HALF):
        return Finding("reversed", f"{words}{prefers}.", measured)
    if level.best - level.start <= surely and level.points >= limit["many"] and not run.running:
        return Finding("flat", f"{words}, within its noise{prefers}.", measured)
    return Finding("rises", f"{words}{prefers}.", measured)


def _parts_wrongly(run: Signals, limit: Limits) -> Finding | None:
    """Rejected answers become likelier and chosen ones less likely, whatever the logged rewards say."""
    chosen, rejected = metric(run, CHOSEN_LOGP, limit["rows"]), metric(run, REJECTED_LOGP, limit["rows"])
    if chosen is None or rejected is None:
        return None
    good, bad = levels(run, chosen.name, limit["rows"], rises=True), levels(run, rejected.name, limit["rows"])
    falls = good.start - good.end > limit["errors"] * good.error
    if not falls or bad.end - bad.start <= limit["errors"] * bad.error:
        return None
    words = f"The log-probability of chosen answers fell from {shown(good.start)} to {shown(good.end)}, that of "
    words += f"rejected ones rose from {shown(bad.start)} to {shown(bad.end)}."
    return Finding("reversed", words, {"chosen": good.end, "rejected": bad.end})


QUESTION = Question(
    code="G1.1",
    name="chosen answers gain",
    asks="Does the margin between chosen and rejected answers grow?",
    why="Preference tuning must raise the chosen answer above the rejected one. A margin that stays at zero means that "
    "the policy does not move; a margin that falls means that the pair is the wrong way round.",
    needs=("rewards/margins",),
    panel=1,
    thresholds=(
        ROWS,
        MANY,
        ERRORS,
        Threshold(
            name="same",
            value=1e-6,
            unit="of the margin",
            meaning="smaller margins are rounding: both answers of a pair have the same log-probability",
            seed="",
            decision="two different answers part with the first update",
        ),
    ),
    outcomes=(
        Outcome(name="rises", answer=PASS, meaning="the margin grows"),
        Outcome(
            name="reversed",
            answer=SUSPECT,
            meaning="the policy learns to prefer the rejected answers",
            fix="Swap the columns chosen and rejected, or the sign of beta.",
            experiment="Print three pairs with their labels. If the better answer is in the column rejected, the "
            "columns are swapped.",
            may_pass=True,
            explains=("V1", "C4", "S", "G1.2"),
        ),
        Outcome(
            name="identical",
            answer=SUSPECT,
            meaning="chosen and rejected answers are the same to the loss",
            fix="Check that the two columns have different texts, that truncation leaves their difference, and that "
            "the mask keeps the answers and not the prompts.",
            experiment="Print the learned tokens of both answers of one pair. If they are equal, nothing can be "
            "learned from it.",
            explains=("V1", "C4", "S"),
        ),
        Outcome(
            name="flat",
            answer=SUSPECT,
            meaning="the policy does not learn the preferences",
            fix="Check that the policy's weights are in the optimizer and that the reference is a separate, frozen "
            "copy. Then try ten times the learning rate.",
            experiment="Train 50 steps on eight pairs. If the margin stays at zero, the policy does not move.",
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
