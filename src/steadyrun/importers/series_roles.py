"""Which series of a log is the loss, the learning rate and so on: one table, read from top to bottom.

A name is compared in lower case and in words: `train/Loss`, `train_loss` and `trainLoss` are alike. Of several names
for one role the one further left in its line is taken; the others keep their own names. A loss that the table does not
have is known by its words, and `loss_parts.py` makes one total of several. `--map loss=train/ce` goes before all of it.
What is not known keeps its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from steadyrun.importers.other_languages import in_english, without_accents

# Losses by the words of their names: every word has to be known, so that `reg_loss` or `val_loss_best` are none.
#
# A name that has one word too many is a part, a record, a scale or something else: it gets no role, for a wrong one is
# worse than none.


TRAIN = frozenset({"train", "training", "tr", "trn", "trng"})
HELD_OUT = frozenset({
    "val", "valid", "validation", "vali", "eval", "evaluation", "dev", "test", "heldout", "holdout", "vld",
})  # fmt: skip
LOSS = frozenset({"loss", "losses"})
LOSS_WORDS = ("loss", "xent", "cross_entropy", "crossentropy")  # within a name that a program prints
KINDS = frozenset({
    "ce", "cross", "entropy", "crossentropy", "xent", "xentropy", "nll", "mse", "mae", "rmse", "bce", "logloss",
    "mlogloss", "language", "lm", "causal", "token", "tokens", "mean", "squared", "error", "nelbo", "bpc", "bpb", "bpd",
    "huber", "hinge", "focal", "nats", "bits", "byte", "char", "dim", "absolute", "binary", "categorical", "sparse",
    "negative", "log", "likelihood", "with", "logits", "softmax", "sigmoid", "root",
})  # fmt: skip
NEUTRAL = frozenset({
    "total", "step", "steps", "batch", "metrics", "metric", "global", "reduced", "model", "epoch", "per", "set",
    "inner", "current", "objective", "overall", "logs", "the", "iter", "scalar", "all", "sum",
})  # fmt: skip
SMOOTH = frozenset({
    "avg", "average", "averaged", "avr", "mean", "epoch", "running", "interval",
})  # fmt: skip

_WORDS_LOSS = (
    {"cross", "entropy"}, {"crossentropy"}, {"xent"}, {"xentropy"}, {"nll"}, {"mse"}, {"logloss"}, {"mlogloss"},
    {"ce"}, {"bce"}, {"nelbo"}, {"squared", "error"}, {"negative", "log", "likelihood"},
)  # fmt: skip
_KNOWN = LOSS | KINDS | NEUTRAL | SMOOTH
PARTS = frozenset({
    "aux", "auxiliary", "reg", "kl", "box", "bbox", "cls", "dfl", "obj", "seg", "mask", "rpn", "pose", "kobj", "ctc",
    "att", "vq", "commit", "gen", "disc", "g", "d", "adv", "gan", "recon", "z", "balance", "balancing", "router",
    "moe", "scale", "best", "min", "max", "lowest", "highest", "std", "var", "delta", "diff", "ratio", "weight",
    "weights", "perceptual", "feat", "mel", "duration", "l1", "iou", "giou", "dice", "ema", "penalty", "style",
    "content", "contrastive", "policy", "value", "entropy", "physics", "bc", "ic", "pde", "prev", "last", "initial",
    "target", "count", "class", "reward",
})  # fmt: skip
_PLAYERS = frozenset({"actor", "critic", "generator", "discriminator"})  # whose loss need not fall
_SET = re.compile(r"^(?:eval|val|valid|validation)[_/](?P<name>.+)[_/](?:loss|cross_?entropy_?loss)", re.I)

_COLLECTIONS = frozenset({"history", "hist", "log", "logs", "curve", "values", "list", "record", "records", "data"})


_JOINED = re.compile(
    r"(?<![a-z0-9])(train|training|tr|trn|val|valid|validation|v|test|te|eval|dev|avg|total|epoch|batch)(loss|losses)(?![a-z0-9])"
)  # `vloss`, `trainloss`
_NUMBERED = re.compile(r"(?<![a-z0-9])loss(\d{1,3})(?![a-z0-9])")
_VALUE = re.compile(r"(?<![a-z0-9])loss_value(?![a-z0-9])")  # the loss itself, unlike the loss of a value
_SHORT = {"v": "val", "te": "test"}


@lru_cache(maxsize=20_000)
def spellings(name: str) -> tuple[str, str]:
    """A name in lower case with `_` between its words, with and without the humps of CamelCase taken apart."""
    plain = without_accents(in_english(name))
    return _flat(plain), _flat(re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain))


def _flat(name: str) -> str:
    """An underscore in front is kept: `_step` is a tracker's own counter."""
    plain = re.sub(r"[\W_]+", "_", name.lower()).strip("_")
    if "loss" in plain:
        plain = _JOINED.sub(lambda found: f"{_SHORT.get(found[1], found[1])}_{found[2]}", plain)
        plain = _VALUE.sub("loss", _NUMBERED.sub(r"loss_\1", plain))
    return ("_" if name.startswith("_") else "") + plain or name


def training_loss(name: str) -> int | None:
    """How well a name fits the training loss, 0 best: raw before smoothed ones, short names before long ones."""
    words = _words(name)
    return _fit(words - TRAIN) if words and not words & HELD_OUT else None


def held_out_loss(name: str) -> int | None:
    """How well a name fits the validation loss; one of several evaluation sets comes last."""
    words = _words(name)
    if words & HELD_OUT and not words & TRAIN:
        fit = _fit(words - HELD_OUT, held_out=True)
        if fit is not None:
            return fit + (100 if words & {"test"} else 0)
    named = _SET.fullmatch(name)
    return 500 if named and not set(spellings(named["name"])[1].split("_")) & (PARTS | SMOOTH) else None


def _words(name: str) -> frozenset[str]:
    """The words that take apart best: CamelCase as words if that makes all of them known."""
    whole = name.removesuffix("/dataloader_idx_0")  # Lightning, if there are several validation sets
    flat, humps = (frozenset(spelled.split("_")) for spelled in spellings(whole))
    return humps if humps - (_KNOWN | TRAIN | HELD_OUT) <= flat - (_KNOWN | TRAIN | HELD_OUT) else flat


def _fit(words: frozenset[str], held_out: bool = False) -> int | None:
    if "entropy" in words and "cross" not in words:  # a bonus of reinforcement learning
        return None
    if words - _KNOWN or not (words & LOSS or any(kind <= words for kind in _WORDS_LOSS)):
        return None
    smooth = len(words & SMOOTH) if not held_out else 0  # a validation loss is a mean by nature
    return 100 * min(smooth, 3) + 10 * (not words & LOSS) + len(words)


STEP, EPOCH, TIME = "step", "epoch", "time"
SCORE = "score"
"""What has to rise: a reward, an accuracy. Names that say so need no role; the file or the user may name another."""
EPOCH_LENGTH = "steps_per_epoch"
"""A column with the number of steps in an epoch, from a format that knows it: steps are counted through all epochs."""

RUN_COUNT, STARTS = "count_of_runs", "starts_of_the_program"
"""Columns from a format that reads them off the lines between rows: which run it is, and how often it was started."""
HIDDEN = frozenset({EPOCH_LENGTH, RUN_COUNT, STARTS})
RUN_COUNTERS = frozenset({
    "fold", "cv_fold", "fold_id", "fold_idx", "kfold", "k_fold", "seed", "random_seed", "trial", "trial_id", "run",
    "run_id", "repeat", "repetition", "replicate", "stage",
})  # fmt: skip
"""What counts above the epochs: if it changes and the steps are at their start again, another run begins."""

ROLES: Mapping[str, tuple[str, ...]] = {
    STEP: (
        "global_step", "train_global_step", "trainer_global_step", "iteration", "iter", "num_updates", "step", "steps",
        "train_step", "training_step", "current_steps", "current_step", "iterations", "iter_num", "update", "updates",
        "s", "_step", "total_timesteps", "time_total_timesteps", "timesteps_total", "training_iteration",
        "total_steps", "num_timesteps", "timesteps", "timestep", "n_steps", "step_count", "env_steps", "num_env_steps",
        "total_env_steps", "env_step", "total_step", "time_step", "iters", "itr", "it", "n_iter", "num_iter",
        "iter_count", "frame", "frames", "num_frames", "total_frames", "frame_idx", "batch", "batch_idx", "batch_id",
        "batches", "minibatch", "episode", "episodes", "num_episodes", "episode_num", "n_episodes", "i_episode",
        "episode_number", "episode_id", "total_episodes", "game", "games", "round", "rounds", "i",
    ),
    EPOCH: ("epoch", "train_epoch", "trainer_epoch", "epochs", "ep", "e"),
    TIME: ("_timestamp", "wall_time", "timestamp", "unix_time", "time"),
    "loss": (
        "loss", "train_loss", "training_loss", "lm_loss", "loss_train", "train_loss_step", "reduced_train_loss", "trl",
        "total_loss", "train_total_loss", "loss_total", "loss_train_total", "train_loss_total", "train_inner_loss",
        "loss_step", "train_lm_loss", "train_cross_entropy_loss", "train_ce_loss",
        "metrics_train_language_cross_entropy", "loss_metrics_global_avg_loss", "loss_global_avg_loss", "batch_loss",
    ),
    "val_loss": (
        "val_loss", "valid_loss", "validation_loss", "eval_loss", "loss_val", "loss_valid", "loss_validation",
        "loss_eval", "tel", "lm_loss_validation", "validation_metrics_loss_metrics_global_avg_loss",
        "metrics_eval_language_cross_entropy", "dev_loss", "vali_loss", "test_loss",
    ),
    "lr": (
        "lr", "learning_rate", "train_lr", "train_learning_rate", "lr_0", "lr_pg0", "lr_group_0", "lr_group0", "lr_1",
        "learning_rate_0", "optim_lr", "optimizer_lr", "optim_learning_rate", "optim_learning_rate_group0",
        "optim0_lr0", "current_lr", "current_lr_0", "learningrate", "params_lr", "lr_abs", "schedule_lr",
        "epoch_learning_rate", "x_lr0", "lr0", "learning_rates", "lrs", "lr_history", "learn_rate",
    ),
    "grad_norm": (
        "grad_norm", "gradient_norm", "train_grad_norm", "train_gradient_norm", "gnorm", "train_gnorm",
        "train_inner_gnorm", "norm", "global_grad_norm", "train_global_grad_norm", "grad_norm_total", "total_grad_norm",
        "grad_norm_2", "grad_2_0_norm_total", "optim_total_grad_norm", "l2_norm_grad_global", "grad_total_norm",
        "gradnorm", "g_norm", "grad_l2_norm", "grad_global_norm", "gradient_global_norm", "total_norm",
        "grad_norms", "gradient_norms",
    ),
    "loss_scale": (
        "loss_scale", "train_loss_scale", "train_inner_loss_scale", "scaler_scale", "grad_scale", "grad_scaler_scale",
        "amp_scale", "amp_scaler", "dynamic_loss_scale",
    ),
    SCORE: (),
}  # fmt: skip

SERIES: Mapping[str, str] = {"lr": "lr/0"}
"""Roles whose series have another name in a run directory."""

_GROUP = re.compile(r"lr_(?:[a-z]+_){0,2}?(?:pg|group_?)?(\d{1,9})")
_OPTIMIZER = re.compile(
    r"lr_(?:[a-z]*(?:adam|adam_?w|sgd|lion|rms_?prop|adagrad|muon|lamb|adafactor|shampoo))(?:_(?:pg|group_?)\d+)?"
)
_ORDER = {role: {name: index for index, name in enumerate(names)} for role, names in ROLES.items()}
_LATE = 1000  # known by its words, after all that the table has


def rank(role: str, name: str) -> int | None:
    """How well a name fits a role: 0 is best, None is not at all."""
    indices = [index for spelled in spellings(name) if (index := _ORDER[role].get(spelled)) is not None]
    if indices:
        return min(indices)
    by_words: int | None = None
    if role == "loss":
        by_words = training_loss(name)
    elif role == "val_loss":
        by_words = held_out_loss(name)
    elif role == "lr" and any(_OPTIMIZER.fullmatch(spelled) for spelled in spellings(name)):
        by_words = 0
    return None if by_words is None else _LATE + by_words


def in_table(name: str) -> bool:
    """Whether the table itself has a name as that of a loss."""
    return any(spelled in _ORDER[role] for role in ("loss", "val_loss") for spelled in spellings(name))


def roles_of(names: Iterable[str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Role to name, for the names of a log; what is `given` goes first."""
    there = list(names)
    chosen = dict(given or {})
    taken = set(chosen.values())
    for role in ROLES:
        if role in chosen:
            continue
        fits = [(name_rank, index, name) for index, name in enumerate(there)
                if name not in taken and (name_rank := rank(role, name)) is not None]  # fmt: skip
        best = min(fits)[2] if fits else _by_last_word(role, [name for name in there if name not in taken])
        if best is not None:
            chosen[role] = best
            taken.add(best)
    return chosen


def _by_last_word(role: str, names: list[str]) -> str | None:
    """The only name whose path ends in what the table has: `info/learner/default_policy/learner_stats/total_loss`."""
    if role not in ("loss", "lr", "grad_norm"):
        return None
    ends = [name for name in names if "/" in name and _flat(name.rpartition("/")[2]) in _ORDER[role]]
    other = HELD_OUT | PARTS | _PLAYERS if role == "loss" else HELD_OUT
    ends = [name for name in ends if not {_flat(part) for part in name.split("/")[:-1]} & other]
    return ends[0] if len(ends) == 1 else None


def series_name(role: str) -> str:
    """The series of a run directory that a role is kept as."""
    return SERIES.get(role, role)


def group_of(name: str) -> int | None:
    """The number of a parameter group whose learning rate this is (`lr/pg1`)."""
    match = next((match for spelled in spellings(name) if (match := _GROUP.fullmatch(spelled))), None)
    return int(match[1]) if match else None


def name_of_file(stem: str) -> str:
    """What a file is about, by its name: `train_loss_history` is about `train_loss`."""
    return "_".join(word for word in re.split(r"[\W_]+", stem) if word.lower() not in _COLLECTIONS)
