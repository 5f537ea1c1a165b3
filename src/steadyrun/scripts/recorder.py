"""The run of a script: begun when training begins, filled by what is found, printed and logged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrun.probes.problems import say

if TYPE_CHECKING:
    from steadyrun.recording.run import Run
    from steadyrun.scripts.discovery import TrainedObjects

_MOST_WAITING = 200  # values that a script prints or logs before its first step


@dataclass(frozen=True)
class Settings:
    """What the user chose for a run."""

    folder: Path  # a number is added if it holds another training
    config: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    loss: str | None = None
    resume: bool = False
    recorded_by: str = ""  # the command, which the manifest names
    numbered: bool = False  # the folder's number needs no word, since nobody named the folder


class ScriptRecorder:
    """Owns the `steadyrun.Run` of a script, which exists once training has begun."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.active = True
        self.step = 0  # optimizer steps recorded so far, of this training
        self.stepped = False  # whether an optimizer stepped, recorded or not
        self.run: Run | None = None
        self.folders: list[Path] = []  # of the runs that hold a step
        self.taken_over_by = ""
        self.on_take_over: list[Callable[[], None]] = []
        self.on_begin: list[Callable[[Path], None]] = []
        self.own_names: set[str] = set()  # series of parts: what a script reports under such a name is known already
        self.on_end: list[Callable[[], None]] = []  # before a run closes: what was reported last is still its own
        self.on_cell: list[Callable[[], None]] = []  # before each cell of a notebook
        self._created = self._beginning = False
        self._first = 0  # number of the first step of this training
        self._waiting: list[Callable[[], None]] = []
        self._said: set[str] = set()
        self._pid = os.getpid()

    @property
    def path(self) -> Path:
        """The folder that a framework's callback records into instead."""
        return self.settings.folder

    @property
    def config(self) -> Mapping[str, Any]:
        """What the user declared."""
        return self.settings.config

    # -- what is printed, logged and saved --------------------------------------------------------

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Record scalars that were reported after `step` optimizer steps."""
        self._when_begun(lambda run: run.log(step=self._number(step), **values))

    def val(self, loss: Any, step: int, metrics: Mapping[str, Any]) -> None:
        """Record a validation after `step` optimizer steps; None as `loss` if only metrics are known."""
        self._when_begun(lambda run: run.val(loss, step=self._number(step), **metrics))

    def printed_loss(self, value: float, step: int) -> None:
        """Record a training loss as the script reports it, beside the one on which backward starts."""
        self.log(step, {"printed_loss": value})

    def note(self, text: str) -> None:
        """Record a note in the event log."""
        self._when_begun(lambda run: run.note(text))

    def checkpoint(self, path: Any) -> None:
        """Record that the script saved its state."""
        if self.step:
            self._when_begun(lambda run: run.checkpoint(path))

    def _number(self, step: int) -> int:
        """The number of the last step in the run, which may continue another; before training it is the first."""
        return self._first + max(step - 1, 0)

    def _when_begun(self, action: Callable[[Run], None]) -> None:
        """Now, or after the first step; a validation before training belongs to the first step."""
        if not self.active or os.getpid() != self._pid:
            return
        run = self.run
        if run is not None and self.step:
            action(run)
        elif len(self._waiting) < _MOST_WAITING:
            self._waiting.append(lambda: action(self.run) if self.run is not None else None)

    # -- the run ------------------------------------------------------------------------------------

    def watch(self, objects: TrainedObjects, *, capture: bool) -> bool:
        """Watch these objects, in a new run if there is none; False if recording is not ours."""
        if self.run is None and not self._begin():
            return False
        assert self.run is not None
        self.run.watch(
            objects.model,
            objects.optimizers,
            scheduler=objects.scheduler,
            scaler=objects.scaler,
            loss_fn=named_by_factory if capture and not objects.has_parts else None,
        )
        for doubt in objects.doubts:
            self.say_once(doubt)
        return True

    def record_step(self, loss: Any, batch: Any, parts: Mapping[str, Any]) -> None:
        """Record one step; `parts` are the losses of a run with several."""
        run = self._own_run()
        if run is None:
            return
        run.step(loss, batch=batch)
        self.step += 1
        if parts:
            losses = {f"loss_{name}": value for name, value in parts.items()}
            self.own_names.update(losses)
            run.log(**losses)
        self._record_waiting()

    def record_late(self, losses: list[Any]) -> None:
        """Record the losses of steps that are over, at the next numbers."""
        if (run := self._own_run()) is not None:
            run._record_past(losses)
            self.step += len(losses)
            self._record_waiting()

    def _own_run(self) -> Run | None:
        return None if self.run is None or (self.step == 0 and self._script_records()) else self.run

    def _record_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    def take_over(self, by: str) -> None:
        """Leave recording to `by`, a framework's callback or the script's own `steadyrun.record`."""
        if not self.active or self._beginning:
            return
        self.taken_over_by = by
        self.end(everywhere=True)
        self.active = False
        for action in self.on_take_over:
            action()

    def end(self, failure: BaseException | None = None, *, everywhere: bool = False) -> None:
        """End the run, if there is one; a run without a step leaves nothing behind.

        The folder of several processes stays, unless it ends on all of them, because others may have taken steps.
        """
        if self.run is not None and os.getpid() == self._pid:
            for action in self.on_end:
                action()
        run, self.run = self.run, None
        if run is None or os.getpid() != self._pid:
            return
        from steadyrun.recording.process import own_world

        steps, self.step, self._waiting = self.step, 0, []
        run.close(failure if steps or not self._created else None)  # what leaves nothing behind says nothing
        if steps:
            self.folders.append(run.path)
        elif own_world() > 1 and not everywhere:
            self.folders += [run.path] if failure is not None else []
        elif self._created:
            shutil.rmtree(run.path, ignore_errors=True)
            _remove_if_empty(run.path.parent)

    def say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)

    def failed(self, problem: Exception) -> None:
        """An error of ours: recording ends, the script goes on."""
        say(f"the script is no longer recorded: {type(problem).__name__}: {problem} (training is not affected)")
        self.active = False

    def _script_records(self) -> bool:
        """Whether the script has a run of its own; then ours ends."""
        from steadyrun.recording.record import open_folders

        mine = None if self.run is None else self.run.path
        if all(folder == mine for folder in open_folders()):
            return False
        self.take_over("steadyrun.record")
        return True

    def _begin(self) -> bool:
        from steadyrun.integrations.callbacks import folder_of
        from steadyrun.recording import record as recording

        if self._script_records():
            return False
        settings = self.settings
        folder = folder_of(settings.folder, {}, goes_on=settings.resume, quiet=settings.numbered)
        self._created = not folder.exists()
        self._beginning = True
        try:
            self.run = recording.record(folder, dict(settings.config))
        finally:
            self._beginning = False
        if settings.recorded_by:
            self.run._name_recorder(settings.recorded_by)
        self._first = self.run.next_step
        for action in self.on_begin:
            action(folder)
        return True


def named_by_factory(_model: Any, _batch: Any) -> Any:
    """Stand for the loss function of a script: batches and checkpoints are kept, and replay gets it by `--factory`."""
    raise NotImplementedError("name the loss function: steadyrun replay RUN --factory FILE.py:FUNCTION")


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
