"""C2.2: the warmup ends at the peak of the learning rate."""

from __future__ import annotations

import numpy as np

from steadyrun.questions.configuration.schedule_faults import steps_done
from steadyrun.questions.facts import rates_by_group
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.declared_schedule import unknown_schedule
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.rollbacks import path_of
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, percent, shown

_FORMULA = "Check the warmup formula: lr_max * (t + 1) / warmup_steps, with the step t counted from 0."


def find(run: Signals, limit: Limits) -> Finding:
    warmup, peak = run.declared("warmup_steps"), run.declared("lr_max")
    if warmup is None or warmup < 1:
        raise NotApplicable("no warmup is declared (config warmup_steps)", "warmup_steps")
    if peak is None or peak <= 0:
        raise MissingSignal("lr_max", "a warmup is declared, but its peak (config lr_max) is not")
    rates = {name: path_of(run).along(points) for name, points in rates_by_group(run, limit).items()}
    # Param groups may have their own rates: the largest is compared with the declared peak.
    at_end = {name: _rate_at(points.steps, points.values, warmup, limit["near"]) for name, points in rates.items()}
    known = {name: rate for name, rate in at_end.items() if rate is not None}
    if not known:
        raise MissingSignal(
            "lr/*",
            f"no learning rate is recorded near step {warmup:g}, the end of the warmup",
            "let it run on",
        )
    rate = max(known.values())
    share = rate / peak
    measured = {"lr": rate, "share": share}
    facts = (
        f"The learning rate is {shown(rate)} at step {warmup:g}, the end of the warmup: {percent(share)} of lr_max "
        f"({shown(peak)})"
    )
    if abs(share - 1) <= limit["close"]:
        return Finding("pass", f"{facts}.", measured, int(warmup))
    done = steps_done(run, min(float(points.steps[0]) for points in rates.values()))
    if done >= warmup:
        raise NotApplicable(
            f"the warmup ended before the record begins: scheduler or optimizer had taken {counted(done, 'step')}"
        )
    if share < limit["half"] and not unknown_schedule(run.config):  # an unknown schedule may rise in another way
        return Finding("not-reached", f"{facts}; expected at least {limit['half']:.0%}.", measured, int(warmup))
    return Finding("off", f"{facts}; expected within {limit['close']:.0%}.", measured, int(warmup))


def _rate_at(steps: object, values: object, step: float, share: float) -> float | None:
    """The rate at a step, linearly interpolated; None if no rate is recorded near it."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    near = np.any((x >= step) & (x <= step + max(2.0, share * step)))
    return float(np.interp(step, x, y)) if x[0] <= step and near else None


QUESTION = Question(
    code="C2.2",
    name="end of warmup",
    asks="Is the learning rate at step warmup_steps within 5% of lr_max?",
    why="t / W and (t + 1) / W differ by one step, which matters if W is small. A warmup that counts in the wrong "
    "unit reaches its peak much later, or never.",
    needs=("lr/*", "warmup_steps", "lr_max"),
    panel=2,
    thresholds=(
        Threshold(
            name="close",
            value=0.05,
            unit="fraction of lr_max",
            meaning="difference from lr_max that passes",
            seed="5%",
            decision="the rule of thumb, unchanged",
            of="-share",
        ),
        Threshold(
            name="half",
            value=0.5,
            unit="fraction of lr_max",
            meaning="below this the warmup is wrong",
            seed="0.5 lr_max",
            decision="the rule of thumb, unchanged",
            of="-share",
        ),
        Threshold(
            name="near",
            value=0.1,
            unit="fraction of the warmup",
            meaning="how soon after the end of the warmup a rate must be recorded",
            seed="",
            decision="later rates do not show the end of the warmup",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the warmup ends at the peak"),
        Outcome(
            name="off",
            answer=NOTE,
            meaning="the learning rate is not at lr_max at the end of the warmup",
            fix=f"{_FORMULA} No action is needed if the difference is intended.",
        ),
        Outcome(
            name="not-reached",
            answer=FAULT,
            meaning="the learning rate is far below lr_max at the end of the warmup",
            fix=f"{_FORMULA} Count warmup_steps in optimizer steps, not in batches, micro-batches or epochs.",
        ),
    ),
    find=find,
)
