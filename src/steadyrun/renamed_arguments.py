"""Old names of arguments: accepted for one version, with a warning that names the new one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from steadyrun.errors import UsageError

_P = ParamSpec("_P")
_Result = TypeVar("_Result")


def renamed(**new_names: str) -> Callable[[Callable[_P, _Result]], Callable[_P, _Result]]:
    """Accept old argument names: `@renamed(all="everything")`. The signature shows the new names alone."""

    def accepting(function: Callable[_P, _Result]) -> Callable[_P, _Result]:
        name = function.__name__

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _Result:
            for old, new in new_names.items():
                if old in kwargs:
                    if new in kwargs:
                        raise UsageError(f"{name}: {old!r} is the old name of {new!r}; give {new!r} alone")
                    kwargs[new] = kwargs.pop(old)
                    text = f"{name}: the argument {old!r} is now {new!r}; the next version accepts {new!r} only"
                    warnings.warn(text, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return call

    return accepting
