"""The repaired program of a fault: what was wrong is gone, and what it did is gone with it."""

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app
from steadyrun.questions.dynamics.run_spikes import BACK, SETTLED, SIGMAS, WINDOW
from steadyrun.signals.run_signals import Points
from steadyrun.signals.spikes import Spike, spikes
from steadyrun.tutor.faults import FAULTS, load_recipe
from steadyrun.tutor.replaying import recipe_of
from steadyrun.tutor.train import train

NOISE = 6  # deviations that a spike of a healthy run may have: D2.3's own limit


def demo(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["demo", *arguments])


def largest(losses: list[float]) -> Spike | None:
    points = Points("loss", np.arange(len(losses), dtype=float), np.array(losses))
    return max(spikes(points, WINDOW, SIGMAS, BACK, SETTLED), key=lambda spike: spike.sigmas, default=None)


def test_the_spike_of_a_rare_token_is_gone() -> None:
    settings = {"seed": 1, "steps": 300, "lr_max": 1e-3}
    spike = largest(train(load_recipe("rare-token-spike", **settings)).losses)
    assert spike is not None
    assert spike.start_step == 225
    assert spike.sigmas > NOISE
    after = largest(train(load_recipe("rare-token-spike", remedied=True, **settings)).losses)
    assert after is None or after.sigmas < NOISE


def test_no_batch_of_the_remedied_program_repeats_a_rare_token() -> None:
    recipe = load_recipe("rare-token-spike", remedied=True, steps=40)
    data = recipe.load_data(recipe.config)
    counts = Counter(token for row in data.train for token in row)
    epoch = list(islice(recipe.batch_order(data, recipe.config), len(data.train) // recipe.config.batch_size))
    assert sorted(i for batch in epoch for i in batch) == list(range(len(data.train)))
    for batch in epoch:
        held = Counter(token for i in batch for token in set(data.train[i]))
        assert all(count == 1 for token, count in held.items() if counts[token] < 10)


def test_the_rest_of_the_program_is_the_same() -> None:
    faulty, repaired = (load_recipe("rare-token-spike", remedied=remedied, steps=40) for remedied in (False, True))
    assert faulty.config.clip is None
    assert repaired.config.clip == 1.0
    assert load_recipe("rare-token-spike", remedied=True, clip=0.5).config.clip == 0.5
    assert repaired.name == faulty.name == "rare-token-spike"
    assert repaired.build_optimizer is faulty.build_optimizer


def test_a_fault_without_a_remedy_says_which_have_one() -> None:
    with pytest.raises(ValueError, match="lr-jump has no remedy; faults with a remedy: rare-token-spike"):
        load_recipe("lr-jump", remedied=True)
    assert [name for name, fault in FAULTS.items() if fault.remedy is not None] == ["rare-token-spike"]


def test_the_demo_takes_the_clip_threshold_from_the_faulty_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert demo("rare-token-spike", "--steps", "30", "--seed", "3").exit_code == 0
    result = demo("rare-token-spike", "--remedy", "--steps", "30", "--seed", "3")
    assert result.exit_code == 0, result.output
    clip = steadyrun.suggest_clip("experiments/rare-token-spike")
    assert f"clip threshold {clip:g}, from the gradient norms of experiments/rare-token-spike" in result.stderr
    assert "rare-token-spike-remedied: 30 steps" in result.stdout
    config = steadyrun.open_run("experiments/rare-token-spike-remedied").manifest["config"]
    assert (config["clip"], config["program"], config["remedied"]) == (clip, "rare-token-spike", True)
    assert recipe_of(config).remedied


def test_the_demo_does_without_a_faulty_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = demo("rare-token-spike", "--remedy", "--steps", "5")
    assert result.exit_code == 0, result.output
    assert "experiments/rare-token-spike does not exist" in result.stderr
    demo("rare-token-spike", "--steps", "4")
    assert "has another seed or length" in demo("rare-token-spike", "--remedy", "--steps", "5").stderr
    result = demo("healthy", "--remedy", "--steps", "5")
    assert result.exit_code == 2
    assert "healthy has no remedy" in result.stderr
