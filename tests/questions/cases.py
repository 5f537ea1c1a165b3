"""Small synthetic runs for every question: where it fires, where it stays silent, where it cannot tell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from synthetic import Synthetic

from steadyrun.records import Event
from steadyrun.signals.declared_schedule import SchedulePlan

STEPS = np.arange(600.0)
CONFIG = {
    "vocab_size": 512,
    "init": "random",
    "reduction": "mean",
    "lr_max": 1e-3,
    "lr_min": 1e-4,
    "warmup_steps": 50,
    "total_steps": 600,
    "schedule": "cosine",
    "clip": 1.0,
}
PLAN = SchedulePlan("cosine", 1e-3, 1e-4, 50, 600)
NO_WARMUP = SchedulePlan("cosine", 1e-3, 1e-4, 0, 600)
NOISE = np.random.default_rng(3).normal(0, 1, 600)
FALLING = 1.5 + (math.log(512) - 1.5) * np.exp(-STEPS / 100) + 0.05 * NOISE
FALLING[0] = math.log(512)
FLAT = math.log(512) + 0.02 * NOISE
SLOW = math.log(512) * (1 - 0.1 * STEPS / 600) + 0.01 * NOISE
SOLVED = 0.01 + 6 * np.exp(-STEPS / 50)
EXPLODES = np.where(STEPS < 2, math.log(512), 50.0 + NOISE)
UNMOVED = math.log(512) + 0.05 * NOISE
NORMS = 2.5 + 0.3 * NOISE


SAMPLED = [0, 1, 2, 5, 10, 20, 50, 100]
OBJECTIVE = {"classes": 512, "reduction": "mean", "trained": 2, "samples": 4, "unreached_count": 0, "left_out_count": 0}
AUDITED: dict[str, Any] = {
    "saturated/a": (SAMPLED, np.full(8, 0.1)),
    "grad_norm_left": (SAMPLED[1:], np.zeros(7)),
    "grad_norm_used": (SAMPLED, np.ones(8)),
    "training": np.ones(600),
    "backward_loss": FALLING,
    "stalled": (SAMPLED, np.zeros(8)),
    "batch_hash": np.random.default_rng(5).integers(1, 2**40, 600).astype(float),
    "examples": np.full(600, 32.0),
    "targets/same": (SAMPLED, np.full(8, 0.02)),
    "targets/next": (SAMPLED, np.ones(8)),
    "targets/second": (SAMPLED, np.full(8, 0.02)),
    "targets/supervised": (SAMPLED, np.ones(8)),
    "targets/padding": (SAMPLED, np.zeros(8)),
    "targets/ends_given": (SAMPLED, np.full(8, 9.0)),
    "targets/ends_asked": (SAMPLED, np.full(8, 9.0)),
    "targets/alike": (SAMPLED, np.linspace(0.11, 0.09, 8)),
    "targets/alike_overall": (SAMPLED, np.full(8, 0.1)),
    "targets/entropy": (SAMPLED, np.full(8, math.log(512))),
    "targets/count": (SAMPLED, np.full(8, 32.0)),
}


def run(*, without: tuple[str, ...] = (), config: Any = None, manifest: Any = None, **series: Any) -> Synthetic:
    """A healthy run, changed: series, declarations and the manifest's parts; `without` leaves series out."""
    events = series.pop("events", ())
    state = series.pop("state", "finished")
    base: dict[str, Any] = {
        "loss": FALLING,
        "grad_norm": NORMS,
        "grad_norm_applied": np.minimum(NORMS, 1.0),
        "clip_threshold": np.ones(600),
        "clipped": np.ones(600),
        "lr/0": PLAN.rate(STEPS),
        "val_loss": ([199, 399, 599], [3.0, 2.0, 1.7]),
        "activation/a": ([0, 100], [1.0, 1.0]),
        "activation/b": ([0, 100], [1.4, 1.5]),
        "moment1_norm/0": ([0, 10, 20, 100], [0.1, 0.3, 0.4, 0.5]),
        "moment2_norm/0": ([0, 10, 20, 100], [1e-3, 1e-2, 2e-2, 1e-1]),
        "step_count/0": ([0, 10, 20, 100], [1, 11, 21, 101]),
        "update_ratio/a": ([100, 200, 300], [1e-3, 1e-3, 1e-3]),
        "epsilon_share/0": ([0, 10, 20, 100], [1e-6, 1e-5, 1e-5, 1e-5]),
        "spectral_norm/a.weight": ([0, 100, 500], [0.5, 0.7, 1.2]),
        "dead_units/a": ([0, 1, 10, 100, 500], [0, 0, 1, 2, 2]),
        "dead_heads/a": ([0, 1, 10, 100, 500], [0, 0, 0, 0, 0]),
        **AUDITED,
        **series,
    }
    kept = {name: values for name, values in base.items() if name not in without and values is not None}
    return Synthetic({**CONFIG, **(config or {})}, {**MANIFEST, **(manifest or {})}, events, state, **kept)


def weight(name: str, kind: str, shape: list[int], std: float, mean: float = 0.0, fan_in: int | None = None) -> Any:
    low, high = mean - 3 * std, mean + 3 * std
    return {"name": name, "module": kind, "shape": shape, "fan_in": fan_in, "trainable": True, "mean": mean,
            "std": std, "min": low, "max": high}  # fmt: skip


MATRIX = weight("a.weight", "Linear", [128, 128], 0.02, fan_in=128)
NORM = weight("n.weight", "LayerNorm", [128], 0.0, mean=1.0)
LEARNED = {**NORM, "std": 0.1}
BIAS = weight("a.bias", "Linear", [128], 0.0)
SETTINGS = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
MANIFEST = {
    "initial_weights": [MATRIX, BIAS],
    "param_groups": [
        {"optimizer": 0, "class": "AdamW", "settings": SETTINGS, "parameters": ["a.weight"]},
        {"optimizer": 0, "class": "AdamW", "settings": {**SETTINGS, "weight_decay": 0.0}, "parameters": ["a.bias"]},
    ],
    "blocks": [{"name": "a", "role": "block"}, {"name": "b", "role": "block"}],
    "inferred": {
        "follows": {"b": "a"},
        "hidden_units": {"a": 100},
        "attention_heads": {"a": 4},
        "objective": OBJECTIVE,
    },
    "model": {"parameters": 1000, "trainable": 1000, "tied": [], "dropout": {"drop": 0.1}},
}
NO_CLASSES = {"inferred": {**MANIFEST["inferred"], "objective": {**OBJECTIVE, "classes": None}}}
"""The graph of the loss was read, and it is not a cross-entropy."""

ONE_GROUP = {"optimizer": 0, "class": "AdamW", "settings": SETTINGS, "parameters": ["a.weight", "a.bias"]}


SCALED_BY_HAND = {"block_grad_norm/a": ([0, 100], [250.0, 250.0]), "grad_norm": np.full(600, 2.5)}

SKIPPED = np.arange(600) % 5 == 0  # a loss scaler skips every fifth step; no rate is used there
SKIPPING = {
    "lr/0": (STEPS[~SKIPPED], PLAN.rate(STEPS[~SKIPPED])),
    "optimizer_steps": (~SKIPPED).astype(float),
    "loss_scale": np.full(600, 1024.0),
}


def with_settings(kind: str = "AdamW", *, without: tuple[str, ...] = (), **changes: Any) -> Any:
    """A manifest whose only param group has these settings."""
    settings = {name: value for name, value in {**SETTINGS, **changes}.items() if name not in without}
    return {"param_groups": [{**ONE_GROUP, "class": kind, "settings": settings}]}


SGD = {"kind": "SGD", "without": ("betas", "eps"), "momentum": 0.9}
SHRINKING = {
    "update_ratio/a": ([0, 300, 599], [0.05] * 3),
    "block_param_norm/a": ([0, 300, 599], [10.0, 2.0, 1.0]),
    "block_grad_norm/a": ([0, 300, 599], [0.1, 0.01, 0.01]),
}


def grown(times: float, move: float) -> Any:
    """Weights that grow so many times, in steps of this size."""
    return {"update_ratio/a": ([0, 300, 599], [move] * 3), "block_param_norm/a": ([0, 599], [1.0, times])}


def first_loss(value: float) -> Any:
    return first_loss_of(FALLING, value)


def first_loss_of(loss: Any, value: float) -> Any:
    changed = loss.copy()
    changed[0] = value
    return changed


WIDE = weight("a.weight", "Linear", [128, 128], 0.25, fan_in=128)
NARROW = weight("a.weight", "Linear", [128, 128], 0.004, fan_in=128)


def first_norm(value: float) -> Any:
    changed = NORMS.copy()
    changed[0] = value
    return changed


def spikes(*steps: int) -> Any:
    changed = NORMS.copy()
    changed[list(steps)] = 150.0
    return changed


def at_factor(factor: float) -> Any:
    return PLAN.rate(np.floor(STEPS * factor + 1e-9))


def wide(std: float, **more: Any) -> dict[str, Any]:
    return {"initial_weights": [weight("a.weight", "Linear", [128, 128], std, fan_in=128, **more), BIAS]}


def constant(number: int, of: int) -> dict[str, Any]:
    """So many matrices, of which some hold a single value."""
    drawn = [weight(f"{index}.weight", "Linear", [128, 128], 0.02, fan_in=128) for index in range(of)]
    return {"initial_weights": [entry | ALL_ALIKE if index < number else entry for index, entry in enumerate(drawn)]}


ALL_ALIKE = {"mean": 0.01, "std": 0.0, "min": 0.01, "max": 0.01}
SHUT = weight("h.bias", "Linear", [512], 0.0) | {"mean": -30.0, "min": -30.0, "max": -30.0}
HIDDEN = {"inferred": {"hidden_units": {"a": 100}, "output_width": 512}}


def one_moves(*moves: float) -> Any:
    """Blocks that move by so much per step."""
    return {f"update_ratio/{name}": ([0, 300, 599], [move] * 3) for name, move in zip("abc", moves, strict=True)}


def units(first: int, last: int) -> Any:
    """So many units of a layer of 100 are dead at the start and at the end."""
    return {"dead_units/a": ([0, 300, 599], [first, last, last])}


def hashes(train: int, val: tuple[int, int], repeated: bool = False, **series: Any) -> Synthetic:
    """Ten training examples per step, new ones for as long as there are any; `repeated`: half of them seen before."""
    new = 5 if repeated else 10
    examples = {"example_hash/train": (np.arange(train) // new, np.arange(float(train)))}
    examples["example_hash/val"] = (np.zeros(val[1] - val[0]), np.arange(float(val[0]), float(val[1])))
    return run(examples=np.full(600, 10.0), **examples, **series)


RESUME = Event("resume", 300, 0.0, 0, {"attempt": 2})
BETA_FACTOR = [(1 - 0.9**t) / math.sqrt(1 - 0.999**t) for t in (1, 11, 21, 101)]
LN_V = math.log(512)

RISING = [4.9, 4.8, 4.7, 4.7, 5.2, 5.6, 5.8]
SEEN_ONCE = {"example_hash/train": (np.arange(6400) // 32, np.arange(6400.0))}
FEW_OF_MANY = {
    "example_hash/train": (np.zeros(64), np.arange(64.0)),
    "example_hash/val": (np.zeros(640), np.arange(1000.0, 1640.0)),
}


def noisier(dropout: float = 0.0, entropy: float = LN_V, end: float = 2.5, rounds: int = 30) -> Synthetic:
    """A classifier whose training loss ends at 4 and whose validation loss ends lower."""
    loss = np.maximum(4.0, LN_V - STEPS / 100) + 0.01 * NOISE
    steps = [199, 299, 399, 499, 599]
    data = {"data": {"examples": 64, "labels_entropy": entropy}}
    return run(
        loss=loss,
        val_loss=(steps, [end + 1, end + 0.1, end, end, end]),
        events=[Event("validation", step, 0.0, 0, data) for step in steps],
        manifest={"model": {"dropout": {"drop": dropout} if dropout else {}}},
        **{
            "example_hash/train": (np.zeros(19200 // rounds), np.arange(19200.0 // rounds)),
            "fit/classes": (SAMPLED, loss[SAMPLED]),
            "fit_guess/classes": (SAMPLED, np.full(8, LN_V)),
        },
    )


CASES: list[tuple[str, str, Synthetic]] = [
    # C1.1: fires, silent at the edge, cannot tell
    ("C1.1", "pass", run()),
    ("C1.1", "pass", run(loss=first_loss(LN_V + 0.49))),
    ("C1.1", "off", run(loss=first_loss(LN_V + 0.51))),
    ("C1.1", "off", run(loss=first_loss(LN_V + 1.75))),
    ("C1.1", "high", run(loss=first_loss(LN_V + 1.77))),
    ("C1.1", "off", run(loss=first_loss(LN_V - 2.23))),
    ("C1.1", "low", run(loss=first_loss(LN_V - 2.25))),
    ("C1.1", "low", run(loss=first_loss(0.1), config={"init": None}, manifest={"initial_weights": [LEARNED]})),
    ("C1.1", "already-trained", run(loss=first_loss(0.1), manifest={"initial_weights": [LEARNED, NORM]})),
    ("C1.1", "low", run(loss=first_loss(0.1), manifest={"initial_weights": [NORM]})),
    (
        "C1.1",
        "counts-too-little",
        run(loss=first_loss(0.1), config={"baseline_loss": 1.7}, manifest={"initial_weights": [NORM]}),
    ),
    ("C1.1", "low", run(loss=first_loss(0.1), config={"baseline_loss": 0.05}, manifest={"initial_weights": [NORM]})),
    ("C1.1", "not-applicable", run(loss=first_loss(0.69), config={"init": None})),
    ("C1.1", "pass", run(config={"vocab_size": 50257}, loss=first_loss(10.9))),
    ("C1.1", "not-applicable", run(config={"init": "pretrained"}, loss=first_loss(1.0))),
    ("C1.1", "not-applicable", run(config={"reduction": "sum"}, loss=first_loss(600.0))),
    ("C1.1", "missing", run(config={"vocab_size": None}, manifest=NO_CLASSES, loss=first_loss(70.0))),
    ("C1.1", "pass", run(config={"vocab_size": None}, manifest={"inferred": {"output_width": 512}})),
    (
        "C1.1",
        "missing",
        run(
            config={"num_classes": 1000, "vocab_size": 1000},
            loss=first_loss(1.0),
            manifest={"inferred": {"output_width": 3}},
        ),
    ),
    ("C1.1", "missing", run(without=("loss",))),
    ("C1.1", "missing", run(loss=([100, 101], [2.0, 1.9]))),
    # C1.2
    ("C1.2", "pass", run()),
    ("C1.2", "pass", run(grad_norm=first_norm(10.0))),
    ("C1.2", "unusual", run(grad_norm=first_norm(10.1))),
    ("C1.2", "unusual", run(grad_norm=first_norm(99.9))),
    ("C1.2", "too-large", run(grad_norm=first_norm(100.1))),
    ("C1.2", "unusual", run(grad_norm=first_norm(0.0011))),
    ("C1.2", "too-small", run(grad_norm=first_norm(0.0009))),
    ("C1.2", "pass", run(config={"vocab_size": None}, grad_norm=first_norm(0.0009), manifest=NO_CLASSES)),
    ("C1.2", "nothing", run(loss=UNMOVED, grad_norm=np.zeros(600))),
    ("C1.2", "missing", run(grad_norm=np.zeros(600))),
    ("C1.2", "erased", run(grad_norm_applied=np.zeros(600), without=("clip_threshold",))),
    ("C1.2", "pass", run(grad_norm_applied=np.zeros(600), skipped=np.ones(600))),
    ("C1.2", "erased", run(grad_norm=np.zeros(600), **{"block_grad_norm/a": ([0, 1], [0.3, 0.3])})),
    ("C1.2", "nothing", run(config={"vocab_size": None}, loss=UNMOVED, grad_norm=np.zeros(600))),
    ("C1.2", "pass", run(config={"vocab_size": None}, grad_norm=np.zeros(60), loss=FALLING[:60], manifest=NO_CLASSES)),
    ("C1.2", "pass", run(backward_loss=FALLING * 100, tokens=np.full(600, 100.0), **SCALED_BY_HAND)),
    ("C1.2", "wrong-reduction", run(loss=FALLING * 100, tokens=np.full(600, 100.0))),
    ("C1.2", "wrong-reduction", run(backward_loss=FALLING * 100, tokens=np.full(600, 100.0))),
    ("C1.2", "perhaps-summed", run(loss=FALLING * 100, tokens=np.full(600, 100.0), config={"reduction": None})),
    ("C1.2", "wrong-sign", run(backward_loss=-FALLING)),
    ("C1.2", "pass", run(backward_loss=-FALLING, config={"vocab_size": None}, loss=FALLING - 3)),
    ("C1.2", "pass", run(backward_loss=FALLING * 50, tokens=np.full(600, 100.0))),
    (
        "C1.2",
        "not-applicable",
        run(config={"reduction": "sum"}, backward_loss=FALLING * 100, tokens=np.full(600, 100.0)),
    ),
    ("C1.2", "missing", run(without=("grad_norm",))),
    # C2.1
    ("C2.1", "pass", run()),
    ("C2.1", "pass", run(**{"lr/0": np.where(STEPS < 50, STEPS / 50 * 1e-3, PLAN.rate(STEPS))})),
    ("C2.1", "pass", run(config={"schedule": "constant", "warmup_steps": 0}, **{"lr/0": np.full(600, 1e-3)})),
    ("C2.1", "never-stepped", run(**{"lr/0": np.full(600, 1e-3)})),
    ("C2.1", "zero", run(loss=UNMOVED, **{"lr/0": np.zeros(600)})),
    ("C2.1", "missing", run(**{"lr/0": np.zeros(600)})),
    ("C2.1", "missing", run(loss=np.round(FALLING, 4), **{"lr/0": np.round(PLAN.rate(STEPS), 4)})),
    ("C2.1", "pass", run(**{"lr/0": np.round(PLAN.rate(STEPS), 4)})),
    ("C2.1", "not-applicable", run(config={"total_steps": 300})),
    ("C2.1", "no-warmup", run(**{"lr/0": SchedulePlan("cosine", 1e-3, 1e-4, 0, 600).rate(STEPS)})),
    ("C2.1", "stepped-too-often", run(**{"lr/0": at_factor(2)})),
    ("C2.1", "stepped-too-seldom", run(**{"lr/0": at_factor(1 / 20)})),
    ("C2.1", "stepped-too-often", run(**{"lr/0": at_factor(4), "scheduler_steps": 4 * (STEPS + 1)})),
    ("C2.1", "horizon-too-short", run(**{"lr/0": SchedulePlan("cosine", 1e-3, 1e-4, 50, 300).rate(STEPS)})),
    (
        "C2.1",
        "upside-down",
        run(**{"lr/0": np.where(STEPS < 50, PLAN.rate(STEPS), 1.1e-3 - PLAN.rate(STEPS))}),
    ),
    ("C2.1", "horizon-too-long", run(**{"lr/0": SchedulePlan("cosine", 1e-3, 1e-4, 50, 6000).rate(STEPS)})),
    ("C2.1", "horizon-too-short", run(**{"lr/0": 5.5e-4 + 4.5e-4 * np.cos(STEPS / 60)}, config={"warmup_steps": 0})),
    ("C2.1", "discontinuous", run(**{"lr/0": np.where(STEPS < 300, PLAN.rate(STEPS), PLAN.rate(STEPS) / 10)})),
    (
        "C2.1",
        "restarted",
        run(events=[RESUME], **{"lr/0": np.concatenate([PLAN.rate(STEPS[:300]), PLAN.rate(STEPS[:300])])}),
    ),
    ("C2.1", "pass", run(events=[RESUME])),
    ("C2.1", "pass", run(config={"warmup_steps": 0}, **{"lr/0": NO_WARMUP.rate(STEPS // 50 * 50)})),
    ("C2.1", "begun-elsewhere", run(**{"lr/0": PLAN.rate(STEPS[:300] + 300), "scheduler_steps": STEPS[:300] + 301})),
    (
        "C2.1",
        "missing",
        run(config={"schedule": "linear warmup"}, **{"lr/0": np.minimum((STEPS + 1) / 50, 1) * 1e-3}),
    ),
    ("C2.1", "late-warmup", run(state="running", **{"lr/0": STEPS[:40] / 200 * 1e-3})),
    ("C2.1", "pass", run(**SKIPPING)),
    (
        "C2.1",
        "too-early",
        run(state="running", config={"warmup_steps": 0}, **{"lr/0": np.full(140, 1e-3)}),
    ),
    ("C2.1", "pass", run(config={"warmup_steps": 0}, **{"lr/0": NO_WARMUP.rate(STEPS // 300 * 300)})),
    ("C2.1", "pass", run(**{"lr/0": np.where(STEPS < 50, 3e-4 + STEPS / 50 * 7e-4, PLAN.rate(STEPS))})),
    ("C2.1", "pass", run(state="running", **{"lr/0": 3e-4 + STEPS[:40] / 50 * 7e-4})),
    ("C2.1", "pass", run(**{"lr/0": 0.1 * PLAN.rate(STEPS), "lr/1": 10 * PLAN.rate(STEPS)})),
    ("C2.1", "pass", run(**{"lr/0": np.zeros(600), "lr/1": 3 * PLAN.rate(STEPS)})),  # a group that is held at 0
    ("C2.1", "pass", run(**{"lr/0": (4 * STEPS, PLAN.rate(STEPS)), "optimizer_steps": np.tile([1.0, 0, 0, 0], 600)})),
    ("C2.1", "late-warmup", run(**{"lr/0": np.minimum(STEPS / 200, 1) * PLAN.rate(np.maximum(STEPS, 50))})),
    ("C2.1", "other-curve", run(**{"lr/0": 10 * PLAN.rate(STEPS)})),
    ("C2.1", "deviates", run(config={"schedule": "linear"})),
    ("C2.1", "not-applicable", run(config={"schedule": None, "warmup_steps": 0})),
    (
        "C2.1",
        "pass",
        run(
            config={"schedule": None, "warmup_steps": 0},
            **{"lr/0": np.linspace(1, 0, 600)},
            manifest={"inferred": {"expected_lr": {"groups": [[[0, 1.0], [599, 0.0]]]}}},
        ),
    ),
    ("C2.1", "missing", run(without=("lr/0",))),
    ("C2.1", "missing", run(**{"lr/0": [1e-3, 1e-3]})),
    # C2.2
    ("C2.2", "pass", run()),
    ("C2.2", "pass", run(**{"lr/0": 0.96 * PLAN.rate(STEPS)})),
    ("C2.2", "off", run(**{"lr/0": 0.94 * PLAN.rate(STEPS)})),
    ("C2.2", "off", run(**{"lr/0": 0.51 * PLAN.rate(STEPS)})),
    ("C2.2", "not-reached", run(**{"lr/0": 0.49 * PLAN.rate(STEPS)})),
    ("C2.2", "not-applicable", run(config={"warmup_steps": 0})),
    ("C2.2", "not-applicable", run(**{"lr/0": PLAN.rate(STEPS[:300] + 300), "scheduler_steps": STEPS[:300] + 301})),
    ("C2.2", "missing", run(config={"lr_max": None})),
    ("C2.2", "missing", run(**{"lr/0": PLAN.rate(STEPS[:40])})),
    ("C2.2", "missing", run(**{"lr/0": (STEPS[::100], PLAN.rate(STEPS[::100]))})),
    # C3.1
    ("C3.1", "pass", run(without=("clipped",))),
    ("C3.1", "clips-always", run()),
    ("C3.1", "high", run(grad_norm=NORMS + 4)),
    ("C3.1", "pass", run(grad_norm=NORMS + 2, without=("clipped",))),
    ("C3.1", "always-clipping", run(grad_norm=NORMS + 4, loss=FLAT)),
    ("C3.1", "high", run(grad_norm=NORMS + 98, loss=FLAT, manifest=with_settings(**SGD), **grown(1.0, 1e-4))),
    ("C3.1", "high", run(grad_norm=NORMS + 4, loss=FLAT, manifest=with_settings(**{**SGD, "momentum": 0.999}))),
    ("C3.1", "high", run(grad_norm=NORMS + 4, loss=FLAT, manifest=with_settings(betas=[0.9, 0.5]))),
    ("C3.1", "high", run(grad_norm=NORMS + 4, loss=first_loss_of(FLAT, 9.0), manifest=wide(1.2))),
    ("C3.1", "high", run(grad_norm=NORMS + 4, loss=FLAT, config={"init": "pretrained"})),
    ("C3.1", "dead", run(grad_norm=np.full(600, 0.009), loss=FLAT)),
    ("C3.1", "pass", run(grad_norm=np.full(600, 0.011), loss=FLAT, without=("clipped",))),
    ("C3.1", "pass", run(grad_norm=np.full(400, 0.009), loss=FLAT[:400], without=("clipped",))),
    ("C3.1", "pass", run(grad_norm=np.full(600, 0.009), without=("clipped",))),
    ("C3.1", "frozen", run(loss=FLAT, manifest={"model": {"parameters": 1000, "trainable": 10}})),
    ("C3.1", "clips-always", run(manifest={"model": {"parameters": 1000, "trainable": 10}})),
    ("C3.1", "missing", run(without=("grad_norm",))),
    ("C3.1", "missing", run(grad_norm=NORMS[:30])),
    # C3.2
    ("C3.2", "pass", run()),
    ("C3.2", "few", run(grad_norm=spikes(100))),
    ("C3.2", "few", run(grad_norm=spikes(100, 101, 102))),
    ("C3.2", "many", run(grad_norm=spikes(100, 150, 200, 250))),
    ("C3.2", "few", run(grad_norm=spikes(50, 150, 260, 400))),
    ("C3.2", "pass", run(grad_norm=NORMS * 100)),
    ("C3.2", "missing", run(without=("grad_norm",))),
    # C4.1
    ("C4.1", "pass", run()),
    ("C4.1", "static", run(loss=FLAT, val_loss=None, **{"update_ratio/a": ([100, 200], [0.0, 0.0])})),
    ("C4.1", "not-learning", run(loss=FLAT, val_loss=None)),
    ("C4.1", "not-learning", run(loss=FLAT, without=("update_ratio/a", "val_loss"))),
    ("C4.1", "too-slow", run(loss=FLAT, val_loss=None, **grown(1.0, 5e-5))),
    ("C4.1", "not-learning", run(loss=FLAT, val_loss=None, manifest=with_settings(**SGD), **grown(1.0, 5e-5))),
    (
        "C4.1",
        "not-learning",
        run(loss=FLAT, val_loss=None, **{"epsilon_share/0": (SAMPLED, np.full(8, 0.95))}, **grown(1.0, 5e-5)),
    ),
    (
        "C4.1",
        "not-judged",
        run(loss=FLAT, grad_norm=NORMS + 98, manifest=with_settings(**SGD), **grown(1.0, 1e-5)),
    ),
    ("C4.1", "flat", run(loss=FLAT[:540], val_loss=None)),
    ("C4.1", "flat", run(loss=FLAT, state="running", val_loss=None)),
    ("C4.1", "slow", run(loss=FLAT - STEPS / 6000)),
    (
        "C4.1",
        "too-slow",
        run(loss=LN_V - STEPS / 2000 + 0.02 * NOISE, **{"update_ratio/a": ([100, 200], [1e-6, 1e-6])}),
    ),
    ("C4.1", "pass", run(loss=LN_V - STEPS / 2000 + 0.02 * NOISE)),
    ("C4.1", "diverging", run(loss=LN_V + STEPS / 200 + 0.05 * NOISE)),
    ("C4.1", "diverging", run(loss=EXPLODES)),
    ("C4.1", "not-judged", run(loss=LN_V + STEPS / 200 + 0.05 * NOISE, config={"init": "pretrained"})),
    ("C4.1", "diverging", run(loss=EXPLODES, config={"init": None})),
    ("C4.1", "not-judged", run(loss=EXPLODES, config={"init": None, "vocab_size": None}, manifest=NO_CLASSES)),
    ("C4.1", "slow", run(loss=FLAT, val_loss=([199, 399, 599], [6.24, 6.2, 6.19]))),
    ("C4.1", "late", run(loss=np.where(STEPS < 200, LN_V + STEPS / 200, FALLING))),
    ("C4.1", "flat-start", run(loss=np.where(STEPS < 250, LN_V, FALLING))),
    ("C4.1", "not-judged", run(loss=FLAT, config={"init": "pretrained"})),
    ("C4.1", "not-judged", run(loss=FLAT, config={"vocab_size": None}, without=("val_loss",), manifest=NO_CLASSES)),
    ("C4.1", "late", run(loss=np.where(STEPS < 400, FALLING, 8.0), config={"vocab_size": None})),
    ("C4.1", "late", run(loss=0.1 * NOISE, config={"vocab_size": None}, without=("val_loss",))),
    ("C4.1", "warming-up", run(loss=FLAT, config={"warmup_steps": 500})),
    ("C4.1", "missing", run(loss=FLAT[:100], state="running")),
    ("C4.1", "flat", run(loss=FLAT[:100], config={"total_steps": 100}, val_loss=None)),
    ("C4.1", "pass", run(loss=(STEPS * 100, FALLING))),
    ("C4.1", "missing", run(loss=FLAT[:6])),
    ("C4.1", "missing", run(without=("loss",))),
    # C4.2
    ("C4.2", "pass", run()),
    ("C4.2", "apart", run(val_loss=([199, 399, 599], [3.0, 2.4, 2.3]))),
    ("C4.2", "gap", run(val_loss=([199, 399, 599], [3.0, 2.7, 2.6]))),
    (
        "C4.2",
        "metric-improves",
        run(
            val_loss=([99, 199, 249, 299, 399, 499, 599], [3.5, 2.6, 2.5, 2.5, 2.8, 2.9, 2.95]),
            **{"eval/bleu": ([99, 199, 249, 299, 399, 499, 599], [10.0, 20.0, 22.0, 23.0, 24.0, 25.0, 26.0])},
        ),
    ),
    ("C4.2", "overfitting", run(val_loss=([99, 199, 249, 299, 399, 499, 599], [3.5, 2.6, 2.5, 2.5, 2.8, 2.9, 2.95]))),
    ("C4.2", "gap", run(val_loss=([99, 199, 249, 299, 399, 499, 599], [3.5, 2.8, 2.7, 2.7, 2.75, 2.8, 2.85]))),
    # Overfitting follows from what is named elsewhere: other data in validation, a few examples of many.
    ("C4.2", "gap", run(val_loss=([99, 199, 249, 299, 399, 499, 599], RISING), **SEEN_ONCE)),
    ("C4.2", "gap", run(val_loss=([99, 199, 249, 299, 399, 499, 599], RISING), **FEW_OF_MANY)),
    ("C4.2", "below", run(val_loss=([199, 399, 599], [2.0, 1.2, 1.0]))),
    ("C4.2", "noisier", noisier()),
    ("C4.2", "below", noisier(dropout=0.3)),
    ("C4.2", "below", noisier(entropy=4.0)),  # another balance of classes
    ("C4.2", "below", noisier(end=3.6)),
    ("C4.2", "below", noisier(rounds=1)),  # new or augmented examples all the time
    ("C4.2", "leak", hashes(train=100, val=(90, 110))),
    ("C4.2", "few-shared", hashes(train=100, val=(99, 120))),
    ("C4.2", "few-shared", hashes(train=100, val=(90, 110), repeated=True)),
    ("C4.2", "few-shared", hashes(train=100, val=(80, 100), repeated=True)),
    ("C4.2", "few-shared", hashes(train=100, val=(80, 100), batch_hash=np.full(600, 7.0))),
    ("C4.2", "pass", hashes(train=100, val=(200, 220))),
    ("C4.2", "few-shared", hashes(train=100, val=(95, 105))),
    ("C4.2", "missing", run(without=("val_loss",))),
    # C5.1
    ("C5.1", "pass", run()),
    ("C5.1", "pass", run(manifest=wide(0.37), loss=first_loss(70.0))),
    ("C5.1", "pass", run(manifest=wide(1.2))),
    ("C5.1", "perhaps-too-wide", run(manifest=wide(1.2), loss=first_loss(70.0))),
    ("C5.1", "too-wide", run(manifest=wide(1.3), loss=first_loss(math.nan))),
    ("C5.1", "alike", run(manifest=constant(3, of=3))),
    ("C5.1", "alike", run(manifest=constant(2, of=3))),
    ("C5.1", "pass", run(manifest=constant(2, of=4))),  # every second one, as of residual branches
    ("C5.1", "pass", run(manifest=constant(1, of=1))),  # a linear model
    ("C5.1", "perhaps-bias", run(manifest={"initial_weights": [MATRIX, SHUT]}, grad_norm=first_norm(200.0))),
    ("C5.1", "unusual", run(manifest={"initial_weights": [MATRIX, SHUT]})),
    ("C5.1", "too-wide", run(manifest=wide(1.3), loss=first_loss(70.0))),
    ("C5.1", "too-wide", run(manifest=wide(1.3), grad_norm=first_norm(200.0))),
    ("C5.1", "unusual", run(manifest=wide(1.3))),
    ("C5.1", "off-centre", run(manifest=wide(0.02, mean=0.5), loss=first_loss(70.0))),
    ("C5.1", "unusual", run(manifest=wide(0.02, mean=0.5))),
    ("C5.1", "pass", run(manifest=wide(0.02, mean=0.009), loss=first_loss(70.0))),
    (
        "C5.1",
        "bias",
        run(manifest={"initial_weights": [MATRIX, weight("h.bias", "Linear", [512], 2.0)]}, loss=first_loss(9.0)),
    ),
    (
        "C5.1",
        "pass",
        run(manifest={"initial_weights": [weight("e.weight", "Embedding", [512, 64], 1.0)]}, loss=first_loss(70.0)),
    ),
    (
        "C5.1",
        "too-wide",
        run(
            manifest={
                "initial_weights": [weight("e.weight", "Embedding", [512, 64], 1.0)],
                "model": {"tied": [["e.weight", "head.weight"]]},
            },
            loss=first_loss(70.0),
        ),
    ),
    ("C5.1", "not-applicable", run(manifest=wide(5.0), config={"init": "pretrained"})),
    ("C5.1", "missing", run(manifest={"initial_weights": []})),
    # C5.2
    ("C5.2", "pass", run()),
    ("C5.2", "steep", run(**{"activation/b": ([0, 100], [9.9, 1.0])})),
    ("C5.2", "growing", run(**{"activation/b": ([0, 100], [10.1, 1.0])})),
    ("C5.2", "large", run(**{"activation/b": ([0, 100], [1.0, 10.1])})),
    ("C5.2", "large", run(**{"activation/b": ([0, 100], [10.1, 1.0])}, config={"init": "pretrained"})),
    ("C5.2", "not-applicable", run(without=("activation/b",))),
    ("C5.2", "not-applicable", run(**{"activation/b": ([0, 100], [10.1, 1.0])}, manifest={"inferred": {}})),
    ("C5.2", "missing", run(without=("activation/a", "activation/b"))),
    ("C5.2", "growing", run(**{"activation/b": ([0, 100], [10.1, 50.0])})),
    # C6.1
    ("C6.1", "pass", run(config={"no_decay": ["bias"]})),
    ("C6.1", "declared-exempt", run(config={"no_decay": ["weight"]})),
    ("C6.1", "pass", run(config={"no_decay": ["weigh", ""]})),
    (
        "C6.1",
        "declared-exempt",
        run(
            config={"no_decay": ["bias"]},
            manifest={"param_groups": [{**MANIFEST["param_groups"][0], "parameters": ["a.weight", "a.bias"]}]},
        ),
    ),
    ("C6.1", "pass", run()),
    (
        "C6.1",
        "vectors-decayed",
        run(
            manifest={
                "param_groups": [
                    {"optimizer": 0, "class": "AdamW", "settings": SETTINGS, "parameters": ["a.weight", "a.bias"]}
                ]
            }
        ),
    ),
    (
        "C6.1",
        "not-applicable",
        run(
            manifest={
                "param_groups": [
                    {"optimizer": 0, "class": "SGD", "settings": {"weight_decay": 0}, "parameters": ["a.weight"]}
                ]
            }
        ),
    ),
    ("C6.1", "missing", run(manifest={"param_groups": []})),
    # C6.2
    ("C6.2", "pass", run()),
    ("C6.2", "rebuilt", run(**{"step_count/0": ([0, 10, 20, 100], [1, 1, 1, 1])})),
    (
        "C6.2",
        "empty",
        run(
            **{"moment2_norm/0": ([0, 10, 20, 100], [0, 0, 0, 0])},
            manifest={"param_groups": MANIFEST["param_groups"][:1]},
        ),
    ),
    ("C6.2", "no-memory", run(**{"moment1_norm/0": ([0, 10, 20, 100], [1.0, 1.0, 1.0, 1.0])})),
    ("C6.2", "pass", run(**{"moment1_norm/0": ([0, 10, 20, 100], [1.0, 1.0, 1.0, 1.001])})),
    (
        "C6.2",
        "no-bias-correction",
        run(**{"update_scale/0": ([0, 10, 20, 100], BETA_FACTOR), "update_misfit/0": ([0, 10, 20, 100], [0.0] * 4)}),
    ),
    (
        "C6.2",
        "pass",
        run(**{"update_scale/0": ([0, 10, 20, 100], [1.0] * 4), "update_misfit/0": ([0, 10, 20, 100], [0.0] * 4)}),
    ),
    (
        "C6.2",
        "other-rule",
        run(**{"update_scale/0": ([0, 10, 20, 100], [2.0] * 4), "update_misfit/0": ([0, 10, 20, 100], [0.0] * 4)}),
    ),
    (
        "C6.2",
        "pass",
        run(**{"update_scale/0": ([0, 10, 20, 100], BETA_FACTOR), "update_misfit/0": ([0, 10, 20, 100], [0.5] * 4)}),
    ),
    ("C6.2", "not-applicable", run(without=("moment1_norm/0", "moment2_norm/0"))),
    ("C6.2", "missing", run(manifest={"param_groups": []})),
    # C6.3
    (
        "C7.2",
        "small-enough",
        run(
            loss=0.65 * math.log(512) + (FALLING - 1.5) * 0.35,
            val_loss=([199, 399, 599], [4.2, 4.1, 4.1]),
            **grown(5.0, 0.1),
            **units(20, 20),
            manifest=HIDDEN,
        ),
    ),
    ("C6.3", "not-applicable", run(backwards=np.ones(600), backward_loss=FALLING)),
    ("C6.3", "not-applicable", run()),
    ("C6.3", "pass", run(config={"accumulation": 4}, backwards=np.full(600, 4.0), backward_loss=FALLING)),
    ("C6.3", "not-divided", run(config={"accumulation": 4}, backwards=np.full(600, 4.0), backward_loss=4 * FALLING)),
    ("C6.3", "unclear", run(config={"accumulation": 4}, backwards=np.full(600, 4.0), backward_loss=3 * FALLING)),
    ("C6.3", "perhaps-not-divided", run(backwards=np.full(600, 4.0), backward_loss=4 * FALLING)),
    (
        "C6.3",  # a GAN: three backward passes of two losses
        "not-applicable",
        run(
            backwards=np.full(600, 3.0),
            backward_loss=3 * FALLING,
            manifest={"param_groups": [{"optimizer": 0}, {"optimizer": 1}]},
        ),
    ),
    (
        "C6.3",
        "perhaps-not-divided",
        run(
            config={"accumulation": 4},
            backwards=np.full(600, 4.0),
            loss=FALLING / 4,
            backward_loss=FALLING,
            val_loss=([199, 399, 599], [3.0, 2.0, 1.7]),
        ),
    ),
    ("C6.3", "not-applicable", run(config={"accumulation": 4, "reduction": "sum"}, backward_loss=4 * FALLING)),
    ("C6.3", "missing", run(config={"accumulation": 4}, backwards=np.full(600, 4.0), without=("backward_loss",))),
    # C7.1
    ("C7.1", "far-enough", run()),
    ("C7.1", "far-enough", run(loss=SLOW, **grown(1.0, 1e-2))),
    ("C7.1", "rate-too-low", run(loss=SLOW, **grown(1.0, 1e-4))),
    (
        "C7.1",
        "clip-too-tight",
        run(loss=SLOW, grad_norm=np.full(600, 100.0), manifest=with_settings(**SGD), **grown(1.0, 1e-4)),
    ),
    # Adam's steps do not depend on the size of a gradient
    ("C7.1", "rate-too-low", run(loss=SLOW, grad_norm=np.full(600, 100.0), **grown(1.0, 1e-4))),
    ("C7.1", "not-applicable", run(loss=SLOW, config={"init": "pretrained"}, **grown(1.0, 1e-4))),
    ("C7.1", "not-applicable", run(loss=SLOW, state="running", **grown(1.0, 1e-4))),
    ("C7.1", "not-applicable", run(loss=SLOW, **{"lr/0": STEPS / 600 * 1e-3}, **grown(1.0, 1e-4))),
    ("C7.1", "not-applicable", run(loss=SLOW, **grown(1.0, 0.0))),
    ("C7.1", "rate-too-low", run(**grown(1.0, 1e-4))),
    ("C7.1", "far-enough", run(loss=SOLVED, **grown(1.0, 1e-4))),
    ("C7.1", "starved", run(**one_moves(1e-2, 1e-5, 1e-5))),
    ("C7.1", "rate-too-low", run(**one_moves(1e-4, 1e-5, 1e-5))),
    ("C7.1", "missing", run(without=("update_ratio/a",))),
    # C7.2
    ("C7.2", "small-enough", run()),
    ("C7.2", "small-enough", run(**grown(5.0, 0.1))),
    ("C7.2", "small-enough", run(loss=SLOW, **grown(5.0, 1e-3))),
    ("C7.2", "small-enough", run(loss=SLOW, **grown(1.0, 0.1))),
    ("C7.2", "rate-too-high", run(loss=SLOW, **grown(5.0, 0.1))),
    ("C7.2", "rate-too-high", run(loss=SLOW, **grown(20.0, 1e-3))),
    ("C7.2", "rate-too-high", run(**grown(5.0, 1e-3), **units(1, 60), manifest=HIDDEN)),
    ("C7.2", "small-enough", run(**grown(2.0, 1e-3), **units(1, 60), manifest=HIDDEN)),
    ("C7.2", "small-enough", run(**grown(5.0, 1e-3), **units(1, 40), manifest=HIDDEN)),
    ("C7.2", "momentum-too-long", run(manifest=with_settings(betas=[0.999, 0.999]))),
    ("C7.2", "momentum-too-long", run(loss=FALLING - 5, manifest=with_settings(betas=[0.999, 0.999]))),
    ("C7.2", "small-enough", run(manifest=with_settings(betas=[0.999, 0.999]), config={"total_steps": 6000})),
    ("C7.2", "momentum-too-long", run(loss=SLOW, manifest=with_settings(**{**SGD, "momentum": 0.999}))),
    ("C7.2", "small-enough", run(loss=SLOW, manifest=with_settings(**{**SGD, "momentum": 0.99}))),
    ("C7.2", "not-applicable", run(loss=FALLING - 5)),
    ("C7.2", "not-applicable", run(loss=SLOW[:150], **grown(20.0, 1e-3))),
    ("C7.2", "missing", run(without=("update_ratio/a",))),
    # C7.3
    ("C7.3", "weaker", run()),
    ("C7.3", "too-strong", run(loss=SLOW, manifest=with_settings(weight_decay=100.0), **SHRINKING)),
    ("C7.3", "too-strong", run(loss=SLOW, manifest=with_settings("Adam", weight_decay=1.0), **SHRINKING)),
    ("C7.3", "too-strong", run(loss=SLOW, manifest=with_settings(**SGD, weight_decay=0.1), **SHRINKING)),
    ("C7.3", "too-strong", run(loss=SLOW, manifest=with_settings(**SGD, weight_decay=1e-4), **SHRINKING)),
    ("C7.3", "weaker", run(manifest=with_settings(**SGD, weight_decay=1e-4), **SHRINKING)),
    ("C7.3", "too-strong", run(loss=SLOW, manifest=with_settings(weight_decay=100.0), **grown(2.0, 0.05))),
    ("C7.3", "weaker", run(loss=SLOW, manifest=with_settings(weight_decay=10.0), **grown(2.0, 0.005))),
    (
        "C7.3",
        "weaker",
        run(loss=SOLVED, manifest=with_settings(weight_decay=100.0), **SHRINKING),
    ),
    ("C7.3", "not-applicable", run(manifest=with_settings(weight_decay=0.0))),
    ("C7.3", "missing", run(manifest=with_settings("Adam"))),
    ("C7.3", "missing", run(manifest={"param_groups": []})),
    # C7.4
    ("C7.4", "in-range", run()),
    ("C7.4", "in-range", run(loss=SOLVED, **{"epsilon_share/0": (SAMPLED, np.full(8, 0.95))})),
    ("C7.4", "epsilon", run(loss=SLOW, **{"epsilon_share/0": (SAMPLED, np.full(8, 0.95))})),
    # the other group has gradients
    (
        "C7.4",
        "in-range",
        run(loss=SLOW, **{"epsilon_share/0": (SAMPLED, np.full(8, 1e-5)), "epsilon_share/1": (SAMPLED, np.ones(8))}),
    ),
    # gradients that have become small
    ("C7.4", "in-range", run(loss=SLOW, **{"epsilon_share/0": (SAMPLED, [0.0] * 4 + [0.95] * 4)})),
    ("C7.4", "betas", run(loss=SLOW, manifest=with_settings(betas=[0.9, 0.5]))),
    ("C7.4", "betas", run(manifest=with_settings(betas=[0.999, 0.9]))),
    ("C7.4", "betas", run(loss=FALLING - 5, manifest=with_settings(betas=[0.999, 0.9]))),
    ("C7.4", "in-range", run(manifest=with_settings(betas=[0.95, 0.95]))),
    ("C7.4", "epsilon", run(**{"epsilon_share/0": (SAMPLED, np.full(8, 0.6))})),
    ("C7.4", "in-range", run(**{"epsilon_share/0": (SAMPLED, np.full(8, 0.4))})),
    ("C7.4", "not-applicable", run(manifest=with_settings(**SGD))),
    ("C7.4", "missing", run(without=("epsilon_share/0",))),
    # C7.5
    ("C7.5", "enough-left", run()),
    ("C7.5", "enough-left", run(loss=SLOW, manifest={"model": {"dropout": {"a": 0.5, "b": 0.9, "c": 0.1}}})),
    ("C7.5", "too-high", run(manifest={"model": {"dropout": {"a": 0.8, "b": 0.9}}})),
    ("C7.5", "enough-left", run(loss=SOLVED, manifest={"model": {"dropout": {"a": 0.8}}})),
    ("C7.5", "not-applicable", run(manifest={"model": {"dropout": {}}})),
    ("C7.5", "missing", run(manifest={"model": {}})),
    # C7.6
    ("C7.6", "pass", run(manifest={"inferred": {"objective": {**OBJECTIVE, "smoothing": 0.1}}})),
    ("C7.6", "hides-learning", run(manifest={"inferred": {"objective": {**OBJECTIVE, "smoothing": 0.9}}})),
    ("C7.6", "not-applicable", run()),
    ("C7.6", "missing", run(manifest={"inferred": {}})),
    # C5.1, all matrices together
    ("C5.1", "perhaps-too-wide", run(loss=first_loss_of(FLAT, 20.0), manifest={"initial_weights": [WIDE, BIAS]})),
    ("C5.1", "pass", run(loss=first_loss(20.0), manifest={"initial_weights": [WIDE, BIAS]})),
    ("C5.1", "pass", run(loss=FLAT, manifest={"initial_weights": [WIDE, BIAS]})),
    ("C5.1", "perhaps-too-narrow", run(loss=SLOW, manifest={"initial_weights": [NARROW, BIAS]})),
    ("C5.1", "pass", run(loss=SLOW, manifest={"initial_weights": [NARROW, NORM, BIAS]})),
    ("C5.1", "pass", run(manifest={"initial_weights": [NARROW, BIAS]})),
]
