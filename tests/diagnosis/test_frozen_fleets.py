"""The frozen fleets are honest: steadyrun changes nothing in their programs, and their tables fit together."""

from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest
import torch
from diagnosis.asking import judge
from diagnosis.causes import CAUSES as FIRST
from diagnosis.fleets import FLEETS
from diagnosis.fourth import cases as fourth
from diagnosis.fourth import causes as fourth_causes
from diagnosis.fourth.families import ANSWERS as FOURTH_ANSWERS
from diagnosis.harness import Silent
from diagnosis.running import run_folder
from diagnosis.second import cases as second
from diagnosis.second import causes as second_causes
from diagnosis.second.families import ANSWERS
from diagnosis.third import cases as third
from diagnosis.third import causes as third_causes
from diagnosis.third.families import ANSWERS as THIRD_ANSWERS

FROZEN = {"second": second, "third": third, "fourth": fourth}
PROGRAMS = sorted(
    (fleet, program) for fleet, of in FROZEN.items() for program in {each for each, _ in of.HEALTHY.values()}
)
STEPS = ["second graph-never-zeroed", "second keyword-same-batch", "second diffusion-rate-grows"]
STEPS += ["third flow-never-zeroed", "third cloud-same-batch", "third writer-rate-grows", "third triplet-far-ignored"]
STEPS += [
    "fourth chunks-never-zeroed",
    "fourth recur-same-batch",
    "fourth both-zeroed-once-an-epoch",
    "fourth wave-two-ahead",
]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize(("fleet", "program"), PROGRAMS)
def test_a_program_does_the_same_with_and_without_steadyrun(fleet: str, program: str, tmp_path: Path) -> None:
    (case,) = FROZEN[fleet].cases(1, f"healthy-{program}")
    recorded = case.module.train(tmp_path / "recorded", None, 3, steps=4, val_every=2)
    bare = case.module.train(tmp_path / "bare", None, 3, steps=4, val_every=2, record=Silent)
    assert recorded.rows == bare.rows


@pytest.mark.parametrize("name", STEPS)
def test_a_task_takes_the_step_that_the_program_takes(name: str, tmp_path: Path) -> None:
    fleet, _, name = name.partition(" ")
    program, _, bug = name.partition("-")
    (case,) = FROZEN[fleet].cases(1, f"healthy-{program}")
    log = case.module.train(tmp_path / "run", bug, 1, steps=3, record=Silent)
    task = case.module.task(case.module.configure(bug, 1, steps=3))
    for step, batch in enumerate(islice(task.loader, 3)):
        task.step = step
        assert float(task.train_step(task, batch)) == log.rows[step]["loss"]


@pytest.mark.parametrize(
    ("fleet", "program"),
    [("second", "forecast"), ("third", "flow"), ("third", "writer"), ("fourth", "recur"), ("fourth", "sharpen")],
)
def test_a_resumed_program_really_goes_on(fleet: str, program: str, tmp_path: Path) -> None:
    (case,) = FROZEN[fleet].cases(1, f"healthy-{program}")
    settings = {"steps": 8, "val_every": 2, "record": Silent}
    bare = case.module.train(tmp_path / "bare", None, 1, **settings).rows
    resumed = case.module.train(tmp_path / "resumed", None, 1, **settings, resume_at=4).rows
    forgot = case.module.train(tmp_path / "forgot", "old-weights", 1, **settings, resume_at=4).rows
    assert resumed == bare
    assert forgot[:4] == bare[:4]
    assert forgot[4:] != bare[4:]


def test_a_program_that_declares_little_is_built_from_it(tmp_path: Path) -> None:
    (case,) = third.cases(1, "healthy-triplet-sgd")
    config = case.module.configure(None, 2, **case.changes)
    declared = {"program": "triplet", "bug": None, "seed": 2, "changes": dict(case.changes)}
    assert torch.equal(case.module.task(config).model.body[0].weight, case.module.task(declared).model.body[0].weight)
    assert isinstance(case.module.task(declared).optimizer, torch.optim.SGD)


@pytest.mark.parametrize(("cases", "causes"), [(second, second_causes), (third, third_causes), (fourth, fourth_causes)])
def test_the_tables_fit_together(cases: ModuleType, causes: ModuleType) -> None:
    assert cases.TWINS_OF.keys() == causes.CAUSES.keys() == causes.DAMAGE.keys()
    assert not causes.CAUSES.keys() & FIRST.keys()  # a bug is looked up by its name alone
    assert len(causes.CAUSES) >= 35
    assert len([case for case in cases.cases(1) if case.bug is not None]) >= 70
    assert len([case for case in cases.cases(1, "healthy-*") if case.changes]) >= 40
    names = [case.name for case in cases.cases()]
    assert len(set(names)) == len(names)
    for bug, programs in causes.DAMAGE.items():
        twins = {cases.twin(program, bug).removeprefix("healthy-") for program in programs}
        assert twins == set(cases.TWINS_OF[bug].split())


def test_families_are_used_and_shared_bugs_have_the_same_one() -> None:
    families = {name: {cause.family for cause in FLEETS[name].causes.values()} for name in FROZEN}
    assert families["second"] == ANSWERS.keys()
    assert families["third"] <= THIRD_ANSWERS.keys()
    assert THIRD_ANSWERS.keys() == families["third"] | ANSWERS.keys()
    for bug in third_causes.CAUSES.keys() & second_causes.CAUSES.keys():
        assert third_causes.CAUSES[bug].family == second_causes.CAUSES[bug].family
    assert families["fourth"] <= FOURTH_ANSWERS.keys()
    assert FOURTH_ANSWERS.keys() == families["fourth"] | THIRD_ANSWERS.keys()
    for earlier in (second_causes, third_causes):
        for bug in fourth_causes.CAUSES.keys() & earlier.CAUSES.keys():
            assert fourth_causes.CAUSES[bug].family == earlier.CAUSES[bug].family


def test_a_fleet_has_its_own_folder_and_the_first_is_the_default() -> None:
    for fleet, program in (("second", "vae"), ("third", "flow"), ("fourth", "wave")):
        (case,) = FROZEN[fleet].cases(1, f"healthy-{program}")
        assert run_folder(case).parts[-3:] == (f"diagnosis-{fleet}", "runs", f"healthy-{program}")
    assert list(FLEETS) == ["first", "second", "third", "fourth", "fifth"]


def test_a_headline_of_the_family_is_right() -> None:
    erased = {"verdict": "fault", "headline": {"code": "A1.2", "outcome": "erased", "step": 0}, "notes": []}
    said = {"check": erased, "preflight": {"absent": ""}, "replay": None, "live": None, "together": erased}
    assert judge("erased", said)["any_right"]
    assert not judge("never-zeroed", said)["any_right"]
    assert judge("never-zeroed", said)["any_detected"]
    assert not judge("warmup-beyond-the-end", said)["any_right"]  # of the third fleet, and of a family without answers
