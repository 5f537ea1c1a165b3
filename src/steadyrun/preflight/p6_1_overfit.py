"""P6.1: can the model overfit one batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import percent, shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench

_RATES = (1.0, 10.0, 0.1)
_LAST = 5  # losses that are averaged at the end


def find(bench: Bench, limit: Limits) -> Finding:
    if not bench.optimized:
        raise MissingSignal("optimizer", "preflight has no optimizer", "give preflight the optimizer")
    if len(bench.task.optimizers) > 1:
        raise NotApplicable("the task has several optimizers, whose losses need not fall")
    base = _rate(bench)
    if not base:
        raise MissingSignal("lr_max", "the learning rate is 0", 'declare config={"lr_max": …}')
    best, start, rate, moved = 0.0, float("nan"), base, False
    for factor in _RATES:
        losses, changed = _losses(bench, base * factor, int(limit["steps"]))
        start, moved = losses[0], moved or changed
        finite = [loss for loss in losses[-_LAST:] if abs(loss) < float("inf")]
        fall = (start - sum(finite) / len(finite)) / max(abs(start), 1e-12) if len(finite) == _LAST else 0.0
        if fall > best:
            best, rate = fall, base * factor
        if best > limit["falls"]:
            break
    measured = {"fall": best, "rate": rate, "start": start}
    facts = f"On one batch the loss ({shown(start)}) falls by {percent(best)} in {int(limit['steps'])} steps"
    if best > limit["falls"]:
        return Finding("pass", f"{facts} at learning rate {shown(rate)}.", measured)
    if not moved:
        return Finding("no-move", f"{facts}, and no parameter changes.", measured)
    if best <= limit["nothing"] and _should_fall(bench, start, limit):
        tried = ", ".join(shown(base * factor) for factor in _RATES)
        return Finding(
            "does-not-fall", f"{facts} (limit {percent(limit['nothing'])}); tried learning rates: {tried}.", measured
        )
    return Finding("hardly", f"{facts}, at best, at learning rate {shown(rate)}.", measured)


def _rate(bench: Bench) -> float:
    """The highest known learning rate."""
    from steadyrun.preflight.step_trace import rate_of

    groups = [group for optimizer in bench.task.optimizers for group in optimizer.param_groups]
    rates = [rate_of(group, name) for group in groups for name in ("lr", "initial_lr")]
    return bench.declared("lr_max") or max((rate for rate in rates if rate == rate), default=0.0)


def _losses(bench: Bench, rate: float, steps: int) -> tuple[list[float], bool]:
    """The losses of plain steps on one batch at a fixed learning rate, and whether any parameter changed."""
    import torch

    with bench.pristine(), torch.enable_grad():
        bench.reseed()
        bench.modes(True)
        before = [parameter.detach().clone() for parameter in bench.optimized]
        groups = [group for optimizer in bench.task.optimizers for group in optimizer.param_groups]
        own = [_own_rate(group) for group in groups]
        largest = max(own, default=0.0)
        group_rates = [
            (group, rate * own_rate / largest if largest else rate) for group, own_rate in zip(groups, own, strict=True)
        ]
        losses = []
        for _ in range(steps):
            for group, group_rate in group_rates:
                group["lr"] = group_rate
            losses.append(bench.plain_step(bench.batch()))
        changed = any(
            not torch.equal(before_step, parameter)
            for before_step, parameter in zip(before, bench.optimized, strict=True)
        )
    return losses, changed


def _own_rate(group: dict[str, Any]) -> float:
    """A group's learning rate before its schedule, which keeps the groups in proportion."""
    from steadyrun.preflight.step_trace import rate_of

    rates = [rate_of(group, "initial_lr"), rate_of(group)]
    return next((rate for rate in rates if rate > 0), 0.0)


def _should_fall(bench: Bench, start: float, limit: Limits) -> bool:
    """Whether the loss can fall: a cross-entropy near a uniform guess, without pretrained weights."""
    import math

    graph = bench.first_pass().graph
    if not graph.labels or bench.config.get("init") == "pretrained" or bench.config.get("reduction") == "sum":
        return False
    return start > limit["room"] * math.log(max(2, graph.labels[0].classes))


QUESTION = Question(
    code="P6.1",
    name="one batch can be overfitted",
    asks="Does the loss of one batch fall if the model trains only on it?",
    why="A model that cannot overfit one batch will not learn the whole dataset.",
    needs=("optimizer", "loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="steps",
            value=40,
            unit="steps",
            meaning="steps at each learning rate",
            seed="",
            decision="enough for small healthy models to learn",
        ),
        Threshold(
            name="falls",
            value=0.1,
            unit="fraction of the first loss",
            meaning="a larger fall counts as learning",
            seed="",
            decision="in small healthy GPTs, CNNs and LSTMs it falls by 20% to 99% at one of three learning rates",
            of="-fall",
        ),
        Threshold(
            name="nothing",
            value=0.01,
            unit="fraction of the first loss",
            meaning="a smaller fall at all three learning rates counts as none",
            seed="",
            decision="with a detached graph, or labels missing from the loss, the loss changes by less than 1%",
        ),
        Threshold(
            name="room",
            value=0.5,
            unit="fraction of ln C",
            meaning="a cross-entropy above this fraction of a uniform guess has room to fall",
            seed="",
            decision="below it the model may know the batch already",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the model can overfit one batch"),
        Outcome(
            name="does-not-fall",
            answer=FAULT,
            meaning="the model cannot learn even one batch",
            fix="Check the gradient with torch.autograd.gradcheck, and check the inputs and labels of the loss.",
            explains=("C4",),
            symptom=True,
        ),
        Outcome(name="no-move", answer=NOTE, meaning="an ordinary step changes no parameter"),
        Outcome(
            name="hardly",
            answer=NOTE,
            meaning="the loss of one batch falls little",
        ),
    ),
    find=find,
    tried=True,
)
