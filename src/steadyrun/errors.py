"""What steadyrun raises at people.

    SteadyrunError
    ├── FaultFound              raised by `run.step` where `run.watch(…, on_fault="stop")` asked for it
    ├── UsageError              a bad argument: raised before training starts, never inside the loop
    ├── LogError                a log of another tool that cannot be imported
    └── RunDirectoryError       a run directory that cannot be read or written
        └── NewerSchemaError    written by a newer steadyrun than this one

All but the first are also `ValueError`s. A message says what was wrong, where, and what to do next.
"""

from steadyrun.records import Found


class SteadyrunError(Exception):
    """Anything steadyrun raises on purpose."""


class FaultFound(SteadyrunError):  # noqa: N818  not an error of the program: it was asked for
    """The live monitor found a fault and was asked to stop the run at one; `found` says which."""

    def __init__(self, found: Found) -> None:
        super().__init__(f"{found.code} {found.outcome}: {found.message} {found.fix}".rstrip())
        self.found = found


class UsageError(SteadyrunError, ValueError):
    """A bad argument."""


class LogError(SteadyrunError, ValueError):
    """A log that cannot be read; the message says where, and what to do."""


class RunDirectoryError(SteadyrunError, ValueError):
    """A run directory that cannot be read or written."""


class NewerSchemaError(RunDirectoryError):
    """A run directory written in a schema that this version does not know."""
