"""Several losses in one log: which series are losses, which add up to the total, and whether a total has to fall.

One rule for every format. A total that the log has is the loss. Without one, the losses of a split that add up (box,
class and distribution; KL and reconstruction) are summed. Losses that pull against each other (generator and
discriminator, actor and critic) have no total: neither of them has to fall, so none gets the role `loss`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from steadyrun.importers.series_roles import HELD_OUT, KINDS, LOSS, NEUTRAL, PARTS, SMOOTH, TRAIN, in_table, spellings

FALLS, SUM, OPPOSED, REWARD, NONE = "falls", "sum", "opposed", "reward", "none"
"""What the objective is: a total, a sum of parts, players against each other, a return to be raised, not known."""

Words = frozenset[str]

_LETTERS = ("L", "J")  # losses in formulas: `L_ctc` is a term of `L`

_LOSS = LOSS | {"gloss", "dloss", "err"}
_MAKERS = frozenset({"g", "gen", "generator", "gloss"})
_JUDGES = frozenset({"d", "dis", "disc", "discriminator", "critic", "dloss"})
_ERRORS = frozenset({"error", "errors"})  # of a player: `errorD`
_SPELLED_OUT = (_MAKERS | _JUDGES) - {"g", "d"}
_PLAYERS = frozenset({"generator", "discriminator"})  # these words mean nothing else
_TERMS = frozenset({"real", "fake", "gan", "adv", "a", "b", "l1", "cycle", "idt"})  # what players print after a letter
_DETECTION = frozenset({"box", "obj", "cls", "dfl"})  # losses that YOLO prints without the word
_CYCLE = frozenset({"cycle", "cyc", "idt", "identity"})  # losses that CycleGAN prints without the word
_POLICY = frozenset({
    "actor", "critic", "policy", "pg", "pf", "vf", "qf", "qf1", "qf2", "q", "value", "surrogate", "ppo",
})  # fmt: skip
_RETURNS = frozenset({"reward", "rewards", "rew", "return", "returns", "advantage", "advantages"})
_PREFERENCES = frozenset({"chosen", "rejected"})  # rewards of DPO and reward models: their loss is an ordinary one
_QUALITY = frozenset({"psnr", "ssim", "acc", "accuracy", "score"})  # of what is rebuilt: higher is better
_TOTALS = frozenset({"total", "sum", "all", "overall"})  # beside parts, the name of what they add up to
_REBUILT, _DIVERGENCE = frozenset({"recon", "reconstruction", "rec"}), frozenset({"kl", "kld"})
_NOT_ADDED = frozenset({
    "aux", "auxiliary", "balance", "balancing", "router", "z", "moe", "scale", "scaler", "best", "min", "max", "lowest",
    "highest", "std", "var", "delta", "diff", "ratio", "weight", "weights", "ema", "smoothed", "prev", "last",
    "initial", "target", "count", "grad", "norm", "coef", "coeff", "lambda", "time", "lr", "improvement", "entropy",
    "ppl", "vs", "num", "number",
})  # fmt: skip  # records, scales and side terms: their sum with a loss is not the loss
_NEVER_ALONE = frozenset({"kl", "kld", "reg", "regularization", "penalty", "commit", "vq", "gp", "l2"})


@dataclass(frozen=True)
class Losses:
    """The losses of a log: their names in its order, what stands for the total, and what the objective is."""

    names: tuple[str, ...] = ()
    sums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # role: the parts whose sum it is
    objective: str = NONE


def losses_of(names: Iterable[str], roles: Mapping[str, str]) -> Losses:
    """The losses among the names of a log, of which `roles` is what the table makes of them."""
    words = {name: _words(name) for name in names}
    opposed = _opposed(words.values())
    with_role = {roles.get("loss"), roles.get("val_loss")}
    rebuilt = any(each & _REBUILT for each in words.values())
    detects = sum(each <= _DETECTION for each in words.values()) > 1
    found = tuple(
        name for name, each in words.items()
        if name in with_role or _is_loss(each) or (rebuilt and each & (_REBUILT | _DIVERGENCE) and not each & _QUALITY)
        or (opposed and (_plays(each, _MAKERS | _JUDGES) or _is_player(each) or each & _CYCLE))
        or (detects and each & _DETECTION and each <= _DETECTION | TRAIN | HELD_OUT)
        or (roles.get("loss") in _LETTERS and name.startswith(f"{roles['loss']}_"))
    )  # fmt: skip
    if opposed:
        return Losses(found, {}, OPPOSED)
    policy = any(words[name] & _POLICY for name in found) or _has_returns(words.values())
    sums = {} if policy and "loss" not in roles else _sums(found, words, roles)
    if policy:
        return Losses(found, sums, REWARD)
    total = roles.keys() & {"loss", "val_loss"} or sums
    return Losses(found, sums, SUM if len(sums.get("loss", ())) > 1 else FALLS if total else NONE)


def _words(name: str) -> Words:
    return frozenset(spellings(name)[1].strip("_").split("_"))


def _is_loss(words: Words) -> bool:
    return bool(words & _LOSS) and not words & _NOT_ADDED


def _opposed(names: Iterable[Words]) -> bool:
    """Whether a maker and its judge are both there; as names of nothing else, each proves what the other one means.

    A loss that is called a discriminator's has an opponent, whatever that one is called.
    """
    every = list(names)
    if any("discriminator" in words and words & _LOSS for words in every):
        return True
    if any(_is_player(words) and words & _MAKERS for words in every) and any(
        _is_player(words) and words & _JUDGES for words in every
    ):
        return True
    return any(_plays(words, _MAKERS) for words in every) and any(_plays(words, _JUDGES) for words in every)


def _plays(words: Words, side: Words) -> bool:
    """Whether a name is a player's; a single letter says so only beside a word of its trade."""
    return bool(words & side) and bool(words & (_LOSS | _PLAYERS | _TERMS | _ERRORS))


def _is_player(words: Words) -> bool:
    """Whether a name is a player's word alone, `gen` or `train/disc`; a single letter may stand for anything."""
    return bool(words & _SPELLED_OUT) and words <= _SPELLED_OUT | TRAIN | HELD_OUT


def _has_returns(names: Iterable[Words]) -> bool:
    every = list(names)
    return any(words & _RETURNS for words in every) and not any(words & _PREFERENCES for words in every)


def _sums(found: tuple[str, ...], words: Mapping[str, Words], roles: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Role to its parts, for a split that has no total; a split with one loss has that."""
    train = _parts([name for name in found if not words[name] & HELD_OUT], words, roles.get("loss"))
    totals = [name for name, each in words.items() if each & _TOTALS and each <= _TOTALS | TRAIN]
    train = (totals[0],) if totals and len(train) > 1 else train
    known = {_key(words[name]) for name in train}
    held_out = [
        name
        for name in found
        if words[name] & HELD_OUT and (words[name] & PARTS or not known or _key(words[name]) in known)
    ]
    total = roles.get("val_loss")
    if total is not None and _key(words[total]) in known:
        total = None  # a part by the name of a validation set
    held_out_parts = _parts(held_out, words, total)
    sums = {"loss": train, "val_loss": held_out_parts}
    return {role: parts for role, parts in sums.items() if parts and not _one_that_adds_nothing(parts, words)}


def _one_that_adds_nothing(parts: tuple[str, ...], words: Mapping[str, Words]) -> bool:
    return len(parts) == 1 and bool(words[parts[0]] & _NEVER_ALONE)


def _parts(names: list[str], words: Mapping[str, Words], total: str | None) -> tuple[str, ...]:
    """The parts of one split, each once and unsmoothed if there is a choice; none if the log has their total."""
    if total is not None and (in_table(total) or not words[total] & (KINDS - SMOOTH) or len(names) < 2):
        return ()
    best: dict[Words, str] = {}
    for name in names:
        key = _key(words[name])
        if not key or (key <= KINDS and name != total):  # the same loss in another unit is not a part of it
            continue
        held = best.get(key)
        if held is None or len(words[name] & SMOOTH) < len(words[held] & SMOOTH):
            best[key] = name
    return tuple(best.values()) if total is None or len(best) > 1 else ()


def _key(words: Words) -> Words:
    """What a part is about, without its split and without how it was averaged."""
    return words - LOSS - TRAIN - HELD_OUT - NEUTRAL - (SMOOTH - KINDS)
