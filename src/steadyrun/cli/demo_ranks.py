"""`steadyrun demo --ranks`: the tutor in several processes, started by torch's launcher."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from steadyrun.cli.messages import fail, say

LAUNCHER = "torch.distributed.run"
PROGRAM = "steadyrun.tutor.ranks"
_LOOPBACK = "127.0.0.1"
_GRACE = 45.0  # seconds for the launcher to end its processes


def launch(fault: str, directory: Path, ranks: int, steps: int, seed: int) -> Iterator[dict[str, float]]:
    """Train in `ranks` processes and yield the progress of rank 0; say so if they end with an error."""
    with (
        tempfile.TemporaryFile("w+") as messages,
        _started(_command(fault, directory, ranks, steps, seed), messages) as job,
    ):
        assert job.stdout is not None
        for line in job.stdout:
            if line.startswith("{"):
                yield json.loads(line)
        ended = job.wait()
        messages.seek(0)
        _explain(messages.read().splitlines(), directory, failed=ended != 0)


def _command(fault: str, directory: Path, ranks: int, steps: int, seed: int) -> list[str]:
    launcher = [sys.executable, "-m", LAUNCHER, "--nproc-per-node", str(ranks)]
    address = ["--master-addr", _LOOPBACK, "--master-port", str(_free_port())]
    return [*launcher, *address, "-m", PROGRAM, fault, str(directory), "--steps", str(steps), "--seed", str(seed)]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((_LOOPBACK, 0))
        return int(free.getsockname()[1])


@contextmanager
def _started(command: list[str], messages: IO[str]) -> Iterator[subprocess.Popen[str]]:
    """The launcher in a session of its own, so that it ends its processes once, also after Ctrl-C."""
    job = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=messages, text=True, env=_environment(), start_new_session=True
    )
    try:
        yield job
    finally:
        _end(job)
        if job.stdout is not None:
            job.stdout.close()


def _end(job: subprocess.Popen[str]) -> None:
    """Let the launcher end its processes; it kills after 30 s those that do not end."""
    if job.poll() is None:
        job.send_signal(signal.SIGINT)
        try:
            job.wait(_GRACE)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


def _environment() -> dict[str, str]:
    """One thread per process, which share the cores; gloo on the loopback interface only."""
    names = {name for _, name in socket.if_nameindex()}
    loopback = next((name for name in ("lo", "lo0") if name in names), None)
    return os.environ | {"OMP_NUM_THREADS": "1"} | ({"GLOO_SOCKET_IFNAME": loopback} if loopback else {})


def _explain(messages: list[str], directory: Path, *, failed: bool) -> None:
    """Show what the recording said, and the error of the rank that failed first."""
    for line in dict.fromkeys(line for line in messages if line.startswith("steadyrun: ")):
        say(line)
    if not failed:
        return
    errors = [line for line in messages if line.startswith("[rank") and "Error: " in line]
    problem = errors[0] if errors else "the launcher shows no reason"
    if not (directory / "manifest.json").exists():
        fail(f"the processes ended before they recorded anything: {problem}", "try: steadyrun demo")
    say(f"the processes ended with an error: {problem}")
