"""Roles of series by their names: measures of success and their direction, and losses of opponents."""

from __future__ import annotations

import re

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from steadyrun.signals.curves import Floats, neighbour_noise
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import apart, shown

HIGHER, LOWER = 1, -1
REWARDS = frozenset({"reward", "rewards", "rew", "return", "returns", "score", "scores", "success", "win"})
_HIGHER = REWARDS | frozenset({
    "accuracy", "acc", "correct", "acc1", "acc5", "top1", "top5", "prec1", "prec5", "winrate",
    "bleu", "rouge1", "rouge2", "rougel", "meteor", "chrf", "f1", "map",
    "map50", "map95", "ap", "ap50", "iou", "miou", "dice", "auc", "auroc", "ndcg", "hit", "mrr", "psnr", "ssim",
})  # fmt: skip
_LOWER = frozenset({"wer", "cer", "eer", "ter", "fid", "err", "error", "ppl", "perplexity"})
_CODEBOOKS = frozenset({"codebook", "commitment", "commit", "vq", "quantizer", "quantiser"})
_OF_A_LOSS = frozenset({"ppl", "perplexity"})  # the exponential of a loss: it rises with it
_MANY = 10  # values: from here on, levels over a fifth of them are compared instead of single values
_FIFTH = 5
_TRAIN = frozenset({"train", "training", "tr", "trn"})
HELD_OUT = frozenset({"val", "valid", "validation", "vali", "eval", "evaluation", "dev", "test", "heldout", "holdout"})
_KNOWN = _TRAIN | HELD_OUT | frozenset({
    "mean", "avg", "average", "ep", "episode", "episodic", "rollout", "history", "rate", "ratio", "total", "critic",
    "env", "metrics", "metric", "cumulative", "logged", "sum", "epoch", "step", "at", "b", "m", "binary",
    "sparse", "categorical", "macro", "micro", "weighted", "bbox", "segm", "score", "episodes", "eps", "game", "games",
    "last", "recent", "running", "rolling", "moving", "smoothed", "over", "per", "of", "the", "on", "set", "overall",
    "model", "learning", "testing", "top", "class", "classes", "roc",
})  # fmt: skip
_REINFORCED = frozenset({
    "reward", "rewards", "rew", "return", "returns", "policy", "actor", "advantage", "advantages", "pg", "ppo",
})  # fmt: skip
_PREFERENCES = frozenset({"chosen", "rejected"})  # a preference loss must fall, although rewards are logged with it


def words_of(name: str) -> frozenset[str]:
    """The words of a name, in lower case: `eval/ep_rewMean` has four."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", name)
    return frozenset(word for word in re.split(r"[^a-z0-9]+", parts.lower()) if word)


def better(name: str) -> int:
    """The better direction of a measure of success, if every word of its name is known; otherwise 0.

    A number in a name is a window or a threshold, as in `mean 100 episode reward` or `Average100 Score`.
    """
    known = _HIGHER | _LOWER | _KNOWN
    words = frozenset(word if word in known else word.rstrip("0123456789") for word in words_of(name)) - {""}
    of_success = words & (_HIGHER | _LOWER)
    if not of_success or words - of_success - _KNOWN:
        return 0
    return LOWER if words & _LOWER else HIGHER


def _is_of_a_loss(name: str) -> bool:
    """Whether a measure of success is a validation loss under another name."""
    return bool(words_of(name) & _OF_A_LOSS)


def is_reward(name: str) -> bool:
    """Whether a series is the reward of a policy."""
    return better(name) == HIGHER and bool(words_of(name) & REWARDS)


_RETURNS = frozenset({"reward", "rewards", "rew", "return", "returns"})
_ABOUT_REWARDS = frozenset({
    "std", "var", "variance", "min", "max", "loss", "scale", "weight", "coef", "norm", "bonus", "penalty", "time",
    "length", "len", "error", "kl",
})  # fmt: skip


def has_codebook(run: Signals) -> bool:
    """Whether the losses of a codebook are logged."""
    return any(words_of(name) & _CODEBOOKS for name in run.own)


def successes(run: Signals) -> dict[str, int]:
    """The logged measures of success, with their better direction.

    A perplexity counts only if there is no other: it rises with the validation loss, even while accuracy improves.
    The only series of a record is named after its file, with any words: one word about a reward is enough.
    """
    found = {name: way for name in run.own if (way := better(name))}
    if has_codebook(run):  # a perplexity is then that of the codes in use
        found = {name: way for name, way in found.items() if not _is_of_a_loss(name)}
    found = {name: way for name, way in found.items() if not _is_of_a_loss(name)} or found
    if found or run.has("loss") or run.has("val_loss"):
        return found
    if len(run.own) != 1:
        return {}
    words = words_of(run.own[0])
    return {run.own[0]: HIGHER} if words & _RETURNS and not words & _ABOUT_REWARDS else {}


def is_held_out(name: str) -> bool:
    """Whether a name refers to held-out data or an evaluation."""
    return bool(words_of(name) & HELD_OUT)


def is_of_training(name: str) -> bool:
    """Whether a name refers to training data."""
    return bool(words_of(name) & _TRAIN)


def has_success_alone(run: Signals) -> bool:
    """Whether a record has a measure of success and no loss."""
    return not run.has("loss") and not run.has("val_loss") and bool(successes(run))


def trains_policy(run: Signals) -> bool:
    """Whether the names of the series are those of reinforcement learning."""
    words = [words_of(name) for name in run.own]
    return any(each & _REINFORCED for each in words) and not any(each & _PREFERENCES for each in words)


def held_out(run: Signals, val: Points) -> dict[str, tuple[Points, int]]:
    """Measures of success on held-out data by name, with their better direction.

    If no name refers to held-out data, those that are measured about as often as validation.
    """
    names = [name for name in run.own if better(name) and not words_of(name) & _TRAIN]
    named = [name for name in names if is_held_out(name)]
    found = {}
    for name in named or names:
        points = run.maybe(name)
        if points is not None and len(points) > 1 and (named or len(points) <= 2 * len(val)):
            found[name] = points, better(name)
    return found


def improves_since(run: Signals, val: Points, step: float, *, beyond_noise: bool = False) -> str:
    """In words: a measure of success is clearly better at the end than up to a step; empty if any is worse.

    With few values, the last two must both be better than all before, or both worse. With many, the last fifth must be
    better or worse than the best fifth before, beyond the noise of neighbours.
    """
    improved = ""
    for name, (points, way) in held_out(run, val).items():
        before = way * points.values[points.steps <= step]
        after = way * points.values[points.steps > step]
        if not len(before) or len(after) < 2:
            continue
        noise = neighbour_noise(points.values)
        if len(points) < _MANY:
            best, low, high = float(max(before)), float(min(after[-2:])), float(max(after[-2:]))
            worse, better_by = high < best, low - best - (noise if beyond_noise else 0.0)
        else:
            best, end = _best_level(before, len(points) // _FIFTH), float(np.median(after[-(len(points) // _FIFTH) :]))
            worse, better_by = end < best - noise, end - best - noise
        if worse and not _is_of_a_loss(name):
            return ""
        if better_by > 0 and not improved:
            first, last = apart(way * best, float(points.values[-1]))
            improved = f"{name} improves from {first} to {last}"
    return improved


def _best_level(values: Floats, size: int) -> float:
    """The highest median of `size` neighbours; the highest value if there are few."""
    if len(values) < 2 * size:
        return float(np.max(values))
    return float(np.max(np.median(sliding_window_view(values, size), axis=1)))


_OF_ANY_LOSS = frozenset({"loss", "losses", "err", "error", "errors", "cost"})  # `errorD` beside `loss_G`
_GENERATORS = {"g": "d", "gen": "dis", "generator": "discriminator"}
_NOT_A_LOSS = frozenset({
    "lr", "learning", "rate", "grad", "gradient", "norm", "time", "step", "steps", "params", "weight", "weights",
    "lambda", "acc", "accuracy", "score", "scale",
})  # fmt: skip
_DISCRIMINATORS = {"d": "d", "dis": "dis", "disc": "dis", "discriminator": "discriminator", "critic": "discriminator"}


def opponents(run: Signals) -> list[tuple[str, str]]:
    """Pairs of losses whose names differ only in generator and discriminator, such as `G_A` and `D_A`."""
    names = {name: words for name in run.own if not (words := words_of(_taken_apart(name))) & _NOT_A_LOSS}
    return _paired(names) or _paired(
        {name: words - _OF_ANY_LOSS for name, words in names.items() if words & _OF_ANY_LOSS}
    )


def _paired(names: dict[str, frozenset[str]]) -> list[tuple[str, str]]:
    sides: dict[tuple[frozenset[str], str], str] = {}
    for name, words in names.items():
        for word in words & _DISCRIMINATORS.keys():
            sides[words - {word}, _DISCRIMINATORS[word]] = name
    return [
        (name, other)
        for name, words in names.items()
        for word in words & _GENERATORS.keys()
        if (other := sides.get((words - {word}, _GENERATORS[word]))) is not None
    ]


def _taken_apart(name: str) -> str:
    """Split `errG`, `lossD`, `dLoss` and `dloss` into words."""
    return re.sub(r"(?<=[a-z])(?=[GD]$)|(?<=^[gd])(?=[A-Z]|loss)", "_", name)


_RECONSTRUCTIONS = frozenset({
    "cycle", "cyc", "idt", "identity", "rec", "recon", "reconstruction", "l1", "l2", "mse", "mel", "vgg", "lpips",
    "perceptual", "content", "pixel",
})  # fmt: skip


def beside_a_game(run: Signals, fewest: float) -> list[str]:
    """The losses beside two opponents that must fall: reconstruction losses, by name."""
    named = [name for name in run.own if (words := words_of(name)) & _RECONSTRUCTIONS and not words & _NOT_A_LOSS]
    return [name for name in named if (points := run.maybe(name)) is not None and len(points) >= fewest]


_A_CURVE = 7  # validations: the same number as losses for questions about their curve


_A_FEW = 4  # losses: by chance they fall throughout in 1 of 24 orders
_WITH_VALIDATION = 3  # losses and validations: both fall throughout in 1 of 36 orders


def few_that_fall(run: Signals) -> str:
    """In words: the losses of a log too short for a curve, if they fall throughout by at least half; otherwise empty.

    Validation must also have fallen and kept half of its fall; three losses need a validation that falls throughout.
    """
    loss, val = run.maybe("loss"), run.maybe("val_loss")
    both = val is not None and len(val) >= _WITH_VALIDATION and float(np.max(np.diff(val.values))) < 0
    fewest = _WITH_VALIDATION if both else _A_FEW
    if loss is None or not run.about("imported") or not fewest <= len(loss) < _A_CURVE or run.first_nonfinite:
        return ""
    values = loss.values
    if float(np.max(np.diff(values))) >= 0 or values[0] <= 0 or values[-1] > values[0] / 2:
        return ""
    if val is not None and len(val) > 1:
        first, best, end = float(val.values[0]), float(np.min(val.values)), float(val.values[-1])
        if end >= first or end - best > (first - best) / 2:
            return ""
    falling = ", ".join(shown(value) for value in values)
    return f"{len(values)} losses are recorded, each below the loss before: {falling}"


def judged_without_loss(run: Signals) -> str:
    """In words: what is judged instead of a loss with too few or no values; empty if there is no substitute."""
    loss, val = run.maybe("loss"), run.maybe("val_loss")
    if few := few_that_fall(run):
        return f"{few} (V1.1)"
    if loss is not None and len(loss) >= _A_CURVE:
        return ""
    validated = val is not None and len(val) >= _A_CURVE and not run.running
    if run.has("loss"):
        return "few losses are recorded; V1.3 judges validation instead" if validated else ""
    if has_success_alone(run):
        return "no loss is recorded; V1.8 judges the logged measure of success instead"
    if validated:
        return "no training loss is recorded; V1.3 judges validation instead"
    return "no recorded loss must fall; V1.1 judges the two opponents instead" if opponents(run) else ""
