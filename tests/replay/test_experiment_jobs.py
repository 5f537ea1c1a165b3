"""Rows of the table that came from another process."""

import json
import math
from dataclasses import asdict

from steadyrun.replay.experiments.experiment_jobs import _row
from steadyrun.replay.experiments.factors import Factor
from steadyrun.replay.experiments.verdict import RATE, FactorRow
from steadyrun.workers import Done, Job

FACTOR = Factor("lr/3", RATE, "the learning rate divided by 3")
JOB = Job("lr/3", "steadyrun.replay.experiments.experiment_jobs:row_of")


def test_a_row_is_the_same_after_the_way() -> None:
    row = FactorRow("lr/3", RATE, FACTOR.words, math.nan, math.inf, True, "a note", (3, 2), (1, 2))
    assert repr(_row(FACTOR, Done(JOB, json.loads(json.dumps(asdict(row)))))) == repr(row)


def test_a_row_whose_process_died_twice_was_not_tested() -> None:
    row = _row(FACTOR, Done(JOB, failure="its worker was killed (signal 9) twice", retried=1))
    assert (row.factor, row.gone) == ("lr/3", None)
    assert row.note == "not tested: its worker was killed (signal 9) twice"
