"""The live page of a run, served by a process of its own while the script runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from steadyrun.probes.problems import say

_SERVE = "from steadyrun.cli import main; main()"
_GRACE = 5.0  # seconds for the server to end


class LivePage:
    """`steadyrun serve --open` on the folder of the run; its address is printed on stderr."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path) -> None:
        """Start it once; on the first rank alone."""
        if self._server is not None or os.environ.get("RANK", "0") != "0":
            return
        command = [sys.executable, "-c", _SERVE, "serve", str(folder.parent), "--port", "0", "--open"]
        try:
            # A session of its own: Ctrl-C is for the script.
            self._server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)
        except OSError as problem:
            say(f"the live page could not be started: {problem}")

    def stop(self) -> None:
        """End it with the script."""
        server, self._server = self._server, None
        if server is None:
            return
        server.terminate()
        try:
            server.wait(_GRACE)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
