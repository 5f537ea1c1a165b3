"""The inside of the monitor's process: it looks at the run when it is asked, at low priority, and ends with its parent.

Its parent writes lines of JSON to stdin, the first with the run's folder, each further one a request. Every request is
answered by one line on stdout. stdin ends when the parent does, however that ended: a thread waits for it, so that a
look that is under way does not outlive the training.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_NICE = 19  # the lowest priority there is
_OOM_SCORE = "1000"  # if memory runs out this process goes first, not the training
_PATIENCE = 5.0  # seconds between two looks at who the parent is, in case another process holds its end of the pipe


def serve() -> None:
    """Answer requests until the parent is gone."""
    answers = _own_output()
    _step_back()
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    begin = json.loads(_next(requests, os.getppid()))

    from steadyrun.monitor.look import Looker

    looker = Looker(Path(begin["root"]), Path(begin["folder"]))
    while True:
        request = json.loads(_next(requests, begin["parent"]))
        _send(answers, {**request, **_look(looker)})


def _look(looker: Any) -> dict[str, Any]:
    began = time.process_time()
    try:
        result = {"look": looker.look().to_json()}
    except Exception as problem:
        result = {"problem": f"{type(problem).__name__}: {problem}"}
    return {**result, "cpu": time.process_time() - began}


def _own_output() -> int:
    """Where answers go; whatever else is printed here goes nowhere."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _step_back() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training, which ends this process
    with suppress(AttributeError, OSError):
        os.nice(_NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, "ascii")


def _receive(requests: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


def _next(requests: queue.SimpleQueue[bytes], parent: int) -> bytes:
    while True:
        try:
            return requests.get(timeout=_PATIENCE)
        except queue.Empty:
            if os.getppid() != parent:
                os._exit(0)


def _send(answers: int, content: dict[str, Any]) -> None:
    data = memoryview(json.dumps(content).encode() + b"\n")
    while data:
        data = data[os.write(answers, data) :]
