"""What `run.watch(…, capture=…)` takes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from steadyrun.errors import UsageError

_MIB = 2**20
LARGEST = 8_192 * _MIB  # bytes of a state that is captured without being asked for: on disk it is there three times


@dataclass(frozen=True)
class Settings:
    """How much is kept for replay.

    `every`: steps between two rolling checkpoints. `batch_bytes`: memory for the last batches; where they do not reach
    back to the checkpoint before the last, checkpoints come more often. `checkpoint_bytes`: a state larger than this is
    not captured; if it is given, a smaller one is captured even if a step waits for it. `incidents`: how many incident
    folders a run may leave; besides them half as many for mere spikes, and twice as many for those that `run.incident`
    asks for.
    """

    every: int = 200
    batch_bytes: int = 256 * _MIB
    checkpoint_bytes: int | None = None
    incidents: int = 4

    @property
    def largest(self) -> int:
        """Bytes of a state that is still captured."""
        return LARGEST if self.checkpoint_bytes is None else self.checkpoint_bytes

    @property
    def asked(self) -> int:
        return 2 * self.incidents

    @property
    def spikes(self) -> int:
        return max(1, self.incidents // 2)


def settings_from(option: Any) -> Settings | None:
    """`capture=` as users write it: True or nothing for the defaults, False for none, or a dict of changes."""
    if option is False:
        return None
    if option is None or option is True:
        return Settings()
    if not isinstance(option, dict):
        raise UsageError(f"watch: capture must be True, False or a dict of settings, not {option!r}")
    known = {field.name for field in fields(Settings)}
    if unknown := sorted(set(map(str, option)) - known):
        raise UsageError(f"watch: capture has no setting {', '.join(unknown)}; it has: {', '.join(sorted(known))}")
    for name, value in option.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
            raise UsageError(f"watch: capture[{name!r}] must be a number of at least 1, not {value!r}")
    return Settings(**{name: int(value) for name, value in option.items()})
