"""Every probe of preflight by its code, in the order in which they are tried.

P1 the data, P2 the loaders, P3 the loss and the model, P4 the parameters, P5 the step, P6 learning. A probe is a
question whose answer is found by trying it on live objects.

`steadyrun.preflight` is this room and the function that users call: Python puts a package that was imported in the place
of a function of the same name, so the room can be called, too.
"""

import sys
from types import ModuleType
from typing import Any

from steadyrun.preflight import p3_2_probabilities, p4_1_not_optimized, p6_5_learning_rate
from steadyrun.questions.form import Question

_MODULES = (
    p3_2_probabilities,
    p4_1_not_optimized,
    p6_5_learning_rate,
)
_DEEP: tuple[object, ...] = (p6_5_learning_rate,)  # asked with `deep=True` alone: they train

PROBES: dict[str, Question] = {module.QUESTION.code: module.QUESTION for module in _MODULES}
DEEP: frozenset[str] = frozenset(module.QUESTION.code for module in _MODULES if module in _DEEP)


class _Room(ModuleType):
    def __call__(self, *given: Any, **options: Any) -> Any:
        from steadyrun.preflight.opening import preflight

        return preflight(*given, **options)


sys.modules[__name__].__class__ = _Room
