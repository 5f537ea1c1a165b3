"""`run.rollback()`: back to the last good state, on with the next batches, and the seam on record."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import incident_programs as programs
import pytest
import torch
from incident_programs import cnn_task, rnn_task
from torch import Tensor

import steadyrun
from steadyrun.capture import checkpoint_pace
from steadyrun.capture.checkpoints import MOST
from steadyrun.capture.writer_thread import Worker
from steadyrun.program import tensor_files
from steadyrun.replay.incident import choose, incidents_of
from steadyrun.tutor.config import declared
from steadyrun.tutor.data import Data
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.train import start, watch


def with_nan(batches: Any, at: Callable[[int], bool]) -> Any:
    """The batches, some of them with a NaN in their images."""
    for number, batch in enumerate(batches):
        yield [batch[0] * math.nan, *batch[1:]] if at(number) else batch


class Guarded:
    """The loop that a user writes: a loss that is not finite is never stepped on."""

    def __init__(self, task: steadyrun.Task, batches: Any) -> None:
        self.task, self.batches = task, batches
        self.returned: list[int] = []
        self.after: list[dict[str, Tensor]] = []

    def train(self, run: steadyrun.Run, count: int) -> None:
        task = self.task
        for _ in range(count):
            batch = next(self.batches)
            loss = task.loss_fn(task.model, batch)
            if not torch.isfinite(loss):
                self.returned.append(run.rollback())
                self.after.append({name: tensor.clone() for name, tensor in task.model.state_dict().items()})
                continue
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
            if task.scheduler is not None:
                task.scheduler.step()
            run.step(loss, batch=batch)


@pytest.fixture(autouse=True)
def _copies_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a copy or a disk may take long, and the next one then comes later than asked for."""
    monkeypatch.setattr(checkpoint_pace, "_FREE", math.inf)
    monkeypatch.setattr(Worker, "busy", property(lambda worker: bool(worker.wait())))


def watched(run: steadyrun.Run, task: steadyrun.Task, **capture: int) -> None:
    run.watch(task.model, task.optimizer, scheduler=task.scheduler, loss_fn=task.loss_fn, capture=capture or True)


def guarded(path: Path, at: Callable[[int], bool], count: int, every: int = 20) -> Guarded:
    loop = Guarded(cnn_task(), with_nan(programs.images(1), at))
    with steadyrun.record(path) as run:
        watched(run, loop.task, every=every)
        loop.train(run, count)
    return loop


def test_the_state_is_that_of_the_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    loop = Guarded(cnn_task(), with_nan(programs.images(1), lambda number: number == 50))
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task, every=20)
        loop.train(run, 50)
        random = torch.get_rng_state()
        before = [group["lr"] for group in loop.task.optimizer.param_groups]
        loop.train(run, 1)
        (back_to,) = loop.returned
        assert back_to == 40
        content, tensors = tensor_files.load(tmp_path / "run/incidents/rolling/step-0000040")
        for name, parameter in loop.task.model.named_parameters():
            assert torch.equal(parameter, tensors[f"parameters.{name}"])
            assert parameter.grad is None
        for name, buffer in loop.task.model.named_buffers():
            assert torch.equal(buffer, tensors[f"buffers.{name}"])
        momentum = loop.task.optimizer.state_dict()["state"]
        assert all(torch.equal(state["momentum_buffer"], tensors[f"optimizers.0.state.{number}.momentum_buffer"])
                   for number, state in momentum.items())  # fmt: skip
        assert loop.task.scheduler.last_epoch == 40
        assert [group["lr"] for group in loop.task.optimizer.param_groups] != before
        assert not torch.equal(torch.get_rng_state(), random)  # dropout of the step that was given up
        random = torch.get_rng_state()
        run.rollback()
        assert torch.equal(torch.get_rng_state(), random)
    assert content["step"] == 40


def test_the_seam_is_on_record(tmp_path: Path) -> None:
    guarded(tmp_path / "run", lambda number: number == 50, 90)
    view = steadyrun.open_run(tmp_path / "run")
    (event,) = view.events("rollback")
    assert event.step == 51
    assert {name: event.fields[name] for name in ("from_step", "to_step", "skipped_batches")} == {
        "from_step": 50,
        "to_step": 40,
        "skipped_batches": 11,
    }
    assert event.fields["why"] == "back to the state before step 40; 11 batches are skipped, and step 51 is next"
    loss = view.series("loss")
    assert loss.steps.tolist() == [*range(50), *range(51, 90)]
    assert all(map(math.isfinite, loss.values))
    assert view.series("batch_index").values.tolist() == loss.steps.tolist()
    assert set(view.series("backwards").values) == {1.0}
    assert view.events("probe-failed") == []


def test_the_step_that_was_given_up_can_be_replayed(tmp_path: Path) -> None:
    guarded(tmp_path / "run", lambda number: number == 50, 90)
    (incident,) = incidents_of(tmp_path / "run")
    assert (incident.step, incident.kind, incident.missing) == (50, "rollback", "")
    assert incident.steps[-1] == 50
    result = steadyrun.replay(tmp_path / "run", cnn_task)
    assert result.proof.verdict == "bit-equal"
    assert result.first_bad == 50


def test_a_moment_after_the_seam_is_replayed_from_the_seam(tmp_path: Path) -> None:
    loop = Guarded(cnn_task(), with_nan(programs.images(1), lambda number: number == 50))
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task, every=20)
        loop.train(run, 60)
        run.incident("soon after")
        loop.train(run, 30)
    incident = choose(tmp_path / "run", 59)
    assert incident.first_step == 51
    assert steadyrun.replay(tmp_path / "run", cnn_task, step=59).proof.verdict == "bit-equal"


def test_a_moment_before_the_seam_that_is_noticed_after_it_ends_there(tmp_path: Path) -> None:
    loop = Guarded(cnn_task(), with_nan(programs.images(1), lambda number: number == 50))
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task, every=20, incidents=8)
        loop.train(run, 70)
        run._flusher.capture.open("asked", "noticed late", 45)  # type: ignore[union-attr]
        loop.train(run, 30)
    incident = choose(tmp_path / "run", 45)
    assert (incident.missing, incident.steps[-1]) == ("", 50)
    assert steadyrun.replay(tmp_path / "run", cnn_task, step=45).proof.verdict == "bit-equal"


def test_training_goes_on_as_well_as_without_the_bad_batch(tmp_path: Path) -> None:
    ends = []
    for name, spoilt in (("clean", -1), ("bad", 150)):
        task, batches = rnn_task(), programs.sentences(2)
        with steadyrun.record(tmp_path / name) as run:
            watched(run, task, every=50)
            for step in range(400):
                batch = next(batches)
                loss = task.loss_fn(task.model, batch) * (math.nan if step == spoilt else 1.0)
                if not torch.isfinite(loss):
                    run.rollback()
                    continue
                loss.backward()
                task.optimizer.step()
                task.optimizer.zero_grad()
                run.step(loss, batch=batch)
        ends.append(float(steadyrun.open_run(tmp_path / name).series("loss").values[-20:].mean()))
    assert ends[1] == pytest.approx(ends[0], rel=0.1)


def test_after_a_step_that_broke_the_weights(tmp_path: Path) -> None:
    loop = programs.cnn(watch={"capture": {"every": 20}})
    loop.spoil = lambda now, part: [part[0] * math.nan, part[1]] if now == 50 else part
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task, every=20)
        for step in range(56):
            loop.one(run, step)
        assert not all(parameter.isfinite().all() for parameter in loop.task.model.parameters())
        assert run.rollback() == 40
        assert all(parameter.isfinite().all() for parameter in loop.task.model.parameters())
        loop.one(run, 56)
    view = steadyrun.open_run(tmp_path / "run")
    (event,) = view.events("rollback")
    assert (event.step, event.fields["from_step"], event.fields["skipped_batches"]) == (56, 55, 16)
    assert math.isfinite(view.series("loss").values[-1])
    assert [incident.kind for incident in incidents_of(tmp_path / "run")] == ["non-finite"]


def test_an_older_checkpoint_can_be_asked_for(tmp_path: Path) -> None:
    loop = Guarded(cnn_task(), programs.images(1))
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task, every=20)
        loop.train(run, 50)
        assert run.rollback(before=39) == 20
        with pytest.raises(steadyrun.UsageError, match="no good checkpoint of a step up to 10"):
            run.rollback(before=10)


def test_it_does_not_go_back_for_ever(tmp_path: Path) -> None:
    loop = Guarded(cnn_task(), with_nan(programs.images(1), lambda number: number >= 50))
    with (
        pytest.raises(steadyrun.UsageError, match=r"3 times to each of its good checkpoints \(before steps 20, 40\)"),
        steadyrun.record(tmp_path / "run") as run,
    ):
        watched(run, loop.task, every=20)
        loop.train(run, 1000)
    assert len(loop.returned) == 2 * MOST
    assert len({tuple(state["head.bias"].tolist()) for state in loop.after[:MOST]}) == 1
    assert len({tuple(state["head.bias"].tolist()) for state in loop.after}) == 2
    assert len(steadyrun.open_run(tmp_path / "run").events("rollback")) == 2 * MOST


def test_now_and_then_a_bad_batch_is_no_end(tmp_path: Path) -> None:
    loop = guarded(tmp_path / "run", lambda number: number % 50 == 49, 400)
    assert len(loop.returned) == 8
    assert len(incidents_of(tmp_path / "run")) <= 4


def test_without_capture_it_says_what_is_needed(tmp_path: Path) -> None:
    task = cnn_task()
    with steadyrun.record(tmp_path / "run") as run:
        with pytest.raises(steadyrun.UsageError, match=r"run\.watch\(model, optimizer, loss_fn=…\) before training"):
            run.rollback()
        watched(run, task)
        with pytest.raises(steadyrun.UsageError, match="no good checkpoint"):
            run.rollback()
    with pytest.raises(steadyrun.UsageError, match="is closed"):
        run.rollback()


def test_where_capture_has_failed_there_is_no_way_back(tmp_path: Path) -> None:
    loop = Guarded(cnn_task(), programs.images(1))
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task)
        loop.train(run, 5)
        run._problems.report("incident capture", ValueError("broken"))
        with pytest.raises(steadyrun.UsageError, match="incident capture has failed"):
            run.rollback()


def test_objects_that_were_replaced_do_not_get_the_state_of_others(tmp_path: Path) -> None:
    loop = Guarded(cnn_task(), programs.images(1))
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task, every=20)
        loop.train(run, 30)
        loop.task = rnn_task()
        watched(run, loop.task, every=20)
        with pytest.raises(steadyrun.UsageError, match="no good checkpoint"):
            run.rollback()


def test_a_run_that_went_back_is_resumed_after_its_last_step(tmp_path: Path) -> None:
    loop = guarded(tmp_path / "run", lambda number: number == 50, 90)
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task)
        loop.train(run, 5)
    assert steadyrun.open_run(tmp_path / "run").last_step() == 94


def tutor(path: Path, bad: set[int], steps: int = 400) -> steadyrun.Report:
    """A healthy tutor in a loop with a guard, some of its losses NaN."""
    recipe = load_recipe(seed=1, steps=steps)
    data: Data = recipe.load_data(recipe.config)
    torch.manual_seed(1)
    state, order = start(recipe), recipe.batch_order(data, recipe.config)
    with steadyrun.record(path, config=declared(recipe.config, data.baseline_loss())) as run:
        watch(run, recipe, state, data)
        for step in range(steps):
            batch = data.train_batch(next(order))
            loss = recipe.loss(state.model, batch) * (math.nan if step in bad else 1.0)
            if not torch.isfinite(loss):
                run.rollback()
                continue
            loss.backward()  # type: ignore[no-untyped-call]
            recipe.update(state)
            recipe.advance(state)
            run.step(loss, batch=batch)
            if (step + 1) % 100 == 0:
                run.val(recipe.loss(state.model, data.val_batch()).detach(), batches=[data.val_batch()])
    return steadyrun.check(path, everything=True)


@pytest.mark.parametrize(
    "bad", [*(pytest.param({step}, marks=pytest.mark.slow) for step in (50, 150, 290)), {60, 260, 261}], ids=str
)
def test_the_check_finds_nothing_strange(tmp_path: Path, bad: set[int]) -> None:
    """Back to step 0 in the warmup and after it, back in the decay, and several times."""
    report = tutor(tmp_path / "run", bad)
    answers = {asked.question.code: asked.answer for asked in report.walk.path}
    assert [(code, answer.message) for code, answer in answers.items() if answer.kind == "fault"] == []
    assert (answers["C2.1"].kind, answers["C2.2"].kind, answers["C6.2"].kind) == ("pass", "pass", "pass")
    assert "optimizer-begins-again" not in {answer.outcome for answer in answers.values()}
    assert report.verdict == "healthy"
    assert steadyrun.open_run(tmp_path / "run").events("fault") == []
