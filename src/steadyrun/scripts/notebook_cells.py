"""`%load_ext steadyrun`: record the trainings of a notebook's cells, as `steadyrun run` records those of a script."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrun.probes.problems import say
from steadyrun.scripts.recorder import Settings
from steadyrun.scripts.run_script import OFF, switched_off
from steadyrun.scripts.script_session import Attached

if TYPE_CHECKING:
    from steadyrun.report.report import Report

MAGIC = "steadyrun"
_sessions: dict[int, NotebookSession] = {}  # by the id of the shell


class NotebookSession:
    """What is attached to a notebook from `%load_ext` to `%unload_ext`."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._attached = Attached(Settings(Path("experiments/notebook").absolute(), numbered=True))
        self._shown: tuple[Path | None, int] = (None, 0)

    def start(self) -> None:
        self._attached.attach()
        self._attached.look_around()
        self._shell.events.register("pre_run_cell", self._cell_begins)
        self._shell.events.register("post_run_cell", self._cell_ended)
        self._shell.register_magic_function(self._magic, "line", MAGIC)
        atexit.register(self.stop)

    def stop(self) -> None:
        atexit.unregister(self.stop)
        self._attached.detach()
        self._attached.recorder.end()
        self._shell.events.unregister("pre_run_cell", self._cell_begins)
        self._shell.events.unregister("post_run_cell", self._cell_ended)
        self._shell.magics_manager.magics["line"].pop(MAGIC, None)

    @property
    def _folder(self) -> Path | None:
        """The run directory of the last training."""
        recorder = self._attached.recorder
        if recorder.run is not None and recorder.step:
            return recorder.run.path
        return recorder.folders[-1] if recorder.folders else None

    def _cell_begins(self, _info: object = None) -> None:
        for action in self._attached.recorder.on_cell:
            action()

    def _cell_ended(self, _result: object = None) -> None:
        """Write what the cell recorded; one line after a cell that trained."""
        recorder = self._attached.recorder
        if recorder.run is None or not recorder.step or (recorder.run.path, recorder.step) == self._shown:
            return
        recorder.run.flush()
        self._shown = (recorder.run.path, recorder.step)
        say(f"{recorder.step} steps recorded in {_short(recorder.run.path)}; %{MAGIC} shows the report")

    def _magic(self, line: str = "") -> Report | None:
        """Show the report of the last training, or of the run directory that is named."""
        from steadyrun.report.report import check

        folder = Path(line.strip()) if line.strip() else self._folder
        if folder is None:
            say("no training is recorded yet: run a cell that trains")
            return None
        if self._attached.recorder.run is not None:
            self._attached.recorder.run.flush()
        return check(_short(folder))


def load(shell: Any) -> None:
    """Start recording; `STEADYRUN=off` leaves the notebook alone."""
    if switched_off():
        say(f"not recording: {OFF}=off is set")
    elif id(shell) not in _sessions:
        _sessions[id(shell)] = NotebookSession(shell)
        _sessions[id(shell)].start()


def unload(shell: Any) -> None:
    """End the run and leave no trace in the notebook."""
    session = _sessions.pop(id(shell), None)
    if session is not None:
        session.stop()


def _short(folder: Path) -> str:
    try:
        return str(folder.relative_to(Path.cwd()))
    except ValueError:
        return str(folder)
