"""C2.1: the learning rate follows the declared schedule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadyrun.questions.configuration.schedule_faults import (
    FITTED,
    IN_ORDER,
    own_curve,
    starts_at_peak,
    warmup_missing,
)
from steadyrun.questions.facts import known_rates
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.declared_schedule import agreement, distance, unknown_schedule
from steadyrun.signals.learning_rates import RecordedRates
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, percent, shown

_HOW = 'declare config={"schedule": "cosine"} (or linear, constant), or call run.watch(…, scheduler=scheduler)'


def find(run: Signals, limit: Limits) -> Finding:
    recorded = known_rates(run, limit)
    if len(recorded.rates) < limit["rates"]:
        counted_rates = counted(len(recorded.rates), "learning rate")
        raise MissingSignal("lr/*", f"the record has only {counted_rates} so far", "let it run on")
    plan = recorded.plan
    if plan is None:
        return _against_scheduler(recorded, limit)
    if plan.peak <= 0:
        raise NotApplicable(f"the declared peak of the learning rate is {shown(plan.peak)}, which is not a schedule")
    measured = {
        "distance": distance(recorded.rates.values, plan.rate(recorded.rates.steps), plan.peak),
        "peak": float(np.max(recorded.rates.values)),
    }
    finding = next(finding for diagnose in IN_ORDER if (finding := diagnose(recorded, plan, limit)) is not None)
    guessed = finding.outcome in FITTED and not own_curve(recorded, limit)
    return replace(finding, measured=measured | dict(finding.measured), may_pass=finding.may_pass or guessed)


def _against_scheduler(recorded: RecordedRates, limit: Limits) -> Finding:
    """Compare with a dry run of the scheduler, since no complete schedule is declared."""
    rates = recorded.rates
    warmup = recorded.run.declared("warmup_steps") or 0
    over = rates.steps[-1] > warmup
    peak = recorded.run.declared("lr_max") or recorded.peak
    if warmup >= limit["rates"] and over and starts_at_peak(rates, warmup, peak, limit):
        return warmup_missing(recorded, warmup)
    unknown = unknown_schedule(recorded.run.config)
    if recorded.dry is None and unknown:
        raise MissingSignal("schedule", f"{unknown}, so the recorded rates cannot be compared with it", _HOW)
    if recorded.dry is None:
        raise NotApplicable(
            "no schedule is declared (config schedule, lr_max, total_steps) or known from a watched scheduler",
            "schedule",
        )
    counts = recorded.counts
    if counts is None:
        counts = rates.steps - rates.steps[0]
    share = agreement(counts - counts[0], rates.values, recorded.dry, recorded.peak, limit["close"])
    measured = {"agreeing": share, "peak": float(np.max(rates.values))}
    if recorded.constant and float(np.ptp(counts)) == 0 and not recorded.run.running:
        return Finding(
            "idle",
            f"The scheduler was never stepped in {counted(len(rates), 'step')}; the learning rate stayed at "
            f"{shown(recorded.peak)}.",
            measured,
        )
    if share >= limit["share"]:
        return Finding(
            "pass",
            f"The recorded rates match a dry run of the scheduler (peak {shown(recorded.peak)})"
            f"{f'; {unknown}, so it was not compared' if unknown else ''}.",
            measured,
        )
    return Finding(
        "differs-from-scheduler",
        f"Only {percent(share)} of the recorded rates match a dry run of the scheduler (expected at "
        f"least {limit['share']:.0%}): other code also sets the learning rate.",
        measured,
    )


QUESTION = Question(
    code="C2.1",
    name="learning-rate schedule",
    asks="Does the learning rate follow the declared warmup and decay?",
    why="A scheduler that is never stepped, stepped too often, built for another number of steps or lost with a "
    "rebuilt optimizer raises no error: only the curve shows it.",
    needs=("lr/*", "schedule", "lr_max", "lr_min", "warmup_steps", "total_steps"),
    panel=2,
    thresholds=(
        Threshold(
            name="close",
            value=0.05,
            unit="fraction of the peak",
            meaning="difference from the declared rate that still agrees",
            seed="5% of lr_max",
            decision="covers t / W against (t + 1) / W and the variants of a cosine",
        ),
        Threshold(
            name="share",
            value=0.95,
            unit="fraction of steps",
            meaning="how many steps must agree",
            seed="",
            decision="the rest may be the steps around a resume",
            of="-agreeing",
        ),
        Threshold(
            name="jump",
            value=0.2,
            unit="fraction of the peak",
            meaning="change in one step that the declared curve does not make",
            seed="a discontinuous jump",
            decision="step decays halve or more; a cosine moves by less than 1% per step",
            of="jump",
        ),
        Threshold(
            name="horizon",
            value=0.2,
            unit="fraction of the declared length",
            meaning="how far the length of the decay may be off",
            seed="",
            decision="the curve does not show a smaller difference",
            of="-horizon",
        ),
        Threshold(
            name="far",
            value=0.25,
            unit="fraction of the peak",
            meaning="a difference this large does not come from another implementation",
            seed="",
            decision="implementations of the same schedule differ by less; from 5% on it is a note",
            of="far",
        ),
        Threshold(
            name="rates",
            value=5,
            unit="learning rates",
            meaning="fewer do not show a curve",
            seed="",
            decision="two or three points fit any curve",
        ),
        Threshold(
            name="fits",
            value=0.01,
            unit="of the peak",
            meaning="a changed schedule this close to the recorded rates explains them",
            seed="",
            decision="a schedule that was fitted must be closer than the 5% within which rates agree",
        ),
        Threshold(
            name="fits_roughly",
            value=0.05,
            unit="of the peak",
            meaning="the same, if the number of scheduler steps supports that schedule",
            seed="",
            decision="the same as for an agreeing rate",
        ),
        Threshold(
            name="first_epoch",
            value=1.1,
            unit="times the first epoch",
            meaning="until then, a scheduler that is stepped once per epoch may not have been stepped",
            seed="",
            decision="a warmup takes at least an epoch, and the first of two epochs ends at half of the run",
        ),
        Threshold(
            name="at_peak",
            value=0.9,
            unit="of the peak",
            meaning="a rate this high in the first half of the warmup shows that there is no warmup",
            seed="",
            decision="a warmup has reached half of the peak by then",
        ),
        Threshold(
            name="late",
            value=0.9,
            unit="of the declared rate",
            meaning="a lower rate is behind the declared warmup",
            seed="",
            decision="warmup formulas differ by less",
        ),
        Threshold(
            name="over",
            value=1.05,
            unit="times the peak",
            meaning="a higher rate is not the declared rate",
            seed="",
            decision="the same as for an agreeing rate",
        ),
        Threshold(
            name="few_changes",
            value=4,
            unit="changes",
            meaning="up to this many changes are too few to compare",
            seed="",
            decision="a rate that changes once per epoch changes a few times in the first epochs",
        ),
        Threshold(
            name="stair",
            value=10,
            unit="learning rates per change",
            meaning="with fewer, the rate is not set once per epoch",
            seed="",
            decision="a rate set once per epoch stays constant for many steps",
        ),
        Threshold(
            name="per_epoch",
            value=0.5,
            unit="scheduler steps per step",
            meaning="below this the scheduler is stepped once per epoch",
            seed="",
            decision="an epoch has at least two batches",
        ),
        Threshold(
            name="slow",
            value=0.9,
            unit="scheduler steps per step",
            meaning="from here on the scheduler counts as stepped once per step",
            seed="",
            decision="skipped steps and a late start give a little less than 1",
        ),
        Threshold(
            name="fast",
            value=1.1,
            unit="scheduler steps per step",
            meaning="up to here the scheduler counts as stepped once per step",
            seed="",
            decision="the same on the other side",
        ),
        Threshold(
            name="floor",
            value=0.02,
            unit="of the distance from minimum to peak",
            meaning="a rate this close to the minimum has reached it",
            seed="",
            decision="a cosine comes this close shortly before its end",
        ),
        Threshold(
            name="slack",
            value=3,
            unit="learning rates",
            meaning="how much earlier or later than declared the rate may jump",
            seed="",
            decision="a scheduler may be stepped before or after the rate is recorded",
        ),
        Threshold(
            name="wide",
            value=3,
            unit="learning rates",
            meaning="average length of a step of the curve if the rate is set once per epoch",
            seed="",
            decision="a rate that changes more often follows another curve",
        ),
        Threshold(
            name="aside",
            value=0.25,
            unit="of the length of a step of the curve",
            meaning="how far from the declared curve such a step may begin",
            seed="",
            decision="epochs differ in length",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the learning rate follows the declared schedule"),
        Outcome(
            name="upside-down",
            answer=FAULT,
            meaning="the learning rate rises although the declared schedule decays",
            fix="Reverse the schedule: use 1 + cos, not 1 - cos.",
        ),
        Outcome(
            name="never-stepped",
            answer=FAULT,
            meaning="the learning rate never changes although a schedule is declared",
            fix="Call scheduler.step() after every optimizer.step(). Build optimizer and scheduler once, outside the "
            "training loop.",
        ),
        Outcome(
            name="zero",
            answer=FAULT,
            meaning="the learning rate is always 0",
            fix="Build the optimizer with lr=lr_max: the scheduler multiplies that value.",
        ),
        Outcome(
            name="no-warmup",
            answer=FAULT,
            meaning="the declared warmup does not happen",
            fix="Give the scheduler a warmup (such as LinearLR before the decay in a SequentialLR), or declare "
            "warmup_steps=0.",
        ),
        Outcome(
            name="restarted",
            answer=FAULT,
            meaning="the schedule starts again at a resume",
            fix="Save scheduler.state_dict() in the checkpoint and load it at the resume.",
        ),
        Outcome(
            name="stepped-too-often",
            answer=FAULT,
            meaning="the scheduler is stepped more than once per optimizer step",
            fix="Call scheduler.step() once per optimizer step, not once per micro-batch or process.",
        ),
        Outcome(
            name="stepped-too-seldom",
            answer=FAULT,
            meaning="the scheduler is stepped less than once per optimizer step",
            fix="Call scheduler.step() once per optimizer step, not once per epoch or validation.",
        ),
        Outcome(
            name="horizon-too-short",
            answer=FAULT,
            meaning="the learning rate decays long before the run ends",
            fix="Build the scheduler with the number of optimizer steps of the whole run.",
        ),
        Outcome(
            name="horizon-too-long",
            answer=FAULT,
            meaning="the learning-rate decay is much longer than the run",
            fix="Build the scheduler with the number of optimizer steps of the whole run.",
        ),
        Outcome(
            name="discontinuous",
            answer=FAULT,
            meaning="the learning rate jumps although the declared schedule does not",
            fix="Use the declared schedule, or declare the schedule in use (a step decay, restarts).",
        ),
        Outcome(
            name="other-curve",
            answer=FAULT,
            meaning="the learning rate does not follow the declared schedule",
            fix="Compare the scheduler's formula and the optimizer's lr with the declared schedule and lr_max.",
        ),
        Outcome(
            name="late-warmup",
            answer=NOTE,
            meaning="the warmup takes longer than declared",
            fix="Count the warmup in optimizer steps, or correct the declared warmup_steps.",
        ),
        Outcome(
            name="too-early",
            answer=NOTE,
            meaning="the learning rate has changed too few times to judge",
            fix="Train on and check again.",
        ),
        Outcome(
            name="begun-elsewhere",
            answer=NOTE,
            meaning="the record starts partway through the declared schedule",
            fix="No action is needed if this run continues an earlier one.",
        ),
        Outcome(
            name="deviates",
            answer=NOTE,
            meaning="the learning rate differs somewhat from the declared schedule",
            fix="Compare the scheduler with the declared schedule at that step. No action is needed while the loss "
            "falls.",
        ),
        Outcome(
            name="differs-from-scheduler",
            answer=NOTE,
            meaning="the scheduler alone does not set the learning rate",
            fix="Find what else sets lr in the param groups. No action is needed if it is intended.",
        ),
        Outcome(
            name="idle",
            answer=NOTE,
            meaning="the scheduler is never stepped, and no schedule is declared",
            fix="Call scheduler.step() after every optimizer.step(), or remove the scheduler.",
        ),
    ),
    find=find,
)
