"""The module, stage and line of each operation and of each graph node."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from steadyrun.program.frames import callers
from steadyrun.program.torch_compat import COMPILED, current_node, hooks_with_kwargs, sequence_number, without_compiler
from steadyrun.replay.hunt.culprit import Stage

if TYPE_CHECKING:
    from steadyrun.replay.hunt.origins import Origin


# Operations, autograd nodes and lines of code by their familiar names.


_SKIPPED = tuple(f"{Path(file).parent}/" for file in (torch.__file__, str(Path(__file__).parent)))
_PREFIXES = re.compile(r"^(_|native_|cudnn_|miopen_|mkldnn_|foreach_)+")
_SUFFIXES = re.compile(r"(_forward|_backward|_legit|_no_training|_default)+$")
_KNOWN = {
    "to_copy": "cast",
    "convolution": "conv",
    "convolution_overrideable": "conv",
    "linalg_vector_norm": "norm",
    "embedding_dense": "embedding",
    "embedding_sparse": "embedding",
    "thnn_fused_lstm_cell": "lstm",
    "thnn_fused_gru_cell": "gru",
    "rnn_layer": "rnn",
    "amp_foreach_non_finite_check_and_unscale": "unscale",
}


@lru_cache(maxsize=4096)
def friendly(operation: str) -> str:
    """`_softmax` is softmax, `native_layer_norm_backward` is layer_norm."""
    plain = _SUFFIXES.sub("", _PREFIXES.sub("", operation).removesuffix("_"))
    if plain.startswith(("scaled_dot_product", "flash_attention", "efficient_attention")):
        return "scaled_dot_product_attention"
    return _KNOWN.get(plain, plain)


@lru_cache(maxsize=4096)
def differentiated(node: str) -> str:
    """The forward operation of an autograd node: `SqrtBackward0` is sqrt; a custom Function keeps its class name."""
    name = node.rpartition("::")[2]
    builtin = re.fullmatch(r"(\w+?)Backward\d+", name)
    if builtin is None:
        return name.removesuffix("Backward")
    return friendly(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", builtin[1]).lower())


def same_operation(node: str, operation: str) -> bool:
    """Whether an autograd node belongs to an operation, by name."""
    return re.sub(r"Backward\d*$", "", node).lower() == operation.replace("_", "")


def calling_line(*, in_backward: bool = False) -> str:
    """The innermost line of code outside torch and steadyrun: `model.py:31 in forward`; empty if there is none.

    In backward that is a line of a Python `backward` or hook; otherwise only the call of `backward()` is on the stack.
    """
    for frame in callers(sys._getframe(1)):
        if in_backward and frame.f_code.co_name == "_engine_run_backward":
            break
        file = frame.f_code.co_filename
        if not file.startswith(_SKIPPED) and not file.startswith("<frozen"):
            return f"{Path(file).name}:{frame.f_lineno} in {frame.f_code.co_name}"
    return ""


_MARK = "steadyrun"


@dataclass
class OperationLocation:
    """The location of one operation.

    In backward `node` is the running graph node and `source` the location of the operation that created it.
    `spoiled` is the origin of non-finite values in the operation's result, except masks.
    """

    stage: Stage
    module: str
    module_type: str
    operation: str
    where: str
    passes: int
    node: Any = None
    source: OperationLocation | None = None
    spoiled: Origin | None = None


class Locations:
    """Tracks a program: modules entered and left, backward passes, optimizer steps.

    Each operation that creates a graph node is kept by the node's sequence number, which torch counts per
    thread; when a backward pass begins, the nodes are marked with their operations. `passes` counts backward passes.
    """

    def __init__(self, model: nn.Module) -> None:
        named = [(plain_path(name), module) for name, module in unwrapped(model).named_modules()]
        self._named = {id(module): (path, type(module).__name__) for path, module in named}
        self._owners = {
            id(parameter): self._named[id(module)]
            for _, module in named
            for parameter in module.parameters(recurse=False)
        }
        self._inside: dict[int, list[nn.Module]] = {}
        self._kept: dict[int, dict[int, tuple[str, OperationLocation]]] = {}
        self._depth: dict[int, int] = {}
        self._doing: list[Stage] = []
        self.passes = 0

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Install hooks within this context."""
        with ExitStack() as hooks:
            hooks.callback(register_module_forward_pre_hook(self._enter).remove)
            leaving = register_module_forward_hook(self._leave, always_call=True)
            # torch does not remove this one, and a leftover global hook makes torch.compile warn.
            hooks.callback(lambda: hooks_with_kwargs.pop(leaving.id, None))
            hooks.callback(leaving.remove)
            hooks.callback(register_optimizer_step_pre_hook(self._step_begins).remove)
            hooks.callback(register_optimizer_step_post_hook(self._step_ends).remove)
            yield

    def here(self, operation: str) -> OperationLocation:
        """The location of the running operation."""
        modules = self._inside.get(get_ident(), [])
        # A module entered after backward began is run again by checkpointing.
        again = len(modules) > self._depth.get(get_ident(), 0)
        # An optimizer may step in a hook of the backward pass, and a closure may run one in the optimizer's step.
        updating = self._doing[-1:] == ["update"]
        node = current_node() if current_node is not None and not again and not updating else None
        location = self._in_backward(node) if node is not None else self._in_code(operation, modules)
        if sequence_number is not None:
            self._kept.setdefault(get_ident(), {}).setdefault(sequence_number() - 1, (operation, location))
        return location

    @contextmanager
    def backward(self, roots: Any) -> Iterator[None]:
        """A backward pass from these tensors; a module may also run one in its forward."""
        thread = get_ident()
        depth = self._depth.get(thread, 0)
        self._depth[thread] = len(self._inside.get(thread, []))
        self.passes += 1
        self._doing.append("backward")
        try:
            with suppress(Exception):
                self._mark(roots)
            yield
        finally:
            self._depth[thread] = depth
            self._done("backward")

    def _mark(self, roots: Any) -> None:
        """Mark the nodes below these tensors with the operations that created them."""
        listed = roots if isinstance(roots, list | tuple) else [roots]
        waiting: list[Any] = [root.grad_fn for root in listed if isinstance(root, Tensor) and root.grad_fn is not None]
        while waiting:
            node: Any = waiting.pop()
            if _MARK not in node.metadata:
                node.metadata[_MARK] = self._made(node)
                waiting += [function for function, _ in node.next_functions if function is not None]

    def _in_code(self, operation: str, modules: list[nn.Module]) -> OperationLocation:
        named = self._innermost()
        stage: Stage = "forward" if named else ("update" if self._doing[-1:] == ["update"] else "loss")
        path, kind = named or ("", type(modules[0]).__name__ if modules else "")
        return OperationLocation(stage, path, kind, friendly(operation), calling_line(), self.passes)

    def _in_backward(self, node: Any) -> OperationLocation:
        """An operation in backward has the location of the operation being differentiated."""
        source = node.metadata.get(_MARK) or self._made(node)
        operation = differentiated(node.name())
        if source is None:  # a node without an operation, such as the one that accumulates a parameter's gradient
            path, kind = self._owners.get(id(getattr(node, "variable", None))) or self._innermost() or ("", "")
            return OperationLocation(
                "backward", path, kind, operation, calling_line(in_backward=True), self.passes, node
            )
        if source.stage == "backward" and not is_custom(source.node):  # the gradient of a gradient
            operation = source.operation
        line = calling_line(in_backward=True) or source.where
        return OperationLocation(
            "backward", source.module, source.module_type, operation, line, self.passes, node, source
        )

    def _innermost(self) -> tuple[str, str] | None:
        """The path and type of the running module, if it belongs to the model."""
        modules = self._inside.get(get_ident(), [])
        return next((self._named[id(module)] for module in reversed(modules) if id(module) in self._named), None)

    def _made(self, node: Any) -> OperationLocation | None:
        number, name = node._sequence_nr(), node.name()
        mine = self._kept.get(get_ident(), {}).get(number)
        others = [kept[number] for kept in self._kept.values() if number in kept]
        if mine is None or not same_operation(name, mine[0]):
            mine = next((made for made in others if same_operation(name, made[0])), mine or next(iter(others), None))
        return mine[1] if mine else None

    def _enter(self, module: nn.Module, _: Any) -> None:
        if not torch.compiler.is_compiling():
            self._inside.setdefault(get_ident(), []).append(module)

    def _leave(self, module: nn.Module, *_: Any) -> None:
        modules = self._inside.get(get_ident(), [])
        if not torch.compiler.is_compiling() and any(entered is module for entered in modules):
            while modules.pop() is not module:
                pass

    def _done(self, what: Stage) -> None:
        """Leave the context entered last, and any inner one that raised."""
        while self._doing and self._doing.pop() != what:
            pass

    def _step_begins(self, *_: Any) -> None:
        self._doing.append("update")

    def _step_ends(self, *_: Any) -> None:
        self._done("update")


def is_custom(node: Any) -> bool:
    """Whether a node belongs to a `torch.autograd.Function` (also a checkpoint), which runs its own code."""
    return node is not None and not node.name()[-1:].isdigit()


def plain_path(name: str) -> str:
    """The path of a module or parameter without the parts that torch.compile adds."""
    return ".".join(part for part in name.split(".") if part != COMPILED)


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own model inside a compiled or parallel wrapper."""
    inner = without_compiler(model)
    if inner is None and type(model).__name__ in ("DataParallel", "DistributedDataParallel"):
        inner = model.module
    return unwrapped(inner) if isinstance(inner, nn.Module) else model
