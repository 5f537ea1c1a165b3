"""V1.8: does the logged success improve?"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.questions.vital_signs.improvement import STEADY, UNSURE, course, within_noise
from steadyrun.questions.vital_signs.nothing_learned import (
    NOTHING_LEARNED_LIMITS,
    NOTHING_LEARNED_OUTCOMES,
    memorised,
    none_at_all,
    nothing_to_learn,
)
from steadyrun.signals.curves import OF_NORMAL, chance_of_rise, largest_rise
from steadyrun.signals.facts import POLICY
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import has_success_alone, is_held_out, is_reward, successes
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    ways = successes(run)
    long = [name for name in ways if (points := run.maybe(name)) is not None and len(points) >= limit["losses"]]
    for name in long:
        if (nothing := nothing_to_learn(run, name, limit)) is not None:
            return nothing
    if not long and known_facts(run, limit).objective == POLICY:
        return _by_value_targets(run, limit)
    if not long:
        raise NotApplicable("no return, reward, accuracy or score was logged often enough", "episodic_return")
    if known_facts(run, limit).objective == POLICY:  # here an accuracy is a teacher's or an opponent's
        long = [name for name in long if is_reward(name)] or long
    found = {name: _judged(run, name, ways[name], limit) for name in long}
    found = {name: _drops(run, name, one, ways[name], limit) or one for name, one in found.items()}
    found = {name: _at_the_top(name, one, found, limit) or one for name, one in found.items()}
    if any(one.outcome == "rose" for one in found.values()):  # a noisier measure of what rose may hide the rise
        noisy = {name for name in found if not is_held_out(name) and np.ptp(run.points(name).values) > 0}
        noisy |= {name for name in found if _may_rise(run, name, ways[name], limit)}
        found = {name: one for name, one in found.items() if one.outcome != "flat" or name not in noisy}
    for name, one in found.items():
        if (by_heart := memorised(run, name, one, ways[name], limit)) is not None:
            return by_heart
    worst = max(found.values(), key=lambda one: _ORDER.index(one.outcome))
    for name in found:
        if (none := none_at_all(run, name, found[name], limit)) is not None:
            return none
    if worst.outcome == "flat" and not known_facts(run, limit).moves_freely and not has_success_alone(run):
        return Finding("steady", worst.message, worst.measured)
    flat = [name for name, one in found.items() if one.outcome == "flat"]
    if worst.outcome == "flat" and all(_is_stalled(run, name, ways[name], limit) for name in flat):
        return Finding("stalled", worst.message, worst.measured)
    return worst


def _is_stalled(run: Signals, name: str, way: int, limit: Limits) -> bool:
    """Whether a success had enough rows and steps to rise, shows no sign of it, and is not at its maximum."""
    level, values = levels(run, name, limit["losses"], rises=way > 0), way * run.points(name).values
    at_top = float(np.mean(values == np.max(values))) > limit["top"]
    long = level.points >= limit["many"] and level.steps >= limit["patience"] and not run.running
    unseen = largest_rise(values) < limit["hidden"] * float(np.std(values))
    return long and not at_top and unseen and chance_of_rise(way * level.stretches) > limit["unsure"]


def _may_rise(run: Signals, name: str, way: int, limit: Limits) -> bool:
    """Whether a success that its noise hides is likely to rise."""
    values = way * run.points(name).values
    return bool(values[-1] > values[0]) and chance_of_rise(values) < limit["unsure"]


def _drops(run: Signals, name: str, one: Finding, way: int, limit: Limits) -> Finding | None:
    """A long record whose last hundredth is far below every earlier stretch of that length."""
    values = way * run.points(name).values
    size = max(limit.count("many"), len(values) // limit.count("tail"))
    if one.outcome not in ("rose", "flat") or len(values) < limit["patience"]:
        return None
    parts = values[len(values) % size :].reshape(-1, size)
    medians = np.median(parts, axis=1)
    error = OF_NORMAL * float(np.median(np.abs(parts - medians[:, None]))) / math.sqrt(size)
    below = float(np.min(medians[:-1]) - medians[-1])
    if below <= max(limit["errors"] * error, limit["deep"] * float(np.ptp(medians[:-1]))):
        return None
    lowest, last = shown(way * float(np.min(medians[:-1]))), shown(way * float(medians[-1]))
    message = f"{name} is {last} in the last {size} rows; the worst {size} rows before have {lowest}."
    return Finding("collapsed", message, dict(one.measured) | {"end": way * float(medians[-1])})


def _at_the_top(name: str, one: Finding, found: Mapping[str, Finding], limit: Limits) -> Finding | None:
    """An evaluated reward that starts at the level training reaches: evaluated late, or without exploration."""
    if one.outcome != "flat" or not (is_reward(name) and is_held_out(name)):
        return None
    for other, trained in found.items():
        if trained.outcome != "rose" or not is_reward(other) or is_held_out(other):
            continue
        start, end = trained.measured["start"], trained.measured["end"]
        if min(one.measured["start"], one.measured["end"]) > start + limit["reached"] * (end - start):
            return Finding("rose", f"{trained.message[:-1]}; {one.message}", trained.measured)
    return None


def _by_value_targets(run: Signals, limit: Limits) -> Finding:
    """A policy's return, read from the targets of its value function: the first third of samples against the last."""
    for name in run.matching("fit_target/*"):
        points = run.maybe(name)
        if points is None or len(points) < limit["samples"]:
            continue
        third = len(points) // limit.count("parts")
        first, last = points.values[:third], points.values[-third:]
        start, end = float(np.mean(first)), float(np.mean(last))
        surely = limit["value_errors"] * float(np.sqrt((np.var(first, ddof=1) + np.var(last, ddof=1)) / third))
        words = course("The value function's mean target", start, end, end)
        measured = {"start": start, "end": end}
        if end - start > surely:
            return Finding("rose", f"{words}.", measured)
        if start - end > surely:
            return Finding("fell", f"{words}.", measured)
    raise NotApplicable("no return was logged, and the value function's targets show no trend", "episodic_return")


def _full(end: float) -> bool:
    """Whether a fraction of right answers is 1 or 100%: it cannot rise any more."""
    return round(end, 2) in (1, _PERCENT)


_PERCENT = 100
_ORDER = ("rose", "flat", "collapsed", "fell")


def _judged(run: Signals, name: str, way: int, limit: Limits) -> Finding:
    level = levels(run, name, limit["losses"], rises=way > 0)
    surely = limit["errors"] * level.error
    measured = {"start": level.start, "best": level.best, "end": level.end}
    words = course(name, level.start, level.best, level.end)
    gained, lost = way * (level.best - level.start), way * (level.best - level.end)
    down = way * (level.start - level.end)
    falls = chance_of_rise(-way * level.stretches) < limit["steady"] and down > limit["worse"] * abs(level.start)
    if gained < surely and (down > surely or falls):
        return Finding("fell", f"{words}.", measured)
    if not is_reward(name):  # a first accuracy covers a whole evaluation; a first reward is one episode
        gained = max(gained, way * (level.best - float(run.points(name).values[0])))
    if gained > surely and lost > surely and lost > limit["lost"] * gained:
        message = f"{words}. It lost {percent(lost / gained)} of its gain (limit {percent(limit['lost'])})."
        return Finding(
            "collapsed", message if lost < gained else f"{words}. It lost its whole gain.", measured, level.best_step
        )
    steady = chance_of_rise(way * level.stretches) < limit["steady"]
    if way > 0 and not is_reward(name) and _full(level.end) and level.end - float(run.points(name).values[0]) > surely:
        return Finding("rose", f"{words}.", measured)
    if way * (level.end - level.start) > (0 if steady else surely):
        return Finding("rose", f"{words}.", measured)
    return Finding("flat", f"{words}{within_noise(surely)}.", measured)


QUESTION = Question(
    code="V1.8",
    name="success improves",
    asks="Does the logged return, reward, accuracy or score improve?",
    why="Some losses do not show success, such as those of a policy or of two opponents. A logged measure of success "
    "must then improve.",
    needs=("episodic_return",),
    panel=1,
    thresholds=(
        LOSSES,
        Threshold(
            name="errors",
            value=6,
            unit="standard errors",
            meaning="smaller changes are noise",
            seed="",
            decision="as in V1.1",
        ),
        Threshold(
            name="samples",
            value=10,
            unit="sampled steps",
            meaning="how many means of a value function's targets are needed to show a trend",
            seed="",
            decision="half of what a logged curve needs: each is a mean over a batch",
        ),
        Threshold(
            name="parts",
            value=3,
            unit="equal parts of the samples",
            meaning="the first and the last of these parts are compared",
            seed="",
            decision="a third of ten samples is enough to estimate a standard deviation",
        ),
        Threshold(
            name="value_errors",
            value=4,
            unit="standard errors",
            meaning="smaller changes of the mean target are noise",
            seed="",
            decision="measured: below 1 for a policy that does not learn, 10 and more for those that do",
        ),
        Threshold(
            name="many",
            value=30,
            unit="rows",
            meaning="with fewer rows, noise may hide a rise",
            seed="",
            decision="this many rows show a rise of one standard deviation from start to end",
        ),
        Threshold(
            name="patience",
            value=200,
            unit="steps, or rows if the record has no step numbers",
            meaning="how long a success may take to rise",
            seed="",
            decision="the second mark of C4.1",
        ),
        Threshold(
            name="hidden",
            value=1,
            unit="standard deviation of a row",
            meaning="a success is called stalled only if its noise could not hide a rise of this size",
            seed="",
            decision="learning improves a policy by more than two of its episodes differ",
        ),
        Threshold(
            name="top",
            value=0.5,
            unit="fraction of the rows",
            meaning="a success with its highest value in more of the rows is at its maximum",
            seed="",
            decision="a bounded reward that is nearly always reached cannot rise",
        ),
        Threshold(
            name="tail",
            value=100,
            unit="equal parts of the rows",
            meaning="the last of these parts is searched for a sudden collapse",
            seed="",
            decision="a fifth of the length of the stretches that are otherwise compared",
        ),
        Threshold(
            name="deep",
            value=0.5,
            unit="of the range of the earlier parts",
            meaning="how far below the worst of them the last part must be",
            seed="",
            decision="far outside everything the run has shown; a dip like earlier ones recovers",
        ),
        *NOTHING_LEARNED_LIMITS,
        STEADY,
        UNSURE,
        Threshold(
            name="last",
            value=5,
            unit="equal parts of the rows",
            meaning="the last of these parts holds the last rewards",
            seed="",
            decision="as in V1.3",
        ),
        Threshold(
            name="reached",
            value=0.5,
            unit="fraction of what training gains",
            meaning="an evaluated reward that stays above this is as high as training reaches",
            seed="",
            decision="halfway: an evaluation that training does not improve stays at the level of the start",
        ),
        Threshold(
            name="worse",
            value=0.01,
            unit="of its start",
            meaning="a smaller steady fall of success is a drift",
            seed="",
            decision="half of the change of a loss that counts in V1.1: a success that only falls never rose",
        ),
        Threshold(
            name="lost",
            value=0.7,
            unit="fraction of the gain",
            meaning="how much of its gain a success may lose again",
            seed="",
            decision="returns of healthy policies fall back by half and recover",
        ),
    ),
    outcomes=(
        Outcome(name="rose", answer=PASS, meaning="the logged success has improved"),
        Outcome(name="steady", answer=PASS, meaning="the logged success has not changed; the loss is judged instead"),
        Outcome(
            name="flat",
            answer=NOTE,
            meaning="the logged success has not improved, and the loss does not show it",
            fix="Train longer, or compare with a run at another learning rate.",
        ),
        *NOTHING_LEARNED_OUTCOMES,
        Outcome(
            name="stalled",
            answer=SUSPECT,
            meaning="the logged success does not improve over a long run",
            fix="Check that the reward reaches the update with the right sign and scale. Then try ten times the "
            "learning rate, a tenth of it, and more exploration.",
            experiment="Train on the easiest version of the task: one start state, one example, a reward for every "
            "right step. If success rises, the task was too hard or exploration too small; if not, the update is "
            "broken.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="collapsed",
            answer=SUSPECT,
            meaning="success improved and was lost again",
            fix="Go back to the checkpoint with the best success, and lower the learning rate.",
            experiment="Continue from the best checkpoint with a third of the learning rate. If success stays, the "
            "updates were too large.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="fell",
            answer=SUSPECT,
            meaning="success gets worse as the run trains",
            fix="Check the sign of the advantage, the reward and the loss.",
            experiment="Reverse the sign of the advantage (or of the loss) and train 100 steps. If success rises, the "
            "sign was wrong.",
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
