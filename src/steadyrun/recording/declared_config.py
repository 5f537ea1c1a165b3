"""The declared config: any dict is kept whole; the names that are compared with the run are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steadyrun.errors import UsageError
from steadyrun.probes.problems import say

if TYPE_CHECKING:
    from steadyrun.store.writer import RunWriter

_NUMBER = (int, float)
DECLARED: dict[str, tuple[tuple[type, ...], str]] = {
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
    "weight_decay": ((*_NUMBER, list, tuple, dict), "a number, or several"),
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
    """The config as a dict; a clear error if it is not a mapping or a known name has the wrong type of value."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise UsageError(
            f"config must be a dict such as {{'seed': 42, 'lr_max': 3e-4}}, not {type(config).__name__}; "
            "use vars(args) for an argparse namespace, dataclasses.asdict(…) for a dataclass"
        )
    for name, value in config.items():
        if value is not None and name in DECLARED:
            _check(name, value)
    return dict(config)


def _check(name: str, value: Any) -> None:
    kinds, words = DECLARED[name]
    plain = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value  # numpy scalars
    right_kind = isinstance(plain, kinds) and isinstance(plain, bool) == (bool in kinds)  # True is an int as well
    if not right_kind or plain not in _CHOICES.get(name, {plain}):
        raise UsageError(f"config: {name} must be {words}, not {value!r}")


def answer_config(config: Mapping[str, Any], writer: RunWriter, step: int) -> None:
    """Write the notes to the events and print them in one line; rank 0 does so for all."""
    from steadyrun.signals.config_names import config_notes  # needs numpy, which `steadyrun run` leaves to the script

    notes = config_notes(config) if writer.rank == 0 else []
    for note in notes:
        writer.event("config-note", step, name=note.name, nearest=note.nearest, why=note.why)
    if notes:
        say(f"config: {'; '.join(note.why for note in notes)}")
