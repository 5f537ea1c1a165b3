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

STEPS = 300
LONGER = {"double-softmax": 600, "overfit": 600}  # the loss must have had its time
SIGNS = {"pass": ".", "fault": "F", "note": "n", "cannot-tell": "?", "not-applicable": "-"}

GOLDEN = """
                          C1 C2 C3 C4 C5 C6   leaf  outcome
healthy                   .. .. *. .* .. ..-  none
bad-init                  nn .. ** .* F. ..-  C5.1  too-wide
uniform-init              nn .. *. .* F. ..-  C5.1  off-centre
head-bias                 n. .. *. .. F* ..-  C5.1  bias
wrong-reduction           nF .. n. .n .. ..-  C1.2  wrong-reduction
gradient-ascent           .F .. ~* ~* .* ..-  C1.2  wrong-sign
degenerate-data           nF .. ~. ~. .. ..-  C1.2  nothing
loaded-checkpoint         F. .. n. .* .. ..-  C1.1  already-trained
loss-mask                 F. .. *. .. .* ..-  C1.1  counts-too-little
no-warmup                 .. Fn n. .. .. ..-  C2.1  no-warmup
scheduler-never-stepped   .. FF n. .. .. ..-  C2.1  never-stepped
rebuilt-optimizer         .. FF n. .. .. .F-  C2.1  never-stepped
zero-lr                   .. FF n. ~. .. ..-  C2.1  zero
step-decay                .. F. n. .. .. ..-  C2.1  discontinuous
short-horizon             .. F. n. .. .. ..-  C2.1  horizon-too-short
long-horizon              .. F. n. .* .. ..-  C2.1  horizon-too-long
scheduler-twice           .. Fn n. .. .. ..-  C2.1  stepped-too-often
scheduler-per-epoch       .. FF n. .. .. ..-  C2.1  stepped-too-seldom
lr-typo                   .. Fn *. .* .. ..-  C2.1  other-curve
slow-warmup               .. nF n. .. .. ..-  C2.2  not-reached
warmup-off-by-one         .. .F n. .. .. ..-  C2.2  not-reached
lr-too-high               .. .. F* ~* .* ..-  C3.1  always-clipping
frozen-parameters         .n .. F. ~. .. -.-  C3.1  frozen
double-softmax            .n .. F. .. .* ..-  C3.1  dead
static-training           .. .. n. F. .. .--  C4.1  static
lr-too-low                .. .. n. F. .. ..-  C4.1  too-slow
unclipped                 .. .. ** F* .* ..-  C4.1  diverging
overfit                   .. .. *. .F .. ..-  C4.2  overfitting
leak                      .. .. n. .F .. ..-  C4.2  leak
broken-normalisation      .. .. n. .. .F ..-  C5.2  growing
one-param-group           .. .. n. .. .. F.-  C6.1  declared-exempt
rebuilt-adam              .. .. n. .. .. .F-  C6.2  rebuilt
no-bias-correction        .. .. n. .* .. .F-  C6.2  no-bias-correction
missing-division          .n .. n. .* .. ..F  C6.3  not-divided
broken-mask               .. .. *. .. .. ..-  none
constant-target           .n .. n. .. .* ..-  none
missing-normalisation     .. .. n. .. .. ..-  none
"""


def rows() -> dict[str, tuple[str, str, str]]:
    found = {}
    for line in GOLDEN.strip().splitlines()[1:]:
        name, *signs, leaf = line.split()[:8]
        found[name] = ("".join(signs), leaf, " ".join(line.split()[8:]))
    return found


def answers(view: steadyrun.RunView) -> str:
    kinds = {a.question.code: a.answer.kind for a in walk(QUESTIONS, Signals(view), {}, go_on=True).path}
    return "".join(SIGNS[kinds[code]] for code in QUESTIONS)


def same(expected: str, found: str) -> bool:
    return all(want in (got, "~") or (want == "*" and got in ".n") for want, got in zip(expected, found, strict=True))


def test_every_fault_has_its_row_and_its_leaf() -> None:
    assert {name: leaf if leaf != "none" else "" for name, (_, leaf, _) in rows().items()} == {
        name: fault.leaf for name, fault in FAULTS.items()
    }


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fault", rows())
def test_fault(tutor_run: Callable[..., steadyrun.RunView], fault: str, seed: int) -> None:
    view = tutor_run(fault, seed=seed, steps=LONGER.get(fault, STEPS))
    signs, leaf, outcome = rows()[fault]
    found = answers(view)
    assert same(signs, found), f"expected {signs}, found {found}"
    report = steadyrun.check(view.root)
    if leaf == "none":
        assert report.leaf is None
    else:
        assert report.leaf is not None
        assert (report.leaf.question.code, report.leaf.answer.outcome) == (leaf, outcome)


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
    assert "F" not in answers(steadyrun.open_run(tmp_path / "run"))
