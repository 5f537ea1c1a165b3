"""`steadyrun import` as a person types it, and what the other commands make of an imported run."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from terminal import PROGRAM
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app
from steadyrun.importers.formats import FORMATS
from steadyrun.live.app import Live, application

runner = CliRunner()

CURVE = [(step, 3 * math.exp(-step / 60) + 1) for step in range(0, 300, 2)]
CSV = "step,train/ce,dev/ce,lr\n" + "".join(f"{step},{loss},{loss + 0.1},0.001\n" for step, loss in CURVE)
LOG = "".join(f"iter {step}: loss {loss:.4f}, time 2ms\n" for step, loss in CURVE)
NAN = "".join(f"iter {step}: loss {'nan' if step > 100 else f'{loss:.4f}'}, time 2ms\n" for step, loss in CURVE)


def typed(*arguments: str) -> Any:
    return runner.invoke(app, list(arguments))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text(LOG)
    Path("metrics.csv").write_text(CSV)


def test_a_log_becomes_a_run() -> None:
    result = typed("import", "train.log", "--name", "mine")
    assert result.exit_code == 0, result.output
    assert (
        "train.log (nanogpt): imported to experiments/mine; 300 points of 2 series (loss), counted by steps"
        in result.stderr
    )
    assert "next: " in result.stderr
    assert "check experiments/mine" in result.stderr
    run = steadyrun.open_run("experiments/mine")
    assert run.state == "imported"
    assert len(run.series("loss")) == len(CURVE)
    assert run.manifest["imported"]["source"] == "train.log"
    assert [path.name for path in Path("experiments").iterdir()] == ["mine"]


def test_a_dry_run_writes_nothing_and_shows_every_series() -> None:
    result = typed("import", "metrics.csv", "--map", "loss=train/ce", "--map", "val_loss=dev/ce", "--dry-run")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["loss", "train/ce", "150", "0", "to", "298", "1.02", "to", "4"] in lines
    assert ["val_loss", "dev/ce", "150", "0", "to", "298", "1.12", "to", "4.1"] in lines
    assert not Path("experiments").exists()


def test_json() -> None:
    result = typed("import", "train.log", "--dry-run", "--json")
    held = json.loads(result.stdout)
    assert (held["schema"], held["run"], held["format"], held["step_unit"]) == (1, None, "nanogpt", "step")
    assert held["roles"] == {"step": "iter", "loss": "loss"}
    loss = next(each for each in held["series"] if each["name"] == "loss")
    assert (loss["points"], loss["first"], loss["last"], loss["not_finite"]) == (150, 0, 298, 0)


def test_the_formats_are_listed() -> None:
    result = typed("import", "--formats")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == [each.name for each in FORMATS]


def test_what_is_declared_is_the_runs_config() -> None:
    assert (
        typed("import", "train.log", "--name", "a", "--declare", "vocab_size=50257", "--declare", "seed=x").exit_code
        == 0
    )
    assert steadyrun.open_run("experiments/a").manifest["config"] == {"vocab_size": 50257, "seed": "x"}


@pytest.mark.parametrize(("arguments", "said"), [
    (["nothing.log"], "nothing.log does not exist"),
    (["train.log", "--format", "nope"], "there is no format 'nope'"),
    (["train.log", "--format", "parquet"], "not a complete Parquet file"),
    (["train.log", "--map", "los=loss"], "unknown role. Roles are step, epoch, time, loss"),
    (["train.log", "--map", "loss=nope"], "the log has no series of that name. It has 'iter', 'loss'"),
    (["train.log", "--map", "loss"], "--map loss: NAME=VALUE is expected"),
    (["train.log", "--declare", "=3"], "--declare =3: NAME=VALUE is expected"),
    (["metrics.csv", "--map", "lr=train/ce", "--map", "step=lr"], ""),
    (["empty.log"], "empty.log is empty"),
    (["binary.log"], "does not look like a known log: it is binary"),
    (["packed.csv.gz"], "is compressed (gzip): unpack it first"),
    (["folder"], "no file in it is a log of any known format"),
    (["cut/trainer_state.json"], "line 1, column 19: "),
    (["numbers.csv"], "numbers.csv, line 1: the columns have no names"),
    (["other.csv"], "no series looks like a loss"),
    ([".", "--name", "one"], "--name names one"),
])  # fmt: skip
def test_what_cannot_be_imported(arguments: list[str], said: str) -> None:
    Path("empty.log").touch()
    Path("binary.log").write_bytes(bytes(range(256)) * 40)
    Path("packed.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    Path("folder").mkdir()
    Path("folder/readme.md").write_text("loss: 3")
    Path("cut").mkdir()
    Path("cut/trainer_state.json").write_text('{"log_history": [{"loss')
    Path("numbers.csv").write_text("1,2.5\n2,2.4\n")
    Path("other.csv").write_text("step,speed\n1,2\n2,3\n")
    result = typed("import", *arguments)
    if not said:
        assert result.exit_code == 0
        return
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert "Traceback" not in result.output
    assert not Path("experiments").exists() or list(Path("experiments").iterdir()) == []


def test_only_what_was_imported_from_the_same_log_is_replaced() -> None:
    assert typed("import", "train.log", "--name", "a").exit_code == 0
    Path("train.log").write_text(LOG + "iter 300: loss 1.0, time 2ms\n")
    assert typed("import", "train.log", "--name", "a").exit_code == 0
    assert len(steadyrun.open_run("experiments/a").series("loss")) == len(CURVE) + 1
    refused = typed("import", "metrics.csv", "--name", "a")
    assert refused.exit_code == 2
    assert "experiments/a is there already, and was not imported from metrics.csv" in refused.stderr
    with steadyrun.record("experiments/own") as run:
        run.log(loss=1.0)
    assert typed("import", "train.log", "--name", "own").exit_code == 2
    assert steadyrun.open_run("experiments/own").state == "finished"
    assert sorted(path.name for path in Path("experiments").iterdir()) == ["a", "own"]


def test_a_folder_imports_every_run_in_it() -> None:
    for name in ("a", "b", "c"):
        Path(f"runs/{name}").mkdir(parents=True)
        Path(f"runs/{name}/metrics.csv").write_text("step,loss\n1,2.5\n2,2.4\n")
    Path("runs/d/checkpoint-10").mkdir(parents=True)
    Path("runs/d/checkpoint-10/trainer_state.json").write_text('{"log_history": [')
    Path("runs/notes.txt").write_text("no log")
    result = typed("import", "runs")
    assert result.exit_code == 2
    assert "not imported: runs/d/checkpoint-10/trainer_state.json, line 1" in result.stderr
    assert "1 of 4 logs could not be imported" in result.stderr
    assert sorted(path.name for path in Path("experiments").iterdir()) == ["a", "b", "c"]


def test_the_newest_checkpoint_of_an_output_folder_is_the_run() -> None:
    for steps in (2, 10):
        Path(f"out/checkpoint-{steps}").mkdir(parents=True)
        history = [{"step": step, "loss": 1.0} for step in range(steps)]
        Path(f"out/checkpoint-{steps}/trainer_state.json").write_text(json.dumps({"log_history": history}))
    assert typed("import", "out").exit_code == 0
    assert len(steadyrun.open_run("experiments/out").series("loss")) == 10


def test_many_runs() -> None:
    for number in range(200):
        Path(f"runs/r{number}").mkdir(parents=True)
        Path(f"runs/r{number}/metrics.csv").write_text("step,loss\n1,2.5\n2,2.4\n")
    result = typed("import", "runs", "--json")
    assert result.exit_code == 0, result.stderr
    assert len({json.loads(line)["run"] for line in result.stdout.splitlines()}) == 200


def test_names_from_a_log_are_shown_harmlessly() -> None:
    rows = [{"step": step, "loss": 1.0, "\x1b[2Jevil": 1, "[red]x[/red]": 2} for step in range(3)]
    Path("\x1b[31mlog.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = typed("import", "\x1b[31mlog.jsonl", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "\x1b[2J" not in result.output
    assert "\x1b[31m" not in result.output
    assert "[red]x[/red]" in result.stdout
    assert typed("import", "\x1b[31mlog.jsonl", "--name", "../../up\x1b[0m").exit_code == 0
    assert [path.name for path in Path("experiments").iterdir()] == ["up-0m"]


def test_ctrl_c_leaves_nothing() -> None:
    Path("big.csv").write_text("step,loss\n" + "".join(f"{step},{step}.5\n" for step in range(2_000_000)))
    process = subprocess.Popen([*PROGRAM, "import", "big.csv"], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while not list(Path().glob("experiments/.importing-*/*/metrics")) and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "stopped with Ctrl-C" in said
    assert list(Path("experiments").iterdir()) == []


def test_what_a_killed_import_left_goes_with_the_next() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    Path(f"experiments/.importing-{gone.pid}-mine/metrics").mkdir(parents=True)
    assert typed("import", "train.log", "--name", "mine").exit_code == 0
    assert [path.name for path in Path("experiments").iterdir()] == ["mine"]


# -- the other commands -----------------------------------------------------------------------------------------------


def test_check_takes_a_log() -> None:
    Path("nan.log").write_text(NAN)
    result = typed("check", "nan.log")
    assert result.exit_code == 1, result.output
    assert "nan.log is a log (nanoGPT log); it is imported for this check only" in result.stderr
    assert "✗ the loss itself became non-finite first (D1.3, step 102)" in result.stdout
    compared = typed("check", "train.log", "--after", "nan.log")
    assert compared.exit_code in (0, 3)
    assert "D1" in compared.stdout
    assert sorted(path.name for path in Path().iterdir()) == ["metrics.csv", "nan.log", "train.log"]


def test_a_folder_of_logs_is_a_folder_of_runs() -> None:
    Path("nan.log").write_text(NAN)
    Path("metrics.csv").write_text("step,loss\n1,2.5\n2,2.4\n")
    result = typed("check", ".")
    assert result.exit_code == 1
    first, *lines = result.stdout.splitlines()
    assert first.startswith(".: 3 runs: 1 fault, ")
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert "✗ fault: " in lines[1]
    assert "(D1.3)" in lines[1]
    assert "check . --run 2" in result.stderr
    one = typed("check", ".", "--run", "2", "--json")
    assert json.loads(one.stdout)["verdict"] == "fault"


def test_check_of_what_is_no_log() -> None:
    Path("notes.txt").write_text("no log\n")
    result = typed("check", "notes.txt")
    assert result.exit_code == 2
    assert "does not look like a known log" in result.stderr


@pytest.mark.parametrize("command", ["dashboard", "postmortem", "top", "replay"])
def test_commands_that_want_a_run_say_how_to_make_one(command: str) -> None:
    result = typed(command, "train.log")
    assert result.exit_code == 2
    assert "if it is a log, import it first: " in result.stderr
    assert "import train.log" in result.stderr


def test_an_imported_run_works_everywhere() -> None:
    Path("nan.log").write_text(NAN)
    assert typed("import", "nan.log", "--out", "runs").exit_code == 0
    assert typed("dashboard", "runs/nan").exit_code == 0
    page = Path("runs/nan/dashboard.html").read_text()
    assert "imported" in page
    done = typed("postmortem", "runs/nan")
    assert done.exit_code == 0, done.output
    (document,) = Path("runs/nan/postmortems").glob("*.md")
    assert "1970" not in document.read_text()
    top = typed("top", "runs/nan", "--once")
    assert top.exit_code == 0
    assert "runs/nan (imported, last step 298)" in top.stdout
    with TestClient(application(Live(Path("runs"), {})), base_url="http://localhost") as browser:
        until = time.monotonic() + 300
        while not (row := browser.get("/api/runs").json()["rows"][0])["verdict"] and time.monotonic() < until:
            time.sleep(0.05)
    assert (row["name"], row["state"], row["verdict"], row["loss"]) == ("nan", "imported", "fault", "nan")
    assert row["started"] > 1e9
    assert "imported" in str(steadyrun.open_run("runs/nan"))


def test_import_log_in_python(tmp_path: Path) -> None:
    run = steadyrun.import_log("metrics.csv", "run", mapping={"loss": "train/ce"}, config={"vocab_size": 55})
    assert run.manifest["config"] == {"vocab_size": 55}
    assert len(run.series("loss")) == len(CURVE)
    with pytest.raises(steadyrun.errors.LogError, match="give one of them"):
        steadyrun.import_log(tmp_path, "both", mapping={"loss": "train/ce"})
    with pytest.raises(steadyrun.errors.LogError, match="unknown role"):
        steadyrun.import_log("metrics.csv", "again", mapping={"los": "train/ce"})
    with pytest.raises(steadyrun.errors.LogError, match="is there already"):
        steadyrun.import_log("train.log", "run")
    shutil.rmtree("run")


def test_check_reads_a_log_as_import_does() -> None:
    Path("odd.txt").write_text("own;n\n" + "".join(f"{loss:.4f};{step}\n" for step, loss in CURVE))
    without = typed("check", "odd.txt", "--format", "csv")
    assert without.exit_code == 3
    assert "--map loss=NAME" in without.stderr
    given = ["--format", "csv", "--map", "loss=own", "--map", "step=n", "--declare", "vocab_size=50257"]
    checked = typed("check", "odd.txt", "--json", *given)
    assert typed("import", "odd.txt", "--name", "odd", *given).exit_code == 0
    imported = json.loads(typed("check", "experiments/odd", "--json").stdout)
    assert json.loads(checked.stdout)["walk"] == imported["walk"]
    assert "50257" in json.dumps(imported["walk"])


def test_a_score_can_be_named() -> None:
    """What has to rise: its own name says nothing, so that `check` advises the role."""
    Path("game.csv").write_text("episode,score,own\n" + "".join(f"{at},3,{at % 7 + at / 5}\n" for at in range(200)))
    Path("plain.csv").write_text("episode,own\n" + "".join(f"{at},{at % 7 + at / 5}\n" for at in range(200)))
    without = typed("check", "plain.csv")
    assert (without.exit_code, "--map score=NAME" in without.stdout) == (3, True)
    assert typed("check", "plain.csv", "--map", "score=own").exit_code == 0
    run = steadyrun.import_log("game.csv", "run", mapping={"score": "own"})
    assert run.series("score").values[-1] == pytest.approx(199 % 7 + 199 / 5)
    assert set(run.names()) == {"score", "logged/score"}
    shutil.rmtree("run")


@pytest.mark.parametrize(("given", "said"), [
    (["train.log", "--format", "nope"], "there is no format 'nope'"),
    (["train.log", "--map", "loss=nope"], "the log has no series of that name"),
    (["train.log", "--map", "los=loss"], "unknown role"),
    (["train.log", "--map", "loss"], "--map loss: NAME=VALUE is expected"),
    (["train.log", "--declare", "=3"], "--declare =3: NAME=VALUE is expected"),
    (["train.log", "--format", "wandb-csv"], "has no run that reads as CSV export"),
    (["train.log", "--format", "parquet"], "not a complete Parquet file"),
    (["binary.log"], "--format"),
    (["names.csv"], "--map loss=NAME"),
    (["folder"], "folder is not a run directory, and no file in it is recognised as a log"),
    (["run", "--map", "loss=x"], "apply only to logs of other tools"),
    (["run", "--format", "csv", "--follow"], "apply only to logs of other tools"),
])  # fmt: skip
def test_check_advises_options_that_it_has(given: list[str], said: str) -> None:
    Path("binary.log").write_bytes(bytes(range(256)) * 40)
    Path("names.csv").write_text("n,cost\n1,1.5\n2,1.5\n")
    Path("folder/metrics").mkdir(parents=True)
    Path("folder/notes.txt").write_text("no log\n")
    with steadyrun.record("run") as run:
        run.log(loss=1.0)
    result = typed("check", *given)
    assert result.exit_code == 2
    assert said in result.stderr
    assert_options_exist("check", result.stderr)


def assert_options_exist(command: str, text: str) -> None:
    """Every option that a message names belongs to the command named right before it, or to the one at hand."""
    for name, option in re.findall(r"(?:steadyrun (\w+)[^`\n]*?)?(--[a-z][a-z-]*)", text):
        assert option in typed(name or command, "--help").stdout, (option, text)


@pytest.mark.parametrize("given", [["train.log", "--format", "nope"], ["binary.log"], ["names.csv"], ["folder"],
                                   ["train.log", "--name", "own"]])  # fmt: skip
def test_import_advises_options_that_it_has(given: list[str]) -> None:
    Path("binary.log").write_bytes(bytes(range(256)) * 40)
    Path("names.csv").write_text("n,cost\n1,1.5\n2,1.5\n")
    Path("folder").mkdir()
    with steadyrun.record("experiments/own") as run:
        run.log(loss=1.0)
    result = typed("import", *given)
    assert result.exit_code == 2
    assert_options_exist("import", result.stderr)


STUCK = """
import signal, sys, time
from steadyrun.cli import main
from steadyrun.importers import import_log as opening

for number, action in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    signal.signal(number, action)  # whoever runs the tests may ignore them, as nohup does

def stuck(place, target, *_):
    (target / "half").mkdir(parents=True)
    print("begun", flush=True)
    while True:
        time.sleep(0.01)

opening.import_runs = stuck
sys.argv = ["steadyrun", "check", "train.log"]
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_check_that_is_ended_leaves_nothing(number: int, code: int, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "TMPDIR": str(folder)}) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert list(folder.iterdir())
        process.send_signal(number)
        try:
            assert process.wait(600) == code
        finally:
            process.kill()
    assert list(folder.iterdir()) == []
