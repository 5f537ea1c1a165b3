"""Which questions find a fault on real runs, faulty and healthy: those of `golden.toml`, on every machine.

Passes and notes are told apart by the cases with given series.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import Seen, differences, rows, seen, updated

import steadyrun
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import walk
from steadyrun.tutor.faults import OF_ONE_PROCESS
from steadyrun.tutor.faults.tuning import TUNING_FAULTS

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fleet


def test_every_fault_has_its_row_and_its_leaf() -> None:
    leaves = {name: (row.headline or row.leaf).split()[0] for name, row in rows().items()}
    assert leaves == {name: fault.leaf or "none" for name, fault in OF_ONE_PROCESS.items()}


# Those whose leaf or section another row shows, and the longest, are walked by `make bench`.
ALIKE = {
    "overfit",
    "double-softmax",
    "one-param-group",
    "wrong-reduction",
    "scheduler-never-stepped",
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
    *TUNING_FAULTS,
} - {"masked-answers", "swapped-pairs"}


def faults() -> list[object]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in ALIKE else name for name in rows()]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", faults())
def test_fault(tutor_run: Callable[..., steadyrun.RunView], fault: str, seed: int) -> None:
    view = tutor_run(fault, seed=seed, steps=OF_ONE_PROCESS[fault].steps)
    assert differences(rows()[fault], seen(view)) == []
    if note := OF_ONE_PROCESS[fault].note:
        assert note in {asked.question.code for asked in steadyrun.check(view.root).notes}
    the_live_monitor_agrees(view)


def the_live_monitor_agrees(view: steadyrun.RunView) -> None:
    """It told of the faults that the check finds, and of no other; its verdict is the check's."""
    report = steadyrun.check(view.root, everything=True)
    faults = [asked.question.code for asked in report.walk.path if asked.answer.kind == "fault"]
    assert {event.fields["code"] for event in view.events("fault")} == set(faults)
    last = view.events("verdict")[-1]
    assert (last.fields["verdict"], last.fields["faults"]) == (report.verdict, faults)
    assert last.fields["leaf"] == (report.leaf.question.code if report.leaf is not None else None)


# The longer ones of the fleet are walked by `make bench`.
SHORT = {"tutor-100-steps"}
LONG = {"fine-tuning", "lora", "images-2", "tabular-2", "char-lstm-2", "autoencoder", "char-lstm-1", "vae"}


def healthy() -> list[object]:
    names = fleet.programs()
    slow = {name for name in names if (name.startswith("tutor-") and name not in SHORT) or name in LONG}
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


@pytest.mark.parametrize("program", healthy())
def test_no_fault_on_a_healthy_run(tmp_path: Path, program: str) -> None:
    fleet.programs()[program](tmp_path / "run")
    found = walk(QUESTIONS, Signals(steadyrun.open_run(tmp_path / "run")), {}, go_on=True)
    assert [(a.question.code, a.answer.message) for a in found.path if a.answer.kind == "fault"] == []


TABLE = """\
[default]
"D2.2" = "no fault or cannot tell"

# Comments stay.
[a]
leaf = "C3.1 dead"
"C3.1" = "fault"
"C4.1" = "fault"  # for this reason
D4 = "may follow"

# The next one.
[b]
leaf = "none"
"""


def run_of(leaf: str, *faults: str, cannot_tell: tuple[str, ...] = (), audits: tuple[str, ...] = ()) -> Seen:
    kinds = dict.fromkeys(rows()["healthy"].answers, "pass")
    return Seen(
        kinds | dict.fromkeys(faults, "fault") | dict.fromkeys(cannot_tell, "cannot-tell"), leaf, frozenset(audits)
    )


def test_an_update_leaves_a_row_that_fits() -> None:
    update = updated(
        TABLE, "a", [run_of("C3.1 dead", "C3.1", "C4.1", "D4.2"), run_of("D4.1 x", "C3.1", "C4.1", "D4.1")]
    )
    assert (update.text, update.changed, update.undecided) == (TABLE, [], [])


def test_an_update_rewrites_what_runs_agree_on_and_keeps_comments() -> None:
    update = updated(TABLE, "a", [run_of("C1.1 x", "C1.1", cannot_tell=("C6.1",), audits=("A1.2 erased",))] * 2)
    assert update.text == TABLE.replace("C3.1 dead", "C1.1 x").replace(
        """\
"C3.1" = "fault"
"C4.1" = "fault"  # for this reason
""",
        """\
audits = ["A1.2 erased"]
"C1.1" = "fault"
"C4.1" = "no fault"  # for this reason
"C6.1" = "no fault or cannot tell"
""",
    )
    assert update.changed == [
        "C1.1: no fault -> fault",
        "C3.1: fault -> no fault",
        "C4.1: fault -> no fault",
        "C6.1: no fault -> no fault or cannot tell",
        "leaf: C3.1 dead -> C1.1 x",
        "audits: [] -> ['A1.2 erased']",
    ]


def test_an_update_never_writes_may_follow() -> None:
    update = updated(TABLE, "b", [run_of("none"), run_of("C1.1 x", "C1.1")])
    assert (update.text, update.changed) == (TABLE, [])
    assert update.undecided == [
        "C1.1: no fault expected, fault and pass found",
        "leaf: none expected, none and C1.1 x found",
    ]


def test_an_update_adds_the_row_of_a_new_fault() -> None:
    update = updated(TABLE, "c", [run_of("C1.1 x", "C1.1")] * 2)
    assert update.text == TABLE + '\n[c]\nleaf = "C1.1 x"\n"C1.1" = "fault"\n'


@pytest.mark.parametrize(("given", "words"), [('"C9.9" = "fault"', "C9.9"), ('"C1.1" = "F"', "not an answer")])
def test_a_mistyped_table_is_refused(given: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rows(f'[a]\nleaf = "none"\n{given}\n')
