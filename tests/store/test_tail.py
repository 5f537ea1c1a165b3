"""A run followed while it is written: every look reads what is new, and the same as one who reads the whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyrun
from steadyrun.store import tail
from steadyrun.store.tail import TailView

NAMES = ("loss", "lr/0", "val_loss")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    return steadyrun.record(tmp_path / "run", flush_steps=1)


def same(view: TailView) -> None:
    whole = steadyrun.open_run(view.root)
    assert view.names() == whole.names()
    assert view.last_step() == whole.last_step()
    for name in whole.names():
        mine, theirs = view.series(name), whole.series(name)
        np.testing.assert_array_equal(mine.steps, theirs.steps)
        np.testing.assert_array_equal(mine.values, theirs.values)
        np.testing.assert_array_equal(mine.times, theirs.times)
    assert view.dropped == whole.dropped


def test_every_look_sees_what_is_there(run: Any, tmp_path: Path) -> None:
    run.log(loss=3.0, lr=0.1)
    view = TailView(tmp_path / "run")
    assert view.look()
    same(view)
    assert not view.look()
    for step in range(1, 40):
        run.log(loss=3.0 / step, lr=float("nan"))
        if step == 20:
            run.val(2.0)
            run.log(loss=1.0, wider=5.0)  # a new name begins a new file
        assert view.look()
        same(view)
    run.close()  # segments become Parquet
    assert view.look()
    assert view.state == "finished"
    same(view)


def test_only_what_is_new_is_read(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, read = tail.read_on, []

    def counted(*arguments: Any) -> Any:
        points, position = real(*arguments)
        read.append(len(points.steps))
        return points, position

    monkeypatch.setattr(tail, "read_on", counted)
    view = TailView(tmp_path / "run")
    for step in range(30):
        run.log(loss=float(step))
        view.look()
        assert len(view.series("loss")) == step + 1
        view.series("loss")
    assert read == [1] * 30
    run.close()


def test_a_resumed_run_replaces_the_steps_it_repeats(tmp_path: Path) -> None:
    first = steadyrun.record(tmp_path / "run", flush_steps=1)
    for step in range(10):
        first.log(step=step, loss=1.0)
    view = TailView(tmp_path / "run")
    view.look()
    view.series("loss")
    second = steadyrun.record(tmp_path / "run", flush_steps=1, first_step=5)
    for step in range(5, 8):
        second.log(step=step, loss=2.0)
    assert view.look()
    assert view.series("loss").values.tolist() == [1.0] * 5 + [2.0] * 3
    same(view)
    second.close()


def test_a_batch_half_written_is_read_when_it_is_whole(run: Any, tmp_path: Path) -> None:
    for _ in range(5):
        run.log(loss=1.0)
    (segment,) = (tmp_path / "run" / "metrics" / "rank-00000").glob("log-*.arrow")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-40])
    view = TailView(tmp_path / "run")
    view.look()
    assert len(view.series("loss")) == 4
    assert view.dropped
    segment.write_bytes(whole)
    assert view.look()
    assert len(view.series("loss")) == 5
    assert not view.dropped
    run.close()


def test_series_with_the_same_steps_share_them(run: Any, tmp_path: Path) -> None:
    for _ in range(5):
        run.log(loss=1.0, lr=2.0)
    view = TailView(tmp_path / "run")
    view.look()
    view.series("loss"), view.series("lr/0")
    parts = list(view._parts.values())
    assert parts[0].points.steps is parts[1].points.steps
    run.close()
