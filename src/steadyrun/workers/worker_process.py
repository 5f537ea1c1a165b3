"""The inside of a local worker: it does jobs until nobody has one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

from steadyrun.workers.job_execution import perform


def work(pipe: Connection) -> None:
    """Do what comes through the pipe, until its other end is closed."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the parent, which ends this process and all that it has started
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with suppress(OSError):  # no stderr
        os.dup2(2, 1)
    sys.stdout = sys.stderr
    while True:
        try:
            text = pipe.recv_bytes().decode()
        except (EOFError, OSError):
            return
        pipe.send_bytes(perform(text).encode())


def _leave_with_parent() -> None:
    """Also in the middle of a job: a parent that was killed cannot end this process."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    with suppress(ProcessLookupError, AttributeError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
