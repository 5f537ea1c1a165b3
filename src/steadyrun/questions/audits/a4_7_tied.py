"""A4.7: are weights that are declared tied really one tensor?"""

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
    who = "The run's config" if declared else "The model's config"
    if tied:
        return Finding("pass", f"{who} declares tied weights, and {' = '.join(map(str, tied[0]))}.")
    return Finding("untied", f"{who} declares tied weights, but the model has 0 tied parameters.")


QUESTION = Question(
    code="A4.7",
    name="tied weights are tied",
    asks="If tied weights are declared, do embedding and head use the same tensor?",
    why="Loading a checkpoint, sharding or replacing a layer can break the tie without an error: the two copies then "
    "drift apart.",
    needs=("model",),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the tied weights are one tensor"),
        Outcome(
            name="untied",
            answer=FAULT,
            meaning="weights that are declared tied are two separate tensors",
            fix="Tie them again after building or loading the model: head.weight = embedding.weight or "
            "model.tie_weights(). Build the optimizer after that.",
            explains=("C1", "C4", "C5", "S", "P4.8"),
        ),
    ),
    find=find,
    always=True,
)
