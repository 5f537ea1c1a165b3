"""A callback for the Hugging Face Trainer (and for TRL, whose trainers are Trainers).

    from steadyrun.integrations.transformers import SteadyrunCallback

    Trainer(..., callbacks=[SteadyrunCallback("experiments/my-run")]).train()

The Trainer gives a callback neither the loss nor the batch. So it finds the Trainer that calls it and wraps three of
its methods while it trains: `training_step` (loss and inputs of a micro-batch), `prediction_step` (inputs of a
validation) and `train` (how it ends). Arguments and results pass through unchanged.
"""

# ruff: noqa: ARG002  callbacks have the arguments that the Trainer calls them with

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadyrun.errors import FaultFound
from steadyrun.integrations.callbacks import Options, folder_of, innermost, sorted_out
from steadyrun.integrations.trainer import TrainerArguments, TrainerProgress, TrainerView, declared, trainer_of
from steadyrun.recording.declared_config import check_config
from steadyrun.recording.record import record
from steadyrun.recording.run import Run

try:
    from transformers import TrainerCallback
except ImportError as problem:
    raise ImportError(
        "SteadyrunCallback needs the transformers library: pip install 'steadyrun[transformers]'"
    ) from problem

_RECORDED = {"loss", "grad_norm", "learning_rate"}  # of the Trainer's log: recorded at every step, before its filter

Metrics = dict[str, object]


class SteadyrunCallback(TrainerCallback):
    """Hugging Face callback that records every training of its Trainer.

    `path` is the run directory, `<output_dir>/steadyrun` if left out. A new training gets a numbered folder beside an
    old one (`my-run-2`); one that resumes from a checkpoint continues the last run. `config` overrides what the
    training arguments and the model declare. All other options are those of `steadyrun.record` (`every=`,
    `flush_seconds=`, …) and `run.watch` (`on_fault=`, `blocks=`, `loss_fn=`, …). `.run` is the run being recorded.

    With `on_fault="stop"` a fault ends the training: `trainer.train()` raises `steadyrun.FaultFound`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.run: Run | None = None
        self._path = None if path is None else Path(path)
        self._config = check_config(config)
        self._record_options, self._watch_options = sorted_out(options)
        self._view = TrainerView(self._end)
        self._unseen = False
        self._val_key: str | None = None
        self._before: tuple[object, Metrics] | None = None  # a model, and how it did before its training

    # -- the training -----------------------------------------------------------------------------

    def on_init_end(self, args: object, state: object, control: object, **kwargs: object) -> None:
        """Observe exceptions of the Trainer from here on."""
        self._view.guard(trainer_of(self))

    def on_train_begin(self, args: TrainerArguments, state: TrainerProgress, control: object, **kwargs: object) -> None:
        """Start recording, once everything is prepared and loaded."""
        self._end(None)
        trainer = trainer_of(self)
        # DeepSpeed's optimizer holds copies of its own; the model's parameters are in none that can be seen.
        self._unseen = bool(getattr(trainer, "is_deepspeed_enabled", False))
        optimizer = None if self._unseen else innermost(kwargs.get("optimizer"))
        intent = declared(args, state, trainer, {**kwargs, "optimizer": optimizer})
        options = dict(self._record_options)
        root = folder_of(self._path or Path(args.output_dir) / "steadyrun", options, goes_on=state.global_step > 0)
        if state.global_step > 0 and not root.exists():
            intent["init"] = "pretrained"  # what came before was recorded elsewhere
        self.run = record(root, {**intent, **self._config}, first_step=state.global_step, **options)
        self._watch(trainer, optimizer, kwargs)
        self._view.attach(trainer, kwargs.get("model"))
        self._val_key = None
        if self._before is not None and self._before[0] is kwargs.get("model"):
            self._record_evaluation(self._before[1])
        self._before = None

    def on_step_begin(self, args: object, state: object, control: object, **kwargs: object) -> None:
        """The first micro-batch of a step comes."""
        self._view.forget()

    def on_step_end(self, args: object, state: TrainerProgress, control: object, **kwargs: object) -> None:
        """Record the step, after the optimizer has stepped."""
        if self.run is not None:
            loss, batch = self._view.take_step()
            try:
                self.run.step(loss, batch=batch, step=state.global_step - 1)
            except FaultFound as stop:
                self._end(stop)
                raise

    def on_train_end(self, args: object, state: object, control: object, **kwargs: object) -> None:
        """End the run; the best model may have been loaded."""
        self._end(None)

    # -- what the Trainer reports ------------------------------------------------------------------

    def on_evaluate(self, args: object, state: object, control: object, **kwargs: Any) -> None:
        """Record a validation; with several datasets, of each in turn."""
        metrics = dict(kwargs.get("metrics") or {})
        if self.run is None:
            self._before = (kwargs.get("model"), metrics)
        else:
            self._record_evaluation(metrics)
        self._view.take_validation()

    def on_predict(self, args: object, state: object, control: object, metrics: object, **kwargs: object) -> None:
        """Discard the inputs of a prediction: it is not a validation."""
        self._view.take_validation()

    def on_log(self, args: object, state: object, control: object, **kwargs: Any) -> None:
        """Record what the Trainer logs under its names, if it is not recorded already."""
        logs = dict(kwargs.get("logs") or {})
        if self.run is None or any(name.startswith("eval_") for name in logs):
            return
        others = {name: value for name, value in logs.items() if name not in _RECORDED}
        if self._unseen:
            others |= {"lr": logs.get("learning_rate"), "grad_norm": logs.get("grad_norm")}
        _log(self.run, others)

    def on_save(self, args: TrainerArguments, state: TrainerProgress, control: object, **kwargs: object) -> None:
        """Record a saved checkpoint."""
        if self.run is not None:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            self.run.checkpoint(folder if folder.exists() else None)

    # -- inside -----------------------------------------------------------------------------------

    def _watch(self, trainer: object, optimizer: object, objects: Mapping[str, object]) -> None:
        assert self.run is not None
        tokenizer = objects.get("processing_class", objects.get("tokenizer"))
        watched: Options = {
            "scheduler": objects.get("lr_scheduler"),
            "scaler": getattr(getattr(trainer, "accelerator", None), "scaler", None),
            "tokenizer": tokenizer if hasattr(tokenizer, "get_vocab") else None,
        }
        # The wrapped model shows whether it is compiled; its parameters are those of the model inside.
        wrapped = getattr(trainer, "model_wrapped", None)
        model = objects.get("model") if wrapped is None else wrapped
        self.run.watch(model, optimizer, **{**watched, **self._watch_options})  # type: ignore[arg-type]

    def _record_evaluation(self, metrics: Metrics) -> None:
        assert self.run is not None
        # Of several datasets the first is the validation; a dataset called "train" is not.
        losses = [name for name in metrics if name.endswith("_loss") and "train" not in name]
        self._val_key = self._val_key or next(iter(losses), None)
        if self._val_key in metrics:
            batches = self._view.take_validation() or None
            self.run.val(metrics[self._val_key], batches=batches)
        _log(self.run, metrics)

    def _end(self, failure: BaseException | None) -> None:
        self._view.detach()
        run, self.run = self.run, None
        if run is not None:
            run.close(failure)


def _log(run: Run, values: Mapping[str, object]) -> None:
    """Keep what is a number; a name that `run.log` knows otherwise gets a prefix."""
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    run.log(
        None, **{f"logged_{name}" if name in {"step", "loss", "val_loss"} else name: v for name, v in numbers.items()}
    )
