"""What steadyrun raises at people.

    SteadyrunError
    ├── UsageError              a bad argument: raised before training starts, never inside the loop
    └── RunDirectoryError       a run directory that cannot be read or written
        └── NewerSchemaError    written by a newer steadyrun than this one

Both branches are also `ValueError`s. A message says what was wrong, where, and what to do next.
"""


class SteadyrunError(Exception):
    """Anything steadyrun raises on purpose."""


class UsageError(SteadyrunError, ValueError):
    """A bad argument."""


class RunDirectoryError(SteadyrunError, ValueError):
    """A run directory that cannot be read or written."""


class NewerSchemaError(RunDirectoryError):
    """A run directory written in a schema that this version does not know."""
