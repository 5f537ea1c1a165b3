"""How many losses a record must have: a limit of every question about the loss curve."""

from __future__ import annotations

from steadyrun.questions.form import Threshold

LOSSES = Threshold(
    name="losses",
    value=20,
    unit="losses",
    meaning="with fewer the question cannot be answered",
    seed="",
    decision="a shorter curve has neither a level nor noise that can be measured",
)
