"""The number of losses that every question about the loss curve needs."""

from __future__ import annotations

from steadyrun.questions.form import Threshold

LOSSES = Threshold(
    name="losses",
    value=7,
    unit="losses",
    meaning="with fewer, the question cannot be answered",
    seed="",
    decision="by chance, seven points rise or fall throughout in 1 of 5040 orders, six points in 1 of 720: fewer than "
    "seven give no test at one in a thousand. With more points the noise of the curve decides",
)
