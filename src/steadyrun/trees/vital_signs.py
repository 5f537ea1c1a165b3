"""The vital signs: the evidence for "healthy". Every run is asked, also after a fault."""

from steadyrun.questions import facts
from steadyrun.questions.form import Question, node
from steadyrun.questions.vital_signs import (
    v1_1_loss,
    v1_2_guess,
    v1_3_validation,
    v1_4_gradients,
    v1_5_updates,
    v1_6_data,
    v1_7_schedule,
    v1_8_success,
)

TREE: tuple[Question, ...] = (
    node(facts.QUESTION),
    node(v1_1_loss.QUESTION),
    node(v1_2_guess.QUESTION),
    node(v1_3_validation.QUESTION),
    node(v1_4_gradients.QUESTION),
    node(v1_5_updates.QUESTION),
    node(v1_6_data.QUESTION),
    node(v1_7_schedule.QUESTION),
    node(v1_8_success.QUESTION),
)
