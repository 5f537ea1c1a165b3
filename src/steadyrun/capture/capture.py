"""Keeps what replay needs, and writes an incident folder when something goes wrong.

Between two steps it notes the random states and, when due, copies the training state; after a step it keeps the batch.
A thread writes. Nothing here changes training, and nothing waits for a device except when an incident is written.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict
from types import TracebackType
from typing import Any

from steadyrun.capture import batch_tokens, call_site, incident_folder
from steadyrun.capture.batch_ring import KeptStep, Ring
from steadyrun.capture.capture_options import Settings
from steadyrun.capture.checkpoint_pace import Checkpointing
from steadyrun.capture.checkpoints import (
    FOLDER,
    Checkpoint,
    Returns,
    Rollback,
    Rolling,
    autocast_in_force,
    keep_earlier,
    threads_and_flags,
)
from steadyrun.capture.incident_log import IncidentLog, Triggers
from steadyrun.capture.process_part import MOST, OtherRanks, ProcessPart
from steadyrun.capture.staging import Overlap
from steadyrun.capture.step_boundary import Boundary
from steadyrun.capture.writer_thread import Job, Worker
from steadyrun.probes.batch_hashes import input_hash
from steadyrun.probes.problems import Problems
from steadyrun.probes.row_queue import ProbeRow
from steadyrun.program import snapshot as training
from steadyrun.program import tensor_files
from steadyrun.program.packing import Packed, Room, pack, storages
from steadyrun.program.random_state import RandomState, take
from steadyrun.records import Found
from steadyrun.store.joint_incidents import JOINED
from steadyrun.store.writer import RunWriter

Watched = Callable[[], training.Objects]

_SMALL = 2**26  # bytes of a state that is written when a run ends well: a tenth of a second
_LOOK = 2.0  # seconds between two looks for incidents of other ranks
_LEAVING = 0.5  # seconds that a run that ended well waits for a checkpoint that is being written


class Capture:
    """The capture of one run. It is shown the program's objects, every step, and every fault that is found."""

    def __init__(
        self,
        writer: RunWriter,
        problems: Problems,
        settings: Settings,
        loss_fn: Any,
        tokenizer: Any | None,
        part: ProcessPart | None = None,
    ) -> None:
        self._problems = problems
        self._pid = os.getpid()
        self._ring, self._room = Ring(settings.batch_bytes), Room()
        self._part = part or ProcessPart()
        rolling = self._part.inside(writer.root / incident_folder.INCIDENTS / FOLDER)
        self._rolling = Rolling(rolling, writer.attempt)
        self._worker = Worker(lambda problem: problems.report("an incident", problem))
        self._checkpointing = Checkpointing(settings, problems)
        self._overlap = Overlap()
        self._counts = batch_tokens.TokenCounts(tokenizer) if tokenizer is not None else None
        self._accounts = IncidentLog(writer, settings, self._worker, self._rolling, self._counts, self._part)
        self._others = OtherRanks(writer.root, self._part.rank) if 1 < self._part.world <= MOST else None
        self._looked_at = time.perf_counter()
        self._finder = call_site.BatchFinder(loss_fn)
        self._spotter = Triggers()
        self._watched: Watched | None = None
        self._boundary: Boundary | None = None
        self._devices: list[int] = []
        self._random: RandomState | None = None  # when the last step ended
        self._forward: RandomState | None = None  # when the forward pass of this step began
        self._inputs: list[Any] = []
        self._last_batch: list[weakref.ref[Any]] = []
        self._next = self._watched_from = 0
        self._steps = 0
        self._resumed = writer.attempt > 1
        self._returns = Returns()
        self._out_of_memory = ""
        if self._resumed and self._rolling.folder.is_dir():
            self._keep_earlier(writer.attempt)

    # -- what the recorder calls -------------------------------------------------------------------

    def watch(self, objects: Watched, step: int, *, compiled: bool) -> None:
        """Follow these objects from `step` on; called again when they were replaced."""
        self.unwatch()
        if self._watched is not None:
            self._begin_anew()
            self._worker.wait()
        self._watched, self._next, self._watched_from = objects, step, step
        self._resumes_at(step)
        self._checkpointing.restart()
        self._spotter = Triggers()
        model = objects().model
        self._devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
        self._boundary = None if compiled else Boundary(model, self._crossed)
        self._begin_step()

    def unwatch(self) -> None:
        if self._boundary is not None:
            self._boundary.disarm()

    def pause(self) -> None:
        """Let go of the model, and have everything on disk."""
        self.unwatch()
        self._overlap.settle()
        self._worker.wait()

    def go_on(self) -> None:
        """After a pause, between two steps."""
        self._begin_step()

    def step_ended(self, row: ProbeRow, batch: Any, token_losses: Any) -> Packed | None:
        """Keep a step, and return its batch as it is kept.

        Its numbers are read from `row` when they are written: some arrive later.
        """
        if row.step < self._next:
            self._begin_anew()
        self._next = row.step + 1
        self._resumes_at(row.step)
        self._steps += 1
        self._checkpointing.beside(self._overlap.step_ended())
        crossed = self._boundary is not None and not self._boundary.disarm()
        kept_step = KeptStep(row.step, self._random or take(), self._forward, values=row.values)
        if batch is not None:
            self._keep_batch(kept_step, batch, self._inputs if crossed else [])
        if token_losses is not None:
            kept_step.token_losses = pack(token_losses, room=self._room)
        self._inputs = []
        self._ring.add(kept_step)
        self._accounts.passed(row.step, self._ring)
        self._join_others()
        if self._out_of_memory:
            why, self._out_of_memory = self._out_of_memory, ""
            self.open("out-of-memory", why, row.step)
        self._begin_step()
        return kept_step.batch

    def _keep_batch(self, kept_step: KeptStep, batch: Any, inputs: list[Any]) -> None:
        kept_step.batch = pack(batch, room=self._room)
        if not _are_parts(inputs, batch):
            kept_step.input_hash = input_hash(inputs)
        if not self._finder.done:
            self._finder.learn(call_site.training_frame(), batch)
        self._last_batch = call_site.references(batch)
        if self._counts is not None:
            self._counts.add(pack(batch, copy=False) if self._devices else kept_step.batch)

    def saw(self, row: ProbeRow) -> None:
        """A step's loss is known: open an incident where it is not finite, or jumped."""
        for kind, step, why, severity in self._spotter.saw(row.step, row.values.get("loss")):
            self.open(kind, why, step, severity=severity)

    def found(self, finding: Found) -> None:
        """The monitor found a fault."""
        step = finding.step if finding.step is not None else finding.noticed
        self.open("fault", f"{finding.code} {finding.outcome}: {finding.message}", step, finding=asdict(finding))

    def ran_out_of_memory(self, why: str) -> None:
        """Called inside the allocator, where nothing may be done: the next step reports it."""
        self._out_of_memory = why

    def raised(self, failure: BaseException) -> None:
        """The training loop ended with an exception; the step it was in was never handed over."""
        self._overlap.settle()
        batch = self._finder.find(failure.__traceback__)
        begun = self._forward is not None  # since the last step that was handed over
        if batch is not None and (begun or not call_site.is_made_of(batch, self._last_batch)):
            self._ring.add(KeptStep(self._next, self._random or take(), self._forward, pack(batch)))
        kind = "out-of-memory" if "OutOfMemory" in type(failure).__name__ else "exception"
        words = str(failure).splitlines() or [""]
        self.open(kind, f"{type(failure).__name__}: {words[0][:500]}", self._next, trace=failure.__traceback__)

    def open(
        self,
        kind: str,
        why: str,
        step: int,
        *,
        severity: float = float("inf"),
        finding: dict[str, Any] | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Leave a folder for what happened at `step`."""
        facts: dict[str, Any] = {"code": call_site.code_location(call_site.training_frame(), trace)}
        if finding is not None:
            facts["found"] = finding
        self._accounts.open(incident_folder.Account(step, kind, why, self._next - 1, severity, facts), self._ring)

    def roll_back(self, before: int | None) -> Rollback:
        """Put the last good state back into the watched objects; a clear error, and nothing changed, where none is.

        A step that was begun and not handed over is dropped: it becomes an incident of its own.
        """
        assert self._watched is not None
        given_up = self._boundary is not None and not self._boundary.disarm()
        try:
            self._settle()
            until = self._next if before is None else before
            checkpoint = self._returns.choose(self._candidates(), until)
            content, tensors = tensor_files.load(checkpoint.base)
            done = Rollback(
                checkpoint.step,
                self._next - (not given_up),
                self._next + given_up,
                self._next - checkpoint.step + given_up,
                given_up,
            )
            if given_up:
                self._give_up(done)
            training.restore(self._watched(), content["state"], tensors)
            self._go_on_from(done, checkpoint)
        finally:
            self._begin_step()
        return done

    def close(self, *, failed: bool) -> None:
        """Write what is open. After a failure all rolling checkpoints stay, else the last good one.

        That is the state of now if it is small. Nothing large is written for a run that ended well.
        """
        self.unwatch()
        self._overlap.settle()
        for kind, step, why, severity in self._spotter.spikes():
            self.open(kind, why, step, severity=severity)
        if self._others is not None:
            self._others.look()
            self._open_joined(None)
        self._accounts.passed(None, self._ring)
        if not self._worker.finish(None if failed or self._worker.owes else _LEAVING):
            self._rolling.abandon()
        elif not failed:
            if (
                self._watched is not None
                and self._part.whole
                and self._steps
                and training.refer(self._watched()).nbytes <= _SMALL
            ):
                self._copy_state(take(self._random, self._devices), lambda job: job(), last=True)
            self._rolling.clear(keep=1)

    # -- several processes -------------------------------------------------------------------------

    def _join_others(self) -> None:
        """Keep this rank's part of what happened on another: with all parts a replay averages the gradients."""
        if self._others is None:
            return
        self._open_joined(self._next)
        if time.perf_counter() - self._looked_at >= _LOOK:
            self._looked_at = time.perf_counter()
            self._worker.do(self._others.look, owed=False)

    def _open_joined(self, before: int | None) -> None:
        assert self._others is not None
        for step, rank in self._others.take(before):
            self.open(JOINED, f"rank {rank} has an incident at step {step}", step)

    # -- going back --------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Everything that is known so far becomes what it will be, and is on disk."""
        self._overlap.settle()
        for kind, step, why, severity in self._spotter.spikes():
            self.open(kind, why, step, severity=severity)
        self._accounts.passed(None, self._ring)
        self._worker.wait()

    def _candidates(self) -> list[Checkpoint]:
        """Those of the objects that are watched now."""
        return [checkpoint for checkpoint in self._rolling.checkpoints if checkpoint.step >= self._watched_from]

    def _give_up(self, done: Rollback) -> None:
        batch = self._finder.current_batch(call_site.training_frame())
        if batch is not None and not call_site.is_made_of(batch, self._last_batch):
            self._ring.add(KeptStep(self._next, self._random or take(), self._forward, pack(batch)))
        self.open("rollback", f"step {done.last} was given up: back to the state before step {done.to}", done.last)
        self._accounts.passed(None, self._ring)
        self._worker.wait()

    def _go_on_from(self, done: Rollback, checkpoint: Checkpoint) -> None:
        self._returns.used(checkpoint)
        self._rolling.went_back(done.seam, checkpoint)
        self._accounts.seam = done.seam
        self._checkpointing.restart()
        self._next, self._inputs = done.seam, []

    def _resumes_at(self, step: int) -> None:
        """The first step of a resumed attempt; the first that is recorded has the last word."""
        if self._resumed and not self._steps:
            self._accounts.resumed_at = step

    def _keep_earlier(self, attempt: int) -> None:
        try:
            self._rolling.earlier = keep_earlier(self._rolling.folder, attempt)
        except OSError as problem:
            self._problems.report("the checkpoint of the attempt before", problem, "could not be kept")

    def _begin_anew(self) -> None:
        """The program went back to an earlier step, or has other objects: what was kept does not lead to what comes."""
        self._overlap.settle()
        self._accounts.passed(None, self._ring)
        self._ring.clear()
        self._checkpointing.restart()
        self._worker.do(lambda: self._rolling.clear(keep=0))

    # -- between two steps -------------------------------------------------------------------------

    def _begin_step(self) -> None:
        self._random, self._forward = take(self._random, self._devices), None
        if self._boundary is not None:
            self._boundary.arm()
        else:
            self._take_checkpoint(self._random)

    def _crossed(self, args: Any) -> None:
        if os.getpid() != self._pid:  # a forked child has the hook, and neither the thread nor the files
            return
        try:
            self._forward = take(self._random, self._devices)
            self._take_checkpoint(self._forward)
            self._inputs = list(args) if isinstance(args, tuple) else []
        except Exception as problem:
            self._problems.report("incident capture", problem)

    def _take_checkpoint(self, random: RandomState) -> None:
        if (
            self._watched is None
            or not self._part.whole
            or self._worker.busy
            or not self._checkpointing.due(self._next, self._ring)
        ):
            return
        self._copy_state(random, lambda job: self._worker.do(job, owed=False))

    def _copy_state(self, random: RandomState, write: Callable[[Job], None], *, last: bool = False) -> None:
        assert self._watched is not None
        step, objects = self._next, self._watched()
        taken = self._checkpointing.take(step, objects, None if last else self._ring, write)
        if taken is not None:
            state, beside = taken
            autocast, flags = autocast_in_force(objects.model), threads_and_flags()
            facts = {"position": {"batches": step}, "autocast": autocast, "flags": flags}
            self._overlap.begin(beside, lambda: write(lambda: self._write_checkpoint(step, state, random, facts)))
            if last:
                self._overlap.settle()

    def _write_checkpoint(self, step: int, state: Packed, random: RandomState, facts: dict[str, Any]) -> None:
        try:
            self._rolling.write(step, state, random, facts)
        except OSError as problem:
            if self._rolling.abandoned:
                return
            self._problems.report("a rolling checkpoint", problem, "could not be written; replay does without it")


def _are_parts(inputs: list[Any], batch: Any) -> bool:
    """Whether a model got nothing else than parts of the batch, in nearly every step the very tensors."""
    parts = batch.values() if type(batch) is dict else batch if type(batch) in (list, tuple) else (batch,)
    if set(map(id, parts)).issuperset(map(id, inputs)):
        return True
    return storages(inputs) <= storages(batch)
