"""A callback for Keras 3, on its torch and its JAX backend.

    from steadyrun.integrations.keras import SteadyrunCallback

    model.fit(x, y, callbacks=[SteadyrunCallback("experiments/my-run")])

Keras tells a callback the mean loss of the epoch so far, not that of the batch. What a batch has added to it can be
told from the two numbers that the mean is made of; on the torch backend the loss itself is seen when it is
differentiated.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from steadyrun.integrations.callbacks import Intent, folder_of, sorted_out
from steadyrun.probes.cadence import Cadence, parse_cadence
from steadyrun.probes.problems import Problems
from steadyrun.recording.record import check_config, record
from steadyrun.recording.run import Run
from steadyrun.signals.curves import knots

if TYPE_CHECKING:
    from torch import Tensor

try:
    import keras
except ImportError as problem:
    raise ImportError(
        "SteadyrunCallback needs Keras 3 on its torch or its JAX backend: pip install 'steadyrun[keras]', and set "
        "KERAS_BACKEND to 'torch' or 'jax'"
    ) from problem

_CROSS_ENTROPIES = {"categoricalcrossentropy", "sparsecategoricalcrossentropy"}
_UNPLANNED_STEPS = 10_000


class KerasVariable(Protocol):
    """What is read off a variable."""

    path: str
    value: Any  # a tensor of the backend


class KerasOptimizer(Protocol):
    """What is read off an optimizer; more of it may be missing."""

    loss_scale_factor: float | None
    variables: Sequence[KerasVariable]
    _iterations: KerasVariable

    def get_config(self) -> Mapping[str, Any]: ...


class LossTracker(Protocol):
    """The two numbers that the mean loss of an epoch is made of."""

    total: KerasVariable
    count: KerasVariable


class DtypePolicy(Protocol):
    """What is read off a policy."""

    name: str


class KerasModel(Protocol):
    """What is read off a compiled model; more of it may be missing."""

    optimizer: KerasOptimizer
    dtype_policy: DtypePolicy
    trainable_variables: Sequence[KerasVariable]
    _loss_tracker: LossTracker


def declared(model: KerasModel, params: Mapping[str, object]) -> Intent:
    """The config of the run; names that are not certain are left out."""
    optimizer = model.optimizer.get_config()
    intent: Intent = {"framework": f"keras ({keras.backend.backend()})", "compile": _compiled(model, optimizer)}
    if clip := optimizer.get("global_clipnorm"):
        intent["clip"] = float(clip)
    accumulated = int(optimizer.get("gradient_accumulation_steps") or 1)
    intent["accumulation"] = accumulated
    epochs, steps = params.get("epochs"), params.get("steps")
    if isinstance(epochs, int) and isinstance(steps, int):
        intent["total_steps"] = epochs * steps // accumulated
    if (classes := _classes(model)) is not None:
        intent["num_classes"] = classes
    return intent


def expected_rates(model: KerasModel, planned: object, taken: int) -> dict[str, object] | None:
    """The learning rates that a schedule will give, as knots; None where the rate is a number."""
    schedule = getattr(getattr(model.optimizer, "inner_optimizer", model.optimizer), "_learning_rate", None)
    if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        return None
    last = max(taken + 2, planned if isinstance(planned, int) else _UNPLANNED_STEPS)
    at = np.unique(np.linspace(taken, last - 1, min(last - taken, 1000)).astype(int))
    rates = [float(keras.ops.convert_to_numpy(schedule(int(step)))) for step in at]
    curve = [(int(at[index] - taken), rate) for index, rate in knots(rates)]
    return {"source": f"dry run of {type(schedule).__name__}", "steps": last - taken, "groups": [curve], "why": ""}


def _compiled(model: KerasModel, optimizer: Mapping[str, object]) -> dict[str, object]:
    plain: dict[str, object] = {
        name: value for name, value in optimizer.items() if value is None or isinstance(value, int | float | str)
    }
    rate = optimizer.get("learning_rate")
    if isinstance(rate, Mapping):
        plain["learning_rate"] = {"schedule": rate.get("class_name"), **dict(rate.get("config") or {})}
    return {"optimizer": plain, "loss": _loss_name(model), "dtype_policy": model.dtype_policy.name}


def _loss_name(model: object) -> str:
    """The name of the loss, however it was given to `compile`."""
    loss = getattr(model, "loss", None)
    return loss if isinstance(loss, str) else str(getattr(loss, "__name__", type(loss).__name__))


def _classes(model: object) -> int | None:
    """The width of the one output, where the loss chooses among classes."""
    shape = getattr(model, "output_shape", None)
    if _loss_name(model).replace("_", "").lower() not in _CROSS_ENTROPIES or not isinstance(shape, tuple) or not shape:
        return None
    return shape[-1] if isinstance(shape[-1], int) and shape[-1] >= 2 else None


Named = list[tuple[str, Any]]  # a block's name, a tensor


class KerasView:
    """A model in training: the loss of a batch, the learning rate of a step, norms per layer."""

    def __init__(self, model: KerasModel) -> None:
        self._model = model
        self._outer = model.optimizer
        self._optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # inside of a loss scale
        self._every = int(getattr(self._optimizer, "gradient_accumulation_steps", None) or 1)
        self._mean = (0.0, 0.0)
        self._rate: float | None = None
        self._scale: float | None = None
        self._weights: dict[int, Any] | None = None

    # -- what a callback asks ---------------------------------------------------------------------

    def steps_taken(self) -> int:
        """How often the optimizer has changed the weights, by its own count."""
        return self._count() // self._every

    @property
    def several(self) -> bool:
        """Whether Keras makes several steps between two calls of a callback."""
        return int(getattr(self._model, "steps_per_execution", 1) or 1) > 1

    def stepped(self) -> bool:
        """Whether the batch that has ended was the last of its step."""
        return self._count() % self._every == 0

    def forget_mean(self) -> None:
        self._mean = (0.0, 0.0)

    def before(self, *, sampled: bool) -> None:
        """Before a batch: the rate and the loss scale that its step will use."""
        self._scale = self._loss_scale()
        self._rate = self._rate_at(self._count())
        self._weights = {index: _copy(value) for index, (_, value) in enumerate(self._named())} if sampled else None

    def batch_loss(self) -> float | None:
        """The loss of the batch that has ended, from what it has added to the sums of Keras's running mean.

        The sums are float32, so of the k-th batch of an epoch about k times 6e-8 of the loss is rounding. Behind a loss
        that is not finite they tell nothing until the next epoch.
        """
        total, count = self._sums()
        before, self._mean = self._mean, (total, count)
        if not math.isfinite(before[0]) or count <= before[1]:
            return None
        return (total - before[0]) / (count - before[1])

    def after(self) -> dict[str, float]:
        """Of a step that has ended: the learning rate, and norms per layer where it is sampled."""
        series: dict[str, float] = {} if self._rate is None else {"lr/0": self._rate}
        series |= {} if self._scale is None else {"loss_scale": self._scale}
        series |= self._gradients(self._weights is not None)
        if self._weights is None:
            return series
        named = self._named()
        sizes = _by_block([(name, _square(value)) for name, value in named])
        moves = _by_block([(name, _square(value - self._weights[index])) for index, (name, value) in enumerate(named)])
        for name, size in sizes.items():
            series[f"block_param_norm/{name}"] = size
            if size > 0:
                series[f"update_ratio/{name}"] = moves[name] / size
        self._weights = None
        return series

    def close(self) -> None:
        """Take off what was put on."""

    # -- what differs by backend ------------------------------------------------------------------

    def _value(self, _kind: str, variable: KerasVariable) -> Any:
        """The value of a variable now."""
        return variable.value

    def _gradients(self, _sampled: bool) -> dict[str, float]:
        """The norm of the gradients, and of those of each layer where the step is sampled."""
        return {}

    # -- inside -----------------------------------------------------------------------------------

    def _count(self) -> int:
        return int(self._value("optimizer_variables", self._optimizer._iterations))

    def _sums(self) -> tuple[float, float]:
        tracker = self._model._loss_tracker
        return (
            float(self._value("metrics_variables", tracker.total)),
            float(self._value("metrics_variables", tracker.count)),
        )

    def _rate_at(self, count: int) -> float | None:
        rate = getattr(self._optimizer, "_learning_rate", None)
        if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            return float(keras.ops.convert_to_numpy(rate(count // self._every)))
        return None if rate is None else float(self._value("optimizer_variables", rate))

    def _loss_scale(self) -> float | None:
        dynamic = getattr(self._outer, "dynamic_scale", None)
        if dynamic is not None:
            return float(self._value("optimizer_variables", dynamic))
        return float(self._optimizer.loss_scale_factor) if self._optimizer.loss_scale_factor else None

    def _named(self) -> Named:
        return [
            (_block(variable), self._value("trainable_variables", variable))
            for variable in self._model.trainable_variables
        ]


class TorchView(KerasView):
    """The torch backend: the loss is seen at its backward pass, gradients stay until the next one."""

    def __init__(self, model: KerasModel) -> None:
        from steadyrun.probes import backward_hook

        super().__init__(model)
        self._roots = backward_hook
        self._root: Tensor | None = None
        backward_hook.observe(self._starts)

    def _starts(self, root: Tensor | None) -> None:
        self._root = None if root is None else root.detach()

    def batch_loss(self) -> float | None:
        by_mean, root = super().batch_loss(), self._root
        self._root = None
        return by_mean if root is None else float(root) / (self._scale or 1.0)

    def _gradients(self, sampled: bool) -> dict[str, float]:
        if self._every > 1:  # what is left is the gradient of the last batch alone
            return {}
        grads = [(_block(variable), variable.value.grad) for variable in self._model.trainable_variables]
        squares = [(name, _square(grad.detach() / (self._scale or 1.0))) for name, grad in grads if grad is not None]
        norms = {"grad_norm": math.sqrt(sum(square for _, square in squares))}
        return norms | ({f"block_grad_norm/{n}": v for n, v in _by_block(squares).items()} if sampled else {})

    def close(self) -> None:
        self._roots.forget(self._starts)


class JaxView(KerasView):
    """The JAX backend: during an epoch the values are in the state that goes through the compiled step."""

    def _value(self, kind: str, variable: KerasVariable) -> Any:
        state = getattr(self._model, "_jax_state", None)
        if not state or getattr(self._model, "_jax_state_synced", True):
            return variable.value
        owner = self._outer.variables if kind == "optimizer_variables" else getattr(self._model, kind)
        index = next(index for index, candidate in enumerate(owner) if candidate is variable)
        return state[kind][index]


def view_of(model: KerasModel) -> KerasView:
    """The view for the backend in use."""
    views = {"torch": TorchView, "jax": JaxView}
    return views.get(keras.backend.backend(), KerasView)(model)


def _block(variable: KerasVariable) -> str:
    """The layer of a variable: `sequential/hidden/kernel` belongs to `hidden`."""
    words = variable.path.split("/")[:-1]
    return ".".join(words[1:] or words) or variable.path


def _copy(value: object) -> Any:
    return keras.ops.copy(keras.ops.stop_gradient(value))


def _square(value: object) -> float:
    flat = keras.ops.cast(keras.ops.stop_gradient(value), "float32")
    return float(keras.ops.sum(keras.ops.square(flat)))


def _by_block(squares: list[tuple[str, float]]) -> dict[str, float]:
    """Norms per block from the squares of its tensors."""
    sums: dict[str, float] = {}
    for name, square in squares:
        sums[name] = sums.get(name, 0.0) + square
    return {name: math.sqrt(total) for name, total in sums.items()}


_OF_WATCH = {"monitor", "on_fault"}


class SteadyrunCallback(keras.callbacks.Callback):
    """Records every `model.fit` that it is given to.

    `path` is the run directory; a new training beside an old one gets a number (`my-run-2`), one whose optimizer has
    stepped before, or that begins at an `initial_epoch`, goes on where it was. `config` adds to what the compiled model
    declares, and wins over it. Other options are those of `steadyrun.record`, `monitor` and `on_fault`.

    With `on_fault="stop"` a fault ends the training: `model.fit` raises `steadyrun.FaultFound`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, config: Mapping[str, Any] | None = None, **record_options: Any
    ) -> None:
        super().__init__()
        self.run: Run | None = None
        self._path = Path(path)
        self._config = check_config(config)
        watched = {name: record_options.pop(name) for name in _OF_WATCH & set(record_options)}
        self._monitored, self._on_fault = watched.get("monitor", True), watched.get("on_fault")
        self._options, _ = sorted_out(record_options)
        self._problems = Problems(_no_event)
        self._cadence = Cadence()
        self._epoch = 0
        self._view: Any = None
        self._losses: list[Any] = []
        self._offset = 0  # between the steps of the training and those that the optimizer counts

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  Keras names its arguments
        """A training begins; at which step is known when its first batch comes."""
        self._end(RuntimeError("model.fit ended with an exception"))  # the one before, if it has not ended

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  Keras names its arguments
        """Keras forgets the mean loss of the epoch before."""
        self._epoch = epoch
        if self._view is not None:
            self._view.forget_mean()

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  Keras names its arguments
        """What the coming step begins with: its learning rate, and at sampled steps the weights."""
        if self._view is None:
            self._begin()
        with self._problems.contained("batch"):
            self._view.before(sampled="blocks" in self._cadence.due(self._number()))

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  Keras names its arguments
        """A batch is over; with accumulation the step ends with the last of its batches."""
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
            self._end(stopped)  # Keras tells no callback of an exception
            raise
        self._log(number, series)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """A validation, where there was one, and the metrics of the epoch."""
        if self.run is None or not logs:
            return
        with self._problems.contained("metrics of the epoch"):
            if "val_loss" in logs:
                self.run.val(logs["val_loss"])
            self.run.log(epoch=epoch, **{name: value for name, value in logs.items() if "loss" not in name})

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  Keras names its arguments
        """The training is over."""
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
            self.run.monitor(self._on_fault)

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
    """A problem of the callback itself is said once on stderr."""
