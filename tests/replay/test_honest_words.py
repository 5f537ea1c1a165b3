"""What a replay says must be true: of overflow, of small biases, of batches that a step changes, of other losses."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import steadyrun
from steadyrun.capture.batch_ring import KeptStep, Ring
from steadyrun.program.snapshot import all_finite
from steadyrun.replay.incident import incidents_of
from steadyrun.replay.window import Changes


def plain(model: nn.Module, batch: Tensor) -> Tensor:
    given: Tensor = model(batch)
    return given.square().mean()


def in_place(model: nn.Module, batch: Tensor) -> Tensor:
    return plain(model, batch.div_(2))


def task_with(loss_fn: Callable[..., Tensor], rate: float = 0.1) -> steadyrun.Task:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    return steadyrun.Task(model, torch.optim.SGD(model.parameters(), rate), loss_fn)


def train(
    path: Path, task: steadyrun.Task, after_step: Callable[[steadyrun.Run, int], None], factor: float = 1.0
) -> Path:
    with steadyrun.record(path) as run:
        run.watch(task.model, task.optimizer, loss_fn=task.loss_fn, monitor=False)
        for step in range(30):
            batch = torch.randn(8, 4)
            loss = task.loss_fn(task.model, batch)
            (loss * factor).backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
            run.step(loss, batch=batch)
            after_step(run, step)
    return path


def look(run: steadyrun.Run, step: int) -> None:
    if step == 25:
        run.incident("look")


def test_large_numbers_are_finite() -> None:
    """Their norm overflows in float32."""
    assert all_finite([torch.full((4,), 1e30)])
    assert not all_finite([torch.tensor([1.0, float("nan")])])
    assert not all_finite([torch.tensor([1.0, float("-inf")])])
    assert all_finite([torch.zeros(0), torch.ones(2, dtype=torch.uint8)])


def test_a_bias_that_passes_through_zero_is_not_violent() -> None:
    from steadyrun.program.packing import Packed

    model, changes = nn.Linear(1, 1), Changes()
    for step in range(20):
        before = 0.1 - 0.01 * step
        with torch.no_grad():
            model.bias.fill_(before - 0.01)
        changes.add(step, model, Packed(tensors={"parameters.bias": torch.tensor([before])}))
    assert changes.first_violent() is None


def test_a_batch_that_the_step_changes(tmp_path: Path) -> None:
    run = train(tmp_path / "run", task_with(in_place), look)
    result = steadyrun.replay(run, lambda: task_with(in_place))
    assert not result.proof.holds
    assert "in place" in result.proof.differences[0].message


def test_a_loss_that_backward_was_not_given(tmp_path: Path) -> None:
    run = train(tmp_path / "run", task_with(plain), look, factor=0.25)
    result = steadyrun.replay(run, lambda: task_with(plain))
    assert not result.proof.holds
    assert result.proof.differences[0].what == "loss", str(result)


def test_folders_that_are_asked_for_are_bounded(tmp_path: Path) -> None:
    run = train(tmp_path / "run", task_with(plain), lambda run, step: run.incident(f"step {step}"))
    assert len(incidents_of(run)) == 8
    assert (run / "events" / "rank-00000.jsonl").read_text().count('"asked"') == 30


def test_the_ring_counts_what_a_step_takes_besides_its_batch() -> None:
    """Random states and numbers of a step are some 30 KB, also where its batch is tiny."""
    from steadyrun.program.random_state import take

    ring = Ring(2**20)
    for step in range(100):
        ring.add(KeptStep(step, take()))
    assert len(ring) <= 40


def test_a_parameter_that_the_loop_destroys_is_not_blamed_on_the_loss(tmp_path: Path) -> None:
    task = task_with(plain)

    def poke(run: steadyrun.Run, step: int) -> None:
        if step == 20:
            next(task.model.parameters()).data.fill_(float("nan"))

    run = train(tmp_path / "run", task, poke)
    result = steadyrun.replay(run, lambda: task_with(plain))
    assert not result.proof.holds
    assert [difference.what for difference in result.proof.differences] == ["unknown"]
    assert result.culprit is None
