"""The declared config: any plain dict is kept; the names the trees compare with what happened are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steadyrun.errors import UsageError

_NUMBER = (int, float)
_DECLARED: dict[str, tuple[tuple[type, ...], str]] = {
    "seed": ((int,), "a whole number"),
    "dtype": ((str,), "'fp32', 'bf16' or 'fp16'"),
    "lr_max": (_NUMBER, "a number"),
    "lr_min": (_NUMBER, "a number"),
    "warmup_steps": ((int,), "a whole number"),
    "total_steps": ((int,), "a whole number"),
    "schedule": ((str,), "a word such as 'cosine' or 'constant'"),
    "batch_size": ((int,), "a whole number"),
    "accumulation": ((int,), "a whole number"),
    "clip": (_NUMBER, "a number"),
    "weight_decay": (_NUMBER, "a number"),
    "reduction": ((str,), "'mean' or 'sum'"),
    "vocab_size": ((int,), "a whole number"),
    "num_classes": ((int,), "a whole number"),
    "pad_id": ((int,), "a whole number"),
    "init": ((str,), "'random' or 'pretrained'"),
    "baseline_loss": (_NUMBER, "a number"),
    "val_every": ((int,), "a whole number"),
    "causal": ((bool,), "True or False"),
}
_CHOICES = {"reduction": {"mean", "sum"}, "init": {"random", "pretrained"}}


def check_config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The config as a dict; a clear error where it is no mapping or a known name has a wrong kind of value."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise UsageError(
            f"config must be a dict such as {{'seed': 42, 'lr_max': 3e-4}}, not {type(config).__name__}; "
            "use vars(args) for an argparse namespace, dataclasses.asdict(…) for a dataclass"
        )
    for name, value in config.items():
        if value is not None and name in _DECLARED:
            _check(name, value)
    return dict(config)


def _check(name: str, value: Any) -> None:
    kinds, words = _DECLARED[name]
    plain = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value  # numpy scalars
    right_kind = isinstance(plain, kinds) and isinstance(plain, bool) == (bool in kinds)  # True is an int, too
    if not right_kind or plain not in _CHOICES.get(name, {plain}):
        raise UsageError(f"config: {name} must be {words}, not {value!r}")
