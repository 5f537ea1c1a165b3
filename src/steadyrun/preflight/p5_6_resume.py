"""P5.6: does a step after save and load equal the uninterrupted step?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import listed, shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.rehearsal import rehearsal
    from steadyrun.preflight.step_difference import first_difference

    made = rehearsal(bench)
    if made.loaded is None:
        raise MissingSignal("state_dict", made.why_not_loaded, "make the state_dicts of model and optimizer loadable")
    itself = first_difference(bench, made.first, made.again)
    if itself is None and made.control is not None:
        itself = first_difference(bench, made.second, made.control)
    if itself is not None and itself.relative > limit["differs"]:
        raise NotApplicable(f"repeating the same step without loading already changes {itself.words}")
    difference = first_difference(bench, made.second, made.loaded)
    unsaved = f" No state_dict has {listed(made.unsaved)}." if made.unsaved else ""
    measured = {"relative": 0.0 if difference is None else difference.relative, "unsaved": float(len(made.unsaved))}
    if difference is None or difference.relative <= limit["differs"]:
        return Finding("pass", f"A step after save and load equals the uninterrupted step.{unsaved}", measured)
    message = (
        f"Save and load change the next step: {difference.words} differs by a fraction of "
        f"{shown(difference.relative)} (limit {limit['differs']:g}).{unsaved}"
    )
    return Finding("attribute" if _only_attributes(bench, made.unsaved) else "lost", message, measured)


def _only_attributes(bench: Bench, unsaved: list[str]) -> bool:
    """Whether only plain attributes of modules are missing: a counter, a hidden state from batch to batch.

    A program may save those beside its state_dicts, or start them afresh.
    """
    from steadyrun.program.model_parts import clean

    modules = {clean(path): module for path, module in bench.model.named_modules()}
    owners = [(modules.get(path), name) for path, _, name in (attribute.rpartition(".") for attribute in unsaved)]
    return bool(owners) and all(owner is not None and name in vars(owner) for owner, name in owners)


QUESTION = Question(
    code="P5.6",
    name="resume from state_dicts",
    asks="Does the step after save and load equal the uninterrupted step?",
    why="A resume loses all state outside the state_dicts (a buffer with persistent=False, a tensor attribute, an "
    "optimizer's own list), so the resumed run differs.",
    needs=("optimizer", "loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="differs",
            value=1e-3,
            unit="relative",
            meaning="a larger difference of the loss or of an update is not rounding",
            seed="",
            decision="bit-identical on a CPU for SGD, Adam and AdamW; a lost moment makes a difference of 0.1",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the state_dicts contain the whole training state"),
        Outcome(
            name="lost",
            answer=FAULT,
            meaning="training state is missing from the state_dicts",
            fix="Register the state (register_buffer, nn.Parameter), or add it to state_dict and load_state_dict.",
            explains=("D2",),
        ),
        Outcome(
            name="attribute",
            answer=NOTE,
            meaning="a module attribute that affects steps is in no state_dict",
        ),
    ),
    find=find,
    tried=True,
)
