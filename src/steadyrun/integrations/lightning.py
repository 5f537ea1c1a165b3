"""A callback and a logger for Lightning.

    from steadyrun.integrations.lightning import SteadyrunCallback

    Trainer(callbacks=[SteadyrunCallback("experiments/my-run")]).fit(module)

The callback records what `steadyrun.record` and `run.watch` record of any loop. `SteadyrunLogger` keeps what the module
logs with `self.log`; with both there is one run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from steadyrun.integrations.callbacks import Intent, folder_of, sorted_out
from steadyrun.integrations.lightning_base import Callback, FittingTrainer, val_loss_among
from steadyrun.integrations.lightning_logger import SteadyrunLogger
from steadyrun.probes.batch_hashes import arrays_of
from steadyrun.probes.problems import Problems
from steadyrun.recording.declared_config import check_config
from steadyrun.recording.record import record
from steadyrun.recording.run import Run

if TYPE_CHECKING:
    from steadyrun.integrations.lightning_base import FittedModule

# Only what is certain is declared: a default is not, and neither is a number that the program may change.

_FORMATS = {
    "16-mixed": "fp16",
    "16-true": "fp16",
    "bf16-mixed": "bf16",
    "bf16-true": "bf16",
    "transformer-engine": "bf16",
}
_DEFAULT_EPOCHS = 1000  # Lightning's default if neither max_epochs nor max_steps is given


def declared(trainer: FittingTrainer, module: FittedModule) -> Intent:
    """The config of the run; names that are not certain are left out."""
    intent: Intent = {"framework": "lightning"}
    seed = os.environ.get("PL_GLOBAL_SEED", "")  # what seed_everything leaves behind
    if seed.isdecimal():
        intent["seed"] = int(seed)
    if (dtype := _FORMATS.get(str(trainer.precision))) is not None:
        intent["dtype"] = dtype
    if module.automatic_optimization:
        intent |= _automatic(trainer, module)
    if hparams := _hparams(module):
        intent["hparams"] = hparams
    return intent


def _automatic(trainer: FittingTrainer, module: FittedModule) -> Intent:
    """What Lightning does by itself: clipping, accumulation, and how long it trains."""
    intent: Intent = {}
    clip = trainer.gradient_clip_val
    algorithm = trainer.gradient_clip_algorithm
    by_norm = algorithm is None or str(getattr(algorithm, "value", algorithm)) == "norm"
    if clip and by_norm and not _overrides(module, "configure_gradient_clipping"):
        intent["clip"] = float(clip)
    changes = any(type(callback).__name__ == "GradientAccumulationScheduler" for callback in trainer.callbacks)
    if not changes:
        intent["accumulation"] = int(trainer.accumulate_grad_batches)
        if (steps := _total_steps(trainer)) is not None:
            intent["total_steps"] = steps
        if trainer.accumulate_grad_batches == 1 and trainer.world_size == 1:
            size = getattr(trainer.train_dataloader, "batch_size", None)
            intent |= {"batch_size": size} if isinstance(size, int) else {}
    return intent


def _total_steps(trainer: FittingTrainer) -> int | None:
    """How many optimizer steps are planned; None if that is not known or was not set."""
    if trainer.max_steps == -1 and trainer.max_epochs in (None, -1, _DEFAULT_EPOCHS):
        return None
    steps = trainer.estimated_stepping_batches
    return int(steps) if math.isfinite(steps) and steps > 0 else None


def _overrides(module: FittedModule, name: str) -> bool:
    home = next(kind for kind in type(module).__mro__ if name in vars(kind))
    return home.__module__.partition(".")[0] not in ("lightning", "pytorch_lightning")


def _hparams(module: FittedModule) -> dict[str, object]:
    """The module's hyperparameters as they are; they have names of their own, so they are kept apart."""
    hparams = getattr(module, "hparams", None)
    return {str(name): _plain(value) for name, value in hparams.items()} if isinstance(hparams, Mapping) else {}


def _plain(value: object) -> object:
    """Numbers, texts and what is made of them; of anything else (a model, a tensor) its kind alone."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else f"<{type(value).__name__}>"


def undivided(loss: object, accumulated: int) -> object:
    """A micro-batch's own loss: Lightning hands on what it differentiates, divided by `accumulate_grad_batches`."""
    return loss * accumulated if isinstance(loss, Tensor) and accumulated > 1 else loss


def unscaled(loss: Tensor, precision: object) -> Tensor:
    """A loss on its way into backward, without the scale of a GradScaler; nothing waits for the device."""
    scale = getattr(getattr(precision, "scaler", None), "_scale", None)
    detached = loss.detach()
    return detached / scale.to(detached.device) if isinstance(scale, Tensor) else detached.clone()


def mean(losses: list[object]) -> object:
    """The mean over the micro-batches of a step, on their device; None if none has a loss."""
    if len(losses) < 2:
        return losses[0] if losses else None
    return torch.stack([torch.as_tensor(loss).detach().float().reshape(()) for loss in losses]).mean()


def scheduler_of(trainer: FittingTrainer) -> object | None:
    """The scheduler of the first optimizer, if it is the only one: its curve can be compared with the rates."""
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    first = next(iter(trainer.optimizers), None)
    return schedulers[0] if len(schedulers) == 1 and getattr(schedulers[0], "optimizer", None) is first else None


def checkpoints_of(trainer: FittingTrainer) -> dict[int, str]:
    """Where each checkpoint callback has saved last."""
    callbacks = enumerate(trainer.checkpoint_callbacks)
    return {index: path for index, callback in callbacks if (path := getattr(callback, "_last_checkpoint_saved", ""))}


class KeptBatches:
    """Batches that wait for their step, or for the end of a validation; too many would be held in memory for long."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._batches: list[object] = []
        self._bytes = 0
        self._full = False

    def add(self, batch: object, *, whole: bool = True) -> None:
        """Keep another batch; without room, drop all (`whole`) or leave out the rest."""
        if self._full or batch is None:
            return
        self._bytes += sum(int(array.nbytes) for array in arrays_of(batch)) if whole or self._bytes < self._most else 0
        if self._bytes > self._most and (self._batches or not whole):
            self._full = True
            self._batches = [] if whole else self._batches
            return
        self._batches.append(batch)

    def take_list(self) -> list[object]:
        batches, self._batches, self._bytes, self._full = self._batches, [], 0, False
        return batches

    def take(self) -> object:
        """One batch as it is, several as a list of micro-batches, None without any."""
        batches = self.take_list()
        if len(batches) < 2:
            return batches[0] if batches else None
        return [batch if isinstance(batch, list | tuple | dict) else (batch,) for batch in batches]


__all__ = ["SteadyrunCallback", "SteadyrunLogger"]

_KEY = "steadyrun"  # in Lightning's checkpoints: how many steps were recorded
_VAL_BYTES = 16 * 2**20  # of validation batches that wait for the end of the validation
_TRAIN_BYTES = 256 * 2**20  # of micro-batches that wait for their step


class SteadyrunCallback(Callback):
    """Lightning callback that records every `trainer.fit`.

    `path` is the run directory; left out, it is that of a `SteadyrunLogger` of the same Trainer, else a folder
    `steadyrun` in the Trainer's `log_dir`. A new training gets a numbered folder beside an old one (`my-run-2`); one
    that resumes from a checkpoint continues the last run. `config` overrides what Trainer and module declare.
    `val_loss` names the metric that is the validation loss. All other options are those of `steadyrun.record`
    (`every=`, `flush_seconds=`, …) and `run.watch` (`on_fault=`, `blocks=`, …). `.run` is the run being recorded.

    With `on_fault="stop"` a fault ends the training: `trainer.fit` raises `steadyrun.FaultFound`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        val_loss: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.run: Run | None = None
        self._path = None if path is None else Path(path)
        self._config = check_config(config)
        self._val_loss = val_loss
        self._record_options, self._watch_options = sorted_out(options)
        self._problems = Problems(_no_event)
        self._recorded = 0  # steps of the current training
        self._loaded: int | None = None  # the same, from a checkpoint
        self._stepped = 0  # Lightning's count of optimizer steps
        self._losses: list[object] = []
        self._differentiated: list[Tensor] = []
        self._batches = KeptBatches(_TRAIN_BYTES)
        self._val_batches = KeptBatches(_VAL_BYTES)
        self._saved: dict[int, str] = {}
        self._saves = 0

    # -- the training -----------------------------------------------------------------------------

    def setup(self, trainer: FittingTrainer, _module: object, stage: str) -> None:
        """Connect a logger of the same run, so that it writes through this callback."""
        if stage != "fit":
            return
        for logger in trainer.loggers:
            if isinstance(logger, SteadyrunLogger):
                self._path = self._path or logger.path
                if self._path.absolute() == logger.path.absolute():
                    logger.attach(self)

    def on_train_start(self, trainer: FittingTrainer, module: FittedModule) -> None:
        """Start recording, once everything is built and loaded; not for a `fast_dev_run`."""
        self._end(None)
        log_dir = trainer.log_dir  # asks every rank
        if trainer.fast_dev_run:
            return
        options = dict(self._record_options)
        first = self._first_step(trainer, module)
        path = self._path or Path(log_dir or trainer.default_root_dir) / "steadyrun"
        root = folder_of(path, options, goes_on=first > 0)
        intent: Intent = {}
        with self._problems.contained("what Trainer and module declare"):
            intent = declared(trainer, module)
        if first > 0 and not root.exists():
            intent["init"] = "pretrained"  # what came before was recorded elsewhere
        self.run = record(root, {**intent, **self._config}, first_step=first, **options)
        self._recorded, self._stepped = first, trainer.global_step
        self._saved = checkpoints_of(trainer)
        self.run.watch(
            module,
            list(trainer.optimizers),
            scheduler=scheduler_of(trainer),
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            **self._watch_options,
        )

    def on_train_batch_start(self, trainer: FittingTrainer, _module: object, _batch: object, _number: int) -> None:
        """Record the checkpoints that were saved between two batches."""
        self._record_checkpoints(trainer)
        self._differentiated = []

    def on_before_backward(self, trainer: FittingTrainer, module: FittedModule, loss: Tensor) -> None:
        """Take the differentiated loss under manual optimization, if the step returns nothing."""
        if self.run is not None and not module.automatic_optimization:
            with self._problems.contained("loss"):
                self._differentiated.append(unscaled(loss, trainer.precision_plugin))

    def on_train_batch_end(
        self, trainer: FittingTrainer, module: FittedModule, outputs: object, batch: object, _number: int
    ) -> None:
        """Record the step if the optimizer has stepped after this micro-batch."""
        if self.run is None:
            return
        stepped = True
        with self._problems.contained("micro-batch"):
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else None
            if module.automatic_optimization:
                loss = undivided(loss, trainer.accumulate_grad_batches)
            self._losses.append(sum(self._differentiated) if loss is None and self._differentiated else loss)
            self._batches.add(batch)
            stepped = trainer.global_step != self._stepped
        if stepped:
            self._step(trainer)

    def _step(self, trainer: FittingTrainer) -> None:
        assert self.run is not None
        loader = trainer.train_dataloader  # noqa: F841  the recorder asks the loaders of its caller whether they shuffle
        losses, self._losses = [loss for loss in self._losses if loss is not None], []
        self._stepped = trainer.global_step
        self._recorded += 1
        self.run.step(mean(losses), batch=self._batches.take())

    # -- validation -------------------------------------------------------------------------------

    def on_validation_batch_end(
        self, trainer: FittingTrainer, _module: object, _outputs: object, batch: object, _number: int, _loader: int = 0
    ) -> None:
        """Keep some batches, so that examples shared with training are found."""
        if self.run is not None and not trainer.sanity_checking:
            with self._problems.contained("validation batch"):
                self._val_batches.add(batch, whole=False)

    def on_validation_end(self, trainer: FittingTrainer, _module: object) -> None:
        """Record the validation once its metrics are known."""
        if self.run is None or trainer.sanity_checking:
            return
        with self._problems.contained("validation"):
            metrics = trainer.callback_metrics
            name = self.val_loss_name(metrics)
            batches = self._val_batches.take_list() or None
            if name is not None and name in metrics:
                self.run.val(metrics[name], batches=batches)

    def val_loss_name(self, names: Iterable[str]) -> str | None:
        """Choose the metric that is the validation loss."""
        return self._val_loss or val_loss_among(names)

    # -- checkpoints and the end ------------------------------------------------------------------

    def on_save_checkpoint(self, _trainer: object, _module: object, checkpoint: dict[str, object]) -> None:
        """Write the recorded step into the checkpoint; its path is known later."""
        if self.run is not None:
            self._saves += 1
            checkpoint[_KEY] = {"steps": self._recorded}

    def on_load_checkpoint(self, _trainer: object, _module: object, checkpoint: dict[str, object]) -> None:
        """Read the step at which a resumed training continues."""
        recorded = checkpoint.get(_KEY)
        steps = recorded.get("steps") if isinstance(recorded, Mapping) else None
        self._loaded = steps if isinstance(steps, int) else None

    def on_exception(self, _trainer: object, _module: object, exception: BaseException) -> None:
        """End the run after a crash, an interrupt or a fault that stops it."""
        self._end(exception)

    def teardown(self, trainer: FittingTrainer, _module: object, stage: str) -> None:
        """End the run after a training."""
        if stage == "fit":
            self._record_checkpoints(trainer)
            self._end(None)

    # -- inside -----------------------------------------------------------------------------------

    def _first_step(self, trainer: FittingTrainer, module: FittedModule) -> int:
        """The step at which a training continues: from its checkpoint, else from Lightning's count; 0 for a new one."""
        loaded, self._loaded = self._loaded, None
        if not trainer.global_step:
            return 0
        if loaded is not None:
            return loaded
        if module.automatic_optimization:
            return int(trainer.global_step)
        return self._recorded or int(trainer.fit_loop.epoch_loop._batches_that_stepped)

    def _record_checkpoints(self, trainer: FittingTrainer) -> None:
        if self.run is None or not self._saves:
            return
        with self._problems.contained("checkpoints"):
            now = checkpoints_of(trainer)
            new: list[str | None] = [path for key, path in now.items() if self._saved.get(key) != path]
            for path in new or [None]:  # saved by trainer.save_checkpoint: its path is not known
                self.run.checkpoint(path)
            self._saved, self._saves = now, 0

    def _end(self, failure: BaseException | None) -> None:
        run, self.run = self.run, None
        self._losses, self._differentiated = [], []
        self._batches.take()
        self._val_batches.take_list()
        if run is not None:
            run.close(failure)


def _no_event(_kind: str, **_fields: object) -> None:
    """A problem of the callback itself is printed once on stderr."""
