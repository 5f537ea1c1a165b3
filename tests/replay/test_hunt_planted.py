"""Planted origins are named, innocent programs are left alone: the table is `benchmarks/nonfinite/cases.py`."""

import dataclasses
import json
import math

import pytest
import torch
from nonfinite import CULPRITS, INNOCENTS, build

from steadyrun.replay.hunt import hunt
from steadyrun.replay.hunt.culprit import CAUSES

pytestmark = pytest.mark.filterwarnings("ignore:std\\(\\)")


@pytest.mark.parametrize("name", CULPRITS)
def test_the_origin_is_named(name: str) -> None:
    case = CULPRITS[name]
    culprit = hunt(*build(name))
    assert culprit is not None
    assert (culprit.stage, culprit.module) == (case.stage, case.module)
    assert (culprit.operation, culprit.cause) == (case.operation, case.cause)


@pytest.mark.parametrize("name", INNOCENTS)
def test_the_innocent_are_left_alone(name: str) -> None:
    assert hunt(*build(name)) is None


@pytest.mark.parametrize("name", [name for name, case in CULPRITS.items() if case.kind != "rnn" and not case.half])
def test_in_bfloat16_the_same_modules_are_named(name: str) -> None:
    culprit = hunt(*build(name, dtype="bf16"))
    assert culprit is not None
    assert (culprit.stage, culprit.module) == (CULPRITS[name].stage, CULPRITS[name].module)


def test_the_table_covers_every_stage_on_every_kind_of_model() -> None:
    assert len(CULPRITS) >= 24
    assert {case.stage for case in CULPRITS.values()} == {"data", "state", "forward", "loss", "backward", "update"}
    for kind in ("transformer", "cnn", "rnn"):
        stages = {case.stage for case in CULPRITS.values() if case.kind == kind}
        assert stages >= {"forward", "loss", "backward", "update"}


@pytest.mark.parametrize("name", [*CULPRITS, *INNOCENTS])
def test_hunting_changes_nothing(name: str) -> None:
    bare, watched = build(name), build(name)
    torch.manual_seed(3)
    bare[1]()
    after = torch.get_rng_state()
    torch.manual_seed(3)
    hunt(*watched)
    assert torch.equal(torch.get_rng_state(), after)
    for mine, theirs in zip(_state(bare[0]), _state(watched[0]), strict=True):
        assert torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8))


def _state(task):
    model = task.model
    of_model = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters() if p.grad is not None)]
    moments = [value for state in task.optimizer.state.values() for value in state.values()]
    # A NaN has many bit patterns, and which one comes out is not defined.
    tensors = [tensor.detach() for tensor in [*of_model, *moments] if isinstance(tensor, torch.Tensor)]
    cleaned = [tensor.nan_to_num(nan=7.0) if tensor.is_floating_point() else tensor for tensor in tensors]
    return [tensor.contiguous().reshape(-1) for tensor in cleaned]


def test_a_culprit_is_plain_data() -> None:
    culprit = hunt(*build("log of a softmax"))
    assert culprit is not None
    form = json.loads(json.dumps(dataclasses.asdict(culprit)))
    assert form["module_type"] == "LogOfProbability"
    assert form["value"] == "-inf"
    assert form["dtype"] == "float32"
    assert form["where"].startswith("plants.py:")
    assert form["where"].endswith("in log_of_probability")
    (operand,) = form["inputs"]
    assert operand["low"] == 0.0
    assert operand["high"] == pytest.approx(1.0)
    assert 0 < operand["zeros"] < 1


def test_the_message_has_the_numbers_and_the_fix() -> None:
    culprit = hunt(*build("Adam in half"))
    assert culprit is not None
    assert "eps is 1e-08, which is zero in float16" in culprit.message
    assert "1e-8 is zero in float16" in culprit.fix


def test_a_hidden_branch_names_the_operation_behind_the_where() -> None:
    culprit = hunt(*build("where over 0/0"))
    assert culprit is not None
    assert culprit.where.endswith("in guarded_afterwards")
    assert culprit.parameter
    assert "divided by zero" in culprit.message


def test_ranges_leave_out_what_is_not_finite() -> None:
    culprit = hunt(*build("an embedding row"))
    assert culprit is not None
    (operand,) = culprit.inputs
    assert math.isfinite(operand.low)
    assert math.isfinite(operand.high)
    assert operand.nonfinite == pytest.approx(1 / 32)


def test_every_cause_has_a_meaning_and_a_fix() -> None:
    assert {case.cause for case in CULPRITS.values()} <= CAUSES.keys()
    for cause in CAUSES.values():
        assert cause.meaning[0].islower()
        assert cause.fix.endswith(".")
