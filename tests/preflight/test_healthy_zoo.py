"""Healthy programs of many kinds: no fault, no probe that fails, and everything as it was."""

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from programs_data import ZOO
from programs_strange import STRANGE

import steadyrun
from steadyrun.report.preflight import run


def standing(task: steadyrun.Task) -> list[Any]:
    """All that may have moved, as plain values."""
    modules = [(name, module.training) for name, module in task.model.named_modules()]
    state = {name: tensor.clone() for name, tensor in task.model.state_dict().items()}
    gradients = [None if parameter.grad is None else parameter.grad.clone() for parameter in task.model.parameters()]
    moments = [copy.deepcopy(optimizer.state_dict()) for optimizer in task.optimizers]
    random_states = [torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()]
    generator = getattr(task.loader, "generator", None)
    own = None if generator is None else generator.get_state().tolist()
    return [modules, {k: v.float().tolist() for k, v in state.items()}, gradients, moments, random_states, own]


PROGRAMS = {**ZOO, **STRANGE}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("deep", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "deep"])
def test_a_healthy_program_has_no_fault(name: str, deep: bool) -> None:
    torch.manual_seed(0)
    task = PROGRAMS[name]()
    before = standing(task)
    report = run(task, deep=deep)
    answers = {asked.question.code: asked.answer for asked in report.walk.path}
    wrong = {
        code: answer.message for code, answer in answers.items() if answer.kind == "fault" or answer.outcome == "failed"
    }
    assert set(wrong) == ({"A4.4"} if name == "frozen_and_no_gradient" else set()), wrong
    assert standing(task) == before
