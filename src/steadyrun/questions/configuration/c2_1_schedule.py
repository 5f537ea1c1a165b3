"""C2.1: is the learning rate that was used the one that was meant?"""

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
from steadyrun.text import shown

_HOW = 'declare config={"schedule": "cosine"} (or linear, constant), or give run.watch(…, scheduler=scheduler)'


def find(run: Signals, limit: Limits) -> Finding:
    recorded = known_rates(run, limit)
    if len(recorded.rates) < limit["rates"]:
        raise MissingSignal("lr/*", f"only {len(recorded.rates)} learning rates are recorded yet", "let it run on")
    plan = recorded.plan
    if plan is None:
        return _against_scheduler(recorded, limit)
    if plan.peak <= 0:
        raise NotApplicable(f"the declared peak of the learning rate is {shown(plan.peak)}: not a schedule")
    measured = {
        "distance": distance(recorded.rates.values, plan.rate(recorded.rates.steps), plan.peak),
        "peak": float(np.max(recorded.rates.values)),
    }
    finding = next(finding for diagnose in IN_ORDER if (finding := diagnose(recorded, plan, limit)) is not None)
    guessed = finding.outcome in FITTED and not own_curve(recorded, limit)
    return replace(finding, measured=measured | dict(finding.measured), may_pass=finding.may_pass or guessed)


def _against_scheduler(recorded: RecordedRates, limit: Limits) -> Finding:
    """Nothing is declared in full: the scheduler's own dry run is all there is to compare with."""
    rates = recorded.rates
    warmup = recorded.run.declared("warmup_steps") or 0
    over = rates.steps[-1] > warmup
    peak = recorded.run.declared("lr_max") or recorded.peak
    if warmup >= limit["rates"] and over and starts_at_peak(rates, warmup, peak, limit):
        return warmup_missing(recorded, warmup)
    unknown = unknown_schedule(recorded.run.config)
    if recorded.dry is None and unknown:
        raise MissingSignal("schedule", f"{unknown}: nothing can be compared with it", _HOW)
    if recorded.dry is None:
        raise NotApplicable(
            "no schedule is declared (config schedule, lr_max, total_steps) and none could be run dry", "schedule"
        )
    counts = recorded.counts
    if counts is None:
        counts = rates.steps - rates.steps[0]
    share = agreement(counts - counts[0], rates.values, recorded.dry, recorded.peak, limit["close"])
    measured = {"agreeing": share, "peak": float(np.max(rates.values))}
    if recorded.constant and float(np.ptp(counts)) == 0 and not recorded.run.running:
        return Finding(
            "idle",
            f"the scheduler was not stepped in {len(rates)} steps; the rate stayed at {shown(recorded.peak)}.",
            measured,
        )
    if share >= limit["share"]:
        return Finding(
            "pass",
            f"the recorded rates are those of the scheduler's dry run (peak {shown(recorded.peak)})"
            f"{f'; {unknown}, so it was not compared' if unknown else ''}.",
            measured,
        )
    return Finding(
        "differs-from-scheduler",
        f"only {share:.0%} of the recorded rates are those of the scheduler's dry run (limit {limit['share']:.0%}): "
        "something else sets the learning rate, too.",
        measured,
    )


QUESTION = Question(
    code="C2.1",
    name="learning-rate schedule",
    asks="Does the learning rate over the steps match the configured warmup and decay?",
    why="A scheduler that is never stepped, stepped too often, built for another number of steps or lost in a "
    "rebuilt optimizer leaves no error behind: only the curve shows it.",
    needs=("lr/*", "schedule", "lr_max", "lr_min", "warmup_steps", "total_steps"),
    panel=2,
    thresholds=(
        Threshold(
            name="close",
            value=0.05,
            unit="share of the peak",
            meaning="distance of a rate that still agrees",
            seed="5% of lr_max (2.2)",
            decision="covers t / W against (t + 1) / W and the other spellings of a cosine",
        ),
        Threshold(
            name="share",
            value=0.95,
            unit="share of steps",
            meaning="agreeing steps needed to pass",
            seed="",
            decision="the rest may be the steps around a resume",
            of="-agreeing",
        ),
        Threshold(
            name="jump",
            value=0.2,
            unit="share of the peak",
            meaning="change in one step that the declared curve does not make",
            seed="a discontinuous jump",
            decision="step decays halve or more; a cosine moves by less than 1% per step",
            of="jump",
        ),
        Threshold(
            name="horizon",
            value=0.2,
            unit="share",
            meaning="by how much the horizon may be off",
            seed="",
            decision="a smaller difference is invisible in the curve",
            of="-horizon",
        ),
        Threshold(
            name="far",
            value=0.25,
            unit="share of the peak",
            meaning="distance that nothing explains",
            seed="",
            decision="implementations of the same schedule differ by less; from 5% on it is a note",
            of="far",
        ),
        Threshold(
            name="rates",
            value=5,
            unit="learning rates",
            meaning="fewer show no curve",
            seed="",
            decision="two or three points fit any curve",
        ),
        Threshold(
            name="fits",
            value=0.01,
            unit="of the peak",
            meaning="a changed plan this close to the record explains it",
            seed="",
            decision="a plan that was changed to fit must fit better than the 5% within which rates agree",
        ),
        Threshold(
            name="fits_roughly",
            value=0.05,
            unit="of the peak",
            meaning="the same if a count of steps supports the plan",
            seed="",
            decision="as for a rate that agrees",
        ),
        Threshold(
            name="first_epoch",
            value=1.1,
            unit="times the first epoch",
            meaning="before this a scheduler that is stepped once per epoch may not have been stepped",
            seed="",
            decision="a warmup takes an epoch at least, and of two epochs one is over at half time",
        ),
        Threshold(
            name="at_peak",
            value=0.9,
            unit="of the peak",
            meaning="a rate this high in the first half of the warmup shows that there is none",
            seed="",
            decision="a warmup is at half of its peak by then",
        ),
        Threshold(
            name="late",
            value=0.9,
            unit="of the declared rate",
            meaning="a rate below this is behind its warmup",
            seed="",
            decision="formulas of a warmup differ by less",
        ),
        Threshold(
            name="over",
            value=1.05,
            unit="times the peak",
            meaning="a rate above this is not the declared one",
            seed="",
            decision="as for a rate that agrees",
        ),
        Threshold(
            name="few_changes",
            value=4,
            unit="changes",
            meaning="at most this many are too few to compare",
            seed="",
            decision="a rate that changes once per epoch has changed a few times in its first epochs",
        ),
        Threshold(
            name="stair",
            value=10,
            unit="learning rates",
            meaning="how many there must be for each change",
            seed="",
            decision="a rate that changes more often is not set once per epoch",
        ),
        Threshold(
            name="per_epoch",
            value=0.5,
            unit="scheduler steps per step",
            meaning="fewer are steps of epochs",
            seed="",
            decision="an epoch has at least two batches",
        ),
        Threshold(
            name="slow",
            value=0.9,
            unit="scheduler steps per step",
            meaning="from here on it is stepped once per step",
            seed="",
            decision="skipped steps and a late start give a little less than 1",
        ),
        Threshold(
            name="fast",
            value=1.1,
            unit="scheduler steps per step",
            meaning="up to here it is stepped once per step",
            seed="",
            decision="as above",
        ),
        Threshold(
            name="floor",
            value=0.02,
            unit="of the way from the floor to the peak",
            meaning="a rate below this is at its minimum",
            seed="",
            decision="a cosine comes this close shortly before its end",
        ),
        Threshold(
            name="slack",
            value=3,
            unit="learning rates",
            meaning="how much earlier or later than declared the curve may jump",
            seed="",
            decision="schedulers are stepped before or after the rate is recorded",
        ),
        Threshold(
            name="wide",
            value=3,
            unit="learning rates",
            meaning="how many the stairs of a curve have at least, on average",
            seed="",
            decision="a rate that changes more often is a curve of its own",
        ),
        Threshold(
            name="aside",
            value=0.25,
            unit="of a stair",
            meaning="how far beside the declared curve a stair may begin",
            seed="",
            decision="epochs are not all of one length",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the recorded curve is the intended one"),
        Outcome(
            name="upside-down",
            answer=FAULT,
            meaning="the learning rate climbs where the declared schedule falls",
            fix="Turn the schedule around: 1 + cos, not 1 - cos.",
        ),
        Outcome(
            name="never-stepped",
            answer=FAULT,
            meaning="the learning rate never changes although a schedule is declared",
            fix="Call scheduler.step() after every optimizer.step(), and build optimizer and scheduler once, "
            "outside the training loop.",
        ),
        Outcome(
            name="zero",
            answer=FAULT,
            meaning="the learning rate is always 0",
            fix="Build the optimizer with lr=lr_max: the scheduler multiplies what it finds there.",
        ),
        Outcome(
            name="no-warmup",
            answer=FAULT,
            meaning="the declared warmup does not happen",
            fix="Give the scheduler its warmup (for example LinearLR before the decay in a SequentialLR), or declare "
            "warmup_steps 0.",
        ),
        Outcome(
            name="restarted",
            answer=FAULT,
            meaning="the schedule begins anew at a resume",
            fix="Save and load scheduler.state_dict() with the checkpoint.",
        ),
        Outcome(
            name="stepped-too-often",
            answer=FAULT,
            meaning="the scheduler is stepped more than once per optimizer step",
            fix="Call scheduler.step() once per optimizer step: not per micro-batch, not per process.",
        ),
        Outcome(
            name="stepped-too-seldom",
            answer=FAULT,
            meaning="the scheduler is stepped less than once per optimizer step",
            fix="Call scheduler.step() once per optimizer step: not once per epoch or per validation.",
        ),
        Outcome(
            name="horizon-too-short",
            answer=FAULT,
            meaning="the decay is over long before the run",
            fix="Give the scheduler the number of optimizer steps of the whole run as its length.",
        ),
        Outcome(
            name="horizon-too-long",
            answer=FAULT,
            meaning="the decay would end long after the run",
            fix="Give the scheduler the number of optimizer steps of the whole run as its length.",
        ),
        Outcome(
            name="discontinuous",
            answer=FAULT,
            meaning="the learning rate jumps where the declared curve does not",
            fix="Use the declared schedule, or declare the one in use (a step decay, restarts).",
        ),
        Outcome(
            name="other-curve",
            answer=FAULT,
            meaning="the recorded curve is not the declared one",
            fix="Compare the scheduler's formula and the optimizer's lr with the declared values.",
        ),
        Outcome(
            name="late-warmup", answer=NOTE, meaning="the warmup takes longer than declared: C2.2 says how far it comes"
        ),
        Outcome(name="too-early", answer=NOTE, meaning="the rate has changed too few times to tell"),
        Outcome(
            name="begun-elsewhere", answer=NOTE, meaning="the record begins in the middle of the declared schedule"
        ),
        Outcome(name="deviates", answer=NOTE, meaning="the recorded curve differs somewhat from the declared one"),
        Outcome(
            name="differs-from-scheduler",
            answer=NOTE,
            meaning="the learning rate is not only set by the watched scheduler",
        ),
        Outcome(name="idle", answer=NOTE, meaning="the watched scheduler was never stepped; no schedule is declared"),
    ),
    find=find,
)
