"""One run as a log of every step, of every tenth, as means of ten, and by epochs: the verdict stays, or cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from log_forms import FORMS, recorded, rows, verdict

import steadyrun
from steadyrun.tutor.faults import FAULTS

Trained = Callable[..., steadyrun.RunView]

STEPS = {"healthy": 500} | {name: FAULTS[name].steps for name in FAULTS if name != "healthy"}
SAME = {
    "healthy": {"healthy", "cannot-tell"},
    # Every tenth step may miss the gradient of the spike; a level that is higher since is a note then.
    "persistent-elevation": {"fault D2.4 elevated", "suspect", "healthy", "cannot-tell"},
    "upward-drift": {"fault D4.4 diverging", "cannot-tell"},
    "infinite-embedding-gradient": {"fault D1.3 gradient-first", "fault D1.3 loss-first"},
}


LONG = {"persistent-elevation", "upward-drift", "infinite-embedding-gradient"}  # by `make bench`


@pytest.mark.parametrize("fault", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in SAME])
def test_the_verdict_stays(tutor_run: Trained, tmp_path: Path, fault: str) -> None:
    of = recorded(tutor_run(fault, steps=STEPS[fault]).root)
    found = {form: " ".join(verdict(of, form, tmp_path, declare=True)).strip() for form in FORMS}
    assert found["every step"] != "cannot-tell"
    assert set(found.values()) <= SAME[fault], found


@pytest.mark.parametrize(
    ("fault", "forms"),
    [
        pytest.param("persistent-elevation", ["every step", "means of ten"], marks=pytest.mark.slow),
        pytest.param("upward-drift", ["every step", "every tenth", "means of ten"], marks=pytest.mark.slow),
        pytest.param("infinite-embedding-gradient", list(FORMS), marks=pytest.mark.slow),
    ],
)
def test_sparse_logs_still_have_the_evidence(tutor_run: Trained, tmp_path: Path, fault: str, forms: list[str]) -> None:
    of = recorded(tutor_run(fault, steps=STEPS[fault]).root)
    assert {form: verdict(of, form, tmp_path, declare=True)[0] for form in forms} == dict.fromkeys(forms, "fault")


def test_forms_are_what_they_say(tutor_run: Trained) -> None:
    of = recorded(tutor_run("healthy", steps=STEPS["healthy"]).root)
    steps = sorted(of.series["loss"])
    every, tenth, means = ([row for row in rows(of, form) if "loss" in row] for form in FORMS[:3])
    assert [row["step"] for row in every] == steps
    assert [row["loss"] for row in tenth] == [of.series["loss"][step] for step in steps[::10]]
    assert means[0]["loss"] == pytest.approx(sum(of.series["loss"][step] for step in steps[:10]) / 10)
    assert means[0]["step"] == steps[9]
