"""Every probe of preflight by its code, in the order in which they are tried.

P1 the data, P2 the loaders, P3 the loss and the model, P4 the parameters, P5 the step, P6 learning. A probe is a
question whose answer is found by trying it on live objects.

`steadyrun.preflight` is this room and the function that users call: Python puts a package that was imported in the
place of a function of the same name, so the room can be called, too.
"""

import sys
from types import ModuleType
from typing import Any

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
    p3_6_causality,
    p3_7_rows,
    p3_8_padding,
    p4_1_not_optimized,
    p4_2_twice,
    p4_3_frozen,
    p4_4_unregistered,
    p4_5_cut_off,
    p4_6_moves,
    p4_7_decay,
    p4_8_tied,
    p5_1_leftover,
    p5_2_clip,
    p5_3_accumulation,
    p5_4_modes,
    p5_5_repeatable,
    p5_6_resume,
    p5_7_precision,
    p5_8_schedule_units,
    p6_1_overfit,
    p6_2_depth,
    p6_3_dead_units,
    p6_4_saturated,
    p6_5_learning_rate,
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
    p3_6_causality,
    p3_7_rows,
    p3_8_padding,
    p4_1_not_optimized,
    p4_2_twice,
    p4_3_frozen,
    p4_4_unregistered,
    p4_5_cut_off,
    p4_6_moves,
    p4_7_decay,
    p4_8_tied,
    p5_1_leftover,
    p5_2_clip,
    p5_3_accumulation,
    p5_4_modes,
    p5_5_repeatable,
    p5_6_resume,
    p5_7_precision,
    p5_8_schedule_units,
    p6_1_overfit,
    p6_2_depth,
    p6_3_dead_units,
    p6_4_saturated,
    p6_5_learning_rate,
)
_DEEP: tuple[object, ...] = (p6_1_overfit, p6_5_learning_rate)  # asked with `deep=True` alone: they train

PROBES: dict[str, Question] = {module.QUESTION.code: module.QUESTION for module in _MODULES}
DEEP: frozenset[str] = frozenset(module.QUESTION.code for module in _MODULES if module in _DEEP)


class _Room(ModuleType):
    def __call__(self, *given: Any, **options: Any) -> Any:
        from steadyrun.preflight.preflight import preflight

        return preflight(*given, **options)


sys.modules[__name__].__class__ = _Room
