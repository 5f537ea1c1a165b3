"""C2.1, before training: does the scheduler count in the units in which it is stepped?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyrun.preflight.as_record import GivenRecord
from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.configuration.c2_1_schedule import QUESTION as RECORDED
from steadyrun.questions.form import FAULT, NOTE, Answer, Finding, Limits, Outcome, Threshold
from steadyrun.signals.declared_schedule import declared_plan
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.signals.curves import Floats

_POINTS = 2000  # of a curve that is held against the declared one
_FAULTS = ("horizon-too-short", "horizon-too-long", "stepped-too-often", "stepped-too-seldom", "no-warmup")


def find(bench: Bench, limit: Limits) -> Finding:
    total = bench.declared("total_steps")
    if bench.task.scheduler is None:
        raise NotApplicable("there is no scheduler")
    if total is None or total < limit["least"]:
        how = "declare config={'total_steps': …, 'schedule': …, 'lr_max': …}"
        raise MissingSignal("total_steps", "how many steps the run takes is not declared", how)
    warmup = bench.declared("warmup_steps") or 0
    if warmup >= total:
        message = f"warmup_steps {warmup:g} and total_steps {total:g} are declared: the warmup is longer than the run."
        return Finding("warmup-longer-than-run", message, {"warmup_steps": warmup, "total_steps": total})
    curves = _dry(bench, int(total))
    per_step = _per_step(bench)
    if per_step is not None and per_step > 0:
        return _held_against(bench, curves, per_step, int(total))
    either = _either(bench, curves, int(total))
    if per_step == 0 and either.outcome == "pass" and any(float(np.ptp(curve)) > 0 for curve in curves):
        message = f"train_step does not step the scheduler; {either.message}"
        return Finding("left-to-the-loop", message, either.measured)
    return either


def _dry(bench: Bench, total: int) -> list[Floats]:
    """The rates of each param group by scheduler steps; a curve that ends early stays where it is."""
    from steadyrun.probes.scheduler_dry_run import expected_rates

    task = bench.task
    owner = getattr(task.scheduler, "optimizer", None) or task.optimizers[0]
    expected = expected_rates(task.scheduler, owner, bench.model, total + 1)
    if not expected.groups:
        raise NotApplicable(expected.why or "the scheduler cannot be run dry")
    if expected.steps < min(total, 10):
        raise NotApplicable(f"the scheduler could be run for {expected.steps} steps only")
    curves: list[Floats] = []
    for knots in expected.groups:
        steps, rates = np.array(knots, float).T
        curves.append(np.interp(np.arange(expected.steps), steps, rates))
    return curves


def _per_step(bench: Bench) -> float | None:
    """How often the program's own step steps the scheduler; None where there is no such step, or no count."""
    from steadyrun.probes.scheduler_dry_run import steps_taken

    if bench.task.train_step is None:
        return None
    with bench.pristine():
        before = steps_taken(bench.task.scheduler)
        bench.own_step(bench.batch())
        after = steps_taken(bench.task.scheduler)
    return after - before if before is not None and after is not None else None


def _held_against(bench: Bench, curves: list[Floats], per_step: float, total: int) -> Finding:
    """The program steps the scheduler itself: the declared curve must come out, by the rules of C2.1."""
    answer = _asked(bench, curves, per_step, total)
    measured = {"scheduler_steps_per_step": per_step, "total_steps": float(total)}
    facts = f"train_step steps the scheduler {per_step:g} times"
    if answer.kind == FAULT:
        return Finding("not-as-declared", f"{facts}; over {total} steps {answer.message}", measured, fix=answer.fix)
    climbs = _climbs_again(bench, curves, per_step, total)
    if climbs:
        return Finding("counts-epochs", f"{facts}, and {climbs}", measured)
    return Finding("pass", f"{facts}; {answer.message}", measured)


def _either(bench: Bench, curves: list[Floats], total: int) -> Finding:
    """Nobody shows how often the scheduler is stepped: once per step or once per epoch, one of them should fit."""
    from steadyrun.preflight.loader_trials import length

    measured = {"total_steps": float(total)}
    once = _asked(bench, curves, 1.0, total)
    if once.kind != FAULT or once.outcome not in _FAULTS:
        return Finding("pass", f"stepped once per step: {once.message}", measured)
    batches = length(bench.task.loader)
    if batches is not None and 1 < batches < total:
        epochs = _asked(bench, curves, 1 / batches, total)
        if epochs.kind != FAULT or epochs.outcome not in _FAULTS:
            message = f"it fits only if it is stepped once per epoch of {batches} batches: {epochs.message}"
            return Finding("pass", message, measured | {"batches": float(batches)})
    message = f"stepped once per step, {once.message} Whether it is stepped in another rhythm is not seen."
    return Finding("fits-not", message, measured)


def _asked(bench: Bench, curves: list[Floats], per_step: float, total: int) -> Answer:
    """What C2.1 would say of a run with these rates, from where the scheduler stands now."""
    from steadyrun.probes.scheduler_dry_run import steps_taken

    begun = int((steps_taken(bench.task.scheduler) or 0) / per_step)
    if begun >= total - 1:
        raise NotApplicable(f"the scheduler has been stepped {begun} times, of {total} declared steps")
    steps = np.unique(np.linspace(begun, total - 1, min(total - begun, _POINTS)).astype(np.int64))
    counts = np.floor((steps - begun) * per_step + 1e-9).astype(int)
    rates = [curve[np.minimum(counts, len(curve) - 1)] for curve in curves]
    if declared_plan(bench.config, min(float(np.min(curve)) for curve in curves)) is None:
        return Answer(NOTE, "not-declared", _described(rates[0], steps))
    groups = {f"lr/{index}": (steps, rate) for index, rate in enumerate(rates)}
    answer = RECORDED.ask(GivenRecord(bench.config, groups).signals())
    return replace(answer, message=answer.message.replace("recorded ", ""))


def _described(rates: Floats, steps: Any) -> str:
    low, high = int(np.argmin(rates)), int(np.argmax(rates))
    return (
        f"the rate is {shown(rates[0])} at first, at most {shown(rates[high])} (step {steps[high]}), at least "
        f"{shown(rates[low])} (step {steps[low]}); what is meant is not declared."
    )


def _climbs_again(bench: Bench, curves: list[Floats], per_step: float, total: int) -> str:
    """A cosine without restarts whose length is the number of epochs: it swings once for every few batches."""
    from steadyrun.preflight.loader_trials import length

    horizon = getattr(bench.task.scheduler, "T_max", None)
    epochs = bench.declared("epochs") or bench.declared("num_epochs")
    batches = length(bench.task.loader)
    if epochs is None and batches:
        epochs = total / batches if total % batches == 0 else None
    if not isinstance(horizon, int | float) or horizon != epochs or horizon * 2 > total * per_step:
        return ""
    curve = max(curves, key=lambda candidate: float(np.max(candidate)))
    rises = float(np.max(curve[int(horizon) :]) - curve[min(int(horizon), len(curve) - 1)])
    return (
        f"its T_max is {horizon:g}, the number of epochs: the rate is at its minimum at step {horizon / per_step:g} of "
        f"{total} and climbs by {shown(rises)} again."
    )


QUESTION = probe_of(
    RECORDED,
    asks="Does the scheduler, stepped as the program steps it, give the declared curve over the declared steps?",
    needs=("scheduler", "total_steps", "schedule", "lr_max", "train_step"),
    thresholds=(
        Threshold(
            name="least",
            value=20,
            unit="steps",
            meaning="declared steps below which a curve is not held against anything",
            seed="",
            decision="fewer steps do not tell epochs from steps; the rules of C2.1 need a curve",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass", meaning="the curve is the declared one, as far as that is declared"),
        Outcome(
            name="fits-not",
            answer=NOTE,
            meaning="the curve is not the declared one if the scheduler is stepped once per step",
            fix="Give the task a train_step that steps the scheduler, so that preflight can see it.",
        ),
        Outcome(
            name="left-to-the-loop",
            answer=NOTE,
            meaning="train_step leaves the scheduler where it is: the loop must step it, which cannot be seen here",
            fix="Call scheduler.step() in the loop, after each train_step or once per epoch, as its length says.",
        ),
        Outcome(
            name="warmup-longer-than-run",
            answer=FAULT,
            meaning="the warmup would not be over when the run is",
            fix="Declare and use a shorter warmup, or a longer run.",
            explains=("C2", "S2"),
        ),
        Outcome(
            name="counts-epochs",
            answer=FAULT,
            meaning="the schedule counts epochs and is stepped per batch",
            fix="Give the scheduler the number of optimizer steps (T_max=total_steps), or step it once per epoch.",
            explains=("C2", "S2", "D4.2"),
        ),
        Outcome(
            name="not-as-declared",
            answer=FAULT,
            meaning="stepped as the program does it, the scheduler gives another curve than the declared one",
            fix="Give the scheduler the number of times that it is stepped in the whole run.",
            explains=("C2", "S2", "D4.2"),
        ),
    ),
    find=find,
)
