"""`steadyrun serve` in a process of its own, readers of its events, and a run that another process writes."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from terminal import PROGRAM

PATIENCE = 300.0

WRITER = """
import sys, steadyrun
first = int(sys.argv[2]) if len(sys.argv) > 2 else None
with steadyrun.record(sys.argv[1], config={"lr_max": 0.1, "vocab_size": 50}, flush_steps=1, first_step=first) as run:
    print("ready", flush=True)
    for line in sys.stdin:
        for loss in line.split():
            run.log(loss=float(loss), lr=0.1, grad_norm=1.0)
        print("written", flush=True)
"""


@dataclass
class Server:
    """A running server: its process, and its address without the token."""

    process: subprocess.Popen[str]
    address: str
    base: str

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        where = urlsplit(self.base)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        status, body = self.get(path)
        assert status == 200, body
        return json.loads(body)


@contextmanager
def serving(root: Path, *options: str) -> Iterator[Server]:
    command = [*PROGRAM, "serve", str(root), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://"), process.communicate()[1]
        parts = urlsplit(address)
        yield Server(process, address, f"http://127.0.0.1:{parts.port}")
    finally:
        process.kill()
        process.communicate()


@dataclass
class Writer:
    """A process that records a run, a value at a time."""

    process: subprocess.Popen[str]

    def write(self, *losses: float) -> None:
        """Returns when the values are on disk."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, losses)) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "written\n"

    def finish(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0

    def crash(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


@contextmanager
def writing(run: Path, first_step: int | None = None) -> Iterator[Writer]:
    arguments = [str(run)] + ([] if first_step is None else [str(first_step)])
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Writer(process)
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        process.wait()


@dataclass
class Reader(threading.Thread):
    """Reads events as a browser does, and keeps their kinds, ids and data, with the time they came."""

    server: Server
    path: str
    events: list[tuple[str, str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        where = urlsplit(self.server.base)
        self._connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE)
        self._connection.request("GET", self.path)
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.start()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        fields: dict[str, str] = {}
        try:
            while raw := self._answer.readline():
                line = raw.decode().rstrip("\r\n")
                if line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif not line and "event" in fields:
                    self.times.append(time.monotonic())
                    self.events.append((fields["event"], fields["id"], fields.get("data", "")))
                    fields = {}
        except (OSError, http.client.HTTPException, ValueError, AttributeError):  # closed, by either side
            pass

    def close(self) -> None:
        """Leave without a word, as a browser does."""
        if self._connection.sock is not None:
            with suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self.join(PATIENCE)
        self._answer.close()
        self._connection.close()


def eventually(check: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """What `check` gives as soon as it gives something."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if found := check():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come about")
