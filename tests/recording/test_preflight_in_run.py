"""`run.watch(preflight=True)`: before the first step, without a trace, kept with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import steadyrun


def objects(seed: int = 0) -> tuple[nn.Module, Any, Any]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.BatchNorm1d(16), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    data = TensorDataset(torch.randn(128, 8), torch.randint(0, 4, (128,)))
    return model, optimizer, DataLoader(data, batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(5))


def good(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def bad(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]).softmax(-1), batch[1])


def train(folder: Path, **watching: Any) -> list[float]:
    model, optimizer, loader = objects()
    losses = []
    with steadyrun.record(folder, config={"num_classes": 4}) as run:
        run.watch(model, optimizer, loss_fn=good, loader=loader, **watching)
        for batch in loader:
            optimizer.zero_grad()
            loss = good(model, batch)
            loss.backward()
            optimizer.step()
            run.step(loss, batch=batch)
            losses.append(loss.item())
    return [*losses, *(float(each.sum()) for each in model.state_dict().values())]


def test_training_is_bit_for_bit_the_same(tmp_path: Path) -> None:
    assert train(tmp_path / "with", preflight=True) == train(tmp_path / "without")


def test_what_it_found_is_kept_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "run", preflight=True)
    assert "preflight: no fault in" in capsys.readouterr().err
    view = steadyrun.open_run(tmp_path / "run")
    assert view.manifest["preflight"]["verdict"] == "healthy"
    assert view.events("preflight")[0].fields["headline"] is None
    codes = [asked.question.code for asked in steadyrun.check(tmp_path / "run").walk.path]
    assert "P3.4" in codes
    assert len(codes) == len(set(codes))
    entries = {entry["code"]: entry for entry in steadyrun.check(tmp_path / "run").to_dict()["walk"]}
    assert entries["A3.1"]["aliases"] == ["P3.2"]
    assert (entries["A3.1"]["source"], entries["A3.1"]["also"]["source"]) == ("record", "preflight")
    assert entries["A3.1"]["also"]["answer"] == "pass"
    assert (entries["P3.4"]["source"], entries["P3.4"]["also"]) == ("preflight", None)


def test_a_fault_is_told_and_may_stop_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, optimizer, loader = objects()
    run = steadyrun.record(tmp_path / "run", config={"num_classes": 4})
    told: list[Any] = []
    run.watch(model, optimizer, loss_fn=bad, loader=loader, preflight=True, on_fault=told.append)
    assert "preflight: fault A3.1 squashed-twice" in capsys.readouterr().err
    assert [each.code for each in told] == ["A3.1"]
    with pytest.raises(steadyrun.FaultFound, match=r"A3\.1"):
        run.watch(model, optimizer, loss_fn=bad, loader=loader, preflight=True, on_fault="stop")
    run.close()
    report = steadyrun.check(tmp_path / "run")
    assert report.headline is not None
    assert report.headline.question.code == "A3.1"
    assert report.to_dict()["headline"]["proof"] == "preflight"


def test_what_preflight_and_the_run_show_is_said_once_with_both(tmp_path: Path) -> None:
    model, optimizer, loader = objects()
    with steadyrun.record(tmp_path / "run", config={"num_classes": 4}, every=1) as run:
        run.watch(model, optimizer, loss_fn=bad, loader=loader, preflight=True)
        for batch in loader:
            optimizer.zero_grad()
            loss = bad(model, batch)
            loss.backward()
            optimizer.step()
            run.step(loss, batch=batch)
    report = steadyrun.check(tmp_path / "run")
    (found,) = [asked for asked in report.walk.path if asked.question.code == "A3.1"]
    assert found is report.headline
    assert "Preflight, before the run: The graph of the loss has a softmax" in found.answer.message
    assert "Seen in" in found.answer.message
    headline = report.to_dict()["headline"]
    assert (headline["source"], headline["also"]["source"]) == ("record", "preflight")
    assert (headline["proof"], headline["also"]["outcome"]) == ("preflight", "squashed-twice")
    assert str(report).count("(A3.1") == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"preflight": True, "loss_fn": good}, "needs batches"),
        ({"preflight": True, "loader": [1]}, "needs loss_fn"),
        ({"preflight": True, "loss_fn": good, "loader": iter([1])}, "without using them up"),
    ],
)
def test_what_is_missing_is_said_before_training(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    model, optimizer, _ = objects()
    with (
        steadyrun.record(tmp_path / "run") as run,
        pytest.raises(steadyrun.UsageError, match=words),
    ):
        run.watch(model, optimizer, **given)


def test_a_loss_function_that_fails_does_not_stop_training(tmp_path: Path) -> None:
    model, optimizer, loader = objects()

    def broken(*_: Any) -> Any:
        raise ValueError("not yet")

    with steadyrun.record(tmp_path / "run") as run:
        run.watch(model, optimizer, loss_fn=broken, preflight=[next(iter(loader))], capture=False)
        assert run.path.exists()


def test_the_function_and_the_room_share_their_name() -> None:
    import steadyrun.preflight.bench
    import steadyrun.replay.session

    model, optimizer, loader = objects()
    report = steadyrun.preflight(model, optimizer, good, [next(iter(loader))])
    assert report.verdict == "healthy"
    assert callable(steadyrun.replay)


def test_an_optimizer_inside_of_another_is_put_back_too() -> None:
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, base: Any) -> None:
            self.base = base
            super().__init__([each for group in base.param_groups for each in group["params"]], {})
            self.param_groups = base.param_groups

        def step(self, closure: Any = None) -> Any:
            return self.base.step(closure)

    model, _, loader = objects()
    inner = torch.optim.Adam(model.parameters(), 1e-2)
    report = steadyrun.preflight(model, Wrapper(inner), good, list(loader)[:4])
    assert report.verdict == "healthy"
    assert len(inner.state) == 0


def test_it_takes_the_arguments_of_preflight(tmp_path: Path) -> None:
    model, optimizer, loader = objects()
    seen: list[str] = []
    given = {
        "val_loader": list(loader),  # the training data itself: a leak
        "only": ["C4.2", "A3.1"],
        "on_probe": lambda _done, _total, name: seen.append(name),
    }
    with steadyrun.record(tmp_path / "run", config={"num_classes": 4}) as run:
        run.watch(model, optimizer, loss_fn=good, loader=loader, preflight=given)
    walk = {entry["code"]: entry["answer"] for entry in run_preflight(tmp_path / "run")}
    assert set(walk) == {"C4.2", "A3.1"}
    assert walk["C4.2"] == "fault"
    assert len([name for name in seen if name]) == 2


def run_preflight(folder: Path) -> list[dict[str, Any]]:
    walk: list[dict[str, Any]] = steadyrun.open_run(folder).manifest["preflight"]["walk"]
    return walk


def test_deep_probes_and_batches_in_a_dict(tmp_path: Path) -> None:
    model, optimizer, loader = objects()
    batches = list(loader)
    with steadyrun.record(tmp_path / "run", config={"num_classes": 4}) as run:
        run.watch(model, optimizer, loss_fn=good, preflight={"batches": batches, "deep": True, "only": ["P6.1"]})
    assert [entry["code"] for entry in run_preflight(tmp_path / "run")] == ["P6.1"]


def test_the_step_of_the_program_is_tried(tmp_path: Path) -> None:
    model, optimizer, loader = objects()

    def train_step(task: steadyrun.Task, batch: Any) -> torch.Tensor:
        loss = task.loss_fn(task.model, batch)
        loss.backward()
        task.optimizer.step()  # and never zero_grad
        return loss.detach()

    given = {"train_step": train_step, "only": ["A1.1"]}
    with steadyrun.record(tmp_path / "run", config={"num_classes": 4}) as run:
        run.watch(model, optimizer, loss_fn=good, loader=loader, preflight=given)
    assert [entry["answer"] for entry in run_preflight(tmp_path / "run")] == ["fault"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"val_loder": []}, r"no argument 'val_loder'; did you mean 'val_loader'\? It takes loader, .*deep, only"),
        ({"model": 1}, r"no argument 'model'; .*It takes"),
        ({"val_loader": iter([1])}, "without using them up"),
    ],
)
def test_unknown_arguments_are_answered_with_the_known_ones(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    model, optimizer, loader = objects()
    with steadyrun.record(tmp_path / "run") as run, pytest.raises(steadyrun.UsageError, match=words):
        run.watch(model, optimizer, loss_fn=good, loader=loader, preflight=given)
