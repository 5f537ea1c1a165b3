"""A4.3: does the gradient reach every optimized parameter?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.facts import LEARNED
from steadyrun.signals.intent import count, names, reach
from steadyrun.signals.run_signals import Signals
from steadyrun.text import listed


def find(run: Signals, limit: Limits) -> Finding:
    facts = reach(run)
    unreached, total = names(facts, "unreached"), count(facts, "unreached_count")
    trained = count(facts, "trained")
    measured = {"unreached": float(total), "optimized": float(trained), "samples": float(count(facts, "samples"))}
    if not total and (single := _one_row(run, limit)) is not None:
        return single
    if not total:
        return Finding("pass", f"The gradient reaches all {trained:,} optimized parameters.", measured)
    words = f"The gradient never reaches {total:,} of {trained:,} optimized parameters ({listed(unreached, total)})"
    if total == trained and measured["samples"] >= limit["samples"]:
        return Finding("nothing-reached", f"{words}.", measured)
    module = facts.get("cut_before")
    if (
        isinstance(module, str)
        and module
        and known_facts(run, limit).start != LEARNED
        and measured["samples"] >= limit["samples"]
    ):
        return Finding("cut-off", f"{words}. It stops at {module}; no module before it gets a gradient.", measured)
    tables = _tables(run, unreached)
    if tables and known_facts(run, limit).start != LEARNED and measured["samples"] >= limit["samples"]:
        message = f"No output depends on the embedding {listed(tables)} in {measured['samples']:g} sampled steps."
        return Finding("table-unused", message, measured)
    return Finding("unused", f"{words}.", measured)


def _one_row(run: Signals, limit: Limits) -> Finding | None:
    """A table with a row for each of several values, of which one row is looked up in every sample."""
    for name in run.matching("lookup_spread/*"):
        spread = run.maybe(name)
        if spread is not None and len(spread) >= limit["lookups"] and not np.any(spread.values):
            table = name.partition("/")[2]
            message = f"In all {len(spread)} sampled steps, every example looks up the same row of {table}."
            return Finding("one-row", message, {"samples": float(len(spread))})
    return None


def _tables(run: Signals, unreached: list[str]) -> list[str]:
    """Embeddings without a gradient: the loss does not depend on what is looked up in them."""
    kinds = {str(weight.get("name")): str(weight.get("module")) for weight in run.listed("initial_weights")}
    return [name for name in unreached if kinds.get(name, "").startswith("Embedding")]


QUESTION = Question(
    code="A4.3",
    name="the gradient reaches all parameters",
    asks="Does the gradient of the loss reach every optimized parameter?",
    why="detach(), .data, .item(), NumPy or no_grad inside a model cut the graph: everything before the cut keeps its "
    "initial weights, and the rest learns around it.",
    needs=("objective",),
    panel=3,
    thresholds=(
        Threshold(
            name="lookups",
            value=4,
            unit="sampled steps",
            meaning="in how many sampled steps all ids must be equal",
            seed="",
            decision="one batch may have a single class by chance",
        ),
        Threshold(
            name="samples",
            value=2,
            unit="sampled steps",
            meaning="in how many sampled steps the gradient must be missing",
            seed="",
            decision="the first step alone may differ",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the gradient reaches every optimized parameter"),
        Outcome(
            name="cut-off",
            answer=FAULT,
            meaning="the graph is cut: the first part of the model gets no gradient",
            fix="Remove the detach() (or .data, no_grad, NumPy) between that part and the loss. If the cut is "
            "intended, freeze that part.",
            explains=("C1", "C3", "C4", "S", "A4.6", "P4", "P6"),
        ),
        Outcome(
            name="nothing-reached",
            answer=FAULT,
            meaning="the gradient reaches no optimized parameter",
            fix="Call backward() on the loss itself, without .item(), torch.tensor(loss), .data or no_grad before it. "
            "Give the optimizer the parameters of the model that is called, not of a copy.",
            explains=("C", "S", "A1", "A4", "P4", "P6"),
        ),
        Outcome(
            name="table-unused",
            answer=SUSPECT,
            meaning="an optimized embedding is never used",
            fix="Add the embedding to the input (x = tokens(ids) + positions(range)), or remove it.",
            experiment="Add the embedding to the model's input and train 200 steps. If the loss at step 200 is lower "
            "than in this run at step 200, it was forgotten.",
        ),
        Outcome(
            name="one-row",
            answer=SUSPECT,
            meaning="every example gets the same row of an embedding, so the embedding says nothing",
            fix="Pass the time, class or user of each example to the embedding, not a constant.",
            experiment="Print the ids that go into the embedding for one batch. If they are equal, they are constant.",
            explains=("V1",),
        ),
        Outcome(
            name="unused",
            answer=NOTE,
            meaning="the loss does not depend on some optimized parameters",
            fix="Leave them out of the optimizer, or check whether a part of the model should be in use.",
        ),
    ),
    find=find,
    always=True,
)
