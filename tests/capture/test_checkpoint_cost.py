"""What a checkpoint may cost: estimated before it is taken, thinned or left out, and never half of two moments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import steadyrun
from steadyrun.capture import capture as capturing
from steadyrun.capture import checkpoint_pace, staging
from steadyrun.capture.batch_ring import Ring
from steadyrun.capture.capture_options import settings_from
from steadyrun.capture.checkpoint_pace import Checkpointing
from steadyrun.capture.staging import Beside, Overlap, Staging
from steadyrun.capture.writer_thread import Worker
from steadyrun.probes.problems import Problems
from steadyrun.program import snapshot, tensor_files
from steadyrun.program.snapshot import Objects


def objects(width: int = 64, optimizer: type = torch.optim.AdamW, **options: Any) -> Objects:
    model = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.Linear(width, 3))
    return Objects(model, [optimizer(model.parameters(), lr=0.01, **options)])


def one_step(program: Objects, width: int = 64) -> None:
    program.model(torch.randn(8, width)).square().mean().backward()
    program.optimizers[0].step()


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9}),
    ],
)
def test_the_moments_to_come_are_counted_before_the_first_step(optimizer: type, options: dict[str, Any]) -> None:
    program = objects(optimizer=optimizer, **options)
    expected = snapshot.refer(program).nbytes + snapshot.bytes_to_come(program)
    one_step(program)
    assert snapshot.bytes_to_come(program) == 0
    assert expected == pytest.approx(snapshot.refer(program).nbytes, rel=0.02)


def said() -> tuple[Problems, dict[str, str]]:
    events: dict[str, str] = {}
    return Problems(lambda _, **fields: events.__setitem__(fields["probe"], fields["why"])), events


def never(_: Callable[[], None]) -> None:
    raise AssertionError("nothing is left for later")


def test_a_state_that_will_be_too_large_is_not_copied_even_once() -> None:
    problems, events = said()
    program = objects(256)
    limit = 2 * snapshot.refer(program).nbytes  # enough for the parameters, too little with their moments
    pace = Checkpointing(settings_from({"checkpoint_bytes": limit}), problems)  # type: ignore[arg-type]
    assert pace.take(0, program, Ring(1000), never) is None
    assert pace._pool.empty
    assert "more than capture's checkpoint_bytes allows" in events["rolling checkpoints"]
    assert 'capture={"checkpoint_bytes": ' in events["rolling checkpoints"]
    assert not pace.due(200, Ring(1000))


def test_a_state_that_grew_is_looked_at_again() -> None:
    problems, events = said()
    program = objects(256, torch.optim.Adagrad, initial_accumulator_value=0.1)
    pace = Checkpointing(settings_from({"checkpoint_bytes": 10**6}), problems)  # type: ignore[arg-type]
    assert pace.take(0, program, Ring(1000), never) is not None
    program.model.register_buffer("more", torch.zeros(10**6))
    assert pace.take(200, program, Ring(1000), never) is None
    assert "rolling checkpoints" in events


def test_an_expensive_copy_comes_more_rarely_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_pace, "_MEMORY_SPEED", 1e5)
    problems, events = said()
    pace, ring = Checkpointing(settings_from(None), problems), Ring(10**9)  # type: ignore[arg-type]
    pace.take(0, objects(), ring, never)
    for step in range(1, 40):
        pace.due(step, ring)
    assert not pace.due(200, ring)
    assert any("only every" in why for why in events.values())


def test_slabs_hold_everything_and_one_is_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "SLAB", 4096)
    shapes = [(3,), (), (0, 4), (1000,), (31, 33), (500,), (7, 7), (2000,)]
    dtypes = [torch.float32, torch.int64, torch.float32, torch.bfloat16, torch.float32, torch.float64, torch.bool]
    tensors = {
        f"parameters.{index}": torch.randn(shape).to(dtypes[index % len(dtypes)]) for index, shape in enumerate(shapes)
    }
    memory, rounds = Staging(pin=False), 0
    while wanted := memory.lacking(tensors):
        memory.make(wanted)
        rounds += 1
        assert len(memory.lacking(tensors)) < len(wanted)
    assert rounds > 2
    kept, beside = memory.copies(tensors)
    assert not beside.events
    assert all(torch.equal(kept[name], tensor) for name, tensor in tensors.items())
    ends = sorted((buffer.data_ptr(), buffer.data_ptr() + buffer.nbytes) for buffer in kept.values() if buffer.numel())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
    assert memory.lacking({"parameters.0": torch.zeros(4)})


class SlowBus(Staging):
    """A device that copies a megabyte a second, without a device."""

    def __init__(self) -> None:
        super().__init__(pin=False)
        self.measured = 0

    def measure(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.measured += len(self.lacking(tensors)) < len(tensors)  # there is memory for some of it

    def speed(self) -> float | None:
        return 1e6 if self.measured else None


def test_a_slow_bus_is_known_before_all_memory_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_pace, "Staging", SlowBus)
    monkeypatch.setattr(checkpoint_pace, "_AT_ONCE", 0)
    monkeypatch.setattr(staging, "SLAB", 2**16)
    problems, events = said()
    program = objects(256)
    pace, ring = Checkpointing(settings_from(None), problems), Ring(10**9)  # type: ignore[arg-type]
    later: list[Callable[[], None]] = []
    made: Staging | None = None
    for step in range(checkpoint_pace._WARMING + 1):
        pace.due(step, ring)
        pace._staged(step, snapshot.refer(program), ring, later.append)
        if made is None:  # the writing thread makes one slab, and no more until the end
            made = pace._staging
            later.pop()()
            assert made is not None
            assert 0 < len(made._buffers) < len(snapshot.refer(program).tensors)
    assert "longer than a step" in events["rolling checkpoints"]
    assert pace._staging is None
    later[-1]()
    assert made is not None
    assert not made._buffers


class Event:
    def __init__(self) -> None:
        self.waited = 0

    def wait(self) -> None:
        self.waited += 1


def test_the_optimizer_step_waits_and_then_the_copy_is_written() -> None:
    program, overlap, event, written = objects(), Overlap(), Event(), []
    parameters = list(program.model.parameters())
    overlap.begin(Beside([event], parameters), lambda: written.append(event.waited))
    program.model(torch.randn(8, 64)).square().mean().backward()
    assert not event.waited
    program.optimizers[0].step()
    assert written == [1]
    assert overlap.step_ended()
    program.optimizers[0].step()
    assert event.waited == 1


def test_a_copy_of_what_was_changed_meanwhile_is_given_up() -> None:
    program, overlap, event, written = objects(), Overlap(), Event(), []
    parameters = list(program.model.parameters())
    for expected in (True, False):
        overlap.begin(Beside([event], parameters), lambda: written.append(1))
        with torch.no_grad():
            parameters[0].add_(1.0)  # before the optimizer's step: as sharpness-aware optimizers do
        program.optimizers[0].step()
        assert overlap.step_ended() is expected, "copies are made in the stream of the training after the second"
    assert not written


def test_a_step_without_an_optimizer_step_gives_the_copy_up() -> None:
    overlap, event, written = Overlap(), Event(), []
    overlap.begin(Beside([event]), lambda: written.append(1))
    assert overlap.step_ended()
    assert (event.waited, written) == (1, [])
    overlap.begin(Beside([event]), lambda: written.append(1))
    assert not overlap.step_ended()


def test_an_exception_before_the_optimizer_step_keeps_the_copy() -> None:
    overlap, written = Overlap(), []
    overlap.begin(Beside([Event()]), lambda: written.append(1))
    overlap.settle()
    overlap.settle()
    assert written == [1]


def train(root: Path, steps: int = 30) -> None:
    program = objects()
    with steadyrun.record(root) as run:
        run.watch(
            program.model, program.optimizers[0], loss_fn=lambda model, x: model(x).square().mean(), monitor=False
        )
        for _ in range(steps):
            x = torch.randn(8, 64)
            loss = program.model(x).square().mean()
            loss.backward()
            program.optimizers[0].step()
            program.optimizers[0].zero_grad()
            run.step(loss, batch=x)


def test_nothing_large_is_written_when_a_run_ends_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "_SMALL", 1000)
    train(tmp_path / "run")
    kept = sorted(path.name for path in (tmp_path / "run/incidents/rolling").iterdir())
    assert kept == ["step-0000000.json", "step-0000000.safetensors"], "the one that was there already"


def test_closing_does_not_wait_for_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, go_on, begun = tensor_files.save, threading.Event(), threading.Event()

    def slow(base: Path, *given: Any) -> None:
        (base.parent / f".{base.name}.safetensors.1.tmp").touch()
        begun.set()
        go_on.wait(60)
        if not (base.parent / f".{base.name}.safetensors.1.tmp").exists():
            raise FileNotFoundError(base)
        real(base, *given)

    monkeypatch.setattr(tensor_files, "save", slow)
    monkeypatch.setattr(capturing, "_LEAVING", 0.01)
    train(tmp_path / "run")
    assert begun.is_set()
    assert not list((tmp_path / "run/incidents/rolling").iterdir())
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "steadyrun-incidents":
            thread.join(60)
    assert not list((tmp_path / "run/incidents/rolling").iterdir())
    assert not steadyrun.open_run(tmp_path / "run").events("probe-failed")


def test_what_is_owed_is_waited_for() -> None:
    worker, done = Worker(lambda _: None), threading.Event()
    worker.do(lambda: done.wait(60) and None, owed=False)
    assert not worker.owes
    worker.do(lambda: None)
    assert worker.owes
    done.set()
    worker.wait()
    assert not worker.owes
    assert worker.finish(60)
