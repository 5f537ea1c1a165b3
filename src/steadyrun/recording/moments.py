"""What a `Run` does with moments: keep one, go back to one, execute one again."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from steadyrun.errors import UsageError
from steadyrun.probes.problems import Problems, say
from steadyrun.recording.flush import Flusher
from steadyrun.recording.step_counter import Steps
from steadyrun.store.writer import RunWriter

if TYPE_CHECKING:
    from steadyrun.probes.probe_set import Watcher
    from steadyrun.replay.result import Replay


class Moments:
    """The part of `Run` that needs capture."""

    path: Path
    _writer: RunWriter
    _problems: Problems
    _steps: Steps
    _outbox: Flusher
    _watcher: Watcher | None
    _program: Callable[[], tuple[Any, ...]] | None
    _turn: int
    _batches: int
    _stepped_at: float

    def flush(self) -> None:
        raise NotImplementedError

    def _usable(self) -> bool:
        raise NotImplementedError

    def incident(self, why: str) -> None:
        """Keep this moment: an incident folder at the last recorded step, as for a NaN or a fault."""
        if not self._usable():
            return
        with self._problems.contained("run.incident"):
            if self._outbox.capture is not None:
                self._outbox.capture.open("asked", str(why), self._steps.last)
            else:
                self._writer.event("incident", self._steps.last, cause="asked", why=str(why), replayable=False)
                say(
                    "the incident is noted, but nothing is captured: give run.watch a loss_fn; where it has one, the "
                    "run's not-recorded events say why"
                )

    def rollback(self, before: int | None = None) -> int:
        """Go back to the last good checkpoint and on with the batches that come next; returns the checkpoint's step.

        if not torch.isfinite(loss):
            run.rollback()
            continue

        Model, optimizer, scheduler and scaler are as they were before that step, bit for bit; gradients are cleared.
        The data loader and the random states are left as they are: the batches since then are skipped, and no dropout
        mask that went wrong comes again. Steps are counted on, so that nothing recorded is lost. `before` asks
        for a checkpoint of a step up to this one, where the loss went wrong long before it was noticed.

        It needs capture (`run.watch` with a `loss_fn`). After three rollbacks to one checkpoint it takes the one
        before; then it raises `UsageError`, as it does where there is no good checkpoint.
        """
        from steadyrun.recording.capture_setup import roll_back

        if not self._usable():
            raise UsageError("run.rollback: the run is closed")
        self.flush()
        capture = self._outbox.capture
        done = roll_back(self._writer, self._problems, capture, self._watcher, before, self._turn)
        self._steps.next = done.seam
        self._batches += done.given_up
        self._stepped_at = time.perf_counter()
        return done.to

    def replay(self, step: int | None = None, **options: Any) -> Replay | None:
        """Execute an incident again (the gravest one, or the one at `step`) with the objects being watched.

        They are as before afterwards, bit for bit. The options are those of `steadyrun.replay`. A run without
        incidents has nothing to replay: a line says so, and None is returned.
        """
        from steadyrun.recording.record import record
        from steadyrun.replay.in_process import replay_live

        self.flush()
        watcher, capture = self._watcher, self._outbox.capture
        if watcher is not None:
            watcher.detach()
        if capture is not None:
            capture.pause()
        try:
            return replay_live(self.path, self._program, step, record, **options)
        finally:
            if watcher is not None:
                watcher.attach(self._turn)
            if capture is not None and watcher is not None:
                capture.go_on()

    def _let_go(self) -> None:
        """The run is closed: what it watched belongs to the program alone. `replay` works while that is there."""
        if self._program is not None:
            held = [_weakly(each) for each in self._program()]
            self._program = lambda: tuple(reference() for reference in held)
        self._outbox.let_go()

    def _begin_capture(self, wanted: Any, loss_fn: Any, tokenizer: Any, loader: Any, factory: str | None) -> None:
        assert self._watcher is not None
        watcher = self._watcher
        self._program = lambda: (*watcher.program, loss_fn)
        if factory is not None:
            self._writer.save_manifest(factory=factory)
        from steadyrun.recording.capture_setup import begin_capture

        with self._problems.contained("incident capture", "failed"):
            self._outbox.capture = begin_capture(
                self._writer,
                self._problems,
                watcher,
                self._outbox.capture,
                wanted=wanted,
                loss_fn=loss_fn,
                tokenizer=tokenizer,
                loader=loader,
                step=self._steps.next,
            )


def _weakly(held: Any) -> Callable[[], Any]:
    """A reference that keeps nothing alive, as far as there can be one."""
    if isinstance(held, list):  # of optimizers
        each = [_weakly(one) for one in held]
        return lambda: [one for reference in each if (one := reference()) is not None]
    if isinstance(held, FunctionType) and not held.__closure__:  # a lambda that refers to its module alone
        return lambda: held
    try:
        return weakref.WeakMethod(held) if isinstance(held, MethodType) else weakref.ref(held)
    except TypeError:  # None, and what knows no weak references
        return lambda: held
