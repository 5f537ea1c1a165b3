"""A compiled model gets nothing into its graph; what is not recorded is said, never zero."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_programs import batch_of, loss_of, mlp, true_norm, values
from torch._dynamo.utils import counters

import steadyrun


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def train(run: Any, model: Any, step_loss: Any, steps: int = 8) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters())
    run.watch(model, optimizer)
    truth = []
    for step in range(steps):
        loss = step_loss(batch_of(step))
        loss.backward()
        truth.append(true_norm(model))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        run.step(loss, batch=batch_of(step))
    return truth


class Net(torch.nn.Module):
    """A module of its own: torch compiles a bare Sequential in place to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def in_place(model: Any) -> Any:
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize("wrap", [lambda model: torch.compile(model, backend="eager"), in_place])
def test_a_compiled_model(tmp_path: Path, wrap: Any) -> None:
    model = wrap(Net())
    with steadyrun.record(tmp_path, every={"blocks": 1}) as run:
        truth = train(run, model, lambda batch: loss_of(model, batch))
    view = steadyrun.open_run(tmp_path)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)
    assert len(values(tmp_path, "block_grad_norm/layers.0")) == 8
    assert not [name for name in view.names() if name.startswith(("activation", "dead_"))]
    (said,) = view.events("not-recorded")
    assert "compiled" in said.fields["why"]
    assert said.fields["missing"] == ["activations", "dead_units", "attention"]
    assert view.manifest["model"]["compiled"] is True
    assert not [name for name in view.names() if "_orig_mod" in name]


def test_a_compiled_function_around_an_eager_model(tmp_path: Path) -> None:
    model = mlp()
    compiled = torch.compile(lambda batch: loss_of(model, batch), backend="eager")
    with steadyrun.record(tmp_path, every={"activations": 2}) as run:
        truth = train(run, model, compiled, steps=12)
    view = steadyrun.open_run(tmp_path)
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] <= 2
    assert values(tmp_path, "grad_norm") == pytest.approx(truth, rel=1e-5)
    assert not [name for name in view.names() if name.startswith("activation")]
    assert "no training forward pass" in view.events("not-recorded")[0].fields["why"]
