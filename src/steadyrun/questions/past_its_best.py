"""When a validation loss that is past its best matters: limits that V1.3 and C4.2 share."""

from __future__ import annotations

from steadyrun.questions.form import Threshold

LOST_PART = Threshold(
    name="part",
    value=0.05,
    unit="fraction of the fall from the first validation",
    meaning="a rise that takes back less of it does not matter, however large it is beside the best loss",
    seed="",
    decision="a classifier at 1% of its first validation loss doubles it and loses 1.6%; a language model that "
    "overfits by a tenth from its untrained loss on loses 4% to 6%, and public logs of overfitting 20% and more",
)
