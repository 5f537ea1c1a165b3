"""How validation runs the model beside training, as events of real runs show it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

import steadyrun

INPUTS = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
Validate = Callable[["Looped"], Tensor]


class Looped(nn.Module):
    """A body, and a head that runs as often as asked."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.spare = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, inputs: Tensor, more: Tensor | None = None, *, times: int = 1) -> Tensor:
        hidden: Tensor = self.body(inputs)
        for _ in range(times):
            hidden = self.head(hidden)
        return hidden if more is None else hidden + self.spare(more)


def recorded(folder: Path, validate: Validate, more: Tensor | None = None, micro_batches: int = 1) -> dict[str, object]:
    torch.manual_seed(0)
    model = Looped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadyrun.record(folder) as run:
        run.watch(model, optimizer, capture=False)
        for _ in range(3):
            for _ in range(micro_batches):
                loss = model(INPUTS, more=more).square().mean()
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
        with torch.no_grad():
            run.val(validate(model))
    assert not torch_module._global_forward_hooks
    calls = next(iter(steadyrun.open_run(folder).events("validation"))).fields["calls"]
    assert isinstance(calls, dict)
    return calls


def several_batches(model: Looped) -> Tensor:
    return torch.stack([model(INPUTS).mean() for _ in range(5)]).mean()


def test_several_validation_batches_run_all_parts_as_often(tmp_path: Path) -> None:
    calls = recorded(tmp_path / "run", several_batches)
    assert calls["uneven"] == 1
    assert (calls["given"], calls["given_in_training"]) == (1, 1)


def test_micro_batches_are_not_counted_together(tmp_path: Path) -> None:
    assert recorded(tmp_path / "run", several_batches, micro_batches=4)["uneven"] == 1


def test_a_part_that_runs_more_often_is_named(tmp_path: Path) -> None:
    calls = recorded(tmp_path / "run", lambda model: model(INPUTS, times=6).mean())
    assert (calls["uneven"], calls["part"]) == (6, "head")


def test_parts_that_validation_calls_by_itself_are_counted(tmp_path: Path) -> None:
    def validate(model: Looped) -> Tensor:
        hidden = model.body(INPUTS)
        return model.head(model.head(model.head(hidden))).mean()  # type: ignore[no-any-return]

    calls = recorded(tmp_path / "run", validate)
    assert (calls["uneven"], calls["part"]) == (3, "head")
    assert "given" not in calls


def test_a_tensor_that_training_alone_is_given_by_keyword(tmp_path: Path) -> None:
    calls = recorded(tmp_path / "run", lambda model: model(INPUTS).mean(), more=INPUTS)
    assert (calls["given"], calls["given_in_training"]) == (1, 2)
    assert calls["uneven"] == 1  # the spare part runs in training alone


def test_without_a_pass_there_is_nothing_to_compare(tmp_path: Path) -> None:
    assert recorded(tmp_path / "run", lambda _model: torch.tensor(1.0)) == {}
