"""Programs that are not the tutor: broken, replayed, explained, repaired, and held against their own post-mortem."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from repaired_programs import BAD, PROGRAMS

import steadyrun
from steadyrun.postmortem import document_files
from steadyrun.postmortem.document import write
from steadyrun.postmortem.verification import verify


@dataclass(frozen=True)
class Expected:
    """What the post-mortem of a program has to say: its cause, and words of its fix and of its lesson."""

    cause: str
    fix: str
    change: str
    learned: str


EXPECTED = {
    "nan-picture": Expected("unusual-batch", "non-finite", "torch.isfinite(each['image'])", "check torch.isfinite"),
    "log-of-zero": Expected("model-numerics", "safe", "log_softmax", "`x.log() -> x.clamp_min(1e-12).log()"),
    "rate-too-high": Expected("learning-rate", "Lower the peak", "lr_max: 2 -> 0.667", "A learning rate of 2"),
    "exp-overflow": Expected("model-numerics", "clamp", "x.clamp(max=80).exp()", "x.clamp(max=80).exp()"),
    "label-out-of-range": Expected(
        "walk-fault", "Number the classes", "labels from 0 to classes - 1", "Label 3 is not among 3"
    ),
    "sqrt-at-zero": Expected("model-numerics", "epsilon", "(x + 1e-12).sqrt()", "(x + 1e-12).sqrt()"),
}
OUT_OF_PLACE = ("stratified", "StratifiedBatchSampler", "token", "clip: ", "▁")


@pytest.fixture(scope="module", params=list(PROGRAMS))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict[str, Any]]:
    """A program's runs, broken and repaired, and the post-mortem of the broken one."""
    name = str(request.param)
    root = tmp_path_factory.mktemp(name)
    run = PROGRAMS[name].record(root / "broken", fixed=False)
    steadyrun.replay(run, PROGRAMS[name].broken).explain()
    document = write(run)
    written = document_files.save(document, picture=False, with_checklist=True)
    document_files.add_lesson(document)
    return name, written.markdown, json.loads(written.json.read_text())


def test_the_fix_follows_the_cause(case: tuple[str, Path, dict[str, Any]]) -> None:
    name, path, document = case
    expected, fix = EXPECTED[name], document["remediation"][0]
    assert document["root_cause"]["known"]
    assert document["root_cause"]["cause"] == expected.cause
    assert fix["purpose"] == "fix"
    assert expected.fix in fix["text"]
    assert expected.change in fix["change"]
    text = path.read_text()
    assert not [word for word in OUT_OF_PLACE if word in text]


def test_what_was_learned(case: tuple[str, Path, dict[str, Any]]) -> None:
    name, path, document = case
    (line,) = [text for text in (path.parents[2] / "lessons.md").read_text().splitlines() if text.startswith("- ")]
    assert f"broken, step {document['incident']['step']}: " in line
    assert EXPECTED[name].learned in line


def test_the_broken_run_fails_and_the_repaired_one_passes(case: tuple[str, Path, dict[str, Any]]) -> None:
    name, path, document = case
    broken, repaired = path.parents[1], PROGRAMS[name].record(path.parents[2] / "repaired", fixed=True)
    asked = {expectation["kind"]: expectation for expectation in document["verification"]["expectations"]}
    assert asked["gets_past"]["holds_here"] is False
    assert asked["gets_past"]["step"] == document["incident"]["step"]
    assert verify(path, broken).verdict == "fail"
    verification = verify(path, repaired)
    assert verification.verdict == "pass", [checked for checked in verification.checked if checked.verdict != "pass"]


def test_a_repair_that_only_hides_the_bug_fails(tmp_path: Path) -> None:
    run = PROGRAMS["sqrt-at-zero"].record(tmp_path / "broken", fixed=False)
    path = document_files.save(write(run), picture=False).markdown
    with steadyrun.record(tmp_path / "hidden", config={"seed": 0}) as hidden:
        for step in range(60):
            hidden.step(1.0 if step <= BAD else 1e9)  # as a loss is after nan_to_num
    verdicts = {checked.kind: checked.verdict for checked in verify(path, tmp_path / "hidden").checked}
    assert (verdicts["gets_past"], verdicts["median_at_most"]) == ("pass", "fail")
