"""The golden matrix: what every question answers on real runs, faulty and healthy.

`.` pass, `F` fault, `n` note, `-` not applicable; `*` where pass and note are both right (it depends on the seed),
`~` where a consequence of the fault shows sooner or later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import steadyrun
from steadyrun.questions import QUESTIONS
from steadyrun.signals.run import Signals
from steadyrun.trees.walker import walk
from steadyrun.tutor.faults import FAULTS

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fleet

SIGNS = {"pass": ".", "fault": "F", "note": "n", "cannot-tell": "?", "not-applicable": "-"}
CODES = sorted(QUESTIONS)

GOLDEN = """
"""


def rows() -> dict[str, tuple[str, str, str]]:
    """By fault: the expected signs in order of the codes, the leaf and its outcome."""
    found = {}
    groups = len({code.partition(".")[0] for code in CODES})
    for line in GOLDEN.strip().splitlines()[1:]:
        name, *signs = line.split()[: groups + 1]
        leaf, *outcome = line.split()[groups + 1 :]
        found[name] = ("".join(signs), leaf, " ".join(outcome))
    return found


def answers(view: steadyrun.RunView) -> str:
    kinds = {a.question.code: a.answer.kind for a in walk(QUESTIONS, Signals(view), {}, go_on=True).path}
    return "".join(SIGNS[kinds[code]] for code in CODES)


def differences(expected: str, found: str) -> list[str]:
    pairs = zip(CODES, expected, found, strict=True)
    right = {"*": ".n", "~": "".join(SIGNS.values())}
    return [f"{code}: {want} expected, {got} found" for code, want, got in pairs if got not in right.get(want, want)]


def test_every_fault_has_its_row_and_its_leaf() -> None:
    assert {name: leaf if leaf != "none" else "" for name, (_, leaf, _) in rows().items()} == {
        name: fault.leaf for name, fault in FAULTS.items()
    }


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", rows())
def test_fault(tutor_run: Callable[..., steadyrun.RunView], fault: str, seed: int) -> None:
    view = tutor_run(fault, seed=seed, steps=FAULTS[fault].steps)
    signs, leaf, outcome = rows()[fault]
    assert differences(signs, answers(view)) == []
    report = steadyrun.check(view.root)
    if leaf == "none":
        assert report.leaf is None
    else:
        assert report.leaf is not None
        assert (report.leaf.question.code, report.leaf.answer.outcome) == (leaf, outcome)
    if note := FAULTS[fault].note:
        assert note in {asked.question.code for asked in report.notes}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_live_monitor_agrees(tutor_run: Callable[..., steadyrun.RunView], fault: str) -> None:
    """It told of the faults that the check finds, and of no other; its verdict is the check's."""
    view = tutor_run(fault, seed=1, steps=FAULTS[fault].steps)
    report = steadyrun.check(view.root, all=True)
    faults = [asked.question.code for asked in report.walk.path if asked.answer.kind == "fault"]
    assert sorted(event.fields["code"] for event in view.events("fault")) == sorted(faults)
    [last] = view.events("verdict")
    assert (last.fields["verdict"], last.fields["faults"]) == (report.verdict, faults)
    assert last.fields["leaf"] == (report.leaf.question.code if report.leaf is not None else None)


# The longer ones of the fleet are walked by `make bench`.
SHORT = {"tutor-100-steps", "tutor-layers-1", "tutor-batch-2", "tutor-sgd"}
LONG = {"fine-tuning", "lora"}


def healthy() -> list[object]:
    names = fleet.programs()
    slow = {name for name in names if (name.startswith("tutor-") and name not in SHORT) or name in LONG}
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


@pytest.mark.parametrize("program", healthy())
def test_no_fault_on_a_healthy_run(tmp_path: Path, program: str) -> None:
    fleet.programs()[program](tmp_path / "run")
    found = walk(QUESTIONS, Signals(steadyrun.open_run(tmp_path / "run")), {}, go_on=True)
    assert [(a.question.code, a.answer.message) for a in found.path if a.answer.kind == "fault"] == []
