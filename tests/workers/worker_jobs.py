"""Jobs for tests of workers; imported by the workers."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def add(one: float, other: float) -> float:
    return one + other


def odd_numbers(given: float) -> list[float]:
    return [given, math.nan, -math.inf]


def about_me() -> dict[str, Any]:
    import torch

    threads = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    torch.set_num_threads(2)  # the next job does not notice
    return {"process": os.getpid(), "threads": threads, "arguments": sys.argv, "folder": str(Path.cwd())}


def write_line(file: str, line: str) -> None:
    with Path(file).open("a") as written:
        written.write(f"{line}\n")


def neighbours(folder: str, name: str) -> int:
    """How many jobs are in the folder while this one is."""
    mine = Path(folder, name)
    mine.touch()
    count = len([*Path(folder).iterdir()])
    mine.unlink()
    return count


def read_all(fifo: str) -> str:
    return Path(fifo).read_text()


def fail(words: str) -> None:
    raise ValueError(words)


def leave(code: int) -> None:
    os._exit(code)


def not_json() -> object:
    return object()


def prints() -> None:
    print("a job prints")
    os.write(1, b"in C as well\n")


def print_only() -> None:
    print("a job prints")


def hold(fifo: str) -> None:
    """Never ends. Its process, and one that it starts, keep the pipe open as long as they live."""
    with Path(fifo).open("w") as held:
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], pass_fds=(held.fileno(),))
        held.write(f"{os.getpid()}\n")
        held.flush()
        signal.pause()


def hold_once(fifo: str, marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        hold(fifo)
    return "done"


def hold_alone(fifo: str) -> None:
    """Never ends; the pipe is open as long as its process lives."""
    with Path(fifo).open("w") as held:
        held.write(f"{os.getpid()}\n")
        held.flush()
        while True:
            time.sleep(60)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        die()
    return "done"


def hold_once_alone(fifo: str, marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        hold_alone(fifo)
    return "done"
