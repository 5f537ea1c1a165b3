"""What passes through the methods of a Trainer: losses, inputs, and an exception at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from steadyrun.probes.problems import say
from steadyrun.probes.scalars import is_tensor
from steadyrun.program.frames import variable
from steadyrun.program.torch_compat import Wrapping, wrap

_FRAMES = 20
_MOST_BYTES = 8 * 2**20  # of the inputs of one validation that are kept until it is over
_MEAN = 1  # as torch numbers reductions
_LABELS = ("labels", "label", "label_ids", "start_positions", "end_positions")


class TrainerView:
    """Stands at `train`, `training_step` and `prediction_step` of one Trainer; what they do is left as it is."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._wrappings: list[Wrapping] = []
        self._first = ""
        self._loss: Any = None
        self._means: Any = None  # the sum of what `compute_loss` returned, where each is the mean of its micro-batch
        self._is_mean: bool | None = None  # not known before the first
        self._factor = 1.0
        self._count = 0
        self._inputs: list[Any] = []
        self._validation: list[Any] = []
        self._kept_bytes = 0

    def guard(self, trainer: Any) -> None:
        """Tell `failed` when `train` ends with an exception; this stays for as long as the Trainer lives."""
        if hasattr(trainer, "train"):
            wrap(trainer, "train", self._guarded)

    def attach(self, trainer: Any, model: Any) -> None:
        """Look at training and validation, until `detach`."""
        if not hasattr(trainer, "training_step"):
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

    def take_step(self) -> tuple[Any, Any]:
        """The loss of the step and its batch, a list where it has several micro-batches.

        What `training_step` returns adds up to the step's mean: the Trainer has divided it by the number of
        micro-batches, or the model by the number of all their tokens. Where neither was done (a model that takes the
        number of tokens and does nothing with it), the mean is that of the losses themselves.
        """
        loss = self._loss if self._means is None else self._means / self._count
        inputs = self._inputs
        self.forget()
        return loss, None if not inputs else inputs[0] if len(inputs) == 1 else inputs

    def take_validation(self) -> list[Any]:
        """The inputs of the last validation, as many as were kept."""
        kept, self._validation, self._kept_bytes = self._validation, [], 0
        return kept

    def _put(self, trainer: Any, name: str, around: Callable[..., Any]) -> None:
        self._wrappings.append(wrap(trainer, name, around))

    def _after(self, saw: Callable[[Any, Any], None], call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("inputs", args[1] if len(args) > 1 else None)
        inputs = dict(given) if isinstance(given, Mapping) else None  # what is in it now
        result = call(*args, **kwargs)
        try:
            saw(inputs, result)
        except Exception as problem:
            say(f"a batch of the Trainer could not be looked at: {type(problem).__name__}: {problem}")
        return result

    def _guarded(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except BaseException as failure:
            self._failed(failure)
            raise

    def _saw_loss(self, _inputs: Any, result: Any) -> None:
        loss = result[0] if isinstance(result, tuple) else result
        if not is_tensor(loss) or not loss.requires_grad:
            return  # a validation
        if self._is_mean is None:
            self._is_mean, self._factor = _is_mean(loss)
        if self._is_mean:
            mean = loss.detach().mean() / self._factor
            self._means = mean if self._means is None else self._means + mean
            self._count += 1

    def _saw_training(self, inputs: dict[str, Any] | None, loss: Any) -> None:
        if is_tensor(loss):
            loss = loss.detach()  # a sum is a new tensor: the memory of this one may be used again
        self._loss = loss + 0 if self._loss is None else self._loss + loss
        if inputs is not None and any(is_tensor(value) for value in inputs.values()):
            self._inputs.append(self._in_order(inputs))

    def _saw_validation(self, inputs: dict[str, Any] | None, _result: Any) -> None:
        size = 0 if inputs is None else sum(value.nbytes for value in inputs.values() if is_tensor(value))
        if inputs is not None and size and self._kept_bytes + size <= _MOST_BYTES:
            self._kept_bytes += size
            self._validation.append(self._in_order(inputs))

    def _in_order(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """What the model is given first, and labels last, as the recorder expects them."""
        first = {name: value for name, value in inputs.items() if name == self._first}
        last = {name: value for name, value in inputs.items() if name in _LABELS}
        return first | {name: value for name, value in inputs.items() if name not in last} | last


def trainer_of(callback: Any) -> Any:
    """The Trainer that is calling this callback, among the callers of this function; None where there is none."""
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        caller = variable(frame, "self")
        handler = getattr(caller, "callback_handler", None)
        if any(registered is callback for registered in getattr(handler, "callbacks", [])):
            return caller
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


def _is_mean(loss: Any) -> tuple[bool, float]:
    """Whether a loss is one of torch's, averaged over its batch; and the factor that the Trainer has put before it.

    With several processes that is their number: it expects a loss that was divided by the tokens of all of them.
    """
    node, factor = loss.grad_fn, 1.0
    other: Any = getattr(node, "_saved_other", None) if node.name().startswith("Mul") else None
    if isinstance(other, int | float) or (is_tensor(other) and other.dim() == 0 and other.device.type == "cpu"):
        node, factor = node.next_functions[0][0], float(other) or 1.0
    return getattr(node, "_saved_reduction", None) == _MEAN, factor
