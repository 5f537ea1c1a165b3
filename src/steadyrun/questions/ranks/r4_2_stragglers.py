"""R4.2: does one rank hold up the others?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.ranks import in_words
from steadyrun.signals.replicas import joined
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.step_times import StepTimes, step_times
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    ranks = joined(run)
    groups = ranks.together
    if not groups:
        raise NotApplicable("it is not known which ranks train one model")
    if "step_time" in ranks.names and "time/busy" not in ranks.names:
        raise NotApplicable("on an accelerator the times of the host do not show who waits")
    split = [times for group in groups if (times := step_times(ranks, group)) is not None]
    kept = [times.after(limit.count("first")) for times in split]
    most = max((len(times.steps) for times in kept), default=0)
    if most < limit["steps"]:
        raise MissingSignal("time/busy", f"timed steps of all ranks: {most}, needed: {limit['steps']:g}")
    found = [_slow(times, limit) for times in kept if len(times.steps) >= limit["steps"]]
    return next((finding for finding in found if finding.outcome == "slow"), found[0])


def _slow(times: StepTimes, limit: Limits) -> Finding:
    fractions = np.median(times.excess / times.whole, axis=0)
    seconds = np.median(times.excess, axis=0)
    slow = np.flatnonzero((fractions >= limit["slow"]) & (seconds >= limit["least"]))
    worst = int(np.argmax(fractions))
    measured = {
        "effect": float(fractions[worst]),
        "rank": float(times.ranks[worst]),
        "seconds": float(seconds[worst]),
        "step_time": float(np.median(times.whole)),
    }
    if not len(slow):
        words = (
            f"No rank holds up the others: the slowest works {percent(max(0.0, measured['effect']))} of a step longer."
        )
        return Finding("pass", words, measured)
    ranks = [times.ranks[index] for index in slow]
    who, hold = in_words(ranks).capitalize(), "holds" if len(ranks) == 1 else "hold"
    message = (
        f"{who} {hold} up the job: each step takes {shown(measured['step_time'])} s, {percent(measured['effect'])} "
        f"of it waiting for rank {times.ranks[worst]}. {_split(times, worst)}"
    )
    return Finding(
        "slow", message, measured | _parts(times, worst), int(times.steps[0]), _fix(times, worst), ranks=tuple(ranks)
    )


def _parts(times: StepTimes, index: int) -> dict[str, float]:
    """Data and compute of a rank, and of the median of the others."""
    others = [other for other in range(len(times.ranks)) if other != index]
    parts = {"data": times.data, "compute": times.compute}
    mine = {name: float(np.median(values[:, index])) for name, values in parts.items()}
    return mine | {f"others_{name}": float(np.median(values[:, others])) for name, values in parts.items()}


def _split(times: StepTimes, index: int) -> str:
    parts = _parts(times, index)
    return (
        f"It spends {shown(parts['data'])} s on data and {shown(parts['compute'])} s on compute; the others "
        f"{shown(parts['others_data'])} s and {shown(parts['others_compute'])} s."
    )


def _fix(times: StepTimes, index: int) -> str:
    parts = _parts(times, index)
    if parts["data"] - parts["others_data"] >= parts["compute"] - parts["others_compute"]:
        return (
            f"Make the data of rank {times.ranks[index]} faster: more workers in its DataLoader, a disk as fast as the "
            "others', batches of equal length."
        )
    return (
        f"Look at the host of rank {times.ranks[index]}: other programs, fewer cores, a lower clock; and at work that "
        "only this rank does in every step."
    )


QUESTION = Question(
    code="R4.2",
    name="no straggler",
    asks="Does one rank hold up the others in every step?",
    why="The ranks of a job wait for the slowest in every step, so one slow loader or one slow host slows down all. "
    "Each rank shows the same step time; only the split into data, compute and waiting shows who is slow.",
    needs=("time/busy",),
    panel=None,
    thresholds=(
        Threshold(
            name="slow",
            value=0.15,
            unit="fraction of the step time",
            meaning="how much longer than the others a rank must work in the median step",
            seed="",
            decision="healthy DDP on two busy cores stays within 0.01; a checkpoint or a validation of one rank does "
            "not move the median",
            of="effect",
        ),
        Threshold(
            name="least",
            value=0.002,
            unit="seconds per step",
            meaning="smaller differences are not judged",
            seed="",
            decision="the clock and the scheduler of the operating system move a step by about a millisecond",
            of="seconds",
        ),
        Threshold(
            name="first",
            value=5,
            unit="steps",
            meaning="the first steps are left out",
            seed="",
            decision="they compile, allocate and start the workers of the loader",
        ),
        Threshold(
            name="steps",
            value=20,
            unit="steps",
            meaning="with fewer the question is not answered",
            seed="",
            decision="a median of 20 steps does not depend on a few slow ones",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no rank holds up the others"),
        Outcome(
            name="slow",
            answer=SUSPECT,
            meaning="the others wait for a slow rank in every step",
            fix="Speed up the data or the host of the slow rank.",
            experiment="Exchange the hosts or the data of the slow rank and another. If the slowness moves with the "
            "host, the machine is the cause; if it moves with the data, the loader is.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
