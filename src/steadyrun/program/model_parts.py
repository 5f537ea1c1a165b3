"""Finds the parts of a model that are worth a line on a panel.

Transformers and ResNets are stacks: a list of alike, composite modules. The stream that enters the first
block, every block's output and the norm after the last block are followed. A model without a stack (an MLP,
a plain CNN, an RNN) is followed layer by layer. `run.watch(blocks=[…])` names them instead.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from steadyrun.errors import UsageError
from steadyrun.program.torch_compat import COMPILED, PATH_PARTS

_MOST = 128
_MODULE_WRAPPERS = ("DistributedDataParallel", "DataParallel", "AveragedModel", "FullyShardedDataParallel")


@dataclass(frozen=True)
class Block:
    """One followed part: `input` means that the module's input is measured, not its output."""

    name: str
    role: str  # embedding, block, norm or layer
    module: nn.Module
    input: bool = False


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own model inside torch.compile, DDP and their like."""
    inner = model._modules.get(COMPILED)
    if inner is None and type(model).__name__ in _MODULE_WRAPPERS:
        inner = model._modules.get("module")
    return model if inner is None else unwrapped(inner)


def clean(path: str) -> str:
    """A path without the names that torch.compile and FSDP put into the middle of a model."""
    return ".".join(part for part in path.split(".") if part not in PATH_PARTS)


def find_blocks(model: nn.Module, patterns: Sequence[str] | None = None) -> list[Block]:
    """The parts to follow, in the order of the model."""
    everything = [(clean(path), module) for path, module in model.named_modules()]
    modules = [(path, module) for path, module in everything if path]
    if patterns is not None:
        return _named(modules, patterns)
    stacked = _stacked(everything)
    return _thinned(_around(modules, stacked) if stacked else _layers(modules))


def groups_of(names: Sequence[str], blocks: Sequence[Block]) -> list[str]:
    """For each parameter name the block it belongs to, or the module that holds it if that is not a block."""
    paths = sorted((block.name for block in blocks if not block.input), key=len, reverse=True)
    groups = []
    for name in names:
        inside = (path for path in paths if name == path or name.startswith(path + "."))
        groups.append(next(inside, name.rpartition(".")[0] or name))
    if len(set(groups)) > _MOST:
        groups = [group if group in paths else group.split(".")[0] for group in groups]
    return groups


def _named(modules: list[tuple[str, nn.Module]], patterns: Sequence[str]) -> list[Block]:
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(path, pattern) for path, _ in modules):
            known = ", ".join(path for path, _ in modules[:12])
            raise UsageError(f"blocks: no module matches {pattern!r}. The model has {known} …")
    matched = [(p, m) for p, m in modules if any(fnmatch.fnmatchcase(p, pattern) for pattern in patterns)]
    return [Block(path, "block", module) for path, module in matched]


def _stacked(modules: list[tuple[str, nn.Module]]) -> list[Block]:
    """The members of every outermost list of alike composite modules."""
    blocks: list[Block] = []
    for path, module in modules:
        if any(path.startswith(block.name + ".") for block in blocks) or not _is_stack(module):
            continue
        prefix = f"{path}." if path else ""
        blocks += [Block(clean(prefix + name), "block", child) for name, child in module.named_children()]
    return blocks


def _is_stack(module: nn.Module) -> bool:
    children = list(module.children())
    least = 1 if isinstance(module, nn.ModuleList) else 2
    return (
        isinstance(module, nn.ModuleList | nn.Sequential)
        and len(children) >= least
        and len({type(child) for child in children}) == 1
        and all(any(True for _ in child.children()) and _has_parameters(child) for child in children)
    )


def _around(modules: list[tuple[str, nn.Module]], blocks: list[Block]) -> list[Block]:
    """The blocks, with what enters the first and the norm that follows the last."""
    outside = [(p, m) for p, m in modules if not any(p == b.name or p.startswith(b.name + ".") for b in blocks)]
    embeds = any(isinstance(module, nn.Embedding) for _, module in outside)
    entry = Block("embed" if embeds else "stem", "embedding", blocks[0].module, input=True)
    order = [path for path, _ in modules]
    last = order.index(blocks[-1].name)
    after = [(p, m) for p, m in outside if order.index(p) > last and is_norm(m)]
    return [entry, *blocks, *(Block(path, "norm", module) for path, module in after[-1:])]


def _layers(modules: list[tuple[str, nn.Module]]) -> list[Block]:
    return [
        Block(path, "embedding" if isinstance(module, nn.Embedding) else "layer", module)
        for path, module in modules
        if not is_norm(module) and any(p.dim() >= 2 for p in module.parameters(recurse=False))
    ]


def is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower() and not list(module.children())


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def _thinned(blocks: list[Block]) -> list[Block]:
    """At most `_MOST`, evenly spaced, the first and the last among them."""
    if len(blocks) <= _MOST:
        return blocks
    chosen = {round(index * (len(blocks) - 1) / (_MOST - 1)) for index in range(_MOST)}
    return [block for index, block in enumerate(blocks) if index in chosen]
