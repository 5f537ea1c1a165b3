"""A4.8: does the gradient keep its strength on the way to the first blocks?"""

from __future__ import annotations

import itertools

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    order = [str(block.get("name")) for block in run.listed("blocks")]
    series = {name: points for name in order if (points := run.maybe(f"block_grad_norm/{name}")) is not None}
    if len(series) < limit["blocks"]:
        if not series:
            raise MissingSignal("block_grad_norm/*", how="call run.watch(model, optimizer) before training")
        raise NotApplicable(f"the model has {len(series)} blocks in a row")
    norms = {name: float(np.median(points.values[: int(limit["samples"])])) for name, points in series.items()}
    names = list(norms)
    largest = max(norms, key=lambda name: norms[name])
    first = norms[names[0]]
    ratio = first / norms[largest] if norms[largest] > 0 else 1.0
    measured = {"first": first, "largest": norms[largest], "ratio": ratio, "blocks": float(len(names))}
    facts = f"the gradient norm is {shown(first)} at {names[0]} and {shown(norms[largest])} at {largest}"
    enough = min(len(points) for points in series.values()) >= limit["samples"]
    falls = _falls([norms[name] for name in names], limit["falls"])
    if 0 < ratio < limit["ratio"] and falls and enough:
        return Finding("vanishing", f"{facts}, a ratio of {shown(ratio)} (limit {limit['ratio']:g}).", measured)
    if 0 < ratio < limit["small"] and falls:
        return Finding("weak", f"{facts}, a ratio of {shown(ratio)}.", measured)
    return Finding("pass", f"{facts}.", measured)


def _falls(norms: list[float], most: float) -> bool:
    """Whether norms grow from the first block to the last in most places: they shrink on the way back."""
    pairs = list(itertools.pairwise(norms))
    return sum(one < two for one, two in pairs) >= most * len(pairs)


QUESTION = Question(
    code="A4.8",
    name="the gradient keeps its strength",
    asks="Is the gradient of the first blocks of the same order as that of the last?",
    why="Saturating activations in a deep chain multiply the gradient by a small factor at each layer: the first "
    "layers "
    "keep their random weights, whatever the loss does.",
    needs=("block_grad_norm/*",),
    panel=3,
    thresholds=(
        Threshold(
            name="ratio",
            value=1e-5,
            unit="of the largest block's gradient",
            meaning="what the first block must get",
            seed="first/last below 1e-4",
            decision="48 healthy programs: 0.01 and more; a deep sigmoid MLP: 1e-10",
            of="-ratio",
        ),
        Threshold(
            name="small",
            value=1e-3,
            unit="of the largest block's gradient",
            meaning="below this it is noted",
            seed="",
            decision="as above",
            of="-ratio",
        ),
        Threshold(
            name="blocks",
            value=4,
            unit="blocks",
            meaning="fewer are no deep chain",
            seed="",
            decision="a short chain loses little",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="sampled steps",
            meaning="how many are looked at",
            seed="",
            decision="the first steps are sampled densely",
        ),
        Threshold(
            name="falls",
            value=0.7,
            unit="fraction of the neighbouring blocks",
            meaning="in so many pairs the earlier block must have the smaller gradient",
            seed="",
            decision="a chain that loses strength at each layer does so nearly everywhere; chance gives half",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the gradient reaches the first blocks in strength"),
        Outcome(
            name="vanishing",
            answer=FAULT,
            meaning="the gradient vanishes on the way to the first blocks",
            fix="Use ReLU or GELU, residual connections and normalisation; initialise for the activation in use.",
            explains=("C1.2", "C4", "S", "P6"),
        ),
        Outcome(
            name="weak", answer=NOTE, meaning="the gradient of the first blocks is far smaller than that of the last"
        ),
    ),
    find=find,
    always=True,
)
