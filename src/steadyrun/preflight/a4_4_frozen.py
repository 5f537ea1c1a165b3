"""A4.4, before training: are parameters frozen that should learn?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a4_4_frozen import QUESTION as RECORDED
from steadyrun.questions.form import Finding, Limits
from steadyrun.signals.missing import MissingSignal
from steadyrun.text import counted, listed

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, _limit: Limits) -> Finding:
    if not bench.optimized:
        raise MissingSignal("optimizer", "preflight has no optimizer", "give preflight the optimizer")
    frozen = [name for name, parameter in bench.parameters.items() if not parameter.requires_grad]
    optimized = {id(tensor): tensor for tensor in bench.optimized}
    measured = {
        "frozen": float(len(frozen)),
        "parameters": float(len(bench.parameters)),
        "optimized": float(len(optimized)),
    }
    if not any(tensor.requires_grad for tensor in optimized.values()) and not _thawed(bench):
        message = f"All {len(optimized)} tensors in the optimizers are frozen (requires_grad=False)."
        return Finding("nothing-trainable", message, measured)
    if output := _frozen_output(bench):
        message = f"The output layer {output} is frozen, and its weights are random (declared init)."
        return Finding("frozen-at-random", message, measured)
    if frozen:
        inside = sum(not tensor.requires_grad for tensor in optimized.values())
        message = f"{len(frozen)} of {counted(len(bench.parameters), 'parameter')} are frozen: {listed(frozen)}."
        more = f" An optimizer has {inside} of them." if inside else ""
        return Finding("some-frozen", f"{message}{more}", measured)
    return Finding("pass", f"None of the {counted(len(bench.parameters), 'parameter')} is frozen.", measured)


def _thawed(bench: Bench) -> bool:
    """Whether the program's own step unfreezes what it optimizes, as adversarial training does in turns."""
    from steadyrun.preflight.rehearsal import rehearsal

    if bench.task.train_step is None:
        return False
    try:
        first = rehearsal(bench).first
    except MissingSignal:  # a step that fails, as backward does if nothing needs a gradient
        return False
    return bool(first.gradients) or any(bool(first.change(key).ne(0).any()) for key in first.after)


def _frozen_output(bench: Bench) -> str:
    """The name of a frozen output layer if the config declares random weights, else an empty string."""
    if bench.config.get("init") != "random":
        return ""
    from steadyrun.preflight.layer_activity import output_layer

    layer = output_layer(bench)
    if layer is None:
        return ""
    name, module = layer
    own = [parameter for parameter in module.parameters(recurse=False) if parameter.dim() >= 2]
    return name if own and not any(parameter.requires_grad for parameter in own) else ""


_FIX = "Set requires_grad to True for what should learn, before the optimizer is built."

QUESTION = probe_of(
    RECORDED,
    asks="Are all optimized parameters, or a random output layer, frozen?",
    needs=("optimizer",),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "nothing-trainable", ("C4", "S", "P4", "P6")),
        same(RECORDED, "frozen-at-random", ("C4", "S", "P6"), "a random output layer is frozen and never learns"),
        same(RECORDED, "some-frozen"),
    ),
    find=find,
)
