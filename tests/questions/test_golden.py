"""The golden matrix: which questions find a fault on real runs, faulty and healthy, on every machine.

`F` a fault, `.` none, `+` none, or it cannot be told, `~` where a fault may follow: runs that diverge go other ways on
other CPUs, and a value next to its limit lies on either side of it. Passes and notes are held apart by the cases with
given series.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import steadyrun
from steadyrun.questions import QUESTIONS
from steadyrun.signals.run_signals import Signals
from steadyrun.trees.walker import walk
from steadyrun.tutor.faults import FAULTS

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fleet

SIGNS = {"pass": ".", "fault": "F", "note": "n", "cannot-tell": "?", "not-applicable": "-"}
CODES = sorted(code for code in QUESTIONS if code[0] in "CDS" and code not in {"S1.4", "S1.5"})  # never a fault

GOLDEN = """
                              C1 C2 C3 C4 C5 C6  D1  D2   D3  D4   S1  S2 S3 S4 S5 S6 S7  leaf  outcome
healthy                       .. .. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  none
bad-init                      .. .. .. .. F. ... ... .+++ ... .... ... .. .. .. .. .. ..  C5.1  too-wide
no-warmup                     .. F. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C2.1  no-warmup
broken-mask                   .. .. .. .. .. ... ... .+++ ... .... F.. .. .. .. .. .. ..  S1.1  sees-the-answer
uniform-init                  .. .. .. .. F. ... ... .+++ ... .... ... .. .. .. .. .. ..  C5.1  off-centre
head-bias                     .. .. .. .. F. ... ... .+++ ... .... ... .. .. .. .. .. ..  C5.1  bias
wrong-reduction               .F .. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C1.2  wrong-reduction
degenerate-data               .F .. ~. ~. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C1.2  nothing
constant-target               .. .. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  none
loaded-checkpoint             F. .. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C1.1  already-trained
scheduler-never-stepped       .. FF .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C2.1  never-stepped
rebuilt-optimizer             .. FF .. .. .. .F. ... .+++ ... .... ... .. .. .. .. .. ..  C2.1  never-stepped
zero-lr                       .. FF .. ~. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C2.1  zero
step-decay                    .. F. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C2.1  discontinuous
short-horizon                 .. F. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C2.1  horizon-too-short
long-horizon                  .. F. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C2.1  horizon-too-long
scheduler-twice               .. F. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C2.1  stepped-too-often
scheduler-per-epoch           .. FF .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C2.1  stepped-too-seldom
slow-warmup                   .. .F .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C2.2  not-reached
warmup-off-by-one             .. .F .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C2.2  not-reached
lr-typo                       .. F. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C2.1  other-curve
lr-too-high                   .. .. F~ ~~ ~~ ~~~ ~~~ ~~~~ ~~~ ~~~~ ~~~ ~~ ~~ ~~ ~~ ~~ ~~  C3.1  always-clipping
loss-mask                     F. .. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C1.1  counts-too-little
frozen-parameters             .. .. F. ~. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C3.1  frozen
double-softmax                .. .. ~. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C3.1  dead
static-training               .. .. .. F. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C4.1  static
gradient-ascent               .F .. ~~ ~~ ~~ ~~~ ~~~ ~~~~ ~~~ ~~~~ ~~~ ~~ ~~ ~~ ~~ ~~ ~~  C1.2  wrong-sign
unclipped                     .. .. ~~ F~ ~~ ~~~ ~~~ ~~~~ ~~~ ~~~~ ~~~ ~~ ~~ ~~ ~~ ~~ ~~  C4.1  diverging
lr-too-low                    .. .. .. F. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C4.1  too-slow
overfit                       .. .. .. .F .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C4.2  overfitting
leak                          .. .. .. .F .. ... ... .+++ ... .... ... .. .. .. .. .. ..  C4.2  leak
missing-normalisation         .. .. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .. ..  none
broken-normalisation          .. .. .. .. .F ... ... .+++ ... .... ... .. .. .. .. .. ..  C5.2  growing
one-param-group               .. .. .. .. .. F.. ... .+++ ... .... ... .. .. .. .. .. ..  C6.1  declared-exempt
rebuilt-adam                  .. .. .. .. .. .F. ... .+++ ... .... ... .. .. .. .. .. ..  C6.2  rebuilt
no-bias-correction            .. .. .. .. .. .F. ... .+++ ... .... ... .. .. .. .. .. ..  C6.2  no-bias-correction
missing-division              .. .. .. .. .. ..F ... .+++ ... .... ... .. .. .. .. .. ..  C6.3  not-divided
log-of-zero                   .. .. .. .. .. ... ..F .+++ ... .... ... .. .. .. .. .. ..  D1.3  loss-first
infinite-embedding-gradient   .. .. .. .. .. ... ..F .+++ ... .... ... .. .. .. .. .. ..  D1.3  gradient-first
rare-token-spike              .. .. .. .. .. ... ... .... ... .... ... .. .. .. .. .. ..  none
corrupt-batch                 .. .. .. .. .. ... ... .... ... .... ... .. .. .. .. .. ..  A5.4  degenerate
lr-jump                       .. .. .. .. .. ... ... .+F+ ... .... ... .. .. .. .. .. ..  D2.3  lr-jump
duplicate-batch               .. .. .. .. .. ... ... ..F. ... .... ... .. .. .. .. .. ..  D2.3  duplicate-batch
persistent-elevation          .. .. .. .. .. ... ... ...F ... .... ... .. .. .. .. .. ..  D2.4  elevated
optimizer-reset               .. .. .. .. .. ... ... .+F+ ... .... ... .. .. .. .. .. ..  D2.3  optimizer-reset
fp16-overflow-constant-scale  .+ .. .. .. .. ... ... .+++ .F. .... ... .. .. .. .. .. ..  D3.2  constant
fp16-collapse                 .. .. .. .. .. ... ... .+++ .F. .... ... .. .. .. .. .. ..  D3.2  collapsed
inverted-cosine               .. FF .. .. .. ... ... .+++ ... .F.. ... .. .. .. .. .. ..  C2.1  upside-down
decay-too-high                .. .. .. .. .. ... ... .+++ ... ..F. ... .. .. .. .. .. ..  D4.3  shrinking
decay-absent                  .. .. .. .. .. ... ... .+++ ... .... ... .. .. .. .F .. ..  S5.2  declared-decay-missing
upward-drift                  .. .. .. .. .. ... ... .+++ ... ...F ... .. .. .. .. .. ..  D4.4  diverging
stuck-head                    .. .. .. .. .. ... ... .+++ ... .... ... .. .. .. .. .F ..  S6.2  stuck
dead-layer                    .. .. .. .. .. ... ... .+++ ... .... ... .. .. .F .. .. ..  S4.2  dead
dead-units                    .. .. .. .. .. ... ... .+++ ... .... ... .. .. .. .. F. ..  S6.1  silent
"""


# What an audit proves of a run; in the others none finds a fault.
AUDITED: dict[str, set[str]] = {
    "double-softmax": {"A3.1 squashed-twice"},
    "static-training": {"A1.2 erased"},
    "corrupt-batch": {"A5.4 degenerate"},
}


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


def audits(view: steadyrun.RunView) -> set[str]:
    """The audits that find a fault, and those that failed."""
    path = walk(QUESTIONS, Signals(view), {}, go_on=True).path
    bad = [
        a for a in path if a.question.code not in CODES and (a.answer.kind == "fault" or a.answer.outcome == "failed")
    ]
    return {f"{a.question.code} {a.answer.outcome}" for a in bad}


def differences(expected: str, found: str) -> list[str]:
    pairs = zip(CODES, expected, found, strict=True)
    right = {"F": "F", ".": ".n-", "+": ".n-?", "~": "".join(SIGNS.values())}
    return [f"{code}: {want} expected, {got} found" for code, want, got in pairs if got not in right[want]]


def test_every_fault_has_its_row_and_its_leaf() -> None:
    assert {name: leaf if leaf != "none" else "" for name, (_, leaf, _) in rows().items()} == {
        name: fault.leaf for name, fault in FAULTS.items()
    }


# Those whose leaf or section another row shows, and the longest, are walked by `make bench`.
ALIKE = {
    "overfit",
    "fp16-collapse",
    "broken-mask",
    "dead-units",
    "rare-token-spike",
    "upward-drift",
    "missing-division",
    "loaded-checkpoint",
    "persistent-elevation",
    "decay-too-high",
    "corrupt-batch",
    "decay-absent",
    "stuck-head",
    "rebuilt-adam",
    "lr-too-low",
    "slow-warmup",
    "no-warmup",
    "rebuilt-optimizer",
    "zero-lr",
    "step-decay",
    "long-horizon",
    "scheduler-per-epoch",
    "lr-typo",
    "inverted-cosine",
    "uniform-init",
    "head-bias",
    "loss-mask",
    "degenerate-data",
    "gradient-ascent",
    "warmup-off-by-one",
    "frozen-parameters",
    "unclipped",
    "no-bias-correction",
    "fp16-overflow-constant-scale",
    "infinite-embedding-gradient",
    "constant-target",
    "missing-normalisation",
    "optimizer-reset",
    "duplicate-batch",
    "short-horizon",
    "scheduler-twice",
    "broken-normalisation",
    "dead-layer",
}


def faults() -> list[object]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in ALIKE else name for name in rows()]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", faults())
def test_fault(tutor_run: Callable[..., steadyrun.RunView], fault: str, seed: int) -> None:
    view = tutor_run(fault, seed=seed, steps=FAULTS[fault].steps)
    signs, leaf, outcome = rows()[fault]
    assert differences(signs, answers(view)) == []
    assert audits(view) == AUDITED.get(fault, set())
    report = steadyrun.check(view.root)
    maybe = {code for code, sign in zip(CODES, signs, strict=True) if sign == "~"}
    if leaf == "none":
        assert report.leaf is None
    else:
        assert report.leaf is not None
        found = (report.leaf.question.code, report.leaf.answer.outcome)
        assert found == (leaf, outcome) or {found[0], leaf} & maybe
    if note := FAULTS[fault].note:
        assert note in {asked.question.code for asked in report.notes}
    the_live_monitor_agrees(view)


def the_live_monitor_agrees(view: steadyrun.RunView) -> None:
    """It told of the faults that the check finds, and of no other; its verdict is the check's."""
    report = steadyrun.check(view.root, all=True)
    faults = [asked.question.code for asked in report.walk.path if asked.answer.kind == "fault"]
    assert {event.fields["code"] for event in view.events("fault")} == set(faults)
    last = view.events("verdict")[-1]
    assert (last.fields["verdict"], last.fields["faults"]) == (report.verdict, faults)
    assert last.fields["leaf"] == (report.leaf.question.code if report.leaf is not None else None)


# The longer ones of the fleet are walked by `make bench`.
SHORT = {"tutor-100-steps"}
LONG = {"fine-tuning", "lora", "images-2", "tabular-2", "char-lstm-2"}


def healthy() -> list[object]:
    names = fleet.programs()
    slow = {name for name in names if (name.startswith("tutor-") and name not in SHORT) or name in LONG}
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


@pytest.mark.parametrize("program", healthy())
def test_no_fault_on_a_healthy_run(tmp_path: Path, program: str) -> None:
    fleet.programs()[program](tmp_path / "run")
    found = walk(QUESTIONS, Signals(steadyrun.open_run(tmp_path / "run")), {}, go_on=True)
    assert [(a.question.code, a.answer.message) for a in found.path if a.answer.kind == "fault"] == []
