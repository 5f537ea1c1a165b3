"""A2.2: is the model in evaluation mode when it is validated?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.intent import in_a_row
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted

_HOW = "call run.watch(model, optimizer), and run.val(loss) right after the passes of each validation"


def find(run: Signals, limit: Limits) -> Finding:
    if run.config.get("val_mode") == "train":
        raise NotApplicable("the run declares val_mode 'train': validation in training mode is intended")
    recorded = [(event.step, event.fields.get("modes")) for event in run.events("validation")]
    validations = [
        (step, modes) for step, modes in recorded if isinstance(modes, dict) and (number(modes.get("passes")) or 0) > 0
    ]
    if not validations:
        raise MissingSignal("validation passes", "no forward pass without gradients was seen before a validation", _HOW)
    if not any(number(modes.get("sensitive")) for _, modes in validations):
        raise NotApplicable("the model has neither dropout nor batch normalisation: the mode changes nothing")
    wrong = [step for step, modes in validations if modes.get("passes_in_training") == modes.get("passes")]
    mixed = [step for step, modes in validations if (number(modes.get("passes_in_training")) or 0) > 0]
    measured = {"validations": float(len(validations)), "in_training_mode": float(len(wrong))}
    if run.running and len(validations) < limit["validations"]:
        raise MissingSignal("validation passes", f"{counted(len(validations), 'validation')} so far", "let it run on")
    bad = [step in wrong for step, _ in validations]
    if in_a_row(bad, limit["validations"]) is not None or all(bad):
        message = f"In {len(wrong)} of {len(validations)} validations, every forward pass ran in training mode."
        return Finding("in-training", message, measured, wrong[0])
    if mixed:
        message = f"In {len(mixed)} of {len(validations)} validations, some forward passes ran in training mode."
        return Finding("mixed", message, measured, mixed[0])
    return Finding("pass", f"The model was in evaluation mode in all {len(validations)} validations.", measured)


QUESTION = Question(
    code="A2.2",
    name="evaluation mode in validation",
    asks="Is the model in evaluation mode when it is validated?",
    why="With dropout on, the validation loss is too high and differs from pass to pass. With batch normalisation in "
    "training mode, validation data leaks into the model's buffers.",
    needs=("val_loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="validations",
            value=2,
            unit="consecutive validations",
            meaning="how many must run in training mode, if not all do",
            seed="",
            decision="a single validation may be a trial",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the model is validated in evaluation mode"),
        Outcome(
            name="in-training",
            answer=FAULT,
            meaning="the model is validated in training mode",
            fix="Call model.eval() before validation and model.train() after it. If training mode is intended, "
            'declare config={"val_mode": "train"}.',
            explains=("C4.2", "S1.3"),
        ),
        Outcome(
            name="mixed",
            answer=NOTE,
            meaning="some validation passes run in training mode",
            fix="Call model.eval() before every validation, also in code that validates only a part.",
        ),
    ),
    find=find,
    always=True,
)
