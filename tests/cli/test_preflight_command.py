"""`steadyrun preflight` as people type it."""

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app

PROGRAM = """
import torch
from torch import nn
import steadyrun

def task(config):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, config.get("classes", 5)))
    if config.get("softmax"):
        model.append(nn.Softmax(1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = [(x, x[:, :5].argmax(1)) for x in torch.randn(6, 32, 20)]
    loss_fn = lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1])
    return steadyrun.Task(model, optimizer, loss_fn, loader=loader)

def prints():
    print("building")
    made = task({})
    plain = made.loss_fn
    made.loss_fn = lambda model, batch: (print("a batch"), plain(model, batch))[1]
    return made

def no_batches():
    made = task({})
    made.loader = None
    return made

def empty():
    made = task({})
    made.loader = []
    return made

def yields_nothing():
    made = task({})
    made.loader = iter(())
    return made

def unreadable():
    made = task({})
    made.loader = (1 / 0 for _ in range(3))
    return made

def lazy():
    made = task({})
    made.model = nn.LazyLinear(5)
    return made

def vector():
    made = task({})
    made.loss_fn = lambda model, batch: model(batch[0])
    return made

def raises():
    raise KeyError("data")

def nothing():
    return None

def broken_loss():
    made = task({})
    made.loss_fn = lambda model, batch: batch["x"]
    return made
"""


@pytest.fixture(autouse=True)
def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)


def preflight(*words: str) -> Any:
    return CliRunner().invoke(app, ["preflight", *words])


def test_a_healthy_program() -> None:
    result = preflight("program.py:task")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("✓ healthy  program.py:task  before training\n")
    assert "C1.1 initial loss, pass" in preflight("program.py:task", "--verbose").stdout
    assert not list(Path().glob("**/report.json"))


def test_a_fault_says_what_to_type_next() -> None:
    result = preflight("program.py:task", "--config", '{"softmax": true}', "--only", "P3")
    assert result.exit_code == 1
    assert "(A3.1)" in result.stdout
    lines = result.stdout.splitlines()
    after = lines[lines.index("next") + 1 :]
    assert after[0].endswith("explain A3.1")
    assert after[1].endswith("preflight program.py:task --only P3")
    assert "NEW_RUN" not in result.stdout


def test_the_config_from_a_file() -> None:
    Path("config.json").write_text('{"classes": 3}')
    result = preflight("program.py:task", "--config", "config.json", "--only", "P1.2")
    assert result.exit_code == 1
    assert "has label 4, the model scores 3 classes" in result.stdout


def test_json_junit_and_markdown() -> None:
    found = json.loads(preflight("program.py:task", "--json").stdout)
    assert (found["run"], found["verdict"], found["last_step"]) == ("program.py:task", "healthy", None)
    junit = ElementTree.fromstring(preflight("program.py:task", "--junit").stdout)
    assert junit[0].get("name") == "steadyrun preflight program.py:task"
    assert preflight("program.py:task", "--markdown").stdout.startswith("### ✓ healthy")
    assert preflight("program.py:task", "--json", "--junit").exit_code == 2


def test_what_a_program_prints_is_no_part_of_the_report() -> None:
    result = preflight("program.py:prints", "--json")
    assert json.loads(result.stdout)["verdict"] == "healthy"
    assert "building" in result.stderr


def test_one_probe_alone_and_a_changed_limit() -> None:
    result = preflight("program.py:task", "--only", "p3.3", "--set", "P3.3.band=0.0001", "--json")
    (asked,) = json.loads(result.stdout)["walk"]
    assert (asked["code"], asked["answer"]) == ("C1.1", "note")
    assert asked["thresholds"]["band"]["changed"] is True


def test_limits_of_probes_in_a_file_do_not_disturb_check() -> None:
    Path("steadyrun.toml").write_text('[thresholds."P3.3"]\nband = 0.0001\n')
    result = preflight("program.py:task", "--only", "P3.3", "--json")
    assert json.loads(result.stdout)["walk"][0]["answer"] == "note"
    told = CliRunner().invoke(app, ["check", "nowhere"]).stderr
    assert "nowhere" in told
    assert "P3.3" not in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere:task"], "no module named 'nowhere'"),
        (["nowhere.py:task"], "names nowhere.py, and there is no such file"),
        (["program.py"], "must look like module:function"),
        (["program.py:tusk"], "has no function 'tusk'"),
        (["program.py:raises"], "raised KeyError: 'data' (program.py:"),
        (["program.py:nothing"], "must return a steadyrun.Task, not NoneType"),
        (["program.py:no_batches"], "without a loader"),
        (["program.py:empty"], "not empty"),
        (["program.py:yields_nothing"], "the loader of batches is empty"),
        (["program.py:unreadable"], "reading batches raised ZeroDivisionError"),
        (["program.py:lazy"], "lazy parameters"),
        (["program.py:vector"], "loss_fn must return a scalar tensor"),
        (["program.py:task", "--only", "P9.9"], "there is no probe 'P9.9'"),
        (["program.py:task", "--set", "P3.3.bond=1"], "there is no threshold 'P3.3.bond'; did you mean C1.1.band"),
        (["program.py:task", "--set", "P3.3.band"], "is not NAME=NUMBER"),
        (["program.py:task", "--config", "{broken"], "--config is not valid JSON"),
        (["program.py:task", "--config", "missing.json"], "'missing.json' does not exist"),
        (["program.py:task", "--resumed", "nowhere"], "nowhere"),
    ],
)
def test_bad_input(words: list[str], says: str) -> None:
    result = preflight(*words)
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert result.stdout == ""


def test_a_loss_that_raises_is_told() -> None:
    result = preflight("program.py:broken_loss")
    assert result.exit_code == 3
    assert "loss_fn raised TypeError" in result.stdout
    assert "this question failed" not in result.stdout


def test_help_teaches_by_example() -> None:
    result = preflight("--help")
    assert result.exit_code == 0
    assert "steadyrun preflight train:task" in result.stdout
    assert "Exit codes" in result.stdout


ARGV = """
import argparse
import sys
import torch
from torch import nn
import steadyrun

{parsing}

def task():
    model = nn.Linear(20, int(classes))
    loader = [(x, x[:, :5].argmax(1)) for x in torch.randn(6, 32, 20)]
    loss_fn = lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1])
    return steadyrun.Task(model, torch.optim.AdamW(model.parameters(), lr=3e-3), loss_fn, loader=loader)
"""
PARSING = {
    "argparse": """
parser = argparse.ArgumentParser()
parser.add_argument("--classes", required=True)
classes = parser.parse_args().classes
""",
    "exits": """
if sys.argv[1:2] != ["--classes"]:
    sys.exit("say --classes N")
classes = sys.argv[2]
""",
    "reads": "classes = sys.argv[2]",
}


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("argparse", "importing argparse_script.py exited with status 2"),
        ("exits", "importing exits_script.py exited with the message 'say --classes N'"),
        ("reads", "importing reads_script.py raised IndexError: list index out of range (reads_script.py:8)"),
    ],
)
def test_a_script_with_a_command_line_of_its_own(kind: str, says: str) -> None:
    Path(f"{kind}_script.py").write_text(ARGV.format(parsing=PARSING[kind]))
    before = list(sys.argv)
    result = preflight(f"{kind}_script.py:task", "--only", "P1.2")
    assert result.exit_code == 2
    assert says in result.stderr
    assert "pass its arguments after --" in result.stderr
    result = preflight(f"{kind}_script.py:task", "--only", "P1.2", "--", "--classes", "3")
    assert result.exit_code == 1, result.output
    assert "has label 4, the model scores 3 classes" in result.stdout
    assert result.stdout.rstrip().endswith(f"preflight {kind}_script.py:task --only P1.2 -- --classes 3")
    assert sys.argv == before


def test_a_function_that_parses_the_command_line() -> None:
    text = ARGV.format(parsing="").replace("def task():", f"def task():{PARSING['argparse']}".replace("\n", "\n    "))
    Path("function_script.py").write_text(text)
    result = preflight("function_script.py:task")
    assert result.exit_code == 2
    assert "function_script.py:task exited with status 2" in result.stderr
    assert preflight("function_script.py:task", "--only", "P1.2", "--", "--classes", "5").exit_code == 0


RECORDS = """
with steadyrun.record("run"):
    pass
"""
STEPS = """
optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], 0.1)
for step in range(3):
    try:
        optimizer.step()
    except Exception:
        pass
print("trained")
"""


@pytest.mark.parametrize(("name", "body"), [("records", RECORDS), ("steps", STEPS)])
def test_a_script_that_trains_at_import_is_stopped(name: str, body: str) -> None:
    Path(f"{name}.py").write_text(PROGRAM + body)
    result = preflight(f"{name}.py:task")
    assert result.exit_code == 2, result.output
    line = len(PROGRAM.splitlines()) + (2 if name == "records" else 5)
    assert f"importing {name}.py starts to train ({name}.py:{line})" in result.stderr
    assert 'under if __name__ == "__main__":' in result.stderr
    assert "trained" not in result.stderr
    assert not Path("run").exists()
    with steadyrun.record("run"):  # afterwards all is as before
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1)
        optimizer.step()


def test_a_file_with_relative_imports_is_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Path("project/deep")
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("")
    (inner / "parts.py").write_text(PROGRAM)
    (inner / "train.py").write_text("from .parts import task\n")
    result = preflight("project/deep/train.py:task")
    assert result.exit_code == 2
    assert f"name it project.deep.train:task, in the folder {Path.cwd()}" in result.stderr
    assert preflight("project.deep.train:task").exit_code == 0
