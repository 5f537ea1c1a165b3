"""A run whose numbers are known, and everything that reads it."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rows import new_writer

import steadyrun
from steadyrun.errors import SteadyrunError
from steadyrun.store.reader import RunReader, open_run

STEPS = 60
EVENTS, MANIFEST = "events/rank-00000.jsonl", "manifest.json"
PARQUET, SEGMENT = "metrics/rank-00000/steps-001.parquet", "metrics/rank-00000/steps-001-00000.arrow"
Points = list[tuple[int, float, float]]


def write_run(root: Path, *, close: bool) -> Path:
    writer = new_writer(root)
    writer.event("start", 0, attempt=1)
    for step in range(STEPS):
        writer.append("steps", step, {"loss": math.sin(step), "lr": 0.1 if step % 7 else None}, step + 0.5)
        if step % 20 == 19:
            writer.flush()
            writer.event("validation", step, values={"val_loss": 1 + step / 100})
    if close:
        writer.save_manifest(state="finished")
        writer.close()
    return root


def copied(run: Path, to: Path) -> Path:
    return shutil.copytree(run, to / "copy")


def everything(view: RunReader) -> dict[str, Points]:
    all_series = {name: view.series(name) for name in view.names()}
    return {
        name: list(zip(series.steps.tolist(), series.values.tolist(), series.times.tolist(), strict=True))
        for name, series in all_series.items()
    }


TIMELESS = {"val_loss": [(step, 1 + step / 100) for step in (19, 39, 59)]}


def truth() -> dict[str, Points]:
    whole = [(step, math.sin(step), step + 0.5) for step in range(STEPS)]
    return {"loss": whole, "lr": [(step, 0.1, at) for step, _, at in whole if step % 7]}


def assert_true_or_said(root: Path) -> list[str]:
    """No number is wrong; where one is missing, something is said to be lost."""
    view = open_run(root).as_of_now()
    read = everything(view)
    expected = truth() | {"val_loss": read.get("val_loss", [])}
    assert {name for name in read if name not in expected} == set()
    assert all(set(points) <= set(expected[name]) for name, points in read.items())
    validated = [(step, value) for step, value, _ in read.get("val_loss", [])]
    assert set(validated) <= set(TIMELESS["val_loss"])
    said = [str(drop) for drop in view.dropped]
    complete = read == expected and validated == TIMELESS["val_loss"]
    assert complete or said
    return said


def promptly(work: Callable[[], Any]) -> Any:
    """What the work gives; a reader that waits at a pipe for ever fails here."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as problem:
            result.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert result, "it hangs"
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


def read_all(root: Path) -> list[str]:
    """What every reader says is lost, or the words of a refusal; anything else that is raised is a failure."""

    def work() -> list[str]:
        try:
            view = open_run(root)
            view.verify()
            str(view)
            steadyrun.check(root)
        except SteadyrunError as problem:
            return [str(problem)]
        return [str(drop) for drop in view.dropped]

    said: list[str] = promptly(work)
    return said
