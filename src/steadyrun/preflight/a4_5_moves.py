"""A4.5, before training: does one step move every parameter?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a4_5_stalled import QUESTION as RECORDED
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import counted, listed, percent, shown

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench
    from steadyrun.preflight.rehearsal import Rehearsal
    from steadyrun.preflight.step_trace import StepTrace


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.rehearsal import rehearsal

    made = rehearsal(bench)
    trace = made.first
    names = {id(parameter): name for name, parameter in bench.parameters.items()}
    due = [key for key in names if key in trace.gradients and key in trace.after and _has_number(trace, key)]
    if not trace.stepped and not any(bool(trace.change(key).ne(0).any()) for key in trace.after):
        return _nothing(bench, made)
    if empty := _empty_steps(bench, made):
        message = f"an optimizer steps, and none of its {counted(empty, 'trainable tensor')} ever gets a gradient."
        return Finding("empty-step", message, {"empty": float(empty)})
    if not due:
        raise NotApplicable("no optimized parameter of the model had a gradient when its optimizer stepped")
    if all(trace.rates[key] == 0 for key in due):
        return _rate_zero(bench, made)
    due = [key for key in due if trace.rates[key] != 0]
    still = [key for key in due if not bool(trace.change(key).ne(0).any())]
    stalled = _stalled_share(trace, due)
    ratios = {key: _ratio(trace, key) for key in due}
    known = [ratio for key, ratio in ratios.items() if ratio is not None and key not in still]
    measured = {"still": float(len(still)), "moved": float(len(due) - len(still)), "stalled": stalled}
    measured |= {"largest": max(known, default=float("nan")), "smallest": min(known, default=float("nan"))}
    if stalled > limit["stalled"] and (share := _stalled_at_peak(bench, due)) > limit["stalled"]:
        return Finding(
            "rounded-away",
            f"{percent(share)} of the numbers in fp16 or bf16 parameters do not move in a step, though they have a "
            f"gradient (limit {percent(limit['stalled'])}): the update is below the spacing of the format.",
            measured | {"stalled": share},
        )
    if lost := [key for key in still if not _too_small(trace, key)]:
        message = (
            f"{counted(len(lost), 'parameter')} with a gradient and a learning rate above 0 not moved by a step: "
            f"{listed([names[key] for key in lost])}."
        )
        return Finding("still", message, measured)
    far = [key for key in due if (ratio := ratios[key]) is not None and ratio > limit["far"]]
    facts = (
        f"one step moves {counted(len(due) - len(still), 'parameter')}, matrices by {shown(measured['smallest'])} to "
        f"{shown(measured['largest'])} of their size"
    )
    if far:
        return Finding(
            "far", f"{facts}; {listed([names[key] for key in far])} by more than {limit['far']:g}.", measured
        )
    if any(_small_format(trace.before[key]) for key in still):
        unmoved = listed([names[key] for key in still])
        return Finding(
            "below-spacing", f"{facts}; the updates of {unmoved} are below the spacing of their numbers.", measured
        )
    return Finding("pass", f"{facts}.", measured)


def _nothing(bench: Bench, made: Rehearsal) -> Finding:
    """The first step changed nothing: a warmup from 0, a scaler that skips, an accumulation, or no step at all."""
    from steadyrun.preflight.step_trace import UNSCALE, rate_of

    rates = [rate_of(group) for optimizer in bench.task.optimizers for group in optimizer.param_groups]
    if rates and not any(rates):
        return _rate_zero(bench, made)
    skipped = any(event.kind == UNSCALE for event in [*made.first.events, *made.second.events])
    if skipped or bench.task.scaler is not None or bench.accumulation > 1:
        raise NotApplicable("the first step was skipped by the loss scaler, or only accumulates gradients")
    second = made.second
    if made.accumulates or second.stepped or any(bool(second.change(key).ne(0).any()) for key in second.after):
        raise NotApplicable("the program does not step on every call")
    return Finding("no-step", "two whole steps of the program changed no parameter, and no optimizer stepped.")


def _rate_zero(bench: Bench, made: Rehearsal) -> Finding:
    """A warmup may begin at 0; where nothing schedules the rate, it stays there."""
    rises = any(rate > 0 for rate in made.second.rates.values())
    if rises or bench.task.scheduler is not None or bench.declared("warmup_steps") or bench.task.train_step is None:
        return Finding("rate-zero", "every learning rate is 0 in the first step, as when a warmup begins at 0.")
    return Finding("rate-stays-zero", "every learning rate is 0 in the first two steps, and no scheduler is known.")


def _empty_steps(bench: Bench, made: Rehearsal) -> int:
    """How many trainable tensors an optimizer holds that steps twice without any gradient; 0 where there is none."""
    from steadyrun.preflight.step_trace import STEP

    traces = [made.first, made.second]
    with_gradient = {key for trace in traces for key in [*trace.gradients, *trace.arrived]}
    if bench.task.train_step is None or any(trace.closure for trace in traces):
        return 0
    optimized = {id(tensor): tensor for tensor in bench.optimized}
    for event in made.first.events:
        learning = [key for key in event.members if key in optimized and optimized[key].requires_grad]
        if event.kind == STEP and learning and learning[0] in made.second.stepped and not with_gradient & event.members:
            return len(learning)
    return 0


def _has_number(trace: StepTrace, key: int) -> bool:
    from steadyrun.preflight.step_trace import any_number

    return any_number(trace.gradients[key])


def _ratio(trace: StepTrace, key: int) -> float | None:
    """The move against the size of a matrix; None for what may well begin at zero."""
    before = trace.before[key]
    size = float(before.abs().float().norm())
    return float(trace.change(key).norm()) / size if before.dim() >= 2 and size > 0 else None


def _small_format(tensor: Tensor) -> bool:
    import torch

    return tensor.dtype in (torch.float16, torch.bfloat16)


def _stalled(before: Tensor, change: Tensor, gradient: Tensor) -> tuple[int, int]:
    if not _small_format(before) or gradient.is_sparse:
        return 0, 0
    due = gradient.ne(0)
    return int((due & change.eq(0)).sum()), int(due.sum())


def _stalled_share(trace: StepTrace, due: list[int]) -> float:
    """Of the numbers in small formats that have a gradient, the share that did not move."""
    counts = [_stalled(trace.before[key], trace.change(key), trace.gradients[key]) for key in due]
    total = sum(count for _, count in counts)
    return sum(count for count, _ in counts) / total if total else 0.0


def _stalled_at_peak(bench: Bench, due: list[int]) -> float:
    """The same at the highest known learning rate: early in a warmup little moves, and that passes."""
    from steadyrun.preflight.rehearsal import step_input
    from steadyrun.preflight.step_trace import rate_of, traced_step

    with bench.pristine():
        bench.reseed()
        bench.modes(True)
        for optimizer in bench.task.optimizers:
            for group in optimizer.param_groups:
                rates = [bench.declared("lr_max") or 0.0, rate_of(group, "initial_lr"), rate_of(group)]
                if rates[-1] == rates[-1]:
                    group["lr"] = max(rate for rate in rates if rate == rate)
        trace = traced_step(bench, step_input(bench, 0))
    return _stalled_share(trace, [key for key in due if key in trace.gradients])


def _too_small(trace: StepTrace, key: int) -> bool:
    """Whether an ordinary update (rate times gradient, or times its sign) would be lost in rounding."""
    import torch

    from steadyrun.preflight.step_trace import dense

    before, gradient = trace.before[key], dense(trace.gradients[key]).float()
    spacing = torch.finfo(before.dtype).eps * float(before.abs().max()) if before.numel() else 1.0
    return trace.rates[key] * float(gradient.abs().max()) < spacing


QUESTION = probe_of(
    RECORDED,
    asks="Does one whole step move every parameter that has a gradient, and how far?",
    needs=("optimizer", "loss_fn", "batches"),
    thresholds=(
        Threshold(
            name="stalled",
            value=0.9,
            unit="share of numbers",
            meaning="fp16 and bf16 numbers with a gradient that a step leaves where they are",
            seed="GN > 0 but most changes exactly 0",
            decision="AdamW at 3e-4 on the bf16 weights of a small transformer leaves 3% where they are; at 1e-7 "
            "it leaves 99%",
            of="stalled",
        ),
        Threshold(
            name="far",
            value=0.5,
            unit="of the parameter's norm",
            meaning="a matrix that moves by more in one step",
            seed="",
            decision="Adam's first step moves a matrix of deviation 0.02 by 5% at a rate of 1e-3, and by 50% at 1e-2",
            of="largest",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        Outcome(name="rate-zero", answer=PASS, meaning="the learning rate is 0 yet"),
        Outcome(
            name="no-step",
            answer=FAULT,
            meaning="the program's step never steps",
            fix="Call optimizer.step() in train_step.",
            explains=("C4", "S", "P6"),
        ),
        Outcome(
            name="empty-step",
            answer=FAULT,
            meaning="an optimizer steps on nothing",
            fix="Look for a detach between its parameters and the loss that is meant for them, and for a "
            "zero_grad before "
            "its step.",
            explains=("C4", "S", "P6"),
        ),
        Outcome(
            name="still",
            answer=FAULT,
            meaning="parameters with a gradient do not move",
            fix="Look for an optimizer that skips them, and for code that puts them back.",
            explains=("C4", "S", "P6"),
        ),
        same(RECORDED, "rounded-away", ("C4", "S", "P6")),
        Outcome(
            name="rate-stays-zero",
            answer=NOTE,
            meaning="nothing moves at a learning rate of 0",
            fix="Set the learning rate.",
        ),
        Outcome(
            name="below-spacing",
            answer=NOTE,
            meaning="some updates are smaller than the spacing of the numbers they change",
        ),
        Outcome(
            name="far",
            answer=NOTE,
            meaning="a first step that moves a matrix by half of its size or more",
            fix="Lower the learning rate.",
        ),
    ),
    find=find,
)
