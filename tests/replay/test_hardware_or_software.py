"""Injected bit flips are told from faults of software and data: real runs, replayed three times."""

from pathlib import Path

import flipped_programs as programs
import pytest

import steadyrun

FLIPS = {
    "weight": (programs.adam_task, {"after_update": programs.in_weight}, "loss", programs.AT + 1),
    "gradient": (programs.momentum_task, {"in_gradients": programs.in_gradient}, "loss", programs.AT + 1),
    "backward": (programs.momentum_task, {"in_backward": True}, "gradient norm", programs.AT),
    "moment": (programs.adam_task, {"after_update": programs.in_moment}, "loss", programs.AT + 2),
}
SOFTWARE = {
    "bad-batch": (programs.adam_task, {"spoil": programs.bad_batch}),
    "rate": (programs.fast_task, {}),
    "log-of-zero": (lambda: programs.adam_task(programs.log_loss), {"spoil": programs.large_batch}),
}


@pytest.mark.parametrize("name", FLIPS)
def test_a_flipped_bit_is_transient(name: str, tmp_path: Path) -> None:
    task, fault, what, step = FLIPS[name]
    run = programs.train(tmp_path / "run", task(), **fault)
    result = steadyrun.replay(run, task)
    assert result.hardware is not None
    print(result)
    evidence = result.hardware.evidence
    assert result.hardware.verdict == "transient"
    assert (evidence.times, evidence.repeated, evidence.agree) == (3, 0, True)
    assert evidence.first is not None
    assert (evidence.first.what, evidence.first.step) == (what, step)


@pytest.mark.parametrize("name", SOFTWARE)
def test_software_and_data_are_reproducible(name: str, tmp_path: Path) -> None:
    task, fault = SOFTWARE[name]
    run = programs.train(tmp_path / "run", task(), **fault)
    result = steadyrun.replay(run, task)
    print(result)
    assert result.hardware is not None
    assert result.hardware.verdict == "reproducible"
    assert result.hardware.evidence.repeated == 3
    assert result.culprit is not None
