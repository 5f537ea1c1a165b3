"""What can be seen of a Keras model from a callback, on each backend, without changing what it computes."""

from __future__ import annotations

import math
from typing import Any

import keras

Named = list[tuple[str, Any]]  # a block's name, a tensor


class KerasView:
    """A model in training: the loss of a batch, the learning rate of a step, norms per layer."""

    def __init__(self, model: Any) -> None:
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
        self._weights = {place: _copy(value) for place, (_, value) in enumerate(self._named())} if sampled else None

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

    def after(self) -> dict[str, Any]:
        """Of a step that has ended: the learning rate, and norms per layer where it is sampled."""
        found: dict[str, Any] = {} if self._rate is None else {"lr/0": self._rate}
        found |= {} if self._scale is None else {"loss_scale": self._scale}
        found |= self._gradients(self._weights is not None)
        if self._weights is None:
            return found
        named = self._named()
        sizes = _by_block([(name, _square(value)) for name, value in named])
        moves = _by_block([(name, _square(value - self._weights[place])) for place, (name, value) in enumerate(named)])
        for name, size in sizes.items():
            found[f"block_param_norm/{name}"] = size
            if size > 0:
                found[f"update_ratio/{name}"] = moves[name] / size
        self._weights = None
        return found

    def close(self) -> None:
        """Take off what was put on."""

    # -- what differs by backend ------------------------------------------------------------------

    def _value(self, _kind: str, variable: Any) -> Any:
        """The value of a variable now."""
        return variable.value

    def _gradients(self, _sampled: bool) -> dict[str, Any]:
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
        return [(_block(each), self._value("trainable_variables", each)) for each in self._model.trainable_variables]


class TorchView(KerasView):
    """The torch backend: the loss is seen at its backward pass, gradients stay until the next one."""

    def __init__(self, model: Any) -> None:
        from steadyrun.probes import roots

        super().__init__(model)
        self._roots, self._root = roots, None
        roots.observe(self._starts)

    def _starts(self, root: Any) -> None:
        self._root = None if root is None else root.detach()

    def batch_loss(self) -> float | None:
        told, root = super().batch_loss(), self._root
        self._root = None
        return told if root is None else float(root) / (self._scale or 1.0)

    def _gradients(self, sampled: bool) -> dict[str, Any]:
        if self._every > 1:  # what is left is the gradient of the last batch alone
            return {}
        grads = [(_block(each), each.value.grad) for each in self._model.trainable_variables]
        squares = [(name, _square(grad.detach() / (self._scale or 1.0))) for name, grad in grads if grad is not None]
        found = {"grad_norm": math.sqrt(sum(square for _, square in squares))}
        return found | ({f"block_grad_norm/{n}": v for n, v in _by_block(squares).items()} if sampled else {})

    def close(self) -> None:
        self._roots.forget(self._starts)


class JaxView(KerasView):
    """The JAX backend: during an epoch the values are in the state that goes through the compiled step."""

    def _value(self, kind: str, variable: Any) -> Any:
        state = getattr(self._model, "_jax_state", None)
        if not state or getattr(self._model, "_jax_state_synced", True):
            return variable.value
        owner = self._outer.variables if kind == "optimizer_variables" else getattr(self._model, kind)
        place = next(place for place, each in enumerate(owner) if each is variable)
        return state[kind][place]


def view_of(model: Any) -> KerasView:
    """The view for the backend in use."""
    views = {"torch": TorchView, "jax": JaxView}
    return views.get(keras.backend.backend(), KerasView)(model)


def _block(variable: Any) -> str:
    """The layer of a variable: `sequential/hidden/kernel` belongs to `hidden`."""
    words = variable.path.split("/")[:-1]
    return ".".join(words[1:] or words) or variable.path


def _copy(value: Any) -> Any:
    return keras.ops.copy(keras.ops.stop_gradient(value))


def _square(value: Any) -> float:
    flat = keras.ops.cast(keras.ops.stop_gradient(value), "float32")
    return float(keras.ops.sum(keras.ops.square(flat)))


def _by_block(squares: list[tuple[str, float]]) -> dict[str, float]:
    """Norms per block from the squares of its tensors."""
    sums: dict[str, float] = {}
    for name, square in squares:
        sums[name] = sums.get(name, 0.0) + square
    return {name: math.sqrt(total) for name, total in sums.items()}
