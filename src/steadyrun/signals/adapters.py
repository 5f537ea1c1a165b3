"""The adapters of a run (LoRA and its relatives), by the names of their parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals

_DOWN = r"(?:^|[._])lora_?(?:a|down|embedding_a)(?:[._]|$)"
_UP = r"(?:^|[._])lora_?(?:b|up|embedding_b)(?:[._]|$)"
_OTHER = r"(?:^|[._])(?:lora|dora|adapter|adapters|ia3)(?:[._]|$)|lora_magnitude"
_MEANT = r"modules_to_save|trainable_tokens|embed|wte|lm_head|head|score|classifier|norm|ln_|bias"
_PARTS = ("lora", "dora", "adapter", "ia3")  # one of them is in every name of an adapter


def is_adapter(name: str) -> bool:
    """Whether a parameter is one of an adapter; most models have none, and compile no expression for it."""
    lowered = name.lower()
    return any(part in lowered for part in _PARTS) and any(_has(kind, name) for kind in (_DOWN, _UP, _OTHER))


def _has(pattern: str, name: str) -> bool:
    return re.search(pattern, name, re.IGNORECASE) is not None


@dataclass(frozen=True)
class Adapters:
    """Parameters of adapters and of their base, as they were at the start."""

    parameters: dict[str, dict[str, Any]]  # of the adapters, by name
    base: dict[str, dict[str, Any]]
    optimized: frozenset[str]  # names of all parameters in an optimizer
    rates: dict[str, float]  # the first learning rate of each of them

    @property
    def up(self) -> dict[str, dict[str, Any]]:
        """The matrices that must start at zero, so that the adapted model equals its base."""
        return {name: weight for name, weight in self.parameters.items() if _has(_UP, name)}

    @property
    def trained_base(self) -> list[str]:
        """Base weights that train although no adapter needs it: not embeddings, norms, biases or heads."""
        return [
            name
            for name, weight in self.base.items()
            if weight.get("trainable") and name in self.optimized and not _has(_MEANT, name)
        ]


def adapters_of(run: Signals) -> Adapters:
    """The adapters of a run; `NotApplicable` if it has none."""
    weights = {str(weight.get("name")): weight for weight in run.listed("initial_weights")}
    own = {name: weight for name, weight in weights.items() if is_adapter(name)}
    if not any(_has(_DOWN, name) or _has(_UP, name) for name in own):
        raise NotApplicable("the model has no LoRA adapters")
    base = {name: weight for name, weight in weights.items() if name not in own}
    rates: dict[str, float] = {}
    for group in run.listed("param_groups"):
        settings = group.get("settings")
        rate = settings.get("initial_lr", settings.get("lr")) if isinstance(settings, dict) else None
        names = group.get("parameters")
        for name in names if isinstance(names, list) else []:
            rates[str(name)] = float(rate) if isinstance(rate, int | float) else float("nan")
    return Adapters(own, base, frozenset(rates), rates)
