"""Job: executes an incident again: proof, hunt, experiments, export.
May import: capture and below; torch.
Entry point: `replay.replay`.
Output: a `Replay`; replay.json and experiments.json in the incident folder.

`steadyrun.replay` is this room and the function that users call: Python puts a package that was imported in the place
of a function of the same name, so the room can be called as well.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    def __call__(self, *given: Any, **options: Any) -> Any:
        from steadyrun.replay.replay import replay

        return replay(*given, **options)


sys.modules[__name__].__class__ = _Room
