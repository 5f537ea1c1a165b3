"""The list of runs: what each row says, when it is known, and that many runs are no trouble."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import ODD_RUNS
from servers import eventually
from starlette.testclient import TestClient

import steadyrun
from steadyrun.live import run_list, run_row
from steadyrun.live.app import Live, application
from steadyrun.records import Series
from steadyrun.store.discover import Root, RunPlace


def made(path: Path, *losses: float) -> None:
    with steadyrun.record(path) as run:
        for loss in losses:
            run.log(loss=loss)


def listed(browser: TestClient) -> dict[str, Any]:
    return {row["name"]: row for row in browser.get("/api/runs").json()["rows"]}


def client(root: Path) -> TestClient:
    return TestClient(application(Live(root, {})), base_url="http://localhost")


def test_rows_fill_up_and_the_newest_is_first(tmp_path: Path) -> None:
    made(tmp_path / "old", 3.0, 2.0, 1.5)
    made(tmp_path / "sub/new", 3.0, float("nan"))
    with client(tmp_path) as browser:
        rows = eventually(lambda: all(row["verdict"] for row in listed(browser).values()) and listed(browser))
    assert list(rows) == ["sub/new", "old"]
    assert (rows["old"]["step"], rows["old"]["loss"], rows["old"]["state"]) == (2, "1.5", "finished")
    assert (rows["sub/new"]["loss"], rows["sub/new"]["ends_badly"]) == ("nan", True)
    assert rows["old"]["line"].count(",") == 3


def test_the_recorded_verdict_needs_no_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "run", 1.0)
    log = tmp_path / "run/events/rank-00000.jsonl"
    with log.open("a") as file:
        file.write('{"kind": "verdict", "step": 0, "time": 1, "verdict": "fault", "leaf": "D1.3"}\n')
    monkeypatch.setattr(run_row, "check_with", lambda *_: pytest.fail("walked"))
    with client(tmp_path) as browser:
        listed_row = eventually(lambda: (row := listed(browser)["run"])["verdict"] and row)
    assert (listed_row["verdict"], listed_row["leaf"]) == ("fault", "D1.3")


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "verdict", "step": 0, "time": 1, "verdict": "<b>", "leaf": "x"}\n',
        '{"kind": "verdict", "step": 0, "time": 1, "verdict": "fault", "leaf": "D1"}\n'
        '{"kind": "resume", "step": 1, "time": 1, "attempt": 2}\n',
    ],
)
def test_a_verdict_that_is_none_or_old_is_not_taken(tmp_path: Path, line: str) -> None:
    made(tmp_path / "run", 1.0)
    with (tmp_path / "run/events/rank-00000.jsonl").open("a") as file:
        file.write(line)
    assert run_row.detailed(Root(tmp_path).runs()[0]).verdict == ""


def test_runs_come_change_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_list, "_SCAN", 0.1)
    with client(tmp_path) as browser:
        assert listed(browser) == {}
        run = steadyrun.record(tmp_path / "run", flush_steps=1)
        run.log(loss=2.0)
        eventually(lambda: listed(browser).get("run", {}).get("loss") == "2")
        assert listed(browser)["run"]["state"] == "running"
        run.log(loss=1.0)
        eventually(lambda: listed(browser)["run"]["loss"] == "1")
        run.close()
        eventually(lambda: listed(browser)["run"]["state"] == "finished")
        shutil.rmtree(tmp_path / "run")
        eventually(lambda: listed(browser) == {})


def test_one_broken_run_hides_no_other(tmp_path: Path) -> None:
    made(tmp_path / "good", 1.0)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/manifest.json").write_text("{")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer/manifest.json").write_text('{"schema": 99}')
    with client(tmp_path) as browser:
        rows = eventually(lambda: (known := listed(browser))["good"]["loss"] and known)
    assert {name: row["state"] for name, row in rows.items()} == {
        "good": "finished",
        "bad": "unreadable",
        "newer": "unreadable",
    }


@pytest.mark.parametrize("make", ODD_RUNS.values(), ids=ODD_RUNS)
def test_one_strange_run_hides_no_other(tmp_path: Path, make: Callable[[Path], None]) -> None:
    made(tmp_path / "good", 1.0)
    made(tmp_path / "odd", 1.0)
    make(tmp_path / "odd")
    with client(tmp_path) as browser:
        rows = eventually(lambda: (known := listed(browser))["good"]["loss"] and known)
        figures = browser.get("/metrics")
    assert set(rows) == {"good", "odd"}
    assert figures.status_code == 200
    assert 'run="good"' in figures.text


def test_an_error_that_nobody_expected_is_that_run_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "good", 1.0)
    made(tmp_path / "odd", 1.0)
    first = run_row.first

    def broken(run: RunPlace) -> run_row.RunRow:
        if run.name == "odd":
            raise RecursionError
        return first(run)

    monkeypatch.setattr(run_row, "first", broken)
    with client(tmp_path) as browser:
        rows = eventually(lambda: (known := listed(browser))["good"]["loss"] and known)
    assert rows["odd"]["state"] == "unreadable"


def test_five_hundred_runs_are_listed(tmp_path: Path) -> None:
    made(tmp_path / "run-0", 3.0, 2.0)
    for number in range(1, 500):
        shutil.copytree(tmp_path / "run-0", tmp_path / f"group-{number % 7}" / f"run-{number}")
    with client(tmp_path) as browser:
        assert len(listed(browser)) == 500
        eventually(lambda: all(row["loss"] for row in listed(browser).values()))


@pytest.mark.parametrize("values", [[], [1.0], [float("nan")] * 3, [1.0, 1.0], [1e-300, 1e300], [-1.0, 2.0]])
def test_small_lines_of_odd_series(values: list[float]) -> None:
    line = run_row.small_line(Series("loss", np.arange(len(values)), np.array(values), np.zeros(len(values))))
    numbers = [float(part) for point in line.split() for part in point.split(",")]
    assert all(0 <= number <= run_row.WIDTH for number in numbers)
    assert len(numbers) == (4 if len(values) == 2 else 0)
