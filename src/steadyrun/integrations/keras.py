"""A callback for Keras 3, on its torch and its JAX backend.

    from steadyrun.integrations.keras import SteadyrunCallback

    model.fit(x, y, callbacks=[SteadyrunCallback("experiments/my-run")])

What it records of the model is read in `keras_model`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadyrun.integrations.callbacks import Intent, Options, folder_of, sorted_out
from steadyrun.probes.cadence import Cadence, parse_cadence
from steadyrun.probes.problems import Problems
from steadyrun.recording.declared_config import check_config
from steadyrun.recording.record import record
from steadyrun.recording.run import Run

try:
    import keras

    from steadyrun.integrations.keras_model import declared, expected_rates, view_of
except ImportError as problem:
    raise ImportError(
        "SteadyrunCallback needs Keras 3 on its torch or its JAX backend: pip install 'steadyrun[keras]', and set "
        "KERAS_BACKEND to 'torch' or 'jax'"
    ) from problem

_OF_WATCH = {"monitor", "on_fault", "on_suspect"}


class SteadyrunCallback(keras.callbacks.Callback):
    """Keras callback that records every `model.fit` it is given to.

    `path` is the run directory. A new training gets a numbered folder beside an old one (`my-run-2`); a training whose
    optimizer has stepped before, or that begins at an `initial_epoch`, continues the last run. `config` overrides what
    the compiled model declares. Other options are those of `steadyrun.record`, and `monitor`, `on_fault` and
    `on_suspect` of `run.watch`. `.run` is the run being recorded.

    With `on_fault="stop"` a fault ends the training: `model.fit` raises `steadyrun.FaultFound`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, config: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.run: Run | None = None
        self._path = Path(path)
        self._config = check_config(config)
        watched = {name: options.pop(name) for name in _OF_WATCH & set(options)}
        self._monitored = watched.pop("monitor", True)
        self._when_found: Options = watched
        self._options, _ = sorted_out(options)
        self._problems = Problems(_no_event)
        self._cadence = Cadence()
        self._epoch = 0
        self._view: Any = None
        self._losses: list[Any] = []
        self._offset = 0  # between the steps of the training and those that the optimizer counts

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  Keras names its arguments
        """Prepare a training; its first step is known when the first batch arrives."""
        self._end(RuntimeError("model.fit ended with an exception"))  # the one before, if it has not ended

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  Keras names its arguments
        """Reset the running mean of the loss, as Keras does."""
        self._epoch = epoch
        if self._view is not None:
            self._view.forget_mean()

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  Keras names its arguments
        """Read the learning rate before the step and, at sampled steps, the weights."""
        if self._view is None:
            self._begin()
        with self._problems.contained("batch"):
            self._view.before(sampled="blocks" in self._cadence.due(self._number()))

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  Keras names its arguments
        """Record the step; with accumulation, after the last of its batches."""
        if self.run is None:
            return
        number: int = self._number()
        series: dict[str, float] = {}
        loss = None
        with self._problems.contained("batch"):
            self._losses.append(self._view.batch_loss())
            if not self._view.stepped():
                return
            if self._view.several:
                number = self._offset + self._view.steps_taken() - 1
            losses, self._losses = self._losses, []
            loss = None if None in losses else sum(losses) / len(losses)
            series = self._view.after()
        try:
            self.run.step(loss, step=number)
        except BaseException as stopped:
            self._log(number, series)
            self._end(stopped)  # Keras does not inform callbacks of an exception
            raise
        self._log(number, series)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Record the validation, if there was one, and the metrics of the epoch."""
        if self.run is None or not logs:
            return
        with self._problems.contained("metrics of the epoch"):
            if "val_loss" in logs:
                self.run.val(logs["val_loss"])
            self.run.log(epoch=epoch, **{name: value for name, value in logs.items() if "loss" not in name})

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  Keras names its arguments
        """End the run."""
        self._end(None)

    # -- inside -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._view = view_of(self.model)
        first = self._view.steps_taken() or self._epoch * (self.params.get("steps") or 0)
        options = dict(self._options)
        intent: Intent = {}
        with self._problems.contained("what the model declares"):
            intent = declared(self.model, self.params)
        root = folder_of(self._path, options, goes_on=first > 0)
        self._offset = first - self._view.steps_taken()
        self.run = record(root, {**intent, **self._config}, first_step=first, **options)
        self._cadence = Cadence(parse_cadence(options.get("every")), first)
        with self._problems.contained("the schedule's dry run"):
            rates = expected_rates(self.model, self.run.config.get("total_steps"), self._view.steps_taken())
            if rates is not None:
                self.run.infer(expected_lr=rates)
        if self._monitored:
            self.run.monitor(**self._when_found)

    def _number(self) -> int:
        """The step that the coming batch belongs to."""
        return self.run.next_step if self.run is not None else 0

    def _log(self, step: int, series: dict[str, float]) -> None:
        if self.run is not None and series:
            self.run.log(step, **series)

    def _end(self, failure: BaseException | None) -> None:
        run, self.run = self.run, None
        view, self._view = self._view, None
        self._losses = []
        if view is not None:
            view.close()
        if run is not None:
            run.close(failure)


def _no_event(_kind: str, **_fields: object) -> None:
    """A problem of the callback itself is printed once on stderr."""
