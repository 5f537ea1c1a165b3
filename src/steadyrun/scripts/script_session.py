"""One recorded execution of a script: attached before it starts, detached when it has ended, then reported."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from steadyrun.probes.problems import say
from steadyrun.scripts.import_watch import when_imported
from steadyrun.scripts.live_page import LivePage
from steadyrun.scripts.recorder import ScriptRecorder, Settings
from steadyrun.signals.script_advice import RECORDED_BY

if TYPE_CHECKING:
    from steadyrun.scripts.main_module import Ending, Target
    from steadyrun.scripts.run_script import RunOptions
    from steadyrun.scripts.training import TrainingFollower

_READERS = ("printed_output", "tracker_calls", "framework_callbacks")  # of this package, each with an `attach`
_LIBRARIES = ("torch", "keras", "jax")  # with the first of them training may begin; before, we import nothing heavy


class Attached:
    """A recorder with everything that fills it; `detach` leaves no trace."""

    def __init__(self, settings: Settings) -> None:
        self.recorder = ScriptRecorder(settings)
        self._follower: TrainingFollower | None = None
        self._undo: list[Callable[[], None]] = []
        self._reading = False

    def attach(self) -> None:
        """Wait for the script to import what it trains with."""
        for name in _LIBRARIES:
            self._undo.append(when_imported(name, self._attach_readers))
        self._undo.append(when_imported("torch", self._follow))

    def look_around(self) -> None:
        """Notice the optimizers that exist already."""
        if self._follower is not None:
            self._follower.look_around()

    def detach(self) -> None:
        """Take everything off, in reverse order."""
        while self._undo:
            self._undo.pop()()
        if self._follower is not None:
            self._follower.stop()
            self._follower.hooks.detach()
            self._follower = None

    def _attach_readers(self) -> None:
        if self._reading:
            return
        self._reading = True
        for name in _READERS:
            full = f"steadyrun.scripts.{name}"
            try:
                if importlib.util.find_spec(full) is not None:
                    self._undo.append(importlib.import_module(full).attach(self.recorder))
            except Exception as problem:
                say(f"{name} could not be attached: {type(problem).__name__}: {problem}")

    def _follow(self) -> None:
        try:
            from steadyrun.scripts.training import TrainingFollower

            self._follower = TrainingFollower(self.recorder)
            self._follower.start()
        except Exception as problem:
            self.recorder.failed(problem)


class Session:
    """A context: inside it the script runs."""

    def __init__(self, target: Target, options: RunOptions) -> None:
        self._target, self._options = target, options
        folder = options.folder or Path("experiments") / target.title
        settings = Settings(
            folder.absolute(),
            options.config,
            options.model,
            options.loss,
            options.resume,
            recorded_by=RECORDED_BY,
            numbered=options.folder is None,
        )
        self._attached = Attached(settings)
        self._page = LivePage() if options.live_page else None
        if self._page is not None:
            self._attached.recorder.on_begin.append(self._page.start)

    def __enter__(self) -> Session:
        self._attached.attach()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _failure: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._attached.detach()
        if self._page is not None:
            self._page.stop()

    def leave_alone(self) -> None:
        """In a forked child: the run belongs to the parent."""
        self._attached.recorder.run = None

    def ended(self, ending: Ending) -> None:
        """Close the run, take everything off and print the report; an error of ours is one line."""
        try:
            self._attached.detach()  # what was printed last is read now
            self._attached.recorder.end(ending.failure)
            from steadyrun.scripts.end_report import print_report

            print_report(self._target, self._options, self._attached.recorder, ending)
        except KeyboardInterrupt:  # Ctrl-C again: the script has ended, and how it ended stays its own
            say("the report was interrupted: steadyrun check shows it")
        except Exception as problem:
            say(f"the report could not be made: {type(problem).__name__}: {problem}")
