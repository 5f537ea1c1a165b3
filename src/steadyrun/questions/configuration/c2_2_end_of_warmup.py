"""C2.2: has the warmup reached the peak when it should be over?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.configuration.schedule_faults import steps_done
from steadyrun.questions.facts import rates_by_group
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.declared_schedule import unknown_schedule
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.rollbacks import path_of
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    warmup, peak = run.declared("warmup_steps"), run.declared("lr_max")
    if warmup is None or warmup < 1:
        raise NotApplicable("no warmup is declared (config warmup_steps)", "warmup_steps")
    if peak is None or peak <= 0:
        raise MissingSignal("lr_max", "a warmup is declared, but not the learning rate it leads to")
    rates = {name: path_of(run).along(points) for name, points in rates_by_group(run, limit).items()}
    # Groups may have rates of their own: the one that comes closest to the declared peak is the one meant.
    at_end = {name: _rate_at(points.steps, points.values, warmup, limit["near"]) for name, points in rates.items()}
    known = {name: rate for name, rate in at_end.items() if rate is not None}
    if not known:
        raise MissingSignal(
            "lr/*",
            f"no learning rate is recorded at or shortly after step {warmup:g}, the end of the warmup",
            "let it run on",
        )
    rate = max(known.values())
    share = rate / peak
    measured = {"lr": rate, "share": share}
    facts = (
        f"learning rate {shown(rate)} at step {warmup:g}, where the warmup ends: {share:.0%} of lr_max {shown(peak)}"
    )
    if abs(share - 1) <= limit["close"]:
        return Finding("pass", f"{facts} (within {limit['close']:g}).", measured, int(warmup))
    done = steps_done(run, min(float(points.steps[0]) for points in rates.values()))
    if done >= warmup:
        raise NotApplicable(
            f"scheduler or optimizer had taken {done} steps before the record begins: the warmup was over"
        )
    if share < limit["half"] and not unknown_schedule(run.config):  # which may rise in a way of its own
        return Finding("not-reached", f"{facts}, below {limit['half']:g}.", measured, int(warmup))
    return Finding("off", f"{facts}, off by more than {limit['close']:g}.", measured, int(warmup))


def _rate_at(steps: object, values: object, step: float, share: float) -> float | None:
    """The rate at a step, on the straight line between its neighbours; None where none was recorded near it."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    near = np.any((x >= step) & (x <= step + max(2.0, share * step)))
    return float(np.interp(step, x, y)) if x[0] <= step and near else None


QUESTION = Question(
    code="C2.2",
    name="end of warmup",
    asks="Is the learning rate at step warmup_steps within 5% of lr_max?",
    why="t / W and (t + 1) / W differ by one step, which is everything when W is small; a warmup that counts in the "
    "wrong unit reaches its peak much later, or never.",
    needs=("lr/*", "warmup_steps", "lr_max"),
    panel=2,
    thresholds=(
        Threshold(
            name="close",
            value=0.05,
            unit="share of lr_max",
            meaning="distance that still passes",
            seed="5%",
            decision="as specified",
            of="-share",
        ),
        Threshold(
            name="half",
            value=0.5,
            unit="share of lr_max",
            meaning="below this the warmup is wrong",
            seed="0.5 lr_max",
            decision="as specified",
            of="-share",
        ),
        Threshold(
            name="near",
            value=0.1,
            unit="fraction of the warmup",
            meaning="how long after the end of the warmup a rate must be recorded",
            seed="",
            decision="later rates say nothing about the end of the warmup",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the warmup ends at the peak"),
        Outcome(name="off", answer=NOTE, meaning="near the peak but not at it"),
        Outcome(
            name="not-reached",
            answer=FAULT,
            meaning="the warmup is far from its peak when it should be over",
            fix="Check the warmup formula ((t + 1) / W with t counted from 0) and that W counts optimizer steps, not "
            "batches, micro-batches or epochs.",
        ),
    ),
    find=find,
)
