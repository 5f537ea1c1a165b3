"""A tracker for Accelerate: records what `accelerator.log` gets and, with `watch`, what the probes measure.

from steadyrun.integrations.accelerate import SteadyrunTracker

tracker = SteadyrunTracker("experiments/my-run")
accelerator = Accelerator(log_with=tracker)
accelerator.init_trackers("my-project", config={"lr_max": 3e-4})
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
tracker.watch(model, optimizer, scheduler=scheduler)  # optional: gradients, activations, audits, the monitor
...
accelerator.log({"train_loss": loss, "lr": scheduler.get_last_lr()[0]}, step=step)
accelerator.end_training()
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrun.errors import UsageError
from steadyrun.integrations.callbacks import folder_of, innermost
from steadyrun.probes.scalars import is_tensor
from steadyrun.recording.declared_config import check_config
from steadyrun.recording.record import record
from steadyrun.recording.run import Run

if TYPE_CHECKING:
    from torch import nn

try:
    from accelerate.tracking import GeneralTracker
except ImportError as problem:
    raise ImportError("SteadyrunTracker needs accelerate: pip install 'steadyrun[accelerate]'") from problem

# Names that scripts use for series with a fixed name.
_ROLES = {
    "loss": "loss",
    "train_loss": "loss",
    "train/loss": "loss",
    "training_loss": "loss",
    "val_loss": "val_loss",
    "eval_loss": "val_loss",
    "valid_loss": "val_loss",
    "validation_loss": "val_loss",
    "val/loss": "val_loss",
    "eval/loss": "val_loss",
    "lr": "lr",
    "learning_rate": "lr",
    "train/lr": "lr",
    "train/learning_rate": "lr",
    "grad_norm": "grad_norm",
    "train/grad_norm": "grad_norm",
}


class SteadyrunTracker(GeneralTracker):
    """Accelerate tracker that records what `accelerator.log` gets; with `watch`, everything that `run.watch` measures.

    `path` is the run directory. A new training gets a numbered folder beside an old one (`my-run-2`); `resume=True`
    continues the last run. `config` and all other options are those of `steadyrun.record`. Accelerate logs on the main
    process only; a process that calls `watch` and `step` records into files of its own. `.run` is the run.
    """

    name = "steadyrun"
    requires_logging_directory = False
    main_process_only = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: Mapping[str, Any] | None = None,
        resume: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.run: Run | None = None
        self._path, self._config, self._resume = Path(path), check_config(config), resume
        self._options = options
        self._steps_are_ours = False  # `step` is called: what is logged as a loss is a second copy of it

    @property
    def tracker(self) -> Run | None:
        """The run being recorded, None before `init_trackers`."""
        return self.run

    def start(self) -> None:
        """Do nothing yet: the run starts with its config or the first number."""

    def store_init_configuration(self, values: Mapping[str, object]) -> None:
        """Take the config of `accelerator.init_trackers(…, config=…)` as the declared config of the run."""
        self._config = check_config({**_plain(values), **self._config})
        self._begin()

    def log(self, values: Mapping[str, object], step: int | None = None, **_: object) -> None:
        """Record what `accelerator.log` was given; a loss makes it a step if `step` is never called."""
        run = self._begin()
        named = _by_role(values)
        if self._steps_are_ours:
            named = {f"logged_{name}" if name in {"loss", "lr", "grad_norm"} else name: x for name, x in named.items()}
        run.log(step=step, **named)

    def watch(self, model: nn.Module, optimizer: object = None, **options: Any) -> None:
        """Call `run.watch` with what `accelerator.prepare` returned; wrapped optimizer and scheduler are unwrapped."""
        real = innermost(optimizer)
        options.setdefault("scaler", getattr(optimizer, "scaler", None))
        scheduler = options.pop("scheduler", None)
        self._begin().watch(model, real, scheduler=getattr(scheduler, "scheduler", scheduler), **options)

    def step(self, loss: object, **options: Any) -> None:
        """Call `run.step`: once per optimizer step, with the tensor itself."""
        self._steps_are_ours = True
        self._begin().step(loss, **options)

    def finish(self) -> None:
        """End the run; `accelerator.end_training` calls it."""
        run, self.run = self.run, None
        if run is not None:
            run.close()

    def _begin(self) -> Run:
        if self.run is None:
            options = dict(self._options)
            root = folder_of(self._path, options, goes_on=self._resume)
            self.run = record(root, self._config, **options)
        return self.run


def _by_role(values: Mapping[str, object]) -> dict[str, object]:
    """Numbers under steadyrun's names; the first of two that mean the same. Everything else is left out."""
    numbers: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, bool) or not (isinstance(value, int | float) or _is_one_number(value)):
            continue
        known = _ROLES.get(name, name)
        ours = name if known in numbers else known
        numbers["logged_step" if ours == "step" else ours] = value
    return numbers


def _is_one_number(value: Any) -> bool:
    if is_tensor(value):
        return bool(value.numel() == 1)
    return getattr(value, "shape", None) == () and hasattr(value, "item")  # a number of numpy's


def _plain(values: object) -> dict[str, object]:
    if not isinstance(values, Mapping):
        raise UsageError(f"init_trackers: config must be a dict, not {type(values).__name__}; use vars(args)")
    return dict(values)
