"""Every probe of preflight by its code, in the order in which they are tried.

P1 the data, P2 the loaders, P3 the loss and the model, P4 the parameters, P5 the step, P6 learning. A probe is a
question whose answer is found by trying it on live objects.
"""

import sys
import types
from typing import Any

from steadyrun.preflight import (
    p3_2_probabilities,
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
    p6_1_overfit,
    p6_2_depth,
    p6_3_dead_units,
    p6_4_saturated,
)
from steadyrun.questions.form import Question


class _Room(types.ModuleType):
    """`steadyrun.preflight` is this room as soon as it was entered, and must still be the function."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        from steadyrun.preflight.opening import preflight

        return preflight(*args, **options)


sys.modules[__name__].__class__ = _Room

_MODULES = (
    p3_2_probabilities,
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
    p6_1_overfit,
    p6_2_depth,
    p6_3_dead_units,
    p6_4_saturated,
)
_DEEP: tuple[object, ...] = (p6_1_overfit,)  # asked with `deep=True` alone: they train

PROBES: dict[str, Question] = {module.QUESTION.code: module.QUESTION for module in _MODULES}
DEEP: frozenset[str] = frozenset(module.QUESTION.code for module in _MODULES if module in _DEEP)
