"""A4.7, before training: do tied weights share one tensor?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a4_7_tied import QUESTION as RECORDED
from steadyrun.questions.form import NOTE, Finding, Limits, Outcome
from steadyrun.signals.missing import MissingSignal, NotApplicable

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench

_NAMES = ("tied", "tie_word_embeddings", "tie_weights", "tie_embeddings")


def find(bench: Bench, _limit: Limits) -> Finding:
    import torch

    by = _declared(bench)
    if not by:
        raise NotApplicable("the config declares no tied weights")
    table, head = _pair(bench)
    if table is None or head is None:
        raise NotApplicable(f"{by}, but no output layer has the shape of the embedding")
    (table_name, table_weight), (head_name, head_weight) = table, head
    if head_weight is table_weight or (head_weight.data_ptr() == table_weight.data_ptr() and head_weight.numel()):
        return Finding("pass", f"{table_name} and {head_name} share one tensor.")
    equal = head_weight.shape == table_weight.shape and torch.equal(head_weight, table_weight.to(head_weight.device))
    measured = {"equal": float(equal)}
    if by.startswith("model.config") and not _own(bench, by):
        return Finding("default", f"{table_name} and {head_name} are two tensors, though {by}.", measured)
    now = "(equal now)" if equal else "with different values"
    return Finding("untied", f"{table_name} and {head_name} are two tensors {now}, though {by}.", measured)


def _declared(bench: Bench) -> str:
    """What declares that weights are tied: the config or the model's own config; "" if neither does."""
    for name in _NAMES:
        if name in bench.config:
            return f"the config declares {name}" if bench.config[name] is True else ""
    own = getattr(bench.model, "config", None)
    for name in _NAMES:
        value = own.get(name) if isinstance(own, dict) else getattr(own, name, None)
        if value is True:
            return f"model.config declares {name}"
    return ""


def _own(bench: Bench, _by: str) -> bool:
    """Whether the model's class ties weights: transformers sets the option to True even if the class ignores it."""
    if type(bench.model).__module__.startswith("transformers."):
        return bool(getattr(bench.model, "_tied_weights_keys", None))
    return True


def _pair(bench: Bench) -> tuple[tuple[str, Tensor] | None, tuple[str, Tensor] | None]:
    """The embedding and the output layer, from the model's methods or by their shapes."""
    from torch import nn

    from steadyrun.program.model_parts import clean

    names = {id(module): clean(path) for path, module in bench.model.named_modules()}
    table, head = _asked(bench.model, "get_input_embeddings"), _asked(bench.model, "get_output_embeddings")
    if hasattr(bench.model, "get_output_embeddings") and head is None:
        return None, None
    if table is None or head is None:
        tables = [module for module in bench.model.modules() if isinstance(module, nn.Embedding)]
        heads = [module for module in bench.model.modules() if isinstance(module, nn.Linear)]
        pairs = [(table, head) for table in tables for head in heads if table.weight.shape == head.weight.shape]
        if not pairs:
            return None, None
        tied = [pair for pair in pairs if pair[0].weight is pair[1].weight]
        last = [pair for pair in pairs if pair[1] is _output(bench)]
        table, head = max(tied or last or pairs, key=lambda pair: pair[0].num_embeddings)
    if not _weight(table) or not _weight(head):
        return None, None
    return (f"{names.get(id(table), 'embedding')}.weight", table.weight), (
        f"{names.get(id(head), 'head')}.weight",
        head.weight,
    )


def _output(bench: Bench) -> Any:
    """The output layer, if it is known."""
    from steadyrun.preflight.layer_activity import output_layer

    try:
        layer = output_layer(bench)
    except MissingSignal:
        return None
    return None if layer is None else layer[1]


def _asked(model: Any, name: str) -> Any:
    ask = getattr(model, name, None)
    try:
        return ask() if callable(ask) else None
    except Exception:  # transformers raises if a model has no embedding
        return None


def _weight(module: Any) -> bool:
    from torch import Tensor

    return isinstance(getattr(module, "weight", None), Tensor)


QUESTION = probe_of(
    RECORDED,
    asks="Do embedding and output layer share one tensor if tied weights are declared?",
    needs=("tied",),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "untied"),
        Outcome(
            name="default", answer=NOTE, meaning="the model's config declares tied weights, but its class ties none"
        ),
    ),
    find=find,
)
