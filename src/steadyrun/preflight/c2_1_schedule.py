"""C2.1, before training: does the scheduler give the declared curve as the program steps it?"""

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
from steadyrun.text import counted, shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.signals.curves import Floats

_POINTS = 2000  # of a curve that is compared with the declared one
_FAULTS = ("horizon-too-short", "horizon-too-long", "stepped-too-often", "stepped-too-seldom", "no-warmup")


def find(bench: Bench, limit: Limits) -> Finding:
    total = bench.declared("total_steps")
    if bench.task.scheduler is None:
        raise NotApplicable("the task has no scheduler")
    if total is None or total < limit["least"]:
        how = "declare config={'total_steps': …, 'schedule': …, 'lr_max': …}"
        raise MissingSignal("total_steps", "the config does not declare the number of steps", how)
    warmup = bench.declared("warmup_steps") or 0
    if warmup >= total:
        message = f"The config declares warmup_steps {warmup:g} and total_steps {total:g}: the warmup outlasts the run."
        return Finding("warmup-longer-than-run", message, {"warmup_steps": warmup, "total_steps": total})
    curves = _dry(bench, int(total))
    per_step = _per_step(bench)
    if per_step is not None and per_step > 0:
        return _held_against(bench, curves, per_step, int(total))
    either = _either(bench, curves, int(total))
    if per_step == 0 and either.outcome == "pass" and any(float(np.ptp(curve)) > 0 for curve in curves):
        message = f"train_step does not call scheduler.step(). {either.message}"
        return Finding("left-to-the-loop", message, either.measured)
    return either


def _dry(bench: Bench, total: int) -> list[Floats]:
    """The learning rates of each param group by scheduler step; a curve that ends early keeps its last rate."""
    from steadyrun.probes.scheduler_dry_run import expected_rates

    task = bench.task
    owner = getattr(task.scheduler, "optimizer", None) or task.optimizers[0]
    expected = expected_rates(task.scheduler, owner, bench.model, total + 1)
    if not expected.groups:
        raise NotApplicable(expected.why or "the scheduler cannot run without training")
    if expected.steps < min(total, 10):
        raise NotApplicable(f"the scheduler runs for only {counted(expected.steps, 'step')} without training")
    curves: list[Floats] = []
    for knots in expected.groups:
        steps, rates = np.array(knots, float).T
        curves.append(np.interp(np.arange(expected.steps), steps, rates))
    return curves


def _per_step(bench: Bench) -> float | None:
    """How often train_step steps the scheduler; None without a train_step or a step count."""
    from steadyrun.probes.scheduler_dry_run import steps_taken

    if bench.task.train_step is None:
        return None
    with bench.pristine():
        before = steps_taken(bench.task.scheduler)
        bench.own_step(bench.batch())
        after = steps_taken(bench.task.scheduler)
    return after - before if before is not None and after is not None else None


def _held_against(bench: Bench, curves: list[Floats], per_step: float, total: int) -> Finding:
    """The finding if train_step steps the scheduler: the curve must match the declared one by the rules of C2.1."""
    answer = _asked(bench, curves, per_step, total)
    measured = {"scheduler_steps_per_step": per_step, "total_steps": float(total)}
    facts = f"train_step calls scheduler.step() {'once' if per_step == 1 else f'{per_step:g} times'}"
    if answer.kind == FAULT:
        return Finding("not-as-declared", f"{facts}. {answer.message}", measured, fix=answer.fix)
    climbs = _climbs_again(bench, curves, per_step, total)
    if climbs:
        return Finding("counts-epochs", f"{facts}, and {climbs}", measured)
    return Finding("pass", f"{facts}. {answer.message}", measured)


def _either(bench: Bench, curves: list[Floats], total: int) -> Finding:
    """The finding without a train_step: the curve should fit once per step or once per epoch."""
    from steadyrun.preflight.loader_trials import length

    measured = {"total_steps": float(total)}
    once = _asked(bench, curves, 1.0, total)
    if once.kind != FAULT or once.outcome not in _FAULTS:
        return Finding("pass", f"If the loop steps the scheduler once per step: {once.message}", measured)
    batches = length(bench.task.loader)
    if batches is not None and 1 < batches < total:
        epochs = _asked(bench, curves, 1 / batches, total)
        if epochs.kind != FAULT or epochs.outcome not in _FAULTS:
            message = f"The curve fits only if stepped once per epoch of {batches} batches: {epochs.message}"
            return Finding("pass", message, measured | {"batches": float(batches)})
    message = f"If the loop steps the scheduler once per step: {once.message} How often it does is unknown."
    return Finding("fits-not", message, measured)


def _asked(bench: Bench, curves: list[Floats], per_step: float, total: int) -> Answer:
    """C2.1's answer for a run with these rates, from the scheduler's current step on."""
    from steadyrun.probes.scheduler_dry_run import steps_taken

    begun = int((steps_taken(bench.task.scheduler) or 0) / per_step)
    if begun >= total - 1:
        raise NotApplicable(f"the scheduler is at step {begun} of {total} declared steps")
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
        f"The learning rate starts at {shown(rates[0])}, peaks at {shown(rates[high])} (step {steps[high]}) and is "
        f"lowest at {shown(rates[low])} (step {steps[low]}). The config declares no schedule."
    )


def _climbs_again(bench: Bench, curves: list[Floats], per_step: float, total: int) -> str:
    """Whether T_max of a cosine is the number of epochs, so that the rate oscillates over a few batches."""
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
        f"its T_max is {horizon:g}, the number of epochs. The learning rate reaches its minimum at step "
        f"{horizon / per_step:g} of {total} and then rises by {shown(rises)}."
    )


QUESTION = probe_of(
    RECORDED,
    asks="Does the scheduler, as the program steps it, give the declared curve?",
    needs=("scheduler", "total_steps", "schedule", "lr_max", "train_step"),
    thresholds=(
        Threshold(
            name="least",
            value=20,
            unit="steps",
            meaning="declared steps needed to compare two curves",
            seed="",
            decision="fewer steps do not distinguish epochs from steps",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass", meaning="the learning rate follows the declared schedule, if one is declared"),
        Outcome(
            name="fits-not",
            answer=NOTE,
            meaning="stepped once per step, the schedule differs from the declared one",
            fix="Give the task a train_step that calls scheduler.step(), so that preflight can check it.",
        ),
        Outcome(
            name="left-to-the-loop",
            answer=NOTE,
            meaning="train_step does not step the scheduler; the loop must",
            fix="Call scheduler.step() in the loop: after each train_step or once per epoch, as its length requires.",
        ),
        Outcome(
            name="warmup-longer-than-run",
            answer=FAULT,
            meaning="the warmup is longer than the run",
            fix="Lower warmup_steps or raise total_steps.",
            explains=("C2", "S2"),
        ),
        Outcome(
            name="counts-epochs",
            answer=FAULT,
            meaning="the schedule counts epochs but is stepped per batch",
            fix="Give the scheduler the number of optimizer steps (T_max=total_steps), or step it once per epoch.",
            explains=("C2", "S2", "D4.2"),
        ),
        Outcome(
            name="not-as-declared",
            answer=FAULT,
            meaning="the schedule differs from the declared one",
            fix="Set the scheduler's length to the number of scheduler.step() calls in the whole run.",
            explains=("C2", "S2", "D4.2"),
        ),
    ),
    find=find,
)
