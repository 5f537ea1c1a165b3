"""A4.8: does the gradient keep its size on the way to the first blocks?"""

from __future__ import annotations

import itertools

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, shown


def find(run: Signals, limit: Limits) -> Finding:
    order = [str(block.get("name")) for block in run.listed("blocks")]
    series = {name: points for name in order if (points := run.maybe(f"block_grad_norm/{name}")) is not None}
    if len(series) < limit["blocks"]:
        if not series:
            raise MissingSignal("block_grad_norm/*", how="call run.watch(model, optimizer) before training")
        raise NotApplicable(f"the model has only {counted(len(series), 'block')} in a row")
    norms = {name: float(np.median(points.values[: int(limit["samples"])])) for name, points in series.items()}
    names = list(norms)
    largest = max(norms, key=lambda name: norms[name])
    first = norms[names[0]]
    ratio = first / norms[largest] if norms[largest] > 0 else 1.0
    measured = {"first": first, "largest": norms[largest], "ratio": ratio, "blocks": float(len(names))}
    facts = f"Gradient norm is {shown(first)} at {names[0]} and {shown(norms[largest])} at {largest}"
    enough = min(len(points) for points in series.values()) >= limit["samples"]
    falls = _falls([norms[name] for name in names], limit["falls"])
    if 0 < ratio < limit["ratio"] and falls and enough:
        return Finding(
            "vanishing", f"{facts}, a ratio of {shown(ratio)} (expected at least {limit['ratio']:g}).", measured
        )
    if 0 < ratio < limit["small"] and falls:
        return Finding("weak", f"{facts}, a ratio of {shown(ratio)} (normally at least {limit['small']:g}).", measured)
    return Finding("pass", f"{facts}.", measured)


def _falls(norms: list[float], most: float) -> bool:
    """Whether most norms are larger than that of the block before: the gradient shrinks on its way back."""
    pairs = list(itertools.pairwise(norms))
    return sum(one < two for one, two in pairs) >= most * len(pairs)


QUESTION = Question(
    code="A4.8",
    name="the gradient keeps its size",
    asks="Do the first blocks get a gradient of the same order of magnitude as the last?",
    why="Saturating activations in a deep chain multiply the gradient by a small factor at each layer: the first "
    "layers keep their random weights, whatever the loss does.",
    needs=("block_grad_norm/*",),
    panel=3,
    thresholds=(
        Threshold(
            name="ratio",
            value=1e-5,
            unit="of the largest block's gradient",
            meaning="the gradient of the first block must be above this",
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
            decision="as for `ratio`",
            of="-ratio",
        ),
        Threshold(
            name="blocks",
            value=4,
            unit="blocks",
            meaning="fewer blocks are not a deep chain",
            seed="",
            decision="a short chain loses little",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="sampled steps",
            meaning="how many of the first samples are used",
            seed="",
            decision="the first steps are sampled densely",
        ),
        Threshold(
            name="falls",
            value=0.7,
            unit="fraction of the pairs of neighbouring blocks",
            meaning="in how many the earlier block must have the smaller gradient",
            seed="",
            decision="a chain that weakens the gradient does so at nearly every layer; chance gives half",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the gradient keeps its size to the first blocks"),
        Outcome(
            name="vanishing",
            answer=FAULT,
            meaning="the gradient vanishes on the way to the first blocks",
            fix="Use ReLU or GELU, residual connections and normalisation; initialise for the activation in use.",
            explains=("C1.2", "C4", "S", "P6"),
        ),
        Outcome(
            name="weak",
            answer=NOTE,
            meaning="the first blocks get a far smaller gradient than the last",
            fix="No action is needed while the loss falls; otherwise add residual connections or norm layers.",
        ),
    ),
    find=find,
    always=True,
)
