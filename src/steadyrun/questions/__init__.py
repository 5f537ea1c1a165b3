"""Every question of the trees, by its code, in the order of the walk."""

from steadyrun.questions import (
    c1_1_initial_loss,
    c1_2_first_gradient,
    c2_1_schedule,
    c2_2_end_of_warmup,
    c3_1_gradient_level,
    c3_2_gradient_spikes,
    c4_1_loss_falls,
    c4_2_generalisation,
    c5_1_initial_weights,
    c5_2_activations,
    c6_1_decay_groups,
    c6_2_moments,
    c6_3_accumulation,
)
from steadyrun.questions.form import Question

_MODULES = (
    c1_1_initial_loss,
    c1_2_first_gradient,
    c2_1_schedule,
    c2_2_end_of_warmup,
    c3_1_gradient_level,
    c3_2_gradient_spikes,
    c4_1_loss_falls,
    c4_2_generalisation,
    c5_1_initial_weights,
    c5_2_activations,
    c6_1_decay_groups,
    c6_2_moments,
    c6_3_accumulation,
)

QUESTIONS: dict[str, Question] = {module.QUESTION.code: module.QUESTION for module in _MODULES}
