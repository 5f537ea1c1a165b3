"""A4.8, before training: does the gradient reach the first layer?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a4_8_vanishing import QUESTION as RECORDED
from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import counted, shown

if TYPE_CHECKING:
    from torch import nn

    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.layer_activity import call_order

    gradients = bench.first_pass().gradients
    sizes = []
    for name, module in call_order(bench)[0]:
        if (weight := _weight(name, module, bench)) and weight in gradients:
            size = _mean_square(gradients[weight])
            if size > 0:
                sizes.append((weight, size))
    if len(sizes) < limit["layers"]:
        raise NotApplicable(
            f"the model has {counted(len(sizes), 'layer')} with a gradient, {limit['layers']:g} are needed"
        )
    part = max(1, len(sizes) // 4)
    largest = [max(quarter, key=lambda pair: pair[1]) for quarter in (sizes[:part], sizes[-part:])]
    (first, low), (last, high) = (
        largest  # the largest of a quarter: one layer may be small by nature, as a query with fresh weights
    )
    ratio = low / high
    measured = {"ratio": ratio, "first": low, "last": high, "layers": float(len(sizes))}
    facts = (
        f"The gradient of {first} (RMS {shown(low)}) is {shown(ratio)} times that of {last} (RMS {shown(high)}, "
        f"{len(sizes)} layers)"
    )
    half = len(sizes) // 2
    middle = max(size for _, size in sizes[half - part // 2 : half + part // 2 + 1])
    fading = (
        low * limit["fades"] < middle < high / limit["fades"]
    )  # shrinks gradually, not by one factor before the output
    if ratio < limit["gone"] and fading and _hopeless(bench, low):
        return Finding("vanishing", f"{facts}, limit {limit['gone']:g}.", measured)
    if ratio < limit["before_small"]:
        return Finding("weak", f"{facts}.", measured)
    if ratio > 1 / limit["before_small"]:
        return Finding("large", f"{facts}.", measured)
    return Finding("pass", f"{facts}.", measured)


def _weight(name: str, module: nn.Module, bench: Bench) -> str:
    """The name of a layer's first matrix; none for embeddings, whose gradients are mostly zero."""
    from torch import nn

    if isinstance(module, nn.Embedding):
        return ""
    own = [key for key, parameter in module.named_parameters(recurse=False) if parameter.dim() >= 2]
    path = f"{name}.{own[0]}" if own and name else (own[0] if own else "")
    return path if path in bench.parameters else ""


def _mean_square(gradient: object) -> float:
    from steadyrun.preflight.step_trace import dense

    values = dense(gradient).double()  # type: ignore[arg-type]
    return float(values.pow(2).mean().sqrt()) if values.numel() else 0.0


def _hopeless(bench: Bench, size: float) -> bool:
    """Whether the optimizer cannot compensate: Adam does while the gradient is above its eps."""
    for optimizer in bench.task.optimizers:
        for group in optimizer.param_groups:
            if "betas" in group and size > 10 * float(group.get("eps", 0.0)):
                return False
    return True


QUESTION = probe_of(
    RECORDED,
    asks="How do the first layers' gradients compare with the last layers'?",
    needs=("loss_fn", "batches"),
    thresholds=(
        Threshold(
            name="layers",
            value=5,
            unit="layers",
            meaning="fewest layers for a gradient to vanish over",
            seed="",
            decision="a gradient vanishes only over a factor that repeats",
        ),
        Threshold(
            name="gone",
            value=1e-6,
            unit="ratio",
            meaning="a smaller ratio leaves the first layers without learning, unless Adam compensates",
            seed="first/last GN < 1e-4",
            decision="transformers (pre- and post-norm), residual networks and mixtures of experts have 0.05 to 2; "
            "twelve sigmoid layers have less than 1e-9",
            of="-ratio",
        ),
        Threshold(
            name="fades",
            value=10,
            unit="times",
            meaning="how far the central layers lie above the first and below the last",
            seed="",
            decision="a vanishing gradient shrinks from layer to layer; a small factor in every block (LayerScale) "
            "affects all blocks alike",
        ),
        Threshold(
            name="before_small",
            value=1e-4,
            unit="ratio",
            meaning="a smaller ratio is a note",
            seed="first/last GN < 1e-4",
            decision="see gone: healthy models have 0.05 to 2",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "vanishing", ("C4", "S", "P3.5")),
        same(RECORDED, "weak"),
        Outcome(name="large", answer=NOTE, meaning="the first layers get a much larger gradient than the last"),
    ),
    find=find,
)
