"""C6.3, before training: does an accumulated gradient equal that of the whole batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.configuration.c6_3_accumulation import QUESTION as RECORDED
from steadyrun.questions.form import FAULT, NOTE, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import shown

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    count = bench.accumulation
    if count == 1:
        raise NotApplicable("the config declares no accumulation")
    assert bench.train_step is not None
    own, backwards = _own_gradient(bench)
    if backwards == 1:
        return _one_backward(bench, count)
    whole, last = _mean_gradient(bench)
    shared = [name for name in own if name in whole]
    mine, theirs, ending = (_joined(gradients, shared) for gradients in (own, whole, last))
    times, alike = _compared(mine, theirs)
    last_times, last_alike = _compared(mine, ending)
    measured = {"times": times, "alike": alike, "accumulation": float(count)}
    facts = f"The gradient of {count} micro-batches is {shown(times)} times their mean (cosine {alike:.4f})"
    near = limit["near"]
    if last_alike > 1 - near / 10 and alike < last_alike - near / 10:
        message = f"The gradient is {shown(last_times)} times that of the last of {count} micro-batches alone."
        return Finding("only-last", message, measured)
    if alike < limit["alike"]:
        return Finding("other", f"{facts}: other weights, or other random draws.", measured)
    if abs(times - 1) <= near:
        return Finding("pass", f"{facts}.", measured)
    if abs(times / count - 1) <= near:
        if bench.config.get("reduction") == "sum":
            return Finding("pass", f"{facts}: a sum, as declared.", measured)
        if _as_reported(bench):
            return Finding("pass", f"{facts}. The differentiated losses add up to the returned loss.", measured)
        return Finding("not-divided", f"{facts}.", measured)
    if abs(times * count - 1) <= near:
        return Finding("divided-twice", f"{facts}.", measured)
    return Finding("other", f"{facts}.", measured)


def _own_gradient(bench: Bench) -> tuple[dict[str, Tensor], int]:
    """The step's whole gradient, unscaled and before clipping, and the number of backward passes."""
    from steadyrun.preflight.rehearsal import rehearsal
    from steadyrun.preflight.step_trace import BACKWARD, CLIP

    trace = rehearsal(bench).first
    if not trace.stepped:
        raise MissingSignal(
            "a whole step",
            "the first call of train_step does not step the optimizer",
            "let train_step accept a list of micro-batches",
        )
    names = {id(parameter): name for name, parameter in bench.parameters.items()}
    factor = 1.0
    for event in trace.events:
        if event.kind == CLIP and event.clip is not None:
            factor = max(1.0, float(event.clip.total_norm) / event.clip.max_norm)
    gradients = {names[key]: gradient * factor for key, gradient in trace.gradients.items() if key in names}
    return gradients, sum(event.kind == BACKWARD for event in trace.events)


def _as_reported(bench: Bench) -> bool:
    """Whether a step's differentiated losses add up to the loss it returns: then loss_fn divides by the count."""
    from steadyrun.preflight.rehearsal import rehearsal

    trace = rehearsal(bench).first
    roots = [event.root for event in trace.events if event.root is not None]
    return bool(roots) and abs(sum(roots) - trace.loss) <= 1e-3 * abs(trace.loss)


def _one_backward(bench: Bench, count: int) -> Finding:
    if bench.memo.get("takes a list"):
        message = f"The config declares {count} micro-batches, but a step calls backward once."
        return Finding("one-backward", message, {"accumulation": float(count)})
    raise MissingSignal(
        "micro-batches", "train_step accepts no list of micro-batches", "let train_step accept a list of micro-batches"
    )


def _mean_gradient(bench: Bench) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The mean gradient of the micro-batches, with the program's random draws, and the last one's gradient."""
    with bench.pristine():
        bench.reseed()
        bench.modes(True)
        parts = bench.micro_batches() if bench.memo.get("takes a list") else [bench.batch()]
        total: dict[str, Tensor] = {}
        gradients: dict[str, Tensor] = {}
        for part in parts:
            gradients = dict(bench.observe(part, backward=True).gradients)
            for name, gradient in gradients.items():
                total[name] = gradient / len(parts) + total.get(name, 0)
        return total, gradients


def _joined(gradients: dict[str, Tensor], names: list[str]) -> Tensor:
    import torch

    from steadyrun.preflight.step_trace import dense

    parts = [dense(gradients[name]).flatten().double().cpu() for name in names if name in gradients]
    if not parts or len(parts) != len(names):
        raise NotApplicable("the micro-batches give gradients to different parameters")
    return torch.cat(parts)


def _compared(gradient: Tensor, reference: Tensor) -> tuple[float, float]:
    """The ratio of a gradient to the reference, and their cosine."""
    if gradient.shape != reference.shape:
        raise NotApplicable("sparse gradients cannot be compared")
    product, sizes = float(gradient @ reference), float(gradient.norm() * reference.norm())
    return product / max(float(reference @ reference), 1e-300), product / max(sizes, 1e-300)


QUESTION = probe_of(
    RECORDED,
    asks="Is the gradient of an accumulated step the mean of its micro-batches' gradients?",
    needs=("train_step", "loss_fn", "accumulation"),
    thresholds=(
        Threshold(
            name="near",
            value=0.05,
            unit="relative",
            meaning="distance from 1, the number of micro-batches or its inverse that counts as equal",
            seed="",
            decision="the same passes differ by 1e-6 in float32 and by 1e-2 under autocast",
        ),
        Threshold(
            name="alike",
            value=0.98,
            unit="cosine",
            meaning="a lower cosine shows that the gradients belong to different losses",
            seed="",
            decision="with the same draws the cosine is 1; a mean over tokens of unequal micro-batches stays above "
            "0.98 only if their lengths are similar",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "not-divided", ("C3", "C6", "S")),
        Outcome(
            name="divided-twice",
            answer=FAULT,
            meaning="the accumulated gradient is divided twice",
            fix="Divide the loss by the number of micro-batches once, not again after a mean.",
            explains=("C4", "S"),
        ),
        Outcome(
            name="only-last",
            answer=FAULT,
            meaning="only the last micro-batch contributes to the gradient",
            fix="Call zero_grad once per step, not once per micro-batch.",
            explains=("C3", "C4", "S"),
        ),
        Outcome(name="one-backward", answer=NOTE, meaning="accumulation is declared, but a step calls backward once"),
        Outcome(
            name="other",
            answer=NOTE,
            meaning="the step weights micro-batches differently, as a mean over tokens does",
        ),
    ),
    find=find,
)
