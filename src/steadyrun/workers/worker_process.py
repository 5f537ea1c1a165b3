"""The loop of a local worker process."""

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
    """Run the jobs that arrive through the pipe until its other end closes."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C goes to the parent, which ends this process and its children
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
    """Exit with the parent, even during a job, because a killed parent cannot end this process."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    with suppress(ProcessLookupError, AttributeError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
