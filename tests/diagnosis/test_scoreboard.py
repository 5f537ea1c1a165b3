"""The programs of the scoreboard are honest: steadyrun changes nothing in them, and every case can be built."""

from itertools import islice
from pathlib import Path

import pytest
import torch
from diagnosis.asking import judge
from diagnosis.cases import HEALTHY, PROGRAMS_OF, Case, cases
from diagnosis.causes import CAUSES
from diagnosis.harness import Silent
from diagnosis.seen import REMARKS, TWINS
from diagnosis.tools.findings import Finding, judged, means_of_ten

PLAIN = ("char_gpt", "mlp", "resnet", "seq2seq")

pytestmark = pytest.mark.filterwarnings("ignore:Using a target size", "ignore:.*os.fork")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("program", PLAIN)
def test_a_program_does_the_same_with_and_without_steadyrun(program: str, tmp_path: Path) -> None:
    case = Case("some", program, None, 3)
    recorded = case.module.train(tmp_path / "recorded", None, 3, steps=6, val_every=3)
    bare = case.module.train(tmp_path / "bare", None, 3, steps=6, val_every=3, record=Silent)
    assert recorded.rows == bare.rows
    assert "val_loss" in recorded.rows[2]


@pytest.mark.parametrize("name", ["mlp-A1-1", "mlp-A19-1", "seq2seq-A22-1", "char_gpt-A23-1", "resnet-A4-1"])
def test_a_task_takes_the_step_that_the_program_takes(name: str, tmp_path: Path) -> None:
    (case,) = cases(1, name)
    log = case.module.train(tmp_path / "run", case.bug, case.seed, steps=3, record=Silent)
    task = case.module.task(case.module.configure(case.bug, case.seed, 3))
    for step, batch in enumerate(islice(task.loader, 3)):
        task.step = step
        assert float(task.train_step(task, batch)) == log.rows[step]["loss"]


def test_a_resumed_program_really_goes_on(tmp_path: Path) -> None:
    (case,) = cases(1, "mlp-B18-1")
    bare = case.module.train(tmp_path / "bare", None, 1, steps=8, record=Silent, dropout=0.0).rows
    resumed = case.module.train(tmp_path / "resumed", None, 1, steps=8, record=Silent, dropout=0.0, resume_at=4).rows
    forgot = case.module.train(tmp_path / "forgot", "B18", 1, steps=8, record=Silent, dropout=0.0).rows
    assert resumed == bare
    assert forgot[:5] == bare[:5]
    assert forgot[5:] != bare[5:]


def test_the_tables_fit_together() -> None:
    assert PROGRAMS_OF.keys() == CAUSES.keys()
    assert REMARKS.keys() <= CAUSES.keys()
    assert set(TWINS.values()) <= HEALTHY.keys()
    assert len(HEALTHY) >= 40
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
    assert {case.bug for case in cases(1, "*-A27-*")} == {"A27"}


def test_only_an_accepted_headline_is_right() -> None:
    quiet = {"verdict": "healthy", "headline": None, "notes": []}
    erased = {
        "verdict": "fault",
        "headline": {"code": "C1.2", "outcome": "erased", "step": 0, "message": ""},
        "notes": [],
    }
    said = {"check": erased, "preflight": {"absent": ""}, "replay": None, "live": None, "together": erased}
    assert judge("A31", said)["any_right"]
    assert not judge("A1", said)["any_right"]
    assert judge("A1", said)["any_detected"]
    assert judge(None, said)["alarm"]
    assert not judge(None, said | {"check": quiet, "together": quiet})["alarm"]


def test_findings_of_other_tools_are_ranked_by_what_they_call_grave() -> None:
    findings = [Finding("TA105", "warning", ""), Finding("TA402", "error", ""), Finding("TA103", "info", "")]
    assert judged("torch-audit", "B30", findings) == {"first": True, "anywhere": True, "any": True}
    assert judged("torch-audit", "C18", findings) == {"first": False, "anywhere": True, "any": True}
    assert judged("torch-audit", None, findings[2:]) == {"alarm": False, "grave_alarm": False}


def test_means_of_ten_keep_the_validations() -> None:
    rows = [{"step": step, "loss": float(step), "lr": 0.1} for step in range(20)]
    rows[4]["val_loss"] = 0.5
    first, second = means_of_ten(rows)
    assert first == {"step": 9, "loss": 4.5, "lr": 0.1, "val_loss": 0.5}
    assert second == {"step": 19, "loss": 14.5, "lr": 0.1}
