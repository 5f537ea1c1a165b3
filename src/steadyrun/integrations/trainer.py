"""What a Hugging Face Trainer declares, and what passes through its methods: losses, inputs, an exception."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, ParamSpec, Protocol, TypeVar

from torch import Tensor

from steadyrun.integrations.callbacks import Intent
from steadyrun.probes.problems import say
from steadyrun.program.frames import callers, variable
from steadyrun.program.torch_compat import Wrapping, saved, wrap

# What a Trainer declares: its arguments and its model in the words of steadyrun's config.
#
# Only what is certain. A wrong declaration would make a healthy run look broken, so an argument counts only where the
# Trainer itself has used it: an optimizer or a loss that is the user's own makes the argument beside it mean nothing.


_SCHEDULES = {"linear": 0.0, "cosine": 0.0, "constant": None, "constant_with_warmup": None}  # and where they end


class TrainerArguments(Protocol):
    """What is read off the TrainingArguments of a Trainer."""

    bf16: bool
    eval_strategy: object
    fp16: bool
    gradient_accumulation_steps: int
    learning_rate: float
    lr_scheduler_kwargs: object
    lr_scheduler_type: object
    max_grad_norm: float | None
    output_dir: str
    seed: int
    train_batch_size: int
    weight_decay: float
    world_size: int

    def get_warmup_steps(self, num_training_steps: int) -> int: ...


class TrainerProgress(Protocol):
    """What is read off the TrainerState of a Trainer."""

    eval_steps: float
    global_step: int
    max_steps: int


class ModuleTree(Protocol):
    """What is read off a model."""

    def modules(self) -> Iterable[object]: ...


def declared(args: TrainerArguments, state: TrainerProgress, trainer: object, objects: Mapping[str, Any]) -> Intent:
    """The config of a training; what cannot be found out is left out."""
    intent: Intent = {}
    parts: tuple[Callable[[], Intent], ...] = (
        lambda: _arguments(args, state),
        lambda: _objective(args),
        lambda: _rates(args, state, trainer, objects["optimizer"]),
        lambda: _decay(args, trainer, objects["optimizer"]),
        lambda: _model(trainer, objects["model"]),
        lambda: _tokens(objects.get("processing_class", objects.get("tokenizer"))),
        lambda: _data(objects.get("train_dataloader")),
    )
    for part in parts:
        try:
            intent |= part()
        except Exception as problem:
            say(f"a part of the Trainer's arguments could not be read: {type(problem).__name__}: {problem}")
    return intent


def _arguments(args: TrainerArguments, state: TrainerProgress) -> Intent:
    intent: Intent = {
        "seed": int(args.seed),
        "total_steps": int(state.max_steps),
        "accumulation": int(args.gradient_accumulation_steps),
        "batch_size": int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size),
    }
    if args.max_grad_norm and args.max_grad_norm > 0:
        intent["clip"] = float(args.max_grad_norm)
    if args.fp16 or args.bf16:
        intent["dtype"] = "fp16" if args.fp16 else "bf16"
    if str(getattr(args.eval_strategy, "value", args.eval_strategy)) == "steps":
        intent["val_every"] = int(state.eval_steps)
    return intent


_OBJECTIVE = (
    *("beta", "loss_type", "label_smoothing", "simpo_gamma", "num_generations", "num_iterations", "temperature"),
    *("epsilon", "epsilon_high", "scale_rewards", "gamma", "lam", "cliprange", "vf_coef", "kl_coef", "num_ppo_epochs"),
)


def _objective(args: TrainerArguments) -> Intent:
    """Settings of TRL's objectives, as far as the arguments have them beyond those of every Trainer."""
    from transformers import TrainingArguments

    own = [name for name in _OBJECTIVE if hasattr(args, name) and not hasattr(TrainingArguments, name)]
    found = {name: getattr(args, name) for name in own}
    return {name: value for name, value in found.items() if isinstance(value, int | float | str | list)}


def _rates(args: TrainerArguments, state: TrainerProgress, trainer: object, optimizer: object) -> Intent:
    rates = [group.get("initial_lr", group.get("lr")) for group in getattr(optimizer, "param_groups", [])]
    if args.learning_rate not in rates:
        return {}  # an optimizer of the user's own
    intent: Intent = {"lr_max": float(args.learning_rate)}
    kind = str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
    if not getattr(trainer, "_created_lr_scheduler", False) or kind not in _SCHEDULES or args.lr_scheduler_kwargs:
        return intent
    intent["schedule"] = kind
    intent["warmup_steps"] = 0 if kind == "constant" else int(args.get_warmup_steps(state.max_steps))
    if _SCHEDULES[kind] is not None:
        intent["lr_min"] = _SCHEDULES[kind]
    return intent


def _decay(args: TrainerArguments, trainer: object, optimizer: object) -> Intent:
    groups = getattr(optimizer, "param_groups", [])
    if args.weight_decay not in [group.get("weight_decay") for group in groups]:
        return {}
    intent: Intent = {"weight_decay": float(args.weight_decay)}
    if args.weight_decay > 0 and _is_trainers_own(trainer, "create_optimizer") and len(groups) == 2:
        intent["no_decay"] = ["bias"]
    return intent


def _model(trainer: object, model: ModuleTree) -> Intent:
    from transformers.models.auto import modeling_auto

    config = getattr(model, "config", None)
    if config is None:
        return {}
    name = type(model.get_base_model() if hasattr(model, "get_base_model") else model).__name__  # inside of an adapter
    intent: Intent = {"model": name, "trainer": type(trainer).__name__}
    if getattr(config, "_name_or_path", ""):
        intent["init"] = "pretrained"
    causal = name in _names(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    masked = name in _names(modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    own_loss = _is_trainers_own(trainer, "compute_loss") and getattr(trainer, "compute_loss_func", None) is None
    plain = own_loss or any(base.__name__ == "SFTTrainer" for base in type(trainer).__mro__)
    if (causal or masked) and plain and isinstance(getattr(config, "vocab_size", None), int):
        intent["vocab_size"] = config.vocab_size
    if own_loss and getattr(config, "problem_type", None) == "single_label_classification":
        intent["num_classes"] = int(config.num_labels)
    if causal and _sees_no_later(model, config):
        intent["causal"] = True
    return intent


def _sees_no_later(model: ModuleTree, config: Any) -> bool:
    """Whether every attention is declared causal, in a model of text only."""
    causal_flags = [
        is_causal for module in model.modules() if isinstance(is_causal := getattr(module, "is_causal", None), bool)
    ]
    return bool(causal_flags) and all(causal_flags) and config.get_text_config() is config


def _tokens(tokenizer: object) -> Intent:
    """The ids of padding and of the end of a text; if they are equal, an end looks like padding."""
    pad, end = (getattr(tokenizer, f"{name}_token_id", None) for name in ("pad", "eos"))
    intent: Intent = {"pad_id": pad} if isinstance(pad, int) else {}
    if isinstance(end, int):
        intent["eos_id"] = end if end != pad else None
    return intent


def _data(loader: object) -> Intent:
    """Whether the data is shuffled; accelerate may have put one batch sampler around another."""
    from torch.utils.data import RandomSampler

    sampler: Any = getattr(loader, "batch_sampler", None)
    while hasattr(sampler, "batch_sampler"):
        sampler = sampler.batch_sampler
    shuffled = isinstance(getattr(sampler, "sampler", None), RandomSampler)
    return {"shuffle": True} if shuffled else {}


def _is_trainers_own(trainer: object, method: str) -> bool:
    from transformers import Trainer

    return getattr(type(trainer), method, None) is getattr(Trainer, method)


def _names(mapping: Mapping[str, str | Iterable[str]]) -> set[str]:
    return {name for names in mapping.values() for name in ([names] if isinstance(names, str) else names)}


# What passes through the methods of a Trainer: losses, inputs, and an exception at the end.


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
    """Wraps `train`, `training_step` and `prediction_step` of one Trainer; their results pass through unchanged."""

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
        if hasattr(trainer, "prediction_step") and not same:  # validating on the training data itself is deliberate
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
        """The loss of the step and its batch, a list if it has several micro-batches.

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
            say(f"a batch of the Trainer could not be read: {type(problem).__name__}: {problem}")
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
    """The Trainer that is calling this callback, among the callers of this function; None without any."""
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
