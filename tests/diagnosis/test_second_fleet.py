"""The second fleet is honest: steadyrun changes nothing in its programs, and its tables fit together."""

from itertools import islice
from pathlib import Path

import pytest
import torch
from diagnosis.asking import judge
from diagnosis.causes import CAUSES as FIRST
from diagnosis.fleets import FLEETS
from diagnosis.harness import Silent
from diagnosis.running import run_folder
from diagnosis.second.cases import HEALTHY, TWINS_OF, cases, twin
from diagnosis.second.causes import CAUSES, DAMAGE
from diagnosis.second.families import ANSWERS

PROGRAMS = sorted({program for program, _ in HEALTHY.values()})
ALARMING = [case for case in cases(1, "healthy-*") if case.changes]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_does_the_same_with_and_without_steadyrun(program: str, tmp_path: Path) -> None:
    (case,) = cases(1, f"healthy-{program}")
    recorded = case.module.train(tmp_path / "recorded", None, 3, steps=4, val_every=2)
    bare = case.module.train(tmp_path / "bare", None, 3, steps=4, val_every=2, record=Silent)
    assert recorded.rows == bare.rows


@pytest.mark.parametrize("name", ["graph-never-zeroed", "keyword-same-batch", "diffusion-rate-grows"])
def test_a_task_takes_the_step_that_the_program_takes(name: str, tmp_path: Path) -> None:
    program, _, bug = name.partition("-")
    (case,) = cases(1, f"healthy-{program}")
    log = case.module.train(tmp_path / "run", bug, 1, steps=3, record=Silent)
    task = case.module.task(case.module.configure(bug, 1, steps=3))
    for step, batch in enumerate(islice(task.loader, 3)):
        task.step = step
        assert float(task.train_step(task, batch)) == log.rows[step]["loss"]


def test_a_resumed_program_really_goes_on(tmp_path: Path) -> None:
    (case,) = cases(1, "healthy-forecast")
    bare = case.module.train(tmp_path / "bare", None, 1, steps=8, record=Silent).rows
    resumed = case.module.train(tmp_path / "resumed", None, 1, steps=8, record=Silent, resume_at=4).rows
    forgot = case.module.train(tmp_path / "forgot", "old-weights", 1, steps=8, record=Silent, resume_at=4).rows
    assert resumed == bare
    assert forgot[:4] == bare[:4]
    assert forgot[4:] != bare[4:]


def test_the_tables_fit_together() -> None:
    assert TWINS_OF.keys() == CAUSES.keys() == DAMAGE.keys()
    assert {cause.family for cause in CAUSES.values()} == ANSWERS.keys()
    assert not CAUSES.keys() & FIRST.keys()  # a bug is looked up by its name alone
    assert len(CAUSES) >= 35
    assert len([case for case in cases(1) if case.bug is not None]) >= 60
    assert len(ALARMING) >= 40
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
    for bug, programs in DAMAGE.items():
        assert {twin(program, bug).removeprefix("healthy-") for program in programs} == set(TWINS_OF[bug].split())


def test_a_fleet_has_its_own_folder_and_the_first_is_the_default() -> None:
    (case,) = cases(1, "healthy-vae")
    assert run_folder(case).parts[-3:] == ("diagnosis-second", "runs", "healthy-vae")
    assert list(FLEETS) == ["first", "second"]


def test_a_headline_of_the_family_is_right() -> None:
    erased = {"verdict": "fault", "headline": {"code": "A1.2", "outcome": "erased", "step": 0}, "notes": []}
    said = {"check": erased, "preflight": {"absent": ""}, "replay": None, "live": None, "together": erased}
    assert judge("erased", said)["any_right"]
    assert not judge("never-zeroed", said)["any_right"]
    assert judge("never-zeroed", said)["any_detected"]
