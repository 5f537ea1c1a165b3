"""What other machines need: no deadlines, and an emulation that emulates."""

from __future__ import annotations

import machines
import pytest
from hypothesis import HealthCheck, settings


def test_no_test_has_a_deadline() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_the_setting_of_ci_changes_results() -> None:
    """`make test-default-cpu` would prove nothing otherwise."""
    if machines.results()["capability"] == "DEFAULT":
        pytest.skip("this CPU has no other instructions than the emulated one")
    assert "randn" in machines.changed("ATEN_CPU_CAPABILITY=default")
