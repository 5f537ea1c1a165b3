"""A4.8, before training: does the gradient reach the first layer?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a4_8_vanishing import QUESTION as RECORDED
from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import shown

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
        raise NotApplicable(f"{len(sizes)} layers with a gradient are no deep chain (from {limit['layers']:g} on)")
    part = max(1, len(sizes) // 4)
    largest = [max(quarter, key=lambda pair: pair[1]) for quarter in (sizes[:part], sizes[-part:])]
    (first, low), (last, high) = largest  # one layer alone may be small by nature, as a query is with fresh weights
    ratio = low / high
    measured = {"ratio": ratio, "first": low, "last": high, "layers": float(len(sizes))}
    facts = (
        f"the gradient of {first} is {shown(ratio)} times that of {last} (root mean squares {shown(low)} and "
        f"{shown(high)}, {len(sizes)} layers)"
    )
    half = len(sizes) // 2
    middle = max(size for _, size in sizes[half - part // 2 : half + part // 2 + 1])
    fading = low * limit["fades"] < middle < high / limit["fades"]  # not one small factor before the output
    if ratio < limit["gone"] and fading and _hopeless(bench, low):
        return Finding("vanishing", f"{facts}; limit {limit['gone']:g}.", measured)
    if ratio < limit["before_small"]:
        return Finding("weak", f"{facts}.", measured)
    if ratio > 1 / limit["before_small"]:
        return Finding("large", f"{facts}.", measured)
    return Finding("pass", f"{facts}.", measured)


def _weight(name: str, module: nn.Module, bench: Bench) -> str:
    """The name of a layer's first matrix; embeddings have mostly empty gradients."""
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
    """Whether the optimizer cannot make up for it: Adam does, as long as the gradient is above its eps."""
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
            meaning="fewer are no deep chain",
            seed="",
            decision="a factor has to repeat to vanish",
        ),
        Threshold(
            name="gone",
            value=1e-6,
            unit="ratio",
            meaning="a smaller ratio is out of reach of the optimizer, where Adam's eps does not help",
            seed="first/last GN < 1e-4",
            decision="transformers before and after norm, residual networks and experts have 0.05 to 2; twelve "
            "sigmoid layers "
            "below 1e-9",
            of="-ratio",
        ),
        Threshold(
            name="fades",
            value=10,
            unit="times",
            meaning="by how much the middle must lie above the first layers and below the last",
            seed="",
            decision="a gradient that vanishes shrinks from layer to layer; a small factor in every block "
            "(LayerScale) makes "
            "all blocks alike",
        ),
        Threshold(
            name="before_small",
            value=1e-4,
            unit="ratio",
            meaning="a smaller ratio is worth a look",
            seed="first/last GN < 1e-4",
            decision="see above",
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
