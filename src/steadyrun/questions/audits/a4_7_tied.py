"""A4.7: are weights tied that are declared so?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    model = run.about("model")
    model_declares = model.get("declares_tied")
    tied = model.get("tied")
    declared = any(run.config.get(name) is True for name in ("tied", "tie_word_embeddings", "tie_weights"))
    if not declared and model_declares is not True:
        raise NotApplicable("the run does not declare tied weights", "tied")
    if not model:
        raise MissingSignal("model", "the model was not recorded", "call run.watch(model, optimizer) before training")
    who = "the run's config" if declared else "the model's config"
    if tied:
        return Finding("pass", f"{who} declares tied weights, and {' = '.join(map(str, tied[0]))}.")
    return Finding("untied", f"{who} declares tied weights, and 0 pairs of the model's parameters are one tensor.")


QUESTION = Question(
    code="A4.7",
    name="tied weights are tied",
    asks="Where tied weights are declared, do embedding and head share one tensor?",
    why="Loading a checkpoint, sharding or replacing a layer can break the tie without an error: two copies drift "
    "apart.",
    needs=("model",),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the tie holds"),
        Outcome(
            name="untied",
            answer=FAULT,
            meaning="weights that are declared tied are two tensors",
            fix="Tie them again after building or loading: head.weight = embedding.weight (or "
            "model.tie_weights()), and "
            "build the optimizer after that.",
            explains=("C1", "C4", "C5", "S", "P4.8"),
        ),
    ),
    find=find,
    always=True,
)
