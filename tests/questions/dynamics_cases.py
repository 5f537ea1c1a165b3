"""Small synthetic runs for the questions of the dynamics tree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from cases import FALLING, NOISE, NORMS, PLAN, STEPS, run
from synthetic import Synthetic

from steadyrun.records import Event

LEVEL = 2.0 + 0.05 * NOISE
LEVEL[0] = math.log(512)
INF, NAN = math.inf, math.nan


def put(values: Any, changes: dict[int, float]) -> Any:
    changed = np.array(values, float)
    for index, value in changes.items():
        changed[index] = value
    return changed


def jump(at: int, height: float, length: int = 1, base: Any = LEVEL) -> Any:
    changed = np.array(base, float)
    changed[at : at + length] += height
    return changed


BROKEN = np.where(STEPS < 300, FALLING, NAN)
FP16 = {"dtype": "fp16"}
RESUME = Event("resume", 301, 0.0)
ROLLBACK = Event("rollback", 301, 0.0, {"to_step": 250})
SCALE = np.full(600, 65536.0)
RISING = np.where(STEPS < 400, LEVEL, LEVEL + (STEPS - 400) / 400)
GROWING = np.where(STEPS < 400, NORMS, NORMS + (STEPS - 400) / 50)
HASHES = np.arange(600.0)
REPEATED = np.where((STEPS >= 250) & (STEPS < 300), 250.0, HASHES)
OVERFLOWING = {100: INF, 200: INF, 300: INF}
SKIPS = put(np.zeros(600), {100: 1, 200: 1, 300: 1})
WORSE = ([199, 399, 499, 599], [2.1, 2.0, 2.2, 2.4])
RISING_LR = np.where(STEPS < 400, 1e-4, 1e-4 + (STEPS - 400) * 4e-6)
NORM_STEPS = [0, 300, 399, 599]

THROWN = jump(300, 1.0, 300, base=jump(300, 0.6, 12))  # above its new level at first
RISEN = ([199, 399, 599], [2.0, 3.0, 3.0])

CASES: list[tuple[str, str, Synthetic]] = [
    ("D1.1", "pass", run()),
    ("D1.1", "non-finite", run(loss=BROKEN)),
    ("D1.1", "non-finite", run(grad_norm=put(NORMS, {300: INF}), skipped=np.zeros(600))),
    ("D1.1", "skipped-only", run(loss=put(FALLING, {300: INF}), skipped=put(np.zeros(600), {300: 1}))),
    ("D1.1", "skipped-only", run(loss=put(FALLING, {300: NAN}))),
    ("D1.1", "non-finite", run(loss=put(FALLING, {300: NAN}), skipped=np.zeros(600))),
    ("D1.1", "non-finite", run(loss=put(FALLING, {300: NAN}), events=[RESUME])),
    ("D1.1", "non-finite", run(loss=put(FALLING, {300: NAN}), events=[ROLLBACK])),
    ("D1.1", "skipped-only", run(val_loss=([99, 199], [NAN, 2.0]))),
    ("D1.1", "pass", run(grad_norm=put(NORMS, {300: INF}), skipped=put(np.zeros(600), {300: 1}))),
    ("D1.1", "skipped-only", run(loss=np.where(STEPS < 500, FALLING, 0.0))),
    ("D1.1", "pass", run(loss=np.maximum(FALLING - FALLING[500], 0.0))),
    ("D1.1", "missing", run(without=("loss",))),
    ("D1.2", "not-applicable", run()),
    ("D1.2", "fp32", run(loss=BROKEN, config={"dtype": "float32"})),
    ("D1.2", "bf16", run(loss=BROKEN, config={"dtype": "torch.bfloat16"})),
    ("D1.2", "fp16", run(loss=BROKEN, config=FP16)),
    ("D1.2", "fp16", run(loss=BROKEN, loss_scale=SCALE)),
    ("D1.2", "missing", run(loss=BROKEN)),
    ("D1.3", "not-applicable", run()),
    ("D1.3", "loss-first", run(loss=BROKEN, grad_norm=put(NORMS, {300: NAN}))),
    ("D1.3", "gradient-first", run(grad_norm=put(NORMS, {300: NAN}), loss=put(FALLING, {301: NAN}))),
    ("D1.3", "activation-first", run(loss=BROKEN, **{"activation/a": ([0, 300], [1.0, INF])})),
    ("D1.3", "parameter-first", run(loss=BROKEN, **{"block_param_norm/a": ([0, 299], [1.0, NAN])})),
    ("D2.1", "pass", run(loss=np.tile([2.0, 2.1], 300))),
    ("D2.1", "flagged", run(loss=jump(300, 0.3))),
    ("D2.1", "noise", run(loss=put(FALLING, {500: float(np.mean(FALLING[400:500])) + 0.25}))),
    ("D2.1", "pass", run(loss=put(np.tile([2.0, 2.1], 300), {300: 2.19}))),
    ("D2.1", "missing", run(loss=LEVEL[:6])),
    ("D2.2", "pass", run(loss=jump(300, 0.3))),
    ("D2.2", "pass", run(loss=jump(300, 1.0, 44))),
    ("D2.2", "stays", run(loss=jump(300, 1.0, 60))),
    ("D2.2", "open", run(loss=jump(580, 1.0, 20))),
    ("D2.2", "not-applicable", run(loss=np.tile([2.0, 2.1], 300))),
    ("D2.3", "noise", run(loss=jump(300, 0.25))),
    ("D2.3", "unexplained", run(loss=jump(300, 1.0))),
    ("D2.3", "long-tail-batch", run(loss=jump(300, 1.0), grad_norm=put(NORMS, {300: 100.0}))),
    ("D2.3", "unexplained", run(loss=jump(300, 1.0), grad_norm=put(NORMS, {300: 20.0}))),
    (
        "D2.3",
        "long-tail-batch",
        run(
            loss=jump(300, 1.0),
            grad_norm=put(NORMS, {300: 20.0}),
            **{"class_loss/rare": jump(300, 8.0), "class_loss/common": LEVEL},
        ),
    ),
    (
        "D2.3",
        "lr-jump",
        run(loss=jump(300, 1.0, 5), **{"lr/0": put(PLAN.rate(STEPS), dict.fromkeys(range(299, 304), 3e-3))}),
    ),
    (
        "D2.3",
        "lr-jump-undeclared",
        run(loss=jump(300, 1.0, 5), config={"schedule": None}, **{"lr/0": np.where(STEPS < 299, 1e-4, 1e-3)}),
    ),
    ("D2.3", "duplicate-batch", run(loss=jump(300, 1.0), batch_hash=REPEATED)),
    ("D2.3", "unexplained", run(loss=jump(300, 1.0), batch_hash=np.tile(np.arange(30.0), 20))),
    (
        "D2.3",
        "fp16-overflow",
        run(
            config=FP16,
            loss=jump(300, 1.0),
            skipped=put(np.zeros(600), {299: 1}),
            grad_norm=put(NORMS, {299: INF}),
        ),
    ),
    (
        "D2.3",
        "optimizer-reset",
        run(events=[RESUME], **{"step_count/0": ([0, 100, 300, 301, 400], [1, 101, 301, 1, 100])}),
    ),
    ("D2.3", "optimizer-begins-again", run(**{"step_count/0": ([0, 100, 300, 301, 400], [1, 101, 301, 1, 100])})),
    ("D2.3", "not-applicable", run(events=[RESUME], **{"step_count/0": ([0, 300, 301, 400], [1, 301, 281, 380])})),
    ("D2.3", "not-applicable", run(loss=np.tile([2.0, 2.1], 300))),
    ("D2.4", "not-applicable", run(loss=jump(300, 1.0))),
    (
        "D2.4",
        "elevated",
        run(loss=jump(300, 1.0, 300), val_loss=None, **{"block_param_norm/a": ([0, 299, 310], [1.0, 1.0, 1.6])}),
    ),
    ("D2.4", "level-shift", run(loss=jump(300, 1.0, 300), without=("val_loss",))),
    ("D2.4", "worse-level", run(loss=jump(300, 1.0, 300), val_loss=([199, 399, 599], [2.0, 2.2, 2.3]))),
    ("D2.4", "elevated", run(loss=THROWN, grad_norm=put(NORMS, {300: 9.0}), val_loss=RISEN)),
    ("D2.4", "worse-level", run(loss=THROWN, val_loss=RISEN)),
    ("D2.4", "worse-level", run(loss=jump(300, 1.0, 300), grad_norm=put(NORMS, {300: 9.0}), val_loss=RISEN)),
    ("D2.4", "level-shift", run(loss=jump(300, 1.0, 300), val_loss=([199, 399, 599], [2.0, 2.0, 1.9]))),
    ("D2.4", "level-shift", run(loss=jump(300, 1.0, 300), config={"vocab_size": None}, val_loss=None)),
    ("D2.4", "level-shift", run(loss=LEVEL + np.maximum(0, STEPS - 300) / 100)),
    ("D2.4", "came-back", run(loss=jump(300, 1.0, 80))),
    ("D2.4", "too-early", run(loss=jump(520, 1.0, 80))),
    ("D3.1", "not-applicable", run()),
    ("D3.1", "pass", run(config=FP16)),
    ("D3.1", "skipped", run(config=FP16, grad_norm=put(NORMS, OVERFLOWING), skipped=SKIPS)),
    ("D3.1", "overflow", run(config=FP16, grad_norm=put(NORMS, OVERFLOWING), skipped=np.zeros(600))),
    ("D3.1", "missing", run(config=FP16, without=("grad_norm",))),
    ("D3.2", "not-applicable", run()),
    ("D3.2", "missing", run(config=FP16)),
    ("D3.2", "pass", run(config=FP16, loss_scale=SCALE)),
    (
        "D3.2",
        "pass",
        run(config=FP16, loss_scale=np.where(STEPS < 100, 65536.0, 32768.0), skipped=put(np.zeros(600), {100: 1})),
    ),
    ("D3.2", "constant", run(config=FP16, loss_scale=SCALE, grad_norm=put(NORMS, OVERFLOWING), skipped=SKIPS)),
    ("D3.2", "low", run(config=FP16, loss_scale=np.where(STEPS < 100, 65536.0, 8.0))),
    ("D3.2", "collapsed", run(config=FP16, loss_scale=65536.0 * 0.5 ** np.minimum(STEPS, 20))),
    ("D3.2", "skipping", run(config=FP16, loss_scale=SCALE, skipped=(STEPS > 500).astype(float))),
    ("D3.3", "not-applicable", run(config=FP16)),
    ("D3.3", "overflow", run(config=FP16, grad_norm=put(NORMS, {300: INF}), skipped=np.zeros(600))),
    ("D3.3", "structural", run(config=FP16, loss=BROKEN, loss_scale=SCALE)),
    ("D4.1", "pass", run()),
    ("D4.1", "pass", run(loss=LEVEL)),
    ("D4.1", "rising", run(loss=RISING)),
    ("D4.1", "missing", run(loss=LEVEL[:6])),
    ("D4.2", "not-applicable", run()),
    ("D4.2", "pass", run(loss=RISING)),
    ("D4.2", "schedule", run(loss=RISING, **{"lr/0": RISING_LR})),
    ("D4.2", "rising", run(loss=RISING, config={"schedule": None}, **{"lr/0": RISING_LR})),
    ("D4.3", "not-applicable", run()),
    ("D4.3", "pass", run(loss=RISING, **{"block_param_norm/a": (NORM_STEPS, [1.0, 1.0, 1.0, 1.9])})),
    ("D4.3", "growing", run(loss=RISING, val_loss=WORSE, **{"block_param_norm/a": (NORM_STEPS, [1.0, 1.0, 1.0, 2.1])})),
    (
        "D4.3",
        "shrinking",
        run(loss=RISING, val_loss=WORSE, **{"block_param_norm/a": (NORM_STEPS, [1.0, 1.0, 1.0, 0.45])}),
    ),
    (
        "D4.3",
        "changing",
        run(
            loss=RISING,
            config={"vocab_size": None},
            val_loss=None,
            **{"block_param_norm/a": (NORM_STEPS, [1.0, 1.0, 1.0, 2.1])},
        ),
    ),
    ("D4.3", "missing", run(loss=RISING)),
    ("D4.4", "not-applicable", run()),
    ("D4.4", "plateau", run(loss=RISING)),
    ("D4.4", "diverging", run(loss=RISING, grad_norm=GROWING, val_loss=WORSE)),
    ("D4.4", "harder", run(loss=RISING, grad_norm=GROWING)),
    ("D4.4", "harder", run(loss=RISING, grad_norm=GROWING, config={"vocab_size": None}, val_loss=None)),
    ("D4.4", "missing", run(loss=RISING, without=("grad_norm",))),
]

CHECKPOINT = Event("checkpoint", 200, 0.0)
