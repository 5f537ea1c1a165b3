"""A4.5, before training: does one step update every parameter?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a4_5_stalled import QUESTION as RECORDED
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import counted, listed, percent

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
        message = f"An optimizer steps, but none of its {counted(empty, 'trainable tensor')} gets a gradient."
        return Finding("empty-step", message, {"empty": float(empty)})
    if not due:
        raise NotApplicable("no optimized parameter had a gradient when its optimizer stepped")
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
            f"A step leaves {percent(share)} of the fp16 or bf16 values with a gradient unchanged "
            f"(limit {percent(limit['stalled'])}): the update rounds to zero in this format.",
            measured | {"stalled": share},
        )
    if lost := [key for key in still if not _too_small(trace, key)]:
        message = (
            f"A step does not change {counted(len(lost), 'parameter')} with a gradient and a learning rate above 0: "
            f"{listed([names[key] for key in lost])}."
        )
        return Finding("still", message, measured)
    far = [key for key in due if (ratio := ratios[key]) is not None and ratio > limit["far"]]
    facts = f"One step changes {counted(len(due) - len(still), 'parameter')}"
    if known:
        facts += f", matrices by {percent(min(known))} to {percent(max(known))} of their norm"
    if far:
        return Finding(
            "far", f"{facts}. Above {percent(limit['far'])}: {listed([names[key] for key in far])}.", measured
        )
    if any(_small_format(trace.before[key]) for key in still):
        unmoved = listed([names[key] for key in still])
        return Finding("below-spacing", f"{facts}. The updates of {unmoved} round to zero.", measured)
    return Finding("pass", f"{facts}.", measured)


def _nothing(bench: Bench, made: Rehearsal) -> Finding:
    """The finding if the first step changes nothing: a warmup from 0, a skipped step, accumulation, or no step."""
    from steadyrun.preflight.step_trace import UNSCALE, rate_of

    rates = [rate_of(group) for optimizer in bench.task.optimizers for group in optimizer.param_groups]
    if rates and not any(rates):
        return _rate_zero(bench, made)
    skipped = any(event.kind == UNSCALE for event in [*made.first.events, *made.second.events])
    if skipped or bench.task.scaler is not None or bench.accumulation > 1:
        raise NotApplicable("the loss scaler skipped the first step, or the step only accumulates gradients")
    second = made.second
    if made.accumulates or second.stepped or any(bool(second.change(key).ne(0).any()) for key in second.after):
        raise NotApplicable("the program does not step on every call")
    return Finding("no-step", "Two calls of train_step changed no parameter, and no optimizer stepped.")


def _rate_zero(bench: Bench, made: Rehearsal) -> Finding:
    """The finding at a learning rate of 0, which a warmup may start from; without a scheduler it stays 0."""
    rises = any(rate > 0 for rate in made.second.rates.values())
    if rises or bench.task.scheduler is not None or bench.declared("warmup_steps") or bench.task.train_step is None:
        return Finding("rate-zero", "Every learning rate is 0 in the first step, as in a warmup from 0.")
    return Finding("rate-stays-zero", "Every learning rate is 0 in the first two steps, and the task has no scheduler.")


def _empty_steps(bench: Bench, made: Rehearsal) -> int:
    """The number of trainable tensors in an optimizer that steps twice without any gradient, or 0."""
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
    """The change of a matrix relative to its norm; None for vectors and zeros."""
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
    """The fraction of fp16 and bf16 values with a gradient that did not change."""
    counts = [_stalled(trace.before[key], trace.change(key), trace.gradients[key]) for key in due]
    total = sum(count for _, count in counts)
    return sum(count for count, _ in counts) / total if total else 0.0


def _stalled_at_peak(bench: Bench, due: list[int]) -> float:
    """The same fraction at the highest known learning rate, since little changes early in a warmup."""
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
    asks="Does one step change every parameter that has a gradient, and by how much?",
    needs=("optimizer", "loss_fn", "batches"),
    thresholds=(
        Threshold(
            name="stalled",
            value=0.9,
            unit="fraction of values",
            meaning="fp16 and bf16 values with a gradient that a step leaves unchanged",
            seed="GN > 0 but most changes exactly 0",
            decision="AdamW at 3e-4 leaves 3% of the bf16 weights of a small transformer unchanged, at 1e-7 99%",
            of="stalled",
        ),
        Threshold(
            name="far",
            value=0.5,
            unit="fraction of the parameter's norm",
            meaning="change of a matrix in one step",
            seed="",
            decision="Adam's first step changes a matrix of standard deviation 0.02 by 5% at lr 1e-3, by 50% at 1e-2",
            of="largest",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        Outcome(name="rate-zero", answer=PASS, meaning="the learning rate is still 0"),
        Outcome(
            name="no-step",
            answer=FAULT,
            meaning="train_step never calls optimizer.step()",
            fix="Call optimizer.step() in train_step.",
            explains=("C4", "S", "P6"),
        ),
        Outcome(
            name="empty-step",
            answer=FAULT,
            meaning="an optimizer steps without gradients",
            fix="Look for a detach() between its parameters and their loss, and for a zero_grad() before its step.",
            explains=("C4", "S", "P6"),
        ),
        Outcome(
            name="still",
            answer=FAULT,
            meaning="a step does not change parameters that have a gradient",
            fix="Look for an optimizer that skips them, and for code that overwrites them after the step.",
            explains=("C4", "S", "P6"),
        ),
        same(RECORDED, "rounded-away", ("C4", "S", "P6")),
        Outcome(
            name="rate-stays-zero",
            answer=NOTE,
            meaning="the learning rate is 0 and nothing raises it",
            fix="Set a learning rate above 0 in the optimizer, or give the task its scheduler.",
        ),
        Outcome(
            name="below-spacing",
            answer=NOTE,
            meaning="some updates are too small for the number format",
        ),
        Outcome(
            name="far",
            answer=NOTE,
            meaning="the first step changes a matrix by half of its norm or more",
            fix="Lower the learning rate.",
        ),
    ),
    find=find,
)
