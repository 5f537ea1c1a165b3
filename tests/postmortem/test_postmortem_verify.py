"""Section 6 against new runs: what holds, what fails, what cannot be told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from postmortem_cases import case_of, examined, spiky
from synthetic import Synthetic

import steadyrun
from steadyrun.errors import UsageError
from steadyrun.postmortem.document import compose
from steadyrun.postmortem.expectations import CANNOT, FAILS, HOLDS, SKIPPED, hold
from steadyrun.postmortem.verification import Verification, read_expectations


def held(expected: dict[str, Any], **series: Any) -> str:
    config = series.pop("config", {"seed": 42})
    return hold(expected, *examined(Synthetic(config=config, **series))).verdict


WINDOW = {"kind": "max_in_window", "series": "grad_norm", "first": 2, "last": 4, "limit": 3.0}
PAST = {"kind": "gets_past", "step": 2}
MEDIAN = {"kind": "median_at_most", "series": "loss", "first": 2, "last": 4, "limit": 3.0}
CURVE = {"kind": "within", "series": "loss", "span": 3, "first": 2, "until": 5, "of": 2.0, "tolerance": 0.1}


@pytest.mark.parametrize(
    ("expected", "run", "verdict"),
    [
        ({"kind": "seed", "value": 42}, {"loss": [1]}, HOLDS),
        ({"kind": "seed", "value": 43}, {"loss": [1]}, FAILS),
        ({"kind": "seed", "value": 42}, {"loss": [1], "config": {}}, CANNOT),
        ({"kind": "finite", "series": "loss", "until": 2}, {"loss": [1, 2, 3]}, HOLDS),
        ({"kind": "finite", "series": "loss", "until": 2}, {"loss": [1, float("nan"), 3]}, FAILS),
        ({"kind": "finite", "series": "loss", "until": 2}, {"loss": [1, 2, 3, float("nan")]}, HOLDS),
        ({"kind": "finite", "series": "loss", "until": 9}, {"loss": [1, 2, 3]}, CANNOT),
        ({"kind": "finite", "series": "grad_norm", "until": 2}, {"loss": [1, 2, 3]}, CANNOT),
        (
            {"kind": "finite", "series": "grad_norm", "until": 2},
            {"grad_norm": [1, float("inf"), 3], "skipped": [0, 1, 0]},
            HOLDS,
        ),
        ({"kind": "loss_at_most", "step": 1, "limit": 2.5}, {"loss": [9, 2.5, 9]}, HOLDS),
        ({"kind": "loss_at_most", "step": 1, "limit": 2.5}, {"loss": [1, 2.6, 1]}, FAILS),
        ({"kind": "loss_at_most", "step": 1, "limit": 2.5}, {"loss": [1, float("nan"), 1]}, FAILS),
        ({"kind": "loss_at_most", "step": 7, "limit": 2.5}, {"loss": [1, 1]}, CANNOT),
        (PAST, {"loss": [1, 2, 3, 4]}, HOLDS),
        (PAST, {"loss": [1, 2, 3]}, HOLDS),
        (PAST, {"loss": ([0, 1, 3], [1, 2, 3])}, HOLDS),
        (PAST, {"loss": [1, 2, 3, float("nan")]}, HOLDS),
        (PAST, {"loss": [1, 2, float("inf"), 4]}, FAILS),
        (PAST, {"loss": [1, float("nan"), 3, 4]}, FAILS),
        (PAST, {"loss": [1, float("inf"), 3, 4], "skipped": [0, 1, 0, 0]}, HOLDS),
        (PAST, {"loss": ([0, 1, 3], [1, 2, float("nan")])}, FAILS),
        (PAST, {"loss": [1, 2]}, CANNOT),
        (PAST, {"grad_norm": [1, 2, 3]}, CANNOT),
        (MEDIAN, {"loss": [9, 9, 1, 90, 2]}, HOLDS),
        (MEDIAN, {"loss": [1, 1, 4, 1, 5]}, FAILS),
        (MEDIAN, {"loss": [1, 1, 1, float("nan"), float("nan")]}, FAILS),
        (MEDIAN, {"loss": [1, 1, 1, 1]}, CANNOT),
        (MEDIAN, {"loss": [1]}, CANNOT),
        (WINDOW, {"grad_norm": [9, 9, 3, 3, 3, 9]}, HOLDS),
        (WINDOW, {"grad_norm": [1, 1, 3, 3.1, 3, 1]}, FAILS),
        (WINDOW, {"grad_norm": [1, 1, 3, float("nan"), 3, 1]}, FAILS),
        (WINDOW, {"grad_norm": [1, 1, 3, float("nan"), 3, 1], "skipped": [0, 0, 0, 1, 0, 0]}, HOLDS),
        (WINDOW, {"grad_norm": [1, 1, 3]}, CANNOT),
        (WINDOW, {"grad_norm": [1]}, CANNOT),
        (WINDOW, {"loss": [1]}, CANNOT),
        (WINDOW | {"when_clip_at_most": 0.5}, {"grad_norm": [9] * 9, "config": {"clip": 1.0}}, SKIPPED),
        (WINDOW | {"when_clip_at_most": 0.5}, {"grad_norm": [9] * 9, "config": {"clip": 0.5}}, FAILS),
        (CURVE, {"loss": [5, 2, 1.5, 1.5, 1.5, 1.5]}, FAILS),
        (CURVE, {"loss": [2, 2, 2, 2.1, 2, 2]}, HOLDS),
        (CURVE, {"loss": [2, 2, 2, float("nan"), 2, 2]}, FAILS),
        (CURVE, {"loss": [2, 2, 2, 2]}, CANNOT),
        ({"kind": "question_passes", "code": "D1.1", "was": "non-finite"}, {"loss": [1, 2]}, HOLDS),
        ({"kind": "question_passes", "code": "D1.1", "was": "non-finite"}, {"loss": [1, float("nan")]}, FAILS),
        ({"kind": "question_passes", "code": "D2.3", "was": "lr-jump"}, {"loss": [1, 2]}, CANNOT),
        ({"kind": "question_passes", "code": "X9.9", "was": "anything"}, {"loss": [1, 2]}, CANNOT),
        ({"kind": "question_passes", "code": "D1.3", "was": "loss-first"}, {"loss": [1, 2]}, HOLDS),
        ({"kind": "question_passes", "code": "E1.1", "was": "log-of-zero"}, {"loss": [1, 2]}, HOLDS),
        ({"kind": "question_passes", "code": "E1.1", "was": "log-of-zero"}, {"loss": [1, float("nan")]}, CANNOT),
        ({"kind": "question_passes", "code": "P3.2", "was": "squashed"}, {"loss": [1, 2]}, CANNOT),
        ({"kind": "question_passes", "code": "C2.1", "was": "never-stepped"}, {"loss": [1, 2], "lr/0": [1, 1]}, CANNOT),
    ],
)
def test_expectations(expected: dict[str, Any], run: dict[str, Any], verdict: str) -> None:
    assert held(expected, **run) == verdict


def test_what_cannot_arise_says_so() -> None:
    run = examined(Synthetic(loss=[1.0, 2.0]))
    for code, why in (("D1.3", "all recorded values are finite"), ("E1.1", "nothing to replay")):
        checked = hold({"kind": "question_passes", "code": code, "was": "x"}, *run)
        assert checked.measured == "not applicable"
        assert "does not apply to the new run" in checked.why
        assert why in checked.why


def test_a_run_that_ends_with_an_exception_does_not_get_past_it() -> None:
    run = Synthetic(loss=[1.0, 2.0])
    run.manifest["failure"] = {"type": "IndexError", "message": "x"}
    checked = hold(PAST, *examined(run))
    assert (checked.verdict, checked.measured) == (FAILS, "ended after step 1 with IndexError")


@pytest.mark.parametrize("non_finite", [False, True])
def test_the_broken_run_fails_and_a_repaired_one_passes(tmp_path: Path, non_finite: bool) -> None:
    broken, repaired = spiky(), spiky(height=2.2)
    repaired.series("grad_norm").values[200] = 0.6
    if non_finite:
        broken.series("loss").values[200:] = np.nan
    document = compose(case_of(broken, tmp_path))
    assert document.telling
    signals, report = examined(repaired)
    verification = Verification(
        "d", "r", tuple(hold(expectation, signals, report) for expectation in document.expectations)
    )
    assert verification.verdict == HOLDS, [checked for checked in verification.checked if checked.verdict != HOLDS]
    asked = {"gets_past", "median_at_most"} if non_finite else {"loss_at_most", "max_in_window"}
    assert {"seed", "finite"} | asked <= {checked.kind for checked in verification.checked}


def test_one_failure_outweighs_what_cannot_be_told() -> None:
    def made(*kinds: str) -> Verification:
        return Verification(
            "d",
            "r",
            tuple(hold(expectation, *examined(Synthetic(config={"seed": 1}))) for expectation in wanted(kinds)),
        )

    def wanted(kinds: tuple[str, ...]) -> list[dict[str, Any]]:
        known = {"good": {"kind": "seed", "value": 1}, "bad": {"kind": "seed", "value": 2}}
        return [known.get(kind, {"kind": "finite", "series": "loss", "until": 1}) for kind in kinds]

    assert made("good").exit_code == 0
    assert made("good", "unknown").exit_code == 3
    assert made("bad", "unknown", "good").exit_code == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot read"),
        ("[]", "not a post-mortem"),
        ("{}", "not a post-mortem"),
        ({"verification": {"expectations": []}}, "not a post-mortem"),
        ({"verification": {"expectations": [{"kind": "magic"}]}}, "does not support"),
        ({"verification": {"expectations": [{"kind": "loss_at_most", "step": 1}]}}, "needs a number 'limit'"),
        ({"verification": {"expectations": [{"kind": "loss_at_most", "step": 1, "limit": "nan"}]}}, "'limit'"),
        ({"verification": {"expectations": [{"kind": "finite", "until": 3}]}}, "needs 'series'"),
    ],
)
def test_what_is_no_post_mortem(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UsageError, match=message):
        read_expectations(path)


def test_python_writes_and_verifies_as_the_commands_do(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        for step in range(120):
            run.step(float("nan") if step > 80 else 2.0 - step / 100)
    written = steadyrun.postmortem(tmp_path / "run", picture=False)
    assert written.markdown.parent == tmp_path / "run" / "postmortems"
    assert written.markdown.read_text().startswith("# ")
    assert steadyrun.verify(written.markdown, tmp_path / "run").verdict == FAILS, "it fails its own list"
    elsewhere = steadyrun.postmortem(tmp_path / "run", 60, out=tmp_path, picture=False)
    assert elsewhere.json == tmp_path / "step-0000060.json"
