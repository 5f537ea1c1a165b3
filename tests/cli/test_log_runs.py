"""Logs that hold several runs: each is judged, listed, and shown by its number."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import steadyrun
from steadyrun.cli import app
from steadyrun.errors import LogError

HEALTHY = [2.0 + 2 * math.exp(-step / 60) + 0.01 * math.sin(step * 1.7) for step in range(200)]
BROKEN = [*HEALTHY[:100], *[math.nan] * 100]


def rows(values: list[float], start: int = 0) -> str:
    return "".join(f"step {start + step} loss {value:.4f}\n" for step, value in enumerate(values))


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text(rows(HEALTHY) + rows(BROKEN) + rows(HEALTHY[:120]))
    return


def typed(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_every_run_is_listed_and_the_worst_decides() -> None:
    result = typed("check", "train.log")
    assert result.exit_code == 1
    first, *lines = result.stdout.splitlines()
    assert first == "train.log: 3 runs: 1 fault, 2 healthy"
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert ["last step 199" in line for line in lines] == [True, True, False]
    assert ["✗ fault: " in line and "(D1.3)" in line for line in lines] == [False, True, False]
    assert "check train.log --run 2" in result.stderr
    assert sorted(Path().iterdir()) == [Path("train.log")]


def test_a_start_that_was_given_up_decides_nothing() -> None:
    """It is listed; the exit code is that of the runs that can be judged, if there are any."""
    Path("train.log").write_text(rows(HEALTHY[:3]) + rows(HEALTHY))
    result = typed("check", "train.log")
    assert result.exit_code == 0
    assert "train.log: 2 runs: 1 cannot-tell, 1 healthy" in result.stdout
    Path("train.log").write_text(rows(HEALTHY[:3]) + rows(BROKEN))
    assert typed("check", "train.log").exit_code == 1


def test_one_run_is_shown_as_if_it_were_alone() -> None:
    Path("second.log").write_text(rows(BROKEN))
    chosen, alone = typed("check", "train.log", "--run", "2", "--json"), typed("check", "second.log", "--json")
    assert (chosen.exit_code, alone.exit_code) == (1, 1)
    assert json.loads(chosen.stdout)["walk"] == json.loads(alone.stdout)["walk"]


def test_json_has_one_object_on_each_line() -> None:
    found = [json.loads(line) for line in typed("check", "train.log", "--json").stdout.splitlines()]
    assert [(each["number"], each["name"][-2:], each["source"]) for each in found] == [
        (1, "-1", "train.log"), (2, "-2", "train.log"), (3, "-3", "train.log"),
    ]  # fmt: skip
    assert found[1]["verdict"] == "fault"


@pytest.mark.parametrize(("arguments", "said"), [
    (["check", "train.log", "--run", "4"], "holds 3 runs, so --run 4 does not exist"),
    (["check", "train.log", "--junit"], "choose it with --run N"),
    (["check", "train.log", "--after", "train.log"], "holds 3 runs: 1 (steps 0 to 199)"),
    (["import", "train.log", "--run", "4"], "has no run 4. It holds 3 runs: 1 (steps 0 to 199), 2"),
])  # fmt: skip
def test_what_needs_one_run_says_so(arguments: list[str], said: str) -> None:
    result = typed(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_import_writes_a_folder_for_each() -> None:
    assert typed("import", "train.log", "--name", "mine").exit_code == 0
    assert sorted(path.name for path in Path("experiments").iterdir()) == ["mine-1", "mine-2", "mine-3"]
    third = steadyrun.open_run("experiments/mine-3")
    assert (len(third.series("loss")), third.manifest["imported"]["run"], third.manifest["imported"]["runs"]) == (
        120,
        3,
        3,
    )
    assert typed("import", "train.log", "--name", "mine").exit_code == 0  # again, in place of the first


def test_import_of_one_of_them() -> None:
    result = typed("import", "train.log", "--run", "2", "--name", "mine", "--json")
    assert result.exit_code == 0
    assert (json.loads(result.stdout)["number"], json.loads(result.stdout)["run"]) == (2, "experiments/mine")
    assert len(steadyrun.open_run("experiments/mine").series("loss")) == 200


def test_nothing_is_written_if_one_place_is_taken() -> None:
    with steadyrun.record("experiments/mine-2") as run:
        run.log(loss=1.0)
    result = typed("import", "train.log", "--name", "mine")
    assert result.exit_code == 2
    assert "mine-2 is there already" in result.stderr
    assert [path.name for path in Path("experiments").iterdir()] == ["mine-2"]


def test_python_chooses_a_run() -> None:
    with pytest.raises(LogError, match=r"holds 3 runs: 1 \(steps 0 to 199\), 2 .*run=N"):
        steadyrun.import_log("train.log", "run")
    assert not Path("run").exists()
    assert len(steadyrun.import_log("train.log", "run", number=3).series("loss")) == 120


def test_a_log_of_a_folder_that_cannot_be_read_is_listed() -> None:
    Path("logs").mkdir()
    Path("logs/a.csv").write_text("step,loss\n" + "".join(f"{step},{loss}\n" for step, loss in enumerate(HEALTHY)))
    Path("logs/b.csv").write_text("age,height\n" + "".join(f"{age},1.5\n" for age in range(30)))
    result = typed("check", "logs")
    assert result.exit_code == 3
    assert "? not read: logs/b.csv: no series looks like a loss" in result.stdout


def test_a_resume_is_one_run() -> None:
    Path("train.log").write_text(rows(HEALTHY) + rows(HEALTHY[150:], 150))
    assert "1 runs" not in typed("check", "train.log").stdout
    assert typed("import", "train.log", "--name", "mine").exit_code == 0
    assert len(steadyrun.open_run("experiments/mine").events("resume")) == 1


def test_a_chosen_run_is_compared_with_its_number() -> None:
    shown = typed("check", "train.log", "--run", "2")
    assert "check NEW_RUN --after train.log --run 2" in shown.stdout
    Path("fixed.log").write_text(rows(HEALTHY))
    compared = typed("check", "fixed.log", "--after", "train.log", "--run", "2")
    assert compared.exit_code == 0
    assert "compared with" in compared.stdout


def test_a_trial_keeps_nothing_with_a_log() -> None:
    assert "--run train.log" not in typed("check", "train.log", "--run", "1").stdout
