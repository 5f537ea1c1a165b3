"""steadyrun records a training run, finds out why it went wrong, and shows what to change.

with steadyrun.record("experiments/my-run", config=config) as run:
    run.watch(model, optimizer, scheduler=scheduler)
    ...
    run.step(loss, batch=batch)

print(steadyrun.check("experiments/my-run"))
steadyrun.open_run("experiments/my-run").series("loss")
steadyrun.open_run("experiments/my-run").dashboard()
steadyrun.replay("experiments/my-run", "train:task")
steadyrun.trial("train:task", run="experiments/my-run")
steadyrun.look(loader, tokenizer)
steadyrun.postmortem("experiments/my-run")
steadyrun.verify("experiments/my-run/postmortems/step-0000312.md", "experiments/fixed")
steadyrun.import_log("trainer_state.json", "experiments/theirs")
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from steadyrun.version import __version__ as __version__

if TYPE_CHECKING:
    from steadyrun.errors import FaultFound, LogError, NewerSchemaError, RunDirectoryError, SteadyrunError, UsageError
    from steadyrun.importers.import_log import import_log
    from steadyrun.panels.board import RunView, open_run
    from steadyrun.panels.notebook import ComparedRuns, Dashboard, compare, dashboard
    from steadyrun.postmortem.document_files import postmortem
    from steadyrun.postmortem.verification import verify
    from steadyrun.program.task import Task
    from steadyrun.recording.record import record
    from steadyrun.recording.replay import replay
    from steadyrun.recording.run import Run
    from steadyrun.records import Alerts, Dropped, Event, Forward, Found, Series
    from steadyrun.replay.result import Replay
    from steadyrun.report.look import Look, look
    from steadyrun.report.preflight import preflight
    from steadyrun.report.report import Report, check
    from steadyrun.signals.clipping import suggest_clip
    from steadyrun.trial.result import Trial
    from steadyrun.trial.trial import trial


# Names are imported on first use, so `import steadyrun` costs milliseconds in every process that has it.
_HOMES = {
    "record": "steadyrun.recording.record",
    "Run": "steadyrun.recording.run",
    "open_run": "steadyrun.panels.board",
    "RunView": "steadyrun.panels.board",
    "check": "steadyrun.report.report",
    "dashboard": "steadyrun.panels.notebook",
    "Dashboard": "steadyrun.panels.notebook",
    "compare": "steadyrun.panels.notebook",
    "ComparedRuns": "steadyrun.panels.notebook",
    "postmortem": "steadyrun.postmortem.document_files",
    "verify": "steadyrun.postmortem.verification",
    "Task": "steadyrun.program.task",
    "Replay": "steadyrun.replay.result",
    "replay": "steadyrun.recording.replay",
    "preflight": "steadyrun.report.preflight",
    "look": "steadyrun.report.look",
    "Look": "steadyrun.report.look",
    "trial": "steadyrun.trial.trial",
    "Trial": "steadyrun.trial.result",
    "import_log": "steadyrun.importers.import_log",
    "Report": "steadyrun.report.report",
    "suggest_clip": "steadyrun.signals.clipping",
    "Alerts": "steadyrun.records",
    "Forward": "steadyrun.records",
    "Series": "steadyrun.records",
    "Event": "steadyrun.records",
    "Found": "steadyrun.records",
    "Dropped": "steadyrun.records",
    "SteadyrunError": "steadyrun.errors",
    "FaultFound": "steadyrun.errors",
    "UsageError": "steadyrun.errors",
    "LogError": "steadyrun.errors",
    "RunDirectoryError": "steadyrun.errors",
    "NewerSchemaError": "steadyrun.errors",
}

__all__ = [
    "Alerts",
    "ComparedRuns",
    "Dashboard",
    "Dropped",
    "Event",
    "FaultFound",
    "Forward",
    "Found",
    "LogError",
    "Look",
    "NewerSchemaError",
    "Replay",
    "Report",
    "Run",
    "RunDirectoryError",
    "RunView",
    "Series",
    "SteadyrunError",
    "Task",
    "Trial",
    "UsageError",
    "check",
    "compare",
    "dashboard",
    "import_log",
    "look",
    "open_run",
    "postmortem",
    "preflight",
    "record",
    "replay",
    "suggest_clip",
    "trial",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'steadyrun' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def load_ipython_extension(shell: Any) -> None:
    """Record the trainings of the cells that follow: `%load_ext steadyrun`."""
    import importlib

    importlib.import_module("steadyrun.scripts.notebook_cells").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """End the recording: `%unload_ext steadyrun`."""
    import importlib

    importlib.import_module("steadyrun.scripts.notebook_cells").unload(shell)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Surface(ModuleType):
    """`postmortem`, `preflight`, `replay` and `trial` are functions here, and rooms of the same name are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Surface
