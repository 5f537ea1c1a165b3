"""C1.1, before training: is the first loss finite, and that of a model that knows nothing?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same, same_limits
from steadyrun.questions.configuration.c1_1_initial_loss import QUESTION as RECORDED
from steadyrun.questions.configuration.c5_1_initial_weights import QUESTION as WEIGHTS
from steadyrun.questions.form import FAULT, Finding, Limits, Outcome
from steadyrun.text import shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.probes.loss_graph import Labels

_NO_MEAN = "the loss is no mean of cross-entropies, or has other parts beside them"


def find(bench: Bench, limit: Limits) -> Finding:
    first = bench.first_pass()
    measured = {"loss": first.loss}
    if not math.isfinite(first.loss):
        return Finding("not-finite", f"the loss of the first batch is {first.loss:g}, before any step.", measured)
    facts = f"the loss of the first batch is {shown(first.loss)}"
    why = _unknown(bench, first.graph.labels)
    if why and why != _NO_MEAN:
        return Finding("pass", f"{facts}; what a guess would have is not known: {why}.", measured)
    classes = first.graph.labels[0].classes
    expected = math.log(classes)
    offset = first.loss - expected
    measured |= {"expected": expected, "offset": offset}
    against_guess = f"{facts}; ln {classes} = {shown(expected)} is the loss of a uniform guess"
    low = None
    if offset < -limit["low"]:
        low = _low(bench, f"{against_guess}: {shown(-offset)} below it, limit {limit['low']:g}", measured)
    if why and (low is None or low.outcome != "counts-too-little"):
        return Finding("pass", f"{facts}; what a guess would have is not known: {why}.", measured)
    return low or _judged(bench, against_guess, offset, measured, limit)


def _judged(bench: Bench, facts: str, offset: float, measured: dict[str, float], limit: Limits) -> Finding:
    if offset > limit["high"]:
        return _high(bench, f"{facts}: {shown(offset)} above it, limit {limit['high']:g}", measured)
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
    if len({targets.classes for targets in labels}) > 1:
        return f"the loss is made of {len(labels)} cross-entropies over different classes"
    if _chooses_examples(labels[0]):
        return "the classes are the examples of the batch"
    plain = bench.first_pass().graph.plain
    return "" if plain else _NO_MEAN


def _chooses_examples(labels: Labels) -> bool:
    """Whether each example is to find its own place in the batch, as in contrastive learning."""
    targets = labels.targets.flatten().tolist()
    return labels.classes >= len(targets) > 1 and targets == list(range(len(targets)))


def _high(bench: Bench, facts: str, measured: dict[str, float]) -> Finding:
    """Weights that C5.1 finds too large are the cause, where nothing says that they are learned."""
    from steadyrun.preflight.as_record import GivenRecord
    from steadyrun.probes.description import describe_model, describe_weights

    classes = bench.first_pass().graph.labels[0].classes
    config = {**bench.config, "vocab_size": classes}
    facts_known = {
        "initial_weights": describe_weights(bench.model),
        "model": describe_model(bench.model),
        "inferred": {"output_width": classes},
    }
    answer = WEIGHTS.ask(GivenRecord(config, {"loss": ([0], [measured["loss"]])}, facts_known).signals())
    new, known = _norm_scales(bench)
    if answer.kind == FAULT and new == known:
        return Finding("weights", f"{facts}; {answer.message}", measured, fix=answer.fix)
    return Finding("high", f"{facts}.", measured)


def _norm_scales(bench: Bench) -> tuple[int, int]:
    """How many norm layers have scales that are all alike, and of how many."""
    from steadyrun.probes.description import describe_weights

    scales = [
        entry
        for entry in describe_weights(bench.model)
        if "norm" in entry["module"].lower() and entry["name"].endswith("weight")
    ]
    return sum(entry["std"] == 0 for entry in scales), len(scales)


def _low(bench: Bench, facts: str, measured: dict[str, float]) -> Finding:
    """Learned weights, or a loss that leaves most of it out: the scales of norm layers tell which."""
    new, scales = _norm_scales(bench)
    if bench.config.get("init") == "random" and new < scales:
        learned = f"{scales - new} of {scales} norm layers have learned scales"
        return Finding("already-trained", f"{facts}; random weights are declared, and {learned}.", measured)
    baseline = bench.declared("baseline_loss")
    known = bool(scales) and bench.config.get("init") == "random"
    if known and baseline is not None and measured["loss"] < baseline:
        message = f"{facts}, and below the baseline {shown(baseline)}, yet all {scales} norm layers are as new."
        return Finding("counts-too-little", message, measured)
    return Finding("low", f"{facts}; learned weights, a bias that knows the classes, or another loss.", measured)


QUESTION = probe_of(
    RECORDED,
    asks="Is the loss of the first batch finite, and within 0.5 of ln C for a cross-entropy over C classes?",
    needs=("loss_fn", "batches"),
    thresholds=same_limits(RECORDED, "band", "high", "low"),
    outcomes=(
        same(RECORDED, "pass", meaning="the first loss is what it should be, as far as that is known"),
        same(RECORDED, "off", meaning="the first loss is somewhat off that of a guess"),
        same(
            RECORDED,
            "high",
            meaning="the loss starts far above a guess: weights too large, a head bias, or a margin",
        ),
        Outcome(
            name="weights",
            answer=FAULT,
            meaning="weights drawn too wide, or a bias, put the first loss far above that of a guess (the rules "
            "of C5.1)",
            fix="Initialise matrices with deviation 0.02, or by Kaiming's or Xavier's rule; biases with 0.",
            explains=("C1", "C5", "C3", "S4", "S5"),
        ),
        same(RECORDED, "low"),
        same(RECORDED, "already-trained"),
        same(RECORDED, "counts-too-little"),
        Outcome(
            name="not-finite",
            answer=FAULT,
            meaning="the first loss is not a number",
            fix="Look for a division by 0, the logarithm of 0, or a batch without labels that count (A3.7).",
            explains=("D1", "D2", "D3", "C1", "C3", "C4", "S"),
        ),
    ),
    find=find,
)
