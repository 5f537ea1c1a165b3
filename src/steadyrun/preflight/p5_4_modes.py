"""P5.4: is dropout off in evaluation mode?"""

from __future__ import annotations

import ast
import linecache
import sys
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from steadyrun.program.frames import callers
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal
from steadyrun.text import counted, listed, shown

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench


_LONGEST_CALL = 6  # lines


@dataclass
class _ActiveDropouts:
    """Dropouts that are active in evaluation mode."""

    default: int = 0  # called without `training`
    on_purpose: int = 0  # called with an explicit training=True
    modules: list[str] = field(default_factory=list)  # of modules that eval() did not reach
    inside: int = 0  # depth of nested dropout modules, which are counted by themselves


def find(bench: Bench, limit: Limits) -> Finding:
    quiet = bench.quiet()
    dropouts, scores, stayed = _another_draw(bench)
    from steadyrun.preflight.input_edits import moved

    far = float(moved(quiet.scores, scores).max()) if scores.shape == quiet.scores.shape else 0.0
    bound = quiet.limit(limit["moved"])
    measured = {"moved": far, "dropouts": float(dropouts.default + dropouts.on_purpose + len(dropouts.modules))}
    facts = f"Two passes in evaluation mode differ by {shown(far)} (limit {shown(bound)})"
    if far > bound and dropouts.default:
        return Finding(
            "functional", f"{facts}: {counted(dropouts.default, 'dropout call')} without self.training.", measured
        )
    if far > bound and dropouts.modules:
        known = set(dropouts.modules) <= set(stayed)
        message = f"{facts}: eval() does not reach {listed(dropouts.modules)}."
        return Finding("stays" if known and not _all_stay(bench, stayed) else "unreached", message, measured)
    if far > bound and dropouts.on_purpose:
        return Finding(
            "on-purpose", f"{facts}: {counted(dropouts.on_purpose, 'dropout call')} with training=True.", measured
        )
    if far > bound:
        return Finding("samples", f"{facts}: the model draws random numbers outside dropout.", measured)
    if _trains_in_eval(bench):
        return Finding("trains-in-eval", "train_step calls the model in evaluation mode.", measured)
    if stayed:
        return Finding(
            "stays", f"Evaluation mode is deterministic, but eval() leaves {listed(stayed)} in training mode.", measured
        )
    return Finding("pass", "Evaluation mode is deterministic.", measured)


def _another_draw(bench: Bench) -> tuple[_ActiveDropouts, Tensor, list[str]]:
    """The same pass with other random numbers: its active dropouts, its scores, and modules that stay in training."""
    import torch
    from torch import nn

    from steadyrun.preflight.token_positions import noting
    from steadyrun.program.model_parts import clean
    from steadyrun.program.torch_compat import Dropout

    dropouts = _ActiveDropouts()
    names = {id(module): clean(path) for path, module in bench.model.named_modules()}

    def entered(module: nn.Module, _args: Any) -> None:
        dropouts.inside += isinstance(module, Dropout) and inside[0] > 0

    def left(module: nn.Module, _args: Any, _output: Any) -> None:
        if isinstance(module, Dropout) and inside[0] > 0:
            dropouts.inside -= 1
            if module.training and module.p > 0:
                unregistered = f"an unregistered {type(module).__name__}"
                dropouts.modules.append(names.get(id(module), unregistered))

    inside = [0]
    functional = torch.nn.functional
    kinds = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)

    def note(function: Any, args: Any, kwargs: Any) -> None:
        if function is functional.scaled_dot_product_attention and inside[0]:
            dropouts.default += bool(args[4] if len(args) > 4 else kwargs.get("dropout_p"))
        if function in kinds and inside[0] and not dropouts.inside:
            rate = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            at_work = args[2] if len(args) > 2 else kwargs.get("training", True)
            if rate and at_work:
                passes_mode = _passes_mode()
                dropouts.default += not passes_mode
                dropouts.on_purpose += passes_mode

    with bench.pristine():
        bench.modes(False)
        stayed = [name for module in bench.model.modules() if module.training and (name := names[id(module)])]
    handles = [
        nn.modules.module.register_module_forward_pre_hook(entered),
        nn.modules.module.register_module_forward_hook(left),
        bench.model.register_forward_pre_hook(lambda *_: inside.__setitem__(0, inside[0] + 1)),
        bench.model.register_forward_hook(lambda *_: inside.__setitem__(0, inside[0] - 1)),
    ]
    try:
        with noting(note), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Using `torch.compile")  # the global hooks are removed right after
            scores = bench.quiet_scores(bench.batch(), draw=1)
    finally:
        for handle in handles:
            handle.remove()
    return dropouts, scores, stayed


def _trains_in_eval(bench: Bench) -> bool:
    """Whether the program's step switches to evaluation mode."""
    from steadyrun.preflight.rehearsal import rehearsal

    if bench.task.train_step is None or not bench.optimized:
        return False
    try:
        made = rehearsal(bench)
    except MissingSignal:
        return False
    return made.first.trained_in_eval or made.second.trained_in_eval


def _passes_mode() -> bool:
    """Whether the program's call of dropout passes `training`; True if its source is unknown."""
    theirs = ("torch.", "steadyrun.preflight")
    outer = (frame for frame in callers(sys._getframe(1)) if not frame.f_globals.get("__name__", "").startswith(theirs))
    if (frame := next(outer, None)) is None:
        return True
    name = frame.f_code.co_filename
    lines = [
        linecache.getline(name, line, frame.f_globals) for line in range(frame.f_lineno, frame.f_lineno + _LONGEST_CALL)
    ]
    source = "".join(lines)
    start = source.find("dropout")
    try:
        call = _first_call(source[start:])
    except SyntaxError:
        return True
    return call is None or len(call.args) > 2 or any(keyword.arg in {"training", None} for keyword in call.keywords)


def _first_call(source: str) -> ast.Call | None:
    """The call at the start of a piece of source."""
    depth = 0
    for index, letter in enumerate(source):
        depth += (letter == "(") - (letter == ")")
        if letter == ")" and depth == 0:
            expression = ast.parse(source[: index + 1], mode="eval").body
            return expression if isinstance(expression, ast.Call) else None
    return None


def _all_stay(bench: Bench, stayed: list[str]) -> bool:
    """Whether eval() reaches no submodule because the model overrides train() without passing it on."""
    return len(stayed) >= sum(1 for path, _ in bench.model.named_modules() if path)


_FIX = (
    "Pass training=self.training to functional dropout (dropout_p=self.p if self.training else 0.0 to "
    "scaled_dot_product_attention), or use nn.Dropout as a registered module."
)

QUESTION = Question(
    code="P5.4",
    name="training and evaluation mode",
    asks="In evaluation mode, is dropout off?",
    why="Dropout in evaluation mode raises the validation loss and makes predictions random.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="moved",
            value=1e-5,
            unit="fraction of the largest output",
            meaning="a larger difference of two passes shows randomness",
            seed="",
            decision="a deterministic model differs by exactly 0; one dropout of 0.1 changes outputs by 1e-2 and more",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="evaluation mode is deterministic"),
        Outcome(
            name="functional", answer=FAULT, meaning="dropout is on in evaluation mode", fix=_FIX, explains=("D4", "S7")
        ),
        Outcome(
            name="unreached",
            answer=FAULT,
            meaning="dropout is on in modules that eval() does not reach",
            fix=_FIX,
            explains=("D4", "S7"),
        ),
        Outcome(
            name="trains-in-eval",
            answer=NOTE,
            meaning="training steps run in evaluation mode",
        ),
        Outcome(name="stays", answer=NOTE, meaning="eval() leaves part of the model in training mode"),
        Outcome(
            name="on-purpose",
            answer=NOTE,
            meaning="dropout is set to stay on in evaluation mode (Monte Carlo dropout)",
        ),
        Outcome(name="samples", answer=NOTE, meaning="the model draws random numbers in evaluation mode"),
    ),
    find=find,
    tried=True,
)
