"""A clip threshold from a run's own norms, against the formula written out."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steadyrun
from steadyrun.signals.clipping import suggested_clip

numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)


def slow_twin(norms: list[float], quantile: float) -> float:
    """Sort, and go the share of the way between two neighbours; then two digits."""
    usable = sorted(norm for norm in norms if math.isfinite(norm) and norm > 0)
    if not usable:
        return math.nan
    position = quantile * (len(usable) - 1)
    low, high = usable[math.floor(position)], usable[math.ceil(position)]
    value = low + (high - low) * (position - math.floor(position))
    digits = 1 - math.floor(math.log10(value))
    return round(value, digits)


@given(st.lists(numbers), st.floats(0.01, 1))
def test_it_is_what_sorting_gives(norms: list[float], quantile: float) -> None:
    threshold, expected = suggested_clip(np.array(norms, float), quantile), slow_twin(norms, quantile)
    # Where the third digit is a five, the last bit decides about the second.
    assert threshold == pytest.approx(expected, rel=0.06, nan_ok=True)


@pytest.mark.parametrize(("quantile", "clip"), [(0.9, 0.9), (0.5, 0.51), (1.0, 1.0)])
def test_two_digits(quantile: float, clip: float) -> None:
    assert suggested_clip(np.linspace(0.011, 1.003, 200), quantile) == clip


def test_one_giant_does_not_move_it() -> None:
    norms = np.full(100, 0.6)
    norms[50] = 47.2
    assert suggested_clip(norms, 0.9) == 0.6


def recorded(path: Path, norms: list[float], incident: int | None = None) -> Path:
    with steadyrun.record(path) as run:
        for step, norm in enumerate(norms):
            run.log(loss=1.0, grad_norm=norm)
            if step == incident:
                run.incident("a spike")
    return path


def test_of_a_run_before_its_incident(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run", [0.5] * 100 + [50.0] * 100, incident=100)
    assert steadyrun.suggest_clip(path) == 0.5
    assert steadyrun.suggest_clip(steadyrun.open_run(path), before=200, quantile=1) == 50
    assert steadyrun.suggest_clip(path, before=200, window=10) == 50


def test_the_gravest_incident_is_the_one_meant(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run", [0.1] * 50 + [0.4] * 50 + [9.0] * 50)
    with (path / "events/rank-00000.jsonl").open("a") as log:
        for step, severity in ((50, 3.5), (100, 60.0)):
            print(json.dumps({"kind": "incident", "step": step, "time": 0.0, "severity": severity}), file=log)
    assert steadyrun.suggest_clip(path, window=50) == 0.4
    with (path / "events/rank-00000.jsonl").open("a") as log:
        print(json.dumps({"kind": "incident", "step": 150, "time": 0.0, "severity": "?"}), file=log)
    assert steadyrun.suggest_clip(path, window=50) == 9.0


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "bare") as run:
        run.log(loss=1.0)
    with pytest.raises(steadyrun.UsageError, match=r"has no gradient norms: call run\.watch"):
        steadyrun.suggest_clip(tmp_path / "bare")
    path = recorded(tmp_path / "run", [0.5] * 3)
    with pytest.raises(steadyrun.UsageError, match="no finite gradient norm before step 0"):
        steadyrun.suggest_clip(path, before=0)
    with pytest.raises(steadyrun.UsageError, match="quantile is 90; set it above 0"):
        steadyrun.suggest_clip(path, quantile=90)
