"""A4.3: does the gradient reach every parameter that is to learn?"""

from __future__ import annotations

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
    if not total:
        return Finding("pass", f"the gradient reaches all {trained} optimized parameters.", measured)
    words = (
        f"the gradient of the loss never reaches {total} of {trained} optimized parameters ({listed(unreached, total)})"
    )
    if total == trained and measured["samples"] >= limit["samples"]:
        return Finding("nothing-reached", f"{words}: what is differentiated does not depend on them.", measured)
    module = facts.get("cut_before")
    if (
        isinstance(module, str)
        and module
        and known_facts(run, limit).start != LEARNED
        and measured["samples"] >= limit["samples"]
    ):
        return Finding("cut-off", f"{words}: it ends at {module}, and all that ran before it gets none.", measured)
    tables = _tables(run, unreached)
    if tables and known_facts(run, limit).start != LEARNED and measured["samples"] >= limit["samples"]:
        message = f"no output depends on the embedding {listed(tables)}: seen in {measured['samples']:g} sampled steps."
        return Finding("table-unused", message, measured)
    return Finding("unused", f"{words}.", measured)


def _tables(run: Signals, unreached: list[str]) -> list[str]:
    """Embeddings that get no gradient: something that is looked up in them does not reach the loss."""
    kinds = {str(weight.get("name")): str(weight.get("module")) for weight in run.listed("initial_weights")}
    return [name for name in unreached if kinds.get(name, "").startswith("Embedding")]


QUESTION = Question(
    code="A4.3",
    name="the gradient reaches the parameters",
    asks="Does the gradient of the loss reach every parameter that the optimizer is to move?",
    why="detach(), .data, .item(), numpy or a no_grad in the middle of a model cut the graph: everything before the "
    "cut "
    "keeps its first weights, and the rest learns around it.",
    needs=("objective",),
    panel=3,
    thresholds=(
        Threshold(
            name="samples",
            value=2,
            unit="sampled steps",
            meaning="how often it was looked at",
            seed="",
            decision="the first alone may differ",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the gradient reaches everything that is to learn"),
        Outcome(
            name="cut-off",
            answer=FAULT,
            meaning="the graph is cut: the first part of the model gets no gradient",
            fix="Remove the detach() (or .data, no_grad, numpy) between that part and the loss; freeze the part "
            "if it is "
            "meant.",
            explains=("C1", "C3", "C4", "S", "A4.6", "P4", "P6"),
        ),
        Outcome(
            name="nothing-reached",
            answer=FAULT,
            meaning="the gradient reaches nothing that is optimized",
            fix="Differentiate the loss itself: no .item(), torch.tensor(loss), .data or no_grad before backward().",
            explains=("C", "S", "A1", "A4", "P4", "P6"),
        ),
        Outcome(
            name="table-unused",
            answer=SUSPECT,
            meaning="an embedding is optimized and never used: an input (a position, a time, a kind) is not seen",
            fix="Add the embedding where it belongs (x = words(ids) + places(positions)), or remove it.",
            experiment="Add the embedding to the model's input and train 200 steps: if the loss gets lower, it was "
            "forgotten.",
        ),
        Outcome(
            name="unused",
            answer=NOTE,
            meaning="parameters that the loss does not use",
            fix="Leave them out of the optimizer, or see whether a part of the model was meant to be used.",
        ),
    ),
    find=find,
    always=True,
)
