"""Roles of the numbers that preference tuning and reinforcement learning log, by the words of their names.

The names of TRL, verl, OpenRLHF, stable-baselines and CleanRL differ in prefixes and order; their words are alike.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steadyrun.signals.declared_schedule import number
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.signals.success import HELD_OUT, is_held_out, is_reward, words_of

CHOSEN_LOGP, REJECTED_LOGP = "chosen log-probability", "rejected log-probability"
MARGIN, PREFERENCE_ACCURACY = "margin", "preference accuracy"
DEAD_GROUPS, REWARD_SPREAD = "groups without variance", "spread of rewards"
REFERENCE_KL, UPDATE_KL = "KL to the reference", "KL of an update"
ENTROPY, CLIP_FRACTION = "entropy", "clip fraction"
TRUNCATED, LENGTH = "truncated answers", "answer length"
ADVANTAGE_MEAN, ADVANTAGE_SPREAD = "mean advantage", "spread of advantages"
EXPLAINED_VARIANCE = "explained variance"
SAMPLER_GAP = "sampler against trainer"

_REWARDS = frozenset({"reward", "rewards"})
_LOGPS = frozenset({"logp", "logps", "logprob", "logprobs"})
_ANSWERS = frozenset({"completion", "completions", "response", "responses", "answer", "answers", "gen", "generation"})
_SETTINGS = frozenset({"coef", "coeff", "coefficient", "beta", "bonus", "weight", "target", "penalty", "lr"})
_EXTREMES = frozenset({"min", "max", "p95", "p99"})
_OF_A_VALUE = frozenset({"value", "vf", "val", "critic"})

_MARGINS = frozenset({"margin", "margins"})
_SPLIT = frozenset({"train", "training", "env", "mean", "critic", "objective"})
_GAP_OF_TRL = frozenset({"sampling", "logp", "difference"})

_FIFTH = 5  # a level is a median of this part of the points

Rule = Callable[[frozenset[str]], bool]
_RULES: tuple[tuple[str, Rule], ...] = (
    (CHOSEN_LOGP, lambda words: "chosen" in words and bool(words & _LOGPS)),
    (REJECTED_LOGP, lambda words: "rejected" in words and bool(words & _LOGPS)),
    (
        MARGIN,
        lambda words: bool(words & _MARGINS) and (bool(words & _REWARDS) or not words - _MARGINS - _SPLIT - HELD_OUT),
    ),
    (PREFERENCE_ACCURACY, lambda words: "accuracies" in words and bool(words & _REWARDS)),
    (DEAD_GROUPS, lambda words: {"zero", "std"} <= words and bool(words & {"frac", "fraction"})),
    (REWARD_SPREAD, lambda words: words - _SPLIT in ({"reward", "std"}, {"rewards", "std"})),
    (UPDATE_KL, lambda words: "approxkl" in words or {"approx", "kl"} <= words or {"ppo", "kl"} <= words),
    (REFERENCE_KL, lambda words: "kl" in words and not words & {"early", "stopping", "vae"}),
    (TRUNCATED, lambda words: bool(words & (_ANSWERS | {"length"})) and _is_cut(words)),
    (CLIP_FRACTION, lambda words: _is_clip_fraction(words) and not words & _OF_A_VALUE),
    (LENGTH, lambda words: bool(words & {"length", "len"}) and bool(words & _ANSWERS)),
    (EXPLAINED_VARIANCE, lambda words: "explained" in words and bool(words & {"variance", "var"})),
    (ADVANTAGE_MEAN, lambda words: bool(words & {"advantage", "advantages"}) and "mean" in words),
    (ADVANTAGE_SPREAD, lambda words: bool(words & {"advantage", "advantages"}) and "std" in words),
    (
        SAMPLER_GAP,
        lambda words: (
            "mean" in words
            and (words >= _GAP_OF_TRL or (bool(words & {"probs", "logprobs"}) and {"rollout", "diff"} <= words))
        ),
    ),
    (ENTROPY, lambda words: "entropy" in words and "cross" not in words),
)


def _is_cut(words: frozenset[str]) -> bool:
    return bool(words & {"truncated", "truncation"}) or ("ratio" in words and bool(words & {"clip", "clipped"}))


def _is_clip_fraction(words: frozenset[str]) -> bool:
    one = any(word.endswith("clipfrac") for word in words)
    return one or ("clip" in words and bool(words & {"fraction", "frac", "ratio"}) and not words & {"low", "high"})


def role_of(name: str) -> str | None:
    """The role of a logged number; None if it has none of these."""
    words = words_of(name)
    if words & _SETTINGS or words & _EXTREMES:
        return None
    return next((role for role, fits in _RULES if fits(words)), None)


def metric(run: Signals, role: str, fewest: float, *, held_out: bool = False) -> Points | None:
    """The series of a role in training or on held-out data, if it has enough points; of several the shortest name."""
    key = ("policy metric", role, held_out)
    if key not in run.memo:
        names = [name for name in run.own if role_of(name) == role]
        names = [name for name in names if is_held_out(_without_critics(name)) == held_out]
        run.memo[key] = min(names, key=lambda name: (len(name), name), default=None)
    name: str | None = run.memo[key]
    points = run.maybe(name) if name is not None else None
    return points if points is not None and len(points) >= fewest else None


def _without_critics(name: str) -> str:
    """TRL's PPO logs numbers of the value function under `val/`: they are not of a validation."""
    return name.removeprefix("train/").removeprefix("val/") if name.startswith(("val/ratio", "val/clipfrac")) else name


def declared_as(run: Signals, *names: str) -> float | None:
    """The first of these settings that is declared as a number."""
    return next((value for name in names if (value := run.declared(name)) is not None), None)


def adaptive_rate(run: Signals) -> float | None:
    """The highest learning rate of an optimizer like Adam, whose steps have the size of the rate; None without one."""
    groups = [group for group in run.listed("param_groups") if "adam" in str(group.get("class", "")).lower()]
    settings = [group["settings"] for group in groups if isinstance(group.get("settings"), dict)]
    rates = [number(each.get("initial_lr", each.get("lr"))) for each in settings]
    return max((rate for rate in rates if rate is not None), default=None)


def reward_levels(run: Signals, fewest: float) -> Levels | None:
    """The levels of the training reward; None if none is logged often enough."""
    reward = reward_of(run, fewest)
    return None if reward is None else levels(run, reward.name, fewest, rises=True)


def reward_of(run: Signals, fewest: float) -> Points | None:
    """The training reward, if it is logged often enough; of several the shortest name."""
    names = [name for name in run.own if is_reward(name) and not is_held_out(name)]
    found = [points for name in names if (points := run.maybe(name)) is not None and len(points) >= fewest]
    return min(found, key=lambda points: (len(points.name), points.name), default=None)


def last_level(points: Points) -> float:
    """The median of the last fifth."""
    return float(np.median(points.values[-max(1, len(points) // _FIFTH) :]))


def first_level(points: Points) -> float:
    """The median of the first fifth."""
    return float(np.median(points.values[: max(1, len(points) // _FIFTH)]))


def preferences(run: Signals) -> bool:
    """Whether the run learns from pairs of a chosen and a rejected answer."""
    roles = {role_of(name) for name in run.own}
    return bool(roles & {CHOSEN_LOGP, PREFERENCE_ACCURACY}) or (MARGIN in roles and _rates_answers(run))


def _rates_answers(run: Signals) -> bool:
    """Whether rewards are logged: without them, a margin is one of another loss."""
    return any(words_of(name) & _REWARDS for name in run.own)
