"""What passes through the methods of a Trainer: losses, inputs, and an exception at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, ParamSpec, Protocol, TypeVar

from torch import Tensor

from steadyrun.integrations.trainer_intent import TrainerArguments
from steadyrun.probes.problems import say
from steadyrun.program.frames import callers, variable
from steadyrun.program.torch_compat import Wrapping, saved, wrap

_FRAMES = 20
_MOST_BYTES = 8 * 2**20  # of the inputs of one validation that are kept until it is over
_MEAN = 1  # as torch numbers reductions
_LABELS = ("labels", "label", "label_ids", "start_positions", "end_positions")

Inputs = dict[str, object]
_P = ParamSpec("_P")
_R = TypeVar("_R")


class ViewedTrainer(Protocol):
    """What is read off a Trainer; its methods may be missing."""

    args: TrainerArguments


class TrainerView:
    """Stands at `train`, `training_step` and `prediction_step` of one Trainer; what they do is left as it is."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._wrappings: list[Wrapping] = []
        self._first = ""
        self._loss: Any = None
        self._means: Tensor | None = (
            None  # the sum of what `compute_loss` returned, where each is the mean of its micro-batch
        )
        self._is_mean: bool | None = None  # not known before the first
        self._factor = 1.0
        self._count = 0
        self._inputs: list[Inputs] = []
        self._validation: list[Inputs] = []
        self._kept_bytes = 0

    def guard(self, trainer: object) -> None:
        """Tell `failed` when `train` ends with an exception; this stays for as long as the Trainer lives."""
        if hasattr(trainer, "train"):
            wrap(trainer, "train", self._guarded)

    def attach(self, trainer: ViewedTrainer | None, model: object) -> None:
        """Look at training and validation, until `detach`."""
        if trainer is None or not hasattr(trainer, "training_step"):
            say("the Trainer that calls SteadyrunCallback was not found: losses and batches are not recorded")
            return
        self._first = str(getattr(model, "main_input_name", "input_ids"))
        if trainer.args.gradient_accumulation_steps > 1:
            self._is_mean = None
            self._put(trainer, "compute_loss", partial(self._after, self._saw_loss))
        self._put(trainer, "training_step", self._guarded)
        self._put(trainer, "training_step", partial(self._after, self._saw_training))
        same = getattr(trainer, "eval_dataset", None) is getattr(trainer, "train_dataset", None)
        if hasattr(trainer, "prediction_step") and not same:  # to validate on the training data itself is no accident
            self._put(trainer, "prediction_step", partial(self._after, self._saw_validation))

    def detach(self) -> None:
        """Put the methods back."""
        for wrapping in reversed(self._wrappings):
            wrapping.remove()
        self._wrappings.clear()
        self.forget()
        self.take_validation()

    def forget(self) -> None:
        self._loss, self._means, self._inputs, self._count = None, None, [], 0

    def take_step(self) -> tuple[object, Inputs | list[Inputs] | None]:
        """The loss of the step and its batch, a list where it has several micro-batches.

        What `training_step` returns adds up to the step's mean: the Trainer has divided it by the number of
        micro-batches, or the model by the number of all their tokens. Where neither was done (a model that takes the
        number of tokens and does nothing with it), the mean is that of the losses themselves.
        """
        loss = self._loss if self._means is None else self._means / self._count
        inputs = self._inputs
        self.forget()
        return loss, None if not inputs else inputs[0] if len(inputs) == 1 else inputs

    def take_validation(self) -> list[Inputs]:
        """The inputs of the last validation, as many as were kept."""
        kept, self._validation, self._kept_bytes = self._validation, [], 0
        return kept

    def _put(self, trainer: object, name: str, around: Callable[..., object]) -> None:
        self._wrappings.append(wrap(trainer, name, around))

    def _after(
        self, saw: Callable[[Inputs | None, _R], None], call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        given = kwargs.get("inputs", args[1] if len(args) > 1 else None)
        inputs = dict(given) if isinstance(given, Mapping) else None  # what is in it now
        result = call(*args, **kwargs)
        try:
            saw(inputs, result)
        except Exception as problem:
            say(f"a batch of the Trainer could not be looked at: {type(problem).__name__}: {problem}")
        return result

    def _guarded(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return call(*args, **kwargs)
        except BaseException as failure:
            self._failed(failure)
            raise

    def _saw_loss(self, _inputs: object, result: object) -> None:
        loss = result[0] if isinstance(result, tuple) else result
        if not isinstance(loss, Tensor) or not loss.requires_grad:
            return  # a validation
        if self._is_mean is None:
            self._is_mean, self._factor = _is_mean(loss)
        if self._is_mean:
            mean = loss.detach().mean() / self._factor
            self._means = mean if self._means is None else self._means + mean
            self._count += 1

    def _saw_training(self, inputs: Inputs | None, loss: Any) -> None:
        if isinstance(loss, Tensor):
            loss = loss.detach()  # a sum is a new tensor: the memory of this one may be used again
        self._loss = loss + 0 if self._loss is None else self._loss + loss
        if inputs is not None and any(isinstance(value, Tensor) for value in inputs.values()):
            self._inputs.append(self._in_order(inputs))

    def _saw_validation(self, inputs: Inputs | None, _result: object) -> None:
        size = 0 if inputs is None else sum(value.nbytes for value in inputs.values() if isinstance(value, Tensor))
        if inputs is not None and size and self._kept_bytes + size <= _MOST_BYTES:
            self._kept_bytes += size
            self._validation.append(self._in_order(inputs))

    def _in_order(self, inputs: Inputs) -> Inputs:
        """What the model is given first, and labels last, as the recorder expects them."""
        first = {name: value for name, value in inputs.items() if name == self._first}
        last = {name: value for name, value in inputs.items() if name in _LABELS}
        return first | {name: value for name, value in inputs.items() if name not in last} | last


def trainer_of(callback: object) -> ViewedTrainer | None:
    """The Trainer that is calling this callback, among the callers of this function; None where there is none."""
    for frame in islice(callers(sys._getframe(1)), _FRAMES):
        caller = variable(frame, "self")
        handler = getattr(caller, "callback_handler", None)
        if any(registered is callback for registered in getattr(handler, "callbacks", [])):
            return caller
    return None


def _is_mean(loss: Tensor) -> tuple[bool, float]:
    """Whether a loss is one of torch's, averaged over its batch; and the factor that the Trainer has put before it.

    With several processes that is their number: it expects a loss that was divided by the tokens of all of them.
    """
    node: Any = loss.grad_fn  # its fields depend on the operation
    factor = 1.0
    other = saved(node, "other") if node.name().startswith("Mul") else None
    if isinstance(other, int | float) or (
        isinstance(other, Tensor) and other.dim() == 0 and other.device.type == "cpu"
    ):
        node, factor = node.next_functions[0][0], float(other) or 1.0
    return saved(node, "reduction") == _MEAN, factor
