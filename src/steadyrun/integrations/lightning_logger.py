"""A logger for Lightning: records what a module logs with `self.log`, its hyperparameters and checkpoints."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrun.integrations.lightning_base import Logger, log, rank_zero_only, val_loss_among
from steadyrun.recording.declared_config import check_config
from steadyrun.recording.record import record
from steadyrun.recording.run import Run

if TYPE_CHECKING:
    from steadyrun.integrations.lightning import SteadyrunCallback

_TRAIN_LOSSES = (
    "train_loss",
    "train/loss",
    "loss",
    "train_loss_step",
    "train/loss_step",
    "loss/train",
    "training_loss",
)
_MOST_WAITING = 1000


class SteadyrunLogger(Logger):
    """Lightning logger that records what a module logs: `Trainer(logger=SteadyrunLogger("experiments/my-run"))`.

    `path` is the run directory; `config` and all other options are those of `steadyrun.record`. Beside a
    `SteadyrunCallback` it writes into the callback's run. Alone it records only what is logged, at the steps at which
    Lightning logs (`log_every_n_steps`): checks that need gradients cannot be answered then.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, config: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.path = Path(path)
        self._config, self._options = check_config(config), options
        self._run: Run | None = None
        self._callback: SteadyrunCallback | None = None
        self._hparams: dict[str, object] = {}
        self._waiting: list[dict[str, object]] = []
        self._ended = False

    def attach(self, callback: SteadyrunCallback) -> None:
        """Write through `callback` from now on."""
        if self._run is not None:
            self._run.close()
            self._run = None
        self._callback = callback

    @property
    def run(self) -> Run | None:
        """The run being recorded."""
        return self._run if self._callback is None else self._callback.run

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self.path.parent)

    @property
    def log_dir(self) -> str:
        return str(self.path)

    @rank_zero_only
    def log_hyperparams(self, params: object, *_args: object, **_more: object) -> None:
        """Add hyperparameters to the run's config; the callback reads them from the module itself."""
        hparams = vars(params) if isinstance(params, Namespace) else params
        self._hparams |= dict(hparams) if isinstance(hparams, Mapping) else {}

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, object], step: int | None = None) -> None:
        """Record what was logged at a step; metrics of a test are left out."""
        names = [name for name in metrics if name != "epoch"]
        if all(name.startswith("test") for name in names):
            return
        if self._callback is not None:
            self._through_the_callback(dict(metrics))
        elif not (self._ended and all(name.startswith(("test", "val")) for name in names)):
            self._alone(dict(metrics), step)

    def after_save_checkpoint(self, checkpoint_callback: object) -> None:
        """Record a saved checkpoint, unless the callback does so."""
        if self._callback is None and self._run is not None:
            self._run.checkpoint(getattr(checkpoint_callback, "_last_checkpoint_saved", None) or None)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """End the run after a training or a test."""
        self._ended, self._waiting = True, []
        if self._run is not None:
            failure = sys.exc_info()[1] if status == "failed" else None
            self._run.close(failure)
            self._run = None

    def _through_the_callback(self, metrics: dict[str, object]) -> None:
        """At the step that the callback has recorded last; the validation loss is recorded by the callback."""
        assert self._callback is not None
        recorded = self._callback.val_loss_name(metrics)
        kept = {name: value for name, value in metrics.items() if name != recorded}
        if (run := self._callback.run) is None:
            self._waiting = [*self._waiting, kept][-_MOST_WAITING:] if not self._ended else []
            return
        for waiting in [*self._waiting, kept]:
            log(run, waiting)
        self._waiting = []

    def _alone(self, metrics: dict[str, object], step: int | None) -> None:
        if self._run is None:
            config = {"framework": "lightning", **({"hparams": self._hparams} if self._hparams else {})}
            self._run = record(self.path, {**config, **self._config}, **self._options)
        loss = next((name for name in _TRAIN_LOSSES if name in metrics), None)
        val = val_loss_among(metrics)
        rates = [name for name in metrics if name.startswith("lr-")]  # what LearningRateMonitor logs
        if val is not None:
            self._run.val(metrics.pop(val), step=step)
        if loss is not None:
            self._run.log(step, loss=metrics.pop(loss))
        for group, name in enumerate(rates):
            self._run.log(step, **{f"lr/{group}": metrics.pop(name)})
        if metrics:
            log(self._run, metrics, step)
