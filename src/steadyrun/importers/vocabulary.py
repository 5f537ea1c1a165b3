"""Losses by the words of their names: every word has to be known, so that `reg_loss` or `val_loss_best` are none.

A name that has one word too many is a part, a record, a scale or something else: it gets no role, for a wrong one is
worse than none.
"""

from __future__ import annotations

import re

TRAIN = frozenset({"train", "training", "tr", "trn"})
HELD_OUT = frozenset({"val", "valid", "validation", "eval", "evaluation", "dev", "test", "heldout", "holdout"})
LOSS = frozenset({"loss", "losses"})
LOSS_WORDS = ("loss", "xent", "cross_entropy", "crossentropy")  # within a name that a program prints
KINDS = frozenset({
    "ce", "cross", "entropy", "crossentropy", "xent", "xentropy", "nll", "mse", "mae", "rmse", "bce", "logloss",
    "mlogloss", "language", "lm", "causal", "token", "tokens", "mean", "squared", "error",
})  # fmt: skip
NEUTRAL = frozenset({
    "total", "step", "steps", "batch", "metrics", "metric", "global", "reduced", "model", "epoch", "per", "set",
    "inner", "objective", "overall", "logs", "the", "iter", "scalar",
})  # fmt: skip
SMOOTH = frozenset({
    "avg", "average", "averaged", "avr", "mean", "epoch", "running", "interval",
})  # fmt: skip

_WORDS_LOSS = ({"cross", "entropy"}, {"crossentropy"}, {"xent"}, {"nll"}, {"mse"}, {"logloss"}, {"mlogloss"}, {"bce"})
_KNOWN = LOSS | KINDS | NEUTRAL | SMOOTH
_PARTS = frozenset({
    "aux", "auxiliary", "reg", "kl", "box", "bbox", "cls", "dfl", "obj", "seg", "mask", "rpn", "pose", "kobj", "ctc",
    "att", "vq", "commit", "gen", "disc", "g", "d", "adv", "gan", "recon", "z", "balance", "balancing", "router",
    "moe", "scale", "best", "min", "max", "lowest", "highest", "std", "var", "delta", "diff", "ratio", "weight",
    "weights", "perceptual", "feat", "mel", "duration", "l1", "iou", "giou", "dice", "ema", "penalty", "style",
    "content", "contrastive", "policy", "value", "entropy", "physics", "bc", "ic", "pde", "prev", "last", "initial",
    "target", "count", "class", "reward",
})  # fmt: skip
_SET = re.compile(r"^(?:eval|val|valid|validation)[_/](?P<name>.+)[_/](?:loss|cross_?entropy_?loss)", re.I)


def spellings(name: str) -> tuple[str, str]:
    """A name in lower case with `_` between its words, with and without the humps of CamelCase taken apart."""
    return _flat(name), _flat(re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name))


def _flat(name: str) -> str:
    """An underscore in front is kept: `_step` is a tracker's own counter."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower())
    return ("_" if name.startswith("_") else "") + plain.strip("_") or name


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
    return 500 if named and not set(spellings(named["name"])[1].split("_")) & (_PARTS | SMOOTH) else None


def _words(name: str) -> frozenset[str]:
    """The words that take apart best: CamelCase as words where that makes all of them known."""
    whole = name.removesuffix("/dataloader_idx_0")  # Lightning, where there are several validation sets
    flat, humps = (frozenset(spelled.split("_")) for spelled in spellings(whole))
    return humps if humps - (_KNOWN | TRAIN | HELD_OUT) <= flat - (_KNOWN | TRAIN | HELD_OUT) else flat


def _fit(words: frozenset[str], held_out: bool = False) -> int | None:
    if "entropy" in words and "cross" not in words:  # a bonus of reinforcement learning
        return None
    if words - _KNOWN or not (words & LOSS or any(kind <= words for kind in _WORDS_LOSS)):
        return None
    smooth = len(words & SMOOTH) if not held_out else 0  # a validation loss is a mean by nature
    return 100 * min(smooth, 3) + 10 * (not words & LOSS) + len(words)
