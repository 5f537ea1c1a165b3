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
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.declared_schedule import agreement, distance, unknown_schedule
from steadyrun.signals.learning_rates import ENOUGH, RecordedRates, look
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_HOW = 'declare config={"schedule": "cosine"} (or linear, constant), or give run.watch(…, scheduler=scheduler)'


def find(run: Signals, limit: Limits) -> Finding:
    recorded = look(run)
    if len(recorded.rates) < ENOUGH:
        raise MissingSignal("lr/*", f"only {len(recorded.rates)} learning rates are recorded yet", "let it run on")
    plan = recorded.plan
    if plan is None:
        return _against_scheduler(recorded, limit)
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
    if warmup >= ENOUGH and over and starts_at_peak(rates, warmup, recorded.run.declared("lr_max") or recorded.peak):
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
            "close",
            0.05,
            "share of the peak",
            "distance of a rate that still agrees",
            "5% of lr_max (2.2)",
            "covers t / W against (t + 1) / W and the other spellings of a cosine",
        ),
        Threshold(
            "share", 0.95, "share of steps", "agreeing steps needed to pass", "", "the rest may be a seam", "-agreeing"
        ),
        Threshold(
            "jump",
            0.2,
            "share of the peak",
            "change in one step that the declared curve does not make",
            "a discontinuous jump",
            "step decays halve or more; a cosine moves by less than 1% per step",
            "jump",
        ),
        Threshold(
            "horizon",
            0.2,
            "share",
            "by how much the horizon may be off",
            "",
            "a smaller difference is invisible in the curve",
            "-horizon",
        ),
        Threshold(
            "far",
            0.25,
            "share of the peak",
            "distance that nothing explains",
            "",
            "between this and 5% lies a note: other spellings of a schedule live there",
            "far",
        ),
    ),
    outcomes=(
        Outcome("pass", PASS, "the recorded curve is the intended one"),
        Outcome(
            "upside-down",
            FAULT,
            "the learning rate climbs where the declared schedule falls",
            "Turn the schedule around: 1 + cos, not 1 - cos.",
        ),
        Outcome(
            "never-stepped",
            FAULT,
            "the learning rate never changes although a schedule is declared",
            "Call scheduler.step() after every optimizer.step(), and build optimizer and scheduler once, "
            "outside the training loop.",
        ),
        Outcome(
            "zero",
            FAULT,
            "the learning rate is always 0",
            "Build the optimizer with lr=lr_max: the scheduler multiplies what it finds there.",
        ),
        Outcome(
            "no-warmup",
            FAULT,
            "the declared warmup does not happen",
            "Give the scheduler its warmup (for example LinearLR before the decay in a SequentialLR), or declare "
            "warmup_steps 0.",
        ),
        Outcome(
            "restarted",
            FAULT,
            "the schedule begins anew at a resume",
            "Save and load scheduler.state_dict() with the checkpoint.",
        ),
        Outcome(
            "stepped-too-often",
            FAULT,
            "the scheduler is stepped more than once per optimizer step",
            "Call scheduler.step() once per optimizer step: not per micro-batch, not per process.",
        ),
        Outcome(
            "stepped-too-seldom",
            FAULT,
            "the scheduler is stepped less than once per optimizer step",
            "Call scheduler.step() once per optimizer step: not once per epoch or per validation.",
        ),
        Outcome(
            "horizon-too-short",
            FAULT,
            "the decay is over long before the run",
            "Give the scheduler the number of optimizer steps of the whole run as its length.",
        ),
        Outcome(
            "horizon-too-long",
            FAULT,
            "the decay would end long after the run",
            "Give the scheduler the number of optimizer steps of the whole run as its length.",
        ),
        Outcome(
            "discontinuous",
            FAULT,
            "the learning rate jumps where the declared curve does not",
            "Use the declared schedule, or declare the one in use (a step decay, restarts).",
        ),
        Outcome(
            "other-curve",
            FAULT,
            "the recorded curve is not the declared one",
            "Compare the scheduler's formula and the optimizer's lr with the declared values.",
        ),
        Outcome(
            "late-warmup", NOTE, "the warmup takes longer than declared: C2.2 says how far it comes", edge=("C2.2",)
        ),
        Outcome("too-early", NOTE, "the rate has changed too few times to tell"),
        Outcome("begun-elsewhere", NOTE, "the record begins in the middle of the declared schedule"),
        Outcome("deviates", NOTE, "the recorded curve differs somewhat from the declared one"),
        Outcome("differs-from-scheduler", NOTE, "the learning rate is not only set by the watched scheduler"),
        Outcome("idle", NOTE, "the watched scheduler was never stepped; no schedule is declared"),
    ),
    find=find,
)
