"""Job: the catalogue of causes, the most frequent first.
May import: the rest of postmortem.
Entry point: `CATALOGUE`, `weigh`.
Output: hypotheses with what speaks for and against them.
"""

from steadyrun.postmortem.causes.hypothesis import Grounds, Hypothesis, weigh
from steadyrun.postmortem.causes.in_data import REPEATED_BATCH, UNUSUAL_BATCH
from steadyrun.postmortem.causes.in_numerics import OPERATION, UPDATE
from steadyrun.postmortem.causes.in_training import CHANCE, LEARNING_RATE, PRECISION, STATE
from steadyrun.postmortem.causes.in_trial import TRIED_FAULT
from steadyrun.postmortem.causes.in_walk import EXCEPTION, NAMED_FAULT

CATALOGUE = (
    UNUSUAL_BATCH,
    LEARNING_RATE,
    STATE,
    PRECISION,
    REPEATED_BATCH,
    OPERATION,
    UPDATE,
    CHANCE,
    NAMED_FAULT,
    TRIED_FAULT,
    EXCEPTION,
)

__all__ = ["CATALOGUE", "Grounds", "Hypothesis", "weigh"]
