"""L1.4: does the base stay frozen?"""

from __future__ import annotations

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.adapters import adapters_of
from steadyrun.signals.run_signals import Signals
from steadyrun.text import listed


def find(run: Signals, limit: Limits) -> Finding:
    adapters = adapters_of(run)
    trained = adapters.trained_base
    matrices = [name for name in adapters.base if len(adapters.base[name].get("shape") or []) > 1]
    measured = {"trained": float(len(trained)), "matrices": float(len(matrices))}
    if len(trained) > limit["few"] * max(1, len(matrices)):
        message = f"{len(trained):,} base weights train together with the adapters ({listed(trained)})."
        return Finding("trains", message, measured)
    return Finding("frozen", f"The base is frozen, except for {len(trained):,} tensors.", measured)


QUESTION = Question(
    code="L1.4",
    name="base stays frozen",
    asks="Does the base model stay frozen while adapters train?",
    why="Adapters are meant to train on a fixed base. If base weights train as well, saving only the adapters loses "
    "what was learned, and a rate for adapters damages the base.",
    needs=("initial_weights", "param_groups"),
    panel=None,
    thresholds=(
        Threshold(
            name="few",
            value=0.05,
            unit="fraction of the base's matrices",
            meaning="with more of them trained, the base is not frozen",
            seed="",
            decision="chosen: embeddings, norms, biases and heads do not count; one or two layers may be meant",
        ),
    ),
    outcomes=(
        Outcome(name="frozen", answer=PASS, meaning="the base is frozen"),
        Outcome(
            name="trains",
            answer=SUSPECT,
            meaning="the base trains together with its adapters",
            fix="Freeze the base before adding adapters (requires_grad_(False)), and give the optimizer only "
            "parameters with requires_grad=True.",
            experiment="Compare a base weight before and after ten steps. If it changed and only adapters are saved, "
            "the saved model is not the trained one.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
