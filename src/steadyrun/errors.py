"""Exceptions that steadyrun raises.

    SteadyrunError
    ├── FaultFound              raised by `run.step` after `run.watch(…, on_fault="stop")`
    ├── UsageError              a bad argument: raised before training starts, never inside the loop
    ├── LogError                a log of another tool that cannot be imported
    └── RunDirectoryError       a run directory that cannot be read or written
        └── NewerSchemaError    written by a newer steadyrun than this one

All but the first are also `ValueError`s. A message states what is wrong, where, and what to do next.
"""

from steadyrun.records import Found


class SteadyrunError(Exception):
    """Base class of everything that steadyrun raises on purpose."""


class FaultFound(SteadyrunError):  # noqa: N818  not an error of the program: it was asked for
    """Fault that stops a run watched with `on_fault="stop"`; `found` is the `steadyrun.Found`."""

    def __init__(self, found: Found) -> None:
        super().__init__(f"{found.code} {found.outcome}: {found.message} {found.fix}".rstrip())
        self.found = found


class UsageError(SteadyrunError, ValueError):
    """Bad argument: the message names it and says what to give instead."""


class LogError(SteadyrunError, ValueError):
    """Log of another tool that cannot be imported; the message says where, and what to do."""


class RunDirectoryError(SteadyrunError, ValueError):
    """Run directory that cannot be read or written."""


class NewerSchemaError(RunDirectoryError):
    """Run directory written by a newer version of steadyrun than this one."""
