"""C1.1, before training: is the first loss finite, and that of a uniform guess?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same, same_limits
from steadyrun.questions.configuration.c1_1_initial_loss import QUESTION as RECORDED
from steadyrun.questions.configuration.c5_1_initial_weights import QUESTION as WEIGHTS
from steadyrun.questions.form import FAULT, Finding, Limits, Outcome
from steadyrun.text import counted, shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.probes.loss_graph import Labels

_NO_MEAN = "the loss is not a plain mean of cross-entropies"


def find(bench: Bench, limit: Limits) -> Finding:
    first = bench.first_pass()
    measured = {"loss": first.loss}
    if not math.isfinite(first.loss):
        return Finding("not-finite", f"The loss of the first batch is {first.loss:g}, before any step.", measured)
    facts = f"The loss of the first batch is {shown(first.loss)}"
    why = _unknown(bench, first.graph.labels)
    if why and why != _NO_MEAN:
        return Finding("pass", f"{facts}. The loss of a uniform guess is unknown: {why}.", measured)
    classes = first.graph.labels[0].classes
    expected = math.log(classes)
    offset = first.loss - expected
    measured |= {"expected": expected, "offset": offset}
    against_guess = f"{facts}, a uniform guess has ln {classes} = {shown(expected)}"
    low = None
    if offset < -limit["low"]:
        low = _low(bench, f"{against_guess}: {shown(-offset)} below, limit {limit['low']:g}", measured)
    if why and (low is None or low.outcome != "counts-too-little"):
        return Finding("pass", f"{facts}. The loss of a uniform guess is unknown: {why}.", measured)
    return low or _judged(bench, against_guess, offset, measured, limit)


def _judged(bench: Bench, facts: str, offset: float, measured: dict[str, float], limit: Limits) -> Finding:
    if offset > limit["high"]:
        return _high(bench, f"{facts}: {shown(offset)} above, limit {limit['high']:g}", measured)
    if abs(offset) > limit["band"]:
        return Finding("off", f"{facts}: off by {shown(abs(offset))}, limit {limit['band']:g}.", measured)
    return Finding("pass", f"{facts} (within {limit['band']:g}).", measured)


def _unknown(bench: Bench, labels: list[Labels]) -> str:
    """Why the loss of a uniform guess is unknown; "" if it is known."""
    init = bench.config.get("init")
    if isinstance(init, str) and init.lower() != "random":
        return f"the config declares init {init!r}, so the weights are not random"
    if bench.resumed is not None:
        return "the run continues another"
    if not labels:
        return "the loss has no cross-entropy over classes"
    if len({targets.classes for targets in labels}) > 1:
        return f"the loss has {len(labels)} cross-entropies over different numbers of classes"
    if _chooses_examples(labels[0]):
        return "the classes are the examples of the batch"
    plain = bench.first_pass().graph.plain
    return "" if plain else _NO_MEAN


def _chooses_examples(labels: Labels) -> bool:
    """Whether each example's class is its own index in the batch, as in contrastive learning."""
    targets = labels.targets.flatten().tolist()
    return labels.classes >= len(targets) > 1 and targets == list(range(len(targets)))


def _high(bench: Bench, facts: str, measured: dict[str, float]) -> Finding:
    """The finding for a high loss: weights that C5.1 finds too large are the cause, unless they are trained."""
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
        return Finding("weights", f"{facts}. {answer.message}", measured, fix=answer.fix)
    return Finding("high", f"{facts}.", measured)


def _norm_scales(bench: Bench) -> tuple[int, int]:
    """The number of norm layers with untrained scales (all equal), and the number of norm layers."""
    from steadyrun.probes.description import describe_weights

    scales = [
        entry
        for entry in describe_weights(bench.model)
        if "norm" in entry["module"].lower() and entry["name"].endswith("weight")
    ]
    return sum(entry["std"] == 0 for entry in scales), len(scales)


def _low(bench: Bench, facts: str, measured: dict[str, float]) -> Finding:
    """The finding for a low loss: the scales of norm layers show whether the weights are trained."""
    new, scales = _norm_scales(bench)
    if bench.config.get("init") == "random" and new < scales:
        learned = f"{scales - new} of {counted(scales, 'norm layer')} have trained scales"
        return Finding("already-trained", f"{facts}. The config declares random weights, but {learned}.", measured)
    baseline = bench.declared("baseline_loss")
    known = bool(scales) and bench.config.get("init") == "random"
    if known and baseline is not None and measured["loss"] < baseline:
        message = (
            f"{facts}. It is also below the baseline {shown(baseline)}, yet all {scales} norm layers are untrained."
        )
        return Finding("counts-too-little", message, measured)
    return Finding(
        "low",
        f"{facts}. Possible reasons: trained weights, a head bias set to the class frequencies, or another loss.",
        measured,
    )


QUESTION = probe_of(
    RECORDED,
    asks="Is the first batch's loss finite, and within 0.5 of ln C for a cross-entropy over C classes?",
    needs=("loss_fn", "batches"),
    thresholds=same_limits(RECORDED, "band", "high", "low"),
    outcomes=(
        same(RECORDED, "pass", meaning="the first loss is finite, and that of a uniform guess if known"),
        same(RECORDED, "off", meaning="the first loss differs slightly from a uniform guess"),
        same(
            RECORDED,
            "high",
            meaning="the first loss is far above a uniform guess",
        ),
        Outcome(
            name="weights",
            answer=FAULT,
            meaning="initial weights are too large for the first loss",
            fix="Initialise matrices with standard deviation 0.02 or by the Kaiming or Xavier rule, and biases with 0.",
            explains=("C1", "C5", "C3", "S4", "S5"),
        ),
        same(RECORDED, "low"),
        same(RECORDED, "already-trained"),
        same(RECORDED, "counts-too-little"),
        Outcome(
            name="not-finite",
            answer=FAULT,
            meaning="the first loss is NaN or infinite",
            fix="Look for a division by 0, a logarithm of 0, or a batch whose labels are all ignored (A3.7).",
            explains=("D1", "D2", "D3", "C1", "C3", "C4", "S"),
        ),
    ),
    find=find,
)
