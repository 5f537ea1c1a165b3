"""A command in a terminal of its own."""

import os
import pty
import subprocess
import sys

PROGRAM = [sys.executable, "-c", "from steadyrun.cli import main; main()"]


def in_terminal(*arguments: str, columns: int = 70, **environment: str) -> tuple[int, str]:
    """Exit code and stdout of `steadyrun` on a terminal that can show colours."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    settings = {"TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*PROGRAM, *arguments], stdout=theirs, env=inherited | settings)
    os.close(theirs)
    told = b""
    try:
        while piece := os.read(ours, 65536):
            told += piece
    except OSError:  # what Linux says when the other end is closed
        pass
    os.close(ours)
    return process.wait(), told.decode()
