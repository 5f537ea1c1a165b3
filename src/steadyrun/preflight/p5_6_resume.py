"""P5.6: does a step after save and load equal the step without?"""

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
        raise MissingSignal("state_dict", made.why_not_loaded, "let model and optimizer give state_dicts that load")
    itself = first_difference(bench, made.first, made.again)
    if itself is None and made.control is not None:
        itself = first_difference(bench, made.second, made.control)
    if itself is not None and itself.relative > limit["differs"]:
        raise NotApplicable(f"the same step differs from itself already, in {itself.words}")
    difference = first_difference(bench, made.second, made.loaded)
    unsaved = f" No state_dict holds {listed(made.unsaved)}." if made.unsaved else ""
    measured = {"relative": 0.0 if difference is None else difference.relative, "unsaved": float(len(made.unsaved))}
    if difference is None or difference.relative <= limit["differs"]:
        return Finding("pass", f"a step after save and load is the step without.{unsaved}", measured)
    message = (
        f"a step after save and load differs, first in {difference.words}, by {shown(difference.relative)} of it "
        f"(limit {limit['differs']:g}).{unsaved}"
    )
    return Finding("attribute" if _only_attributes(bench, made.unsaved) else "lost", message, measured)


def _only_attributes(bench: Bench, unsaved: list[str]) -> bool:
    """Whether only plain attributes of modules are missing: a counter, a hidden state from batch to batch.

    A program may well save those beside its state_dicts, or begin them anew.
    """
    from steadyrun.program.model_parts import clean

    modules = {clean(path): module for path, module in bench.model.named_modules()}
    owners = [(modules.get(path), name) for path, _, name in (attribute.rpartition(".") for attribute in unsaved)]
    return bool(owners) and all(owner is not None and name in vars(owner) for owner, name in owners)


QUESTION = Question(
    code="P5.6",
    name="save, load, go on",
    asks="Is the step after save and load the step that would have come?",
    why="What no state_dict holds (a buffer with persistent=False, a tensor attribute, an optimizer's own list) is "
    "lost with the process, and a resumed run is another one.",
    needs=("optimizer", "loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="differs",
            value=1e-3,
            unit="relative",
            meaning="a difference in the loss, or in a parameter's move, beyond it is no rounding",
            seed="",
            decision="equal bit for bit on a CPU for SGD, Adam, AdamW with scheduler and scaler; a lost moment "
            "differs by 1e-1",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="state_dicts hold everything that matters"),
        Outcome(
            name="lost",
            answer=FAULT,
            meaning="something that matters is in no state_dict",
            fix="Register it (register_buffer, nn.Parameter), or let state_dict and load_state_dict carry it.",
            explains=("D2",),
        ),
        Outcome(
            name="attribute",
            answer=NOTE,
            meaning="a plain attribute matters and is in no state_dict: save it beside them, where it should last",
        ),
    ),
    find=find,
    tried=True,
)
