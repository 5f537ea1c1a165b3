"""What a trial leaves behind, keeps, and does with its time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trial_programs import raising, task

import steadyrun
from steadyrun import trial
from steadyrun.errors import UsageError

FACTORY = f"{Path(__file__).with_name('trial_programs.py')}:task"


def losses_of(program: steadyrun.Task, steps: int) -> list[float]:
    """The program's own loop, with dropout from the global random numbers."""
    assert program.train_step is not None
    batches = itertools.islice(iter(program.loader or []), steps)
    return [float(program.train_step(program, batch).detach()) for batch in batches]


def test_training_in_the_users_process_is_bit_equal_after_a_trial() -> None:
    config = {"dropout": 0.3, "lr": 1e-2}
    alone, tried = task(config), task(config)
    for program in (alone, tried):
        torch.manual_seed(3)
        losses_of(program, 10)
        if program is tried:
            changes = ["rate", "start", "sgd", "batch", "targets", "freeze", "identity", "clip", "no-dropout"]
            assert len(trial(program, steps=16, only=changes).rows) > 10
        program.losses = losses_of(program, 20)  # type: ignore[attr-defined]
    assert tried.losses == alone.losses  # type: ignore[attr-defined]
    for one, other in zip(alone.model.parameters(), tried.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_ended_twins_are_not_trained_again(scratch: Path) -> None:
    first = trial(FACTORY, config={"lr": 1.0}, only=["rate"], steps=16)
    again = trial(FACTORY, config={"lr": 1.0}, only=["rate"], steps=16)
    assert again.kept == sum(row.seeds for row in again.rows)
    assert [row.loss for row in again.rows] == [row.loss for row in first.rows]
    (file,) = (scratch / "trials").iterdir()
    file.write_bytes(file.read_bytes()[:-20])  # cut off while it was written: one twin is trained again
    mended = trial(FACTORY, config={"lr": 1.0}, only=["rate"], steps=16)
    assert mended.kept == again.kept - 1
    other = trial(FACTORY, config={"lr": 0.9}, only=["rate"], steps=16)
    assert other.kept == 0


def test_ctrl_c_keeps_what_is_done() -> None:
    def stop(done: int, _planned: int, _words: str, _known: str) -> None:
        if done == 4:
            raise KeyboardInterrupt

    found = trial(FACTORY, only=["rate"], steps=16, on_twin=stop)
    assert found.interrupted
    assert sum(row.seeds for row in found.rows) == 4
    assert "stopped with Ctrl-C" in str(found)
    assert trial(FACTORY, only=["rate"], steps=16).kept == 4


def test_what_the_budget_leaves_out_is_named() -> None:
    found = trial(task, steps=16, budget=0.001)
    assert "rate*0.1" in found.untried
    assert "not tried within the budget: the learning rate divided by 10; " in str(found)
    assert "rate*" not in str(found)
    with pytest.raises(UsageError, match="budget"):
        trial(task, budget=0)


@pytest.mark.parametrize("on", ["local:2", ThreadPoolExecutor(2)], ids=["local", "executor"])
def test_workers_give_the_same_table(on: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = trial(FACTORY, only=["rate", "targets"], steps=16)
    monkeypatch.setenv("STEADYRUN_SCRATCH", str(tmp_path / "other"))
    if isinstance(on, ThreadPoolExecutor):
        on = ThreadPoolExecutor(1)  # threads share torch's random numbers: one at a time
    there = trial(FACTORY, only=["rate", "targets"], steps=16, on=on)
    assert there.kept == 0
    mine = {row.factor: row.loss for row in here.rows}
    assert {row.factor: row.loss for row in there.rows} == pytest.approx(mine, rel=1e-3)


def test_a_program_that_workers_cannot_build_is_refused() -> None:
    with pytest.raises(UsageError, match="module:function"):
        trial(task, steps=16, on="local:2")


def test_values_of_the_config_are_compared_at_many_seeds() -> None:
    found = trial(task, vary={"lr": [3e-3, 1e-1]}, seeds=4, steps=24)
    rows = {row.words: row for row in found.rows}
    assert rows["lr = 0.003"].loss == pytest.approx(rows["nothing changed"].loss, rel=1e-4)
    assert rows["lr = 0.1"].seeds == 4
    assert found.noise["seeds"] == 4
    assert found.verdict.kind in ("clear", "improvement", "undecided")  # a value of one's own accuses nothing
    assert "noise: 4 seeds" in str(found)
    assert "same losses" in rows["lr = 0.003"].note
    assert rows["lr = 0.1"].note == ""
    with pytest.raises(UsageError, match="through its factory"):
        trial(task({}), vary={"lr": [1e-3]})


def test_a_value_that_the_config_does_not_have_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"no 'weight_decy' to vary; did you mean weight_decay\?.*--config"):
        trial(task, vary={"weight_decy": [0.1]}, steps=16)
    with pytest.raises(UsageError, match=r"no 'zzz' to vary; it has: lr, "):
        trial(task, vary={"zzz": [1]}, steps=16)
    with pytest.raises(UsageError, match=r"no 'model.wdth' to vary; did you mean model.width\?"):
        trial(task, vary={"model.wdth": [1]}, config={"model": {"width": 3}}, steps=16)


def test_a_program_without_a_config_may_read_any_name() -> None:
    def bare(config: dict[str, Any]) -> steadyrun.Task:
        built = task({"lr": config.get("rate", 3e-3)})
        built.config = None
        return built

    rows = {row.words: row for row in trial(bare, vary={"rate": [0.1], "unread": [1]}, seeds=2, steps=16).rows}
    assert rows["rate = 0.1"].note == ""
    assert "the program does not read it" in rows["unread = 1"].note


def test_seeds_alone_measure_the_noise() -> None:
    found = trial(task, seeds=3, steps=24)
    assert [row.factor for row in found.rows] == ["own"]
    assert found.noise["deviation"] > 0
    assert found.noise["seeds_that_show"]["1.0%"] >= found.noise["seeds_that_show"]["5.0%"]


def test_an_unknown_change_names_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="'rotary' cannot be varied; this program has: rate"):
        trial(task, only=["rotary"])
    with pytest.raises(UsageError, match="the model has no active dropout"):
        trial(task, only=["no-dropout"])


def test_a_program_that_raises_is_an_error_of_the_user() -> None:
    with pytest.raises(UsageError, match=r"^raising: its training step or its loss raised RuntimeError: this loss"):
        trial(raising, steps=16)


@pytest.mark.parametrize("which", ["loader", "val_loader"])
def test_a_loader_that_raises_is_named_with_its_program(which: str) -> None:
    def unreadable(config: dict[str, Any]) -> steadyrun.Task:
        def batches() -> Iterator[Any]:
            yield from itertools.islice(iter(task({}).loader or []), 3)
            raise KeyError("image")

        built = task(config)
        setattr(built, which, batches())
        return built

    message = rf"^unreadable: batch 3 of the task's {which} raised KeyError: 'image' \(.*test_trial\.py:\d+\)$"
    with pytest.raises(UsageError, match=message):
        trial(unreadable, steps=16)


def test_the_result_is_json(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run", config={"lr": 1.0, "seed": 1}) as run:
        run.log(loss=1.0)
    found = trial(task, run=tmp_path / "run", only=["rate"], steps=32)
    content = json.loads((tmp_path / "run" / "trial.json").read_text("utf-8"))
    assert content["schema"] == 1
    assert content["verdict"] == found.verdict.kind == "fault"
    assert content["code"] == "C7.2"
    assert {row["factor"] for row in content["rows"]} == {row.factor for row in found.rows}
    assert len(content["curves"]) == sum(row.seeds for row in found.rows)
    assert "<table>" in found._repr_html_()


def loader_of(examples: torch.Tensor, size: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(examples, (examples.sum(1) > 3).long()), size, shuffle=True)


def shuffled_task(train: int = 8, validation: int = 128, bits: bool = False) -> steadyrun.Task:
    """A classifier with loaders as tutorials write them."""
    torch.manual_seed(0)
    x = (torch.rand(1200, 6) > 0.5).float() if bits else torch.rand(1200, 6) * 2
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def loss_fn(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    return steadyrun.Task(
        model, optimizer, loss_fn, loader=loader_of(x[:1000], train), val_loader=loader_of(x[1000:], validation)
    )


def test_random_numbers_of_a_shuffling_loader_are_put_back() -> None:
    program = shuffled_task()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    trial(program, only=["rate*0.1"], steps=16)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("bits", [False, True])
def test_larger_validation_batches_and_equal_examples_accuse_nothing(bits: bool) -> None:
    found = trial(shuffled_task(bits=bits), only=["preparation", "targets"], steps=48)
    assert found.verdict.kind != "fault", str(found)


def test_nothing_is_cleared_that_was_not_tried() -> None:
    found = trial(task, steps=16, budget=0.001)
    assert found.verdict.kind == "undecided"
    assert found.exit_code == 3


def test_a_weaker_trial_does_not_replace_a_better_one(tmp_path: Path) -> None:
    program = task({"lr": 1.0})
    with steadyrun.record(tmp_path / "run", config={"lr": 1.0, "seed": 1}) as run:
        run.watch(program.model, program.optimizer)
        run.log(loss=1.0)
    assert trial(task, run=tmp_path / "run", only=["rate"], steps=32).verdict.kind == "fault"
    trial(task, run=tmp_path / "run", steps=16, budget=0.001)
    assert json.loads((tmp_path / "run" / "trial.json").read_text("utf-8"))["verdict"] == "fault"
    with pytest.raises(UsageError, match="run of another model"):
        trial(shuffled_task, run=tmp_path / "run", only=["rate*0.1"], steps=16)


def test_an_optimizer_that_is_not_of_torch_is_refused() -> None:
    program = shuffled_task()
    program.optimizer = object()
    with pytest.raises(UsageError, match=r"not a torch\.optim\.Optimizer"):
        trial(program, steps=16)


def test_micro_batches_of_a_step_of_ones_own() -> None:
    program = shuffled_task()
    batches = list(program.loader or [])
    program.loader = [batches[index : index + 2] for index in range(0, len(batches) - 1, 2)]

    def train_step(task: steadyrun.Task, parts: list[Any]) -> torch.Tensor:
        task.optimizer.zero_grad()
        losses = [task.loss_fn(task.model, part) for part in parts]
        (sum(losses) / len(parts)).backward()
        task.optimizer.step()
        return torch.stack(losses).mean()

    program.train_step = train_step
    found = trial(program, only=["rate*0.1", "targets"], steps=16)
    assert not any(row.note for row in found.rows)


def with_a_default(config: dict[str, Any] = {"lr": 1e-3}) -> steadyrun.Task:  # noqa: B006
    return task(config | {"lr": config["lr"]})


def test_a_factory_keeps_its_own_default() -> None:
    assert trial(with_a_default, only=["rate*0.1"], steps=16).rows
