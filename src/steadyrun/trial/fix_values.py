"""A change of a trial as values of the program's config, or as lines of its code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from steadyrun.program.model_parts import clean
from steadyrun.program.training_changes import defaults_of, drops
from steadyrun.text import listed
from steadyrun.trial import factor as kinds
from steadyrun.trial import json_values
from steadyrun.trial.batches import rows_of
from steadyrun.trial.settings import COMMON, STANDARD, WARM, usual_settings
from steadyrun.trial.twin import Twin

# Names of settings in configs, in lower case with underscores.
_RATES = {
    *("lr", "lr_max", "lr_min", "max_lr", "min_lr", "base_lr", "peak_lr", "init_lr", "final_lr", "lr_end", "end_lr"),
    *("learning_rate", "max_learning_rate", "min_learning_rate", "learning_rate_min", "learning_rate_max"),
}
_DECAYS = {"weight_decay", "decay", "wd"}
_SMOOTHINGS = {"label_smoothing", "smoothing", "label_smoothing_factor"}
_CLIPS = {"clip", "grad_clip", "max_grad_norm", "clip_grad_norm", "gradient_clip_val", "clip_norm", "grad_norm_clip"}
_WARMUPS = {"warmup", "warmup_steps", "num_warmup_steps", "warmup_iters"}
_BATCHES = {"batch_size", "batch", "train_batch_size", "per_device_train_batch_size"}
_DTYPES = {"dtype", "precision", "amp_dtype", "torch_dtype", "mixed_precision"}
_SETTINGS = {
    "betas": {"betas", "adam_betas"},
    "beta1": {"beta1", "adam_beta1", "b1"},
    "beta2": {"beta2", "adam_beta2", "b2"},
    "eps": {"eps", "epsilon", "adam_eps", "adam_epsilon"},
    "momentum": {"momentum"},
    "alpha": {"alpha"},
    "nesterov": {"nesterov"},
    "amsgrad": {"amsgrad"},
}
# float32 in the notation of the value that it replaces.
_WIDE = {
    **dict.fromkeys(("bfloat16", "float16", "half"), "float32"),
    **dict.fromkeys(("torch.bfloat16", "torch.float16"), "torch.float32"),
    **dict.fromkeys(("bf16", "fp16"), "fp32"),
    **dict.fromkeys(("bf16-mixed", "16-mixed", "bf16-true", "16-true"), "32-true"),
}
_USUAL = {"betas": (0.9, 0.999), "eps": 1e-8, **COMMON}  # if the optimizer is unknown
_DIGITS = 6  # of a learning rate; more would be rounding noise

Values = dict[json_values.Path, Any]


@dataclass(frozen=True)
class Facts:
    """The settings of the program that a fix needs."""

    settings: Mapping[str, Any]  # from `optimizer_settings`; empty if unknown
    steps: int  # of a twin

    @property
    def optimizers(self) -> list[Mapping[str, Any]]:
        return list(self.settings.get("optimizers", ()))

    def has(self, setting: str, value: Any, place: int | None = None) -> bool:
        """Whether an optimizer has this value; True if unknown."""
        groups = [group for optimizer in self.optimizers for group in optimizer["groups"] if setting in group]
        held = [group[setting] if place is None else group[setting][place] for group in groups]
        return not self.optimizers or any(each == value for each in held)

    def usual(self, setting: str, value: Any, place: int | None = None) -> Any:
        """The usual value instead of this one; None if this one is usual or torch's default."""
        known = [(each["usual"], each["plain"]) for each in self.optimizers] or [(_USUAL, {})]
        for usual, plain in known:
            if setting in usual:
                new, own = (each.get(setting, usual[setting]) for each in (usual, plain))
                new, own = (new, own) if place is None else (new[place], own[place])
                return None if value in (new, own) else new
        return None


def optimizer_settings(twin: Twin) -> dict[str, Any]:
    """The settings of the program's objects: optimizers with their groups, batch size, dropouts."""
    optimizers = []
    for optimizer in twin.task.optimizers:
        groups = [{name: _number(value) for name, value in group.items()} for group in optimizer.param_groups]
        known = [{name: value for name, value in group.items() if value is not None} for group in groups]
        plain, common = defaults_of(optimizer, *_SETTINGS), usual_settings(optimizer, *_SETTINGS)
        optimizers.append({"kind": type(optimizer).__name__, "groups": known, "usual": common, "plain": plain})
    dropouts = {clean(name): module.p for name, module in twin.model.named_modules() if drops(module)}
    return {"optimizers": optimizers, "batch": rows_of(twin._single(twin.data.training[0])), "dropouts": dropouts}


def _number(value: Any) -> Any:
    """A setting that is a number or a few; a learning rate may be a tensor."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return float(value)
    if isinstance(value, list | tuple) and all(isinstance(each, int | float) for each in value):
        return tuple(value)
    return value if isinstance(value, bool | int | float) else None


# -- values of the config ---------------------------------------------------------------------------


def config_values(factor: kinds.Factor, config: Mapping[str, Any], facts: Facts) -> Values:
    """The config values that a change affects, by path, with their new values."""
    if factor.group == kinds.USER:
        return {tuple(path.split(".")): value for path, value in factor.changes.items()}
    rule = _RULES.get(factor.name) or _RULES.get(factor.group)
    if rule is None:
        return {}
    found = {path: (value, rule(path[-1], value, facts, factor)) for path, value in _leaves(config) if path}
    return {path: new for path, (value, new) in found.items() if new is not _SAME and new != value}


class _Same:
    """A marker for an unchanged value, since None is a value."""


_SAME = _Same()


def _leaves(value: Any, path: json_values.Path = ()) -> Iterator[tuple[json_values.Path, Any]]:
    """All values of a config with their paths; a list is a value, and so are its parts."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
        return
    yield path, value
    if isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from (each for each in _leaves(inner, (*path, index)) if isinstance(inner, Mapping | list | tuple))


def _is(key: str | int, names: set[str]) -> bool:
    return isinstance(key, str) and key.lower().replace("-", "_") in names


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rate(key: str | int, value: Any, _facts: Facts, factor: kinds.Factor) -> Any:
    if not _is(key, _RATES):
        return _SAME
    if isinstance(value, list | tuple) and all(map(_is_number, value)):
        return [_rounded(each * _times(factor)) for each in value]
    return _rounded(value * _times(factor)) if _is_number(value) else _SAME


def _times(factor: kinds.Factor) -> float:
    return factor.rate(0, 1)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _decay(key: str | int, value: Any, facts: Facts, _factor: kinds.Factor) -> Any:
    known = _is(key, _DECAYS) and _is_number(value) and facts.has("weight_decay", value)
    return _like(0.0, value) if known else _SAME


def _dropout(key: str | int, value: Any, _facts: Facts, _factor: kinds.Factor) -> Any:
    name = str(key).lower()
    return _like(0.0, value) if ("dropout" in name or name.endswith("pdrop")) and _is_number(value) else _SAME


def _smoothing(key: str | int, value: Any, _facts: Facts, _factor: kinds.Factor) -> Any:
    return _like(0.0, value) if _is(key, _SMOOTHINGS) and _is_number(value) else _SAME


def _clip(key: str | int, value: Any, _facts: Facts, factor: kinds.Factor) -> Any:
    if not _is(key, _CLIPS) or isinstance(value, bool | str):
        return _SAME
    return None if factor.removes else 1.0


def _usual(key: str | int, value: Any, facts: Facts, _factor: kinds.Factor) -> Any:
    """A usual setting, only for values that the optimizer has: norms also have an epsilon, averages a momentum."""
    name = next((name for name, names in _SETTINGS.items() if _is(key, names)), "")
    if not name:
        return _SAME
    place = {"beta1": 0, "beta2": 1}.get(name)
    setting = name if place is None else "betas"
    given = tuple(value) if isinstance(value, list) else value
    new = facts.usual(setting, given, place)
    if new is None or not facts.has(setting, given, place):
        return _SAME
    return list(new) if isinstance(new, tuple) else new


def _float32(key: str | int, value: Any, _facts: Facts, _factor: kinds.Factor) -> Any:
    if _is(key, _DTYPES) and isinstance(value, str):
        return _WIDE.get(value.lower(), _SAME)
    if _is(key, _DTYPES) and value == 16 and _is_number(value):
        return 32
    return False if _is(key, {"bf16", "fp16", "amp", "use_amp"}) and value is True else _SAME


def _warmup(key: str | int, value: Any, facts: Facts, _factor: kinds.Factor) -> Any:
    steps = round(WARM * facts.steps)
    is_count = isinstance(value, int) and not isinstance(value, bool)  # otherwise a fraction of the run
    return steps if _is(key, _WARMUPS) and is_count and value < steps else _SAME


def _batch(key: str | int, value: Any, _facts: Facts, factor: kinds.Factor) -> Any:
    if not _is(key, _BATCHES) or not isinstance(value, int) or isinstance(value, bool):
        return _SAME
    return 2 * value if _doubles(factor) else max(1, value // 2)


def _doubles(factor: kinds.Factor) -> bool:
    return factor.name.endswith("*2")


_RULES: dict[str, Callable[[str | int, Any, Facts, kinds.Factor], Any]] = {
    kinds.RATE: _rate,
    kinds.DECAY: _decay,
    kinds.DROPOUT: _dropout,
    kinds.SMOOTHING: _smoothing,
    kinds.CLIP: _clip,
    kinds.PRECISION: _float32,
    kinds.WARMUP: _warmup,
    kinds.BATCH: _batch,
    "default-settings": _usual,
}


def _like(new: float, old: Any) -> float | int:
    return int(new) if isinstance(old, int) else new


# -- lines of code ----------------------------------------------------------------------------------


def code_lines(factor: kinds.Factor, facts: Facts) -> list[str]:
    """Lines of code for a change that the config does not have; none for data and parts."""
    if factor.group == kinds.RATE:
        times = _times(factor)
        return _settings(facts, lambda name, value: _rounded(value * times) if name == "lr" else None)
    if factor.group == kinds.DECAY:
        return _settings(facts, lambda name, value: 0.0 if name == "weight_decay" and value else None)
    if factor.name == "default-settings":
        return _settings(facts, facts.usual)
    if factor.name in STANDARD:
        made, rate = STANDARD[factor.name]
        was = ", ".join(str(optimizer["kind"]) for optimizer in facts.optimizers)
        return [f"torch.optim.{made.__name__}(model.parameters(), lr={rate:g})" + (f"  # was {was}" if was else "")]
    if factor.group == kinds.BATCH:
        rows = facts.settings.get("batch")
        new = "…" if rows is None else 2 * rows if _doubles(factor) else rows // 2
        return [f"torch.utils.data.DataLoader(..., batch_size={new})" + (f"  # was {rows}" if rows else "")]
    if factor.group == kinds.WARMUP:
        steps = max(1, round(WARM * facts.steps))
        return [f"torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / {steps}, total_iters={steps})"]
    if factor.group == kinds.CLIP:
        call = "torch.nn.utils.clip_grad_norm_(model.parameters()"
        return [f"# remove {call}, ...)" if factor.removes else f"{call}, 1.0)  # before optimizer.step()"]
    if factor.group == kinds.DROPOUT:
        held = facts.settings.get("dropouts", {})
        return ["torch.nn.Dropout(p=0.0)" + (f"  # was p={max(held.values()):g} in {listed([*held])}" if held else "")]
    return _PLAIN.get(factor.group, [])


_PLAIN = {
    kinds.SMOOTHING: ["torch.nn.functional.cross_entropy(..., label_smoothing=0.0)"],
    kinds.PRECISION: ["model.float()  # and no torch.autocast"],
}


def _settings(facts: Facts, change: Callable[[str, Any], Any]) -> list[str]:
    """One line per optimizer, or per group with its own values, with new and old settings."""
    lines = []
    for optimizer in facts.optimizers:
        for group in optimizer["groups"]:
            own = {**group, "lr": group.get("initial_lr", group.get("lr"))}  # without the schedule
            new = {name: change(name, value) for name, value in own.items() if value is not None}
            new = {name: value for name, value in new.items() if value is not None and value != own[name]}
            if new:
                now = ", ".join(f"{name}={_short(value)}" for name, value in new.items())
                was = ", ".join(f"{name}={_short(own[name])}" for name in new)
                lines.append(f"torch.optim.{optimizer['kind']}(..., {now})  # was {was}")
    return list(dict.fromkeys(lines))


def _short(value: Any) -> str:
    return f"{value:.{_DIGITS}g}" if _is_number(value) else str(value)
