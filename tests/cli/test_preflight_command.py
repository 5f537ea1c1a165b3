"""`steadyrun preflight` as people type it."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

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
    assert result.stdout.startswith("program.py:task (before training): ✓ healthy\n")
    assert "P3.3 first loss, pass" in result.stdout
    assert not list(Path().glob("**/report.json"))


def test_a_fault_says_what_to_type_next() -> None:
    result = preflight("program.py:task", "--config", '{"softmax": true}', "--only", "P3")
    assert result.exit_code == 1
    assert "✗ fault: P3.2" in result.stdout
    lines = result.stdout.splitlines()
    after = lines[lines.index("next") + 1 :]
    assert after[0].endswith("explain P3.2")
    assert after[1].endswith("preflight program.py:task --only P3")
    assert "NEW_RUN" not in result.stdout


def test_the_config_from_a_file() -> None:
    Path("config.json").write_text('{"classes": 3}')
    result = preflight("program.py:task", "--config", "config.json", "--only", "P1.2")
    assert result.exit_code == 1
    assert "label 4 among scores for 3 classes" in result.stdout


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
    assert (asked["code"], asked["answer"]) == ("P3.3", "note")
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
        (["program.py:no_batches"], "gives no batches"),
        (["program.py:empty"], "not empty"),
        (["program.py:yields_nothing"], "the loader of batches gives none"),
        (["program.py:unreadable"], "reading batches raised ZeroDivisionError"),
        (["program.py:lazy"], "lazy parameters"),
        (["program.py:vector"], "loss_fn must return one number"),
        (["program.py:task", "--only", "P9.9"], "there is no probe 'P9.9'"),
        (["program.py:task", "--set", "P3.3.bond=1"], "there is no threshold 'P3.3.bond'; did you mean P3.3.band"),
        (["program.py:task", "--set", "P3.3.band"], "is not NAME=NUMBER"),
        (["program.py:task", "--config", "{broken"], "--config is no JSON"),
        (["program.py:task", "--config", "missing.json"], "there is no file 'missing.json'"),
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
