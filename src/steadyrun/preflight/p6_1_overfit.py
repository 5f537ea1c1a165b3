"""P6.1: can the model learn one batch by heart?"""

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
        raise MissingSignal("optimizer", "there is no optimizer", "give preflight the optimizer")
    if len(bench.task.optimizers) > 1:
        raise NotApplicable("several optimizers have several losses, which need not fall")
    base = _rate(bench)
    if not base:
        raise MissingSignal("lr_max", "the learning rate is 0 now", 'declare config={"lr_max": …}')
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
    facts = f"on one batch the loss falls by {percent(best)} from {shown(start)} in {int(limit['steps'])} steps"
    if best > limit["falls"]:
        return Finding("pass", f"{facts} at a learning rate of {shown(rate)}.", measured)
    if not moved:
        return Finding("no-move", f"{facts}, and no parameter moves.", measured)
    if best <= limit["nothing"] and _should_fall(bench, start, limit):
        tried = ", ".join(shown(base * factor) for factor in _RATES)
        return Finding("does-not-fall", f"{facts} (limit {percent(limit['nothing'])}), at rates of {tried}.", measured)
    return Finding("hardly", f"{facts}, at its best at a rate of {shown(rate)}.", measured)


def _rate(bench: Bench) -> float:
    """The highest learning rate that is known."""
    from steadyrun.preflight.step_trace import rate_of

    groups = [group for optimizer in bench.task.optimizers for group in optimizer.param_groups]
    rates = [rate_of(group, name) for group in groups for name in ("lr", "initial_lr")]
    return bench.declared("lr_max") or max((rate for rate in rates if rate == rate), default=0.0)


def _losses(bench: Bench, rate: float, steps: int) -> tuple[list[float], bool]:
    """The losses of plain steps on one batch at a fixed rate, each group in proportion; whether anything moved."""
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
    """A group's rate before a schedule: groups keep their proportion."""
    from steadyrun.preflight.step_trace import rate_of

    rates = [rate_of(group, "initial_lr"), rate_of(group)]
    return next((rate for rate in rates if rate > 0), 0.0)


def _should_fall(bench: Bench, start: float, limit: Limits) -> bool:
    """Whether there is room below: a cross-entropy near that of a guess, of weights that are not known as learned."""
    import math

    graph = bench.first_pass().graph
    if not graph.labels or bench.config.get("init") == "pretrained" or bench.config.get("reduction") == "sum":
        return False
    return start > limit["room"] * math.log(max(2, graph.labels[0].classes))


QUESTION = Question(
    code="P6.1",
    name="one batch by heart",
    asks="Does the loss of one batch fall when the model trains on nothing else?",
    why="A model that cannot learn one batch by heart will learn nothing else: the oldest test there is.",
    needs=("optimizer", "loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="steps",
            value=40,
            unit="steps",
            meaning="how long each learning rate is tried",
            seed="",
            decision="enough for small healthy models",
        ),
        Threshold(
            name="falls",
            value=0.1,
            unit="of the first loss",
            meaning="a larger fall is learning",
            seed="",
            decision="small healthy GPTs, CNNs and LSTMs fall by 20% to 99% in 40 steps at one of the three rates",
            of="-fall",
        ),
        Threshold(
            name="nothing",
            value=0.01,
            unit="of the first loss",
            meaning="a smaller fall at all three rates is no learning",
            seed="",
            decision="with the graph cut, or labels that the loss does not see, the loss moves by less than 1%",
        ),
        Threshold(
            name="room",
            value=0.5,
            unit="of ln C",
            meaning="a cross-entropy that starts above this share of a guess has room to fall",
            seed="",
            decision="below it the batch may be known by heart already",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the model can learn a batch by heart"),
        Outcome(
            name="does-not-fall",
            answer=FAULT,
            meaning="the loss of one batch does not fall at any of three learning rates",
            fix="Compare the gradient with a numerical one, and look at what the loss is given.",
            explains=("C4",),
            symptom=True,
        ),
        Outcome(name="no-move", answer=NOTE, meaning="no parameter moves in an ordinary step"),
        Outcome(
            name="hardly",
            answer=NOTE,
            meaning="the loss of one batch falls little: dropout, an irreducible part, or a slow start",
        ),
    ),
    find=find,
    tried=True,
)
