"""What panels show: of given series all of it, of real runs what is the same on every machine."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from outlines import frame, outline
from samples import only, report
from synthetic import Synthetic

import steadyrun
from steadyrun.panels.board import board_of, build
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import walk

HERE = Path(__file__).parent / "golden"
RUNS = {"healthy": 400, "bad-init": 400, "no-warmup": 400, "broken-mask": 400, "lr-jump": 600, "log-of-zero": 400}
"""Which fault, for how many steps."""
STEPS = 400


@pytest.fixture(autouse=True)
def _two_trees() -> Iterator[None]:
    """The trees of configuration and dynamics: what more is asked changes captions, not panels."""
    with only({code: question for code, question in QUESTIONS.items() if code[0] in "CD"}):
        yield


def matches(golden: Path, drawing: str) -> bool:
    """To accept a change: run with ACCEPT=1 in the environment, and look at the difference."""
    if os.environ.get("ACCEPT"):
        golden.write_text(drawing + "\n")
    return drawing + "\n" == golden.read_text()


FEW = {"healthy"}  # the others are drawn by `make bench`


@pytest.mark.parametrize("fault", [pytest.param(name, marks=[] if name in FEW else pytest.mark.slow) for name in RUNS])
def test_panels_of_a_real_run(tutor_run: Callable[..., steadyrun.RunView], fault: str) -> None:
    assert matches(HERE / f"{fault}.txt", frame(board_of(tutor_run(fault, seed=1, steps=RUNS[fault]).root)))


def rate(step: int) -> float:
    warm = min(1.0, (step + 1) / 80)
    return 3e-3 * warm * (0.55 + 0.45 * math.cos(math.pi * max(0, step - 79) / (STEPS - 80)))


def given(**changed: Any) -> Synthetic:
    """Series of every panel, far from every limit."""
    seldom = range(0, STEPS, 50)
    noise = [0.02 * math.sin(7.3 * step) for step in range(STEPS)]
    series: dict[str, Any] = {
        "loss": [2.0 + 4.2 * math.exp(-step / 80) + noise[step] for step in range(STEPS)],
        "val_loss": ([99, 199, 299, 399], [3.6, 2.6, 2.4, 2.3]),
        "lr/0": [rate(step) for step in range(STEPS)],
        "grad_norm": [0.6 + 5 * noise[step] for step in range(STEPS)],
        "clip_threshold": [1.0] * STEPS,
        "activation/blocks.0": (seldom, [1.0 + step / 800 for step in seldom]),
        "activation/blocks.1": (seldom, [1.2 + step / 600 for step in seldom]),
        "spectral_norm/head": (seldom, [1.5 + step / 700 for step in seldom]),
        "spectral_norm/blocks.0.up": (seldom, [1.4 + step / 900 for step in seldom]),
        "dead_units/blocks.0": (seldom, [3.0] * len(seldom)),
        "dead_heads/blocks.0": (seldom, [0.0] * len(seldom)),
        "class_loss/regular": [2.0 + 4.0 * math.exp(-step / 60) for step in range(STEPS)],
        "class_loss/irregular": [2.4 + 4.0 * math.exp(-step / 60) for step in range(STEPS)],
    }
    config = {"vocab_size": 512, "lr_max": 3e-3, "lr_min": 3e-4, "warmup_steps": 80, "total_steps": STEPS}
    config |= {"schedule": "cosine", "clip": 1.0, "baseline_loss": 2.2}
    return Synthetic(config=config, **series | changed)


def loss_with(values: dict[int, float]) -> list[float]:
    plain = given().series("loss").values.tolist()
    return [values.get(step, loss) for step, loss in enumerate(plain)]


SYNTHETIC: dict[str, dict[str, Any]] = {
    "series-quiet": {},
    "series-first-loss": {"loss": loss_with({0: 61.0})},
    "series-constant-rate": {"lr/0": [3e-3] * STEPS},
    "series-spike": {"loss": loss_with({300: 6.0, 301: 4.0}), "grad_norm": [0.6] * 300 + [9.0, 4.0] + [0.6] * 98},
    "series-not-finite": {"loss": loss_with(dict.fromkeys(range(250, STEPS), math.nan))},
}


@pytest.mark.parametrize("name", SYNTHETIC)
def test_panels_of_given_series(name: str) -> None:
    signals = Signals(given(**SYNTHETIC[name]))
    walked = walk(QUESTIONS, signals, {}, go_on=True)
    assert matches(HERE / f"{name}.txt", outline(build(signals, report(*walked.path))))
