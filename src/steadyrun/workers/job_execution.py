"""Runs one job in a worker process. The job and its result are JSON text."""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from steadyrun.errors import UsageError
from steadyrun.workers.job import Done, Job
from steadyrun.workers.job_output import printing_to_stderr

Surroundings = dict[str, Any]
"""Settings that a worker copies from the process that started its job."""


def surroundings(threads: int | None) -> Surroundings:
    """The settings of this process. `threads` is torch's number of threads; None keeps it."""
    here = {"folder": str(Path.cwd()), "arguments": [*sys.argv], "path": [*map(str, sys.path)]}
    return {"process": _this_process(), "threads": threads, **here}


def as_text(job: Job, around: Surroundings) -> str:
    """A job as text for `perform`, with infinity and NaN."""
    try:
        return json.dumps({"function": job.function, "arguments": job.arguments, "around": around})
    except (TypeError, ValueError) as problem:
        raise UsageError(f"the arguments of job {job.key} are not JSON: {problem}") from problem


def perform(text: str) -> str:
    """Run a job. Its exception becomes part of the answer."""
    began = time.perf_counter()
    given = json.loads(text)
    elsewhere = given["around"]["process"] != _this_process()
    try:
        with printing_to_stderr(elsewhere):
            if elsewhere:
                _take_over(given["around"])
            answer = {"result": _called(given)}
    except (Exception, SystemExit) as problem:
        answer = {"failure": in_one_line(problem)}
    answer["seconds"] = time.perf_counter() - began
    try:
        return json.dumps(answer)
    except (TypeError, ValueError) as problem:
        failure = f"its result is not JSON: {problem}"
        return json.dumps({"failure": failure, "seconds": answer["seconds"]})


def outcome(job: Job, answer: str, retried: int = 0) -> Done:
    """The result in an answer of `perform`."""
    return Done(job, **json.loads(answer), retried=retried)


def in_one_line(problem: BaseException) -> str:
    """Type, message, and the file and line that raised it, unless this file did."""
    said = f"{type(problem).__name__}: {' '.join(str(problem).split())}".removesuffix(": ")
    frames: list[traceback.FrameSummary] = traceback.extract_tb(problem.__traceback__)
    frames = [frame for frame in frames if not frame.filename.startswith("<frozen")]
    theirs = bool(frames) and frames[-1].filename != __file__
    return f"{said} ({frames[-1].filename}:{frames[-1].lineno})" if theirs else said


def _called(given: dict[str, Any]) -> Any:
    module, _, name = given["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    if given["around"]["threads"] and (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(given["around"]["threads"])  # for each job, because the one before may have changed it
    return function(**given["arguments"])


def _take_over(around: Surroundings) -> None:
    sys.argv = list(around["arguments"])
    sys.path[:] = dict.fromkeys([*around["path"], *sys.path])
    with suppress(OSError):  # another machine may not have the folder
        os.chdir(around["folder"])


def _this_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
