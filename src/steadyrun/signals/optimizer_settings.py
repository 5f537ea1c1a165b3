"""The settings of the optimizers' param groups."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals

_DECOUPLED = {"AdamW", "Adafactor", "Lion", "NAdamW", "RAdamW", "LAMB", "Muon"}


@dataclass(frozen=True)
class GroupSettings:
    """One param group: its number, its optimizer's class and its settings."""

    number: int
    kind: str
    settings: Mapping[str, Any]

    @property
    def decay(self) -> float:
        return number(self.settings.get("weight_decay")) or 0.0

    @property
    def decoupled(self) -> bool:
        """Whether decay shrinks the weights directly instead of being added to the gradient."""
        named = self.settings.get("decoupled_weight_decay")
        return named if isinstance(named, bool) else self.kind in _DECOUPLED

    @property
    def rescales(self) -> bool:
        """Whether the size of an update does not depend on the size of the gradient, as in Adam."""
        return "eps" in self.settings or "betas" in self.settings

    @property
    def betas(self) -> tuple[float, float] | None:
        listed = self.settings.get("betas")
        pair = [number(beta) for beta in listed] if isinstance(listed, list | tuple) else []
        if len(pair) != 2 or pair[0] is None or pair[1] is None:
            return None
        return pair[0], pair[1]

    @property
    def memory(self) -> float:
        """The number of steps over which the optimizer averages gradients: 1 without momentum."""
        momentum = self.betas[0] if self.betas else number(self.settings.get("momentum")) or 0.0
        return 1 / (1 - momentum) if momentum < 1 else math.inf


def rescaled(run: Signals) -> bool:
    """Whether only the learning rate sets how far weights move, as in Adam; False if the optimizer is not known."""
    try:
        return all(group.rescales for group in groups(run))
    except MissingSignal:
        return False


def groups(run: Signals) -> list[GroupSettings]:
    """The param groups; `MissingSignal` if no optimizer was watched."""
    listed = [
        GroupSettings(index, str(group.get("class")), settings)
        for index, group in enumerate(run.listed("param_groups"))
        if isinstance(settings := group.get("settings"), dict)
    ]
    if not listed:
        raise MissingSignal("param_groups", "no optimizer was watched", "call run.watch(model, optimizer)")
    return listed


def maximizes(run: Signals) -> bool:
    """Whether an optimizer maximizes (`maximize=True`)."""
    settings = [group.get("settings") for group in run.listed("param_groups")]
    return any(isinstance(setting, dict) and setting.get("maximize") is True for setting in settings)
