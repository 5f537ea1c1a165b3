"""The frames of running functions: which called which, and their variables, read without leaving anything in them.

Up to Python 3.12 `frame.f_locals` of a function fills a dict that stays with the frame: everything that its variables
held at that moment then lives until the function returns, a step's logits among it. So the variables are taken out of
that dict again. The dict may not be ours alone: `locals()` returns the same one, what `exec` stores stays in it, and a
debugger writes it back into the variables. From Python 3.13 on (PEP 667) nothing is kept, and the dict is a view
through which the variables themselves would be deleted.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType, TracebackType
from typing import Any

_OUR_REFERENCES = 3  # the frame's, the variable here, the argument of `getrefcount`


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame, the one that called it, and so on outwards."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def raised_through(failure: BaseException | TracebackType | None) -> Iterator[FrameType]:
    """The frames that an exception went through, the outermost first."""
    trace = failure.__traceback__ if isinstance(failure, BaseException) else failure
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def variables(frame: FrameType) -> dict[str, Any]:
    """A copy of the names and values of a frame. Do not keep it."""
    code = frame.f_code
    if sys.version_info >= (3, 13) or not code.co_flags & inspect.CO_OPTIMIZED:
        return dict(frame.f_locals)  # of a module or a class it is the namespace itself
    if _calls_locals(code):
        return {}  # to read them would change what that call returned
    frame_locals = frame.f_locals
    copied = dict(frame_locals)
    traced = frame.f_trace is not None or sys.gettrace() is not None
    if not traced and sys.getrefcount(frame_locals) == _OUR_REFERENCES:
        for name in _own_names(code):
            frame_locals.pop(name, None)
    return copied


def variable(frame: FrameType, name: str) -> Any | None:
    """One variable of a frame; None where it has no such variable."""
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and name not in _own_names(frame.f_code):
        return None
    return variables(frame).get(name)


@lru_cache(maxsize=64)
def _calls_locals(code: CodeType) -> bool:
    return "locals" in code.co_names and any(
        instruction.opname.startswith("LOAD_GLOBAL") and instruction.argval == "locals"
        for instruction in dis.get_instructions(code)
    )


def _own_names(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames + code.co_cellvars + code.co_freevars
