"""Long healthy runs with every kind of noise that real ones have: not one fault, at the end or on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cases import CONFIG, MANIFEST
from synthetic import Synthetic

from steadyrun.questions.form import FAULT
from steadyrun.signals.declared_schedule import SchedulePlan
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import walk

Floats = npt.NDArray[np.float64]
STEPS = 20_000
LENGTHS = [300, 2_000, 7_000, STEPS]


def _drawn(rng: np.random.Generator, size: int) -> Floats:
    return rng.normal(0, 1, size)


def _heavy(rng: np.random.Generator, size: int) -> Floats:
    """Student's t with three degrees of freedom: some points are ten deviations off."""
    return rng.standard_t(3, size)


def _correlated(rng: np.random.Generator, size: int) -> Floats:
    """Each step remembers nine tenths of the one before it: hard and easy stretches of data."""
    shocks, noise = rng.standard_t(4, size), np.empty(size)
    level = 0.0
    for step in range(size):
        level = noise[step] = 0.9 * level + 0.45 * shocks[step]
    return noise


def _outliers(rng: np.random.Generator, size: int) -> Floats:
    """A hard batch in every five hundred."""
    return rng.normal(0, 1, size) + (rng.random(size) < 0.002) * rng.uniform(5, 40, size)


def _wider(rng: np.random.Generator, size: int) -> Floats:
    """Noise that doubles as the run goes on, as batches of a micro-batch's loss do."""
    return rng.standard_t(4, size) * np.linspace(1, 2, size)


def _epochs(rng: np.random.Generator, size: int) -> Floats:
    """The same order of data in every epoch of 240 steps."""
    return np.tile(rng.normal(0, 1, 240), size // 240 + 1)[:size] + 0.3 * rng.normal(0, 1, size)


NOISES = [_drawn, _heavy, _correlated, _outliers, _wider, _epochs]


def healthy(noise: Callable[[np.random.Generator, int], Floats], seed: int, strength: float) -> dict[str, Any]:
    """Series of a language model's run: a loss that falls to a floor, gradients whose noise goes with the loss's."""
    rng = np.random.default_rng(seed)
    steps = np.arange(STEPS)
    z = noise(rng, STEPS)
    curve = 1.6 + (math.log(512) - 1.6) * (0.7 * np.exp(-steps / 150) + 0.3 * np.exp(-steps / 4_000))
    loss = np.maximum(0.05, curve + strength * np.minimum(1.0, steps / 20) * z)
    loss[0] = math.log(512)
    norms = np.exp(0.6 + 0.35 * rng.normal(0, 1, STEPS) + 0.1 * np.clip(z, -3, 12)) + 2 * np.exp(-steps / 100)
    at = np.arange(499, STEPS, 500)
    return {
        "loss": loss,
        "grad_norm": norms,
        "grad_norm_applied": np.minimum(norms, 1.0),
        "clip_threshold": np.ones(STEPS),
        "clipped": (norms > 1).astype(float),
        "lr/0": SchedulePlan("cosine", 1e-3, 1e-4, 500, STEPS).rate(steps.astype(float)),
        "val_loss": (at, curve[at] + 0.1 + 0.02 * rng.normal(0, 1, len(at))),
        "block_param_norm/a": (at, 10 + at / 5_000),
        "step_count/0": (at, at + 1),
        "batch_hash": np.arange(STEPS) % 240 if noise is _epochs else np.arange(STEPS),
    }


def cut(series: dict[str, Any], length: int) -> dict[str, Any]:
    """What a look at this length sees."""
    parts = {}
    for name, given in series.items():
        steps, values = given if isinstance(given, tuple) else (np.arange(len(given)), given)
        if np.any(steps < length):
            parts[name] = (steps[steps < length], values[steps < length])
    return parts


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("strength", [0.05, 0.3])
@pytest.mark.parametrize("noise", NOISES, ids=[noise.__name__.strip("_") for noise in NOISES])
def test_no_fault(noise: Callable[[np.random.Generator, int], Floats], strength: float, length: int) -> None:
    config = {**CONFIG, "total_steps": STEPS, "warmup_steps": 500}
    state = "finished" if length == STEPS else "running"
    for seed in range(5):
        source = Synthetic(config, MANIFEST, (), state, **cut(healthy(noise, seed, strength), length))
        walked = walk(QUESTIONS, Signals(source), {}, go_on=True)
        assert [(a.question.code, a.answer.message) for a in walked.path if a.answer.kind == FAULT] == []


@pytest.mark.parametrize("first", [2.0**16, 2.0**28, 2.0**12])
@pytest.mark.parametrize("most", [2.0**6, 2.0**15])
def test_the_ordinary_life_of_a_loss_scaler(first: float, most: float) -> None:
    """It overflows until it has found its scale, then tries a larger one every 2,000 steps, which may overflow."""
    rng = np.random.default_rng(0)
    series = healthy(_heavy, 0, 0.1)
    scale, good = first, 0
    scales, skipped = np.empty(STEPS), np.zeros(STEPS)
    for step in range(STEPS):
        scales[step] = scale
        if scale > most and (scale > 8 * most or rng.random() < 0.3):
            skipped[step], scale, good = 1, scale / 2, 0
            continue
        good += 1
        if good == 2000:
            scale, good = 2 * scale, 0
    assert skipped.sum() >= 3
    at = np.array([0, 1, 2, 5, 10, 20, *range(100, STEPS, 100)])
    series["step_count/0"] = (at, np.maximum(1, np.cumsum(1 - skipped)[at]))
    series["moment2_norm/0"] = (at, np.full(len(at), 1.0))
    series["grad_norm"] = np.where(skipped > 0, math.inf, series["grad_norm"])
    config = {**CONFIG, "total_steps": STEPS, "warmup_steps": 500, "dtype": "fp16"}
    for length in [25, 60, *LENGTHS]:
        parts = cut({**series, "loss_scale": scales, "skipped": skipped}, length)
        walked = walk(QUESTIONS, Signals(Synthetic(config, MANIFEST, (), "running", **parts)), {}, go_on=True)
        faults = [(a.question.code, a.answer.message) for a in walked.path if a.answer.kind == FAULT]
        assert faults == []
