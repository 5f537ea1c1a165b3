"""A command in a terminal of its own."""

import codecs
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

PIECE = 65536  # bytes read at once, at most
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


class Terminal:
    """`steadyrun` on a terminal with a keyboard, while it runs."""

    def __init__(self, *arguments: str, columns: int = 80, rows: int = 24, **environment: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if name not in _SIZES}
        self._ours, theirs = pty.openpty()
        self.resize(columns, rows)
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=inherited | {"TERM": "xterm-256color", **environment},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self.told = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, text: str, patience: float = 300) -> str:
        """What is told until `text` is in it; what came after the last `until`."""
        start, deadline = len(self.told), time.monotonic() + patience
        while text not in self.told[start:]:
            assert time.monotonic() < deadline, self.told[start:]
            if not self._read(0.1) and self.process.poll() is not None:
                raise AssertionError(self.told[start:])
        return self.told[start:]

    def wait(self, patience: float = 300) -> int:
        """The exit code, with all that is told until then."""
        deadline = time.monotonic() + patience
        while self._read(0.1) or self.process.poll() is None:
            if time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"it does not end: {self.told}")
        os.close(self._ours)
        return self.process.wait()

    def _read(self, patience: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], patience)
        try:
            piece = os.read(self._ours, PIECE) if ready else b""
        except OSError:  # what Linux says when the other end is closed
            piece = b""
        self.told += self._decoder.decode(piece)  # a piece may end within a character
        return bool(piece)


_SIZES = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
