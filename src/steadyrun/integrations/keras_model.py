"""What a Keras model shows: what it declares, the loss of a batch, gradients, updates and rates, on each backend.

Keras gives a callback the mean loss of the epoch so far, not that of the batch. The loss of a batch follows from the
sum and the count behind that mean; on the torch backend it is read when it is differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import keras
import numpy as np

from steadyrun.integrations.callbacks import Intent
from steadyrun.signals.curves import knots

if TYPE_CHECKING:
    from torch import Tensor

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
    """The learning rates that a schedule will give, as knots; None if the rate is a number."""
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
    """The width of the output, if there is one and the loss chooses among classes."""
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
        that is not finite they are useless until the next epoch.
        """
        total, count = self._sums()
        before, self._mean = self._mean, (total, count)
        if not math.isfinite(before[0]) or count <= before[1]:
            return None
        return (total - before[0]) / (count - before[1])

    def after(self) -> dict[str, float]:
        """Of a step that has ended: the learning rate and, at sampled steps, norms per layer."""
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
        """The norm of the gradients and, at sampled steps, of those of each layer."""
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
    """The torch backend: the loss is read at its backward pass, gradients stay until the next step."""

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
