"""P3.3: is the first loss finite, and that of a model that knows nothing?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from steadyrun.questions.c1_1_initial_loss import QUESTION as RECORDED
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.probes.lossgraph import Labels


def find(bench: Bench, limit: Limits) -> Finding:
    seen = bench.first_pass()
    measured = {"loss": seen.loss}
    if not math.isfinite(seen.loss):
        return Finding("not-finite", f"the loss of the first batch is {seen.loss:g}, before any step.", measured)
    facts = f"the loss of the first batch is {shown(seen.loss)}"
    why = _unknown(bench, seen.graph.labels)
    if why:
        return Finding("pass", f"{facts}; what a guess would have is not known: {why}.", measured)
    classes = seen.graph.labels[0].classes
    expected = math.log(classes)
    offset = seen.loss - expected
    measured |= {"expected": expected, "offset": offset}
    facts += f"; ln {classes} = {shown(expected)} is the loss of a uniform guess"
    if offset > limit["high"]:
        return Finding("high", f"{facts}: {shown(offset)} above it, limit {limit['high']:g}.", measured)
    if offset < -limit["low"]:
        return _low(bench, f"{facts}: {shown(-offset)} below it, limit {limit['low']:g}", measured)
    if abs(offset) > limit["band"]:
        return Finding("off", f"{facts}: off by {shown(abs(offset))}, more than {limit['band']:g}.", measured)
    return Finding("pass", f"{facts} (within {limit['band']:g}).", measured)


def _unknown(bench: Bench, labels: list[Labels]) -> str:
    """Why the loss of a guess is not known; "" where it is."""
    init = bench.config.get("init")
    if isinstance(init, str) and init.lower() != "random":
        return f"init {init!r} is declared, so the weights are not random"
    if bench.resumed is not None:
        return "a run is being continued"
    if not labels:
        return "no cross-entropy over classes is seen"
    if len({held.classes for held in labels}) > 1 or len(labels) > 1:
        return f"the loss is made of {len(labels)} cross-entropies"
    if labels[0].reduction != "mean":
        return "the loss is no mean over the items"
    if _chooses_examples(labels[0]):
        return "the classes are the examples of the batch"
    plain = bench.first_pass().graph.plain
    return "" if plain else "the loss has other parts beside the cross-entropy, or a factor"


def _chooses_examples(labels: Labels) -> bool:
    """Whether each example is to find its own place in the batch, as in contrastive learning."""
    targets = labels.targets.flatten().tolist()
    return labels.classes >= len(targets) > 1 and targets == list(range(len(targets)))


def _low(bench: Bench, facts: str, measured: dict[str, float]) -> Finding:
    """Learned weights, or a loss that leaves most of it out: the scales of norm layers tell which."""
    from steadyrun.probes.describe import describe_weights

    scales = [
        entry
        for entry in describe_weights(bench.model)
        if "norm" in entry["module"].lower() and entry["name"].endswith("weight")
    ]
    new = sum(entry["std"] == 0 for entry in scales)
    if bench.config.get("init") == "random" and new < len(scales):
        learned = f"{len(scales) - new} of {len(scales)} norm layers have learned scales"
        return Finding("already-trained", f"{facts}; random weights are declared, and {learned}.", measured)
    baseline = bench.declared("baseline_loss")
    known = bool(scales) and bench.config.get("init") == "random"
    if known and baseline is not None and measured["loss"] < baseline:
        message = f"{facts}, and below the baseline {shown(baseline)}, yet all {len(scales)} norm layers are as new."
        return Finding("counts-too-little", message, measured)
    return Finding("low", f"{facts}; learned weights, a bias that knows the classes, or another loss.", measured)


def _as_recorded(name: str, answer: str) -> Outcome:
    told = RECORDED.outcome(name)
    return Outcome(name, answer, told.meaning, told.fix)


QUESTION = Question(
    code="P3.3",
    name="first loss",
    asks="Is the loss of the first batch finite, and within 0.5 of ln C for a cross-entropy over C classes?",
    why="A model that knows nothing gives every class the same probability, and its cross-entropy is ln C. More "
    "means it starts out confidently wrong; much less means that it is not untrained, or that little is counted.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=RECORDED.thresholds,
    outcomes=(
        Outcome("pass", PASS, "the first loss is what it should be, as far as that is known"),
        Outcome("off", NOTE, "the first loss is somewhat off that of a guess"),
        Outcome(
            "high",
            NOTE,
            "the loss starts far above a guess: weights too large, a head bias; a margin explains it, too",
            "Look at how the output layer, its bias and a tied embedding are initialised (std 0.02).",
        ),
        Outcome("low", NOTE, "the loss starts far below a guess: learned weights, or a bias that knows the classes"),
        _as_recorded("already-trained", FAULT),
        _as_recorded("counts-too-little", FAULT),
        Outcome(
            "not-finite",
            FAULT,
            "the first loss is not a number",
            "Look for a division by 0, the logarithm of 0, or a batch without labels that count (P1.2).",
            explains=("D1", "D2", "D3", "C1", "C3", "C4", "S"),
        ),
    ),
    find=find,
)
