"""What an importer finds the objective of a log to be decides what a loss that rises is called."""

from __future__ import annotations

import numpy as np
import pytest
from cases import NOISE, STEPS
from synthetic import Synthetic

from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, SUSPECT
from steadyrun.report.report import Report
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import walk

RISES = np.log(512) + STEPS / 60 + 0.05 * NOISE
VALIDATED = ([99, 199, 299, 399, 499, 599], [6.3, 7.5, 9.0, 11.0, 13.0, 15.0])
CONFIG = {"vocab_size": 512, "init": "random"}


def log(objective: str, **series: object) -> Synthetic:
    about = {"step_unit": "step", "format": "csv", "objective": objective}
    return Synthetic(CONFIG, {"imported": about}, state="imported", **series)


def report(synthetic: Synthetic) -> Report:
    return Report("log", walk(QUESTIONS, Signals(synthetic), {}, go_on=True), "imported")


def test_a_loss_that_has_to_fall_and_rises_is_a_fault() -> None:
    assert report(log("falls", loss=RISES, val_loss=VALIDATED)).verdict == FAULT


@pytest.mark.parametrize("objective", ["opposed", "reward", "sum"])
def test_one_that_may_rise_is_not(objective: str) -> None:
    found = report(log(objective, loss=RISES, val_loss=VALIDATED))
    assert found.leaf is None, found.leaf
    assert found.verdict != "healthy"


def test_the_importer_decides_once() -> None:
    """Names that look like a game do not make one if the importer found another objective."""
    named = log("falls", loss=RISES, val_loss=VALIDATED, gen_loss=RISES, disc_loss=RISES)
    assert report(named).verdict == FAULT


def test_success_alone_is_judged() -> None:
    rises, stays = STEPS / 100 + NOISE, 3 + NOISE
    found = report(log("reward", Total_Reward=rises))
    kinds = {asked.question.code: asked.answer.kind for asked in found.walk.path}
    assert {kinds[code] for code in ("C4.1", "D2.1", "D4.1")} == {NOT_APPLICABLE}
    assert found.verdict == "healthy"
    assert report(log("reward", Total_Reward=stays)).verdict == SUSPECT
    assert report(log("reward", Total_Reward=stays[:100])).verdict == CANNOT_TELL
    assert report(log("reward", Total_Reward=rises[:5])).verdict == CANNOT_TELL
    assert report(log("none", Pieces=rises)).verdict == CANNOT_TELL
    assert report(log("reward", Total_Reward=np.where(STEPS < 500, rises, np.nan))).verdict != "healthy"
