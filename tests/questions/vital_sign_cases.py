"""Small synthetic runs for the vital signs and the facts they rest on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from cases import FALLING, FLAT, MANIFEST, NO_CLASSES, NOISE, NORMS, SAMPLED, STEPS, run
from synthetic import Synthetic

LN_V = math.log(512)
VAL = [99, 199, 299, 399, 499, 599]
FEW = np.arange(600) % 2 + 1.0  # two batches again and again
STUCK = np.where((STEPS > 300) & (STEPS < 310), 7.0, STEPS + 1)
BACK = np.where(STEPS < 300, FALLING, 4.0 + 0.05 * NOISE)
UP = 4.0 + STEPS / 150 + 0.05 * NOISE
DOWN_AND_UP = np.where(STEPS < 200, 5 - STEPS / 100, 7.5) + 0.05 * NOISE
MANY = list(range(74, 600, 75))
LOSSES = ("loss", "val_loss")
TWENTY = list(range(29, 600, 30))
UPWARD, IMPROVING, HIGHER = np.linspace(6.5, 9, 20), np.linspace(0.4, 0.6, 20), np.linspace(1.05, 1.6, 10)
RISING = np.array([0.005, 0.012, 0.02, 0.025])
HILL = np.interp(np.arange(54), [0, 20, 53], [0.0, 1.0, 0.0]) + 0.01 * NOISE[:54]
WORSE = np.linspace(1.3, 1.6, 40)
CLIMBS = 0.1 * (1 + STEPS / 300) + 9 * np.exp(-STEPS / 3) + 0.002 * NOISE
STANDING = 15.9 + 0.02 * np.exp(-STEPS / 40) + 1e-4 * NOISE
SLOWLY = 15.9 - 0.2 * STEPS / 600 + 1e-3 * NOISE
GAME = {"G_A": 1 + 0.1 * NOISE, "D_A": 0.3 + 0.02 * NOISE}
LEARNED = {"init": "a checkpoint", "vocab_size": None}
UNTOLD = {"init": None, "vocab_size": None}


def loaders(batches: int) -> dict[str, Any]:
    return {"loaders": [{"batches": batches, "sampler": "RandomSampler", "shuffles": True}]}


def two_optimizers() -> dict[str, Any]:
    groups = MANIFEST["param_groups"]
    return {**NO_CLASSES, "param_groups": [*groups, {**groups[0], "optimizer": 1}]}


def graph_of(**seen: Any) -> dict[str, Any]:
    """Two optimizers, and what the graph of the loss showed."""
    manifest = two_optimizers()
    return {**manifest, "inferred": {**manifest.get("inferred", {}), "objective": seen}}


def long_run(**series: Any) -> Synthetic:
    return run(loss=(2 * STEPS, FALLING), **series)


def fit(ratio: float, *, guess: float = 2.0, samples: int = 12, name: str = "squared") -> dict[str, Any]:
    steps = np.linspace(0, 550, samples).astype(int)
    return {
        f"fit/{name}": (steps, np.full(samples, ratio * guess)),
        f"fit_guess/{name}": (steps, np.full(samples, guess)),
    }


SAMPLES = np.linspace(0, 550, 12).astype(int)
FALLING_FAR = 2.0 * np.exp(-STEPS / 60) + 1e-3


def weights(**terms: float) -> dict[str, Any]:
    """How much each term counts in the loss."""
    return {f"fit_weight/{name}": (SAMPLES, np.full(12, value)) for name, value in terms.items()}


def evaluated(level: float) -> Synthetic:
    """A policy whose return rises from 120 to 216 in training, and that is evaluated at one level throughout."""
    trained = 216 - 96 * np.exp(-STEPS / 60) + NOISE
    rewards = {"ep_rew_mean": trained, "eval/mean_reward": level + NOISE}
    return run(config=UNTOLD, manifest=graph_of(advantages=True), **rewards)


def condition(left: float) -> dict[str, Any]:
    """A term whose targets are one number, and how much of its first error is left."""
    return {"fit/squared": (SAMPLES, [1.0] + [left] * 11), "fit_guess/squared": (SAMPLES, np.zeros(12))}


def value_targets(gain: float) -> dict[str, Any]:
    """What a value function is taught: a return that goes up by `gain`, or down."""
    return {"fit_target/squared": (SAMPLES, gain * np.linspace(0, 1, 12) + 0.05 * NOISE[:12])}


SMALL = {
    "example_hash/train": (np.arange(64), np.arange(64.0)),
    "example_hash/val": (np.full(320, 1), np.arange(320.0)),
}


def given(apart: float) -> dict[str, Any]:
    """What the model is given in the sampled steps: the same numbers, or means that differ."""
    return {"inputs/mean": (SAMPLED, 0.3 + apart * np.arange(8)), "inputs/std": (SAMPLED, np.ones(8))}


TO_NOTHING = LN_V * np.exp(-STEPS / 80)
FEW_SHOTS: dict[str, Any] = {"config": {"init": "a checkpoint"}}
HALF = {"example_hash/val": (np.full(128, 1), np.arange(128.0))}
ALONE: dict[str, Any] = {"config": UNTOLD, "manifest": NO_CLASSES, "without": ("val_loss",)}
CASES: list[tuple[str, str, Synthetic]] = [
    ("F1.1", "known", run()),
    ("F1.1", "missing", run(without=("loss",))),
    ("V1.1", "fell", run()),
    ("V1.1", "fell", run(loss=FALLING - 10)),
    ("V1.1", "fell", run(loss=(STEPS[:40], 2 - STEPS[:40] / 80 + 0.1 * NOISE[:40]), **ALONE)),  # within its noise
    ("V1.1", "fell-back", run(loss=BACK)),
    ("V1.1", "partly-lost", run(loss=np.where(STEPS < 500, FALLING, 2.0 + 0.05 * NOISE))),
    ("V1.1", "rose", run(loss=LN_V + STEPS / 200 + 0.05 * NOISE)),
    # The first loss is the reference, not the explosion after it.
    ("V1.1", "flat", run(loss=np.concatenate([[LN_V], np.linspace(400, 300, 9), np.full(590, LN_V)]))),
    ("V1.1", "flat", run(loss=FLAT)),
    ("V1.1", "swings", run(loss=FALLING + 1.5 * (1 + np.sin(STEPS / 9)) * (STEPS > 60))),
    ("V1.1", "fell", run(loss=FALLING + np.where((STEPS % 200) < 8, 3.0, 0.0) * (STEPS > 150))),  # three spikes
    ("V1.1", "little", run(loss=LN_V - STEPS / 6000 + 0.001 * NOISE)),
    ("V1.1", "unjudged", run(loss=FLAT[:100], **ALONE)),
    ("V1.1", "flat", run(loss=FLAT, **ALONE)),
    (
        "V1.1",
        "unjudged",
        run(loss=FLAT, accuracy=STEPS / 900, **ALONE),
    ),
    ("V1.1", "unjudged", run(loss=(9000 + STEPS, FLAT), **ALONE)),
    ("V1.1", "unjudged", run(loss=FLAT, config=LEARNED, manifest=NO_CLASSES, without=("val_loss",))),
    ("V1.1", "little", run(loss=STANDING, **ALONE)),
    ("V1.1", "unjudged", run(loss=SLOWLY, **ALONE)),  # falls on
    ("V1.1", "fell-back", run(loss=CLIMBS, without=("val_loss",))),
    ("V1.1", "fell", run(loss=CLIMBS, val_loss=(VAL, [0.5, 0.3, 0.2, 0.15, 0.12, 0.12]))),
    ("V1.1", "in-play", run(loss=FLAT, config=UNTOLD, manifest=two_optimizers())),
    ("V1.1", "won", run(G_A=1 - 0.5 * np.exp(-STEPS / 60), D_A=0.3 * np.exp(-STEPS / 60))),
    ("V1.1", "fell", run(G_A=1 + 0.1 * NOISE, D_A=0.3 + 0.02 * NOISE)),
    ("V1.1", "won", run(gloss=GAME["G_A"], dloss=np.where(STEPS < 300, 0.01, 0.0))),
    ("V1.1", "fell", run(gloss=GAME["G_A"], dloss=np.zeros(600))),  # the discriminator has not begun
    ("V1.1", "in-play", run(without=LOSSES, cycle_A=FALLING, **GAME)),
    ("V1.1", "not-applicable", run(without=LOSSES, **GAME)),  # nothing shows that it learns
    ("V1.1", "not-applicable", run(without=LOSSES, cycle_A=FALLING, idt_A=BACK, **GAME)),
    ("V1.1", "not-applicable", run(without=LOSSES, cycle_A=FALLING, G_A=GAME["G_A"], D_A=np.exp(-STEPS / 60) + 0.01)),
    ("V1.1", "runaway", run(loss=1 - np.exp(STEPS / 30.0), without=("val_loss",))),
    ("V1.1", "fell", run(loss=-1e7 * (1 - np.exp(-STEPS / 100.0)), without=("val_loss",))),  # ever more slowly
    ("V1.1", "fell", run(loss=-1e-9 * np.exp(STEPS / 30.0), without=("val_loss",))),  # small all the time
    ("V1.1", "standstill", run(gen=1 + 0.005 * NOISE, disc=1 + 0.005 * NOISE)),
    ("V1.1", "fell", run(gen=1 + np.exp(-STEPS / 60) + 0.005 * NOISE, disc=1 + 0.005 * NOISE)),  # it learned, and ends
    ("V1.1", "fell", run(G_lr=1e-4 + 1e-7 * NOISE, D_lr=1e-4 + 1e-7 * NOISE)),  # rates are not losses
    ("V1.1", "fell-back", run(loss=DOWN_AND_UP, **ALONE)),
    ("V1.1", "rose", run(loss=UP, **ALONE)),
    ("V1.1", "unjudged", run(loss=UP[:200], **ALONE)),
    ("V1.1", "fell-back", run(loss=np.where(STEPS < 200, 4.9 + 60 * np.exp(-STEPS / 15), 6.9) + 0.05 * NOISE)),
    ("V1.1", "flat", run(loss=np.full(600, 0.25) + 1e-4 * NOISE, config=UNTOLD, manifest=NO_CLASSES)),
    ("V1.1", "not-applicable", run(loss=FLAT + STEPS, config=UNTOLD, manifest=two_optimizers())),
    ("V1.1", "flat", run(loss=FLAT, config=UNTOLD, manifest=graph_of(sides=1), without=("val_loss",))),
    ("V1.1", "fooled", run(without=LOSSES, g_loss=0.7 - STEPS / 1500 + 0.02 * NOISE, d_loss=1.3 + STEPS / 800)),
    ("V1.1", "not-applicable", run(without=LOSSES, g_loss=2 - STEPS / 600, d_loss=0.4 + STEPS / 900)),  # up to a coin
    ("V1.1", "not-applicable", run(without=LOSSES, g_loss=-STEPS / 600, d_loss=1.3 + STEPS / 800)),  # a hinge loss
    ("V1.1", "won", run(without=LOSSES, G_loss=2 + 0.1 * NOISE, D_loss=0.5 * np.exp(-STEPS / 60))),
    ("V1.1", "not-applicable", run(config=UNTOLD, manifest=graph_of(advantages=True))),
    ("V1.1", "missing", run(loss=FALLING[:5])),
    (
        "V1.2",
        "term-left-behind",
        run(kl=0.15 * 0.9 ** (STEPS / 5) + 1e-6, recon=0.3 + NOISE / 100, config=UNTOLD, manifest=NO_CLASSES),
    ),
    (
        "V1.2",
        "term-left-behind",
        run(kl=0.07 * 0.9 ** (STEPS / 5) + 4e-4, recon=0.3 + NOISE / 100, config=UNTOLD, manifest=NO_CLASSES),
    ),
    (
        "V1.2",
        "not-applicable",
        run(kl=3 + 0.9 ** (STEPS / 5) * 1e5, recon=80 + NOISE, config=UNTOLD, manifest=NO_CLASSES),
    ),
    ("V1.2", "beats", run()),
    ("V1.2", "no-better", run(loss=FLAT)),
    ("V1.2", "not-yet", run(loss=FLAT[:100])),
    ("V1.2", "worse", run(loss=LN_V + STEPS / 200 + 0.05 * NOISE)),
    ("V1.2", "not-applicable", run(config=UNTOLD, manifest=NO_CLASSES)),
    ("V1.2", "beats", run(config=UNTOLD, manifest=NO_CLASSES, **fit(0.6))),
    ("V1.2", "no-better", run(config=UNTOLD, manifest=NO_CLASSES, **fit(1.01))),
    ("V1.2", "not-applicable", run(config=UNTOLD, manifest=NO_CLASSES, **fit(0.0, guess=0.0))),
    ("V1.2", "beats", run(**fit(0.4), **fit(1.1, name="absolute"))),
    ("V1.2", "term-left-behind", run(**fit(0.4), **fit(0.95, name="absolute"), **weights(absolute=1e-3))),
    ("V1.2", "beats", run(**fit(0.4), **fit(0.95, name="absolute"), **weights(absolute=1.0))),
    ("V1.2", "term-left-behind", run(config=UNTOLD, manifest=NO_CLASSES, loss=FALLING_FAR, **condition(0.9))),
    ("V1.2", "not-applicable", run(config=UNTOLD, manifest=NO_CLASSES, loss=FALLING_FAR, **condition(0.01))),
    ("V1.2", "term-left-behind", long_run(**fit(0.4), **fit(1.1, name="absolute"))),
    ("V1.2", "not-applicable", run(config=UNTOLD, manifest=graph_of(advantages=True), **fit(1.01))),
    ("V1.2", "not-applicable", run(config=UNTOLD, manifest=NO_CLASSES, **fit(1.01, samples=2))),
    ("V1.3", "follows", run()),
    (
        "V1.3",
        "climbs",
        run(val_loss=(list(range(49, 600, 50)), [4.0, 3.0, 2.5, 2.1, 2.0, 2.05, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6])),
    ),
    ("V1.3", "climbs", run(val_loss=(VAL, [2.0, 2.1, 2.25, 2.4, 2.5, 2.62]))),  # the first is the best
    (
        "V1.3",
        "follows",
        run(val_loss=(VAL, [2.0, 2.1, 2.25, 2.4, 2.5, 2.62]), eval_wer=(VAL, [40, 39, 38, 37, 36, 35])),
    ),
    ("V1.3", "climbs", run(without=("loss",), val_loss=(VAL, [2.0, 2.1, 2.25, 2.4, 2.5, 2.62]))),
    (
        "V1.3",
        "rises",
        run(val_loss=(list(range(49, 600, 50)), [4.0, 3.0, 2.0, 2.0, 2.0, 3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4])),
    ),
    ("V1.3", "never-better", run(without=("loss",), val_loss=(MANY, [2.5, 3.6, 3.8, 3.9, 3.7, 3.6, 3.5, 3.4]))),
    ("V1.3", "follows", run(without=("loss",), val_loss=(MANY, np.linspace(2, 1, 8)))),
    ("V1.3", "not-applicable", run(without=("loss",), val_loss=(MANY, np.full(8, 2.0)))),
    ("V1.3", "worse-than-start", run(val_loss=(VAL, [7e6, 8e6, 9e6, 1e7, 1.5e7, 1.7e7]))),
    ("V1.3", "worse-than-guess", run(val_loss=(VAL, [8.0, 7.4, 7.3, 7.3, 7.4, 7.5]))),
    ("V1.3", "never-beats-guess", run(val_loss=(VAL, [6.3, 6.28, 6.3, 6.31, 6.3, 6.29]))),
    ("V1.3", "never-better", run(val_loss=(MANY, [3.0, 3.02, 2.98, 3.01, 3.03, 2.99, 3.02, 3.01]))),
    ("V1.3", "follows", run(val_loss=(MANY, [3.0, 2.8, 2.82, 2.81, 2.83, 2.82, 2.81, 2.82]))),
    ("V1.3", "not-measured", run(val_loss=(MANY, np.zeros(8)))),
    ("V1.3", "worse-than-start", run(val_loss=(MANY, [29.0, 8.0, 9.0, 12.0, 8.5, 14.0, 9.5, 13.0]))),  # bad at first
    # Worse than at its start, and the task improves; the same with a metric that stays.
    ("V1.3", "follows", run(val_loss=(TWENTY, UPWARD), val_accuracy=(TWENTY, IMPROVING))),
    ("V1.3", "worse-than-start", run(val_loss=(TWENTY, UPWARD), val_accuracy=(TWENTY, 0.4 + 0.01 * NOISE[:20]))),
    ("V1.3", "worse-than-start", run(val_loss=(TWENTY, UPWARD))),
    # 1.5% of the fall is lost again, and 60%; below the training loss it may rise.
    ("V1.3", "follows", run(without=("loss",), val_loss=(TWENTY, np.append(1.6 * 0.6 ** np.arange(16), RISING[:4])))),
    ("V1.3", "climbs", run(without=("loss",), val_loss=(TWENTY, np.append(np.linspace(2, 1, 10), HIGHER)))),
    ("V1.3", "follows", run(val_loss=(TWENTY, 0.3 * np.append(np.linspace(2, 1, 10), HIGHER)))),
    ("V1.3", "missing", run(without=("val_loss",))),
    ("V1.4", "alive", run()),
    ("V1.4", "zero", run(grad_norm=np.where(STEPS < 7, 3.0, 0.0), loss=FLAT)),
    ("V1.4", "gone", run(grad_norm=np.where(STEPS < 100, NORMS, 1e-5), loss=FLAT)),
    ("V1.4", "alive", run(grad_norm=np.where(STEPS < 100, NORMS, 1e-5))),
    ("V1.4", "missing", run(without=("grad_norm",))),
    ("V1.5", "in-range", run()),
    ("V1.5", "dead", run(**{"dead_units/a": ([0, 1, 10, 100, 500], [0, 20, 60, 95, 98])})),
    ("V1.5", "violent", run(loss=FLAT, **{"update_ratio/a": ([100, 200, 300], [0.5, 0.6, 0.7])})),
    ("V1.5", "large", run(**{"update_ratio/a": ([100, 200, 300], [0.5, 0.6, 0.7])})),
    ("V1.5", "tiny", run(loss=FLAT, **{"update_ratio/a": ([100, 200, 300], [1e-8, 1e-8, 1e-8])})),
    ("V1.5", "missing", run(without=("update_ratio/a", "dead_units/a"))),
    ("V1.6", "moves-on", run()),
    ("V1.6", "few", run(batch_hash=FEW)),
    ("V1.6", "few-of-many", run(batch_hash=FEW, manifest=loaders(40))),
    ("V1.6", "moves-on", run(batch_hash=FEW, manifest=loaders(2))),
    ("V1.6", "stuck", run(batch_hash=STUCK)),
    ("V1.6", "by-heart", run(**SMALL, val_loss=([199, 399, 599], [5.0, 5.5, 6.0]))),
    ("V1.6", "by-heart", run(**SMALL, loss=TO_NOTHING, val_loss=([199, 399, 599], [2.0, 1.5, 1.5]))),
    ("V1.6", "moves-on", run(**SMALL, loss=TO_NOTHING, val_loss=([199, 399, 599], [2.0, 0.5, 0.02]))),
    ("V1.6", "moves-on", run(**SMALL, **FEW_SHOTS, loss=TO_NOTHING, val_loss=([199, 399, 599], [2.0, 1.5, 1.5]))),
    ("V1.6", "moves-on", run(**SMALL)),  # enough to learn from
    ("V1.6", "moves-on", run(**SMALL | HALF, val_loss=([199, 399, 599], [5.0, 5.5, 6.0]))),  # grokking is so
    ("V1.6", "missing", run(without=("batch_hash",))),
    ("V1.6", "by-heart", run(without=("batch_hash",), **given(0.0), val_loss=([199, 399, 599], [5.0, 5.5, 6.0]))),
    ("V1.6", "missing", run(without=("batch_hash",), **given(0.1), val_loss=([199, 399, 599], [5.0, 5.5, 6.0]))),
    ("V1.6", "missing", run(without=("batch_hash",), **given(0.0))),  # one batch that is all of the data
    ("V1.8", "rose", run(episodic_return=STEPS / 100 + NOISE)),
    ("V1.8", "fell", run(episodic_return=-STEPS / 100 + NOISE)),
    ("V1.8", "fell", run(Acc=(list(range(12)), 0.905 - 0.002 * np.arange(12) + 0.001 * NOISE[:12]))),
    ("V1.8", "steady", run(Acc=(list(range(12)), 0.905 - 0.0005 * np.arange(12) + 0.0007 * NOISE[:12]))),
    ("V1.8", "collapsed", run(accuracy=np.where(STEPS < 400, STEPS / 100, 0.1) + 0.1 * NOISE)),
    ("V1.8", "steady", run(**{"eval/accuracy": 0.9 + 0.01 * NOISE})),
    ("V1.8", "stalled", run(ep_rew_mean=NOISE, config=UNTOLD, manifest=graph_of(advantages=True))),
    ("V1.8", "flat", run(ep_rew_mean=NOISE[:100], config=UNTOLD, manifest=graph_of(advantages=True))),
    ("V1.8", "flat", run(without=LOSSES, reward=np.where(NOISE > -1, 500, 480.0))),  # at its top
    (
        "V1.8",
        "rose",
        run(without=LOSSES, score=STEPS / 400 + 2 * NOISE, l=200 + NOISE),
    ),  # far below its noise, and steady
    ("V1.8", "not-applicable", run(r=NOISE)),  # beside a loss a letter may stand for anything
    ("V1.8", "stalled", run(without=LOSSES, **{"Average100 Score": 23 + NOISE})),
    ("V1.8", "collapsed", run(without=LOSSES, score=np.where(STEPS < 570, 73 + STEPS / 300, 30) + NOISE)),
    ("V1.8", "constant", run(val_acc=(list(range(31)), np.full(31, 0.72414)))),
    ("V1.8", "steady", run(val_acc=(list(range(31)), np.full(31, 0.0135)))),  # one answer cannot cost so little
    ("V1.8", "steady", run(val_acc=(list(range(31)), np.ones(31)))),
    ("V1.8", "steady", run(val_acc=(list(range(31)), 0.72414 + 0.001 * (np.arange(31) % 3)))),
    ("V1.8", "steady", run(acc=(list(range(55)), [0.4, *(0.9 + 0.02 * HILL)]))),  # nearly all of the gain is there
    ("V1.8", "collapsed", run(acc=(list(range(54)), 0.9 + 0.02 * HILL))),
    ("V1.8", "rose", run(val_ppl=(list(range(40)), WORSE), val_accuracy=(list(range(40)), 1 - 1 / WORSE))),
    ("V1.8", "collapsed", run(val_ppl=(list(range(40)), WORSE))),
    ("V1.8", "no-signal", run(without=LOSSES, reward=np.full(600, 0.016))),  # one value throughout
    ("V1.8", "no-signal", run(without=LOSSES, score=np.zeros(600))),
    ("V1.8", "flat", run(without=LOSSES, score=np.zeros(600), total_reward=STEPS / 100 + NOISE)),
    # single episodes hide the rise that their mean shows
    ("V1.8", "rose", run(without=LOSSES, reward=np.where(NOISE > 0.9, 100.0, -5.0), avg_reward=STEPS / 100 + NOISE)),
    ("V1.8", "none", run(**{"metrics/mAP50(B)": (list(range(30)), np.zeros(30))})),
    ("V1.8", "steady", run(accuracy=(list(range(30)), np.zeros(30)))),  # what it was measured on is not known
    ("V1.8", "rose", run(test_err=60 - STEPS / 20 + NOISE)),
    ("V1.8", "not-applicable", run()),
    ("V1.8", "rose", evaluated(216.0)),
    ("V1.8", "rose", run(**{"mean 100 episode reward": STEPS / 100 + NOISE})),
    ("V1.8", "stalled", evaluated(120.0)),  # what is evaluated does not get what training gets
    ("V1.8", "rose", run(without=("loss", "val_loss"), Total_Reward=STEPS / 100 + NOISE)),
    ("V1.8", "stalled", run(without=("loss", "val_loss"), val_accuracy=0.7 + 0.01 * NOISE)),
    ("V1.8", "no-signal", run(reward=np.where(STEPS % 6, 0.0, 0.1))),
    ("V1.8", "rose", run(reward=np.where((STEPS % 6 > 0) & (STEPS < 500), 0.0, 0.1) + 0.0)),  # sparse, and learned
    ("V1.8", "at-chance", run(train_auc=(list(range(20)), 0.51 + 0.035 * NOISE[:20]))),
    ("V1.8", "fell", run(without=LOSSES, **{"10 million steps, new reward function #5": NOISE - STEPS / 100})),
    ("V1.8", "not-applicable", run(without=LOSSES, **{"10 million steps, reward std": NOISE - STEPS / 100})),
    ("V1.8", "none", run(val_dice=(list(range(10)), [0, 0, 0.003, 0, 0.001, 0, 0, 0.002, 0, 0.001]))),
    ("V1.8", "rose", run(val_dice=0.004 * STEPS / 600 + 1e-5 * NOISE)),  # small, and rising
    ("V1.8", "steady", run(val_dice=(list(range(10)), [0, 0, 0.3, 0, 0.1, 0, 0, 0.2, 0, 0.1]))),
    ("V1.8", "rose", run(eval_wer=60 - STEPS / 20 + NOISE)),
    ("V1.8", "fell", run(eval_wer=20 + STEPS / 20 + NOISE)),
    ("V1.8", "no-signal", run(**{"critic/score/mean": np.where(STEPS == 300, 0.1, 0.0)})),
    ("V1.8", "rose", run(reward=np.where(STEPS < 400, 0.0, STEPS / 100) + 0.001 * NOISE)),
    ("V1.8", "at-chance", run(val_accuracy=50 + NOISE, loss=0.72 + 0.01 * NOISE)),
    ("V1.8", "steady", run(val_accuracy=50 + NOISE)),
    ("V1.8", "at-chance", run(train_auc=(list(range(12)), 0.51 + 0.005 * NOISE[:12]))),
    ("V1.8", "rose", run(config=UNTOLD, manifest=graph_of(advantages=True), **value_targets(1.0))),
    ("V1.8", "fell", run(config=UNTOLD, manifest=graph_of(advantages=True), **value_targets(-1.0))),
    ("V1.8", "not-applicable", run(config=UNTOLD, manifest=graph_of(advantages=True), **value_targets(0.0))),
    ("V1.8", "not-applicable", run(reward_std=NOISE)),
    ("V1.7", "as-declared", run()),
    ("V1.7", "differs", run(**{"lr/0": np.full(600, 1e-3)})),
    ("V1.7", "not-applicable", run(config={"schedule": None, "lr_max": None, "warmup_steps": None})),
]
