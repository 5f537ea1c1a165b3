"""Small synthetic runs as imported logs have them: every tenth step, epochs, an excerpt of a few lines."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import CONFIG, FALLING, NOISE, NORMS, PLAN, STEPS
from dynamics_cases import put
from synthetic import Synthetic

INF, NAN = float("inf"), float("nan")
TENTH = np.arange(0, 6000, 10)
LEVEL = 2.0 + 0.05 * NOISE
ELEVATED = put(np.where(np.arange(60) < 46, 2.0, 3.0) + 0.02 * NOISE[:60], {46: 4.5, 47: 4.0})
BY_TENTHS = np.arange(0, 600, 10)
SHIFTED = np.where(np.arange(60) < 46, 2.0, 2.4) + 0.02 * NOISE[:60]
NOISY = (0.45 + 0.8 * np.exp(-STEPS[::6] / 60)) * np.exp(0.1 * NOISE[:100])
RISEN = ([199, 399, 499, 599], [2.1, 2.1, 3.2, 3.3])
THROWN = put(1.0 + 0.1 * NOISE[:60], {46: 9.0})
JUMPING = put(PLAN.rate(BY_TENTHS.astype(float)), {30: 0.05})
FLAT_FEW = 2.0 + 0.01 * NOISE[:8]
EXCERPT = ([10, 20, 30, 40, 50, 60, 70], [2.78, 2.77, 2.76, 7.3, 8.7, 2.8, 2.7])
SWINGS = np.array([1, 1, -6, -11, 17, 4, 5, -14, -3, 13, 4, 15, 12, -2, 13]) / 100
HIDDEN = 2.0 + 0.4 * NOISE[:40]
GROWING = np.minimum(0.5, 0.005 * np.arange(1, 101))
ANNEALED = 60 + 50 * GROWING + 120 * np.exp(-np.arange(100) / 4) + 0.1 * NOISE[:100]
DOWN = 2 * 0.9 ** np.arange(40)
CLIMBING = np.append(np.linspace(5.9, 4.0, 6), np.linspace(4.0, 4.55, 14))
TENTHS = np.arange(20, 600, 40)
RISING = np.where(np.arange(80) < 40, 2.0, 2.0 + (np.arange(80) - 40) / 60) + 0.01 * NOISE[:80]


def log(unit: str = "step", config: dict[str, Any] | None = None, **series: Any) -> Synthetic:
    """An imported log: what it has, and nothing of the model."""
    return Synthetic(config, {"imported": {"step_unit": unit, "format": "csv"}}, state="imported", **series)


def by_ten(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(len(values)) * 10, values


CASES: list[tuple[str, str, Synthetic]] = [
    ("D2.1", "jump", log(loss=EXCERPT)),
    ("D2.1", "missing", log(loss=([10, 20, 30, 40], [2.7, 2.6, 2.8, 2.7]))),
    ("D2.1", "pass", log(loss=by_ten(LEVEL[:40]))),
    ("D2.1", "pass", log("epoch", loss=[2.0, 1.6, 1.3, 1.1, 1.0, 0.9, 0.85, 0.8])),
    ("D2.1", "pass", log(loss=by_ten(np.array([0.9, 0.2, 0.05, 0.19, 0.03, 0.08, 0.02, 0.07])))),  # single batches
    ("D2.1", "jump", log(loss=([*range(10, 80, 10), 9000, 9010], [2.78, 2.77, 2.76, 7.3, 8.7, 7.6, 7.2, 2.7, 2.7]))),
    ("D2.1", "flagged", log(loss=EXCERPT, val_loss=([5, 65], [2.9, 2.8]))),
    ("V1.1", "unjudged", log(loss=([*range(10, 90, 10), *range(9000, 9080, 10)], [*FLAT_FEW, *(0.5 * FLAT_FEW)]))),
    ("D2.1", "flagged", log(loss=by_ten(put(LEVEL, {40: 5.0})[:60]))),
    ("D2.1", "pass", log("epoch", loss=LEVEL[:30])),
    ("V1.3", "worse-than-start", log("epoch", loss=np.linspace(0.23, 0.08, 15), val_loss=0.3 + 0.05 * SWINGS)),
    ("V1.3", "follows", log("epoch", loss=np.linspace(0.23, 0.08, 15), val_loss=0.2 + SWINGS)),  # it comes back
    ("V1.1", "few", log("epoch", loss=[6.9, 4.7, 3.6, 2.4, 1.7], val_loss=[6.8, 4.3, 3.2, 2.4, 2.1])),
    ("V1.1", "not-applicable", log("epoch", loss=[6.9, 4.7, 3.6], val_loss=(np.arange(8), np.linspace(6, 2, 8)))),
    ("V1.1", "missing", log("epoch", loss=[6.9, 4.7, 3.6, 2.4, 1.7], val_loss=[6.8, 4.3, 5.0, 6.0, 6.7])),
    ("V1.1", "missing", log("epoch", loss=[6.9, 4.7, 3.6, 2.4, 2.5])),  # the last is not below the one before
    ("V1.1", "missing", log("epoch", loss=[1.0, 0.98, 0.97, 0.96, 0.95])),  # it falls by 5%
    ("V1.1", "missing", log("epoch", loss=[6.9, 4.7, 2.6])),
    ("V1.1", "few", log("epoch", loss=[6.9, 4.7, 2.6], val_loss=[6.8, 4.3, 3.2])),  # three, with validation
    ("V1.1", "missing", log("epoch", loss=[6.9, 4.7, 2.6], val_loss=[6.8, 4.3, 4.5])),
    ("V1.1", "constant", log("epoch", loss=np.zeros(16))),
    ("V1.1", "around", log("epoch", loss=[*np.linspace(2.35, 3.0, 9), *np.linspace(2.6, 2.2, 15), *[2.22] * 6])),
    ("V1.1", "fell", log("epoch", loss=[*np.linspace(2.35, 2.6, 9), *np.linspace(2.3, 0.5, 21)])),  # it leaves it
    ("V1.1", "fell-back", log("epoch", loss=CLIMBING, val_loss=0.8 * CLIMBING)),
    ("V1.1", "fell", log("epoch", loss=CLIMBING, val_loss=np.linspace(4.8, 3.0, 20))),  # training became harder
    ("V1.3", "hardly-better", log("epoch", loss=DOWN, val_loss=0.55 - 0.001 * np.arange(40) + 0.001 * NOISE[:40])),
    ("V1.3", "follows", log("epoch", loss=DOWN, val_loss=1.0 + 0.2 * DOWN)),  # it gains a sixth of its first value
    ("V1.3", "level", log(loss=by_ten(np.linspace(4.6, 4.3, 60)), val_loss=(TENTHS, 6.0 + 0.01 * NOISE[:15]))),
    ("V1.3", "follows", log(loss=by_ten(np.linspace(4.6, 4.3, 60)), val_loss=(TENTHS, 4.6 + 0.01 * NOISE[:15]))),
    ("V1.8", "by-heart", log("epoch", loss=DOWN, val_correct=0.11 + 0.005 * NOISE[:40])),
    ("V1.8", "steady", log("epoch", loss=DOWN, val_accuracy=0.91 + 0.005 * NOISE[:40])),  # as high as it gets
    ("V1.8", "steady", log("epoch", loss=np.linspace(2, 1.5, 40), val_correct=0.11 + 0.005 * NOISE[:40])),
    ("V1.8", "rose", log("point", **{"mean class accuracy": [75.0, 92.0, 97.0, *[100.0] * 77]})),
    ("D2.1", "not-applicable", log("epoch", loss=[6.9, 4.7, 3.6, 2.4, 1.7])),
    ("V1.1", "else", log(loss=by_ten(HIDDEN), val_loss=by_ten(np.linspace(2, 1, 40)))),
    ("V1.1", "else", log(loss=by_ten(HIDDEN), val_f1=by_ten(np.linspace(0.5, 0.8, 40)))),
    ("V1.1", "unjudged", log(loss=by_ten(HIDDEN), val_f1=by_ten(0.5 + 0.1 * NOISE[:40]))),
    ("V1.1", "unjudged", log(loss=by_ten(HIDDEN), train_f1=by_ten(np.linspace(0.5, 0.8, 40)))),  # not held out
    ("V1.1", "fell-back", log("epoch", loss=ANNEALED, rate=GROWING)),
    ("V1.1", "fell", log("epoch", loss=ANNEALED, beta=GROWING)),
    ("V1.1", "fell", log("epoch", loss=ANNEALED, kl_weight=GROWING)),
    ("V1.1", "fell-back", log("epoch", loss=ANNEALED, beta=np.full(100, 0.5))),
    ("D2.2", "stays", log(loss=by_ten(ELEVATED))),
    ("D2.4", "elevated", log(loss=by_ten(ELEVATED), val_loss=RISEN, grad_norm=by_ten(THROWN))),
    ("D2.4", "worse-level", log(loss=by_ten(ELEVATED), val_loss=RISEN)),
    ("D2.4", "worse-level", log(loss=by_ten(ELEVATED))),
    ("D4.1", "rising", log(loss=by_ten(RISING))),
    ("D4.1", "missing", log(loss=by_ten(RISING[:6]))),
    ("D4.1", "rising", log("epoch", loss=[4.0, 3.0, 2.0, 2.1, 2.2, 2.3, 2.25, 2.5, 2.6, 2.8, 2.9, 3.0])),
    ("D4.1", "pass", log("epoch", loss=[4.0, 3.0, 2.0, 2.1, 1.9, 2.3, 1.8, 2.2, 1.9, 2.0, 2.1, 2.0])),
    ("D1.1", "skipped-only", log(loss=FALLING, grad_norm=put(NORMS, {300: INF, 599: INF}))),
    ("D1.1", "skipped-only", log(loss=put(FALLING, {0: NAN, 300: NAN}))),
    ("D1.1", "non-finite", log(loss=np.where(STEPS < 590, FALLING, NAN))),
    ("D1.1", "never-finite", log(loss=FALLING, val_loss=([99, 199], [NAN, NAN]))),
    ("D1.1", "part", log(loss=np.zeros(8), val_loss=([3, 7], [NAN, NAN]))),
    ("D1.1", "non-finite", log(loss=by_ten(np.zeros(6)), grad_norm=by_ten(np.full(6, NAN)))),
    ("D1.1", "non-finite", log(loss=by_ten(np.array([1.9, 1.8, 0.0])), grad_norm=by_ten(np.array([1.0, 1.1, NAN])))),
    ("D1.1", "pass", log(reward=STEPS / 100)),
    ("D1.1", "skipped-only", log(reward=put(STEPS / 100, {300: NAN}))),
    ("D1.1", "part", log(reward=STEPS / 100, actor_loss=np.where(STEPS < 500, FALLING, NAN))),
    ("D1.1", "part", log(loss=FALLING, val_loss=(STEPS[::50], [2.0] * 8 + [NAN] * 4))),
    ("D1.1", "turned-zero", log(loss=np.where(STEPS < 20, FALLING, 0.0))),
    ("D1.1", "skipped-only", log(loss=np.where(STEPS < 20, FALLING, 0.0), val_loss=([25, 30, 39], [0.3, 0.2, 0.1]))),
    ("D1.1", "skipped-only", log(loss=np.where(STEPS < 500, FALLING, 0.0))),
    ("D1.1", "non-finite", log(
        loss=by_ten(np.where(STEPS < 500, FALLING, 0.0)), grad_norm=by_ten(np.where(STEPS < 500, NORMS, NAN)),
    )),
    ("D1.1", "pass", log(loss=FALLING, val_loss=([99, 199], [2.0, 1.9]))),
    ("C1.2", "missing", log(loss=FALLING, grad_norm=np.zeros(600), config=CONFIG)),
    ("C1.2", "nothing", log(loss=np.full(600, 6.2), grad_norm=np.zeros(600), config=CONFIG)),
    ("C2.1", "missing", log(loss=FALLING, config=CONFIG, **{"lr/0": np.zeros(600)})),
    ("C2.1", "zero", log(loss=np.full(600, 6.2), config=CONFIG, **{"lr/0": np.zeros(600)})),
    ("C2.2", "missing", log(loss=FALLING, config=CONFIG, **{"lr/0": np.zeros(600)})),
    ("D3.2", "not-applicable", log(loss=FALLING, loss_scale=np.ones(600))),
    ("D3.2", "low", log(loss=FALLING, loss_scale=np.full(600, 0.5))),
    ("C2.1", "missing", log(loss=np.round(FALLING, 4), config=CONFIG, **{"lr/0": np.round(PLAN.rate(STEPS), 4)})),
    ("C2.1", "not-applicable", log(loss=by_ten(FALLING), config=CONFIG, **{"lr/0": by_ten(PLAN.rate(STEPS))})),
    ("C4.2", "missing", log(loss=FALLING, val_loss=(np.arange(12), np.linspace(2, 1, 12)))),
    ("C4.2", "gap", log(loss=2 * np.exp(-STEPS / 60) + 0.02, val_loss=(STEPS[::6], NOISY))),
    ("D2.4", "level-shift", log(loss=by_ten(SHIFTED), val_loss=([199, 399, 499, 599], [2.0, 2.0, 2.4, 2.4]))),
    ("D1.1", "non-finite", log(loss=put(FALLING, {301: NAN}), grad_norm=put(NORMS, {300: INF}))),
    ("D1.1", "non-finite", log(loss=FALLING, grad_norm=np.where(STEPS < 500, NORMS, NAN))),
    ("D1.1", "skipped-only", log("epoch", loss=FALLING, grad_norm=np.where(STEPS < 500, NORMS, INF))),
    ("D1.3", "loss-first", log(loss=np.full(20, NAN), val_loss=([0], [NAN]))),
    ("D3.1", "skipped", log(loss=FALLING, grad_norm=put(NORMS, {300: INF}), loss_scale=np.full(600, 1024.0))),
    ("D3.2", "low", log(loss_scale=(TENTH, np.where(TENTH < 3000, 8.0, 2048.0)))),
    ("D3.2", "pass", log(loss_scale=(TENTH, np.full(600, 65536.0)), skipped=(TENTH, np.full(600, 0.1)))),
    ("D2.3", "lr-jump", log(loss=by_ten(FALLING[:60]), config=CONFIG, **{"lr/0": by_ten(JUMPING)})),
    ("C2.1", "not-applicable", log("epoch", config=CONFIG, loss=FALLING, **{"lr/0": np.full(600, 1e-3)})),
    ("C3.2", "few", log(grad_norm=([10, 20, 30, 40, 50, 60], [0.2, 0.2, 0.3, 0.9, 960.0, 0.2]))),
    ("C3.2", "pass", log(grad_norm=([10, 20, 30, 40, 50, 60], [0.2, 0.2, 0.3, 0.9, 0.5, 0.2]))),
    ("C3.2", "single", log(loss=FALLING, grad_norm=put(NORMS, {300: 40.0}))),
    ("C4.2", "spike", log(loss=FALLING, val_loss=([99, 199, 299, 399, 499, 599], [3.0, 2.2, 2.0, 40.0, 1.8, 1.7]))),
    ("C4.2", "overfitting", log(
        loss=([400, *range(800, 12400, 400)], [1.1, *np.linspace(0.8, 0.05, 29)]),
        val_loss=([0, *range(400, 12400, 400)], [5.7, 1.11, *np.linspace(1.15, 2.7, 29)]),
    )),
    ("S1.2", "spike", log(loss=put(np.linspace(6.9, 2.0, 300), {1: 16.9, 2: 9.0}))),
    ("S1.2", "stays-up", log(loss=put(np.full(300, 7.0), {1: 16.9, 2: 9.0}))),
    ("S1.2", "pass", log(loss=np.linspace(6.9, 2.0, 300))),
    ("S1.2", "not-applicable", log("epoch", loss=np.linspace(6.9, 2.0, 300))),
    ("S1.5", "plateau", log(loss=2.0 + 5 * np.exp(-STEPS / 20))),
    ("S1.5", "plateau", log("epoch", loss=2.0 + 5 * np.exp(-STEPS[:60] / 3))),
    ("S1.5", "pass", log(loss=FALLING)),
    ("S1.5", "pass", log(loss=LEVEL)),
    ("S1.5", "missing", log(loss=LEVEL[:30])),
    ("S1.5", "not-applicable", log(loss=LEVEL - 3)),
    ("A4.7", "missing", log(loss=FALLING, config={"tied": True})),
]  # fmt: skip
