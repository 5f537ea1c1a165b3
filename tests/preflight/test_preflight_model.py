"""Probes of models, parameters and steps: silent on healthy programs of many kinds, right about broken ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from programs_broken import BROKEN
from programs_model import HEALTHY, Program, build, gpt
from programs_odd import ODD

from steadyrun.preflight import DEEP, PROBES
from steadyrun.preflight.bench import Bench
from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, NOTE, Answer
from steadyrun.report.preflight import preflight, run
from steadyrun.report.report import Report

ORDER = list(PROBES)
MINE = [code for code in ORDER[ORDER.index("S1.1") :] if code not in DEEP or code == "P6.1"]


def tried(program: Program, only: list[str] | None = None) -> Report:
    return preflight(program.task, batches=program.batches, config=program.config, only=only or MINE)


def answers(program: Program, only: list[str] | None = None) -> dict[str, Answer]:
    report = tried(program, only)
    return {asked.question.code: asked.answer for asked in report.walk.path}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", [*HEALTHY, *ODD])
def test_a_healthy_program_has_no_fault(name: str) -> None:
    by_code = answers(build(name))
    faults = {
        code: answer.message for code, answer in by_code.items() if answer.kind == FAULT or answer.outcome == "failed"
    }
    assert not faults


@pytest.mark.parametrize(("make", "code", "outcome"), BROKEN, ids=[make.__name__ for make, _, _ in BROKEN])
def test_a_broken_program_has_its_fault(make: Callable[[], Program], code: str, outcome: str) -> None:
    torch.manual_seed(0)
    report = tried(make())
    by_code = {asked.question.code: asked.answer for asked in report.walk.path}
    assert (by_code[code].kind, by_code[code].outcome) == (FAULT, outcome), by_code[code].message
    assert not [answer.message for answer in by_code.values() if answer.outcome == "failed"]
    assert report.headline is not None
    assert report.headline.question.code == code
    assert not [asked.answer.message for asked in report.ranking.beside]


@pytest.mark.parametrize(
    ("name", "code", "outcome"),
    [
        ("bert", "A4.3", "unused"),
        ("graph", "P3.7", "may-mix"),
        ("parametrized", "P3.7", "by-design"),
        ("linear_probe", "A4.1", "not-optimized"),
        ("lora", "A4.4", "some-frozen"),
        ("adversarial_autoencoder", "P4.2", "shared"),
        ("vae", "P5.4", "samples"),
        ("bf16_parameters", "A4.5", "below-spacing"),
    ],
)
def test_what_is_merely_unusual_is_a_note(name: str, code: str, outcome: str) -> None:
    answer = answers(build(name))[code]
    assert (answer.kind, answer.outcome) == (NOTE, outcome), answer.message


@pytest.mark.parametrize(
    ("name", "code"),
    [("gpt", "A1.1"), ("gpt_from_zero", "A4.5"), ("amp", "A1.3"), ("seq2seq", "A8.1"), ("accumulated", "C6.3"),
     ("gpt_from_zero", "A4.7"), ("amp", "P5.6"), ("trainer", "P5.5"), ("causal_convolution", "S1.1"),
     ("bert", "A8.1"), ("amp", "P5.7")],
)  # fmt: skip
def test_what_is_well_passes(name: str, code: str) -> None:
    answer = answers(build(name))[code]
    assert answer.kind == "pass", answer.message


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("cnn", "S1.1", NOT_APPLICABLE),
        ("autoencoder_without_root", "P3.7", CANNOT_TELL),
        ("gpt_from_zero", "A1.1", CANNOT_TELL),
        ("unoptimized", "A4.5", CANNOT_TELL),
        ("gpt", "C6.3", NOT_APPLICABLE),
    ],
)
def test_what_cannot_be_asked_is_said(name: str, code: str, kind: str) -> None:
    assert answers(build(name))[code].kind == kind


def test_small_programs_learn_one_batch_by_heart() -> None:
    for name in ("gpt", "cnn", "lstm", "regression", "amp", "vae"):
        answer = answers(build(name), ["P6.1"])["P6.1"]
        assert answer.kind in {"pass", NOTE}, (name, answer.message)


def test_what_a_program_raises_is_no_mistake_of_ours() -> None:
    program = gpt()
    program.task.train_step = lambda _task, _batch: 1 / 0  # type: ignore[assignment]
    by_code = answers(program)
    assert by_code["A1.1"].kind == CANNOT_TELL
    assert "ZeroDivisionError" in by_code["A1.1"].message
    assert not [answer.message for answer in by_code.values() if answer.outcome == "failed"]


def test_the_default_set_stays_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Bench] = []
    first = Bench.__init__

    def noted(self: Bench, *args: object, **options: object) -> None:
        first(self, *args, **options)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(Bench, "__init__", noted)
    program = build("gpt")
    program.task.loader, program.task.config = program.batches, {**program.config, "pad_id": 0, "dtype": "bf16"}
    run(program.task)
    assert made[0].passes <= 30
    assert {"P6.1"} <= DEEP
