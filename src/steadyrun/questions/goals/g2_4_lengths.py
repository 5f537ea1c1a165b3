"""G2.4: do the answers end?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ERRORS, MANY, ROWS, reward_improves
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import LENGTH, TRUNCATED, first_level, last_level, metric, reward_of
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    cut, length = metric(run, TRUNCATED, limit["rows"]), metric(run, LENGTH, limit["rows"])
    if cut is None and length is None:
        raise NotApplicable("neither truncated answers nor their length were logged")
    measured: dict[str, float] = {}
    said = []
    if cut is not None:
        measured["truncated"] = last_level(cut)
        said.append(f"{percent(measured['truncated'])} of the last answers are truncated")
    if length is not None:
        first, last = first_level(length), last_level(length)
        measured |= {"length_start": first, "length_end": last}
        said.append(f"their mean length went from {shown(first)} to {shown(last)} tokens")
    message = f"{'; '.join(said)}.".capitalize()
    if (followed := _rewarded_length(run, limit)) is not None:
        return Finding("rewarded", f"{message} {followed[0]}", measured | {"follows": followed[1]})
    return Finding(_outcome(run, measured, limit), message, measured)


def _rewarded_length(run: Signals, limit: Limits) -> tuple[str, float] | None:
    """A reward that follows the length from row to row: in words, and the correlation of their changes."""
    length, reward = metric(run, LENGTH, limit["many"]), reward_of(run, limit["many"])
    if length is None or reward is None:
        return None
    steps = np.intersect1d(length.steps, reward.steps)
    pair = [points.values[np.isin(points.steps, steps)] for points in (length, reward)]
    changes = [np.diff(values) for values in pair]
    if len(steps) < limit["many"] or not all(np.any(each) for each in changes):
        return None
    follows = float(np.min([np.corrcoef(each[0], each[1])[0, 1] for each in (pair, changes)]))  # NaN if one is constant
    if not follows > limit["follows"]:
        return None
    return f"The reward follows their length from row to row (correlation {shown(follows)}).", follows


def _outcome(run: Signals, measured: dict[str, float], limit: Limits) -> str:
    if measured.get("truncated", 0.0) > limit["truncated"]:
        return "cut" if reward_improves(run, limit) else "truncated"
    if "length_start" not in measured or reward_improves(run, limit):
        return "end"
    growth = measured["length_end"] / max(measured["length_start"], 1.0)
    if growth < limit["short"]:
        return "short"
    return "runaway" if growth > limit["runaway"] else "end"


QUESTION = Question(
    code="G2.4",
    name="answers end",
    asks="Do the answers end by themselves, with a stable length?",
    why="A truncated answer usually gets no reward, however good it began. Answers that grow or shrink without a gain "
    "in reward show that the length is rewarded by mistake.",
    needs=("completions/clipped_ratio",),
    panel=1,
    thresholds=(
        ROWS,
        MANY,
        ERRORS,
        Threshold(
            name="follows",
            value=0.95,
            unit="correlation",
            meaning="a reward whose changes follow those of the length more closely is a function of the length",
            seed="",
            decision="measured: 0.99 for a reward that counts words, 0.03 to 0.76 in healthy runs",
            of="follows",
        ),
        Threshold(
            name="truncated",
            value=0.5,
            unit="fraction of the answers",
            meaning="with more truncated answers, most rewards are about the limit and not the answer",
            seed="",
            decision="chosen: half; ordinary runs stay below a fifth",
        ),
        Threshold(
            name="short",
            value=0.1,
            unit="of the first length",
            meaning="shorter answers have collapsed, unless the reward improved",
            seed="",
            decision="chosen: a tenth of an answer is a stub",
        ),
        Threshold(
            name="runaway",
            value=3,
            unit="times the first length",
            meaning="longer answers run away, unless the reward improved",
            seed="",
            decision="chosen: reasoning grows by two to three times while its reward rises",
        ),
    ),
    outcomes=(
        Outcome(name="end", answer=PASS, meaning="the answers end by themselves"),
        Outcome(
            name="cut",
            answer=NOTE,
            meaning="most answers are truncated, and the reward improves",
            fix="Raise the maximum length of an answer, unless it is meant.",
        ),
        Outcome(
            name="truncated",
            answer=SUSPECT,
            meaning="most answers are truncated",
            fix="Raise the maximum length of an answer, mask truncated answers in the loss, and check that the "
            "tokenizer's end token is the one that the model was trained with.",
            experiment="Generate 20 answers with twice the maximum length. If they end, the limit was too low; if not, "
            "the model never writes its end token.",
            may_pass=True,
            explains=("V1.8", "G2.1"),
        ),
        Outcome(
            name="rewarded",
            answer=SUSPECT,
            meaning="the reward follows the length of the answers: longer is better, whatever they say",
            fix="Read ten answers with their rewards, and mend the reward function so that padding an answer gains "
            "nothing.",
            experiment="Append ten words without meaning to an answer. If its reward rises, the length is rewarded.",
            explains=("V1.8", "G2.1", "G2.2", "G2.3"),
        ),
        Outcome(
            name="short",
            answer=SUSPECT,
            meaning="the answers have collapsed to stubs",
            fix="Check the reward of an empty answer, and raise the KL coefficient.",
            experiment="Compute the reward of an empty answer. If it is not the worst, the policy exploits it.",
            may_pass=True,
            explains=("V1.8",),
        ),
        Outcome(
            name="runaway",
            answer=SUSPECT,
            meaning="the answers grow without a gain in reward",
            fix="Average the loss over all tokens of the batch rather than per answer, and check whether the reward "
            "grows with the length.",
            experiment="Compute the correlation of reward and length in one batch. If it is positive, the length is "
            "rewarded.",
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
