"""L1.4: does the base stay frozen?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.adapters import Adapters, adapters_of
from steadyrun.signals.run_signals import Signals
from steadyrun.text import listed, shown


def find(run: Signals, limit: Limits) -> Finding:
    adapters = adapters_of(run)
    trained = adapters.trained_base
    matrices = [name for name in adapters.base if len(adapters.base[name].get("shape") or []) > 1]
    measured = {"trained": float(len(trained)), "matrices": float(len(matrices))}
    if len(trained) > limit["few"] * max(1, len(matrices)):
        message = f"{len(trained):,} base weights train together with the adapters ({listed(trained)})."
        return Finding("trains", message, measured)
    if (moved := _moved(run, adapters, limit)) is not None:
        return moved
    return Finding("frozen", f"The base is frozen, except for {len(trained):,} tensors.", measured)


def _moved(run: Signals, adapters: Adapters, limit: Limits) -> Finding | None:
    """Frozen weights that change: something writes into them, such as a merge that is not undone."""
    norms, own = run.maybe("adapter_base_norm"), run.maybe("adapter_norm")
    if norms is None or own is None or len(norms) < limit["samples"] or adapters.trained_base:
        return None
    before, after = float(norms.values[0]), float(norms.values[-1])
    changed = np.abs(norms.values - before) > limit["moved"] * before
    if not np.any(changed):
        return None
    first = int(np.argmax(changed))
    if float(own.values[first]) < limit["reset"] * float(own.values[first - 1]):
        return None  # merged, and started again from zero
    words = f"The norm of the frozen base went from {shown(before)} to {shown(after)} (first at step "
    words += f"{norms.step_at(first)}), although no optimizer holds these weights."
    return Finding("moves", words, {"before": before, "after": after}, norms.step_at(first))


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
        Threshold(
            name="moved",
            value=1e-4,
            unit="of the norm of the frozen base",
            meaning="a larger change is none of rounding",
            seed="",
            decision="frozen weights stay equal bit for bit; sums on several devices may round differently",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="sampled steps",
            meaning="with fewer, the question is not answered",
            seed="",
            decision="as in L1.1",
        ),
        Threshold(
            name="reset",
            value=0.9,
            unit="of the adapters' norm before",
            meaning="adapters that fall below this when the base changes were merged and reset, as in ReLoRA",
            seed="",
            decision="chosen: a reset sets one of the two matrices to zero",
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
        Outcome(
            name="moves",
            answer=SUSPECT,
            meaning="the frozen base changes: adapters are probably merged into it and stay active beside it",
            fix="Call unmerge_adapter() after each validation, or validate a merged copy. Undo a merge by hand "
            "before the next step.",
            experiment="Compare a base weight before and after one validation. If it changed, validation merges the "
            "adapters.",
            explains=("V1.3", "C4", "D2"),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
