"""Forwarding to an object of one's own: what arrives, and that nothing it does reaches the training loop."""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from servers import eventually

import steadyrun
from steadyrun.forwarding import sink
from steadyrun.records import Event


class Kept:
    """A tracker that keeps what it is sent."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.found: list[Event] = []
        self.closed = 0

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.rows.append((step, dict(values)))

    def finding(self, event: Event) -> None:
        self.found.append(event)

    def close(self) -> None:
        self.closed += 1

    def series(self, name: str) -> list[tuple[int, float]]:
        return [(step, values[name]) for step, values in self.rows if name in values]


def test_every_scalar_and_finding_arrives(tmp_path: Path) -> None:
    kept = Kept()
    with steadyrun.record(tmp_path / "run", flush_steps=7, forward=kept) as run:
        for step in range(50):
            run.step(1.0 / (step + 1), batch=np.full((2, 3), step))
            run.log(extra=float(step))
            if step == 30:
                run.val(0.5, accuracy=0.25)
                run.log(late=1.0)  # a new column: a new segment
        run.note("a remark")
        run.incident("look at this")
    view = steadyrun.open_run(tmp_path / "run")
    for name in ("loss", "extra", "late", "val_loss", "accuracy", "step_time"):
        series = view.series(name)
        assert kept.series(name) == list(zip(series.steps.tolist(), series.values.tolist(), strict=True)), name
    assert [event.kind for event in kept.found] == ["note", "incident"]
    assert kept.closed == 1
    assert not view.events("forward-failed")


def test_hashes_are_left_out_and_steps_thinned_as_asked(tmp_path: Path) -> None:
    plain, chosen = Kept(), Kept()
    asked = steadyrun.Forward([chosen], every=10, leave_out=("step_time", "own/*"))
    for tracker, forward in ((plain, plain), (chosen, asked)):
        with steadyrun.record(tmp_path / str(id(tracker)), forward=forward) as run:
            for step in range(25):
                run.step(1.0, batch=np.full((2, 3), step))
                run.log(**{"own/a": 1.0, "b": 2.0})
    names = {name for _, values in plain.rows for name in values}
    assert {"loss", "step_time", "own/a", "b"} <= names
    assert not {name for name in names if "hash" in name}
    assert [step for step, _ in chosen.series("loss")] == [0, 10, 20]
    assert len(chosen.series("b")) == 25
    assert "batch_hash" in {name for _, values in chosen.rows for name in values}
    assert not chosen.series("own/a")
    assert not chosen.series("step_time")


def test_what_is_not_finite_arrives_as_it_is(tmp_path: Path) -> None:
    kept = Kept()
    with steadyrun.record(tmp_path, forward=kept) as run:
        for loss in (1.0, math.nan, math.inf, -math.inf):
            run.log(loss=loss)
        run.val(math.nan)
    assert [str(value) for _, value in kept.series("loss")] == ["1.0", "nan", "inf", "-inf"]
    assert math.isnan(kept.series("val_loss")[0][1])


def test_points_arrive_while_the_run_goes_on(tmp_path: Path) -> None:
    kept = Kept()
    with steadyrun.record(tmp_path, flush_steps=1, forward=kept) as run:
        run.log(loss=1.0)
        eventually(lambda: kept.series("loss"))
        run.note("here")
        eventually(lambda: kept.found)
        run.log(loss=0.5)
    assert kept.series("loss") == [(0, 1.0), (1, 0.5)]


def test_a_batch_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    from steadyrun.store.tail import RowTail

    run = steadyrun.record(tmp_path, flush_steps=1)
    run.log(loss=1.0)
    (segment,) = (tmp_path / "metrics/rank-00000").glob("*.arrow")
    first = segment.stat().st_size
    run.log(loss=2.0)
    whole = segment.read_bytes()
    run.close()
    copy = tmp_path / "copy"
    (copy / "metrics/rank-00000").mkdir(parents=True)
    target = copy / "metrics/rank-00000" / segment.name
    tail = RowTail(copy, 1, lambda _: True)
    losses = []
    for end in (first - 9, first, first + 40, len(whole) - 1, len(whole)):
        target.write_bytes(whole[:end])
        losses.append([row.values["loss"] for row in tail.new()])
    assert losses == [[], [1.0], [], [], [2.0]]


class Failing(Kept):
    """Raises whenever it is to."""

    def __init__(self, fails: Callable[[int], bool], problem: BaseException | None = None) -> None:
        super().__init__()
        self._fails, self._calls = fails, 0
        self._problem = problem or ConnectionError("https://me:secret@example.org/x is gone")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._calls += 1
        if self._fails(self._calls):
            raise self._problem
        super().scalars(step, values)


def test_what_failed_is_sent_again_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_AGAIN", 0.01)
    kept = Failing(lambda call: call % 3 == 0)
    with steadyrun.record(tmp_path, forward=kept) as run:
        for _ in range(20):
            run.log(loss=1.0)
    assert [step for step, _ in kept.series("loss")] == list(range(20))
    said = capsys.readouterr().err
    assert said.count("forwarding") + said.count("your Failing") == 1
    assert "secret" not in said
    (trouble,) = steadyrun.open_run(tmp_path).events("forward-trouble")
    assert "secret" not in str(trouble)
    assert not steadyrun.open_run(tmp_path).events("forward-failed")


@pytest.mark.parametrize("problem", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_a_tracker_that_always_raises_is_given_up_at_the_end(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    problem: BaseException,
) -> None:
    monkeypatch.setattr(sink, "_AGAIN", 0.01)
    broken, kept = Failing(lambda _: True, problem), Kept()
    with steadyrun.record(tmp_path, forward=[broken, kept]) as run:
        for _ in range(20):
            run.log(loss=1.0)
    assert len(kept.series("loss")) == 20
    view = steadyrun.open_run(tmp_path)
    (event,) = view.events("forward-failed")
    assert type(problem).__name__ in event.fields["why"]
    assert capsys.readouterr().err.count(" stopped: ") == 1
    assert len(view.series("loss")) == 20
    assert view.state == "finished"


class Hanging(Kept):
    """Never comes back."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where, self.reached, self.go_on = where, threading.Event(), threading.Event()

    def _hang(self, where: str) -> None:
        if where == self._where:
            self.reached.set()
            self.go_on.wait()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._hang("scalars")
        super().scalars(step, values)

    def close(self) -> None:
        self._hang("close")
        super().close()


@pytest.mark.parametrize("where", ["scalars", "close"])
def test_a_tracker_that_hangs_is_left_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str) -> None:
    hanging, kept = Hanging(where), Kept()
    forward = steadyrun.Forward([hanging, kept], wait=0.5)
    with steadyrun.record(tmp_path, flush_steps=1, forward=forward) as run:
        run.log(loss=1.0)
        if where == "scalars":
            assert hanging.reached.wait(30)
        for _ in range(500):
            run.log(loss=2.0)
        eventually(lambda: len(kept.series("loss")) == 501)  # the other one is not held up
    view = steadyrun.open_run(tmp_path)
    assert view.state == "finished"
    assert len(view.series("loss")) == 501
    assert list((tmp_path / "metrics/rank-00000").glob("*.parquet"))
    (event,) = view.events("forward-failed")
    assert "0.5 s after the end" in event.fields["why"]
    assert capsys.readouterr().err.count(" stopped: ") == 1
    hanging.go_on.set()
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("steadyrun-to-")])
    assert len(hanging.rows) <= (1 if where == "scalars" else 501)  # it is left alone, and does no more


def test_a_process_with_a_hanging_tracker_ends(tmp_path: Path) -> None:
    program = """
import steadyrun, sys, threading
class Hanging:
    def scalars(self, step, values): threading.Event().wait()
    def finding(self, event): pass
run = steadyrun.record(sys.argv[1], forward=steadyrun.Forward(Hanging(), wait=0.2))
run.log(loss=1.0)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert " stopped: " in done.stderr
    assert steadyrun.open_run(tmp_path).state == "finished"


def test_training_is_bit_equal(tmp_path: Path) -> None:
    def train(forward: Any) -> tuple[list[float], torch.Tensor, Any, Any]:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        with steadyrun.record(tmp_path / str(len(list(tmp_path.iterdir()))), flush_steps=2, forward=forward) as run:
            run.watch(model, optimizer)
            for _ in range(60):
                batch = torch.randn(4, 8) * random.random() * np.random.rand()
                loss = model(batch).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss, batch=batch)
                losses.append(loss.item())
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        return losses, weights, torch.get_rng_state().tolist(), (random.getstate(), np.random.get_state()[1].tolist())

    bare = train(None)
    for forward in (Kept(), Failing(lambda call: call % 2 == 1)):
        sent = train(forward)
        assert sent[0] == bare[0]
        assert torch.equal(sent[1], bare[1])
        assert sent[2:] == bare[2:]
        assert forward.series("loss")


def test_a_fork_sends_nothing_twice(tmp_path: Path) -> None:
    program = """
import os, sys, steadyrun
class Printing:
    def scalars(self, step, values): os.write(1, f"{step} {os.getpid()}\\n".encode())
    def finding(self, event): pass
with steadyrun.record(sys.argv[1], flush_steps=1, forward=Printing()) as run:
    for step in range(20):
        run.log(loss=1.0)
        if step == 10 and os.fork() == 0:
            run.log(loss=2.0)
            sys.exit(0)
    os.wait()
"""
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [int(step) for step, _ in lines] == list(range(20))
    assert len({process for _, process in lines}) == 1


def test_only_the_first_rank_forwards(tmp_path: Path) -> None:
    trackers = [Kept(), Kept()]
    runs = [steadyrun.record(tmp_path, rank=rank, forward=trackers[rank]) for rank in (0, 1)]
    for run in runs:
        run.log(loss=1.0)
    for run in runs:
        run.close()
    assert len(trackers[0].series("loss")) == 1
    assert trackers[1].rows == []


def test_a_resumed_run_sends_what_is_new(tmp_path: Path) -> None:
    first, second = Kept(), Kept()
    for tracker, start in ((first, None), (second, 3)):
        with steadyrun.record(tmp_path, first_step=start, forward=tracker) as run:
            for _ in range(5):
                run.log(loss=1.0)
            run.note(f"from {start}")
    assert [step for step, _ in second.series("loss")] == [3, 4, 5, 6, 7]
    assert [event.fields["message"] for event in second.found] == ["from 3"]


def test_a_crash_is_sent(tmp_path: Path) -> None:
    kept = Kept()

    def crash() -> None:
        with steadyrun.record(tmp_path, forward=kept) as run:
            run.log(loss=1.0)
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        crash()
    (event,) = kept.found
    assert (event.kind, event.fields["why"]) == ("crash", "RuntimeError: boom")


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        ("nothing", "unknown tracker 'nothing'; use tensorboard, wandb, mlflow"),
        ([3], "int lacks the methods scalars"),
        (object(), "object lacks the methods scalars"),
        (steadyrun.Forward([], every=0), "every must be"),
        (steadyrun.Forward([], wait=-1), "wait must be"),
        (steadyrun.Forward([], leave_out="loss"), "leave_out must be"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_written(tmp_path: Path, forward: Any, says: str) -> None:
    with pytest.raises(steadyrun.UsageError, match=says):
        steadyrun.record(tmp_path / "run", forward=forward)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        ({"forward": "tensorboard"}, "tensorboard", "tensorboard"),
        ({"forward": ["wandb"]}, "wandb", "wandb"),
        ({"forward": "mlflow:name"}, "mlflow", "mlflow"),
        ({"alert": "json://localhost"}, "apprise", "alerts"),
    ],
)
def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], package: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(steadyrun.UsageError, match=rf"pip install 'steadyrun\[{extra}\]'"):
        steadyrun.record(tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_recording_without_it_imports_nothing_of_it() -> None:
    program = """
import sys, tempfile, steadyrun
with steadyrun.record(tempfile.mkdtemp()) as run:
    run.log(loss=1.0)
assert not [name for name in sys.modules if name.startswith("steadyrun.forwarding")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_the_pages_examples_run(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent.parent / "docs/forwarding.md").read_text()
    _, options, own = re.findall(r"```python\n(.*?)```", page, re.DOTALL)  # the first needs TensorBoard
    changed: Any = eval(options, {"steadyrun": steadyrun})
    assert (changed.every, changed.wait) == (10, 30.0)
    done = subprocess.run([sys.executable, "-c", own], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["note a remark", "0 ['loss']"], done.stderr
