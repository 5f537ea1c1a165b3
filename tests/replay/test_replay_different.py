"""A replay that is not what was recorded says so, and what differs."""

from pathlib import Path

import incident_programs as programs
import numpy as np
import pytest
import torch
from incident_programs import Loop, cnn, rnn
from torch import Tensor, nn

import steadyrun
from steadyrun import Task


def kinds(result: steadyrun.Replay) -> list[str]:
    return [difference.what for difference in result.proof.differences]


def recorded(loop: Loop, path: Path, steps: int = 30) -> Path:
    with steadyrun.record(path, config={"seed": 1}) as run:
        task = loop.task
        run.watch(task.model, task.optimizer, scheduler=task.scheduler, loss_fn=task.loss_fn)
        for step in range(steps):
            loop.one(run, step)
        run.incident("look again")
    return path


class Wide(nn.Module):
    """Sums long enough to be split over threads."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 60_000))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.scale).sin().sum()


def wide_task() -> Task:
    model = Wide()
    return Task(model, torch.optim.SGD(model.parameters(), lr=1e-3), lambda net, batch: net(batch))


def test_a_changed_number_of_threads(tmp_path: Path) -> None:
    def batches():
        generator = torch.Generator().manual_seed(3)
        while True:
            yield torch.randn(60_000, generator=generator)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        run = recorded(Loop(wide_task(), batches()), tmp_path / "run", steps=6)
        same = steadyrun.replay(run, wide_task)
        assert same.proof.verdict == "bit-equal"
        result = steadyrun.replay(run, wide_task, threads=2)
    finally:
        torch.set_num_threads(before)
    assert result.proof.verdict == "within-tolerance"
    assert result.proof.first_different is not None
    assert kinds(result) == ["threads"]
    assert result.proof.differences[0].message == "the number of threads: 1 in the run, 2 now"


def test_the_threads_of_the_run_are_used_by_default(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run = recorded(cnn(), tmp_path / "run")
        torch.set_num_threads(1)
        assert steadyrun.replay(run, programs.cnn_task).proof.verdict == "bit-equal"
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_loader_that_is_not_deterministic(tmp_path: Path) -> None:
    """The window is replayed from the kept batches; the loader of the task is named all the same."""
    generator = np.random.default_rng()  # nobody seeds it

    def batches():
        while True:
            for seed in generator.permutation(20):
                yield next(programs.images(int(seed)))

    def factory() -> Task:
        task = programs.cnn_task()
        task.loader = [next(batches()) for _ in range(20)]
        return task

    result = steadyrun.replay(recorded(Loop(programs.cnn_task(), batches()), tmp_path / "run"), factory)
    assert result.proof.verdict == "bit-equal"
    assert kinds(result) == ["data"]
    assert "loader yields another batch at step" in result.proof.differences[0].message


def test_a_loader_that_is_deterministic_is_not_named(tmp_path: Path) -> None:
    def factory() -> Task:
        task = programs.cnn_task()
        generator = programs.images(1)
        task.loader = [next(generator) for _ in range(40)]
        return task

    result = steadyrun.replay(recorded(cnn(), tmp_path / "run"), factory)
    assert kinds(result) == []


def test_augmentation_that_is_not_in_the_recorded_batch(tmp_path: Path) -> None:
    """The batch given to run.step is not what the model saw."""
    hidden = np.random.default_rng(4)

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        noise = torch.from_numpy(hidden.standard_normal(batch[0].shape)).float()
        return programs.image_loss(model, [batch[0] + noise, batch[1]])

    def factory() -> Task:
        task = programs.cnn_task()
        task.loss_fn = loss_fn
        return task

    loop = cnn()
    loop.task.loss_fn = loss_fn
    result = steadyrun.replay(recorded(loop, tmp_path / "run"), factory)
    assert result.proof.verdict == "not-reproducible"
    assert set(kinds(result)) == {"data"}
    assert "NOT REPRODUCIBLE" in str(result)


class Restless(nn.Module):
    """Draws from a generator of its own, in the middle of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.noisy, self.last = nn.Linear(64, 16), Noisy(), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.noisy(self.first(x.flatten(1))))
        return out


class Noisy(nn.Module):
    generator = np.random.default_rng()

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.from_numpy(self.generator.standard_normal(x.shape)).float()


def restless_task() -> Task:
    torch.manual_seed(0)
    model = Restless()
    return Task(model, torch.optim.Adam(model.parameters(), lr=1e-2), programs.image_loss)


def test_a_module_that_is_not_deterministic_is_named(tmp_path: Path) -> None:
    result = steadyrun.replay(recorded(Loop(restless_task(), programs.images(1)), tmp_path / "run"), restless_task)
    assert result.proof.verdict == "not-reproducible"
    assert "nondeterminism" in kinds(result)
    assert any("first in the output of noisy" in difference.message for difference in result.proof.differences)


def test_another_learning_rate_in_the_tasks_own_step(tmp_path: Path) -> None:
    def step(task: Task, batch: object) -> Tensor:
        task.optimizer.zero_grad()
        loss = task.loss_fn(task.model, batch)
        loss.backward()
        task.optimizer.step()
        task.optimizer.param_groups[0]["lr"] *= 0.9
        return loss.detach()

    def factory() -> Task:
        task = programs.rnn_task()
        task.train_step = step
        return task

    result = steadyrun.replay(recorded(rnn(), tmp_path / "run"), factory)
    assert result.proof.verdict == "not-reproducible"
    assert kinds(result) == ["learning-rate"]


def test_a_program_that_has_changed(tmp_path: Path) -> None:
    """Another loss than the recorded one: nothing of what was captured explains it."""

    def factory() -> Task:
        task = programs.rnn_task()
        task.loss_fn = lambda model, batch: 1.1 * programs.token_loss(model, batch)
        return task

    result = steadyrun.replay(recorded(rnn(), tmp_path / "run"), factory)
    assert result.proof.verdict == "not-reproducible"
    assert result.proof.first_different == 0
    assert kinds(result) == ["unknown"]


def test_versions_of_the_run(tmp_path: Path) -> None:
    import json

    run = recorded(rnn(), tmp_path / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["versions"]["torch"] = "2.1.0"
    (run / "manifest.json").write_text(json.dumps(manifest))

    def factory() -> Task:
        task = programs.rnn_task()
        task.loss_fn = lambda model, batch: (1 + 1e-6) * programs.token_loss(model, batch)
        return task

    result = steadyrun.replay(run, factory)
    assert result.proof.verdict == "within-tolerance"
    assert any("torch 2.1.0 in the run" in difference.message for difference in result.proof.differences)


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (lambda: None, "must return a steadyrun.Task, not NoneType"),
        (programs.cnn_task, "builds another model than the run had"),
        ("no_such_module:task", "no module named"),
        ("incident_programs:nothing", "has no function 'nothing'"),
        ("incident_programs", "must look like module:function"),
        ("/no/such/file.py:task", "there is no such file"),
        (None, "name the function that builds the program"),
    ],
)
def test_a_factory_that_does_not_fit(tmp_path: Path, factory: object, words: str) -> None:
    run = recorded(rnn(), tmp_path / "run", steps=3)
    with pytest.raises(steadyrun.UsageError, match=words):
        steadyrun.replay(run, factory)  # type: ignore[arg-type]


def test_a_suggested_factory_is_never_imported(tmp_path: Path) -> None:
    """The manifest may name one; only the tutor's own, which ships with steadyrun, is used unasked."""
    import sys

    loop = rnn(watch={"factory": "antigravity:task"})
    loop.run(tmp_path / "run", 2)
    with steadyrun.record(tmp_path / "run") as run:
        loop.watch = {}
        run.watch(loop.task.model, loop.task.optimizer, loss_fn=loop.task.loss_fn, factory="antigravity:task")
        loop.one(run, 2)
        run.incident("x")
    with pytest.raises(steadyrun.UsageError, match="The run suggests 'antigravity:task': use it if you trust the run"):
        steadyrun.replay(tmp_path / "run")
    assert "antigravity" not in sys.modules
