"""The catalogue of causes, in the order in which they are usual."""

from steadyrun.postmortem.causes.data import REPEATED_BATCH, UNUSUAL_BATCH
from steadyrun.postmortem.causes.form import Hypothesis, Look, weigh
from steadyrun.postmortem.causes.numerics import OPERATION, UPDATE
from steadyrun.postmortem.causes.training import CHANCE, LEARNING_RATE, PRECISION, STATE
from steadyrun.postmortem.causes.walk import EXCEPTION, NAMED_FAULT

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
    EXCEPTION,
)

__all__ = ["CATALOGUE", "Hypothesis", "Look", "weigh"]
