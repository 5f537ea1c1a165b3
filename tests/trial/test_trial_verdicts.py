"""Trials of real small programs: the fault is named, and a healthy program is not accused."""

from __future__ import annotations

from typing import Any

import pytest
from trial_programs import task

from steadyrun import trial

FAULTS: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "rate too high": ({"lr": 1.0}, ("rate", "clip", "decay"), "C7.2"),
    "rate too low": ({"lr": 3e-6}, ("rate", "clip", "decay"), "C7.1"),
    "decay": ({"weight_decay": 300.0}, ("rate", "decay"), "C7.3"),
    "epsilon": ({"eps": 1.0}, ("rate", "optimizer-settings"), "C7.4"),
    "dropout": ({"dropout": 0.97}, ("rate", "dropout"), "C7.5"),
    "clip": ({"clip": 1e-9}, ("rate", "clip", "decay"), "C7.1"),
    "start": ({"start": 30.0}, ("rate", "start", "decay"), "C5.1"),
    "labels of other inputs": ({"labels": "permuted"}, ("targets", "preparation", "rate"), "S1.4"),
    "classes numbered differently": ({"validation": "renumbered"}, ("targets", "preparation"), "A5.6"),
    "one batch": ({"same_batch": True}, ("rate",), "V1.6"),
    "part outside the optimizer": ({"left_out": "last"}, ("rate",), "A4.1"),
    "blind": ({"blind": True}, ("inputs",), "P3.5"),
    "wrong backward": ({"own_backward": True}, ("function", "rate"), "T1.1"),
}


QUICK = ("rate too high", "labels of other inputs", "part outside the optimizer")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in FAULTS])
def test_the_fault_is_named(name: str) -> None:
    config, only, code = FAULTS[name]
    found = trial(task, config=config, only=only, steps=64)
    assert (found.verdict.kind, found.verdict.code) == ("fault", code), str(found)
    assert found.verdict.fix
    assert found.exit_code == 1


def test_a_healthy_program_is_not_accused() -> None:
    found = trial(task, steps=64)
    assert found.verdict.kind in ("clear", "improvement"), str(found)
    assert found.exit_code == 0
    assert {row.factor for row in found.rows} >= {"own", "rate*0.1", "no-decay", "targets-shuffled", "one-batch"}
    reasons = {each.name: each.why for each in found.not_varied}
    assert "dropout" in reasons["no-dropout"]
    assert all(reasons.values())
