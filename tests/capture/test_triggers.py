"""Losses as they arrive: the quick test before the search for spikes never hides one."""

from __future__ import annotations

import numpy as np
import pytest

from steadyrun.capture.incident_log import Triggers, _may_spike
from steadyrun.questions.dynamics.run_spikes import BACK, SETTLED, SIGMAS, WINDOW
from steadyrun.signals.run_signals import Points
from steadyrun.signals.spikes import spikes

_LENGTH = WINDOW + 25


@pytest.mark.parametrize("level", [0.0, 3.0, -1e6, 1e12])
@pytest.mark.parametrize("noise", [0.0, 1e-9, 0.05, 40.0])
def test_what_the_rule_calls_a_spike_passes_the_quick_test(level: float, noise: float) -> None:
    generator = np.random.default_rng(7)
    for _ in range(200):
        values = level + noise * generator.standard_normal(_LENGTH)
        values[generator.integers(_LENGTH)] += generator.choice([0.0, 3 * noise, 1.0, 1e9])
        found = spikes(Points("loss", np.arange(_LENGTH), values), WINDOW, SIGMAS, BACK, SETTLED)
        assert _may_spike(values) or not found


def test_a_quiet_stretch_needs_no_search() -> None:
    quiet = 3.0 + 0.05 * np.sin(np.arange(_LENGTH))
    assert not _may_spike(quiet)
    assert _may_spike(np.where(np.arange(_LENGTH) == 110, 9.0, quiet))


def test_a_spike_is_reported_once_and_a_loss_that_is_not_finite_when_it_begins() -> None:
    triggers, found = Triggers(), []
    for step in range(300):
        loss = 9.0 if step == 130 else float("nan") if step in (250, 251) else 3.0 + 0.05 * np.sin(step)
        found += [(kind, at) for kind, at, _, _ in triggers.saw(step, loss)]
        found += [(kind, at) for kind, at, _, _ in triggers.saw(step, loss)]  # a row that is shown twice
    found += [(kind, at) for kind, at, _, _ in triggers.spikes()]
    assert found == [("spike", 130), ("non-finite", 250)]
