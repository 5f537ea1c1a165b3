"""Every probe of preflight by its code, in the order in which they are tried.

P1 the data, P2 the loaders, P3 the loss and the model, P4 the parameters, P5 the step, P6 learning. A probe is a
question whose answer is found by trying it on live objects.
"""

from steadyrun.preflight import (
    p1_1_token_range,
    p1_2_label_range,
    p1_3_alignment,
    p1_4_padding,
    p1_5_end_of_text,
    p1_6_class_order,
    p1_7_duplicates,
    p1_8_leak,
    p1_9_tokenizer,
    p2_1_worker_clones,
    p2_2_order,
    p2_3_validation_twice,
    p3_1_broadcast,
    p3_2_probabilities,
    p3_3_initial_loss,
    p3_4_smoothing,
    p3_5_inputs_matter,
    p4_1_not_optimized,
    p5_8_schedule_units,
)
from steadyrun.questions.form import Question

_MODULES = (
    p1_1_token_range,
    p1_2_label_range,
    p1_3_alignment,
    p1_4_padding,
    p1_5_end_of_text,
    p1_6_class_order,
    p1_7_duplicates,
    p1_8_leak,
    p1_9_tokenizer,
    p2_1_worker_clones,
    p2_2_order,
    p2_3_validation_twice,
    p3_1_broadcast,
    p3_2_probabilities,
    p3_3_initial_loss,
    p3_4_smoothing,
    p3_5_inputs_matter,
    p4_1_not_optimized,
    p5_8_schedule_units,
)
_DEEP: tuple[object, ...] = ()  # asked with `deep=True` alone: they train

PROBES: dict[str, Question] = {module.QUESTION.code: module.QUESTION for module in _MODULES}
DEEP: frozenset[str] = frozenset(module.QUESTION.code for module in _MODULES if module in _DEEP)
