"""A step number that is none, or a value that is none, costs the row it came with, and no other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import steadyrun
from steadyrun.recording.step_counter import step_number
from steadyrun.store.writer import RunWriter

_NONE = [2**63, 2**62, 2**53 + 1, -(2**63) - 1, 10**30, 10**5000, True, 1.5, float("nan"), float("inf"), "7", b"7",
         [3], object(), np.float32("nan"), np.datetime64("2024-01-01"), torch.tensor([1, 2])]  # fmt: skip
_CALLS: dict[str, Callable[[steadyrun.Run, Any], None]] = {
    "step": lambda run, given: run.step(-1.0, step=given),
    "log": lambda run, given: run.log(step=given, y=-1.0),
    "val": lambda run, given: run.val(-1.0, step=given),
}


@pytest.mark.parametrize("call", list(_CALLS))
def test_a_number_that_is_none_costs_its_own_row(tmp_path: Path, capsys: pytest.CaptureFixture[str], call: str) -> None:
    with steadyrun.record(tmp_path / "run", flush_steps=10, flush_seconds=3600) as run:
        for step in range(250):
            if step >= 50 and step - 50 < len(_NONE):
                _CALLS[call](run, _NONE[step - 50])
            run.step(float(step))
            run.log(y=float(step))
            run.val(float(step))
    assert capsys.readouterr().err.count("steadyrun:") == 1
    view = steadyrun.open_run(tmp_path / "run")
    for name in ("loss", "y", "val_loss"):
        assert view.series(name).steps.tolist() == list(range(250)), name
        assert view.series(name).values.tolist() == list(range(250)), name
    assert view.verify() == []
    (refused,) = view.events("probe-failed")
    assert refused.fields["probe"] == f"a row of run.{call}"
    assert "whole number between -2**53 and 2**53" in refused.fields["why"]
    steadyrun.check(tmp_path / "run")


@pytest.mark.parametrize(
    ("given", "number"),
    [(0, 0), (-3, -3), (2**53, 2**53), (np.int64(5), 5), (np.uint8(5), 5), (np.array(5), 5), (5.0, 5),
     (np.float32(5), 5), (torch.tensor(5), 5), (torch.tensor(5.0), 5), (torch.tensor([5]), 5)],
)  # fmt: skip
def test_whole_numbers_of_any_type(given: Any, number: int) -> None:
    assert step_number(given) == number


def test_the_largest_number_leaves_room_for_those_after_it(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        run.step(1.0, step=2**53)
        run.step(2.0)
    assert steadyrun.open_run(tmp_path).series("loss").steps.tolist() == [2**53, 2**53 + 1]
    steadyrun.check(tmp_path)


@pytest.mark.parametrize("given", ["seven", 10**400, object(), [1, 2]])
def test_an_odd_batch_index_costs_only_itself(tmp_path: Path, given: Any) -> None:
    with steadyrun.record(tmp_path) as run:
        for step in range(3):
            run.step(float(step), batch_index=given if step == 1 else 10 + step)
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").values.tolist() == [0, 1, 2]
    assert view.series("batch_index").values.tolist() == [10, 1, 12]


@pytest.mark.parametrize(
    "row", [(2**63, {"x": 1.0}), (7, {"x": 2**70 + 1}), (7, {"x": "text"}), (7, {"new": object()})]
)
def test_a_row_without_a_form_on_disk_is_dropped_alone(tmp_path: Path, row: tuple[int, Any]) -> None:
    """Whoever hands it over: the table is the last that can tell it from the others."""
    said: list[str] = []
    writer = RunWriter(tmp_path, on_problem=lambda what, problem: said.append(f"{what}: {type(problem).__name__}"))
    writer.save_manifest(state="running")
    for step in range(20):
        writer.append("log", step, {"x": float(step)}, 0.0)
        if step == 7:
            writer.append("log", row[0], row[1], 0.0)
        if step % 5 == 4:
            writer.flush()
    writer.close()
    view = steadyrun.open_run(tmp_path)
    assert view.series("x").steps.tolist() == list(range(20))
    assert len(said) == 1
    assert view.events("rows-lost")[0].fields["rows"] == {"log": 1}


def test_a_value_without_a_number_costs_its_own_row(tmp_path: Path) -> None:
    """A tensor that no copy can bring to the host waits with the others, and must not hold them up."""
    with steadyrun.record(tmp_path, flush_steps=5) as run:
        for step in range(50):
            run.step(torch.tensor(1.0, device="meta") if step == 20 else float(step))
            run.log(y=torch.tensor(1.0, device="meta") if step == 30 else float(step))
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").steps.tolist() == [step for step in range(50) if step != 20]
    assert view.series("y").steps.tolist() == [step for step in range(50) if step != 30]
    assert "meta" in view.events("probe-failed")[0].fields["why"]
