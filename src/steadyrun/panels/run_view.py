"""`steadyrun.open_run`: a run directory as users hold it, which can show its panels."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from steadyrun.store.reader import RunReader, run_folder

if TYPE_CHECKING:
    from steadyrun.panels.notebook import Dashboard


def open_run(path: str | os.PathLike[str]) -> RunView:
    """Open a run directory for reading; a clear error where it is none."""
    return RunView(run_folder(path))


class RunView(RunReader):
    """What a run directory holds. Every call reads the files as they are now."""

    def dashboard(self) -> Dashboard:
        """The seven panels and the verdict, as a `steadyrun.Dashboard`; a notebook shows it."""
        from steadyrun.panels.notebook import dashboard

        return dashboard(self.root)
