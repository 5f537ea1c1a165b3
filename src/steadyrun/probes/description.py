"""What is read off the live objects at `watch` and kept in the manifest."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.probes.optimizer_steps import OptimizerLike
from steadyrun.program.model_parts import clean
from steadyrun.program.torch_compat import is_compiled_module

_MOST_MODULES = 500


def named_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters under clean names, each once."""
    return [(clean(name), parameter) for name, parameter in model.named_parameters()]


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Class, sizes, tied weights, and the modules that hold parameters."""
    parameters = named_parameters(model)
    modules = [
        {"path": clean(path), "class": type(module).__name__, "parameters": sum(p.numel() for p in own)}
        for path, module in model.named_modules()
        if (own := list(module.parameters(recurse=False)))
    ]
    return {
        "class": type(model).__name__,
        "parameters": sum(p.numel() for _, p in parameters),
        "trainable": sum(p.numel() for _, p in parameters if p.requires_grad),
        "tied": _tied(model),
        "declares_tied": declares_tied(model),
        "modules": modules[:_MOST_MODULES],
        "modules_left_out": max(0, len(modules) - _MOST_MODULES),
        "parameter_dtypes": sorted({str(p.dtype).removeprefix("torch.") for _, p in parameters}),
        "devices": sorted({str(p.device) for _, p in parameters}),
        "dropout": dropout_rates(model),
    }


def dropout_rates(model: nn.Module) -> dict[str, float]:
    """The fraction that each dropping module sets to zero, by its path; those that drop nothing are left out."""
    rates = {clean(path): _dropped(module) for path, module in model.named_modules()}
    return dict([(path, rate) for path, rate in rates.items() if rate > 0][:_MOST_MODULES])


def _dropped(module: nn.Module) -> float:
    """Dropout layers call it `p`; attention and recurrent layers drop inside and call it `dropout`."""
    rate: object = 0.0
    if isinstance(module, nn.modules.dropout._DropoutNd):
        rate = module.p
    elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
        rate = module.dropout
    return float(rate) if isinstance(rate, int | float) else 0.0


def is_compiled(model: nn.Module) -> bool:
    """Whether torch.compile wraps the model or any part of it, or Lightning has compiled its steps."""
    return any(is_compiled_module(module) for module in model.modules())


def describe_weights(model: nn.Module) -> list[dict[str, Any]]:
    """Statistics of every parameter as it is now: mean, standard deviation, smallest, largest, fan-in."""
    kinds = {clean(path): type(module).__name__ for path, module in model.named_modules()}
    weights = []
    named = named_parameters(model)
    for (name, parameter), numbers in zip(named, _statistics([each for _, each in named]), strict=True):
        holder = name.rpartition(".")[0]
        weights.append(
            {
                "name": name,
                "module": kinds.get(holder, ""),
                "shape": list(parameter.shape),
                "fan_in": _fan_in(parameter, kinds.get(holder, "")),
                "trainable": parameter.requires_grad,
                **dict(zip(("mean", "std", "min", "max"), numbers, strict=True)),
            }
        )
    return weights


def describe_groups(optimizers: list[OptimizerLike], model: nn.Module) -> list[dict[str, Any]]:
    """The param groups: their settings, and which parameters each holds."""
    names = {id(parameter): name for name, parameter in named_parameters(model)}
    groups = []
    for index, optimizer in enumerate(optimizers):
        for group in optimizer.param_groups:
            members = group["params"]
            groups.append(
                {
                    "optimizer": index,
                    "class": type(optimizer).__name__,
                    "settings": {key: _plain(value) for key, value in group.items() if key != "params"},
                    "parameters": [names.get(id(p), "not in the model") for p in members],
                    "dimensions": sorted({p.dim() for p in members}),
                    "elements": sum(p.numel() for p in members),
                }
            )
    return groups


def describe_tokenizer(tokenizer: Any) -> dict[str, Any]:
    """A fingerprint that changes when the tokenizer would tokenize differently, and its size."""
    inner = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(inner, "to_str"):
        text = inner.to_str()
    elif hasattr(tokenizer, "get_vocab"):
        text = json.dumps(sorted(tokenizer.get_vocab().items()))
    else:
        raise TypeError(f"{type(tokenizer).__name__} has neither to_str nor get_vocab")
    size = tokenizer.get_vocab_size() if hasattr(tokenizer, "get_vocab_size") else len(tokenizer.get_vocab())
    return {
        "class": type(tokenizer).__name__,
        "fingerprint": hashlib.sha256(text.encode()).hexdigest(),
        "vocab_size": int(size),
    }


def parameter_dtype(model: nn.Module) -> str:
    """The dtype most parameters have, in the words of the config: fp32, bf16, fp16."""
    sizes: dict[torch.dtype, int] = {}
    for parameter in model.parameters():
        sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + parameter.numel()
    return dtype_name(max(sizes, key=lambda dtype: sizes[dtype]) if sizes else torch.float32)


def dtype_name(dtype: torch.dtype) -> str:
    short = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}
    return short.get(dtype, str(dtype).removeprefix("torch."))


def _statistics(parameters: Sequence[Tensor]) -> list[list[float]]:
    """Mean, standard deviation, smallest and largest of each; one copy to the host for all."""
    unknown = torch.full((4,), torch.nan)
    rows = [unknown if (values := _values(each)) is None else _four(values) for each in parameters]
    devices = {row.device for row in rows}
    known = {device: torch.stack([row for row in rows if row.device == device]).tolist() for device in devices}
    order = {device: iter(lists) for device, lists in known.items()}
    return [next(order[row.device]) for row in rows]


def _values(parameter: Tensor) -> Tensor | None:
    values: Tensor = getattr(parameter, "to_local", lambda: parameter)().detach()
    return None if not values.numel() or values.device.type == "meta" else values


_MEASURED = 2**20  # elements, evenly spaced: the standard deviation of a larger tensor is right to 0.1%
_PLAIN_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _four(values: Tensor) -> Tensor:
    """Smallest and largest of all elements; mean and standard deviation of some, so that `watch` is quick."""
    values = values if values.dtype in _PLAIN_FLOATS else values.float()
    low, high = torch.aminmax(values)
    flat = values.reshape(-1)
    some = flat[:: -(-flat.numel() // _MEASURED)].float()
    return torch.stack([some.mean(), some.std(correction=0), low.float(), high.float()])


def _fan_in(parameter: Tensor, kind: str) -> int | None:
    if parameter.dim() < 2 or "Embedding" in kind:
        return None
    if kind == "Conv1D":  # the GPT-2 code in transformers stores (inputs, outputs)
        return int(parameter.shape[0])
    return math.prod(parameter.shape[1:])


def _tied(model: nn.Module) -> list[list[str]]:
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(clean(name))
    return [same for same in names.values() if len(same) > 1]


def declares_tied(model: nn.Module) -> bool:
    """Whether the model's own configuration says that embedding and head are one, and it has both."""
    tied = getattr(getattr(model, "config", None), "tie_word_embeddings", None)
    head = getattr(model, "get_output_embeddings", lambda: None)
    try:
        return tied is True and head() is not None
    except Exception:  # a model that cannot say has not declared it
        return False


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, Tensor) else value
