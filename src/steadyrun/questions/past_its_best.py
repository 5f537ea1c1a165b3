"""When a validation loss that is past its best matters: limits that V1.3 and C4.2 share."""

from __future__ import annotations

from steadyrun.questions.form import Threshold

LOST_PART = Threshold(
    name="part",
    value=0.03,
    unit="fraction of the fall from the first validation",
    meaning="a rise that takes back less of it does not matter, however large it is beside the best loss",
    seed="",
    decision="a public log of a healthy classifier doubled a tiny loss and lost 1.6%, the mildest overfitting that a "
    "person labelled lost about 9%; a loss that began at 3.3 times its best and is a tenth above it has lost 4%",
)
