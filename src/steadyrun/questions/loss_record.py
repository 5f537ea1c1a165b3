"""How many losses a record must have: a limit of every question about the loss curve."""

from __future__ import annotations

from steadyrun.questions.form import Threshold

LOSSES = Threshold(
    name="losses",
    value=7,
    unit="losses",
    meaning="with fewer the question cannot be answered",
    seed="",
    decision="seven points that rise or fall throughout are one order of 5040, six one of 720: with fewer no test is "
    "certain to one in a thousand. Beyond that the noise of the curve itself decides, which is wider for few points",
)
