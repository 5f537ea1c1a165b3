"""When a validation loss past its best matters: a limit for V1.3 and C4.2."""

from __future__ import annotations

from steadyrun.questions.form import Threshold

LOST_PART = Threshold(
    name="part",
    value=0.03,
    unit="fraction of the fall from the first validation",
    meaning="a rise that loses less of that fall does not matter, however large it is relative to the best loss",
    seed="",
    decision="in a public log of a healthy classifier a tiny loss doubled, which lost 1.6% of the fall; the mildest "
    "overfitting labelled by a person lost about 9%; a loss that began at 3.3 times its best and is a tenth above it "
    "has lost 4%",
)
