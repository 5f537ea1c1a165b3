"""The cause by experiment, on real runs: the tutor and programs that are not the tutor."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import incident_programs as programs
import pytest
import torch
from incident_programs import Loop, rnn

import steadyrun
from steadyrun.replay.experiments.isolation import smaller, synthetic
from steadyrun.replay.experiments.verdict import FactorRow, TriedRows, decide
from steadyrun.replay.hunt import Culprit

TutorRun = Callable[..., steadyrun.RunView]


def explained(run: Path, factory: Any = None, **options: Any) -> steadyrun.Replay:
    result = steadyrun.replay(run, factory)
    result.explain(**options)
    return result


@pytest.fixture
def copied(tmp_path: Path, tutor_run: TutorRun) -> Callable[..., Path]:
    return lambda fault, **config: Path(copytree(tutor_run(fault, **config).root, tmp_path / fault))


def rows(result: steadyrun.Replay) -> dict[str, bool | None]:
    assert result.why is not None
    return {row.factor: row.gone for row in result.why.table}


@pytest.mark.slow
def test_a_learning_rate_that_jumps(copied: Callable[..., Path]) -> None:
    result = explained(copied("lr-jump", steps=600))
    assert result.why is not None
    assert result.why.verdict == "learning-rate"
    assert result.why.start == 300
    assert rows(result)["lr-held"] is True
    assert rows(result)["other-batch"] is False


@pytest.mark.slow
def test_a_batch_of_one_token(copied: Callable[..., Path]) -> None:
    result = explained(copied("corrupt-batch", steps=600))
    assert result.why is not None
    assert result.why.verdict == "data"
    assert rows(result) | {"other-batch": True, "batch-elsewhere": False} == rows(result)
    assert "fresh-moments" in result.why.left_out  # it was decided before


@pytest.mark.slow
def test_a_logarithm_of_zero(copied: Callable[..., Path]) -> None:
    result = explained(copied("log-of-zero", steps=120))
    assert result.why is not None
    assert result.why.verdict == "model"
    folder = result.incident.folder
    assert json.loads((folder / "experiments.json").read_text())["verdict"] == "model"


def test_a_weight_whose_bit_flips(tmp_path: Path) -> None:
    loop = rnn()
    original = loop.one

    def one(run: steadyrun.Run, step: int) -> None:
        if step == 170:
            with torch.no_grad():
                bits = loop.task.model.out.bias.view(torch.int32)
                bits[3] ^= 1 << 30
        original(run, step)

    loop.one = one  # type: ignore[method-assign]
    result = explained(loop.run(tmp_path / "run", 260), programs.rnn_task)
    assert result.proof.first_different == 170
    assert result.why is not None
    assert result.why.verdict == "not-reproducible"
    assert not result.why.table


def test_a_jump_of_the_rate_in_a_program_that_is_not_the_tutor(tmp_path: Path) -> None:
    loop = rnn(clip=1.0)
    original = loop.one

    def one(run: steadyrun.Run, step: int) -> None:
        loop.task.optimizer.param_groups[0]["lr"] = 30.0 if step == 270 else 3e-3
        original(run, step)

    loop.one = one  # type: ignore[method-assign]
    result = explained(loop.run(tmp_path / "run", 340), programs.rnn_task)
    assert result.why is not None
    assert result.why.verdict == "learning-rate", str(result)


def test_a_strange_batch_in_a_program_that_is_not_the_tutor(tmp_path: Path) -> None:
    def spoil(step: int, part: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor.flip(1) for name, tensor in part.items()} if step == 180 else part

    result = explained(rnn(spoil=spoil).run(tmp_path / "run", 260), programs.rnn_task)
    assert result.why is not None
    assert result.why.verdict == "data", str(result)


def test_a_nan_in_the_data(tmp_path: Path) -> None:
    def spoil(step: int, part: list[torch.Tensor]) -> list[torch.Tensor]:
        return [part[0].masked_fill(part[0] > 3, math.nan), part[1]] if step == 60 else part

    loop = Loop(programs.cnn_task(), programs.images(1), spoil=spoil)
    result = explained(loop.run(tmp_path / "run", 80), programs.cnn_task)
    assert result.why is not None
    assert result.why.verdict == "data", str(result)


@pytest.mark.slow
def test_the_full_table_and_several_processes(copied: Callable[..., Path]) -> None:
    run = copied("corrupt-batch", steps=600)
    alone = explained(run, everything=True)
    together = explained(run, everything=True, jobs=2)
    assert alone.why is not None
    assert together.why is not None
    assert alone.why.verdict == together.why.verdict == "data"
    assert not {"fresh-moments", "epsilon", "lr/10"} & set(alone.why.left_out)
    assert [repr(row) for row in alone.why.table] == [repr(row) for row in together.why.table]


@pytest.mark.slow
def test_isolation(copied: Callable[..., Path]) -> None:
    result = explained(copied("log-of-zero", steps=120), isolating=True)
    assert result.why is not None
    assert result.why.isolation is not None
    assert [row.factor for row in result.why.isolation.rows] == ["smaller-model", "made-up-batches"]
    assert result.why.isolation.carries == "model"
    assert "Isolated to: model" in str(result)


def test_a_fault_of_the_whole_run_is_left_to_the_walk(copied: Callable[..., Path]) -> None:
    result = explained(copied("zero-lr", steps=120))
    assert result.why is not None
    assert result.why.verdict == "undecided"
    assert "is a fault of the whole run" in result.why.why


def row(name: str, gone: bool | None) -> FactorRow:
    return FactorRow(name, "", name, 1.0, 1.0, gone)


RATES = [row(name, False) for name in ("lr-held", "lr/3", "lr/10", "warmup")]
HARMLESS = [row(name, False) for name in ("other-batch", "other-batch-before")]


@pytest.mark.parametrize(
    ("table", "verdict"),
    [
        ([*RATES, row("fp32", True)], "precision"),
        ([row("lr/10", True), row("fp32", True), *HARMLESS, row("batch-elsewhere", True)], "learning-rate"),
        ([*RATES, row("other-batch", True), row("batch-elsewhere", False)], "data"),
        ([*RATES, row("other-batch", True), row("batch-elsewhere", None)], "data"),
        ([*RATES, row("other-batch", True), row("batch-elsewhere", True)], "undecided"),
        ([*RATES, *HARMLESS, row("batch-elsewhere", True), row("moments-before-seam", True)], "optimizer-state"),
        (
            [row("lr/10", True), *HARMLESS, row("batch-elsewhere", True), row("earlier-moments", True)],
            "optimizer-state",
        ),
        ([*RATES, *HARMLESS, row("batch-elsewhere", True), row("epsilon", True)], "optimizer-state"),
        ([*RATES, *HARMLESS, row("batch-elsewhere", True), row("clip-0.5", True)], None),
        ([*RATES, *HARMLESS], None),
    ],
)
def test_verdicts(table: list[FactorRow], verdict: str | None) -> None:
    decision = decide(TriedRows(table, []), None, True)
    assert (decision[0] if decision else None) == verdict


def test_nothing_is_decided_while_what_would_separate_is_left() -> None:
    assert decide(TriedRows([row("lr/10", True)], ["other-batch", "earlier-moments"]), None, True) is None
    assert decide(TriedRows([*RATES, row("other-batch", True)], ["batch-elsewhere"]), None, True) is None


def test_an_interaction_is_named() -> None:
    decision = decide(TriedRows([*RATES, row("other-batch", True), row("batch-elsewhere", True)], []), None, True)
    assert decision is not None
    assert decision[2] is not None
    assert "the batch and the weights cause it together" in decision[2]


def test_a_culprit_that_a_smaller_rate_removes_is_not_the_models() -> None:
    culprit = Culprit(**{**dict.fromkeys(_names(), ""), "stage": "forward", "inputs": ()})
    calm = [*HARMLESS, row("batch-elsewhere", True)]
    assert decide(TriedRows(RATES, []), culprit, True)[0] == "model"  # type: ignore[index]
    assert decide(TriedRows([row("lr/3", True), *calm], []), culprit, True)[0] == "learning-rate"  # type: ignore[index]


def _names() -> list[str]:
    from dataclasses import fields

    return [field.name for field in fields(Culprit)]


def test_smaller_and_made_up() -> None:
    config = {"width": 128, "layers": 2, "n_layer": 1, "lr": 8, "hidden_size": 7, "name": "x", "d_model": 64}
    assert smaller(config) == {**config, "width": 64, "layers": 1, "d_model": 32}
    made = synthetic({"x": torch.full((100,), 3.0), "y": torch.arange(10), "m": [torch.ones(2, dtype=torch.bool)]}, 1)
    assert made["x"].shape == (100,)
    assert float(made["x"].std()) == 0.0
    assert 0 <= int(made["y"].min()) <= int(made["y"].max()) <= 9
    assert made["m"][0].all()
