"""What a Trainer declares: its arguments and its model in the words of steadyrun's config.

Only what is certain. A wrong declaration would make a healthy run look broken, so an argument counts only where the
Trainer itself has used it: an optimizer or a loss that is the user's own makes the argument beside it mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from steadyrun.integrations.callbacks import Intent
from steadyrun.probes.problems import say

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
    """Whether every attention says of itself that it is causal, in a model of nothing but text."""
    causal_flags = [
        is_causal for module in model.modules() if isinstance(is_causal := getattr(module, "is_causal", None), bool)
    ]
    return bool(causal_flags) and all(causal_flags) and config.get_text_config() is config


def _tokens(tokenizer: object) -> Intent:
    """The ids of padding and of the end of a text; where they are one, an end cannot be told from padding."""
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
