"""Sends the output of jobs to stderr, because stdout is the output of a command."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO, cast

_thread = threading.local()


class _ByThread:
    """A stdout that writes to stderr in threads that run a job."""

    def __init__(self, usual: TextIO) -> None:
        self._usual = usual

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if getattr(_thread, "has_job", False) else self._usual, name)


@contextmanager
def jobs_in_this_process() -> Iterator[None]:
    """Redirect the output of threads that run a job; other threads print as before."""
    with redirect_stdout(cast(TextIO, _ByThread(sys.stdout))):
        yield


@contextmanager
def printing_to_stderr(elsewhere: bool) -> Iterator[None]:
    """Redirect the output of one job; `elsewhere` if the process is a worker."""
    if elsewhere and threading.current_thread() is threading.main_thread():
        with redirect_stdout(sys.stderr):
            yield
        return
    _thread.has_job = True
    try:
        yield
    finally:
        _thread.has_job = False
