"""What adapter layers (LoRA and its relatives) say of themselves: their scales, and whether they are merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

_MOST_MODULES = 20


def describe_adapters(model: nn.Module) -> dict[str, Any]:
    """The facts of the manifest's entry `adapters`; empty if no module has a scale of its own or is merged."""
    layers = [(path, module) for path, module in model.named_modules() if _is_layer(module)]
    if not layers:
        return {}
    scales = [scale for _, module in layers for scale in _scales(module)]
    merged = [path for path, module in layers if getattr(module, "merged", False) is True]
    saved = [path for path, module in model.named_modules() if hasattr(module, "modules_to_save")]
    facts: dict[str, Any] = {"layers": len(layers), "merged": len(merged), "saved": saved[:_MOST_MODULES]}
    return facts | ({"scale": [min(scales), max(scales)]} if scales else {})


def _is_layer(module: nn.Module) -> bool:
    parts = {*module._modules, *module._parameters}
    return any(name.lower().startswith("lora") for name in parts)


def _scales(module: nn.Module) -> list[float]:
    """PEFT keeps one scale per adapter, in a dict; layers written by hand have a number."""
    given = next((value for name in ("scaling", "scale") if (value := getattr(module, name, None)) is not None), None)
    values = given.values() if isinstance(given, Mapping) else [given]
    return [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
