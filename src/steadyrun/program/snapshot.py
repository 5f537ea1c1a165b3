"""The state of a training program between two steps: taken without a trace, and put back exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.errors import UsageError
from steadyrun.program.model_parts import clean, unwrapped
from steadyrun.program.packing import Packed, arrived, pack, unpack
from steadyrun.program.tensor_files import damage
from steadyrun.program.torch_compat import foreach_copy_, foreach_norm, scaler_stages

_SHOWN = 3


@dataclass
class Objects:
    """What a program consists of; `model` is the user's own, inside of any wrapper."""

    model: nn.Module
    optimizers: list[Any]
    scheduler: Any | None = None
    scaler: Any | None = None
    loader: Any | None = None

    def __post_init__(self) -> None:
        self.model = unwrapped(self.model)


class Pool:
    """Buffers that are used again: fresh memory of this size costs more than the copying."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self.grew = False  # whether the last copies needed fresh memory

    @property
    def empty(self) -> bool:
        return not self._buffers

    def copies(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of `tensors` on the CPU. Those from a CUDA device are started and not waited for."""
        self.grew = False
        kept = {name: self._buffer(name, tensor) for name, tensor in tensors.items()}
        self._buffers = kept
        on_cpu = [name for name, tensor in tensors.items() if tensor.device.type == "cpu"]
        if on_cpu:
            foreach_copy_([kept[name] for name in on_cpu], [tensors[name] for name in on_cpu])
        for name, tensor in tensors.items():
            if tensor.device.type != "cpu":
                kept[name].copy_(tensor, non_blocking=tensor.device.type == "cuda")
        return dict(kept)

    def _buffer(self, name: str, like: Tensor) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is not None and buffer.shape == like.shape and buffer.dtype == like.dtype:
            return buffer
        self.grew = True
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=like.device.type == "cuda")


def take(objects: Objects, pool: Pool | None = None) -> Packed:
    """A copy of everything that a step reads and writes, except random generators and data."""
    packed = refer(objects)
    with torch.no_grad():
        packed.tensors = (pool or Pool()).copies(packed.tensors)
    return packed


def refer(objects: Objects) -> Packed:
    """The state with the program's own tensors, not copied yet."""
    return pack(_state(objects), copy=False)


def bytes_to_come(objects: Objects) -> int:
    """How much optimizers that have not taken a step yet will add to the state: moments as large as the parameters."""
    return sum(
        _moments(optimizer) * parameter.nbytes
        for optimizer in objects.optimizers
        if not getattr(optimizer, "state", True)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad
    )


def _moments(optimizer: Any) -> int:
    usual = getattr(optimizer, "defaults", {})
    return 2 if "betas" in usual else 1 if usual.get("momentum") else 0


def restore(objects: Objects, tree: Any, tensors: Mapping[str, Tensor]) -> None:
    """Put a state back; a clear error where the objects are others than those it was taken from."""
    saved = unpack(tree, tensors, _device(objects.model))
    with damage("the stored state", "is damaged, or does not fit the task"):
        _put_back(objects, saved)


def _put_back(objects: Objects, saved: dict[str, Any]) -> None:
    _fill("parameter", saved["parameters"], _parameters(objects.model))
    _fill("buffer", saved["buffers"], _buffers(objects.model))
    _set_modules(objects.model, saved)
    if len(saved["optimizers"]) != len(objects.optimizers):
        raise UsageError(f"the run has {len(saved['optimizers'])} optimizers, the task {len(objects.optimizers)}")
    for optimizer, state in zip(objects.optimizers, saved["optimizers"], strict=True):
        _load_optimizer(optimizer, state)
    if objects.scheduler is not None and saved["scheduler"] is not None:
        objects.scheduler.load_state_dict(saved["scheduler"])
    if objects.scaler is not None and saved["scaler"] is not None:
        _load_scaler(objects.scaler, saved["scaler"])
    for parameter in objects.model.parameters():
        parameter.grad = None


def settings(objects: Objects) -> dict[str, Any]:
    """A state without its tensors: modes, numbers that modules hold, settings of the parameter groups, the scaler."""
    model = objects.model
    return {
        "in_eval": [name for name, module in model.named_modules() if not module.training],
        "attributes": {name: numbers for name, module in model.named_modules() if (numbers := _numbers(module))},
        "groups": [
            {name: value for name, value in group.items() if type(value) in (bool, int, float, tuple)}
            for optimizer in objects.optimizers
            for group in optimizer.param_groups
        ],
        "scaler": None if objects.scaler is None else objects.scaler.state_dict(),
    }


def is_finite(packed: Packed, *, parameters_only: bool = False) -> bool:
    """Whether no parameter and no moment is NaN or infinite. A sum shows it and is faster than looking at each."""
    looked_at = ("parameters",) if parameters_only else ("parameters", "optimizers")
    for name, tensor in packed.tensors.items():
        if tensor.is_floating_point() and tensor.numel() and name.startswith(looked_at):
            total = tensor.sum(dtype=torch.float64)
            if not torch.isfinite(total):
                return False
    return True


def all_finite(parameters: Sequence[Tensor]) -> bool:
    """Whether no number is NaN or infinite. The norm in float64: in float32 it overflows where the numbers do not."""
    floating = [tensor.detach() for tensor in parameters if tensor.is_floating_point() and tensor.numel()]
    norms = foreach_norm(floating, 2, torch.float64) if floating else ()
    return all(bool(torch.isfinite(norm)) for norm in norms)


def _state(objects: Objects) -> dict[str, Any]:
    model = objects.model
    return {
        "parameters": {name: parameter.detach() for name, parameter in _parameters(model).items()},
        "buffers": _buffers(model),
        "in_eval": [clean(name) for name, module in model.named_modules() if not module.training],
        "frozen": [name for name, parameter in _parameters(model).items() if not parameter.requires_grad],
        "attributes": {clean(name): numbers for name, module in model.named_modules() if (numbers := _numbers(module))},
        "optimizers": [optimizer.state_dict() for optimizer in objects.optimizers],
        "scheduler": _state_dict(objects.scheduler),
        "scaler": _scaler_state(objects.scaler),
        "loader": _state_dict(objects.loader),
    }


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """By clean name; a tied one once, under its first name."""
    return {clean(name): parameter for name, parameter in model.named_parameters()}


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    return {clean(name): buffer for name, buffer in model.named_buffers()}


def _numbers(module: nn.Module) -> dict[str, bool | int | float]:
    """Numbers that a module holds as plain attributes: a temperature, a probability, a counter."""
    return {
        name: value
        for name, value in vars(module).items()
        if type(value) in (bool, int, float) and name != "training" and not name.startswith("_")
    }


def _state_dict(stateful: Any) -> Any:
    give = getattr(stateful, "state_dict", None)
    return give() if callable(give) else None


def _scaler_state(scaler: Any) -> Any:
    """What `GradScaler.state_dict` gives, without waiting for the device."""
    if scaler is None or not scaler.is_enabled():
        return None
    if not isinstance(getattr(scaler, "_scale", None), Tensor):
        return _state_dict(scaler)
    return {
        "scale": scaler._scale,
        "growth_factor": scaler._growth_factor,
        "backoff_factor": scaler._backoff_factor,
        "growth_interval": scaler._growth_interval,
        "_growth_tracker": scaler._growth_tracker,
    }


def _device(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _fill(what: str, saved: Mapping[str, Tensor], mine: Mapping[str, Tensor]) -> None:
    if not all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in saved.items()):
        raise TypeError(f"{what}s that are not tensors")
    if set(saved) != set(mine):
        raise UsageError(_differs(what, saved, mine))
    for name, tensor in saved.items():
        if mine[name].shape != tensor.shape:
            raise UsageError(
                f"the factory builds another model than the run had: {what} {name} has shape "
                f"{tuple(mine[name].shape)}, in the run {tuple(tensor.shape)}"
            )
        with torch.no_grad():
            if mine[name].dtype != tensor.dtype:
                mine[name].data = mine[name].data.to(tensor.dtype)
            if not torch.equal(mine[name], tensor):  # an expanded constant cannot be written, and need not be
                mine[name].copy_(tensor)


def _differs(what: str, saved: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    parts = [
        f"{words} {', '.join(sorted(names)[:_SHOWN])}{' …' if len(names) > _SHOWN else ''}"
        for words, names in (
            ("only the run has", set(saved) - set(mine)),
            ("only the task has", set(mine) - set(saved)),
        )
        if names
    ]
    return f"the factory builds another model than the run had ({what}s): {'; '.join(parts)}"


def _set_modules(model: nn.Module, saved: Mapping[str, Any]) -> None:
    in_eval, frozen, attributes = set(saved["in_eval"]), set(saved["frozen"]), saved["attributes"]
    for name, module in model.named_modules():
        module.training = clean(name) not in in_eval
        for attribute, value in attributes.get(clean(name), {}).items():
            if type(vars(module).get(attribute)) in (bool, int, float):
                setattr(module, attribute, value)
    for name, parameter in _parameters(model).items():
        parameter.requires_grad_(name not in frozen)


def _load_optimizer(optimizer: Any, saved: dict[str, Any]) -> None:
    mine = [len(group["params"]) for group in optimizer.param_groups]
    theirs = [len(group["params"]) for group in saved["param_groups"]]
    if mine != theirs:
        raise UsageError(
            f"the factory builds another optimizer than the run had: parameter groups of {mine} parameters, "
            f"in the run {theirs}"
        )
    optimizer.load_state_dict(saved)
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        for name, value in saved["state"].get(number, {}).items():
            loaded = optimizer.state[parameter].get(name)
            # torch casts what it loads to the dtype of the parameter; a moment kept in more bits would lose them.
            if isinstance(value, Tensor) and isinstance(loaded, Tensor) and loaded.dtype != value.dtype:
                optimizer.state[parameter][name] = value.clone()


def _load_scaler(scaler: Any, saved: dict[str, Any]) -> None:
    scaler.load_state_dict(
        {name: number.item() if isinstance(number, Tensor) else number for name, number in saved.items()}
    )
    stages = scaler_stages(scaler)
    if stages is not None:  # a step that was left in the middle
        stages.clear()


def remember(objects: Objects, pool: Pool | None = None) -> Packed:
    """A state in memory to `restore`; a `pool` makes taking many of them cheap, each replacing the last."""
    packed = take(objects, pool)
    arrived(packed)
    return packed
